// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 600
 *
 * Tests individual accounting of tasks, which the files in /proc/ppa control and show.
 */
#include "ppa_files.h"
#include "refusals.h"
#include <grp.h>
#include <sys/resource.h>

static void test_bad_input(void)
{
	int pid = getpid();

	is(write_entry(pid, "1 0 0"), -EINVAL, "4.7 ppactl: too few values are EINVAL");
	is(write_entry(pid, "1 0 0 1 1"), -EINVAL, "4.7 ppactl: too many values are EINVAL");
	is(write_entry(pid, "1 0 0 1x"), -EINVAL,
	   "4.7 ppactl: a value that is not a number is EINVAL");
	is(write_entry(pid, "2 0 0 1"), -EINVAL, "4.7 ppactl: a flag of 2 is EINVAL");
	is(write_entry(pid, "0 1 0 1"), -EINVAL,
	   "4.7 ppactl: latencies without the first flag are EINVAL");
	is(write_entry(pid, "1 0 0 0"), -EINVAL, "4.7 ppactl: groups of 0 CPUs are EINVAL");
	is(write_entry(pid, "1 0 1 1"), -EOPNOTSUPP, "4.7 ppactl: timers are EOPNOTSUPP");
	is(ppa_write(PPACTL, "4294967297 1 0 0 1"), -EINVAL,
	   "4.7 ppactl: a pid of 2^32 + 1 is EINVAL, not pid 1");
	is(write_entry(pid, "4294967297 0 0 1"), -EINVAL,
	   "4.7 ppactl: a value of 2^32 + 1 is EINVAL, not 1");
	is(write_entry(0x7fffffff, "1 0 0 1"), -ESRCH,
	   "4.7 ppactl: a pid that does not exist is ESRCH");
	is(write_entry(pid, "0 0 0 1"), 0,
	   "4.7 ppactl: turning off a task that is not accounted succeeds");
	ok(!has_files(pid) && !active_levels(),
	   "4.7 ppactl: failed calls account no task and turn nothing on");
}

static void test_all_by_pid_0(void)
{
	char text[64];

	is(write_entry(0, "1 1 0 1"), 0, "4.7 ppactl: pid 0 turns the accounting of all tasks on");
	ok(read_file(SETTINGS, text, sizeof(text)) && !strcmp(text, "1\t1\t0\t1\n"),
	   "4.7 ppactl: the settings of pid 0 are those of kernel.ppa");
	ok(read_file(PPACTL, text, sizeof(text)) && !*text, "4.7 ppactl: pid 0 is not in the list");
	is(write_entry(0, "0 0 0 1"), 0, "4.7 ppactl: pid 0 turns the accounting of all tasks off");
	ok(!active_levels(), "4.7 ppactl: accounting is off after pid 0 has turned it off");
}

