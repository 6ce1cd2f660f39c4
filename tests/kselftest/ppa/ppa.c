// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 600
 *
 * Tests process accounting: the settings, a task with known work whose values are compared with the
 * kernel's figures, tasks that end, and permissions of readers. Further tests: ppa_load.c (the
 * times of CPUs add up), ppa_ticks.c (tasks that avoid being seen by ticks), ppa_restart.c
 * (accounting is turned on and off).
 */
#include "ppa.h"
#include <grp.h>
#include <pthread.h>

static volatile __u64 sink;

static void work(__u64 n)
{
	while (n--)
		sink += n;
}

static void work_ms(int n)
{
	__u64 end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + n * 1000000ULL;

	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end)
		work(5000);
}

static void test_settings(void)
{
	struct ppa_task t;
	char text[64];

	is(ppa_write(SETTINGS, "2 0 0 1"), -EINVAL, "4.8 settings: a flag of 2 is EINVAL");
	is(ppa_write(SETTINGS, "1 -1 0 1"), -EINVAL, "4.8 settings: a flag of -1 is EINVAL");
	is(ppa_write(SETTINGS, "1 0 0 0"), -EINVAL, "4.8 settings: groups of 0 CPUs are EINVAL");
	is(ppa_write(SETTINGS, "0 1 0 1"), -EINVAL,
	   "4.8 settings: latencies without the first flag are EINVAL");
	is(ppa_write(SETTINGS, "1 0 1 1"), -EOPNOTSUPP, "4.8 settings: timers are EOPNOTSUPP");
	is(ppa_write(LEVELS, "6"), -EINVAL, "4.8 levels: without PPA_LEVEL_SCHED is EINVAL");
	is(ppa_write(LEVELS, "17"), -EINVAL, "4.8 levels: a level that does not exist is EINVAL");
	is(ppa_get_task(dev, getpid(), &t), -ENODATA, "4.8 accounting off: PPA_GETTASK is ENODATA");
	is(read(dev, &t, sizeof(t)) < 0 ? -errno : 0, -ENODATA,
	   "4.8 accounting off: read is ENODATA");
	is(ppa_info(dev).levels, 0, "4.8 accounting off: PPA_GETINFO reports no level");
	is(ppa_write(SETTINGS, "1 1 0 1"), 0, "4.8 settings: accounting is turned on");
	ok(read_file(SETTINGS, text, sizeof(text)) && !strcmp(text, "1\t1\t0\t1\n"),
	   "4.8 settings: read back as written");
	info = ppa_info(dev);
	is(info.levels, 15, "4.8 levels: all are on by default");
	is(info.nr_groups, info.nr_cpus, "4.8 groups: one for each CPU");
	ok(info.khz >= 1000 && info.khz < 100000000,
	   "4.6 PPA_GETINFO: plausible ticks of a millisecond: %u", info.khz);
	ok(info.nr_tasks > 10, "4.1 accounting on: all tasks are accounted: %llu", info.nr_tasks);
}

/* Number of system calls, sleeps, yields and signals of the child. */
#define CALLS	20000
#define SLEEPS	30
#define YIELDS	200
#define SIGNALS	7

static void ignore_signal(int sig)
{
}

static void child_of_known_work(int start, int done)
{
	char byte;

	signal(SIGUSR1, ignore_signal);
	exit_if(read(start, &byte, 1) != 1, 1);
	work_ms(150);
	for (int i = 0; i < CALLS; i++)
		syscall(SYS_getppid);
	for (int i = 0; i < SLEEPS; i++)
		usleep(1000);
	for (int i = 0; i < YIELDS; i++)
		sched_yield();
	for (int i = 0; i < SIGNALS; i++)
		raise(SIGUSR1);
	exit_if(write(done, "x", 1) != 1 || read(start, &byte, 1) != 1, 1);
	_exit(0);
}

/*
 * A child that does known work. @before holds the accounted values before the work, and @work holds
 * the accounted values of the work. @total_ms is the accounted time of the work. @cpu and @blocked
 * are the kernel's own figures for the work.
 */
struct known_child {
	int start_pipe[2], done_pipe[2], pid;
	struct ppa_task before, work;
	__u64 cpu, blocked;
	double total_ms;
};

