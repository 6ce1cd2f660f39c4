// SPDX-License-Identifier: GPL-2.0
/*
 * For contexts: registers of the processor, their reservation, locks that are
 * taken with interrupts off, /proc.
 */
#include <linux/debugfs.h>
#include <linux/export.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/perf_event.h>
#include <linux/pid_namespace.h>
#include <linux/preempt.h>
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/sched/coredump.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>
#include <linux/syscore_ops.h>
#include <linux/workqueue.h>
#include <asm/fsgsbase.h>
#include <asm/msr.h>
#include <asm/nmi.h>
#include <linux/perfmon.h>
#include "../../../../include/uapi/linux/perfmon.h"
#include "costs.h"
#include "pmu.h"
#include "shim.h"

/* include/linux/perfmon.rs holds the twins of these. */
static_assert(sizeof(struct perfmon_register) == 72);
static_assert(offsetof(struct perfmon_register, pmcs) == 56);
static_assert(sizeof(struct perfmon_pmu) == 112);
/* src/engine/selfpage.rs holds the twin of this. */
static_assert(sizeof(struct perfmon_self) == 48 + PERFMON_SELF_COUNTERS * 24);

/* In Rust: sys/pmu.rs. */
EXPORT_SYMBOL_GPL(perfmon_pmu_register);
EXPORT_SYMBOL_GPL(perfmon_pmu_unregister);

/* Contexts that have the CPU, a thread's and its own: sys/sched.rs. */
DEFINE_PER_CPU(unsigned long[2], pfm_loaded);
DEFINE_PER_CPU(u64[2], pfm_counting);

/* Which registers a CPU has: src/perfcounters/kinds.rs. */
DEFINE_PER_CPU(struct pfm_kind, pfm_kind);

/* Nothing of a CPU that there cannot be. */
void pfm_kind_of(u32 cpu, struct pfm_kind *kind)
{
	if (cpu < nr_cpu_ids && cpu_possible(cpu))
		*kind = per_cpu(pfm_kind, cpu);
}

void pfm_kind_set(u32 cpu, const struct pfm_kind *kind)
{
	if (cpu < nr_cpu_ids && cpu_possible(cpu))
		per_cpu(pfm_kind, cpu) = *kind;
}

/* Nanoseconds, up to the last tick or switch. */
u64 pfm_run_time(const struct task_struct *task)
{
	return READ_ONCE(task->se.sum_exec_runtime);
}

/* Which taking of the PMU a CPU's registers were made quiet for: src/perfcounters/session.rs. */
DEFINE_PER_CPU(u64, pfm_quiet_since);

u64 pfm_quiet_since_of(u32 cpu)
{
	return READ_ONCE(per_cpu(pfm_quiet_since, cpu));
}

void pfm_lock_init(raw_spinlock_t *lock)
{
	raw_spin_lock_init(lock);
}

/* sys/msr.rs has the same number: a fault of rdpmc, rdmsr or wrmsr makes cx all ones. */
static_assert((EX_TYPE_IMM_REG | EX_DATA_REG(1)) == (17 | 1 << 8) && EX_DATA_IMM_SHIFT == 16);

/* Interrupts off; not in an NMI, no lock of the scheduler's held. */
void pfm_say_fault(void)
{
	pr_notice_ratelimited("perfmon: a context ends: CPU %d has not all of its registers; see Documentation/perfmon.md, \"Processors that differ\"\n",
			      smp_processor_id());
}

/* A context that cannot count on this CPU, or on any (-1). Process context. */
void pfm_say_lacking(int cpu)
{
	if (cpu < 0)
		pr_notice_ratelimited("perfmon: no CPU has all registers of a context; /proc/perfmon_map says which CPUs have which\n");
	else
		pr_notice_ratelimited("perfmon: CPU %d does not have all registers of a context; /proc/perfmon_map says which CPUs have which\n",
				      cpu);
}

bool pfm_msr_exists(u32 msr)
{
	u64 value;

	return !rdmsrq_safe(msr, &value);
}

/*
 * Is there a register, that keeps what is written? Virtual machines claim PMUs
 * that they have not. It is not in use; what it held it holds again.
 */
bool pfm_msr_holds(u32 msr)
{
	u64 before, after, value;
	bool holds = false;

	preempt_disable();
	if (!rdmsrq_safe(msr, &before)) {
		value = before ^ 0xabcd;
		holds = !wrmsrq_safe(msr, value) && !rdmsrq_safe(msr, &after) && after == value;
		wrmsrq_safe(msr, before);
	}
	preempt_enable();
	return holds;
}

/* perf and the NMI watchdog ask in the same place. */
bool pfm_reserve(u32 msr)
{
	return reserve_evntsel_nmi(msr);
}

void pfm_release(u32 msr)
{
	release_evntsel_nmi(msr);
}

int pfm_map_create(int (*show)(struct seq_file *seq, void *unused))
{
	return proc_create_single("perfmon_map", 0444, NULL, show) ? 0 : -ENOMEM;
}

