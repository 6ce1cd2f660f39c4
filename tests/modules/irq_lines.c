// SPDX-License-Identifier: GPL-2.0
/*
 * Adds interrupt lines without a device. The parameter "lines" is the number of lines. Writing a
 * number N to the parameter "fire" raises N interrupts on each line, on the CPU of the writer.
 */
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/module.h>

static unsigned int lines = 1;
module_param(lines, uint, 0444);
MODULE_PARM_DESC(lines, "How many lines");

static unsigned int handlers = 1;
module_param(handlers, uint, 0444);
MODULE_PARM_DESC(handlers, "How many handlers share each line, up to 8");

static int first;
module_param(first, int, 0444);
MODULE_PARM_DESC(first, "The number of the first line");

static irqreturn_t handle_line(int irq, void *line)
{
	return IRQ_HANDLED;
}

static int raise_interrupts(const char *text, const struct kernel_param *param)
{
	unsigned int times;
	int error = kstrtouint(text, 0, &times);

	while (!error && times--)
		for (unsigned int i = 0; i < lines; i++)
			generic_handle_irq_safe(first + i);
	return error;
}

static const struct kernel_param_ops fire_ops = { .set = raise_interrupts };
module_param_cb(fire, &fire_ops, NULL, 0200);
MODULE_PARM_DESC(fire, "Interrupts of each line, now");

/*
 * Addresses of these bytes serve as dev_id, by which free_irq() identifies each handler of a shared
 * line.
 */
static char dev_ids[8];

static void free_lines(unsigned int nr)
{
	while (nr--)
		free_irq(first + nr / handlers, &dev_ids[nr % handlers]);
	irq_free_descs(first, lines);
}

static int __init irq_lines_init(void)
{
	/*
	 * The interrupt descriptors are allocated without an owner. request_irq() takes a reference
	 * to the owner of a line, so with this module as owner, the module could not be unloaded.
	 */
	int irq;

	if (!handlers || handlers > sizeof(dev_ids))
		return -EINVAL;
	irq = __irq_alloc_descs(-1, 1, lines, NUMA_NO_NODE, NULL, NULL);
	if (irq < 0)
		return irq;
	first = irq;
	for (unsigned int i = 0; i < lines * handlers; i++) {
		int error, line = first + i / handlers;

		if (i % handlers == 0)
			irq_set_chip_and_handler(line, &dummy_irq_chip, handle_simple_irq);
		error = request_irq(line, handle_line, handlers > 1 ? IRQF_SHARED : 0, "line",
				    &dev_ids[i % handlers]);
		if (error) {
			free_lines(i);
			return error;
		}
	}
	return 0;
}

static void __exit irq_lines_exit(void)
{
	free_lines(lines * handlers);
}

module_init(irq_lines_init);
module_exit(irq_lines_exit);
MODULE_DESCRIPTION("Interrupt lines without a device");
MODULE_LICENSE("GPL");
