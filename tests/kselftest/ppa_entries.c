// SPDX-License-Identifier: GPL-2.0
/*
 * guest: poke
 * worlds: stock debug
 * timeout: 600
 *
 * Tasks that are accounted individually: /proc/ppa and its files.
 */
#include "ppa.h"
#include <dirent.h>
#include <grp.h>

#define ENTRIES	"/proc/ppa/ppactl"
#define SIGNALS	5

static int dev;
static struct ppa_info info;

/* Contents of rawppa: the values of each group of CPUs, then those of the whole task. */
struct raw {
	int groups;
	bool latencies;
	__u64 values[MAX_CPUS][PPA_NR_VALUES];
	__u64 runq;
	__u32 signals[PPA_NR_SIGNALS];
	__u64 lengths[PPA_NR_LATENCIES];
};

static const char *path_of(int pid, const char *name)
{
	static char path[64];

	snprintf(path, sizeof(path), "/proc/ppa/%d/%s", pid, name);
	return path;
}

static int set(int pid, const char *values)
{
	char text[64];

	snprintf(text, sizeof(text), "%d %s", pid, values);
	return ppa_write(ENTRIES, text);
}

static bool there(int pid)
{
	return !access(path_of(pid, "ppa"), F_OK);
}

/* Returns true if the files of a task are removed, which happens a little later, in a worker. */
static bool gone(int pid)
{
	int i;

	for (i = 0; i < 500 && there(pid); i++)
		usleep(10000);
	return !there(pid);
}

static int measures(void)
{
	return ppa_info(dev).levels;
}

/* Returns true if accounting stops, which happens a little after its last use. */
static bool stopped(void)
{
	int i;

	for (i = 0; i < 500 && measures(); i++)
		usleep(10000);
	return !measures();
}

/*
 * Reads rawppa, with @groups groups. Returns 0, a negative errno, or the size if it is not as
 * expected.
 */
static int raw(int pid, int groups, bool latencies, struct raw *raw)
{
	static char bytes[sizeof(*raw) + 1];
	const size_t values = groups * sizeof(raw->values[0]), lengths = sizeof(raw->lengths);
	const char *at = bytes;
	ssize_t got, all = 0;
	int fd;

	memset(raw, 0, sizeof(*raw));
	fd = open(path_of(pid, "rawppa"), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while ((got = read(fd, bytes + all, sizeof(bytes) - all)) > 0)
		all += got;
	close(fd);
	if (got < 0)
		return -errno;
	if ((size_t)all != values + 8 + sizeof(raw->signals) + (latencies ? lengths : 0))
		return all;
	memcpy(raw->values, at, values);
	at += values;
	memcpy(&raw->runq, at, 8);
	at += 8;
	memcpy(raw->signals, at, sizeof(raw->signals));
	if (latencies)
		memcpy(raw->lengths, at + sizeof(raw->signals), lengths);
	return 0;
}

static __u64 sum_of(const struct raw *raw, int groups, int value)
{
	__u64 sum = 0;

	while (groups--)
		sum += raw->values[groups][value];
	return sum;
}

static void nothing(int sig)
{
	(void)sig;
}

static volatile __u64 sink;

/*
 * Starts a child that stops itself, works on CPU 0 and then on CPU 1, stops again, and then makes
 * system calls until it is killed.
 */
static int worker(void)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	int pid, cpu, i;

	fflush(stdout);
	pid = fork();
	if (pid)
		return pid;
	signal(SIGUSR1, nothing);
	raise(SIGSTOP);
	for (cpu = 0; cpu < 2; cpu++) {
		on_cpu(cpu);
		for (i = 0; i < 20000000; i++)
			sink += i;
		for (i = 0; i < 1000; i++)
			syscall(SYS_getppid);
		for (i = 0; i < 10; i++)
			nanosleep(&pause, NULL);
	}
	for (i = 0; i < SIGNALS; i++)
		raise(SIGUSR1);
	raise(SIGSTOP);
	for (;;)
		pause.tv_sec = syscall(SYS_getppid);
}

