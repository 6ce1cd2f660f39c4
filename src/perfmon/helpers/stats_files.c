// SPDX-License-Identifier: GPL-2.0
/*
 * The debugfs files perfmon/cpuN/NAME, which show the costs of perfmon on CPU N. A cost is a
 * statistic of perfmon's own overhead. The number of a cost is the value of its variant of
 * PerfmonStatistic (src/perfmon/stats.rs).
 */
#include <linux/cpumask.h>
#include <linux/debugfs.h>
#include <linux/percpu.h>
#include "helpers.h"

/* The per-CPU counters of all costs, indexed by cost number. */
static s64 __percpu *const *slots;

/*
 * The inode's private data holds the CPU number in bits 16 and up, the number of the first cost in
 * bits 8 to 15, and the number of the second cost in bits 0 to 7. The file shows the sum of the two
 * costs. If both numbers are equal, the file shows one cost.
 */
static int get_sum_of_costs(void *data, u64 *value)
{
	unsigned long which = (unsigned long)data;
	unsigned int cpu = which >> 16;
	u8 first = which >> 8, second = which;

	*value = READ_ONCE(*per_cpu_ptr(slots[first], cpu));
	if (second != first)
		*value += READ_ONCE(*per_cpu_ptr(slots[second], cpu));
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(cost_fops, get_sum_of_costs, NULL, "%llu\n");

/*
 * Creates the debugfs files of @cpu: one file for each of the @nr elements of @files. @costs[n] is
 * the per-CPU counter of cost n. All calls pass the same array @costs. Further calls for the same
 * CPU do nothing. Called in process context.
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
