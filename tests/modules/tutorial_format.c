// SPDX-License-Identifier: GPL-2.0
/*
 * A sampling format in 60 lines: counts the samples on each CPU.
 * Documentation/format-tutorial.md goes through it step by step.
 */
#include <linux/cpumask.h>
#include <linux/module.h>
#include <linux/perfmon.h>

struct by_cpu_arg {
	u64 full;		/* samples until it is full */
};

struct by_cpu {			/* the buffer, which user space maps */
	u64 nr_cpus;
	u64 full;
	u64 samples;
	u64 counts[];		/* samples of each CPU */
};

static int by_cpu_layout(const void *from, struct perfmon_layout *layout)
{
	const struct by_cpu_arg *arg = from;

	layout->size = struct_size_t(struct by_cpu, counts, nr_cpu_ids);
	return arg->full ? 0 : -EINVAL;
}

static int by_cpu_init(struct perfmon_buffer *buffer, const void *from)
{
	const struct by_cpu_arg *arg = from;
	struct by_cpu *buf = buffer->memory;

	buf->nr_cpus = nr_cpu_ids;
	buf->full = arg->full;
	return 0;
}

static u32 by_cpu_overflow(struct perfmon_buffer *buffer, const struct perfmon_overflow *overflow)
{
	struct by_cpu *buf = buffer->memory;

	WRITE_ONCE(buf->counts[overflow->cpu], buf->counts[overflow->cpu] + 1);
	WRITE_ONCE(buf->samples, buf->samples + 1);
	return buf->samples < buf->full ? PERFMON_DO_RESET : PERFMON_DO_MASK | PERFMON_DO_NOTIFY;
}

static u32 by_cpu_restart(struct perfmon_buffer *buffer)
{
	struct by_cpu *buf = buffer->memory;

	memset(buf->counts, 0, buf->nr_cpus * sizeof(u64));
	WRITE_ONCE(buf->samples, 0);
	return 0;
}

static const struct perfmon_format by_cpu = {
	.size = sizeof(by_cpu), .owner = THIS_MODULE, .name = "by-cpu",
	.uuid = { 'b', 'y', '-', 'c', 'p', 'u', 1 }, .queue_depth = 1,
	.arg_size = sizeof(struct by_cpu_arg), .layout = by_cpu_layout, .init = by_cpu_init,
	.overflow = by_cpu_overflow, .restart = by_cpu_restart,
};

static int __init by_cpu_register(void)
{
	return perfmon_format_register(&by_cpu);
}

static void __exit by_cpu_unregister(void)
{
	perfmon_format_unregister(&by_cpu);
}

module_init(by_cpu_register);
module_exit(by_cpu_unregister);
MODULE_ALIAS("perfmon-format-by-cpu");
MODULE_DESCRIPTION("perfmon: a sampling format in 60 lines");
MODULE_LICENSE("GPL");
