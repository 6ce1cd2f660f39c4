// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 400
 *
 * Process accounting over ten busy seconds, three in make test: packets, timers, signals, a disk,
 * forks and execs, readers, and CPU hotplug, all at once. The values of each CPU add up to its
 * time, tasks and CPUs agree, no value decreases, and no record is lost.
 */
#include "ppa.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#define SECONDS		gate_or_long(3, 10)
#define MOST_TASKS	8192
/*
 * Tolerance in milliseconds: a clock and the values that go with it are not read at the same
 * instant.
 */
#define SLACK_MS	1

static int dev;
static struct ppa_info info;

enum { NET, TIMERS, DISK, FORKS, EXECS, TASK_READER, CPU_READER, ONE_READER, NR_WORKERS };

/* Results of the workers, in shared memory. */
static struct {
	__u64 done[NR_WORKERS];
	__u64 forks;
	__u64 wrong[NR_WORKERS];
	char what[NR_WORKERS][120];
	/*
	 * Sums over the records of ended tasks; `ours` counts those that are children of a worker.
	 */
	__u64 ended, ours, own, calls, interrupts;
	/* Set when the workers are to end. */
	int stop;
} *shared;

static pid_t pids[NR_WORKERS];

static bool stopped(void)
{
	return __atomic_load_n(&shared->stop, __ATOMIC_RELAXED);
}

/* Sleeps in the first 0.2 s of each second, as all workers do, so that there is idle time. */
static void rest(void)
{
	if (now_ns() / 100000000 % 10 < 2)
		usleep(20000);
}

__attribute__((format(printf, 2, 3)))
static void wrong(int worker, const char *fmt, ...)
{
	va_list ap;

	if (shared->wrong[worker]++)
		return;
	va_start(ap, fmt);
	vsnprintf(shared->what[worker], sizeof(shared->what[0]), fmt, ap);
	va_end(ap);
}

/* Sends packets over UDP to itself, and over TCP to a child and back. */
static void net(void)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int udp = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	int listener = socket(AF_INET, SOCK_STREAM, 0), tcp, there;
	socklen_t len = sizeof(at);
	char data[1000];
	pid_t echo;

	if (bind(udp, (void *)&at, sizeof(at)) || listen(listener, 1))
		_exit(1);
	echo = fork();
	if (!echo) {
		tcp = socket(AF_INET, SOCK_STREAM, 0);
		getsockname(listener, (void *)&at, &len);
		if (connect(tcp, (void *)&at, sizeof(at)))
			_exit(1);
		while (read(tcp, data, sizeof(data)) > 0)
			if (write(tcp, data, 100) != 100)
				break;
		_exit(0);
	}
	there = accept(listener, NULL, NULL);
	getsockname(udp, (void *)&at, &len);
	for (; !stopped(); rest()) {
		for (int i = 0; i < 20; i++) {
			sendto(udp, data, 200, 0, (void *)&at, sizeof(at));
			while (recv(udp, data, sizeof(data), 0) > 0)
				shared->done[NET]++;
		}
		if (write(there, data, 100) == 100 && read(there, data, sizeof(data)) > 0)
			shared->done[NET]++;
	}
	close(there);
	waitpid(echo, NULL, 0);
	shared->forks++;
}

static void tick(int sig)
{
	(void)sig;
	shared->done[TIMERS]++;
}

static void timers(void)
{
	struct itimerval each = { { 0, 3000 }, { 0, 3000 } };

	signal(SIGALRM, tick);
	setitimer(ITIMER_REAL, &each, NULL);
	while (!stopped()) {
		for (volatile int i = 0; i < 20000; i++)
			;
		usleep(1500);
		rest();
	}
}

static void disk(void)
{
	int fd = open("/dev/nullb0", O_RDWR | O_DIRECT);
	char *data = aligned_alloc(4096, 65536);

	if (fd < 0)
		_exit(1);
	memset(data, 1, 65536);
	for (int i = 0; !stopped(); i++, rest()) {
		if (pwrite(fd, data, 4096 << i % 5, i % 100 * 65536) > 0)
			shared->done[DISK]++;
		if (pread(fd, data, 4096 << i % 5, i % 100 * 65536) > 0)
			shared->done[DISK]++;
	}
}

