/* SPDX-License-Identifier: GPL-2.0 */
/* C functions that stats_files.rs uses. */
#ifndef _PERFCOUNTERS_HELPERS_COSTS_H
#define _PERFCOUNTERS_HELPERS_COSTS_H

#include <linux/types.h>

struct dentry;

/**
 * struct pfc_cost_file - a file of debugfs perfmon/cpuN
 * @name: name of the file
 * @first: number of the cost that the file shows
 * @second: number of the cost that is added to cost @first; equal to @first to show one cost
 */
struct pfc_cost_file {
	const char *name;
	u16 first;
	u16 second;
};

void pfc_costs_show(unsigned int cpu, const struct pfc_cost_file *files, unsigned int nr,
		    s64 __percpu *const *costs);

/* Defined in pmu.c. */
struct dentry *pfm_tree_subdir(const char *name);

#endif
