// SPDX-License-Identifier: GPL-2.0
/*
 * Monitoring contexts: model-specific registers and their reservation, work queues,
 * permission for RDPMC, and the files /proc/perfmon_map and debugfs perfmon.
 */
#include <linux/debugfs.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/perf_event.h>
#include <linux/pid_namespace.h>
#include <linux/preempt.h>
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/workqueue.h>
#include <asm/msr.h>
#include <asm/nmi.h>
#include <linux/perfmon.h>
#include "../../../include/uapi/linux/perfmon.h"
#include "../../base/helpers/helpers.h"
#include "helpers.h"

/* C functions of src/base/helpers, which perfcounters.ko exports. */
MODULE_IMPORT_NS("PERFCOUNTERS");

/* The structures in include/linux/perfmon.rs have the layout of the C structures. */
static_assert(sizeof(struct perfmon_register) == 72);
static_assert(offsetof(struct perfmon_register, pmcs) == 56);
static_assert(sizeof(struct perfmon_pmu) == 112);
/* SelfPage in src/protocols/self_page.rs has the layout of struct perfmon_self. */
static_assert(sizeof(struct perfmon_self) == 48 + PERFMON_SELF_COUNTERS * 24);

/* Exports of functions that pmus.rs defines in Rust. */
EXPORT_SYMBOL_GPL(perfmon_pmu_register);
EXPORT_SYMBOL_GPL(perfmon_pmu_unregister);

/*
 * pfm_loaded holds the addresses of two contexts of each CPU: the context of the current thread [0]
 * and the context of the CPU [1]. pfm_counting holds the counters that each of these contexts uses,
 * as bits of the global-control MSR. per_cpu.rs accesses both variables.
 */
DEFINE_PER_CPU(unsigned long[2], pfm_loaded);
DEFINE_PER_CPU(u64[2], pfm_counting);

/* The kind of each CPU: its core type and registers. Set by src/perfmon/cpu_kinds.rs. */
DEFINE_PER_CPU(struct pfm_cpu_kind, pfm_kind);

/* Copies the kind of @cpu to @kind. Leaves @kind unchanged if @cpu is not a possible CPU. */
void pfm_get_cpu_kind(u32 cpu, struct pfm_cpu_kind *kind)
{
	if (cpu < nr_cpu_ids && cpu_possible(cpu))
		*kind = per_cpu(pfm_kind, cpu);
}

void pfm_set_cpu_kind(u32 cpu, const struct pfm_cpu_kind *kind)
{
	if (cpu < nr_cpu_ids && cpu_possible(cpu))
		per_cpu(pfm_kind, cpu) = *kind;
}

/*
 * For each CPU, the value of NR_RESERVATIONS (src/perfmon/reservation.rs) when reset_pmu_once()
 * last reset the PMU of the CPU. NR_RESERVATIONS counts the reservations of the PMU.
 */
DEFINE_PER_CPU(u64, pfm_reset_for);

u64 pfm_get_pmu_reset_number(u32 cpu)
{
	return READ_ONCE(per_cpu(pfm_reset_for, cpu));
}

/*
 * Checks the value of EXTABLE_TYPE in src/perfmon/msr.rs. An exception-table entry of the type
 * EXTABLE_TYPE makes the kernel set ecx to -1 if rdpmc, rdmsr or wrmsr faults.
 */
static_assert((EX_TYPE_IMM_REG | EX_DATA_REG(1)) == (17 | 1 << 8) && EX_DATA_IMM_SHIFT == 16);

/*
 * Logs that a context ended because an access to one of its registers faulted on this CPU. Context:
 * interrupts off, not in an NMI, no lock of the scheduler held.
 */
void pfm_log_register_fault(void)
{
	pr_notice_ratelimited("perfmon: a context ended: CPU %d lacks some of its registers; see Documentation/perfmon.md, \"Processors that differ\"\n",
			      smp_processor_id());
}

/*
 * Logs that @cpu lacks registers of a context. If @cpu is -1, logs that every CPU lacks some of
 * them. Called in process context.
 */
void pfm_log_missing_registers(int cpu)
{
	if (cpu < 0)
		pr_notice_ratelimited("perfmon: no CPU has all registers of a context; see /proc/perfmon_map\n");
	else
		pr_notice_ratelimited("perfmon: CPU %d does not have all registers of a context; see /proc/perfmon_map\n",
				      cpu);
}

bool pfm_msr_exists(u32 msr)
{
	u64 value;

	return !rdmsrq_safe(msr, &value);
}

/*
 * Returns true if the counter @msr exists and keeps a value that is written to it. Returns false in
 * a virtual machine whose CPUID reports counters that do not work. The caller has reserved the
 * counter. Leaves the counter at 0, because its old value can be wider than the 32 bits that a
 * write of IA32_PMCn sets. perf also clears the counters that it has used.
 */
