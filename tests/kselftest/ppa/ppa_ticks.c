// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 120
 *
 * Compares process accounting with accounting by ticks. A load whose times and counts are known
 * runs alone on a CPU. Time stamps, getrusage(), schedstat and /proc/stat measure the load, and a
 * table shows their results. One task sleeps at each tick, and another one is in a system call at
 * each tick.
 */
#include "ppa.h"
#include <sys/prctl.h>
#include <sys/resource.h>

#define CPU	1
#define TICK	4000000ULL	/* ns; CONFIG_HZ=250, aligned to CLOCK_MONOTONIC */
#define US	1000ULL
#define MS	1000000ULL

#define CALLS	20000
#define SLEEPS	50
#define YIELDS	300
#define SIGNALS	40

static int zero, pid;
static char buffer[1 << 16];

/* All measurements that are taken at one time, in milliseconds and counts. */
struct readings {
	struct ppa_task task;
	__u64 cpus[MAX_CPUS][PPA_NR_CPU_VALUES];
	double wall, rusage[2], schedstat[2], stat[3];
	__u64 blocked;
};

/* CPU 1: user; system with interrupts and softirqs; idle with iowait. */
static void proc_stat(double *stat)
{
	unsigned long long n[7] = { 0 };
	char text[8192];
	const char *line;
	const char *name = format_text("cpu%d ", CPU);

	line = strstr(read_file("/proc/stat", text, sizeof(text)), name);
	bail_if(!line || sscanf(line + strlen(name), "%llu %llu %llu %llu %llu %llu %llu", n, n + 1,
				n + 2, n + 3, n + 4, n + 5, n + 6) != 7, "/proc/stat");
	stat[0] = (n[0] + n[1]) * 10.0;
	stat[1] = (n[2] + n[5] + n[6]) * 10.0;
	stat[2] = (n[3] + n[4]) * 10.0;
}

static void read_all(struct readings *r)
{
	unsigned long long run, wait;
	struct rusage usage;
	char text[100];

	proc_stat(r->stat);
	bail_if(sscanf(read_file("/proc/self/schedstat", text, sizeof(text)), "%llu %llu", &run,
		       &wait) != 2, "schedstat");
	r->schedstat[0] = run / 1e6;
	r->schedstat[1] = wait / 1e6;
	ppa_cpus(r->cpus);
	getrusage(RUSAGE_SELF, &usage);
	r->rusage[0] = usage.ru_utime.tv_sec * 1e3 + usage.ru_utime.tv_usec / 1e3;
	r->rusage[1] = usage.ru_stime.tv_sec * 1e3 + usage.ru_stime.tv_usec / 1e3;
	r->blocked = usage.ru_nvcsw;
	r->task = ppa_task(dev, pid);
	r->wall = now_ns() / 1e6;
}

/*
 * Differences between two readings of all clocks and counters, and the values that the work
 * function has measured with its own reads of the clock.
 */
struct differences {
	double wall, user, system, interrupts, runq, latency, idle;
	double rusage[2], schedstat[2], stat[3];
	__u64 values[PPA_NR_VALUES], latencies, signals, blocked;
	/*
	 * Values that the work function measures with its own reads of the clock: the milliseconds
	 * of the work in user mode and in system mode, and the number of ticks at which the work
	 * was running.
	 */
	double self_user, self_system;
	unsigned int ticks_at_work;
};

static struct differences overhead;

static struct differences subtract(const struct readings *a, const struct readings *b)
{
	struct differences c = { .wall = b->wall - a->wall };

	for (int i = 0; i < PPA_NR_VALUES; i++)
		c.values[i] = b->task.values[i] - a->task.values[i];
	c.system = ticks_to_ms(c.values[PPA_SCACCUM], &info);
	c.user = ticks_to_ms(c.values[PPA_SCHEDACCUM] - c.values[PPA_SCACCUM], &info);
	c.interrupts = ticks_to_ms(c.values[PPA_INTACCUM], &info);
	c.latency = ticks_to_ms(c.values[PPA_SCHLATACCUM], &info);
	c.runq = ticks_to_ms(b->task.runq - a->task.runq, &info);
	c.idle = ticks_to_ms(b->cpus[CPU][PPA_CPU_IDLE] - a->cpus[CPU][PPA_CPU_IDLE], &info);
	for (int i = 0; i < PPA_NR_LATENCIES; i++)
		c.latencies += b->task.latencies[i] - a->task.latencies[i];
	c.blocked = b->blocked - a->blocked;
	c.signals = b->task.signals[SIGUSR1] - a->task.signals[SIGUSR1];
	for (int i = 0; i < 2; i++) {
		c.rusage[i] = b->rusage[i] - a->rusage[i];
		c.schedstat[i] = b->schedstat[i] - a->schedstat[i];
	}
	for (int i = 0; i < 3; i++)
		c.stat[i] = b->stat[i] - a->stat[i];
	return c;
}

