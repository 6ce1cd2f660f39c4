// SPDX-License-Identifier: GPL-2.0
/*
 * Task work: functions that a thread runs before it returns to user mode. Each holds a reference to
 * the module until it has run.
 */
#include <linux/module.h>
#include <linux/rcupdate.h>
#include "work.h"

static bool has_worked;

/*
 * Queues a task work. Returns false if the thread is exiting and runs none any more. Any context.
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

/* Drops the reference that pfc_task_work_add() took. The last call of each task work. */
void pfc_task_work_done(void)
{
	module_put(THIS_MODULE);
}

/*
 * Waits until no thread still executes code of the module after its pfc_task_work_done(). Called
 * when the module is unloaded. May sleep.
 */
void pfc_task_works_wait(void)
{
	if (has_worked)
		synchronize_rcu_tasks();
}
