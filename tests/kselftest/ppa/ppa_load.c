// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 400
 *
 * Tests process accounting under load for ten seconds (three in make test): packets, timers,
 * signals, a disk, forks and execs, readers, and CPU hotplug, all at once. The accounted times of a
 * CPU must add up to the time for which the CPU was online. The sums over all tasks must agree with
 * the sums over all CPUs. No value may decrease, and no record may be lost.
 */
#include "ppa.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#define SECONDS		gate_or_long(3, 6)
#define MAX_TASKS	8192
/* A clock and the values that are compared with it are not read at the same instant. */
#define SLACK_MS	1

enum { NET, TIMERS, DISK, FORKS, EXECS, TASK_READER, CPU_READER, ONE_READER, NR_WORKERS };

/* Results of the workers, in shared memory. */
static struct {
	__u64 done[NR_WORKERS];
	__u64 forks;
	__u64 wrong[NR_WORKERS];
	char message[NR_WORKERS][120];
	/* Sums over ended tasks; `ended_children` are those of workers. */
	__u64 ended, ended_children, run_time, calls, interrupts;
	int stop;
} *shared;

static pid_t pids[NR_WORKERS];

static bool is_stopped(void)
{
	return __atomic_load_n(&shared->stop, __ATOMIC_RELAXED);
}

/* All workers sleep in the first 0.2 s of each second, so that the CPUs have idle time. */
static void rest_if_due(void)
{
	if (now_ns() / 100000000 % 10 < 2)
		usleep(20000);
}

__attribute__((format(printf, 2, 3)))
static void record_error(int worker, const char *fmt, ...)
{
	va_list ap;

	if (shared->wrong[worker]++)
		return;
	va_start(ap, fmt);
	vsnprintf(shared->message[worker], sizeof(shared->message[0]), fmt, ap);
	va_end(ap);
}

static void run_net(void)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int udp = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	int listener = socket(AF_INET, SOCK_STREAM, 0), tcp, server;
	socklen_t len = sizeof(addr);
	char data[1000];
	pid_t echo;

	exit_if(bind(udp, (void *)&addr, sizeof(addr)) || listen(listener, 1), 1);
	echo = fork_child({
		tcp = socket(AF_INET, SOCK_STREAM, 0);
		getsockname(listener, (void *)&addr, &len);
		exit_if(connect(tcp, (void *)&addr, sizeof(addr)), 1);
		while (read(tcp, data, sizeof(data)) > 0)
			if (write(tcp, data, 100) != 100)
				break;
	});
	server = accept(listener, NULL, NULL);
	getsockname(udp, (void *)&addr, &len);
	for (; !is_stopped(); rest_if_due()) {
		for (int i = 0; i < 20; i++) {
			sendto(udp, data, 200, 0, (void *)&addr, sizeof(addr));
			while (recv(udp, data, sizeof(data), 0) > 0)
				shared->done[NET]++;
		}
		if (write(server, data, 100) == 100 && read(server, data, sizeof(data)) > 0)
			shared->done[NET]++;
	}
	close(server);
	waitpid(echo, NULL, 0);
	shared->forks++;
}

static void count_tick(int sig)
{
	shared->done[TIMERS]++;
}

static void run_timers(void)
{
	struct itimerval each = { { 0, 3000 }, { 0, 3000 } };

	signal(SIGALRM, count_tick);
	setitimer(ITIMER_REAL, &each, NULL);
	while (!is_stopped()) {
		for (volatile int i = 0; i < 20000; i++)
			;
		usleep(1500);
		rest_if_due();
	}
}

static void run_disk(void)
{
	int fd = open("/dev/nullb0", O_RDWR | O_DIRECT);
	char *data = aligned_alloc(4096, 65536);

	exit_if(fd < 0, 1);
	memset(data, 1, 65536);
	for (int i = 0; !is_stopped(); i++, rest_if_due()) {
		if (pwrite(fd, data, 4096 << i % 5, i % 100 * 65536) > 0)
			shared->done[DISK]++;
		if (pread(fd, data, 4096 << i % 5, i % 100 * 65536) > 0)
			shared->done[DISK]++;
	}
}

