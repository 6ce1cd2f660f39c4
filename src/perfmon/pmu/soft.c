// SPDX-License-Identifier: GPL-2.0
/*
 * pfm_soft: virtual registers that the kernel provides on every machine: clocks, counts of a
 * thread's events, values such as the CPU number or the free memory, and the values of the
 * counter-page instances that the user selects.
 *
 * The module is written in C, because most of its code uses macros and inline functions of the
 * kernel. The module is also an example of the C interface.
 */
#include <linux/capability.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/vmstat.h>
#include <asm/msr.h>
#include <linux/perfcounters.h>
#include <linux/perfmon.h>
#include "../../../include/uapi/linux/perfmon.h"

#define FIRST_REGISTER	PERFMON_CPU_CLOCK

#define FIRST_INSTANCE	(PERFMON_INSTANCE - FIRST_REGISTER)
#define FIRST_VALUE	(PERFMON_VALUE - FIRST_REGISTER)

#define VIRTUAL_COUNTER	(PERFMON_REG_VIRTUAL | PERFMON_REG_COUNTER)
#define VIRTUAL_READ_ONLY	(PERFMON_REG_VIRTUAL | PERFMON_REG_READ_ONLY)
#define TASK_AND_THREAD	(PERFMON_REG_TASK | PERFMON_REG_THREAD)

/*
 * The register table of the PMCs. The entry of PMC n has the index n - FIRST_REGISTER; unused PMC
 * numbers have no entry.
 */
static const struct perfmon_register pmcs[] = {
	[FIRST_INSTANCE] = { .name = "INSTANCE0", .type = PERFMON_REG_CONTROL,
		.reserved = ~0xffffffffULL },
	[FIRST_INSTANCE + 1] = { .name = "INSTANCE1", .type = PERFMON_REG_CONTROL,
		.reserved = ~0xffffffffULL },
	[FIRST_INSTANCE + 2] = { .name = "INSTANCE2", .type = PERFMON_REG_CONTROL,
		.reserved = ~0xffffffffULL },
	[FIRST_INSTANCE + 3] = { .name = "INSTANCE3", .type = PERFMON_REG_CONTROL,
		.reserved = ~0xffffffffULL },
};

static const struct perfmon_register pmds[] = {
	[PERFMON_CPU_CLOCK - FIRST_REGISTER] = { .name = "CPU_CLOCK",
		.type = VIRTUAL_COUNTER | PERFMON_REG_CLOCK,
		.address = PERFMON_CPU_CLOCK, .width = 64 },
	[PERFMON_TASK_CLOCK - FIRST_REGISTER] = { .name = "TASK_CLOCK",
		.type = VIRTUAL_COUNTER | PERFMON_REG_CLOCK | PERFMON_REG_THREAD,
		.address = PERFMON_TASK_CLOCK, .width = 64 },
	[PERFMON_CONTEXT_SWITCHES - FIRST_REGISTER] = { .name = "CONTEXT_SWITCHES",
		.type = VIRTUAL_COUNTER | TASK_AND_THREAD,
		.address = PERFMON_CONTEXT_SWITCHES, .width = 64 },
	[PERFMON_PAGE_FAULTS - FIRST_REGISTER] = { .name = "PAGE_FAULTS",
		.type = VIRTUAL_COUNTER | PERFMON_REG_TASK,
		.address = PERFMON_PAGE_FAULTS, .width = 64 },
	[PERFMON_MIGRATIONS - FIRST_REGISTER] = { .name = "MIGRATIONS",
		.type = VIRTUAL_COUNTER | TASK_AND_THREAD,
		.address = PERFMON_MIGRATIONS, .width = 64 },
	[PERFMON_MAJOR_FAULTS - FIRST_REGISTER] = { .name = "MAJOR_FAULTS",
		.type = VIRTUAL_COUNTER | PERFMON_REG_TASK,
		.address = PERFMON_MAJOR_FAULTS, .width = 64 },
	[PERFMON_PID - FIRST_REGISTER] = { .name = "PID", .type = VIRTUAL_READ_ONLY,
		.address = PERFMON_PID },
	[PERFMON_TID - FIRST_REGISTER] = { .name = "TID", .type = VIRTUAL_READ_ONLY,
		.address = PERFMON_TID },
	[PERFMON_CPU - FIRST_REGISTER] = { .name = "CPU", .type = VIRTUAL_READ_ONLY,
		.address = PERFMON_CPU },
	[PERFMON_TSC - FIRST_REGISTER] = { .name = "TSC", .type = VIRTUAL_READ_ONLY,
		.address = PERFMON_TSC },
	[PERFMON_FREE_MEMORY - FIRST_REGISTER] = { .name = "FREE_MEMORY", .type = VIRTUAL_READ_ONLY,
		.address = PERFMON_FREE_MEMORY },
	[PERFMON_RUNNING_TASKS - FIRST_REGISTER] = { .name = "RUNNING_TASKS",
		.type = VIRTUAL_READ_ONLY,
		.address = PERFMON_RUNNING_TASKS },
	[FIRST_INSTANCE] = { .name = "INSTANCE0", .address = PERFMON_INSTANCE, .width = 64,
		.type = VIRTUAL_COUNTER, .pmcs = BIT(FIRST_INSTANCE) },
	[FIRST_INSTANCE + 1] = { .name = "INSTANCE1", .address = PERFMON_INSTANCE, .width = 64,
		.type = VIRTUAL_COUNTER, .pmcs = BIT(FIRST_INSTANCE + 1) },
	[FIRST_INSTANCE + 2] = { .name = "INSTANCE2", .address = PERFMON_INSTANCE, .width = 64,
		.type = VIRTUAL_COUNTER, .pmcs = BIT(FIRST_INSTANCE + 2) },
	[FIRST_INSTANCE + 3] = { .name = "INSTANCE3", .address = PERFMON_INSTANCE, .width = 64,
		.type = VIRTUAL_COUNTER, .pmcs = BIT(FIRST_INSTANCE + 3) },
	[FIRST_VALUE] = { .name = "VALUE0", .address = PERFMON_VALUE, .type = VIRTUAL_READ_ONLY,
		.pmcs = BIT(FIRST_INSTANCE) },
	[FIRST_VALUE + 1] = { .name = "VALUE1", .address = PERFMON_VALUE, .type = VIRTUAL_READ_ONLY,
		.pmcs = BIT(FIRST_INSTANCE + 1) },
	[FIRST_VALUE + 2] = { .name = "VALUE2", .address = PERFMON_VALUE, .type = VIRTUAL_READ_ONLY,
		.pmcs = BIT(FIRST_INSTANCE + 2) },
	[FIRST_VALUE + 3] = { .name = "VALUE3", .address = PERFMON_VALUE, .type = VIRTUAL_READ_ONLY,
		.pmcs = BIT(FIRST_INSTANCE + 3) },
};