static void start_work(struct known_child *k)
{
	clockid_t clock;
	char byte = 0;
	int other;

	bail_if(pipe(k->start_pipe) || pipe(k->done_pipe), "pipe");
	/* With another task on the same CPU, sched_yield() of the child switches. */
	pin_to_cpu(0);
	other = fork();
	if (!other)
		for (;;)
			sched_yield();
	k->pid = fork_child(child_of_known_work(k->start_pipe[0], k->done_pipe[1]));
	clock_getcpuclockid(k->pid, &clock);
	wait_until(task_state(k->pid) == 'S');
	k->before = ppa_task(dev, k->pid);
	k->blocked = voluntary_switches(k->pid);
	k->cpu = clock_ns(clock);
	if (write(k->start_pipe[1], &byte, 1) != 1 || read(k->done_pipe[0], &byte, 1) != 1)
		bail("a child");
	wait_until(task_state(k->pid) == 'S');
	kill_child(other);
	k->work = ppa_task(dev, k->pid);
	k->blocked = voluntary_switches(k->pid) - k->blocked;
	k->cpu = clock_ns(clock) - k->cpu;
	for (int i = 0; i < PPA_NR_VALUES; i++)
		k->work.values[i] -= k->before.values[i];
	k->total_ms =
		ticks_to_ms(k->work.values[PPA_SCHEDACCUM] + k->work.values[PPA_INTACCUM], &info);
	note("user %.2f ms, system %.2f, interrupts %.2f: all %.2f; the kernel: %.2f",
	     ticks_to_ms(task_user_time(&k->work), &info),
	     ticks_to_ms(k->work.values[PPA_SCACCUM], &info),
	     ticks_to_ms(k->work.values[PPA_INTACCUM], &info), k->total_ms, k->cpu / 1e6);
}

static void end_work(struct known_child *k)
{
	char byte = 0;

	bail_if(write(k->start_pipe[1], &byte, 1) != 1, "write");
	waitpid(k->pid, NULL, 0);
	close(k->start_pipe[0]);
	close(k->start_pipe[1]);
	close(k->done_pipe[0]);
	close(k->done_pipe[1]);
}

static bool matches_scheduler(const struct known_child *k)
{
	return k->total_ms > k->cpu / 1e6 * 0.95 - 8 && k->total_ms < k->cpu / 1e6 * 1.05 + 8;
}

/* Returns true if @t is the record of process @pid after the known work, marked as ended. */
static bool is_record_of_ended(const struct ppa_task *t, int pid)
{
	return t->pid == (__u32)pid && t->flags & PPA_TASK_ENDED && !strcmp(t->comm, "ppa") &&
	       t->values[PPA_SYSCALLCNT] >= CALLS;
}