/* Compares the values of a task, for each group of CPUs, with the known work of the task. */
static void test_known_work(void)
{
	int pid = start_worker(), i, status;
	struct ppa_task t, other;
	static struct rawppa r;
	char text[512];
	unsigned long long v[16], blocked;
	double latency, duration;

	waitpid(pid, &status, WUNTRACED);
	is(write_entry(pid, "1 1 0 1"), 0, "4.7 one task: accounting is turned on");
	ok(has_files(pid), "4.3 one task: it has files in /proc/ppa");
	ok(read_file(task_path(pid, "ppactl"), text, sizeof(text)) && !strcmp(text, "1\t1\t0\t1\n"),
	   "4.7 one task: its own ppactl has its four values");
	ok(read_file("/proc/sys/kernel/ppa", text, sizeof(text)) && text[0] == '0',
	   "4.7 one task: the settings of all tasks are still off");
	ok(read_file(PPACTL, text, sizeof(text)) && atoi(text) == pid && !strchr(text, '\n')[1],
	   "4.7 one task: it is the only one in /proc/ppa/ppactl");
	is(ppa_get_task(dev, getpid(), &other), -ENODATA,
	   "4.1 one task: PPA_GETTASK of another task is ENODATA");
	blocked = voluntary_switches(pid);
	kill(pid, SIGCONT);
	waitpid(pid, &status, WUNTRACED);
	/* Waits until the task has stopped and its accounted time no longer changes. */
	wait_until(task_state(pid) == 'T' && !ppa_get_task(dev, pid, &other) &&
		   !ppa_get_task(dev, pid, &t) && other.values[0] == t.values[0] &&
		   other.runq == t.runq);
	blocked = voluntary_switches(pid) - blocked;
	is(read_rawppa(pid, info.nr_cpus, true, &r), 0,
	   "4.4 rawppa: has all CPUs, run-queue time, signals and latencies");
	is(ppa_get_task(dev, pid, &t), 0, "4.4 one task: PPA_GETTASK succeeds");
	for (i = 0; i < PPA_NR_VALUES && sum_over_groups(&r, info.nr_cpus, i) == t.values[i]; i++)
		;
	is(i, PPA_NR_VALUES, "4.4 rawppa: the groups add up to the values of PPA_GETTASK");
	for (i = 0; i < 2; i++)
		note("CPU %d: %.2f ms, %.2f in %llu calls, %llu interrupts, blocked %llu", i,
		     ticks_to_ms(r.values[i][PPA_SCHEDACCUM], &info),
		     ticks_to_ms(r.values[i][PPA_SCACCUM], &info),
		     r.values[i][PPA_SYSCALLCNT], r.values[i][PPA_INTCNT],
		     r.values[i][PPA_SCHEDOUTCNT]);
	ok(r.values[0][PPA_SYSCALLCNT] >= 1000 && r.values[0][PPA_SYSCALLCNT] < 1100,
	   "4.4 rawppa: 1,000 to 1,099 system calls on CPU 0");
	ok(r.values[1][PPA_SYSCALLCNT] >= 1000 && r.values[1][PPA_SYSCALLCNT] < 1100,
	   "4.4 rawppa: 1,000 to 1,099 system calls on CPU 1");
	/*
	 * The number of blocks is not exact: a sleep may end before the task has blocked, and
	 * migrations and stops of the task count as blocks, too.
	 */
	note("it has blocked %llu times", blocked);
	ok(r.values[0][PPA_SCHEDOUTCNT] >= 5 && r.values[1][PPA_SCHEDOUTCNT] >= 5 &&
	   r.values[0][PPA_SCHEDOUTCNT] + r.values[1][PPA_SCHEDOUTCNT] + 2 >= blocked &&
	   r.values[0][PPA_SCHEDOUTCNT] + r.values[1][PPA_SCHEDOUTCNT] <= blocked + 2,
	   "4.4 rawppa: blocked on both CPUs, as often as the kernel counts, within 2");
	ok(r.values[0][PPA_SCHEDACCUM] > r.values[0][PPA_SCACCUM] &&
	   r.values[1][PPA_SCHEDACCUM] > r.values[1][PPA_SCACCUM],
	   "4.5 rawppa: system time is below all time on both CPUs");
	is(r.signals[SIGUSR1], SIGNALS, "4.4 rawppa: all signals are counted");
	is(r.runq, t.runq, "4.4 rawppa: run-queue time is that of PPA_GETTASK");
	for (v[0] = i = 0; i < PPA_NR_LATENCIES; i++)
		v[0] += r.lengths[i];
	ok(v[0] + 4 >= blocked && v[0] < blocked + 20,
	   "4.4 rawppa: one latency for each wakeup: %llu", v[0]);
	ok(read_file(task_path(pid, "ppa"), text, sizeof(text)), "4.3 ppa file: can be read");
	printf("# %.*s\n", (int)strcspn(text, "\n"), text);
	i = sscanf(text, "All results in micro seconds ([v2.0]) %llu cycles/usec %llu CPUs active\n"
		   "Usr Sys Int Total\n%llu %llu %llu %llu\n"
		   "Rescheds Scho Prmpt-Pri Prmpt-Exp Avg-Latency\n%llu %llu %llu %llu %lf\n"
		   "Sys-Idle Avg-Ctxt-Dur\n%llu %lf\n", &v[0], &v[1], &v[2], &v[3], &v[4],
		   &v[5], &v[6], &v[7], &v[8], &v[9], &latency, &v[10], &duration);
	if (i != 13)
		printf("# %s\n", text);
	is(i, 13, "4.3 ppa file: has the 13 values of PPA (2006)");
	is(v[0], info.khz / 1000, "4.6 ppa file: ticks of a microsecond");
	is(v[1], sysconf(_SC_NPROCESSORS_ONLN), "4.3 ppa file: number of CPUs online");
	is(v[2] + v[3], v[5], "4.5 ppa file: user and system time add up to the total");
	is(v[5], t.values[PPA_SCHEDACCUM] * 1000 / info.khz,
	   "4.3 ppa file: the total is that of PPA_GETTASK");
	is(v[7], t.values[PPA_SCHEDOUTCNT], "4.3 ppa file: blocked as often as in PPA_GETTASK");
	ok(latency > 0 && duration > 0 && v[10] > 0,
	   "4.3 ppa file: idle time, latency and time of a switch are above 0: %.3f us, %.3f us",
	   latency, duration);
	/* Without the histogram, the other values of the task are kept. */
	is(ppa_write(task_path(pid, "ppactl"), "1 0 0 1\n"), 0,
	   "4.7 ppactl of a task: latencies are turned off");
	is(read_rawppa(pid, info.nr_cpus, false, &r), 0,
	   "4.4 rawppa: no latencies after they were turned off");
	is(sum_over_groups(&r, info.nr_cpus, PPA_SCHEDACCUM), t.values[PPA_SCHEDACCUM],
	   "4.7 ppactl of a task: its time is kept when latencies are turned off");
	/* Make all CPUs one group, and check that the values of the task are kept. */
	is(ppa_write(task_path(pid, "ppactl"), "1 0 0 1000"), 0,
	   "4.7 ppactl of a task: all CPUs become one group");
	is(read_rawppa(pid, 1, false, &r), 0,
	   "4.4 rawppa: has one group after the change to one group");
	is(r.values[0][PPA_SCHEDACCUM], t.values[PPA_SCHEDACCUM],
	   "4.7 ppactl of a task: its time is kept when groups are changed");
	is(r.values[0][PPA_SYSCALLCNT], t.values[PPA_SYSCALLCNT],
	   "4.7 ppactl of a task: its system calls are kept when groups are changed");
	is(r.signals[SIGUSR1], SIGNALS,
	   "4.7 ppactl of a task: its signals are kept when groups are changed");
	kill(pid, SIGCONT);
	wait_until(read_rawppa(pid, 1, false, &r) ||
		   (r.values[0][PPA_SCHEDACCUM] > t.values[PPA_SCHEDACCUM] + 5 * info.khz &&
		    r.values[0][PPA_SYSCALLCNT] > t.values[PPA_SYSCALLCNT] + 100));
	is(read_rawppa(pid, 1, false, &r), 0, "4.4 rawppa: can be read while the task runs");
	ok(r.values[0][PPA_SCHEDACCUM] > t.values[PPA_SCHEDACCUM] + 5 * info.khz &&
	   r.values[0][PPA_SCACCUM] > t.values[PPA_SCACCUM] &&
	   r.values[0][PPA_SYSCALLCNT] > t.values[PPA_SYSCALLCNT] + 100,
	   "4.1 one task: time and system calls are counted after groups were changed");
	/* The end of the task removes its files, but not its record. */
	kill_child(pid);
	ok(files_are_gone(pid), "4.3 one task: its files are removed when it ends");
	is(active_levels(), 15, "4.4 one task: accounting stays on until its record is read");
	{
		static struct ppa_task tasks[64];
		int nr;

		/* waitpid() may return before the task's last context switch is over. */
		wait_until((nr = ppa_tasks(dev, tasks, 64)) != 1 ||
			   tasks[0].flags & PPA_TASK_ENDED);
		is(nr, 1, "4.4 ended task: one record is read");
		is(tasks[0].pid, pid, "4.4 ended task: the record has its pid");
		ok(tasks[0].flags & PPA_TASK_ENDED,
		   "4.4 ended task: the record is marked as ended");
	}
	ok(has_stopped(), "4.7 one task: accounting is off once its record was read");
}

