// SPDX-License-Identifier: GPL-2.0
/* What the module itself costs: where it is counted, and its files in debugfs. */
#include <linux/cpumask.h>
#include <linux/debugfs.h>
#include <linux/percpu.h>
#include <linux/time64.h>
#include <asm/tsc.h>
#include "costs.h"

s64 __percpu *pfc_costs[PFC_COSTS];
u32 pfc_costs_scale;

/* Where it would not fit nothing counts in ticks: times stay 0. */
void pfc_costs_init(void)
{
	u64 scale = tsc_khz ? ((u64)NSEC_PER_MSEC << 24) / tsc_khz : 0;

	pfc_costs_scale = scale <= U32_MAX ? scale : 0;
}

/* Which is in the inode: the CPU and two costs, a byte each. */
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

void pfc_costs_show(unsigned int cpu, const struct pfc_cost_file *files, unsigned int nr)
{
	static struct cpumask shown;
	struct dentry *dir;
	unsigned int n;
	char name[16];

	if (cpumask_test_and_set_cpu(cpu, &shown))
		return;
	snprintf(name, sizeof(name), "cpu%u", cpu);
	dir = pfm_tree_branch(name);
	for (n = 0; n < nr; n++)
		debugfs_create_file(files[n].name, 0444, dir,
				    (void *)((unsigned long)cpu << 16 | files[n].first << 8 |
					     files[n].second), &cost_fops);
}