static void bad_input(void)
{
	int me = getpid();

	is(set(me, "1 0 0"), -EINVAL, "4.7 ppactl: too few values are EINVAL");
	is(set(me, "1 0 0 1 1"), -EINVAL, "4.7 ppactl: too many values are EINVAL");
	is(set(me, "1 0 0 1x"), -EINVAL, "4.7 ppactl: a value that is not a number is EINVAL");
	is(set(me, "2 0 0 1"), -EINVAL, "4.7 ppactl: a flag of 2 is EINVAL");
	is(set(me, "0 1 0 1"), -EINVAL, "4.7 ppactl: latencies without the first flag are EINVAL");
	is(set(me, "1 0 0 0"), -EINVAL, "4.7 ppactl: groups of 0 CPUs are EINVAL");
	is(set(me, "1 0 1 1"), -EOPNOTSUPP, "4.7 ppactl: timers are EOPNOTSUPP");
	is(set(0, "1 0 0 1"), -ESRCH, "4.7 ppactl: pid 0 is ESRCH");
	is(set(0x7fffffff, "1 0 0 1"), -ESRCH, "4.7 ppactl: a pid that does not exist is ESRCH");
	is(set(me, "0 0 0 1"), 0, "4.7 ppactl: turning off a task that is not accounted succeeds");
	ok(!there(me) && !measures(),
	   "4.7 ppactl: failed calls account no task and turn nothing on");
}

/* Checks the values of a task whose work is known, by group of CPUs. */
static void known_work(void)
{
	int pid = worker(), i, status;
	struct ppa_task t, other;
	static struct raw r;
	char text[512];
	unsigned long long v[16], blocked;
	double latency, duration;

	waitpid(pid, &status, WUNTRACED);
	is(set(pid, "1 1 0 1"), 0, "4.7 one task: accounting is turned on");
	ok(there(pid), "4.3 one task: it has files in /proc/ppa");
	ok(slurp(path_of(pid, "ppactl"), text, sizeof(text)) && !strcmp(text, "1\t1\t0\t1\n"),
	   "4.7 one task: its own ppactl has its four values");
	ok(slurp("/proc/sys/kernel/ppa", text, sizeof(text)) && text[0] == '0',
	   "4.7 one task: the settings of all tasks are still off");
	ok(slurp(ENTRIES, text, sizeof(text)) && atoi(text) == pid && !strchr(text, '\n')[1],
	   "4.7 one task: it is the only one in /proc/ppa/ppactl");
	is(ppa_try(dev, getpid(), &other), -ENODATA,
	   "4.1 one task: PPA_GETTASK of another one is ENODATA");
	blocked = task_blocked(pid);
	kill(pid, SIGCONT);
	waitpid(pid, &status, WUNTRACED);
	/*
	 * The task may still be on its way to stop. Once it has stopped, its time does not change.
	 */
	wait_until(task_state(pid) == 'T' && !ppa_try(dev, pid, &other) &&
		   !ppa_try(dev, pid, &t) && other.values[0] == t.values[0]);
	blocked = task_blocked(pid) - blocked;
	is(raw(pid, info.nr_cpus, true, &r), 0,
	   "4.4 rawppa: has all CPUs, run-queue time, signals and latencies");
	is(ppa_try(dev, pid, &t), 0, "4.4 one task: PPA_GETTASK succeeds");
	for (i = 0; i < PPA_NR_VALUES && sum_of(&r, info.nr_cpus, i) == t.values[i]; i++)
		;
	is(i, PPA_NR_VALUES, "4.4 rawppa: the groups add up to the values of PPA_GETTASK");
	for (i = 0; i < 2; i++)
		note("CPU %d: %.2f ms, %.2f in %llu calls, %llu interrupts, blocked %llu", i,
		     ms(r.values[i][PPA_SCHEDACCUM], &info), ms(r.values[i][PPA_SCACCUM], &info),
		     r.values[i][PPA_SYSCALLCNT], r.values[i][PPA_INTCNT],
		     r.values[i][PPA_SCHEDOUTCNT]);
	ok(r.values[0][PPA_SYSCALLCNT] >= 1000 && r.values[0][PPA_SYSCALLCNT] < 1100,
	   "4.4 rawppa: 1,000 to 1,099 system calls on CPU 0");
	ok(r.values[1][PPA_SYSCALLCNT] >= 1000 && r.values[1][PPA_SYSCALLCNT] < 1100,
	   "4.4 rawppa: 1,000 to 1,099 system calls on CPU 1");
	/* A sleep may be over before the task has blocked. Migrations and stops block it, too. */
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
	ok(slurp(path_of(pid, "ppa"), text, sizeof(text)), "4.3 ppa file: can be read");
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
	/* Without the histogram of latencies; the other values are kept. */
	is(ppa_write(path_of(pid, "ppactl"), "1 0 0 1\n"), 0,
	   "4.7 ppactl of a task: latencies are turned off");
	is(raw(pid, info.nr_cpus, false, &r), 0,
	   "4.4 rawppa: no latencies after they were turned off");
	is(sum_of(&r, info.nr_cpus, PPA_SCHEDACCUM), t.values[PPA_SCHEDACCUM],
	   "4.7 ppactl of a task: its time is kept when latencies are turned off");
	/* With other groups the values start again at 0. */
	is(ppa_write(path_of(pid, "ppactl"), "1 0 0 1000"), 0,
	   "4.7 ppactl of a task: all CPUs become one group");
	is(raw(pid, 1, false, &r), 0, "4.4 rawppa: has one group after that");
	ok(r.values[0][PPA_SCHEDACCUM] < t.values[PPA_SCHEDACCUM],
	   "4.7 ppactl of a task: its time restarts when groups are changed");
	kill(pid, SIGCONT);
	wait_until(raw(pid, 1, false, &r) || (ms(r.values[0][PPA_SCHEDACCUM], &info) > 5 &&
					      r.values[0][PPA_SYSCALLCNT] > 100));
	is(raw(pid, 1, false, &r), 0, "4.4 rawppa: can be read while the task runs");
	ok(ms(r.values[0][PPA_SCHEDACCUM], &info) > 5 && r.values[0][PPA_SCACCUM] &&
	   r.values[0][PPA_SYSCALLCNT] > 100,
	   "4.1 one task: its time and system calls are counted after a restart");
	/* The task ends. */
	end_child(pid);
	ok(gone(pid), "4.3 one task: its files are removed when it ends");
	is(measures(), 15, "4.4 one task: accounting stays on until its record is read");
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
	ok(stopped(), "4.7 one task: accounting is off once its record was read");
}