bool pfm_msr_keeps_value(u32 msr)
{
	u64 before, after, value;
	bool holds = false;

	preempt_disable();
	if (!rdmsrq_safe(msr, &before)) {
		/* A write of IA32_PMCn extends the sign of bit 31, so leave bit 31 clear. */
		value = (before ^ 0xabcd) & S32_MAX;
		holds = !wrmsrq_safe(msr, value) && !rdmsrq_safe(msr, &after) && after == value;
		wrmsrq_safe(msr, 0);
	}
	preempt_enable();
	return holds;
}

/*
 * Reserves an event select register. perf and the NMI watchdog use the same interface, so they and
 * this module exclude each other. Returns false if the register is reserved already.
 */
bool pfm_reserve_msr(u32 msr)
{
	return reserve_evntsel_nmi(msr);
}

void pfm_release_msr(u32 msr)
{
	release_evntsel_nmi(msr);
}

int pfm_create_map_file(int (*show)(struct seq_file *seq, void *unused))
{
	return proc_create_single("perfmon_map", 0444, NULL, show) ? 0 : -ENOMEM;
}

void pfm_remove_map_file(void)
{
	remove_proc_entry("perfmon_map", NULL);
}

/*
 * The debugfs directories perfmon/NAME/pmcN and pmdN describe the registers of the PMU NAME. The
 * files in perfmon/NAME read a register table, which must exist until pfm_tree_remove_pmu().
 */
static struct dentry *tree;

void pfm_tree_create(void)
{
	tree = debugfs_create_dir("perfmon", NULL);
}

void pfm_tree_remove(void)
{
	debugfs_remove(tree);
}

struct dentry *pfm_tree_subdir(const char *name)
{
	return debugfs_create_dir(name, tree);
}

static void add_row(struct dentry *dir, const char *kind, unsigned int n,
		    const struct perfmon_register *row)
{
	char name[16];

	if (!row->type)
		return;
	snprintf(name, sizeof(name), "%s%u", kind, n);
	dir = debugfs_create_dir(name, dir);
	debugfs_create_str("name", 0444, dir, (char **)&row->name);
	debugfs_create_x64("addr", 0444, dir, (u64 *)&row->address);
	debugfs_create_x64("dfl_val", 0444, dir, (u64 *)&row->reset);
	debugfs_create_x64("rsvd_msk", 0444, dir, (u64 *)&row->reserved);
	debugfs_create_x64("dep_pmcs", 0444, dir, (u64 *)&row->pmcs);
	debugfs_create_x16("type", 0444, dir, (u16 *)&row->type);
	debugfs_create_u16("width", 0444, dir, (u16 *)&row->width);
}

void pfm_tree_add_pmu(const struct perfmon_pmu *pmu)
{
	struct dentry *dir = debugfs_create_dir(pmu->name, tree);
	unsigned int n;

	for (n = 0; n < pmu->nr_pmcs; n++)
		add_row(dir, "pmc", pmu->first + n, &pmu->pmcs[n]);
	for (n = 0; n < pmu->nr_pmds; n++)
		add_row(dir, "pmd", pmu->first + n, &pmu->pmds[n]);
}

void pfm_tree_remove_pmu(const struct perfmon_pmu *pmu)
{
	debugfs_lookup_and_remove(pmu->name, tree);
}

/*
 * Workqueue that frees contexts, checks permissions, reads counters periodically, and detaches
 * unused probes. The workqueue is unbound: a task that occupies one CPU cannot delay the work.
 */
struct workqueue_struct *pfm_work;
/*
 * Workqueue for work that has to run on a certain CPU. A task that occupies this CPU can delay the
 * work.
 */
static struct workqueue_struct *cpu_work;

/*
 * Periodic work that calls pfm_wrap_timer_work() in src/perfmon/contexts/callbacks.rs, to read the
 * counters of all CPUs before a counter can wrap.
 */
static unsigned int wrap_timer_ms;
static void wrap_timer_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(wrap_timer, wrap_timer_work);

static void wrap_timer_work(struct work_struct *work)
{
	unsigned int every = READ_ONCE(wrap_timer_ms);

	pfm_wrap_timer_work();
	if (every)
		queue_delayed_work(pfm_work, &wrap_timer, msecs_to_jiffies(every));
}

void pfm_wrap_timer_start(unsigned int milliseconds)
{
	WRITE_ONCE(wrap_timer_ms, milliseconds);
	mod_delayed_work(pfm_work, &wrap_timer, msecs_to_jiffies(milliseconds));
}

/*
 * Stops the periodic work, but does not wait for it. If wrap_timer_work() is already running, it
 * may queue the work one last time. A late run of the periodic work is harmless, because it only
 * updates the values of loaded contexts and delivers their overflows.
 */