static void forks(int worker)
{
	for (; !stopped(); rest()) {
		pid_t pid = fork();

		if (!pid && worker == EXECS)
			execl("/bin/busybox", "true", NULL);
		if (!pid)
			_exit(0);
		if (waitpid(pid, NULL, 0) == pid) {
			__atomic_fetch_add(&shared->forks, 1, __ATOMIC_RELAXED);
			shared->done[worker]++;
		}
	}
}

/* Adds up the record of an ended task, which is returned only once. */
static void bury(const struct ppa_task *t)
{
	shared->ended++;
	for (int i = 0; i < NR_WORKERS; i++)
		shared->ours += t->ppid == (__u32)pids[i];
	shared->own += t->values[PPA_SCHEDACCUM];
	shared->calls += t->values[PPA_SYSCALLCNT];
	shared->interrupts += t->values[PPA_INTACCUM];
}

static bool is_sane(int worker, const struct ppa_task *last, const struct ppa_task *t)
{
	if (t->values[PPA_SCACCUM] > t->values[PPA_SCHEDACCUM] + info.khz) {
		wrong(worker, "%u %s: system %llu of %llu", t->pid, t->comm,
		      t->values[PPA_SCACCUM], t->values[PPA_SCHEDACCUM]);
		return false;
	}
	if (last->pid != t->pid || last->began != t->began)
		return true;
	for (int i = 0; i < PPA_NR_VALUES; i++) {
		if (t->values[i] < last->values[i]) {
			wrong(worker, "%u %s: value %d from %llu to %llu", t->pid, t->comm, i,
			      last->values[i], t->values[i]);
			return false;
		}
	}
	return true;
}

/*
 * Reads all tasks and compares each with its values of the last time. No other worker reads to the
 * end, where the ended tasks are.
 */
static void read_tasks(struct ppa_task *last)
{
	static struct ppa_task some[100];
	ssize_t bytes;

	lseek(dev, 0, SEEK_SET);
	while ((bytes = read(dev, some, sizeof(some))) > 0) {
		for (int i = 0; i < (int)(bytes / sizeof(*some)); i++) {
			struct ppa_task *before = &last[some[i].pid % MOST_TASKS];

			is_sane(TASK_READER, before, &some[i]);
			*before = some[i];
			if (some[i].flags & PPA_TASK_ENDED)
				bury(&some[i]);
		}
	}
	if (bytes < 0)
		wrong(TASK_READER, "read: %s", strerror(errno));
	shared->done[TASK_READER]++;
}

static void task_reader(void)
{
	struct ppa_task *last = calloc(MOST_TASKS, sizeof(*last));

	for (; !stopped(); usleep(50000))
		read_tasks(last);
}

static void cpu_reader(void)
{
	static __u64 last[MAX_CPUS][PPA_NR_CPU_VALUES], v[MAX_CPUS][PPA_NR_CPU_VALUES];

	for (; !stopped(); usleep(1000)) {
		int nr = ppa_cpus(v);

		for (int cpu = 0; cpu < nr; cpu++)
			for (int i = 0; i < PPA_NR_CPU_VALUES; i++)
				if (v[cpu][i] < last[cpu][i])
					wrong(CPU_READER, "CPU %d: value %d from %llu to %llu", cpu,
					      i, last[cpu][i], v[cpu][i]);
		memcpy(last, v, sizeof(v));
		shared->done[CPU_READER]++;
	}
}

static void one_reader(void)
{
	static struct ppa_task last[NR_WORKERS], t;

	while (!stopped()) {
		for (int i = 0; i < TASK_READER; i++) {
			if (ppa_get_task(dev, pids[i], &t))
				continue;
			is_sane(ONE_READER, &last[i], &t);
			last[i] = t;
			shared->done[ONE_READER]++;
		}
		usleep(500);
	}
}

