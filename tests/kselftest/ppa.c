// SPDX-License-Identifier: GPL-2.0
/*
 * guest: poke
 * worlds: stock debug
 * timeout: 600
 *
 * Process accounting: the settings, tasks of known work beside what the kernel says of
 * them, CPUs whose times add up, tasks that end, who may read whom, on and off again.
 */
#include "ppa.h"
#include <grp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>

static int dev;
static struct ppa_info info;

static volatile __u64 sink;

static void work(__u64 n)
{
	while (n--)
		sink += n;
}

/* For so long on a processor. */
static void work_ms(int n)
{
	__u64 end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + n * 1000000ULL;

	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end)
		work(5000);
}

static void settings(void)
{
	struct ppa_task t;
	char text[64];

	is(ppa_write(SETTINGS, "2 0 0 1"), -EINVAL, "4.8 a flag is 0 or 1");
	is(ppa_write(SETTINGS, "1 -1 0 1"), -EINVAL, "4.8 nor less");
	is(ppa_write(SETTINGS, "1 0 0 0"), -EINVAL, "4.8 groups of no CPU");
	is(ppa_write(SETTINGS, "0 1 0 1"), -EINVAL, "4.8 latencies need the first flag");
	is(ppa_write(SETTINGS, "1 0 1 1"), -EOPNOTSUPP, "4.8 timers on precise time are refused");
	is(ppa_write(LEVELS, "6"), -EINVAL, "4.8 the scheduler is always looked at");
	is(ppa_write(LEVELS, "17"), -EINVAL, "4.8 there are four levels");
	is(ppa_try(dev, getpid(), &t), -ENODATA, "4.8 off: there is nothing to read");
	is(read(dev, &t, sizeof(t)) < 0 ? -errno : 0, -ENODATA, "4.8 nor of all");
	is(ppa_info(dev).levels, 0, "4.8 nothing is measured");
	is(ppa_write(SETTINGS, "1 1 0 1"), 0, "4.8 on");
	ok(slurp(SETTINGS, text, sizeof(text)) && !strcmp(text, "1\t1\t0\t1\n"), "4.8 as it was asked");
	info = ppa_info(dev);
	is(info.levels, 15, "4.8 everything is measured");
	is(info.nr_groups, info.nr_cpus, "4.8 each CPU by itself");
	ok(info.khz >= 1000 && info.khz < 100000000, "4.6 ticks of a millisecond: %u", info.khz);
	ok(info.nr_tasks > 10, "4.1 all tasks are accounted: %llu", info.nr_tasks);
}

/* A child that works, calls, waits, yields and is signalled so often. */
#define CALLS	20000
#define SLEEPS	30
#define YIELDS	200
#define SIGNALS	7

static void nothing(int sig)
{
	(void)sig;
}

static void child_of_known_work(int go, int done)
{
	char byte;
	int i;

	signal(SIGUSR1, nothing);
	if (read(go, &byte, 1) != 1)
		_exit(1);
	work_ms(150);
	for (i = 0; i < CALLS; i++)
		syscall(SYS_getppid);
	for (i = 0; i < SLEEPS; i++)
		usleep(1000);
	for (i = 0; i < YIELDS; i++)
		sched_yield();
	for (i = 0; i < SIGNALS; i++)
		raise(SIGUSR1);
	if (write(done, "x", 1) != 1 || read(go, &byte, 1) != 1)
		_exit(1);
	_exit(0);
}

/* A child that has done its work, and what is known of that. */
struct known {
	int go[2], done[2], pid;
	struct ppa_task before, t;
	__u64 cpu, blocked;
	double all;
};