static void as_nobody(void)
{
	int pid = getpid(), status, own, ready[2];
	char byte, number[12];

	if (pipe(ready))
		bail("pipe");
	set(pid, "1 0 0 1");
	fflush(stdout);
	own = fork();
	if (!own) {
		int fd;

		status = 0;
		if (setgroups(0, NULL) || setresgid(1000, 1000, 1000) ||
		    setresuid(1000, 1000, 1000))
			_exit(100);
		fd = open(ENTRIES, O_RDONLY);
		status |= set(pid, "1 0 0 1") == -EPERM && read(fd, &byte, 1) < 0 && errno == EPERM;
		status |= (ppa_write(path_of(pid, "ppactl"), "1 0 0 1") == -EPERM) << 1;
		fd = open(path_of(pid, "ppa"), O_RDONLY);
		status |= (read(fd, &byte, 1) < 0 && errno == EPERM) << 2;
		fd = open(path_of(pid, "rawppa"), O_RDONLY);
		status |= (read(fd, &byte, 1) < 0 && errno == EPERM) << 3;
		_exit(status);
	}
	waitpid(own, &status, 0);
	is(WEXITSTATUS(status), 15, "4.7 unprivileged: another user can neither read nor set");
	fflush(stdout);
	own = fork();
	if (!own) {
		if (setgroups(0, NULL) || setresgid(1000, 1000, 1000) ||
		    setresuid(1000, 1000, 1000))
			_exit(100);
		/*
		 * A process is not dumpable after it has changed its user; the program that it
		 * executes is.
		 */
		snprintf(number, sizeof(number), "%d", ready[1]);
		execl("/proc/self/exe", "ppa_entries", "self", number, NULL);
		_exit(101);
	}
	close(ready[1]);
	/* The program has blocked SIGUSR1, and waits for it. */
	if (read(ready[0], &byte, 1) != 1)
		note("no byte from the executed program");
	close(ready[0]);
	set(own, "1 0 0 1");
	kill(own, SIGUSR1);
	waitpid(own, &status, 0);
	is(WEXITSTATUS(status), 0, "4.3 unprivileged: a task can read its own rawppa");
	set(pid, "0 0 0 1");
	ok(gone(pid) && gone(own), "4.7 unprivileged: the files of both tasks are removed");
	ppa_write(SETTINGS, "0 0 0 1");
	is(measures(), 0, "4.7 settings: turning accounting off drops unread records");
}