static void begin(int worker)
{
	fflush(stdout);
	pids[worker] = fork();
	if (pids[worker])
		return;
	switch (worker) {
	case NET:
		net();
		break;
	case TIMERS:
		timers();
		break;
	case DISK:
		disk();
		break;
	case TASK_READER:
		task_reader();
		break;
	case CPU_READER:
		cpu_reader();
		break;
	case ONE_READER:
		one_reader();
		break;
	default:
		forks(worker);
	}
	_exit(0);
}

static __u64 sum(__u64 (*cpus)[PPA_NR_CPU_VALUES], int first, int last)
{
	__u64 all = 0;

	for (__u32 cpu = 0; cpu < info.nr_cpus; cpu++)
		for (int i = first; i <= last; i++)
			all += cpus[cpu][i];
	return all;
}

/*
 * Takes CPU 1 offline and online again. Adds the shortest time that it may have been offline to
 * @least, and the longest one to @most.
 */
static void plug(__u64 *least, __u64 *most)
{
	__u64 goes = ppa_info(dev).now, gone, comes;

	if (!set_cpu_online(1, false))
		wrong(NET, "CPU 1 does not go offline");
	gone = ppa_info(dev).now;
	usleep(400000);
	comes = ppa_info(dev).now;
	if (!set_cpu_online(1, true))
		wrong(NET, "CPU 1 does not come online");
	*least += comes - gone;
	*most += ppa_info(dev).now - goes;
}

static void shows(int cpu, __u64 *a, __u64 *b)
{
	note("CPU %d: user %.0f ms, system %.0f, interrupts %.0f, idle %.0f; %llu calls, %llu interrupts, %llu softirqs: timer %llu, net %llu",
	     cpu, ticks_to_ms(b[PPA_CPU_USER] - a[PPA_CPU_USER], &info),
	     ticks_to_ms(b[PPA_CPU_SYSTEM] - a[PPA_CPU_SYSTEM], &info),
	     ticks_to_ms(b[PPA_CPU_INTERRUPTS] - a[PPA_CPU_INTERRUPTS], &info),
	     ticks_to_ms(b[PPA_CPU_IDLE] - a[PPA_CPU_IDLE], &info),
	     b[PPA_CPU_SYSCALLS] - a[PPA_CPU_SYSCALLS],
	     b[PPA_CPU_INTERRUPT_COUNT] - a[PPA_CPU_INTERRUPT_COUNT],
	     b[PPA_CPU_SOFTIRQ_COUNT] - a[PPA_CPU_SOFTIRQ_COUNT],
	     b[PPA_CPU_TIMER_COUNT] - a[PPA_CPU_TIMER_COUNT],
	     b[PPA_CPU_NET_RX_COUNT] - a[PPA_CPU_NET_RX_COUNT]);
}

/*
 * Checks that user, system, interrupt and idle time of a CPU add up to the time that it was online.
 */
static void conserved(int cpu, __u64 all, __u64 least, __u64 most)
{
	note("CPU %d: %.3f ms in four states, of %.3f to %.3f", cpu, ticks_to_ms(all, &info),
	     ticks_to_ms(least, &info), ticks_to_ms(most, &info));
	ok(all + SLACK_MS * info.khz >= least && all <= most + SLACK_MS * info.khz,
	   "4.9 CPU %d: user, system, interrupt and idle time add up to its time%s", cpu,
	   cpu ? ", without the time offline" : "");
}

/* Checks that the sum over all tasks lies between the sums over CPUs before and after. */
static void agree(__u64 before, __u64 tasks, __u64 after, __u64 slack, const char *name)
{
	note("CPUs %llu, tasks %llu, CPUs %llu", before, tasks, after);
	ok(tasks + slack >= before && tasks <= after + slack, "%s", name);
}

/*
 * By how much the values of CPUs are ahead of those of tasks at first: CPUs are counted from when
 * the probes are attached, tasks from when all of them have records. @least and @most come from
 * reading the CPUs before and after the tasks.
 */
struct ahead {
	__u64 least, most;
};

