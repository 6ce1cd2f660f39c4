// SPDX-License-Identifier: GPL-2.0
/* Address spaces. */
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include "helpers.h"

/*
 * Returns the caller's mm with a reference, or NULL. The mm is only compared with other mms; the
 * reference prevents the reuse of the mm's address.
 */
struct mm_struct *pt_mm_get(void)
{
	if (current->mm)
		mmgrab(current->mm);
	return current->mm;
}

void pt_mm_put(struct mm_struct *mm)
{
	mmdrop(mm);
}