static volatile __u64 sink;

static void compute_until(struct differences *c, __u64 end)
{
	__u64 begin = now_ns(), now = begin, i;

	for (; now < end; now = now_ns())
		for (i = 0; i < 500; i++)
			sink += i;
	c->self_user += (now - begin) / 1e6;
}

static void call_until(struct differences *c, __u64 end)
{
	__u64 begin = now_ns(), now = begin;

	for (; now < end; now = now_ns())
		bail_if(read(zero, buffer, sizeof(buffer)) != sizeof(buffer), "/dev/zero");
	c->self_system += (now - begin) / 1e6;
}

static void work_nothing(struct differences *c)
{
}

static void work_compute(struct differences *c)
{
	compute_until(c, now_ns() + scale_down(300) * MS);
}

static void work_calls(struct differences *c)
{
	call_until(c, now_ns() + scale_down(300) * MS);
}

static void work_short_calls(struct differences *c)
{
	for (int i = 0; i < CALLS; i++)
		syscall(SYS_getppid);
}

static void work_sleeps(struct differences *c)
{
	for (int i = 0; i < SLEEPS; i++)
		usleep(2000);
}

static void work_yields(struct differences *c)
{
	for (int i = 0; i < YIELDS; i++)
		sched_yield();
}

static void ignore_signal(int sig)
{
}

static void work_signals(struct differences *c)
{
	for (int i = 0; i < SIGNALS; i++)
		syscall(SYS_tgkill, pid, pid, SIGUSR1);
}

/* Sleeps over each tick and works between ticks, half of the time in system calls. */
static void work_between_ticks(struct differences *c)
{
	for (int i = 0; i < scale_down(150); i++) {
		__u64 tick = now_ns() / TICK * TICK + TICK, begin;
		struct timespec t;

		begin = tick + 200 * US;
		t.tv_sec = begin / 1000000000;
		t.tv_nsec = begin % 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
		begin = now_ns();
		/* If the wakeup was late, the task waits for the next tick. */
		if (begin > tick + 2000 * US)
			continue;
		compute_until(c, begin + (tick + 3000 * US - begin) / 2);
		call_until(c, tick + 3000 * US);
		c->ticks_at_work += now_ns() >= tick + TICK;
	}
}

/* Works without a pause, mostly in user mode, but is in a system call at each tick. */
static void work_calls_at_ticks(struct differences *c)
{
	for (int i = 0; i < scale_down(150); i++) {
		__u64 tick = now_ns() / TICK * TICK + TICK;

		compute_until(c, tick - 700 * US);
		call_until(c, tick + 500 * US);
	}
}

static struct differences measure(const char *name, void (*work)(struct differences *c))
{
	struct differences self = { 0 }, c;
	static struct readings a, b;

	read_all(&a);
	work(&self);
	read_all(&b);
	c = subtract(&a, &b);
	c.self_user = self.self_user;
	c.self_system = self.self_system;
	c.ticks_at_work = self.ticks_at_work;
	note("%-22s %6.0f %6.0f |%6.1f %6.1f %5.1f %6.1f |%6.1f %6.1f |%6.1f %5.1f |%5.0f %5.0f %5.0f",
	     name, c.self_user, c.self_system, c.user, c.system, c.interrupts, c.idle,
	     c.rusage[0], c.rusage[1], c.schedstat[0], c.schedstat[1], c.stat[0], c.stat[1],
	     c.stat[2]);
	return c;
}

static void test_within(double value, double min, double max, const char *name)
{
	if (!ok(value >= min && value <= max, "%s", name))
		note("%.2f is not in %.2f to %.2f", value, min, max);
}

static double accounted_ms(const struct differences *c)
{
	return c->user + c->system + c->interrupts + c->runq;
}

static bool is_all_accounted(const struct differences *c)
{
	return accounted_ms(c) >= c->wall * 0.99 - 1 && accounted_ms(c) <= c->wall * 1.01 + 1;
}

/*
 * Checks that the times of running, of interrupts and of waiting for the CPU add up to the whole
 * time of a task that never sleeps.
 */
static void test_all_accounted(const struct differences *c, const char *name)
{
	test_within(accounted_ms(c), c->wall * 0.99 - 1, c->wall * 1.01 + 1, name);
}

/*
 * Measures the work of a task that never sleeps. A busy host may stop the guest between the reads
 * of the clock and of accounting. If the host has stopped the guest, the work is measured again, up
 * to ten times.
 */
static struct differences measure_without_sleep(const char *name,
						void (*work)(struct differences *c))
{
	struct differences c = measure(name, work);

	for (int i = 0; i < 9 && !is_all_accounted(&c); i++)
		c = measure(name, work);
	return c;
}

