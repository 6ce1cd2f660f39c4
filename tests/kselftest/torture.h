/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the roles of torture.c share: what happened, how often, what was wrong,
 * and what each counter must read in the end.
 */
#ifndef TORTURE_H
#define TORTURE_H

#include "memory.h"

/* What happens. */
enum event {
	CPU_CYCLES,
	CHUNKS,
	LOADS,
	FORKS,
	KILLS,
	ADDS,
	DELS,
	REFUSED,
	ADJUSTS,
	STALE,
	FIXED,
	RENEWED,
	RENEWALS,
	OLD,
	NAMES,
	POLLS,
	REJECTED,
	REJECTED_WRONG,
	ABUSES,
	ABUSES_REFUSED,
	RMMODS,
	PFC,
	NR_EVENTS
};

/* How much of it at least makes the test worth its name. */
static const struct {
	unsigned int least;
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
	[ADJUSTS] = { 2000, "commands that count, from 7 contexts" },
	[STALE] = { 500, "updates of a dormant instance" },
	[FIXED] = { 2000, "snapshots through a mapping never renewed" },
	[RENEWED] = { 1000, "snapshots through mappings always renewed" },
	[RENEWALS] = { 20, "mappings renewed" },
	[OLD] = { 2000, "snapshots through a mapping of chunk 0" },
	[NAMES] = { 20, "names files read in pieces" },
	[POLLS] = { 20, "polls of the names file" },
	[REJECTED] = { 1000, "copies rejected by the flag" },
	[REJECTED_WRONG] = { 20, "of them inconsistent" },
	[ABUSES] = { 1000, "mapping calls that should be harmless" },
	[ABUSES_REFUSED] = { 200, "mapping calls refused" },
	[RMMODS] = { 100, "attempts to unload perfcounters.ko" },
	[PFC] = { 4, "runs of pfc" },
};

/* What may never happen. */
enum wrong {
	WRONG_SNAPSHOT,		/* a != b in a copy that the flag calls whole */
	WRONG_BACKWARDS,	/* a counter or a seqflag went down */
	WRONG_DESC,		/* a live instance's descriptor is another's */
	WRONG_HOTPLUG,		/* refused, or the header's bitmap says otherwise */
	WRONG_LIFE,		/* a new life that does not begin at zero */
	WRONG_NUMBER,		/* a name with another number than before */
	WRONG_OWNER,		/* what one owner counted is not what is there */
	WRONG_DRIVER,		/* a driver does not load, unload, add up */
	WRONG_CHILD,		/* a child died of something else than us */
	WRONG_NAMES,		/* text that is cut, mixed or out of order */
	WRONG_ABUSE,		/* a mapping call with a result it must not have */
	WRONG_RMMOD,		/* perfcounters.ko unloaded, or another errno */
	WRONG_PFC,		/* pfc failed */
	NR_WRONG
};

#define MAX_CHUNKS 24
#define PAIRS	(MAX_CHUNKS + 1)	/* one in each chunk */
#define WORKERS	3
#define ADDERS	2
#define POOL	24	/* names that the adders fight over */

static struct shared {
	volatile int stop;
	bool in_haste;
	__u64 count[NR_EVENTS], wrong[NR_WRONG];
	/* Pairs (a, b) that only groups touch; published by nr_pairs. */
	__u32 pair[PAIRS], nr_pairs;
	__u64 pair_count[WORKERS][PAIRS];
	/* Only counted on CPU 0, only on CPU 1, by everybody, by nobody. */
	__u32 on_cpu0, on_cpu1, by_all, dead;
	__s64 sum_cpu0, sum_cpu1, sum_all[WORKERS + ADDERS];
	__u32 number[POOL];
} *s;

/* The parent's mapping, never renewed; children inherit it. */
static struct pc pc;
static __u32 seed;

static void happened(enum event e)
{
	__atomic_fetch_add(&s->count[e], 1, __ATOMIC_RELAXED);
}

__attribute__((format(printf, 3, 4)))
static void expect(bool good, enum wrong w, const char *fmt, ...)
{
	va_list ap;

	if (good)
		return;
	/* The first few are worth a line each. */
	if (__atomic_fetch_add(&s->wrong[w], 1, __ATOMIC_RELAXED) < 5) {
		char line[200];

		va_start(ap, fmt);
		vsnprintf(line, sizeof(line), fmt, ap);
		va_end(ap);
		note("%s", line);
	}
}

static __u32 random_below(__u32 n)
{
	/* xorshift; each process has its own, from the printed seed and its role. */
	seed ^= seed << 13;
	seed ^= seed >> 17;
	seed ^= seed << 5;
	return seed % n;
}

static __u32 pairs_now(void)
{
	return __atomic_load_n(&s->nr_pairs, __ATOMIC_ACQUIRE);
}

#endif
