// SPDX-License-Identifier: GPL-2.0
/* CPUs: which CPUs are online, and their idle time. */
#include <linux/cpumask.h>
#include <linux/kernel_stat.h>
#include "helpers.h"

/*
 * Returns the idle time of a CPU, including the time that the CPU waited for I/O, from the kernel's
 * own statistics. Used while accounting is off.
 */
u64 ppa_idle_ns(unsigned int cpu)
{
	return kcpustat_field_idle(cpu) + kcpustat_field_iowait(cpu);
}

bool ppa_cpu_online(unsigned int cpu)
{
	return cpu_online(cpu);
}