static void test_known_work(void)
{
	static struct known_child k;
	struct ppa_task before, t;
	__u64 sum, blocked;
	unsigned int i;
	int pid;

	start_work(&k);
	/*
	 * The scheduler and the module each read the clock to measure the CPU time of a task. If
	 * the host stops the CPU between the read by the scheduler and the read by the module, the
	 * measured CPU times differ. The host rarely stops the CPU between these reads, so the test
	 * repeats the work if the CPU times differ. On a busy host, more than half of the sleeps
	 * may end without blocking, because the timer of a sleep may expire before the task has
	 * blocked.
	 */
	for (i = 0; i < 9 && (!matches_scheduler(&k) || k.blocked < SLEEPS / 2); i++) {
		end_work(&k);
		start_work(&k);
	}
	before = k.before;
	t = k.work;
	blocked = k.blocked;
	pid = k.pid;
	note("blocked %llu of %llu, other tasks' turns %llu, preempted %llu, continued %llu; %llu calls",
	     t.values[PPA_SCHEDOUTCNT], blocked, t.values[PPA_PRMPTCTXTCNT],
	     t.values[PPA_PRMPTPRICNT],
	     t.values[PPA_RSCHEDCNT], t.values[PPA_SYSCALLCNT]);
	ok(matches_scheduler(&k),
	   "4.2 known work: time matches the scheduler, within 5 percent and 8 ms");
	ok(t.values[PPA_SCACCUM] < t.values[PPA_SCHEDACCUM],
	   "4.5 known work: system time is below all time");
	ok(t.values[PPA_SCACCUM] > 0, "4.2 known work: system time is above 0");
	ok(ticks_to_ms(task_user_time(&t), &info) > 20, "4.2 known work: user time is above 20 ms");
	sum = t.values[PPA_SYSCALLCNT];
	ok(sum >= CALLS + SLEEPS + YIELDS && sum < CALLS + SLEEPS + YIELDS + 20 * SIGNALS + 100000,
	   "4.2 known work: all system calls are counted");
	ok(blocked >= SLEEPS / 2,
	   "4.4 known work: at least half of the sleeps block (%llu)", blocked);
	is(t.values[PPA_SCHEDOUTCNT], blocked,
	   "4.4 known work: blocked as often as the kernel counts");
	ok(t.values[PPA_PRMPTCTXTCNT] + t.values[PPA_PRMPTPRICNT] >= YIELDS / 4,
	   "4.4 known work: preempted for at least a quarter of the yields");
	is(t.signals[SIGUSR1] - before.signals[SIGUSR1], SIGNALS,
	   "4.4 known work: all signals are counted");
	for (sum = i = 0; i < PPA_NR_LATENCIES; i++)
		sum += t.latencies[i] - before.latencies[i];
	ok(sum + 2 >= blocked && sum < blocked + 40, "4.4 known work: one latency for each wakeup");
	ok(t.values[PPA_SCHLATACCUM] > 0, "4.4 known work: the sum of the latencies is above 0");
	ok(t.runq > before.runq, "4.4 known work: time on the run queue is above 0");
	is(t.tgid, pid, "4.4 PPA_GETTASK: process id");
	is(t.ppid, getpid(), "4.4 PPA_GETTASK: parent process id");
	ok(!strcmp(t.comm, "ppa"), "4.4 PPA_GETTASK: command name");
	/* After the child has ended, its record is read once more. */
	end_work(&k);
	is(ppa_get_task(dev, pid, &t), -ESRCH, "4.4 PPA_GETTASK: a task that has ended is ESRCH");
	{
		static struct ppa_task tasks[4096];
		int nr, n, tries, found = 0, alive;

		/* waitpid() may return before the child's last context switch is over. */
		for (tries = 0; !found && tries < 100; tries++) {
			if (tries)
				usleep(10000);
			nr = ppa_tasks(dev, tasks, 4096);
			alive = 0;
			for (n = 0; n < nr; n++) {
				found += is_record_of_ended(&tasks[n], pid);
				alive += tasks[n].pid == (__u32)getpid() &&
					 tasks[n].flags & PPA_TASK_RUNNING;
				if (tasks[n].values[PPA_SCACCUM] > tasks[n].values[PPA_SCHEDACCUM])
					note("%u %s: more system time than time", tasks[n].pid,
					     tasks[n].comm);
			}
		}
		is(found, 1, "4.4 read: a task that has ended is returned once");
		is(alive, 1, "4.4 read: the running reader is returned as running");
		nr = ppa_tasks(dev, tasks, 4096);
		for (n = found = alive = 0; n < nr; n++) {
			found += tasks[n].pid == (__u32)pid;
			alive += tasks[n].pid == (__u32)getpid();
		}
		is(found, 0, "4.4 read: a task that has ended is not returned again");
		is(alive, 1, "4.4 read: a task that lives is returned each time");
	}
}

static void *exec_from_thread(void *arg)
{
	usleep(10000);
	execl("/proc/self/exe", "ppa", "work", NULL);
	_exit(1);
}

/* The exec gives the id of the first thread to the executing thread. */
static void test_exec_by_thread(void)
{
	static struct ppa_task tasks[4096];
	int start[2], pid, i, n, nr, found = 0;
	struct ppa_task t;
	double total = 0;

	bail_if(pipe(start), "pipe");
	pid = fork_child({
		pthread_t thread;

		/* The executed program exits at the end of its standard input. */
		dup2(start[0], 0);
		close(start[1]);
		pthread_create(&thread, NULL, exec_from_thread, NULL);
		pause_forever();
	});
	close(start[0]);
	for (i = 0; i < 5000; i++) {
		usleep(20000);
		if (!ppa_get_task(dev, pid, &t) && t.values[PPA_SCHEDACCUM] / info.khz > total)
			total = ticks_to_ms(t.values[PPA_SCHEDACCUM], &info);
		if (total > 40)
			break;
	}
	if (!ok(total > 40, "4.4 exec in a second thread: the thread is still accounted"))
		note("%.2f ms", total);
	is(t.pid, pid, "4.4 exec in a second thread: the thread has the first one's id");
	close(start[1]);
	waitpid(pid, NULL, 0);
	/*
	 * At the exec, the kernel ended the first thread of the process, and exchanged the ids of
	 * the first thread and of the executing thread. /dev/ppa must return the records of the
	 * first thread and of the executing thread, each record once.
	 */
	for (i = 0; i < 5000 && found < 2; i++) {
		nr = ppa_tasks(dev, tasks, 4096);
		for (n = 0; n < nr; n++)
			found += tasks[n].tgid == (__u32)pid && tasks[n].flags & PPA_TASK_ENDED;
		usleep(10000);
	}
	is(found, 2,
	   "4.4 exec in a second thread: both threads are returned after they have ended");
}

