/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers for tests that read the cost instances (perfcounters/...), in which the modules count
 * their own overhead. Some helpers read the debugfs files that show the values of the cost
 * instances.
 */
#ifndef COSTS_H
#define COSTS_H

#include "../perfmon/sampling.h"
#include <sys/resource.h>

static struct pc costs_pc;

/*
 * Files in debugfs whose names are those of perfmon2's debugfs files. Each debugfs file shows the
 * value of one cost instance, or the sum of two.
 */
static const struct cost_file {
	const char *file, *first, *second;
} cost_files[] = {
	{ "ovfl_intr_all_count", "interrupts/regular", "interrupts/spurious" },
	{ "ovfl_intr_regular_count", "interrupts/regular", NULL },
	{ "ovfl_intr_spurious_count", "interrupts/spurious", NULL },
	{ "ovfl_intr_replay_count", "interrupts/again", NULL },
	{ "ovfl_intr_nmi_count", "interrupts/regular", "interrupts/spurious" },
	{ "ovfl_intr_ns", "interrupts/time", NULL },
	{ "ovfl_notify_count", "messages/sent", NULL },
	{ "handle_work_count", "sampling/waits", NULL },
	{ "handle_timeout_count", "timers/fired", NULL },
	{ "reset_pmds_count", "sampling/resets", NULL },
	{ "pfm_restart_count", "sampling/restarts", NULL },
	{ "fmt_handler_calls", "samples/taken", NULL },
	{ "fmt_handler_ns", "samples/time", NULL },
	{ "set_switch_count", "sets/switches", NULL },
	{ "set_switch_ns", "sets/time", NULL },
	{ "set_switch_exp", "sets/late", NULL },
	{ "ctxswin_count", "switches/in", NULL },
	{ "ctxswin_ns", "switches/in_time", NULL },
	{ "ctxswout_count", "switches/out", NULL },
	{ "ctxswout_ns", "switches/out_time", NULL },
};

#define NR_COST_FILES	(sizeof(cost_files) / sizeof(*cost_files))

static __u32 cost_number(const char *name)
{
	__u32 n;
	const char *whole = format_text("perfcounters/%s", name);

	n = pc_find(&costs_pc, whole);
	bail_if(!n, whole);
	return n;
}

/* Returns the current value of a cost instance, summed over all CPUs. */
static __s64 cost_total(const char *name)
{
	return pc_total(&costs_pc, cost_number(name));
}

/* Returns the number in debugfs file @name of CPU @cpu; -1 if the file does not exist. */
static __s64 cost_in_debugfs(int cpu, const char *name)
{
	const char *path = format_text("/sys/kernel/debug/perfmon/cpu%d/%s", cpu, name);

	return access(path, R_OK) ? -1 : read_number(path);
}

/* The caller ensures that no cost instance changes during the comparison. */
static bool debugfs_matches_pages(void)
{
	bool good = true;

	for (__u32 cpu = 0; cpu < costs_pc.geometry.nr_cpus; cpu++) {
		for (unsigned int i = 0; i < NR_COST_FILES; i++) {
			const struct cost_file *f = &cost_files[i];
			__s64 got = cost_in_debugfs(cpu, f->file);
			__s64 want = pc_value(&costs_pc, cpu, cost_number(f->first));

			if (f->second)
				want += pc_value(&costs_pc, cpu, cost_number(f->second));
			if (got == want)
				continue;
			note("cpu%u %s: %lld, in the pages %lld", cpu, f->file, got, want);
			good = false;
		}
	}
	return good;
}

/*
 * Returns true if the instance perfcounters/@name, which counts nanoseconds, has a higher value
 * than @before, and if the difference is less than the elapsed time @wall.
 */
static bool time_added(const char *name, __s64 before, __u64 wall)
{
	__s64 added = cost_total(name) - before;

	note("%s: %lld of %llu ns", name, added, wall);
	return added > 0 && (__u64)added < wall;
}

#endif
