// SPDX-License-Identifier: GPL-2.0
/* Interrupts: whether the caller may be in one, and the handlers of an interrupt line. */
#include <linux/export.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irqdesc.h>
#include <linux/preempt.h>
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
 * Returns true if @action is the first handler of the interrupt line @irq, or if there is no such
 * line.
 */
bool pfc_irq_is_first(unsigned int irq, const struct irqaction *action)
{
	struct irq_data *data = irq_get_irq_data(irq);

	return !data || READ_ONCE(irq_data_to_desc(data)->action) == action;
}
EXPORT_SYMBOL_GPL(pfc_irq_is_first);
