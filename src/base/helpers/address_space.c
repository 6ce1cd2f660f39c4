// SPDX-License-Identifier: GPL-2.0
/* Address spaces. */
#include <linux/export.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include "helpers.h"

/*
 * Returns the caller's mm with a reference, or NULL for a kernel thread. The reference (mm_count)
 * prevents the reuse of the mm's address, so that the address can be compared with the addresses of
 * other mms.
 */
struct mm_struct *pfc_mm_get(void)
{
	if (current->mm)
		mmgrab(current->mm);
	return current->mm;
}
EXPORT_SYMBOL_NS_GPL(pfc_mm_get, "PERFCOUNTERS");

void pfc_mm_put(struct mm_struct *mm)
{
	mmdrop(mm);
}
EXPORT_SYMBOL_NS_GPL(pfc_mm_put, "PERFCOUNTERS");
