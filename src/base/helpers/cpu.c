// SPDX-License-Identifier: GPL-2.0
/* Functions that return which CPUs are online, and the idle time of a CPU. */
#include <linux/cpumask.h>
#include <linux/export.h>
#include <linux/kernel_stat.h>
#include "helpers.h"

/*
 * Returns the idle time of a CPU, including its I/O wait time, from the kernel's own statistics.
 * While accounting is off, the module ppa reports the result of pfc_idle_ns().
 */
u64 pfc_idle_ns(unsigned int cpu)
{
	return kcpustat_field_idle(cpu) + kcpustat_field_iowait(cpu);
}
EXPORT_SYMBOL_NS_GPL(pfc_idle_ns, "PERFCOUNTERS");

bool pfc_cpu_online(unsigned int cpu)
{
	return cpu_online(cpu);
}
EXPORT_SYMBOL_NS_GPL(pfc_cpu_online, "PERFCOUNTERS");
