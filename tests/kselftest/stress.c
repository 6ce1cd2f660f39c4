// SPDX-License-Identifier: GPL-2.0
/*
 * timeout: 300
 *
 * 64 threads and the timer interrupts of all CPUs count in 1,000 instances
 * while readers take consistent snapshots and instances are added and deleted.
 *
 * All counting goes through the seqflag, by ones: single updates of ALONE
 * instances, and groups of a pair (a, b). So in a consistent snapshot of a CPU
 *
 *	a == b for each pair, and
 *	completed updates == sum of all alone instances + sum of all a.
 *
 * Each comparison is a check. Copies that the protocol rejects are compared,
 * too, to show that there is something to reject.
 */
#include "kselftest_pc.h"
#include <pthread.h>
#include <sys/resource.h>

#define THREADS		64
#define READERS		4
#define ALONE		500
#define PAIRS		250
#define SECONDS		12
#define ROUNDS		20	/* of a thread, over all instances, in one command */

static struct pc pc;
/* The first of ALONE, then PAIRS times a and b, then the storm's three. */
static __u32 first;
static __u64 completed_before[64];
static volatile int stop;

struct count {
	__u64 snapshots, checks, rejected, rejected_wrong, wrong, updates;
} __attribute__((aligned(64)));

static void *worker(void *arg)
{
	struct count *c = arg;

	setpriority(PRIO_PROCESS, syscall(SYS_gettid), 10);
	while (!stop) {
		puppet("loop %u %d %d 1", first, ALONE, ROUNDS);
		for (int i = 0; i < PAIRS; i++)
			puppet("group %u %u 1 %d", first + ALONE + 2 * i, first + ALONE + 2 * i + 1,
			       ROUNDS);
		c->updates++;
	}
	puppet_leave();
	return NULL;
}

/* All of a CPU's counters against each other: number of broken invariants. */
static __u64 compare(__u32 cpu, __u64 seq, const __s64 *v)
{
	__u64 sum = 0, wrong = 0;
	int i;

	for (i = 0; i < ALONE; i++)
		sum += v[i];
	for (; i < ALONE + 2 * PAIRS; i += 2) {
		sum += v[i];
		wrong += v[i] != v[i + 1];
	}
	sum += v[i] + v[i + 1];
	wrong += v[i + 1] != v[i + 2];
	return wrong + ((seq >> PERFCOUNTERS_SEQ_SHIFT) - completed_before[cpu] != sum);
}

#define SLOTS	(ALONE + 2 * PAIRS + 3)

/* One try at a snapshot of one CPU, with all that can be checked in it. */
static void full_snapshot(struct count *c, __u32 cpu)
{
	static __thread __s64 v[SLOTS];
	__u64 before = pc_seq(&pc, cpu);
	bool good;

	for (int i = 0; i < SLOTS; i++)
		v[i] = pc_value(&pc, cpu, first + i);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	good = !(before & PERFCOUNTERS_SEQ_BUSY) && pc_seq(&pc, cpu) == before;
	if (good) {
		c->snapshots++;
		c->checks += PAIRS + 2;
		c->wrong += compare(cpu, before, v);
	} else {
		c->rejected++;
		c->rejected_wrong += compare(cpu, before, v) != 0;
	}
}

/* A small one, of one pair: it gets through while the CPU counts. */
static void pair_snapshot(struct count *c, __u32 cpu, __u32 a)
{
	__u64 before = pc_seq(&pc, cpu);
	__s64 va = pc_value(&pc, cpu, a), vb = pc_value(&pc, cpu, a + 1);

	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (!(before & PERFCOUNTERS_SEQ_BUSY) && pc_seq(&pc, cpu) == before) {
		c->snapshots++;
		c->checks++;
		c->wrong += va != vb;
	} else {
		c->rejected++;
		c->rejected_wrong += va != vb;
	}
}

static void *reader(void *arg)
{
	struct count *c = arg;

	for (__u32 i = 0; !stop; i++) {
		__u32 cpu = i % 2;

		full_snapshot(c, cpu);
		for (__u32 pair = 0; pair < PAIRS; pair += 5)
			pair_snapshot(c, cpu, first + ALONE + 2 * pair);
		/* Whom it has interrupted in the kernel must go on. */
		usleep(200);
	}
	return NULL;
}

/* Instances come, some go and come back; what is new is whole and zero. */
static void *grower(void *arg)
{
	struct count *c = arg;
	__u32 toggled = puppet("add stress/toggled");

	for (__u32 i = 0; !stop; i++) {
		__u32 n = puppet("add stress/new/%u", i);

		c->wrong += pc.desc[n].instance != n || pc_total(&pc, n) ||
			    pc.desc[n].state != PERFCOUNTERS_LIVE;
		puppet("del %u", toggled);
		c->wrong += puppet("add stress/toggled") != toggled;
		c->updates++;
		sleep_ms(5);
	}
	puppet_leave();
	return NULL;
}

