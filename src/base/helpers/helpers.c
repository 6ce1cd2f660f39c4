// SPDX-License-Identifier: GPL-2.0
/* Wrappers of macros and inline functions that Rust code cannot call. */
#include <linux/compat.h>
#include <linux/export.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irqdesc.h>
#include <linux/preempt.h>
#include <linux/workqueue.h>
#include "helpers.h"

/*
 * Returns false if the caller certainly may not sleep. might_sleep() is not used, because the
 * caller of this function returns an errno and logs a message itself.
 */
bool pfc_may_sleep(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_COUNT))
		return !in_interrupt() && !irqs_disabled();
	return preemptible();
}

/*
 * Returns true if the current system call uses the i386 ABI. System calls of the i386 ABI are made
 * by 32-bit programs, and by 64-bit programs with "int 0x80".
 */
bool pfc_is_i386_syscall(void)
{
	return in_ia32_syscall();
}
EXPORT_SYMBOL_GPL(pfc_is_i386_syscall);

/* Returns true if the current system call uses the i386 or the x32 ABI. */
bool pfc_is_compat_syscall(void)
{
	return in_compat_syscall();
}
EXPORT_SYMBOL_NS_GPL(pfc_is_compat_syscall, "PERFCOUNTERS");

/*
 * Returns true if @action is the first handler of the interrupt line @irq, or if there is no such
 * line.
 */
bool pfc_irq_is_first(unsigned int irq, const struct irqaction *action)
{
	struct irq_data *data = irq_get_irq_data(irq);

	return !data || READ_ONCE(irq_data_to_desc(data)->action) == action;
}
EXPORT_SYMBOL_GPL(pfc_irq_is_first);

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
