// SPDX-License-Identifier: GPL-2.0
/*
 * A PMU in 60 lines: its registers are the kernel's clocks. Documentation/pmu-tutorial.md
 * goes through it step by step.
 */
#include <linux/cpumask.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/perfmon.h>

enum { TICKS, CYCLES, READS, CPUS };

static atomic64_t reads;
static struct cpumask cpus;

static const struct perfmon_register pmcs[] = {
	{ .name = "DIVIDER", .type = PERFMON_REG_CONTROL, .reset = 1, .reserved = ~0xffffULL },
};

static const struct perfmon_register pmds[] = {
	{ .name = "TICKS", .address = TICKS, .width = 64, .pmcs = 1 << 0,
	  .type = PERFMON_REG_VIRTUAL | PERFMON_REG_COUNTER },
	{ .name = "CYCLES", .address = CYCLES, .width = 64,
	  .type = PERFMON_REG_VIRTUAL | PERFMON_REG_COUNTER },
	{ .name = "READS", .address = READS, .type = PERFMON_REG_VIRTUAL | PERFMON_REG_READ_ONLY },
	{ .name = "CPUS", .address = CPUS, .type = PERFMON_REG_VIRTUAL | PERFMON_REG_READ_ONLY },
};

static int clock_probe(void)
{
	return boot_cpu_has(X86_FEATURE_TSC) ? 0 : -ENODEV;
}

static int clock_check(unsigned int pmc, u64 *value)
{
	return *value ? 0 : -EINVAL;
}

static u64 clock_read(u64 address, u64 control, struct task_struct *task, struct pid_namespace *ns)
{
	switch (address) {
	case TICKS:
		return get_jiffies_64() / control;
	case CYCLES:
		return get_cycles();
	case READS:
		return atomic64_inc_return(&reads);
	default:
		return cpumask_weight(&cpus);
	}
}

static void clock_cpu(unsigned int cpu, bool online)
{
	assign_cpu(cpu, &cpus, online);
}

static const struct perfmon_pmu tutorial = {
	.size = sizeof(tutorial), .owner = THIS_MODULE, .name = "tutorial", .first = 304,
	.nr_pmcs = ARRAY_SIZE(pmcs), .pmcs = pmcs, .nr_pmds = ARRAY_SIZE(pmds), .pmds = pmds,
	.probe = clock_probe, .check = clock_check, .read = clock_read, .cpu = clock_cpu,
};

static int __init tutorial_init(void)
{
	return perfmon_pmu_register(&tutorial);
}

static void __exit tutorial_exit(void)
{
	perfmon_pmu_unregister(&tutorial);
}

module_init(tutorial_init);
module_exit(tutorial_exit);
MODULE_DESCRIPTION("perfmon: a PMU in 60 lines");
MODULE_LICENSE("GPL");