void pfm_wrap_timer_stop(void)
{
	WRITE_ONCE(wrap_timer_ms, 0);
	cancel_delayed_work(&wrap_timer);
}

static void idle_probes_work(struct work_struct *work)
{
	pfm_detach_idle_probes();
}

static DECLARE_DELAYED_WORK(idle, idle_probes_work);

/*
 * Queues a call of pfm_detach_idle_probes() after @milliseconds. If a call is already queued, its
 * delay starts again.
 */
void pfm_idle_queue(unsigned int milliseconds)
{
	mod_delayed_work(pfm_work, &idle, msecs_to_jiffies(milliseconds));
}

static void rdpmc_init_works(void);

int pfm_start_workqueues(void)
{
	rdpmc_init_works();
	pfm_work = alloc_workqueue("perfmon", WQ_UNBOUND, 0);
	cpu_work = alloc_workqueue("perfmon_cpu", WQ_PERCPU, 0);
	if (pfm_work && cpu_work)
		return 0;
	if (pfm_work)
		destroy_workqueue(pfm_work);
	if (cpu_work)
		destroy_workqueue(cpu_work);
	return -ENOMEM;
}

/*
 * Cancels or waits for all work, and destroys the workqueues. During and after this call, no other
 * function may queue work.
 */
void pfm_stop_workqueues(void)
{
	WRITE_ONCE(wrap_timer_ms, 0);
	cancel_delayed_work_sync(&wrap_timer);
	cancel_delayed_work_sync(&idle);
	rcu_barrier();
	destroy_workqueue(pfm_work);
	destroy_workqueue(cpu_work);
}

/*
 * Permission to execute RDPMC is given to an address space. As in perf, the mappings that permit
 * RDPMC are counted in mm->context.perf_rdpmc_allowed. A switch to an address space in which
 * perf_rdpmc_allowed is 0 clears CR4.PCE. A switch to an address space in which RDPMC is allowed
 * sets CR4.PCE, and makes perf clear the counters that perf has used. A module cannot write CR4. To
 * make the kernel set CR4.PCE on the caller's CPU, a worker on this CPU switches three times: to
 * the address space of init, to the caller's address space, and to the address space of init again.
 */
struct rdpmc_switch_work {
	struct work_struct work;
	struct mm_struct *other, *mine;
	struct completion done;
	/* True if CR4.PCE was set while the worker used the caller's address space. */
	bool works;
	refcount_t refs;
};

/* Returns true if user code on this CPU may execute RDPMC. */
static bool is_rdpmc_enabled(void)
{
	unsigned long cr4;

	asm volatile("mov %%cr4, %0" : "=r" (cr4));
	return cr4 & X86_CR4_PCE;
}

static void put_rdpmc_switch_work(struct rdpmc_switch_work *switch_work)
{
	if (!refcount_dec_and_test(&switch_work->refs))
		return;
	mmput_async(switch_work->other);
	mmput_async(switch_work->mine);
	kfree(switch_work);
}

static void switch_mm_and_check_rdpmc(struct work_struct *work)
{
	struct rdpmc_switch_work *switch_work = container_of(work, struct rdpmc_switch_work, work);

	kthread_use_mm(switch_work->other);
	kthread_unuse_mm(switch_work->other);
	kthread_use_mm(switch_work->mine);
	switch_work->works = is_rdpmc_enabled();
	kthread_unuse_mm(switch_work->mine);
	kthread_use_mm(switch_work->other);
	kthread_unuse_mm(switch_work->other);
	complete(&switch_work->done);
	put_rdpmc_switch_work(switch_work);
}

static struct mm_struct *get_init_mm(void)
{
	struct task_struct *init;
	struct mm_struct *mm = NULL;

	rcu_read_lock();
	init = pid_task(find_pid_ns(1, &init_pid_ns), PIDTYPE_PID);
	if (init)
		mm = get_task_mm(init);
	rcu_read_unlock();
	return mm;
}

/*
 * Makes this CPU switch to the address space of init. When the CPU switches back to the task that
 * ran before the worker, the switch to the task's address space sets CR4.PCE. Each CPU has only one
 * work item, so that work does not accumulate while a task of higher priority occupies the CPU.
 */
static void rdpmc_leave_mm(struct work_struct *work)
{
	struct mm_struct *other = get_init_mm();

	if (!other)
		return;
	kthread_use_mm(other);
	kthread_unuse_mm(other);
	mmput(other);
}

static DEFINE_PER_CPU(struct work_struct, rdpmc_leave_works);

static void rdpmc_init_works(void)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		INIT_WORK(per_cpu_ptr(&rdpmc_leave_works, cpu), rdpmc_leave_mm);
}