static __u64 total(__u32 slot)
{
	return pc_total(&pc, first + slot);
}

/* Among so many threads, on a busy host, one gets little. */
static bool enough(const volatile struct count *count)
{
	__u64 checks = 0, rejected = 0;

	for (int i = 0; i < THREADS; i++)
		if (!count[i].updates)
			return false;
	for (int i = THREADS; i < THREADS + READERS; i++) {
		checks += count[i].checks;
		rejected += count[i].rejected_wrong;
	}
	return checks >= 100000 && rejected && total(SLOTS - 1) > 100 &&
	       count[THREADS + READERS].updates > at_least(50);
}

int main(void)
{
	static pthread_t thread[THREADS + READERS + 1];
	static struct count count[THREADS + READERS + 1];
	volatile struct count *growing = &count[THREADS + READERS];
	struct count sum = { 0 };
	__u64 rounds = 0, want, off = 0, completed = 0, lost;
	long long ticks;
	int i;

	plan(8);
	load("");
	pc_open(&pc);
	first = puppet("add stress/0");
	for (i = 1; i < SLOTS; i++)
		puppet("add stress/%d", i);
	for (__u32 cpu = 0; cpu < pc.geometry.nr_cpus; cpu++)
		completed_before[cpu] = pc_seq(&pc, cpu) >> PERFCOUNTERS_SEQ_SHIFT;

	if (puppet("storm %u %u %u 500", first + SLOTS - 3, first + SLOTS - 2, first + SLOTS - 1))
		bail("storm");
	/* Room for all files: while threads run, the kernel waits for all CPUs to make more. */
	if (close(fcntl(pc.fd, F_DUPFD_CLOEXEC, 4 * THREADS)))
		bail("fcntl");
	for (i = 0; i < THREADS + READERS + 1; i++)
		pthread_create(&thread[i], NULL, i < THREADS ? worker : i < THREADS + READERS ?
			       reader : grower,
			       &count[i]);
	sleep_ms(bounded(SECONDS) * 1000);
	for (i = 0; i < 10 * patience(120) && !enough(count); i++)
		sleep_ms(100);
	stop = 1;
	for (i = 0; i < THREADS + READERS + 1; i++)
		pthread_join(thread[i], NULL);
	ticks = puppet("calm");

	for (i = 0; i < THREADS + READERS + 1; i++) {
		rounds += i < THREADS ? count[i].updates : 0;
		sum.snapshots += count[i].snapshots;
		sum.checks += count[i].checks;
		sum.rejected += count[i].rejected;
		sum.rejected_wrong += count[i].rejected_wrong;
		sum.wrong += count[i].wrong;
	}
	note("%llu updates by tasks, %lld interrupts with 2 each, %llu instances added",
	     (unsigned long long)rounds * ROUNDS * (ALONE + PAIRS), ticks,
	     (unsigned long long)growing->updates);
	note("%llu snapshots with %llu checks; %llu copies rejected, %llu of them inconsistent",
	     (unsigned long long)sum.snapshots, (unsigned long long)sum.checks,
	     (unsigned long long)sum.rejected, (unsigned long long)sum.rejected_wrong);

	want = rounds * ROUNDS;
	for (i = 0; i < SLOTS - 3; i++)
		off += total(i) != want;
	is(off, 0, "0.12 64 threads: each of 1,000 totals is exact");
	ok(total(SLOTS - 3) == (__u64)ticks && total(SLOTS - 2) == (__u64)ticks &&
	   total(SLOTS - 1) == (__u64)ticks, "0.12 interrupts: their totals are exact, too");
	for (__u32 cpu = 0; cpu < pc.geometry.nr_cpus; cpu++)
		completed += (pc_seq(&pc, cpu) >> PERFCOUNTERS_SEQ_SHIFT) - completed_before[cpu];
	lost = completed - rounds * ROUNDS * (ALONE + PAIRS) - 2 * ticks;
	is(lost, 0, "0.8 the seqflags counted every update, once");
	is(sum.wrong, 0, "0.9 no inconsistent snapshot in %llu checks",
	   (unsigned long long)sum.checks);
	ok(sum.checks >= 100000, "0.9 readers got through");
	ok(sum.rejected_wrong > 0, "0.9 and there was something to reject");
	ok(rounds >= THREADS && ticks > 100, "0.12 every thread counted, and interrupts did");
	ok(growing->updates > at_least(50), "0.14 instances were added all the while");
	return finish();
}