static void let_work(struct known *k)
{
	clockid_t clock;
	char byte = 0;
	int other;

	if (pipe(k->go) || pipe(k->done))
		bail("pipe");
	fflush(stdout);
	/* Somebody to yield to, on the same CPU. */
	on_cpu(0);
	other = fork();
	if (!other)
		for (;;)
			sched_yield();
	k->pid = fork();
	if (!k->pid)
		child_of_known_work(k->go[0], k->done[1]);
	clock_getcpuclockid(k->pid, &clock);
	wait_until(task_state(k->pid) == 'S');
	k->before = ppa_task(dev, k->pid);
	k->blocked = task_blocked(k->pid);
	k->cpu = clock_ns(clock);
	if (write(k->go[1], &byte, 1) != 1 || read(k->done[0], &byte, 1) != 1)
		bail("a child");
	wait_until(task_state(k->pid) == 'S');
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	k->t = ppa_task(dev, k->pid);
	k->blocked = task_blocked(k->pid) - k->blocked;
	k->cpu = clock_ns(clock) - k->cpu;
	for (int i = 0; i < PPA_NR_VALUES; i++)
		k->t.values[i] -= k->before.values[i];
	k->all = ms(k->t.values[PPA_SCHEDACCUM] + k->t.values[PPA_INTACCUM], &info);
	note("user %.2f ms, system %.2f, interrupts %.2f: all %.2f; the kernel: %.2f",
	     ms(task_user(&k->t), &info), ms(k->t.values[PPA_SCACCUM], &info),
	     ms(k->t.values[PPA_INTACCUM], &info), k->all, k->cpu / 1e6);
}

/* Ends the child, and waits for it. */
static void end_work(struct known *k)
{
	char byte = 0;

	if (write(k->go[1], &byte, 1) != 1)
		bail("write");
	waitpid(k->pid, NULL, 0);
	close(k->go[0]);
	close(k->go[1]);
	close(k->done[0]);
	close(k->done[1]);
}

static bool is_what_the_scheduler_says(const struct known *k)
{
	return k->all > k->cpu / 1e6 * 0.95 - 8 && k->all < k->cpu / 1e6 * 1.05 + 8;
}

/* Is it of that process's work, which has ended? */
static bool is_ended_work(const struct ppa_task *t, int pid)
{
	return t->pid == (__u32)pid && t->flags & PPA_TASK_ENDED && !strcmp(t->comm, "ppa") &&
	       t->values[PPA_SYSCALLCNT] >= CALLS;
}

static void known_work(void)
{
	static struct known k;
	struct ppa_task before, t;
	__u64 sum, blocked;
	unsigned int i;
	int pid;

	let_work(&k);
	/*
	 * The host may take the processor between the scheduler's look at the clock and ours; not
	 * each time.
	 */
	for (i = 0; i < 9 && !is_what_the_scheduler_says(&k); i++) {
		end_work(&k);
		let_work(&k);
	}
	before = k.before;
	t = k.t;
	blocked = k.blocked;
	pid = k.pid;
	note("blocked %llu of %llu, another's turn %llu, a more urgent one %llu, went on %llu; %llu calls",
	     t.values[PPA_SCHEDOUTCNT], blocked, t.values[PPA_PRMPTCTXTCNT],
	     t.values[PPA_PRMPTPRICNT],
	     t.values[PPA_RSCHEDCNT], t.values[PPA_SYSCALLCNT]);
	ok(is_what_the_scheduler_says(&k),
	   "4.2 its time is what the scheduler says, interrupts included");
	ok(t.values[PPA_SCACCUM] < t.values[PPA_SCHEDACCUM], "4.5 user and system are all of it");
	ok(t.values[PPA_SCACCUM] > 0, "4.2 some of it in system calls");
	ok(ms(task_user(&t), &info) > 20, "4.2 and most in user mode");
	sum = t.values[PPA_SYSCALLCNT];
	ok(sum >= CALLS + SLEEPS + YIELDS && sum < CALLS + SLEEPS + YIELDS + 20 * SIGNALS + 100000,
	   "4.2 all its calls are counted");
	/* A sleep may be over before it has blocked. */
	ok(t.values[PPA_SCHEDOUTCNT] == blocked && blocked >= SLEEPS / 2,
	   "4.4 it blocked as often as the kernel says");
	ok(t.values[PPA_PRMPTCTXTCNT] + t.values[PPA_PRMPTPRICNT] >= YIELDS / 4,
	   "4.4 another's turn, as often as it yielded to somebody");
	is(t.signals[SIGUSR1] - before.signals[SIGUSR1], SIGNALS, "4.4 its signals");
	for (sum = i = 0; i < PPA_NR_LATENCIES; i++)
		sum += t.latencies[i] - before.latencies[i];
	ok(sum + 2 >= blocked && sum < blocked + 40, "4.4 a latency for each wakeup");
	ok(t.values[PPA_SCHLATACCUM] > 0, "4.4 which are some time together");
	ok(t.runq > before.runq, "4.4 it was ready, and did not run");
	is(t.tgid, pid, "4.4 its process");
	is(t.ppid, getpid(), "4.4 its parent");
	ok(!strcmp(t.comm, "ppa"), "4.4 its name");
	/* It ends, and is read once more. */
	end_work(&k);
	is(ppa_try(dev, pid, &t), -ESRCH, "4.4 it is no more");
	{
		static struct ppa_task tasks[4096];
		int nr, n, tries, found = 0, alive;

		/* Its parent may know of its end before its last switch is over. */
		for (tries = 0; !found && tries < 100; tries++) {
			if (tries)
				usleep(10000);
			nr = ppa_tasks(dev, tasks, 4096);
			alive = 0;
			for (n = 0; n < nr; n++) {
				found += is_ended_work(&tasks[n], pid);
				alive += tasks[n].pid == (__u32)getpid() &&
					 tasks[n].flags & PPA_TASK_RUNNING;
				if (tasks[n].values[PPA_SCACCUM] > tasks[n].values[PPA_SCHEDACCUM])
					note("%u %s: more system time than time", tasks[n].pid,
					     tasks[n].comm);
			}
		}
		is(found, 1, "4.4 but it is told of once more");
		is(alive, 1, "4.4 with all that are there");
		nr = ppa_tasks(dev, tasks, 4096);
		for (n = found = alive = 0; n < nr; n++) {
			found += tasks[n].pid == (__u32)pid;
			alive += tasks[n].pid == (__u32)getpid();
		}
		is(found, 0, "4.4 and then forgotten");
		is(alive, 1, "4.4 which those are not that live");
	}
}

