/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Work of workqueues; and task work: functions that a thread calls before it returns to user mode.
 * The functions declared here are defined in work.c.
 */
#ifndef _PERFCOUNTERS_WORK_H
#define _PERFCOUNTERS_WORK_H

#include <linux/module.h>
#include <linux/task_work.h>
#include <linux/workqueue.h>

void pfc_work_init(struct work_struct *work, work_func_t func);
void pfc_work_queue(struct work_struct *work);

bool pfc_task_work_add_owner(struct task_struct *thread, struct callback_head *work,
			     enum task_work_notify_mode how, struct module *owner);

/*
 * Queues a task work of this module for @thread. Returns false if the thread is exiting and runs no
 * task work any more. Callable in any context.
 */
#define pfc_task_work_add(thread, work, how)	\
	pfc_task_work_add_owner(thread, work, how, THIS_MODULE)

/*
 * Drops the module reference that pfc_task_work_add() has taken. Each task work calls this macro
 * last.
 */
#define pfc_task_work_done()	module_put(THIS_MODULE)

void pfc_task_works_wait(void);

#endif