static void look_ahead(struct ahead *own, struct ahead *calls)
{
	static __u64 a[MAX_CPUS][PPA_NR_CPU_VALUES], b[MAX_CPUS][PPA_NR_CPU_VALUES];
	static struct ppa_task tasks[MOST_TASKS];
	__u64 had = 0, called = 0;
	int nr;

	ppa_cpus(a);
	lseek(dev, 0, SEEK_SET);
	nr = ppa_tasks(dev, tasks, MOST_TASKS);
	ppa_cpus(b);
	for (int i = 0; i < nr; i++) {
		had += tasks[i].values[PPA_SCHEDACCUM];
		called += tasks[i].values[PPA_SYSCALLCNT];
		if (tasks[i].flags & PPA_TASK_ENDED)
			bury(&tasks[i]);
	}
	own->least = sum(a, PPA_CPU_USER, PPA_CPU_SYSTEM) - had;
	own->most = sum(b, PPA_CPU_USER, PPA_CPU_SYSTEM) - had;
	calls->least = sum(a, PPA_CPU_SYSCALLS, PPA_CPU_SYSCALLS) - called;
	calls->most = sum(b, PPA_CPU_SYSCALLS, PPA_CPU_SYSCALLS) - called;
	note("at first CPUs are ahead by %lld to %lld ticks, %lld to %lld calls",
	     (long long)own->least, (long long)own->most, (long long)calls->least,
	     (long long)calls->most);
}

static bool much(int plugs)
{
	bool all = plugs >= gate_or_long(3, 8);

	for (int i = 0; i < NR_WORKERS; i++)
		all &= __atomic_load_n(&shared->done[i], __ATOMIC_RELAXED) >=
		       (i == FORKS || i == EXECS ? scale_min(gate_or_long(50, 150)) : 20);
	return all;
}

/*
 * Returns the kernel's number of threads. A thread that its parent has waited for is not counted,
 * though its last context switch may still be to come.
 */
static __u64 nr_threads(void)
{
	char text[80];
	unsigned int nr = 0;

	sscanf(read_file("/proc/loadavg", text, sizeof(text)), "%*s %*s %*s %*d/%u", &nr);
	return nr;
}