static void *becomes(void *arg)
{
	(void)arg;
	usleep(10000);
	execl("/proc/self/exe", "ppa", "work", NULL);
	_exit(1);
}

/* A thread that is not the first becomes another program: it gets the first one's number. */
static void another_program(void)
{
	static struct ppa_task tasks[4096];
	int go[2], pid, i, n, nr, found = 0;
	struct ppa_task t;
	double all = 0;

	if (pipe(go))
		bail("pipe");
	fflush(stdout);
	pid = fork();
	if (!pid) {
		pthread_t thread;

		/* What it is then ends with its standard input. */
		dup2(go[0], 0);
		close(go[1]);
		pthread_create(&thread, NULL, becomes, NULL);
		for (;;)
			pause();
	}
	close(go[0]);
	for (i = 0; i < 5000; i++) {
		usleep(20000);
		if (!ppa_try(dev, pid, &t) && t.values[PPA_SCHEDACCUM] / info.khz > all)
			all = ms(t.values[PPA_SCHEDACCUM], &info);
		if (all > 40)
			break;
	}
	if (!ok(all > 40, "4.4 a thread that becomes another program is accounted on"))
		note("%.2f ms", all);
	is(t.pid, pid, "4.4 under its number of now");
	close(go[1]);
	waitpid(pid, NULL, 0);
	/* The first thread ended with the other number; each is told of once. */
	for (i = 0; i < 5000 && found < 2; i++) {
		nr = ppa_tasks(dev, tasks, 4096);
		for (n = 0; n < nr; n++)
			found += tasks[n].tgid == (__u32)pid && tasks[n].flags & PPA_TASK_ENDED;
		usleep(10000);
	}
	is(found, 2, "4.4 and both are told of when they have ended");
}

/* Ticks see nothing of a task that sleeps whenever they come. */
static void hidden(void)
{
	struct rusage before, after;
	struct ppa_task a, b;
	double precise, ticks;
	int i;

	getrusage(RUSAGE_SELF, &before);
	a = ppa_task(dev, getpid());
	for (i = 0; i < 50; i++) {
		usleep(1000);
		work_ms(1);
	}
	b = ppa_task(dev, getpid());
	getrusage(RUSAGE_SELF, &after);
	precise = ms(b.values[PPA_SCHEDACCUM] - a.values[PPA_SCHEDACCUM], &info);
	ticks = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1e3 +
		(after.ru_utime.tv_usec - before.ru_utime.tv_usec) / 1e3;
	note("%.2f ms by time stamps; getrusage: %.2f ms of user time", precise, ticks);
	ok(precise > 5, "4.1 what runs between ticks is seen");
}