/*
 * Maximum time in milliseconds that rdpmc_switch_cpu() waits for the worker of a CPU. A task of
 * higher priority may occupy this CPU.
 */
#define RDPMC_WAIT_MS	100

/*
 * Makes a CPU switch from the address space of init to that of the caller, and back.
 * Stores in @works whether CR4.PCE was set in the caller's address space. Returns -ENOMEM, or
 * -EBUSY if the worker did not run within RDPMC_WAIT_MS; the worker then runs later. May sleep.
 */
static int rdpmc_switch_cpu(unsigned int cpu, bool *works)
{
	struct rdpmc_switch_work *switch_work = kzalloc_obj(*switch_work, GFP_KERNEL_ACCOUNT);
	bool done;

	if (!switch_work)
		return -ENOMEM;
	switch_work->other = get_init_mm();
	switch_work->mine = get_task_mm(current);
	if (!switch_work->other || !switch_work->mine || switch_work->other == switch_work->mine) {
		done = switch_work->other && switch_work->other == switch_work->mine;
		if (switch_work->other)
			mmput(switch_work->other);
		if (switch_work->mine)
			mmput(switch_work->mine);
		kfree(switch_work);
		return done ? 0 : -EBUSY;
	}
	init_completion(&switch_work->done);
	/* switch_mm_and_check_rdpmc() and this function hold one reference to @switch_work each. */
	refcount_set(&switch_work->refs, 2);
	INIT_WORK(&switch_work->work, switch_mm_and_check_rdpmc);
	queue_work_on(cpu, cpu_work, &switch_work->work);
	done = wait_for_completion_killable_timeout(&switch_work->done,
						    msecs_to_jiffies(RDPMC_WAIT_MS)) > 0;
	if (done)
		*works = switch_work->works;
	put_rdpmc_switch_work(switch_work);
	return done ? 0 : -EBUSY;
}

/*
 * Allows RDPMC in the caller's address space. Returns false if the administrator has forbidden
 * RDPMC. A CPU that uses another address space sets CR4.PCE when it switches to the caller's
 * address space. A CPU that already uses the caller's address space sets CR4.PCE after
 * rdpmc_leave_mm() has run on this CPU. The flag PERFMON_SELF_RDPMC of struct perfmon_self is set
 * only while the thread runs on a CPU on which CR4.PCE is set. May sleep.
 */
bool pfm_rdpmc_allow(void)
{
	unsigned int cpu;
	bool works = true;

	/*
	 * If CR4.PCE may be 0 on CPUs that use this address space, make these CPUs leave and
	 * re-enter the address space, which sets CR4.PCE.
	 */
	if (atomic_inc_return(&current->mm->context.perf_rdpmc_allowed) == 1 ||
	    !is_rdpmc_enabled()) {
		/*
		 * This barrier orders the increment before the read of mm_cpumask(): a CPU
		 * that enters the mask later sees the increment when it switches to this mm.
		 */
		smp_mb();
		for_each_cpu_and(cpu, mm_cpumask(current->mm), cpu_online_mask)
			queue_work_on(cpu, cpu_work, per_cpu_ptr(&rdpmc_leave_works, cpu));
		rdpmc_switch_cpu(raw_smp_processor_id(), &works);
	}
	if (works)
		return true;
	atomic_dec(&current->mm->context.perf_rdpmc_allowed);
	return false;
}

/*
 * Makes perf clear the counters that it has used on a CPU. perf clears them only when the CPU
 * switches to an address space that may use RDPMC. To make perf clear the counters, this function
 * permits RDPMC in the caller's address space until it returns. Does nothing if the CPU is offline.
 * Returns -ENOMEM, or -EBUSY if the worker did not run within RDPMC_WAIT_MS. May sleep.
 */
int pfm_flush_perf_dirty_counters(unsigned int cpu)
{
	bool works;
	int error;

	if (!current->mm || cpu >= nr_cpu_ids || !cpu_online(cpu))
		return 0;
	atomic_inc(&current->mm->context.perf_rdpmc_allowed);
	error = rdpmc_switch_cpu(cpu, &works);
	atomic_dec(&current->mm->context.perf_rdpmc_allowed);
	return error;
}

/* Adds a permission for RDPMC to @mm, because mremap() has copied a mapping that permits RDPMC. */
void pfm_rdpmc_add_permission(struct mm_struct *mm)
{
	atomic_inc(&mm->context.perf_rdpmc_allowed);
}

/*
 * Removes one permission for RDPMC from @mm. After the last permission is removed, a CPU clears
 * CR4.PCE at its next switch of address spaces.
 */
void pfm_rdpmc_forbid(struct mm_struct *mm)
{
	atomic_dec(&mm->context.perf_rdpmc_allowed);
}