static void test_permissions(void)
{
	int status, own_child;
	pid_t parent = getpid();

	status = wait_results(fork_child({
		struct ppa_task t;

		exit_if(setgroups(0, NULL) || setresgid(1000, 1000, 1000) ||
			setresuid(1000, 1000, 1000), 0);
		own_child = fork_sleeper();
		status = (ppa_get_task(dev, parent, &t) == -EPERM) |
			 (ppa_get_task(dev, getpid(), &t) == 0) << 1 |
			 (ppa_get_task(dev, 2, &t) == -EPERM) << 2 |
			 (read(dev, &t, sizeof(t)) < 0 && errno == EACCES) << 3 |
			 (ppa_get_task(dev, 0x7fffffff, &t) == -ESRCH) << 4;
		kill(own_child, SIGKILL);
		_exit(status);
	}));
	ok(status & 1, "4.4 unprivileged: PPA_GETTASK of another user's task is EPERM");
	ok(status & 2, "4.4 unprivileged: PPA_GETTASK of the caller's own task succeeds");
	ok(status & 4, "4.4 unprivileged: PPA_GETTASK of a kernel thread is EPERM");
	ok(status & 8, "4.4 unprivileged: read is EACCES");
	ok(status & 16, "4.4 unprivileged: PPA_GETTASK of a task that does not exist is ESRCH");
}

static void test_bad_arguments(void)
{
	struct ppa_task t;

	is(read(dev, &t, sizeof(t) - 1) < 0 ? -errno : 0, -EINVAL,
	   "4.4 read: a buffer for less than one task is EINVAL");
	lseek(dev, 0, SEEK_SET);
	is(syscall(SYS_read, dev, 8, 1 << 20) < 0 ? -errno : 0, -EFAULT,
	   "4.4 read: a bad address is EFAULT");
	is(ioctl(dev, PPA_GETTASK, (void *)8) ? -errno : 0, -EFAULT,
	   "4.4 PPA_GETTASK: a bad address is EFAULT");
	is(ioctl(dev, PPA_GETINFO, (void *)8) ? -errno : 0, -EFAULT,
	   "4.4 PPA_GETINFO: a bad address is EFAULT");
	is(ioctl(dev, 0x1234, 0) ? -errno : 0, -ENOTTY, "4.4 ioctl: an unknown request is ENOTTY");
	is(rmmod("ppa"), -EWOULDBLOCK, "4.8 rmmod: ppa.ko is EWOULDBLOCK while /dev/ppa is open");
}

int main(int argc, char **argv)
{
	static __u64 a[MAX_CPUS][PPA_NR_CPU_VALUES], b[MAX_CPUS][PPA_NR_CPU_VALUES];

	if (argc > 1 && !strcmp(argv[1], "work")) {
		char byte;

		work_ms(100);
		return read(0, &byte, 1) != 0;
	}
	plan(16 + 20 + 3 + 5 + 6 + 4);
	ppa_write("/proc/sys/kernel/modprobe", "\n");
	ppa_load();
	test_settings();
	test_known_work();
	test_exec_by_thread();
	test_permissions();
	test_bad_arguments();
	is(ppa_write(SETTINGS, "0 0 0 1"), 0, "4.8 settings: accounting is turned off");
	is(ppa_cpus(a), info.nr_cpus, "4.9 accounting off: /proc/rawsysppa has a row for each CPU");
	/* The CPUs are idle while the test sleeps. */
	wait_until(ppa_cpus(b) && b[0][PPA_CPU_IDLE] + b[1][PPA_CPU_IDLE] >
		   a[0][PPA_CPU_IDLE] + a[1][PPA_CPU_IDLE]);
	ok(b[0][PPA_CPU_IDLE] + b[1][PPA_CPU_IDLE] > a[0][PPA_CPU_IDLE] + a[1][PPA_CPU_IDLE],
	   "4.9 accounting off: idle time still grows");
	close(dev);
	is(rmmod("ppa"), 0, "4.8 rmmod: ppa.ko unloads after /dev/ppa is closed");
	unload_modules();
	return finish();
}