static void on_any_cpu(void)
{
	cpu_set_t all;

	memset(&all, 0xff, sizeof(all));
	if (sched_setaffinity(0, sizeof(all), &all))
		bail("sched_setaffinity");
}

static void loopback(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(9),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0), i;

	for (i = 0; i < 200; i++)
		sendto(fd, &at, sizeof(at), 0, (void *)&at, sizeof(at));
	close(fd);
}

/* User, system, interrupts and idle of each CPU are all of the time. */
static void conservation(int seconds, bool plug)
{
	static __u64 a[MAX_CPUS][PPA_NR_CPU_VALUES], b[MAX_CPUS][PPA_NR_CPU_VALUES];
	double worst = 0, softirqs = 0;
	__u64 a0, a1, b0, b1, end;
	bool grows = true;
	int pids[4], nr, i, n, round = 0;

	on_any_cpu();
	fflush(stdout);
	for (i = 0; i < 4; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		for (n = i;; n++) {
			work(1000 * (n % 50));
			loopback();
			usleep(n % 5 * 300);
			if (n % 20 == 0 && !fork())
				_exit(0);
			while (waitpid(-1, NULL, WNOHANG) > 0)
				;
		}
	}
	a0 = ppa_info(dev).now;
	nr = ppa_cpus(a);
	a1 = ppa_info(dev).now;
	end = now_ns() + seconds * 1000000000ULL;
	while (now_ns() < end) {
		usleep(100000);
		if (plug && round++ % 5 == 2) {
			cpu_online(1, false);
			cpu_online(1, true);
		}
	}
	b0 = ppa_info(dev).now;
	ppa_cpus(b);
	b1 = ppa_info(dev).now;
	for (i = 0; i < nr; i++) {
		__u64 sum = 0;

		for (n = 0; n < PPA_NR_CPU_VALUES; n++) {
			grows &= b[i][n] >= a[i][n];
			if (n < 4)
				sum += b[i][n] - a[i][n];
		}
		note("CPU %d: user %.1f ms, system %.1f, interrupts %.1f, idle %.1f: %.3f of %.3f; %llu calls, %llu interrupts, %llu softirqs",
		     i, ms(b[i][0] - a[i][0], &info), ms(b[i][1] - a[i][1], &info),
		     ms(b[i][2] - a[i][2], &info), ms(b[i][3] - a[i][3], &info),
		     ms(sum, &info), ms(b0 - a1, &info), b[i][4] - a[i][4], b[i][5] - a[i][5],
		     b[i][7] - a[i][7]);
		softirqs += b[i][PPA_CPU_NET_RX_COUNT] - a[i][PPA_CPU_NET_RX_COUNT];
		/* Read between two readings of the clock; and clocks have ticks. */
		if (plug && i)
			continue;
		if (sum + info.khz * 5 < b0 - a1 || sum > b1 - a0 + info.khz * 5)
			worst = ms(sum, &info) - ms(b0 - a1, &info);
	}
	for (i = 0; i < 4; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	if (!ok(!worst, "4.9 all of each CPU's time is in one of four%s",
		plug ? ", as CPUs come and go" : ""))
		note("%f ms are not", worst);
	ok(grows, "4.9 and none falls");
	ok(softirqs > 0, "4.9 packets are received in softirqs");
}

static void as_nobody(void)
{
	int status, own;
	pid_t child, mine = getpid();

	fflush(stdout);
	child = fork();
	if (!child) {
		struct ppa_task t;

		if (setgroups(0, NULL) || setresgid(1000, 1000, 1000) ||
		    setresuid(1000, 1000, 1000))
			_exit(100);
		own = fork();
		if (!own) {
			pause();
			_exit(0);
		}
		status = (ppa_try(dev, mine, &t) == -EPERM) |
			 (ppa_try(dev, getpid(), &t) == 0) << 1 |
			 (ppa_try(dev, 2, &t) == -EPERM) << 2 |
			 (read(dev, &t, sizeof(t)) < 0 && errno == EACCES) << 3 |
			 (ppa_try(dev, 0x7fffffff, &t) == -ESRCH) << 4;
		kill(own, SIGKILL);
		_exit(status);
	}
	waitpid(child, &status, 0);
	status = WEXITSTATUS(status);
	ok(status & 1, "4.4 another user's task is not told of");
	ok(status & 2, "4.4 one's own is");
	ok(status & 4, "4.4 the kernel's is not");
	ok(status & 8, "4.4 nor all");
	ok(status & 16, "4.4 there is no such task");
}

static void hostile(void)
{
	struct ppa_task t;

	is(read(dev, &t, sizeof(t) - 1) < 0 ? -errno : 0, -EINVAL, "4.4 a buffer for less than one task");
	lseek(dev, 0, SEEK_SET);
	is(syscall(SYS_read, dev, 8, 1 << 20) < 0 ? -errno : 0, -EFAULT, "4.4 a bad buffer");
	is(ioctl(dev, PPA_GETTASK, (void *)8) ? -errno : 0, -EFAULT, "4.4 a bad structure");
	is(ioctl(dev, PPA_GETINFO, (void *)8) ? -errno : 0, -EFAULT, "4.4 here, too");
	is(ioctl(dev, 0x1234, 0) ? -errno : 0, -ENOTTY, "4.4 there are no other calls");
	is(rmmod("perfcounters"), -EWOULDBLOCK, "4.8 the module stays while it is open");
}

/* On and off again, while everybody works. */
static void on_and_off(int times)
{
	int pids[3], i, rc = 0;
	__u64 begin = now_ns();

	fflush(stdout);
	for (i = 0; i < 3; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		for (;;) {
			loopback();
			usleep(200);
			if (!fork())
				_exit(0);
			wait(NULL);
		}
	}
	for (i = 0; i < times && !rc; i++) {
		rc = ppa_write(LEVELS, i % 3 ? "15" : "1");
		rc |= ppa_write(SETTINGS, "0 0 0 1");
		if (i % 7 == 0)
			usleep(1000);
		rc |= ppa_write(SETTINGS, i % 2 ? "1 1 0 1" : "1 0 0 2");
	}
	is(rc, 0, "4.8 on and off %d times", times);
	note("%.0f ms", (now_ns() - begin) / 1e6);
	for (i = 0; i < 3; i++) {
		struct ppa_task t;

		wait_until(!ppa_try(dev, pids[i], &t) && t.values[PPA_SCHEDACCUM]);
		rc |= ppa_try(dev, pids[i], &t) || !t.values[PPA_SCHEDACCUM];
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	is(rc, 0, "4.8 and no task is lost");
	is(ppa_info(dev).refused, 0, "4.8 nor refused");
	is(ppa_write(SETTINGS, "0 0 0 1"), 0, "4.8 off at last");
}

int main(int argc, char **argv)
{
	static __u64 a[MAX_CPUS][PPA_NR_CPU_VALUES], b[MAX_CPUS][PPA_NR_CPU_VALUES];

	if (argc > 1 && !strcmp(argv[1], "work")) {
		char byte;

		work_ms(100);
		return read(0, &byte, 1) != 0;
	}
	plan(16 + 19 + 3 + 1 + 6 + 5 + 6 + 4 + 3);
	unload();
	ppa_write("/proc/sys/kernel/modprobe", "\n");
	insmod("perfcounters", "");
	dev = ppa_open();
	settings();
	known_work();
	another_program();
	hidden();
	conservation(3, false);
	conservation(3, true);
	as_nobody();
	hostile();
	on_and_off(bounded(9));
	is(ppa_cpus(a), info.nr_cpus, "4.9 off: each CPU has a row");
	/* It sleeps meanwhile. */
	wait_until(ppa_cpus(b) && b[0][PPA_CPU_IDLE] + b[1][PPA_CPU_IDLE] >
		   a[0][PPA_CPU_IDLE] + a[1][PPA_CPU_IDLE]);
	ok(b[0][PPA_CPU_IDLE] + b[1][PPA_CPU_IDLE] > a[0][PPA_CPU_IDLE] + a[1][PPA_CPU_IDLE],
	   "4.9 with its idle time, which the kernel keeps");
	close(dev);
	is(rmmod("perfcounters"), 0, "4.8 the module goes");
	return finish();
}