/* Opens a file and reads a byte of it. Returns 0 or a negative errno. */
static int read_error(const char *path)
{
	int fd = open(path, O_RDONLY), rc;
	char byte;

	rc = read(fd, &byte, 1) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

static void test_unprivileged(void)
{
	int pid = getpid(), status, own_child, ready[2];
	char byte;

	bail_if(pipe(ready), "pipe");
	write_entry(pid, "1 0 0 1");
	status = in_child({
		exit_if(setgroups(0, NULL) || setresgid(1000, 1000, 1000) ||
			setresuid(1000, 1000, 1000), 100);
		_exit(!refused(REFUSAL(EPERM, write_entry(pid, "1 0 0 1")),
			       REFUSAL(EPERM, read_error(PPACTL)),
			       REFUSAL(EPERM, ppa_write(task_path(pid, "ppactl"), "1 0 0 1")),
			       REFUSAL(EPERM, read_error(task_path(pid, "ppa"))),
			       REFUSAL(EPERM, read_error(task_path(pid, "rawppa")))));
	});
	is(status, 0, "4.7 unprivileged: another user can neither read nor set");
	own_child = fork_child({
		exit_if(setgroups(0, NULL) || setresgid(1000, 1000, 1000) ||
			setresuid(1000, 1000, 1000), 100);
		/*
		 * A process that has changed its user is not dumpable until it executes a program,
		 * so this process executes itself.
		 */
		execl("/proc/self/exe", "ppa_per_task", "self", format_text("%d", ready[1]), NULL);
		_exit(101);
	});
	close(ready[1]);
	/* The executed program has blocked SIGUSR1, and waits for this signal. */
	if (read(ready[0], &byte, 1) != 1)
		note("no byte from the executed program");
	close(ready[0]);
	write_entry(own_child, "1 0 0 1");
	kill(own_child, SIGUSR1);
	is(wait_child(own_child), 0, "4.3 unprivileged: a task can read its own rawppa");
	write_entry(pid, "0 0 0 1");
	ok(files_are_gone(pid) && files_are_gone(own_child),
	   "4.7 unprivileged: the files of both tasks are removed");
	ppa_write(SETTINGS, "0 0 0 1");
	is(active_levels(), 0, "4.7 settings: turning accounting off drops unread records");
}

/*
 * Checks that, after @change, PPA_GETTASK still returns the values @t for the stopped task @pid.
 */
static void check_values_kept(int pid, const struct ppa_task *t, const char *change)
{
	struct ppa_task now;
	int i;

	if (ppa_get_task(dev, pid, &now)) {
		ok(false, "4.7 record of a task: can be read after %s", change);
		return;
	}
	for (i = 0; i < PPA_NR_VALUES && now.values[i] == t->values[i]; i++)
		;
	if (i < PPA_NR_VALUES)
		note("value %d: %llu, before %llu", i, now.values[i], t->values[i]);
	ok(i == PPA_NR_VALUES && now.runq == t->runq && now.counted >= t->counted &&
	   now.signals[SIGUSR1] == t->signals[SIGUSR1] && now.cpu == t->cpu,
	   "4.7 record of a task: its values are kept after %s", change);
}

/* Copies the record of the ended task @pid, if there is one, to @t. */
static bool find_ended(int pid, struct ppa_task *t)
{
	static struct ppa_task tasks[512];
	int i, nr = ppa_tasks(dev, tasks, 512);

	for (i = 0; i < nr; i++) {
		if ((int)tasks[i].pid == pid && tasks[i].flags & PPA_TASK_ENDED) {
			*t = tasks[i];
			return true;
		}
	}
	return false;
}

/* All tasks are accounted, so the values of the task must be kept. */
static void test_values_kept(void)
{
	struct ppa_task t, other;
	bool found = false;
	int pid;

	ppa_write(SETTINGS, "1 0 0 1");
	pid = start_worker();
	waitpid(pid, NULL, WUNTRACED);
	kill(pid, SIGCONT);
	waitpid(pid, NULL, WUNTRACED);
	/* A stopped task uses no time, and does not wait for a CPU. */
	wait_until(task_state(pid) == 'T' && !ppa_get_task(dev, pid, &other) &&
		   !ppa_get_task(dev, pid, &t) && other.values[0] == t.values[0] &&
		   other.runq == t.runq);
	ok(t.values[PPA_SYSCALLCNT] >= 2000 && t.signals[SIGUSR1] == SIGNALS,
	   "4.7 record of a task: has system calls and signals before the task is selected");
	write_entry(pid, "1 1 0 2");
	check_values_kept(pid, &t, "the task was selected");
	write_entry(pid, "1 1 0 1");
	check_values_kept(pid, &t, "the groups of CPUs were changed");
	write_entry(pid, "0 0 0 1");
	check_values_kept(pid, &t, "the task was deselected");
	/* Selects the task again, as a second reader would. */
	write_entry(pid, "1 0 0 1");
	check_values_kept(pid, &t, "the task was selected again");
	kill_child(pid);
	wait_until((found = find_ended(pid, &other)));
	ok(found && other.values[PPA_SYSCALLCNT] >= t.values[PPA_SYSCALLCNT] &&
	   other.values[PPA_SCHEDACCUM] >= t.values[PPA_SCHEDACCUM] &&
	   other.counted >= t.counted && other.signals[SIGUSR1] == SIGNALS,
	   "4.7 record of a task: has the values from before it was selected when the task ended");
	ppa_write(SETTINGS, "0 0 0 1");
	ok(has_stopped(), "4.7 record of a task: accounting ends");
}

static double average_latency(int pid)
{
	const char *heading = "Avg-Latency\n";
	double latency = -1;
	char text[512], *line;

	line = read_file(task_path(pid, "ppa"), text, sizeof(text)) ? strstr(text, heading) : NULL;
	if (line)
		sscanf(line + strlen(heading), "%*u %*u %*u %*u %lf", &latency);
	return latency;
}

/* Wakes the task @pid, which sleeps in read(), and returns its values when it sleeps again. */
static struct ppa_task wake_once(int pid, int to)
{
	struct ppa_task before = ppa_task(dev, pid), t;

	wake_sleeper(to);
	wait_until(!ppa_get_task(dev, pid, &t) &&
		   t.values[PPA_SCHEDOUTCNT] > before.values[PPA_SCHEDOUTCNT]);
	return t;
}

static void test_late_histogram(void)
{
	struct ppa_task t;
	double average;
	int to, i, pid = start_sleeper(1, &to);

	write_entry(pid, "1 0 0 1");
	for (i = 0; i < 100; i++)
		wake_once(pid, to);
	write_entry(pid, "1 1 0 1");
	t = wake_once(pid, to);
	is(sum_latencies(&t), 1, "4.4 late histogram: counts one wakeup after it was turned on");
	average = 1000 * ticks_to_ms(t.values[PPA_SCHLATACCUM], &info) / t.values[PPA_SCHEDOUTCNT];
	ok(average_latency(pid) > 0.9 * average && average_latency(pid) < 1.1 * average,
	   "4.4 late histogram: the average latency in the ppa file is that of all wakeups: %.3f us, %.3f us",
	   average_latency(pid), average);
	close(to);
	kill_child(pid);
	wait_until(!has_files(pid));
	ppa_write(SETTINGS, "0 0 0 1");
	ok(has_stopped(), "4.7 late histogram: accounting ends");
}

static void test_with_all_accounted(void)
{
	static struct rawppa r;
	struct ppa_task t;
	int self = getpid();
	long long blocked;

	is(ppa_write(SETTINGS, "1 0 0 1"), 0, "4.7 all tasks: accounting is turned on");
	is(write_entry(self, "1 1 0 2"), 0, "4.7 one of all tasks: is given values of its own");
	is(read_rawppa(self, (info.nr_cpus + 1) / 2, true, &r), 0,
	   "4.7 one of all tasks: rawppa has its groups of two CPUs");
	is(ppa_get_task(dev, 1, &t), 0, "4.7 all tasks: PPA_GETTASK of another task succeeds");
	ok(!(t.flags & PPA_TASK_LATENCIES), "4.7 all tasks: another task has no latencies");
	is(write_entry(self, "0 0 0 1"), 0, "4.7 one of all tasks: loses the values of its own");
	ok(files_are_gone(self), "4.7 one of all tasks: has no files without values of its own");
	blocked = voluntary_switches(self);
	wait_until(voluntary_switches(self) > blocked);
	is(ppa_get_task(dev, self, &t), 0,
	   "4.7 one of all tasks: is accounted without values of its own");
	ok(!(t.flags & PPA_TASK_LATENCIES),
	   "4.7 one of all tasks: has no latencies without values of its own");
	is(write_entry(self, "1 1 0 1"), 0,
	   "4.7 one of all tasks: is given values of its own again");
	is(ppa_write(SETTINGS, "0 0 0 1"), 0, "4.7 all tasks: accounting is turned off");
	is(ppa_get_task(dev, 1, &t), -ENODATA,
	   "4.7 all tasks: PPA_GETTASK of another task is ENODATA when off");
	is(read_rawppa(self, info.nr_cpus, true, &r), 0,
	   "4.7 one task: still accounted when accounting of all tasks is off");
	is(ppa_write(LEVELS, "1"), 0, "4.7 levels: reduced to the scheduler");
	wait_until(!read_rawppa(self, info.nr_cpus, true, &r) &&
		   sum_over_groups(&r, info.nr_cpus, PPA_SCHEDOUTCNT));
	is(read_rawppa(self, info.nr_cpus, true, &r), 0,
	   "4.7 one task: still accounted when levels were changed");
	is(sum_over_groups(&r, info.nr_cpus, PPA_SYSCALLCNT), 0,
	   "4.7 one task: no system calls are counted without their level");
	ok(sum_over_groups(&r, info.nr_cpus, PPA_SCHEDOUTCNT) > 0,
	   "4.7 one task: its blocks are counted without the other levels");
	ppa_write(LEVELS, "15");
	is(write_entry(self, "0 0 0 1"), 0, "4.7 one task: accounting is turned off");
	ok(files_are_gone(self), "4.7 one task: its files are removed when it is turned off");
	ok(has_stopped(), "4.7 accounting: off once no task uses it");
}

/*
 * Tasks start and end, with and without entries in /proc/ppa, while two readers read all entries.
 */
static void test_many_tasks(int times)
{
	int readers[2], i, rc = 0, busy = 0;
	static struct rawppa r;

	for (i = 0; i < 2; i++) {
		readers[i] = fork();
		if (readers[i])
			continue;
		/*
		 * The readers use all CPU time that is left to them. The parent waits for RCU, so
		 * the parent and the kernel's RCU threads must run before the readers.
		 */
		setpriority(PRIO_PROCESS, 0, 10);
		for (;;) {
			DIR *dir = opendir("/proc/ppa");
			struct dirent *entry;
			char text[512];

			while (dir && (entry = readdir(dir))) {
				int pid = atoi(entry->d_name);

				read_rawppa(pid, info.nr_cpus, false, &r);
				read_file(task_path(pid, "ppa"), text, sizeof(text));
				read_file(task_path(pid, "ppactl"), text, sizeof(text));
			}
			if (dir)
				closedir(dir);
		}
	}
	for (i = 0; i < times; i++) {
		int pid = fork(), n;

		if (!pid) {
			for (n = 0; n < 100000; n++)
				sink += n;
			exit_if(i % 2, 0);
			pause();
		}
		n = write_entry(pid, i % 3 ? "1 0 0 1" : "1 1 0 3");
		/*
		 * ESRCH: the child has already ended, which is expected of every second child.
		 * EBUSY: files of an earlier task with this pid remain.
		 */
		if (n == -EBUSY)
			busy++;
		else if (n != -ESRCH || !(i % 2))
			rc |= n;
		if (i % 5 == 0)
			rc |= ppa_write(SETTINGS, i % 2 ? "1 0 0 1" : "0 0 0 1");
		if (i % 4 == 0)
			write_entry(pid, "0 0 0 1");
		kill_child(pid);
	}
	is(rc, 0, "4.7 storm of tasks: setting %d of them individually succeeds", times);
	is(busy, 0, "4.7 storm of tasks: no EBUSY by files of an earlier task");
	for (i = 0; i < 2; i++)
		kill_child(readers[i]);
	ppa_write(SETTINGS, "0 0 0 1");
	ok(read_file(PPACTL, (char *)&r, sizeof(r)) && !*(char *)&r,
	   "4.7 storm of tasks: none is left in ppactl");
}

/* Tests tasks whose parent has waited for them before their last context switch. */
static void test_reaped(void)
{
	static struct ppa_task tasks[512];
	int missing = 0, twice = 0, ended = 0, i, n, k, nr;

	is(ppa_write(SETTINGS, "1 0 0 1"), 0,
	   "4.7 reaped tasks: accounting of all tasks is turned on");
	for (i = 0; i < 150; i++) {
		int pid = fork_child(_exit(0));

		waitpid(pid, NULL, 0);
		nr = ppa_tasks(dev, tasks, 512);
		for (n = 0; n < nr; n++) {
			missing += !tasks[n].pid && !(tasks[n].flags & PPA_TASK_KERNEL);
			ended += tasks[n].pid == (__u32)pid && tasks[n].flags & PPA_TASK_ENDED;
			/* The record of another task that ends meanwhile may be returned twice. */
			for (k = 0; k < n && tasks[n].pid == (__u32)pid; k++)
				twice += tasks[k].pid == tasks[n].pid &&
					 tasks[k].began == tasks[n].began;
		}
	}
	is(missing, 0, "4.1 reaped tasks: no task but the kernel's has pid 0");
	is(twice, 0, "4.1 reaped tasks: none is returned twice (%d had ended)", ended);
	ppa_write(SETTINGS, "0 0 0 1");
	wait_until(ppa_tasks(dev, tasks, 512) <= 0);
}

/*
 * Processes write to the file of a task, which can turn accounting on, while ppa.ko is removed. The
 * module must not leave its probes behind.
 */
static void test_writers_during_unload(void)
{
	int nr = gate_or_long(5, 20), nr_removed = 0, log = klog_open();

	for (int i = 0; i < nr; i++) {
		pid_t target, writers[4];

		/* The children must not inherit the open file of the device. */
		close(dev);
		target = fork_sleeper();
		write_entry(target, "1 0 0 1");
		for (int w = 0; w < 4; w++)
			writers[w] = fork_child({
				for (;;)
					try_write_file(task_path(target, "ppactl"), "1 0 0 1");
			});
		sleep_ms(5 + i % 20);
		nr_removed += !rmmod("ppa");
		for (int w = 0; w < 4; w++)
			kill_child(writers[w]);
		kill_child(target);
		/* If a probe is left, a task switch calls freed memory. */
		sleep_ms(20);
		ppa_load();
	}
	is(nr_removed, nr, "4.7 rmmod while files of a task are written: succeeds each time");
	is(klog_count(log, "without perf_del()"), 0,
	   "4.7 rmmod while files of a task are written: no instances are left");
	close(log);
}

static void test_unload(void)
{
	int pid = getpid(), fd;
	char byte;

	write_entry(pid, "1 1 0 1");
	fd = open(task_path(pid, "ppa"), O_RDONLY | O_CLOEXEC);
	ok(fd >= 0 && read(fd, &byte, 1) == 1,
	   "4.3 rmmod: a file of /proc/ppa is open before the rmmod");
	close(dev);
	is(rmmod("ppa"), 0, "4.7 rmmod: succeeds while a task is accounted");
	is(read(fd, &byte, 1) < 0 ? errno : 0, EIO,
	   "4.3 rmmod: reading the open file fails afterwards");
	close(fd);
	is(access("/proc/ppa", F_OK) ? errno : 0, ENOENT, "4.3 rmmod: /proc/ppa is removed");
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "self")) {
		static struct rawppa r;
		sigset_t set;
		int sig;

		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		sigprocmask(SIG_BLOCK, &set, NULL);
		if (argc > 2 && write(atoi(argv[2]), "x", 1) != 1)
			return 1;
		sigwait(&set, &sig);
		return read_rawppa(getpid(), sysconf(_SC_NPROCESSORS_CONF), false, &r) != 0;
	}
	plan(12 + 5 + 40 + 4 + 7 + 3 + 20 + 3 + 3 + 2 + 4);
	ppa_write("/proc/sys/kernel/modprobe", "\n");
	ppa_load();
	test_bad_input();
	test_all_by_pid_0();
	test_known_work();
	test_unprivileged();
	test_values_kept();
	test_late_histogram();
	test_with_all_accounted();
	test_many_tasks(gate_or_long(20, 30));
	test_reaped();
	test_writers_during_unload();
	test_unload();
	unload_modules();
	return finish();
}
