// SPDX-License-Identifier: GPL-2.0
/*
 * timeout: 600
 *
 * Tests nested updates: 64 tasks, timer interrupts, NMIs and a kprobe update counters on every CPU
 * at the same time. The timer interrupts, the NMIs and the kprobe also update counters in the
 * middle of a group of updates by another source (tests/modules/test_driver_nesting.c). Readers
 * take consistent snapshots at the same time.
 *
 * All updates go through the seqflag and add 1. Each of the four sources of updates (tasks, timer
 * interrupts, NMIs, kprobe) has a counter `single` and a pair of counters (a, b). A source of
 * updates first adds 1 to its counter `single`. Then, in one group of updates, the source adds 1 to
 * both counters of its pair and to the counter COMMON, which all sources share. In each consistent
 * snapshot of the counters of a CPU, the following equations must hold:
 *
 *	a == b for the pair (a, b) of each source,
 *	COMMON == sum of the counters `a` of all sources, and
 *	completed updates == sum of the counters `single` and `a` of all sources.
 *
 * The test runs until each event has happened often enough, so it cannot pass without these events.
 * The test fails after TIMEOUT seconds. On a slow kernel, the test requires fewer events.
 *
 * An emulated CPU takes NMIs only between blocks of instructions, which end at jumps. On an
 * emulated CPU, an NMI can interrupt an update of several instructions only if the update contains
 * a jump.
 */
#include "kselftest_pc.h"
#include <pthread.h>
#include <sys/resource.h>

#define TASKS		64
#define READERS		2
#define PERIOD_US	700
#define ROUNDS		50	/* rounds of updates that a task makes by one command */
#define TIMEOUT		480	/* seconds */

/* BY_TASK to BY_KPROBE are arguments of driver_count(), as in test_driver_nesting.c. */
enum { BY_TASK, BY_TIMER, BY_NMI, BY_KPROBE, NR_SOURCES };
#define NMI_DEPTHS	NR_SOURCES
#define NR_DEPTHS	4
#define KPROBES_IN_NMI	(NMI_DEPTHS + NR_DEPTHS)
#define KPROBES_MISSED	(KPROBES_IN_NMI + 1)
static const char *const source_names[NR_SOURCES] = { "tasks", "timers", "NMIs", "kprobes" };

/* Minimum numbers of events. A slow kernel needs only a twentieth of them. */
static unsigned int divisor = 1;
/* NMIs that find an update in flight on their CPU */
#define MIN_NMIS_IN_GROUP	(100000 / divisor)
/* NMIs that find at least two updates in flight, such as a timer's inside a task's. */
#define MIN_NMIS_IN_TWO		(1000 / divisor)
#define MIN_KPROBES_IN_NMI	(100000 / divisor)	/* kprobes within an NMI's group */
#define MIN_TICKS		(5000 / divisor)
#define MIN_SNAPSHOTS		(1000000 / divisor)

#define COMMON		(3 * NR_SOURCES)
#define NR_SLOTS	(COMMON + 1)

static __u32 first;
static __u64 completed_before[64];
static volatile int stop;

struct count {
	__u64 snapshots, wrong, rejected, rejected_wrong, rounds;
} __attribute__((aligned(64)));

static void *update_in_task(void *arg)
{
	struct count *c = arg;

	/*
	 * At nice level 19, the 64 tasks together have about the scheduling weight of one reader.
	 */
	setpriority(PRIO_PROCESS, syscall(SYS_gettid), 19);
	while (!stop) {
		bail_if(driver_cmd("nesting_update %d", ROUNDS), "nesting_update");
		c->rounds += ROUNDS;
	}
	driver_close();
	return NULL;
}

