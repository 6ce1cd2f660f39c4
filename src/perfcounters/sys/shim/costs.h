/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions and variables that sys/costs.rs uses. sys/shim.rs declares the same functions and
 * variables for Rust.
 */
#ifndef _PERFCOUNTERS_SHIM_COSTS_H
#define _PERFCOUNTERS_SHIM_COSTS_H

#include <linux/types.h>

struct dentry;

/*
 * Number of costs; equal to NR_STATS in src/perfcounters/costs.rs. PFC_COSTS is at most 256,
 * because costs.c stores the number of a cost in a byte.
 */
#define PFC_COSTS 26

/**
 * struct pfc_cost_file - a file of debugfs perfmon/cpuN
 * @name: name of the file
 * @first: the cost that the file shows
 * @second: the cost that is added to @first, or @first if the file shows one cost
 */
struct pfc_cost_file {
	const char *name;
	u16 first;
	u16 second;
};

/* The address of the per-CPU counter of each cost. */
extern s64 __percpu *pfc_costs[PFC_COSTS];
/* Number of nanoseconds per 2^24 ticks of the time stamp counter. */
extern u32 pfc_costs_scale;

void pfc_costs_init(void);
void pfc_costs_show(unsigned int cpu, const struct pfc_cost_file *files, unsigned int nr);

/* Defined in pmu.c. */
struct dentry *pfm_tree_subdir(const char *name);

#endif