void pfm_map_remove(void)
{
	remove_proc_entry("perfmon_map", NULL);
}

/*
 * Either a thread is seen on a CPU, or its next sched_exit_tp sees what was written before:
 * between the scheduler's on_cpu and that is the lock of its context, a full barrier as well.
 */
int pfm_where(const struct task_struct *task)
{
	/* With the lock of the context, in its sched_exit_tp. */
	smp_mb();
	return READ_ONCE(task->on_cpu) ? (int)task_cpu(task) : -1;
}

/* The current thread's, as it has it in user mode. Interrupts or preemption off. */
u64 pfm_thread_pointer(void)
{
	return x86_fsbase_read_cpu();
}

void pfm_preempt_disable(void)
{
	preempt_disable();
}

void pfm_preempt_enable(void)
{
	preempt_enable();
}

/*
 * The descriptions' rows, for people to read: debugfs/perfmon/NAME/pmcN and pmdN.
 * A file is a field of the row, which stays until its branch is cut.
 */
static struct dentry *tree;

void pfm_tree_create(void)
{
	tree = debugfs_create_dir("perfmon", NULL);
	pfm_account_show(tree);
}

void pfm_tree_remove(void)
{
	debugfs_remove(tree);
}

struct dentry *pfm_tree_branch(const char *name)
{
	return debugfs_create_dir(name, tree);
}

