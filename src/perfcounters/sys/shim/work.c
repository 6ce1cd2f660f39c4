// SPDX-License-Identifier: GPL-2.0
/*
 * What a thread does before it is in user mode again. The module stays until that is done.
 */
#include <linux/module.h>
#include <linux/rcupdate.h>
#include "work.h"

static bool has_worked;

/* False: the thread is about to end. Any context. */
bool pfc_work_add(struct task_struct *thread, struct callback_head *work,
		  enum task_work_notify_mode how)
{
	WRITE_ONCE(has_worked, true);
	__module_get(THIS_MODULE);
	if (!task_work_add(thread, work, how))
		return true;
	module_put(THIS_MODULE);
	return false;
}

/* The last thing that the work does. */
void pfc_work_done(void)
{
	module_put(THIS_MODULE);
}

/* The module goes: no thread is behind its pfc_work_done() any more. May sleep. */
void pfc_works_end(void)
{
	if (has_worked)
		synchronize_rcu_tasks();
}