/*
 * Returns the milliseconds that interrupts and other tasks used during the work. The work function
 * measures its user and system time with its own reads of the clock, so these times include the
 * time of interrupts and other tasks.
 */
static double time_of_others(const struct differences *c)
{
	return c->interrupts + c->runq;
}

/*
 * Returns the tolerance, in milliseconds, for stops of the guest by the host. A host with busy
 * loops (LOAD) stops the guest for milliseconds at a time. The host may stop the guest after the
 * work has read the clock and before the work enters its system call. The work counts such a stop
 * as system time, but accounting counts the stop as user time.
 */
static double host_stop_ms(void)
{
	return 20.0 * (scale_timeout(scale_down(600)) / 600 - 1);
}

/*
 * Returns the duration of the measurements themselves, without the measured work, in milliseconds.
 */
static double measurement_ms(const struct differences *c)
{
	return c->wall - c->self_user - c->self_system;
}

static void test_times(void)
{
	struct differences c = measure_without_sleep("computes", work_compute);

	test_all_accounted(&c, "4.2 computing: run, interrupt and ready time add up to all time");
	test_within(c.user, c.self_user * 0.99 - time_of_others(&c) - 1,
		    c.self_user + measurement_ms(&c) + 1,
		    "4.2 computing: user time is what the work measures itself");
	c = measure_without_sleep("reads /dev/zero", work_calls);
	test_all_accounted(&c,
			   "4.2 long system calls: run, interrupt and ready time add up to all time");
	test_within(c.system, c.self_system * 0.9 - time_of_others(&c) - 1,
		    c.self_system + measurement_ms(&c) + 1,
		    "4.2 long system calls: system time is what the work measures itself");
}

static __u64 without_overhead(const struct differences *c, int value)
{
	return c->values[value] - overhead.values[value];
}

/* Counts the switches for which the task had not blocked. */
static __u64 nr_switches_without_block(const struct differences *c)
{
	return c->values[PPA_RSCHEDCNT] + c->values[PPA_PRMPTCTXTCNT] + c->values[PPA_PRMPTPRICNT];
}

static void test_counts(void)
{
	struct differences c = measure_without_sleep("20,000 getppid()", work_short_calls);

	test_all_accounted(&c,
			   "4.2 short system calls: run, interrupt and ready time add up to all time");
	is(without_overhead(&c, PPA_SYSCALLCNT), CALLS,
	   "4.2 short system calls: each is counted, and no other");
	c = measure("50 naps of 2 ms", work_sleeps);
	is(without_overhead(&c, PPA_SYSCALLCNT), SLEEPS, "4.2 naps: each is one system call");
	/* The timer of a sleep may expire before the task has blocked. */
	ok(c.blocked >= SLEEPS / 2, "4.4 naps: at least half of them block");
	is(c.values[PPA_SCHEDOUTCNT], c.blocked, "4.4 naps: blocked as often as the kernel counts");
	is(c.latencies - overhead.latencies, without_overhead(&c, PPA_SCHEDOUTCNT),
	   "4.4 naps: one latency for each time it blocked");
	test_within(c.user + c.system + c.interrupts + c.runq + c.latency, 0,
		    c.wall - c.blocked * 2 * 0.8,
		    "4.1 naps: no time is counted while the task sleeps");
	c = measure("300 yields, no other task", work_yields);
	is(without_overhead(&c, PPA_SYSCALLCNT), YIELDS, "4.2 yields: each is one system call");
	/*
	 * The context switches in `overhead` are not subtracted from the context switches that were
	 * counted during the yields. If another task ran while `overhead` was measured, and no
	 * other task ran during the yields, the result of the subtraction would be too small.
	 */
	test_within(nr_switches_without_block(&c), YIELDS,
		    YIELDS + nr_switches_without_block(&overhead) + 60,
		    "4.4 yields: after each yield the task continues, or another task runs");
	signal(SIGUSR1, ignore_signal);
	c = measure("40 signals", work_signals);
	is(c.signals, SIGNALS, "4.4 signals: each is counted");
	is(without_overhead(&c, PPA_SYSCALLCNT), 2 * SIGNALS,
	   "4.2 signals: each is two system calls, sending and returning from the handler");
}

/* If timers are late, the times that the kernel counts by ticks mean little. */
static bool timers_are_punctual(void)
{
	return scale_down(1000) == 1000;
}

