// SPDX-License-Identifier: GPL-2.0
/*
 * Functions for raw spinlocks, for preemption, and to find out whether the caller runs in an NMI.
 */
#include <linux/export.h>
#include <linux/preempt.h>
#include <linux/spinlock.h>
#include "helpers.h"

void pfc_lock_init(raw_spinlock_t *lock)
{
	raw_spin_lock_init(lock);
}
EXPORT_SYMBOL_NS_GPL(pfc_lock_init, "PERFCOUNTERS");

void pfc_preempt_disable(void)
{
	preempt_disable();
}
EXPORT_SYMBOL_NS_GPL(pfc_preempt_disable, "PERFCOUNTERS");

void pfc_preempt_enable(void)
{
	preempt_enable();
}
EXPORT_SYMBOL_NS_GPL(pfc_preempt_enable, "PERFCOUNTERS");

bool pfc_in_nmi(void)
{
	return in_nmi();
}
EXPORT_SYMBOL_NS_GPL(pfc_in_nmi, "PERFCOUNTERS");
