// SPDX-License-Identifier: GPL-2.0
/*
 * The files of perfmon's own overhead (costs) in debugfs (perfmon/cpuN).
 */
#include <linux/cpumask.h>
#include <linux/debugfs.h>
#include <linux/percpu.h>
#include "stats_files.h"

/* The per-CPU counters of perfmon's own overhead, indexed by the number of the cost. */
static s64 __percpu *const *slots;

/*
 * The inode's private data holds the CPU in bits 16 and up, and the numbers of two costs in one
 * byte each. The file shows the sum of the two costs, or one cost if they have the same number.
 */
static int cost_get(void *data, u64 *value)
{
	unsigned long which = (unsigned long)data;
	unsigned int cpu = which >> 16;
	u8 first = which >> 8, second = which;

	*value = READ_ONCE(*per_cpu_ptr(slots[first], cpu));
	if (second != first)
		*value += READ_ONCE(*per_cpu_ptr(slots[second], cpu));
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(cost_fops, cost_get, NULL, "%llu\n");

/*
 * Creates the debugfs files of @cpu, which show the costs @first and @second of each element of
 * @files. @costs[n] is the per-CPU counter of cost n. All calls pass the same array @costs. Further
 * calls for the same CPU do nothing. Called in process context.
 */
void pfc_costs_show(unsigned int cpu, const struct pfc_cost_file *files, unsigned int nr,
		    s64 __percpu *const *costs)
{
	static struct cpumask shown;
	struct dentry *dir;
	unsigned int n;
	char name[16];

	if (cpumask_test_and_set_cpu(cpu, &shown))
		return;
	slots = costs;
	snprintf(name, sizeof(name), "cpu%u", cpu);
	dir = pfm_tree_subdir(name);
	for (n = 0; n < nr; n++)
		debugfs_create_file(files[n].name, 0444, dir,
				    (void *)((unsigned long)cpu << 16 | files[n].first << 8 |
					     files[n].second), &cost_fops);
}
