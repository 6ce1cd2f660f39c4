/* SPDX-License-Identifier: GPL-2.0 */
/* Counting in event sets: the parts that tests of event sets share. */
#ifndef SETS_COUNTING_H
#define SETS_COUNTING_H

#include "sampling.h"
#include "sets.h"

#define MS	1000000ULL

static const struct pmu_model *model;
static int slow = 1;

/* Counts instructions in set @set, on counter 0 for even sets and on counter 1 for odd sets. */
static void count_in(int fd, __u16 set)
{
	bail_if(set_pmc(fd, set, set % 2, pfm_instructions(model)) ||
		set_pmd(fd, set, set % 2, 0, 0), "registers of a set");
}

static __u64 counted_in(int fd, __u16 set)
{
	return set_value(fd, set, set % 2);
}

/*
 * Executes 2 * rounds instructions between start and stop. With noinline, the number of
 * instructions that are counted in pfm_start() and pfm_stop() is the same for all callers (see
 * run_overhead()).
 */
static __attribute__((noinline)) void run(int fd, __u64 rounds)
{
	pfm_start(fd);
	spin(rounds);
	pfm_stop(fd);
}

#endif