static void minute(void)
{
	static __u64 a[MAX_CPUS][PPA_NR_CPU_VALUES], b[MAX_CPUS][PPA_NR_CPU_VALUES];
	static struct ppa_task tasks[MOST_TASKS];
	__u64 a0, a1, b0, b1, least = 0, most = 0, end, stuck, own, calls, interrupts;
	struct ahead own_ahead, calls_ahead;
	int plugs = 0, nr, i;
	struct ppa_info last;
	bool good = true;

	look_ahead(&own_ahead, &calls_ahead);
	a0 = ppa_info(dev).now;
	ppa_cpus(a);
	a1 = ppa_info(dev).now;
	for (i = 0; i < NR_WORKERS; i++)
		begin(i);
	end = now_ns() + SECONDS * 1000000000ULL;
	stuck = end + scale_timeout(190) * 1000000000ULL;
	/* On a busy host it takes longer until each worker has done enough. */
	for (; now_ns() < end || (!much(plugs) && now_ns() < stuck); plugs++) {
		sleep_ms(800);
		plug(&least, &most);
	}
	__atomic_store_n(&shared->stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < NR_WORKERS; i++) {
		int status;

		waitpid(pids[i], &status, 0);
		if (status)
			note("worker %d: status %d", i, status);
		good &= !status;
	}
	ok(good, "4.9 workers: all exit with status 0");
	/*
	 * A task is accounted until its last context switch, which may be after its parent's wait.
	 */
	wait_until(ppa_info(dev).nr_tasks <= nr_threads());
	b0 = ppa_info(dev).now;
	ppa_cpus(b);
	b1 = ppa_info(dev).now;
	shows(0, a[0], b[0]);
	shows(1, a[1], b[1]);
	conserved(0, b[0][0] + b[0][1] + b[0][2] + b[0][3] - a[0][0] - a[0][1] - a[0][2] - a[0][3],
		  b0 - a1, b1 - a0);
	conserved(1, b[1][0] + b[1][1] + b[1][2] + b[1][3] - a[1][0] - a[1][1] - a[1][2] - a[1][3],
		  b0 - a1 - most, b1 - a0 - least);
	/*
	 * Compare all that was counted since accounting began, not the differences to the first
	 * reading.
	 */
	ppa_cpus(a);
	lseek(dev, 0, SEEK_SET);
	nr = ppa_tasks(dev, tasks, MOST_TASKS);
	ppa_cpus(b);
	own = shared->own;
	calls = shared->calls;
	interrupts = shared->interrupts;
	for (i = 0; i < nr; i++) {
		own += tasks[i].values[PPA_SCHEDACCUM];
		calls += tasks[i].values[PPA_SYSCALLCNT];
		interrupts += tasks[i].values[PPA_INTACCUM];
		if (tasks[i].flags & PPA_TASK_ENDED) {
			shared->ended++;
			for (int w = 0; w < NR_WORKERS; w++)
				shared->ours += tasks[i].ppid == (__u32)pids[w];
		}
	}
	last = ppa_info(dev);
	agree(sum(a, PPA_CPU_USER, PPA_CPU_SYSTEM) - own_ahead.most, own,
	      sum(b, PPA_CPU_USER, PPA_CPU_SYSTEM) - own_ahead.least, SLACK_MS * info.khz,
	      "4.9 tasks: their times add up to the CPUs' user and system time");
	agree(sum(a, PPA_CPU_SYSCALLS, PPA_CPU_SYSCALLS) - calls_ahead.most, calls,
	      sum(b, PPA_CPU_SYSCALLS, PPA_CPU_SYSCALLS) - calls_ahead.least, 0,
	      "4.9 tasks: their system calls add up to those of the CPUs");
	agree(0, interrupts, sum(b, PPA_CPU_INTERRUPTS, PPA_CPU_INTERRUPTS), 0,
	      "4.9 tasks: their interrupt times add up to at most those of the CPUs");
	note("CPU 1 was offline %d times, %.0f to %.0f ms; %llu tasks ended, %d read at the end",
	     plugs, ticks_to_ms(least, &info), ticks_to_ms(most, &info), shared->ended, nr);
	note("packets %llu, signals %llu, transfers %llu, forks %llu, execs %llu; all read %llu times, CPUs %llu, one task %llu",
	     shared->done[NET], shared->done[TIMERS], shared->done[DISK], shared->done[FORKS],
	     shared->done[EXECS], shared->done[TASK_READER], shared->done[CPU_READER],
	     shared->done[ONE_READER]);
	is(shared->ours, shared->forks, "4.4 ended tasks: each one is returned, once");
	is(last.lost, 0, "4.4 ended tasks: none is lost");
	is(last.refused, 0, "4.4 new tasks: none is refused");
	ok(good && much(plugs), "4.9 workers: each has done enough");
	ok(b[0][PPA_CPU_IDLE] && b[1][PPA_CPU_IDLE] && b[0][PPA_CPU_NET_RX_COUNT] &&
	   b[0][PPA_CPU_TIMER_COUNT] && b[1][PPA_CPU_INTERRUPTS],
	   "4.9 CPUs: idle time, interrupt time, timer and network softirqs are counted");
	for (i = TASK_READER; i < NR_WORKERS; i++) {
		const char *const who[] = { "tasks' values", "CPUs' values", "a task's values" };

		is(shared->wrong[i], 0,
		   "4.9 no time or count of %s decreases", who[i - TASK_READER]);
		if (shared->wrong[i])
			note("%s", shared->what[i]);
	}
	is(shared->wrong[NET], 0, "4.9 CPU 1: goes offline and online again each time");
}

int main(void)
{
	plan(1 + 15 + 1);
	unload_modules();
	ppa_write("/proc/sys/kernel/modprobe", "\n");
	if (system("modprobe null_blk nr_devices=1 gb=1 irqmode=1"))
		bail("modprobe null_blk");
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (shared == MAP_FAILED)
		bail("mmap");
	insmod("perfcounters", "");
	dev = ppa_open();
	is(ppa_write(SETTINGS, "1 1 0 1"), 0, "4.8 settings: accounting is turned on");
	info = ppa_info(dev);
	minute();
	close(dev);
	ppa_write(SETTINGS, "0 0 0 1");
	system("rmmod null_blk");
	is(rmmod("perfcounters"), 0,
	   "4.8 rmmod: perfcounters.ko unloads after accounting was busy");
	return finish();
}
