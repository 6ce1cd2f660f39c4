// SPDX-License-Identifier: GPL-2.0
/*
 * scripted_format: a sampling format whose fields are module parameters, for tests. insmod of this
 * module returns the result of perfmon_format_register().
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/perfmon.h>

static char *name = "scripted";
module_param(name, charp, 0400);
static unsigned int depth = 1;
module_param(depth, uint, 0400);
static unsigned int arg;
module_param(arg, uint, 0400);
static unsigned int state;
module_param(state, uint, 0400);

static int scripted_layout(const void *from, struct perfmon_layout *layout)
{
	layout->size = PAGE_SIZE;
	return 0;
}

static u32 scripted_overflow(struct perfmon_buffer *buffer, const struct perfmon_overflow *overflow)
{
	return PERFMON_DO_NOTIFY | PERFMON_DO_RESET;
}

static struct perfmon_format scripted = {
	.size = sizeof(scripted), .owner = THIS_MODULE,
	.uuid = { 's', 'c', 'r', 'i', 'p', 't', 'e', 'd' },
	.layout = scripted_layout, .overflow = scripted_overflow,
};

static int __init scripted_register(void)
{
	scripted.name = name;
	scripted.queue_depth = depth;
	scripted.arg_size = arg;
	scripted.state_size = state;
	return perfmon_format_register(&scripted);
}

static void __exit scripted_unregister(void)
{
	perfmon_format_unregister(&scripted);
}

module_init(scripted_register);
module_exit(scripted_unregister);
MODULE_DESCRIPTION("perfmon: a sampling format set by its parameters");
MODULE_LICENSE("GPL");