/* Accounts one task individually while all tasks are accounted. */
static void with_all(void)
{
	static struct raw r;
	struct ppa_task t;
	int me = getpid();
	long long blocked;

	is(ppa_write(SETTINGS, "1 0 0 1"), 0, "4.7 all tasks: accounting is turned on");
	is(set(me, "1 1 0 2"), 0, "4.7 one of all tasks: is given values of its own");
	is(raw(me, (info.nr_cpus + 1) / 2, true, &r), 0,
	   "4.7 one of all tasks: rawppa has its groups of two CPUs");
	is(ppa_try(dev, 1, &t), 0, "4.7 all tasks: PPA_GETTASK of another one succeeds");
	ok(!(t.flags & PPA_TASK_LATENCIES), "4.7 all tasks: another one has no latencies");
	is(set(me, "0 0 0 1"), 0, "4.7 one of all tasks: loses the values of its own");
	ok(gone(me), "4.7 one of all tasks: has no files without values of its own");
	blocked = task_blocked(me);
	wait_until(task_blocked(me) > blocked);
	is(ppa_try(dev, me, &t), 0, "4.7 one of all tasks: is accounted without values of its own");
	ok(!(t.flags & PPA_TASK_LATENCIES),
	   "4.7 one of all tasks: has no latencies without values of its own");
	is(set(me, "1 1 0 1"), 0, "4.7 one of all tasks: is given values of its own again");
	is(ppa_write(SETTINGS, "0 0 0 1"), 0, "4.7 all tasks: accounting is turned off");
	is(ppa_try(dev, 1, &t), -ENODATA,
	   "4.7 all tasks: PPA_GETTASK of another one is ENODATA when off");
	is(raw(me, info.nr_cpus, true, &r), 0,
	   "4.7 one task: still accounted when accounting of all tasks is off");
	is(ppa_write(LEVELS, "1"), 0, "4.7 levels: reduced to the scheduler");
	wait_until(!raw(me, info.nr_cpus, true, &r) &&
		   sum_of(&r, info.nr_cpus, PPA_SCHEDOUTCNT));
	is(raw(me, info.nr_cpus, true, &r), 0,
	   "4.7 one task: still accounted when levels were changed");
	is(sum_of(&r, info.nr_cpus, PPA_SYSCALLCNT), 0,
	   "4.7 one task: no system calls are counted without their level");
	ok(sum_of(&r, info.nr_cpus, PPA_SCHEDOUTCNT) > 0,
	   "4.7 one task: its blocks are counted without the other levels");
	ppa_write(LEVELS, "15");
	is(set(me, "0 0 0 1"), 0, "4.7 one task: accounting is turned off");
	ok(gone(me), "4.7 one task: its files are removed when it is turned off");
	ok(stopped(), "4.7 accounting: off once no task uses it");
}

/*
 * Tasks start and end, with and without entries in /proc/ppa, while two readers read all entries.
 */