static void run_forks(int worker)
{
	for (; !is_stopped(); rest_if_due()) {
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

/*
 * Adds the record of an ended task to the sums. The record of an ended task is returned only once.
 */
static void add_ended(const struct ppa_task *t)
{
	shared->ended++;
	for (int i = 0; i < NR_WORKERS; i++)
		shared->ended_children += t->ppid == (__u32)pids[i];
	shared->run_time += t->values[PPA_SCHEDACCUM];
	shared->calls += t->values[PPA_SYSCALLCNT];
	shared->interrupts += t->values[PPA_INTACCUM];
}

static bool is_sane(int worker, const struct ppa_task *last, const struct ppa_task *t)
{
	if (t->values[PPA_SCACCUM] > t->values[PPA_SCHEDACCUM] + info.khz) {
		record_error(worker, "%u %s: system %llu of %llu", t->pid, t->comm,
			     t->values[PPA_SCACCUM], t->values[PPA_SCHEDACCUM]);
		return false;
	}
	if (last->pid != t->pid || last->began != t->began)
		return true;
	for (int i = 0; i < PPA_NR_VALUES; i++) {
		if (t->values[i] < last->values[i]) {
			record_error(worker, "%u %s: value %d from %llu to %llu", t->pid, t->comm,
				     i, last->values[i], t->values[i]);
			return false;
		}
	}
	return true;
}

/* Only this worker reads to the end of the file, where the records of ended tasks are. */
static void read_tasks(struct ppa_task *last)
{
	static struct ppa_task tasks[100];
	ssize_t bytes;

	lseek(dev, 0, SEEK_SET);
	while ((bytes = read(dev, tasks, sizeof(tasks))) > 0) {
		for (int i = 0; i < (int)(bytes / sizeof(*tasks)); i++) {
			struct ppa_task *before = &last[tasks[i].pid % MAX_TASKS];

			is_sane(TASK_READER, before, &tasks[i]);
			*before = tasks[i];
			if (tasks[i].flags & PPA_TASK_ENDED)
				add_ended(&tasks[i]);
		}
	}
	if (bytes < 0)
		record_error(TASK_READER, "read: %s", strerror(errno));
	shared->done[TASK_READER]++;
}

static void task_reader(void)
{
	struct ppa_task *last = calloc(MAX_TASKS, sizeof(*last));

	for (; !is_stopped(); usleep(50000))
		read_tasks(last);
}

static void cpu_reader(void)
{
	static __u64 last[MAX_CPUS][PPA_NR_CPU_VALUES], v[MAX_CPUS][PPA_NR_CPU_VALUES];

	for (; !is_stopped(); usleep(1000)) {
		int nr = ppa_cpus(v);

		for (int cpu = 0; cpu < nr; cpu++)
			for (int i = 0; i < PPA_NR_CPU_VALUES; i++)
				if (v[cpu][i] < last[cpu][i])
					record_error(CPU_READER,
						     "CPU %d: value %d from %llu to %llu", cpu,
						     i, last[cpu][i], v[cpu][i]);
		memcpy(last, v, sizeof(v));
		shared->done[CPU_READER]++;
	}
}

static void one_reader(void)
{
	static struct ppa_task last[NR_WORKERS], t;

	while (!is_stopped()) {
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

static void start_worker(int worker)
{
	pids[worker] = fork();
	if (pids[worker])
		return;
	switch (worker) {
	case NET:
		run_net();
		break;
	case TIMERS:
		run_timers();
		break;
	case DISK:
		run_disk();
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
		run_forks(worker);
	}
	_exit(0);
}

static __u64 sum(__u64 (*cpus)[PPA_NR_CPU_VALUES], int first, int last)
{
	__u64 total = 0;

	for (__u32 cpu = 0; cpu < info.nr_cpus; cpu++)
		for (int i = first; i <= last; i++)
			total += cpus[cpu][i];
	return total;
}

/* Adds the shortest time that CPU 1 may have been offline to @min, the longest to @max. */
static void toggle_cpu1(__u64 *min, __u64 *max)
{
	__u64 offline_start = ppa_info(dev).now, offline_end, online_start;

	if (!set_cpu_online(1, false))
		record_error(NET, "CPU 1 does not go offline");
	offline_end = ppa_info(dev).now;
	usleep(400000);
	online_start = ppa_info(dev).now;
	if (!set_cpu_online(1, true))
		record_error(NET, "CPU 1 does not come online");
	*min += online_start - offline_end;
	*max += ppa_info(dev).now - offline_start;
}

static void note_cpu(int cpu, __u64 *a, __u64 *b)
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

/* The sum must be the time that the CPU was online. */
static void test_cpu_time(int cpu, __u64 total, __u64 min, __u64 max)
{
	note("CPU %d: %.3f ms in four states, of %.3f to %.3f", cpu, ticks_to_ms(total, &info),
	     ticks_to_ms(min, &info), ticks_to_ms(max, &info));
	ok(total + SLACK_MS * info.khz >= min && total <= max + SLACK_MS * info.khz,
	   "4.9 CPU %d: user, system, interrupt and idle time add up to its time%s", cpu,
	   cpu ? ", without the time offline" : "");
}

/* The CPUs were read before and after the tasks. */
static void test_tasks_match_cpus(__u64 before, __u64 tasks, __u64 after, __u64 slack,
				  const char *name)
{
	note("CPUs %llu, tasks %llu, CPUs %llu", before, tasks, after);
	ok(tasks + slack >= before && tasks <= after + slack, "%s", name);
}

/*
 * Amount by which the sums over CPUs exceed the sums over tasks when accounting starts. Accounting
 * updates the values of the CPUs as soon as its probes are attached. Accounting updates the values
 * of a task only after the task has got a record. The values of the CPUs are read before and after
 * the tasks: @min is computed from the first reading, and @max from the second.
 */
struct cpu_lead {
	__u64 min, max;
};

static void measure_cpu_lead(struct cpu_lead *run_lead, struct cpu_lead *call_lead)
{
	static __u64 a[MAX_CPUS][PPA_NR_CPU_VALUES], b[MAX_CPUS][PPA_NR_CPU_VALUES];
	static struct ppa_task tasks[MAX_TASKS];
	__u64 run_time = 0, calls_counted = 0;
	int nr;

	ppa_cpus(a);
	lseek(dev, 0, SEEK_SET);
	nr = ppa_tasks(dev, tasks, MAX_TASKS);
	ppa_cpus(b);
	for (int i = 0; i < nr; i++) {
		run_time += tasks[i].values[PPA_SCHEDACCUM];
		calls_counted += tasks[i].values[PPA_SYSCALLCNT];
		if (tasks[i].flags & PPA_TASK_ENDED)
			add_ended(&tasks[i]);
	}
	run_lead->min = sum(a, PPA_CPU_USER, PPA_CPU_SYSTEM) - run_time;
	run_lead->max = sum(b, PPA_CPU_USER, PPA_CPU_SYSTEM) - run_time;
	call_lead->min = sum(a, PPA_CPU_SYSCALLS, PPA_CPU_SYSCALLS) - calls_counted;
	call_lead->max = sum(b, PPA_CPU_SYSCALLS, PPA_CPU_SYSCALLS) - calls_counted;
	note("at first CPUs are ahead by %lld to %lld ticks, %lld to %lld calls",
	     (long long)run_lead->min, (long long)run_lead->max, (long long)call_lead->min,
	     (long long)call_lead->max);
}

static bool has_enough(int nr_toggles)
{
	bool enough = nr_toggles >= gate_or_long(3, 5);

	for (int i = 0; i < NR_WORKERS; i++)
		enough &= __atomic_load_n(&shared->done[i], __ATOMIC_RELAXED) >=
			  (i == FORKS || i == EXECS ? scale_min(gate_or_long(50, 90)) : 20);
	return enough;
}

/*
 * Returns the number of threads in the system, from /proc/loadavg. /proc/loadavg does not count a
 * thread that has been reaped, even if the thread has not done its last context switch.
 */
static __u64 nr_threads(void)
{
	char text[80];
	unsigned int nr;

	if (sscanf(read_file("/proc/loadavg", text, sizeof(text)), "%*s %*s %*s %*d/%u", &nr) != 1)
		return 0;
	return nr;
}

static void test_load(void)
{
	static __u64 a[MAX_CPUS][PPA_NR_CPU_VALUES], b[MAX_CPUS][PPA_NR_CPU_VALUES];
	static struct ppa_task tasks[MAX_TASKS];
	__u64 a0, a1, b0, b1, min = 0, max = 0, end, timeout, own, calls, interrupts;
	struct cpu_lead own_ahead, calls_ahead;
	int nr_toggles = 0, nr, i;
	struct ppa_info last;
	bool good = true;

	measure_cpu_lead(&own_ahead, &calls_ahead);
	a0 = ppa_info(dev).now;
	ppa_cpus(a);
	a1 = ppa_info(dev).now;
	for (i = 0; i < NR_WORKERS; i++)
		start_worker(i);
	end = now_ns() + SECONDS * 1000000000ULL;
	timeout = end + scale_timeout(190) * 1000000000ULL;
	/* On a busy host, it takes longer until each worker has done enough work. */
	for (; now_ns() < end || (!has_enough(nr_toggles) && now_ns() < timeout); nr_toggles++) {
		sleep_ms(800);
		toggle_cpu1(&min, &max);
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
	 * A task is accounted until its last context switch, which may happen after its parent has
	 * waited for it.
	 */
	wait_until(ppa_info(dev).nr_tasks <= nr_threads());
	b0 = ppa_info(dev).now;
	ppa_cpus(b);
	b1 = ppa_info(dev).now;
	note_cpu(0, a[0], b[0]);
	note_cpu(1, a[1], b[1]);
	test_cpu_time(0, b[0][0] + b[0][1] + b[0][2] + b[0][3] -
		      a[0][0] - a[0][1] - a[0][2] - a[0][3], b0 - a1, b1 - a0);
	test_cpu_time(1, b[1][0] + b[1][1] + b[1][2] + b[1][3] -
		      a[1][0] - a[1][1] - a[1][2] - a[1][3], b0 - a1 - max, b1 - a0 - min);
	/* Compare all values since accounting began, not the differences to the first reading. */
	ppa_cpus(a);
	lseek(dev, 0, SEEK_SET);
	nr = ppa_tasks(dev, tasks, MAX_TASKS);
	ppa_cpus(b);
	own = shared->run_time;
	calls = shared->calls;
	interrupts = shared->interrupts;
	for (i = 0; i < nr; i++) {
		own += tasks[i].values[PPA_SCHEDACCUM];
		calls += tasks[i].values[PPA_SYSCALLCNT];
		interrupts += tasks[i].values[PPA_INTACCUM];
		if (tasks[i].flags & PPA_TASK_ENDED) {
			shared->ended++;
			for (int w = 0; w < NR_WORKERS; w++)
				shared->ended_children += tasks[i].ppid == (__u32)pids[w];
		}
	}
	last = ppa_info(dev);
	test_tasks_match_cpus(sum(a, PPA_CPU_USER, PPA_CPU_SYSTEM) - own_ahead.max, own,
			      sum(b, PPA_CPU_USER, PPA_CPU_SYSTEM) - own_ahead.min,
			      SLACK_MS * info.khz,
			      "4.9 tasks: their times add up to the CPUs' user and system time");
	test_tasks_match_cpus(sum(a, PPA_CPU_SYSCALLS, PPA_CPU_SYSCALLS) - calls_ahead.max, calls,
			      sum(b, PPA_CPU_SYSCALLS, PPA_CPU_SYSCALLS) - calls_ahead.min, 0,
			      "4.9 tasks: their system calls add up to those of the CPUs");
	test_tasks_match_cpus(0, interrupts, sum(b, PPA_CPU_INTERRUPTS, PPA_CPU_INTERRUPTS), 0,
			      "4.9 tasks: their interrupt times add up to at most those of the CPUs");
	note("CPU 1 was offline %d times, %.0f to %.0f ms; %llu tasks ended, %d read at the end",
	     nr_toggles, ticks_to_ms(min, &info), ticks_to_ms(max, &info), shared->ended, nr);
	note("packets %llu, signals %llu, transfers %llu, forks %llu, execs %llu; all read %llu times, CPUs %llu, one task %llu",
	     shared->done[NET], shared->done[TIMERS], shared->done[DISK], shared->done[FORKS],
	     shared->done[EXECS], shared->done[TASK_READER], shared->done[CPU_READER],
	     shared->done[ONE_READER]);
	is(shared->ended_children, shared->forks, "4.4 ended tasks: each one is returned, once");
	is(last.lost, 0, "4.4 ended tasks: none is lost");
	is(last.refused, 0, "4.4 new tasks: none is refused");
	ok(good && has_enough(nr_toggles), "4.9 workers: each has done enough");
	ok(b[0][PPA_CPU_IDLE] && b[1][PPA_CPU_IDLE] && b[0][PPA_CPU_NET_RX_COUNT] &&
	   b[0][PPA_CPU_TIMER_COUNT] && b[1][PPA_CPU_INTERRUPTS],
	   "4.9 CPUs: idle time, interrupt time, timer and network softirqs are counted");
	for (i = TASK_READER; i < NR_WORKERS; i++) {
		const char *const readers[] = { "tasks' values", "CPUs' values",
		"a task's values" };

		is(shared->wrong[i], 0,
		   "4.9 no time or count of %s decreases", readers[i - TASK_READER]);
		if (shared->wrong[i])
			note("%s", shared->message[i]);
	}
	is(shared->wrong[NET], 0, "4.9 CPU 1: goes offline and online again each time");
}

int main(void)
{
	plan(1 + 15 + 1);
	ppa_write("/proc/sys/kernel/modprobe", "\n");
	bail_if(system("modprobe null_blk nr_devices=1 gb=1 irqmode=1"), "modprobe null_blk");
	shared = map_memory(sizeof(*shared), MAP_SHARED);
	ppa_load();
	is(ppa_write(SETTINGS, "1 1 0 1"), 0, "4.8 settings: accounting is turned on");
	test_load();
	close(dev);
	ppa_write(SETTINGS, "0 0 0 1");
	system("rmmod null_blk");
	is(rmmod("ppa"), 0, "4.8 rmmod: ppa.ko unloads after accounting was busy");
	unload_modules();
	return finish();
}
