// SPDX-License-Identifier: GPL-2.0
/* Functions that read clocks of the kernel and properties of the processor's time stamp counter. */
#include <linux/export.h>
#include <linux/hrtimer.h>
#include <linux/nsproxy.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/time64.h>
#include <linux/time_namespace.h>
#include <linux/timekeeping.h>
#include <asm/cpufeature.h>
#include <asm/tsc.h>
#include "helpers.h"

u32 pfc_tsc_khz(void)
{
	if (!boot_cpu_has(X86_FEATURE_CONSTANT_TSC) || !boot_cpu_has(X86_FEATURE_NONSTOP_TSC))
		return 0;
	return tsc_khz;
}

/*
 * Returns the number of nanoseconds per 2^24 ticks of the TSC. Returns 0 if the rate of the TSC is
 * unknown, or if the number of nanoseconds does not fit in 32 bits.
 */
u32 pfc_tsc_ns_scale(void)
{
	u64 scale = tsc_khz ? ((u64)NSEC_PER_MSEC << 24) / tsc_khz : 0;

	return scale <= U32_MAX ? scale : 0;
}
EXPORT_SYMBOL_NS_GPL(pfc_tsc_ns_scale, "PERFCOUNTERS");

u64 pfc_hrtimer_resolution_ns(void)
{
	return hrtimer_resolution;
}
EXPORT_SYMBOL_NS_GPL(pfc_hrtimer_resolution_ns, "PERFCOUNTERS");

u64 pfc_monotonic_ns(void)
{
	return ktime_get_mono_fast_ns();
}
EXPORT_SYMBOL_NS_GPL(pfc_monotonic_ns, "PERFCOUNTERS");

/*
 * Returns the rate of the time stamp counter in kHz, or 0 if the kernel considers the counter
 * unstable. If the time stamp counter is unstable, accounting uses the scheduler's local_clock().
 */
u32 pfc_stable_tsc_khz(void)
{
	return boot_cpu_has(X86_FEATURE_TSC) && !check_tsc_unstable() ? tsc_khz : 0;
}
EXPORT_SYMBOL_NS_GPL(pfc_stable_tsc_khz, "PERFCOUNTERS");

u64 pfc_local_clock(void)
{
	return local_clock();
}
EXPORT_SYMBOL_NS_GPL(pfc_local_clock, "PERFCOUNTERS");

/*
 * Returns how far the caller's CLOCK_MONOTONIC is ahead of CLOCK_MONOTONIC in the initial time
 * namespace, in nanoseconds.
 */
s64 pfc_time_namespace_offset_ns(void)
{
#ifdef CONFIG_TIME_NS
	return timespec64_to_ns(&current->nsproxy->time_ns->offsets.monotonic);
#else
	return 0;
#endif
}
EXPORT_SYMBOL_NS_GPL(pfc_time_namespace_offset_ns, "PERFCOUNTERS");