static void test_hides_from_ticks(void)
{
	struct differences c = measure("hides between ticks", work_between_ticks);
	double self, run_and_wait;
	const char *const missed = "4.1 hiding from ticks: /proc/stat has at most half of its time";

	/*
	 * The measured times are wrong if the host stops the guest between two reads of the clock,
	 * or if another task runs at a tick. The test repeats the measurement if the times are
	 * wrong, because the host rarely stops the guest, and other tasks rarely run at a tick.
	 */
	for (int i = 0; i < 9 && (c.user > c.self_user * 1.1 + 10 ||
				  (timers_are_punctual() && c.stat[0] + c.stat[1] >
				   (c.self_user + c.self_system) / 2)); i++)
		c = measure("hides between ticks", work_between_ticks);
	self = c.self_user + c.self_system;
	note("%u ticks found it at work, in %.0f ms of it", c.ticks_at_work, self);
	/* On a busy host the sleeps themselves take much time, which schedstat shows as well. */
	run_and_wait = c.schedstat[0] + c.schedstat[1];
	test_within(c.user + c.system + c.interrupts + c.runq, self * 0.98 - 2,
		    run_and_wait * 1.05 + c.interrupts + 8,
		    "4.1 hiding from ticks: all of its time is counted");
	test_within(c.user, c.self_user * 0.9 - time_of_others(&c) - 2, c.self_user * 1.1 + 10,
		    "4.1 hiding from ticks: user time is what the work measures itself");
	test_within(c.system, c.self_system * 0.85 - time_of_others(&c) - 2,
		    run_and_wait - c.self_user * 0.9 + 10,
		    "4.1 hiding from ticks: system time is what the work measures itself");
	/* On a machine whose timers are always late, the task does not avoid the ticks. */
	if (!timers_are_punctual() || c.ticks_at_work * 4 > self / 4)
		skip(missed, "timers are too late for a task to hide");
	else
		test_within(c.stat[0] + c.stat[1], 0, self / 2, missed);
	test_within(c.idle, 0, c.wall - c.user - c.system - c.interrupts + 5,
		    "4.9 hiding from ticks: its CPU is not idle while it works");
}

static void test_calls_at_ticks(void)
{
	struct differences c = measure_without_sleep("in a call at each tick", work_calls_at_ticks);
	const char *const too_much =
		"4.1 call at each tick: getrusage() has half as much system time again, or more";

	/*
	 * A late tick may find the task in user mode again. Late ticks in all of ten measurements
	 * are very unlikely.
	 */
	for (int i = 0; i < 9 && timers_are_punctual() && c.rusage[1] < c.self_system * 1.5; i++)
		c = measure_without_sleep("in a call at each tick", work_calls_at_ticks);
	test_all_accounted(&c,
			   "4.1 call at each tick: run, interrupt and ready time add up to all time");
	test_within(c.user, c.self_user * 0.95 - time_of_others(&c) - 2,
		    c.self_user * 1.05 + measurement_ms(&c) + 1 + host_stop_ms(),
		    "4.1 call at each tick: user time is what the work measures itself");
	test_within(c.system, c.self_system * 0.85 - time_of_others(&c) - 2 - host_stop_ms(),
		    c.self_system + measurement_ms(&c) + 1,
		    "4.1 call at each tick: system time is what the work measures itself");
	/*
	 * A round of the work takes one tick, and less than half of the round is in system calls.
	 * If a round takes more than 1.25 ticks on average, or if more than half of the time is in
	 * system calls, the host has stopped the CPU, and the test skips the comparison with
	 * getrusage().
	 */
	if (!timers_are_punctual() || c.wall > scale_down(150) * 4 * 1.25 ||
	    c.self_system > c.wall / 2)
		skip(too_much, "ticks are too late");
	else
		test_within(c.rusage[1], c.self_system * 1.5, c.wall * 2, too_much);
}

int main(void)
{
	plan(4 + 11 + 5 + 4 + 2);
	ppa_write("/proc/sys/kernel/modprobe", "\n");
	ppa_load();
	pid = getpid();
	zero = open("/dev/zero", O_RDONLY);
	bail_if(zero < 0, "/dev/zero");
	prctl(PR_SET_TIMERSLACK, 1);
	pin_to_cpu(CPU);
	is(ppa_write(SETTINGS, "1 1 0 1"), 0, "4.8 settings: accounting is turned on");
	note("%-22s %13s |%26s |%14s |%12s |%17s", "ms", "it was", "PPA", "getrusage",
	     "schedstat", "/proc/stat, CPU");
	note("%-22s %6s %6s |%6s %6s %5s %6s |%6s %6s |%6s %5s |%5s %5s %5s", "", "user", "sys",
	     "user", "sys", "int", "idle", "user", "sys", "run", "wait", "user", "sys", "idle");
	/*
	 * Measure work that does nothing, to find the counts that the measurement itself adds. The
	 * first result is discarded, because the first measurement touches new pages.
	 */
	measure("nothing", work_nothing);
	overhead = measure("nothing", work_nothing);
	test_times();
	test_counts();
	test_hides_from_ticks();
	test_calls_at_ticks();
	close(dev);
	is(ppa_write(SETTINGS, "0 0 0 1"), 0, "4.8 settings: accounting is turned off");
	unload_modules();
	return finish();
}