/* Returns how many invariants a copy of a CPU's counters violates. */
static int broken_invariants(__u32 cpu, __u64 seq, const __s64 *v)
{
	__u64 single = 0, a = 0;
	int wrong = 0;

	for (int source = 0; source < NR_SOURCES; source++) {
		single += v[3 * source];
		a += v[3 * source + 1];
		wrong += v[3 * source + 1] != v[3 * source + 2];
	}
	wrong += (__u64)v[COMMON] != a;
	return wrong + ((seq >> PERFCOUNTERS_SEQ_SHIFT) - completed_before[cpu] != single + a);
}

static void *read_snapshots(void *arg)
{
	struct count *c = arg;
	__s64 v[NR_SLOTS];

	for (__u32 i = 0; !stop; i++) {
		__u32 cpu = i % 2;
		__u64 before = pc_seq(&pc, cpu);
		bool good;

		for (int n = 0; n < NR_SLOTS; n++)
			v[n] = pc_value(&pc, cpu, first + n);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		good = !(before & PERFCOUNTERS_SEQ_BUSY) && pc_seq(&pc, cpu) == before;
		if (good) {
			c->wrong += broken_invariants(cpu, before, v);
			__atomic_store_n(&c->snapshots, c->snapshots + 1, __ATOMIC_RELAXED);
		} else {
			c->rejected++;
			if (broken_invariants(cpu, before, v))
				__atomic_store_n(&c->rejected_wrong, c->rejected_wrong + 1,
						 __ATOMIC_RELAXED);
		}
	}
	return NULL;
}

static __u64 driver_count(int what)
{
	return driver_cmd("nesting_count %d", what);
}

static __u64 nmis_in_group(void)
{
	return driver_count(NMI_DEPTHS + 1) + driver_count(NMI_DEPTHS + 2) +
		driver_count(NMI_DEPTHS + 3);
}

static __u64 nmis_in_two(void)
{
	return driver_count(NMI_DEPTHS + 2) + driver_count(NMI_DEPTHS + 3);
}

static bool enough(const struct count *readers)
{
	__u64 snapshots = 0, torn = 0;

	for (int i = 0; i < READERS; i++) {
		snapshots += __atomic_load_n(&readers[i].snapshots, __ATOMIC_RELAXED);
		torn += __atomic_load_n(&readers[i].rejected_wrong, __ATOMIC_RELAXED);
	}
	return nmis_in_group() >= MIN_NMIS_IN_GROUP && nmis_in_two() >= MIN_NMIS_IN_TWO &&
	       driver_count(KPROBES_IN_NMI) >= MIN_KPROBES_IN_NMI &&
	       driver_count(BY_TIMER) >= MIN_TICKS &&
	       snapshots >= MIN_SNAPSHOTS && torn;
}

