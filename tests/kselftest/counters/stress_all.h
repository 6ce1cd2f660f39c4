/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Definitions for the roles of stress_all.c: counts of events and of errors, and the value that
 * each counter must have at the end.
 */
#ifndef STRESS_ALL_H
#define STRESS_ALL_H

#include "memory.h"

enum event {
	CPU_CYCLES,
	CHUNKS,
	LOADS,
	FORKS,
	KILLS,
	ADDS,
	DELS,
	REFUSED,
	UPDATES,
	STALE_UPDATES,
	FIXED_SNAPSHOTS,
	RENEWED_SNAPSHOTS,
	MAPPINGS_RENEWED,
	OLD_SNAPSHOTS,
	NAMES_READ,
	NAMES_POLLED,
	REJECTED,
	REJECTED_WRONG,
	MMAP_CALLS,
	MMAP_CALLS_REFUSED,
	RMMODS,
	PFC_RUNS,
	NR_EVENTS
};

/* Minimum number of times that each event must happen for the test to mean something. */
static const struct {
	unsigned int min;
	const char *what;
} events[NR_EVENTS] = {
	[CPU_CYCLES] = { 8, "CPU 1 went offline and came back" },
	[CHUNKS] = { 20, "chunks appended" },
	[LOADS] = { 8, "drivers loaded and unloaded" },
	[FORKS] = { 60, "children with mappings forked" },
	[KILLS] = { 10, "of them killed in the middle" },
	[ADDS] = { 500, "instances added or revived" },
	[DELS] = { 500, "instances deleted" },
	[REFUSED] = { 5, "adds of a live name refused" },
	[UPDATES] = { 2000, "commands that count, from 7 contexts" },
	[STALE_UPDATES] = { 500, "updates of a dormant instance" },
	[FIXED_SNAPSHOTS] = { 2000, "snapshots through a mapping never renewed" },
	[RENEWED_SNAPSHOTS] = { 1000, "snapshots through mappings always renewed" },
	[MAPPINGS_RENEWED] = { 20, "mappings renewed" },
	[OLD_SNAPSHOTS] = { 2000, "snapshots through a mapping of chunk 0" },
	[NAMES_READ] = { 20, "names files read in pieces" },
	[NAMES_POLLED] = { 20, "polls of the names file" },
	[REJECTED] = { 1000, "copies rejected by the flag" },
	[REJECTED_WRONG] = { 20, "of them inconsistent" },
	[MMAP_CALLS] = { 1000, "mapping calls that should be harmless" },
	[MMAP_CALLS_REFUSED] = { 200, "mapping calls refused" },
	[RMMODS] = { 100, "attempts to unload perfcounters.ko" },
	[PFC_RUNS] = { 4, "runs of pfc" },
};

enum wrong {
	WRONG_SNAPSHOT,		/* a != b in a copy that the seqflag calls consistent */
	WRONG_BACKWARDS,	/* a counter or a seqflag went down */
	WRONG_DESC,		/* the descriptor of a live instance is that of another instance */
	/*
	 * CPU 1 does not go offline or online, the bitmap of online CPUs is wrong, or CPU 1 has a
	 * wrong value or an update in flight while it is offline
	 */
	WRONG_HOTPLUG,
	WRONG_FIRST_VALUE,	/* an instance that was added does not begin at zero */
	WRONG_NUMBER,		/* a name gets another number than before */
	WRONG_OWNER,		/* an instance has another value than its owner counted */
	/* a driver does not load or unload, or its counters do not add up */
	WRONG_DRIVER,
	WRONG_CHILD,		/* a child does not end as expected */
	WRONG_NAMES,		/* the names file has cut, mixed or unordered lines */
	WRONG_MMAP,		/* a mapping call returns a result that it must not return */
	/* rmmod unloads perfcounters.ko while it is in use, or returns an unexpected errno */
	WRONG_RMMOD,
	WRONG_PFC,		/* pfc fails */
	NR_WRONG
};

#define MAX_CHUNKS 24
#define MAX_PAIRS	(MAX_CHUNKS + 1)	/* one pair in each chunk */
#define NR_WORKERS	3
#define NR_ADDERS	2
#define NR_POOL_NAMES	24	/* instance names that all adders share */

static struct shared {
	volatile int stop;
	bool is_slow;
	__u64 count[NR_EVENTS], wrong[NR_WRONG];
	/* Pairs (a, b), updated in one group. A store to nr_pairs publishes a new pair. */
	__u32 pair[MAX_PAIRS], nr_pairs;
	__u64 pair_count[NR_WORKERS][MAX_PAIRS];
	/*
	 * Instance numbers of four counters. `on_cpu0` is updated on CPU 0 only, `on_cpu1` is
	 * updated on CPU 1 only, several roles update `by_all`, and `dormant` is a deleted
	 * instance.
	 */
	__u32 on_cpu0, on_cpu1, by_all, dormant;
	__s64 sum_cpu0, sum_cpu1, sum_of_all[NR_WORKERS + NR_ADDERS];
	__u32 number[NR_POOL_NAMES];
} *shared;

static __u32 seed;

static void count_event(enum event e)
{
	__atomic_fetch_add(&shared->count[e], 1, __ATOMIC_RELAXED);
}

__attribute__((format(printf, 3, 4)))
static void expect(bool good, enum wrong w, const char *fmt, ...)
{
	va_list ap;

	if (good)
		return;
	/* Only the first five errors of a kind are printed. */
	if (__atomic_fetch_add(&shared->wrong[w], 1, __ATOMIC_RELAXED) < 5) {
		char line[200];

		va_start(ap, fmt);
		vsnprintf(line, sizeof(line), fmt, ap);
		va_end(ap);
		note("%s", line);
	}
}

static __u32 random_below(__u32 n)
{
	/* The seed of each process is derived from the printed seed and its role. */
	seed ^= seed << 13;
	seed ^= seed >> 17;
	seed ^= seed << 5;
	return seed % n;
}

static __u32 read_nr_pairs(void)
{
	return __atomic_load_n(&shared->nr_pairs, __ATOMIC_ACQUIRE);
}

#endif
