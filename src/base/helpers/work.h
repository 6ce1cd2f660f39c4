/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Task work: functions that a thread calls before it returns to user mode. The functions declared
 * here are defined in work.c.
 */
#ifndef _PERFCOUNTERS_WORK_H
#define _PERFCOUNTERS_WORK_H

#include <linux/task_work.h>

bool pfc_task_work_add(struct task_struct *thread, struct callback_head *work,
		       enum task_work_notify_mode how);
void pfc_task_work_done(void);
void pfc_task_works_wait(void);

#endif