static void storm(int times)
{
	int readers[2], i, rc = 0, busy = 0;
	static struct raw r;

	fflush(stdout);
	for (i = 0; i < 2; i++) {
		readers[i] = fork();
		if (readers[i])
			continue;
		for (;;) {
			DIR *dir = opendir("/proc/ppa");
			struct dirent *entry;
			char text[512];

			while (dir && (entry = readdir(dir))) {
				int pid = atoi(entry->d_name);

				raw(pid, info.nr_cpus, false, &r);
				slurp(path_of(pid, "ppa"), text, sizeof(text));
				slurp(path_of(pid, "ppactl"), text, sizeof(text));
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
			if (i % 2)
				_exit(0);
			pause();
		}
		n = set(pid, i % 3 ? "1 0 0 1" : "1 1 0 3");
		/*
		 * ESRCH: the child has already ended, as odd ones do. EBUSY: files of its pid's
		 * last task remain.
		 */
		if (n == -EBUSY)
			busy++;
		else if (n != -ESRCH || !(i % 2))
			rc |= n;
		if (i % 5 == 0)
			rc |= ppa_write(SETTINGS, i % 2 ? "1 0 0 1" : "0 0 0 1");
		if (i % 4 == 0)
			set(pid, "0 0 0 1");
		end_child(pid);
	}
	is(rc, 0, "4.7 storm of tasks: setting %d of them individually succeeds", times);
	is(busy, 0, "4.7 storm of tasks: no EBUSY by files of an earlier task");
	for (i = 0; i < 2; i++)
		end_child(readers[i]);
	ppa_write(SETTINGS, "0 0 0 1");
	ok(slurp(ENTRIES, (char *)&r, sizeof(r)) && !*(char *)&r,
	   "4.7 storm of tasks: none is left in ppactl");
}

/* A task whose parent has waited for it may still be about to do its last context switch. */
static void reaped(void)
{
	static struct ppa_task tasks[512];
	int nobody = 0, twice = 0, ended = 0, i, n, k, nr;

	is(ppa_write(SETTINGS, "1 0 0 1"), 0,
	   "4.7 reaped tasks: accounting of all tasks is turned on");
	for (i = 0; i < bounded(gate_or_long(150, 500)); i++) {
		int pid = fork();

		if (!pid)
			_exit(0);
		waitpid(pid, NULL, 0);
		nr = ppa_tasks(dev, tasks, 512);
		for (n = 0; n < nr; n++) {
			nobody += !tasks[n].pid && !(tasks[n].flags & PPA_TASK_KERNEL);
			ended += tasks[n].pid == (__u32)pid && tasks[n].flags & PPA_TASK_ENDED;
			/*
			 * Check this task only: others may end during the reading, and are then
			 * returned twice.
			 */
			for (k = 0; k < n && tasks[n].pid == (__u32)pid; k++)
				twice += tasks[k].pid == tasks[n].pid &&
					 tasks[k].began == tasks[n].began;
		}
	}
	is(nobody, 0, "4.1 reaped tasks: no task but the kernel's has pid 0");
	is(twice, 0, "4.1 reaped tasks: none is returned twice (%d had ended)", ended);
	ppa_write(SETTINGS, "0 0 0 1");
	wait_until(ppa_tasks(dev, tasks, 512) <= 0);
}

/* Unloads the module while a file is open and a task is accounted. */
static void unloaded(void)
{
	int me = getpid(), fd;
	char byte;

	set(me, "1 1 0 1");
	fd = open(path_of(me, "ppa"), O_RDONLY | O_CLOEXEC);
	ok(fd >= 0 && read(fd, &byte, 1) == 1, "4.3 rmmod: a file of /proc/ppa is open before it");
	close(dev);
	is(rmmod("perfcounters"), 0, "4.7 rmmod: succeeds while a task is accounted");
	ok(read(fd, &byte, 1) < 0, "4.3 rmmod: reading the open file fails afterwards");
	close(fd);
	ok(access("/proc/ppa", F_OK) < 0, "4.3 rmmod: /proc/ppa is removed");
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "self")) {
		static struct raw r;
		sigset_t set;
		int sig;

		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		sigprocmask(SIG_BLOCK, &set, NULL);
		if (argc > 2 && write(atoi(argv[2]), "x", 1) != 1)
			return 1;
		sigwait(&set, &sig);
		return raw(getpid(), sysconf(_SC_NPROCESSORS_CONF), false, &r) != 0;
	}
	plan(11 + 38 + 4 + 20 + 3 + 3 + 4);
	unload();
	ppa_write("/proc/sys/kernel/modprobe", "\n");
	insmod("perfcounters", "");
	dev = ppa_open();
	info = ppa_info(dev);
	bad_input();
	known_work();
	as_nobody();
	with_all();
	storm(bounded(gate_or_long(20, 90)));
	reaped();
	unloaded();
	return finish();
}
