// SPDX-License-Identifier: GPL-2.0
/*
 * The module's own overhead: the per-CPU counters (costs), and their files in debugfs
 * (perfmon/cpuN).
 */
#include <linux/cpumask.h>
#include <linux/debugfs.h>
#include <linux/percpu.h>
#include <linux/time64.h>
#include <asm/tsc.h>
#include "costs.h"

s64 __percpu *pfc_costs[PFC_COSTS];
u32 pfc_costs_scale;

/*
 * Computes pfc_costs_scale. If the rate of the time stamp counter is unknown, or the scale does not
 * fit in 32 bits, the scale is 0 and all times stay 0.
 */
void pfc_costs_init(void)
{
	u64 scale = tsc_khz ? ((u64)NSEC_PER_MSEC << 24) / tsc_khz : 0;

	pfc_costs_scale = scale <= U32_MAX ? scale : 0;
}

/*
 * The inode's private data holds the CPU in bits 16 and up, and the numbers of two costs in one
 * byte each. The file shows the sum of the two costs, or one cost if both numbers are the same.
 */
static int cost_get(void *data, u64 *value)
{
	unsigned long which = (unsigned long)data;
	unsigned int cpu = which >> 16;
	u8 first = which >> 8, second = which;

	*value = READ_ONCE(*per_cpu_ptr(pfc_costs[first], cpu));
	if (second != first)
		*value += READ_ONCE(*per_cpu_ptr(pfc_costs[second], cpu));
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(cost_fops, cost_get, NULL, "%llu\n");

/*
 * Creates the debugfs files of @cpu. Further calls for the same CPU do nothing. Called in process
 * context.
 */
void pfc_costs_show(unsigned int cpu, const struct pfc_cost_file *files, unsigned int nr)
{
	static struct cpumask shown;
	struct dentry *dir;
	unsigned int n;
	char name[16];

	if (cpumask_test_and_set_cpu(cpu, &shown))
		return;
	snprintf(name, sizeof(name), "cpu%u", cpu);
	dir = pfm_tree_subdir(name);
	for (n = 0; n < nr; n++)
		debugfs_create_file(files[n].name, 0444, dir,
				    (void *)((unsigned long)cpu << 16 | files[n].first << 8 |
					     files[n].second), &cost_fops);
}