static void grow(struct dentry *dir, const char *kind, unsigned int n,
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

void pfm_tree_grow(const struct perfmon_pmu *pmu)
{
	struct dentry *dir = debugfs_create_dir(pmu->name, tree);
	unsigned int n;

	for (n = 0; n < pmu->nr_pmcs; n++)
		grow(dir, "pmc", pmu->first + n, &pmu->pmcs[n]);
	for (n = 0; n < pmu->nr_pmds; n++)
		grow(dir, "pmd", pmu->first + n, &pmu->pmds[n]);
}

void pfm_tree_cut(const struct perfmon_pmu *pmu)
{
	debugfs_lookup_and_remove(pmu->name, tree);
}

/*
 * Work that no CPU's user can keep from being done: of no CPU of its own. Contexts that
 * leave, rounds, and what is taken away when nobody has used it for a while.
 */
struct workqueue_struct *pfm_work;
/* Work of a CPU, which its user can put off. */
static struct workqueue_struct *cpu_work;

/* Rounds: counters are looked at before they can turn over: src/perfcounters/session.rs */
static unsigned int rounds_every;
static void rounds_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(rounds, rounds_work);

static void rounds_work(struct work_struct *work)
{
	unsigned int every = READ_ONCE(rounds_every);

	pfm_round();
	if (every)
		queue_delayed_work(pfm_work, &rounds, msecs_to_jiffies(every));
}

void pfm_rounds_start(unsigned int milliseconds)
{
	WRITE_ONCE(rounds_every, milliseconds);
	mod_delayed_work(pfm_work, &rounds, msecs_to_jiffies(milliseconds));
}

/* One that runs is the last, and finds nothing to look at. */
void pfm_rounds_stop(void)
{
	WRITE_ONCE(rounds_every, 0);
	cancel_delayed_work(&rounds);
}

static void idle_work(struct work_struct *work)
{
	pfm_idle();
}

static DECLARE_DELAYED_WORK(idle, idle_work);

/* pfm_idle() is called once nobody has asked for it for so long. */
void pfm_idle_later(unsigned int milliseconds)
{
	mod_delayed_work(pfm_work, &idle, msecs_to_jiffies(milliseconds));
}

int pfm_work_start(void)
{
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

/* Nobody queues any; waits for all. */
void pfm_work_end(void)
{
	WRITE_ONCE(rounds_every, 0);
	cancel_delayed_work_sync(&rounds);
	cancel_delayed_work_sync(&idle);
	rcu_barrier();
	destroy_workqueue(pfm_work);
	destroy_workqueue(cpu_work);
}

/* The processor forgets its registers when the machine sleeps. */
static void (*sleep_tell)(bool going);

static int sleep_suspend(void *data)
{
	sleep_tell(true);
	return 0;
}

static void sleep_resume(void *data)
{
	sleep_tell(false);
}

static const struct syscore_ops sleep_ops = {
	.suspend = sleep_suspend,
	.resume = sleep_resume,
};

static struct syscore sleep_syscore = { .ops = &sleep_ops };

void pfm_sleep_register(void (*sleep)(bool going))
{
	sleep_tell = sleep;
	register_syscore(&sleep_syscore);
}

void pfm_sleep_unregister(void)
{
	unregister_syscore(&sleep_syscore);
}

int pfm_vma_self(struct vm_area_struct *vma, const struct vm_operations_struct *ops)
{
	int rc = pfc_vma_readonly(vma, ops);

	/* A child has no context, and no right to RDPMC. */
	if (!rc)
		vm_flags_set(vma, VM_DONTCOPY);
	return rc;
}

/*
 * RDPMC, per address space, as perf has it: mm->context says who may, and each
 * switch to another address space sets CR4.PCE by that, and has perf clear counters
 * that it has used. Modules cannot write CR4; so a CPU is made to switch: a
 * worker takes another address space, then the caller's, and lets it go.
 */
struct rdpmc_visits {
	struct mm_struct *other, *mine;
	struct completion done;
	atomic_t left;
	refcount_t holders;
	struct rdpmc_visit {
		struct work_struct work;
		struct rdpmc_visits *all;
	} visit[];
};

static void rdpmc_put(struct rdpmc_visits *all)
{
	if (!refcount_dec_and_test(&all->holders))
		return;
	mmput_async(all->other);
	mmput_async(all->mine);
	kvfree(all);
}

static void rdpmc_switch(struct work_struct *work)
{
	struct rdpmc_visits *all = container_of(work, struct rdpmc_visit, work)->all;

	kthread_use_mm(all->other);
	kthread_unuse_mm(all->other);
	kthread_use_mm(all->mine);
	kthread_unuse_mm(all->mine);
	kthread_use_mm(all->other);
	kthread_unuse_mm(all->other);
	if (atomic_dec_and_test(&all->left))
		complete(&all->done);
	rdpmc_put(all);
}

static struct mm_struct *mm_of_init(void)
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

/* A CPU that its user keeps busy is waited for no longer than this. */
#define RDPMC_WAIT_MS	100

/*
 * On these CPUs, from the caller's address space to another one. EBUSY: some CPU has not in
 * time, and does later. May sleep.
 */
static int rdpmc_switch_on(const struct cpumask *cpus)
{
	unsigned int cpu, nr = 0, most = num_possible_cpus();
	struct rdpmc_visits *all = kvzalloc(struct_size(all, visit, most), GFP_KERNEL_ACCOUNT);
	bool done;

	if (!all)
		return -ENOMEM;
	all->other = mm_of_init();
	all->mine = get_task_mm(current);
	if (!all->other || !all->mine || all->other == all->mine) {
		done = all->other && all->other == all->mine;
		if (all->other)
			mmput(all->other);
		if (all->mine)
			mmput(all->mine);
		kvfree(all);
		return done ? 0 : -EBUSY;
	}
	init_completion(&all->done);
	atomic_set(&all->left, 1);
	refcount_set(&all->holders, 1);
	for_each_cpu_and(cpu, cpus, cpu_online_mask) {
		struct rdpmc_visit *visit = &all->visit[nr++];

		visit->all = all;
		INIT_WORK(&visit->work, rdpmc_switch);
		refcount_inc(&all->holders);
		atomic_inc(&all->left);
		queue_work_on(cpu, cpu_work, &visit->work);
	}
	if (atomic_dec_and_test(&all->left))
		complete(&all->done);
	done = wait_for_completion_killable_timeout(&all->done,
						    msecs_to_jiffies(RDPMC_WAIT_MS)) > 0;
	rdpmc_put(all);
	return done ? 0 : -EBUSY;
}

static bool rdpmc_works(void)
{
	unsigned long cr4;

	asm volatile("mov %%cr4, %0" : "=r" (cr4));
	return cr4 & X86_CR4_PCE;
}

/*
 * Lets the caller's address space use RDPMC, if that can be. CPUs that do not have it
 * switch to it before they do. May sleep.
 */
bool pfm_rdpmc_allow(void)
{
	bool done = true;

	/* CR4 of one CPU says something of the others only if it was allowed before. */
	if (atomic_inc_return(&current->mm->context.perf_rdpmc_allowed) == 1 || !rdpmc_works()) {
		/* Barrier: who switches to it from now on sees that; the others are in the mask. */
		smp_mb();
		done = !rdpmc_switch_on(mm_cpumask(current->mm));
	}
	if (done && rdpmc_works())
		return true;
	atomic_dec(&current->mm->context.perf_rdpmc_allowed);
	return false;
}

/*
 * perf remembers counters that it has used, and clears them at some later switch: on this
 * CPU, to which the caller is bound, it does so now. EBUSY: not yet, as its user leaves it no
 * time. May sleep.
 */
int pfm_make_perf_forget(void)
{
	int error;

	if (!current->mm)
		return 0;
	atomic_inc(&current->mm->context.perf_rdpmc_allowed);
	error = rdpmc_switch_on(cpumask_of(raw_smp_processor_id()));
	atomic_dec(&current->mm->context.perf_rdpmc_allowed);
	return error;
}

/* Once more, for a mapping that moves. */
void pfm_rdpmc_keep(struct mm_struct *mm)
{
	atomic_inc(&mm->context.perf_rdpmc_allowed);
}

/* Takes it back, at the next switch to another address space. */
void pfm_rdpmc_forbid(struct mm_struct *mm)
{
	atomic_dec(&mm->context.perf_rdpmc_allowed);
}
