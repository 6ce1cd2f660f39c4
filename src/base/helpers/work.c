// SPDX-License-Identifier: GPL-2.0
/*
 * Task work of this module: functions that a thread calls before it returns to user mode. Each
 * queued task work holds a reference to the module until the task work has run.
 */
#include <linux/module.h>
#include <linux/rcupdate.h>
#include "work.h"

static bool has_worked;

/*
 * Queues a task work for @thread. Returns false if the thread is exiting and runs no task work any
 * more. Callable in any context.
 */
bool pfc_task_work_add(struct task_struct *thread, struct callback_head *work,
		       enum task_work_notify_mode how)
{
	WRITE_ONCE(has_worked, true);
	__module_get(THIS_MODULE);
	if (!task_work_add(thread, work, how))
		return true;
	module_put(THIS_MODULE);
	return false;
}

/*
 * Drops the module reference that pfc_task_work_add() has taken. Each task work calls this function
 * last.
 */
void pfc_task_work_done(void)
{
	module_put(THIS_MODULE);
}

/*
 * Waits until every thread that has called pfc_task_work_done() has also left the module's code.
 * Called when the module is unloaded. May sleep.
 */
void pfc_task_works_wait(void)
{
	if (has_worked)
		synchronize_rcu_tasks();
}
