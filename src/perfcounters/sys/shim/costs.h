/* SPDX-License-Identifier: GPL-2.0 */
/* What sys/costs.rs calls in C; sys/shim.rs declares it, too. */
#ifndef _PERFCOUNTERS_SHIM_COSTS_H
#define _PERFCOUNTERS_SHIM_COSTS_H

#include <linux/types.h>

struct dentry;

/* As many as costs.rs has; at most 256. */
#define PFC_COSTS 26

/**
 * struct pfc_cost_file - a file of perfmon/cpuN
 * @name: its name
 * @first: the cost that it shows
 * @second: the one that is added, if it is another
 */
struct pfc_cost_file {
	const char *name;
	u16 first;
	u16 second;
};

/* Each cost's value on each CPU. */
extern s64 __percpu *pfc_costs[PFC_COSTS];
/* Nanoseconds of 2^24 ticks of the time stamp counter. */
extern u32 pfc_costs_scale;

void pfc_costs_init(void);
void pfc_costs_show(unsigned int cpu, const struct pfc_cost_file *files, unsigned int nr);

/* pmu.c's. */
struct dentry *pfm_tree_branch(const char *name);

#endif