int main(void)
{
	static pthread_t thread[TASKS + READERS];
	static struct count count[TASKS + READERS];
	__u64 rounds = 0, completed = 0, sum = 0;
	struct count total = { 0 };
	__u64 begin;

	plan(13);
	if (strcmp(getenv("SLOWNESS") ?: "1", "1"))
		divisor = 20;
	load_and_map("");
	first = driver_cmd("add nesting/0");
	for (int i = 1; i < NR_SLOTS; i++)
		driver_cmd("add nesting/%d", i);
	for (__u32 cpu = 0; cpu < pc.geometry.nr_cpus; cpu++)
		completed_before[cpu] = pc_seq(&pc, cpu) >> PERFCOUNTERS_SEQ_SHIFT;
	bail_on_error(driver_cmd("nesting_start %u %d", first, PERIOD_US), "nesting_start");
	/* When the table of files grows beside threads, the kernel waits for all CPUs. */
	bail_if(close(fcntl(pc.fd, F_DUPFD_CLOEXEC, 4 * TASKS)), "fcntl");
	for (int i = 0; i < TASKS + READERS; i++)
		pthread_create(&thread[i], NULL, i < TASKS ? update_in_task : read_snapshots,
			       &count[i]);

	begin = now_ns();
	do {
		sleep_ms(200);
	} while (!enough(&count[TASKS]) &&
		 now_ns() - begin < scale_timeout(TIMEOUT) * 1000000000ULL);
	stop = 1;
	for (int i = 0; i < TASKS + READERS; i++) {
		pthread_join(thread[i], NULL);
		rounds += count[i].rounds;
		total.snapshots += count[i].snapshots;
		total.wrong += count[i].wrong;
		total.rejected += count[i].rejected;
		total.rejected_wrong += count[i].rejected_wrong;
	}
	is(driver_cmd("nesting_stop"), 0, "0.12 nested updates: stopped in the end");

	note("%lld s; updates, two at a time: %llu by tasks, %llu by timers, %llu by NMIs, %llu by kprobes (%llu not run)",
	     (long long)(now_ns() - begin) / 1000000000, (unsigned long long)driver_count(BY_TASK),
	     (unsigned long long)driver_count(BY_TIMER), (unsigned long long)driver_count(BY_NMI),
	     (unsigned long long)driver_count(BY_KPROBE),
	     (unsigned long long)driver_count(KPROBES_MISSED));
	note("NMIs found begun updates: none %llu, one %llu, two %llu, more %llu; %llu kprobes in an NMI",
	     (unsigned long long)driver_count(NMI_DEPTHS),
	     (unsigned long long)driver_count(NMI_DEPTHS + 1),
	     (unsigned long long)driver_count(NMI_DEPTHS + 2),
	     (unsigned long long)driver_count(NMI_DEPTHS + 3),
	     (unsigned long long)driver_count(KPROBES_IN_NMI));
	note("%llu snapshots; %llu copies rejected, %llu of them inconsistent",
	     (unsigned long long)total.snapshots, (unsigned long long)total.rejected,
	     (unsigned long long)total.rejected_wrong);

	ok(nmis_in_group() >= MIN_NMIS_IN_GROUP, "0.12 nested updates: NMIs interrupt updates");
	ok(nmis_in_two() >= MIN_NMIS_IN_TWO,
	   "0.12 nested updates: NMIs interrupt two updates, one nested in the other");
	ok(driver_count(KPROBES_IN_NMI) >= MIN_KPROBES_IN_NMI &&
	   driver_count(BY_TIMER) >= MIN_TICKS,
	   "0.12 nested updates: kprobes within NMIs, and timer interrupts");
	ok(total.snapshots >= MIN_SNAPSHOTS, "0.9 readers: enough snapshots are consistent");
	ok(total.rejected_wrong, "0.9 readers: inconsistent copies are rejected");
	is(rounds, driver_count(BY_TASK), "0.12 nested updates: each round of a task is counted");
	for (int source = 0; source < NR_SOURCES; source++) {
		__s64 want = driver_count(source), single = pc_total(&pc, first + 3 * source);
		__s64 a = pc_total(&pc, first + 3 * source + 1);
		__s64 b = pc_total(&pc, first + 3 * source + 2);

		sum += 2 * want;
		if (!ok(want && single == want && a == want && b == want,
			"0.12 nested updates: the totals by %s are exact", source_names[source]))
			note("want %lld, got %lld, %lld, %lld", (long long)want, (long long)single,
			     (long long)a, (long long)b);
	}
	is(pc_total(&pc, first + COMMON), sum / 2,
	   "0.12 nested updates: the total of all kinds is exact");
	for (__u32 cpu = 0; cpu < pc.geometry.nr_cpus; cpu++)
		completed += (pc_seq(&pc, cpu) >> PERFCOUNTERS_SEQ_SHIFT) - completed_before[cpu];
	ok(completed == sum && !total.wrong,
	   "0.8 seqflags: count every update once, and no snapshot is inconsistent");
	if (completed != sum || total.wrong)
		note("%llu completed of %llu, %llu broken invariants",
		     (unsigned long long)completed, (unsigned long long)sum,
		     (unsigned long long)total.wrong);
	return finish();
}
