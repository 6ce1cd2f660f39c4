// SPDX-License-Identifier: GPL-2.0
/*
 * Work of workqueues; and task work: functions that a thread calls before it returns to user mode.
 * Each queued task work holds a reference to its module until the task work has run.
 */
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/workqueue.h>
#include "helpers.h"

void pfc_work_init(struct work_struct *work, work_func_t func)
{
	INIT_WORK(work, func);
}
EXPORT_SYMBOL_GPL(pfc_work_init);

void pfc_work_queue(struct work_struct *work)
{
	/*
	 * The workqueue is unbound, because a SCHED_FIFO thread can starve the workers that are
	 * bound to its CPU.
	 */
	queue_work(system_dfl_wq, work);
}
EXPORT_SYMBOL_GPL(pfc_work_queue);

static bool has_queued_task_work;

/*
 * Queues a task work of the module @owner for @thread. Callers use the macro pfc_task_work_add() in
 * helpers.h, in which @owner is the caller's module.
 */
bool pfc_task_work_add_with_owner(struct task_struct *thread, struct callback_head *work,
				  enum task_work_notify_mode how, struct module *owner)
{
	WRITE_ONCE(has_queued_task_work, true);
	__module_get(owner);
	if (!task_work_add(thread, work, how))
		return true;
	module_put(owner);
	return false;
}
EXPORT_SYMBOL_NS_GPL(pfc_task_work_add_with_owner, "PERFCOUNTERS");

/*
 * Waits until every thread that has called pfc_task_work_done() has also left the module's code.
 * Called when a module with task work is unloaded. May sleep.
 */
void pfc_task_works_wait(void)
{
	if (has_queued_task_work)
		synchronize_rcu_tasks();
}
EXPORT_SYMBOL_NS_GPL(pfc_task_works_wait, "PERFCOUNTERS");
