// SPDX-License-Identifier: GPL-2.0
/*
 * pfm_soft: the kernel's own registers: clocks, what happens to a thread, values
 * of now, and any instance of the counter pages. They are there on every machine.
 *
 * In C, as nearly all of it is macros and inline functions of the kernel's; and so
 * it is an example of the interface for C.
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/vmstat.h>
#include <asm/msr.h>
#include <linux/perfcounters.h>
#include <linux/perfmon.h>
#include "../../include/uapi/linux/perfmon.h"

#define FIRST	PERFMON_CPU_CLOCK

/* Rows by their public numbers; between them are holes. */
#define ROW(n)	[(n) - FIRST]

#define GROWS	(PERFMON_REG_VIRTUAL | PERFMON_REG_COUNTER)
#define NOW	(PERFMON_REG_VIRTUAL | PERFMON_REG_READ_ONLY)
#define OF_TASK	(PERFMON_REG_TASK | PERFMON_REG_THREAD)

#define COUNTER(n, title, kinds) \
	ROW(n) = { .name = title, .address = n, .type = GROWS | (kinds), .width = 64 }
#define VALUE(n, title) \
	ROW(n) = { .name = title, .address = n, .type = NOW }
#define INSTANCE(i) \
	ROW(PERFMON_INSTANCE + (i)) = { .name = "INSTANCE" #i, .address = PERFMON_INSTANCE, \
		.type = GROWS, .width = 64, .pmcs = 1ULL << (PERFMON_INSTANCE - FIRST + (i)) }
#define TOTAL(i) \
	ROW(PERFMON_VALUE + (i)) = { .name = "VALUE" #i, .address = PERFMON_VALUE, \
		.type = NOW, .pmcs = 1ULL << (PERFMON_INSTANCE - FIRST + (i)) }
#define SELECT(i) \
	ROW(PERFMON_INSTANCE + (i)) = { .name = "INSTANCE" #i, .type = PERFMON_REG_CONTROL, \
		.reserved = ~0xffffffffULL }

static const struct perfmon_register pmcs[] = {
	SELECT(0), SELECT(1), SELECT(2), SELECT(3),
};

static const struct perfmon_register pmds[] = {
	COUNTER(PERFMON_CPU_CLOCK, "CPU_CLOCK", 0),
	COUNTER(PERFMON_TASK_CLOCK, "TASK_CLOCK", PERFMON_REG_THREAD),
	COUNTER(PERFMON_CONTEXT_SWITCHES, "CONTEXT_SWITCHES", OF_TASK),
	COUNTER(PERFMON_PAGE_FAULTS, "PAGE_FAULTS", PERFMON_REG_TASK),
	COUNTER(PERFMON_MIGRATIONS, "MIGRATIONS", OF_TASK),
	COUNTER(PERFMON_MAJOR_FAULTS, "MAJOR_FAULTS", PERFMON_REG_TASK),
	VALUE(PERFMON_PID, "PID"),
	VALUE(PERFMON_TID, "TID"),
	VALUE(PERFMON_CPU, "CPU"),
	VALUE(PERFMON_TSC, "TSC"),
	VALUE(PERFMON_FREE_MEMORY, "FREE_MEMORY"),
	VALUE(PERFMON_RUNNING_TASKS, "RUNNING_TASKS"),
	INSTANCE(0), INSTANCE(1), INSTANCE(2), INSTANCE(3),
	TOTAL(0), TOTAL(1), TOTAL(2), TOTAL(3),
};

/* The kernel counts them for each CPU by itself, and tells no module. */
static u64 running_tasks(void)
{
	struct task_struct *process, *thread;
	u64 running = 0;

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

/* An instance that is gone is 0. */
static u64 instance_here(int instance)
{
	perf_counter_t counter = perf_counter_handle(instance);

	return counter ? this_cpu_read(*counter) : 0;
}

static u64 instance_sum(int instance)
{
	perf_counter_t counter = perf_counter_handle(instance);
	unsigned int cpu;
	u64 sum = 0;

	if (counter)
		for_each_possible_cpu(cpu)
			sum += READ_ONCE(*per_cpu_ptr(counter, cpu));
	return sum;
}

static u64 soft_read(u64 address, u64 control, struct task_struct *task)
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
		return whose->tgid;
	case PERFMON_TID:
		return whose->pid;
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

static int soft_check(unsigned int pmc, u64 *value)
{
	return perf_counter_handle(*value) ? 0 : -ENOENT;
}

static struct perfmon_pmu soft = {
	.size = sizeof(soft),
	.nr_pmcs = ARRAY_SIZE(pmcs),
	.nr_pmds = ARRAY_SIZE(pmds),
	.first = FIRST,
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