/*
 * Counts the runnable tasks of the machine. The function visits all tasks, because modules cannot
 * use the scheduler's own per-CPU counts. The visit can be preempted, because readers of RCU can be
 * preempted. If interrupts are off, for example while a sample is taken, running_tasks() returns 0,
 * because there may be too many tasks to visit.
 */
static u64 running_tasks(void)
{
	struct task_struct *process, *thread;
	u64 running = 0;

	if (irqs_disabled() || in_nmi())
		return 0;
	rcu_read_lock();
	for_each_process_thread(process, thread)
		running += task_is_running(thread);
	rcu_read_unlock();
	return running;
}

static u64 faults(struct task_struct *task, enum vm_event_item event)
{
	if (!task)
		return this_cpu_read(vm_event_states.event[event]);
	if (event == PGMAJFAULT)
		return READ_ONCE(task->maj_flt);
	return READ_ONCE(task->min_flt) + READ_ONCE(task->maj_flt);
}

/* Returns this CPU's value of a counter-page instance; 0 if the instance is not live. */
static u64 instance_here(int instance)
{
	perf_counter_t counter = perf_counter_handle(instance);

	return counter == perf_counter_nowhere ? 0 : this_cpu_read(*counter);
}

static u64 instance_sum(int instance)
{
	perf_counter_t counter = perf_counter_handle(instance);
	unsigned int cpu;
	u64 sum = 0;

	if (counter != perf_counter_nowhere)
		for_each_possible_cpu(cpu)
			sum += READ_ONCE(*per_cpu_ptr(counter, cpu));
	return sum;
}

static u64 soft_read(u64 address, u64 control, struct task_struct *task,
		     struct pid_namespace *ns)
{
	struct task_struct *whose = task ?: current;

	switch (address) {
	case PERFMON_CPU_CLOCK:
	case PERFMON_TASK_CLOCK:
		return local_clock();
	case PERFMON_CONTEXT_SWITCHES:
		return READ_ONCE(whose->nvcsw) + READ_ONCE(whose->nivcsw);
	case PERFMON_MIGRATIONS:
		return READ_ONCE(whose->se.nr_migrations);
	case PERFMON_PAGE_FAULTS:
		return faults(task, PGFAULT);
	case PERFMON_MAJOR_FAULTS:
		return faults(task, PGMAJFAULT);
	case PERFMON_PID:
		return __task_pid_nr_ns(whose, PIDTYPE_TGID, ns);
	case PERFMON_TID:
		return __task_pid_nr_ns(whose, PIDTYPE_PID, ns);
	case PERFMON_CPU:
		return task ? task_cpu(task) : raw_smp_processor_id();
	case PERFMON_TSC:
		return rdtsc();
	case PERFMON_FREE_MEMORY:
		return global_zone_page_state(NR_FREE_PAGES) << PAGE_SHIFT;
	case PERFMON_RUNNING_TASKS:
		return running_tasks();
	case PERFMON_INSTANCE:
		return instance_here(control);
	case PERFMON_VALUE:
		return instance_sum(control);
	}
	return 0;
}

/* Selecting a counter-page instance needs CAP_PERFMON: instances count events of all tasks. */
static int soft_check(unsigned int pmc, u64 *value)
{
	if (!perfmon_capable())
		return -EPERM;
	return perf_counter_handle(*value) == perf_counter_nowhere ? -ENOENT : 0;
}

static struct perfmon_pmu soft = {
	.size = sizeof(soft),
	.nr_pmcs = ARRAY_SIZE(pmcs),
	.nr_pmds = ARRAY_SIZE(pmds),
	.first = FIRST_REGISTER,
	.owner = THIS_MODULE,
	.name = "soft",
	.pmcs = pmcs,
	.pmds = pmds,
	.check = soft_check,
	.read = soft_read,
};

static int __init soft_init(void)
{
	return perfmon_pmu_register(&soft);
}

static void __exit soft_exit(void)
{
	perfmon_pmu_unregister(&soft);
}

module_init(soft_init);
module_exit(soft_exit);
MODULE_ALIAS("perfmon-soft");
MODULE_AUTHOR("The perfcounters developers");
MODULE_DESCRIPTION("perfmon: the kernel's own registers");
MODULE_LICENSE("GPL");
