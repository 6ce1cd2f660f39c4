// SPDX-License-Identifier: GPL-2.0
/*
 * For contexts: registers of the processor, their reservation, locks that are
 * taken with interrupts off, /proc.
 */
#include <linux/binfmts.h>
#include <linux/cred.h>
#include <linux/debugfs.h>
#include <linux/export.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/pid_namespace.h>
#include <linux/preempt.h>
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/sched/coredump.h>
#include <linux/sched/exec_state.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/security.h>
#include <linux/spinlock.h>
#include <linux/syscore_ops.h>
#include <linux/workqueue.h>
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
static_assert(sizeof(struct perfmon_pmu) == 104);
/* src/engine/selfpage.rs holds the twin of this. */
static_assert(sizeof(struct perfmon_self) == 40 + PERFMON_SELF_COUNTERS * 24);

/* In Rust: sys/pmu.rs. */
EXPORT_SYMBOL_GPL(perfmon_pmu_register);
EXPORT_SYMBOL_GPL(perfmon_pmu_unregister);

/* Contexts that have the CPU, a thread's and its own: sys/sched.rs. */
DEFINE_PER_CPU(unsigned long[2], pfm_loaded);
DEFINE_PER_CPU(u64[2], pfm_counting);

void pfm_lock_init(raw_spinlock_t *lock)
{
	raw_spin_lock_init(lock);
}

/*
 * Bare instructions: no paravirtual call, no tracing, and fit for an NMI. A value that
 * cannot be is a warning of the kernel's, no worse.
 */
void pfm_wrmsr(u32 msr, u64 value)
{
	native_wrmsrq(msr, value);
}

u64 pfm_rdmsr(u32 msr)
{
	return native_rdmsrq(msr);
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
 * The rule of __ptrace_may_access(PTRACE_MODE_READ_REALCREDS), which modules
 * cannot call; without the hooks of security modules.
 */
bool pfm_may_watch(struct task_struct *task)
{
	const struct cred *mine = current_cred(), *its;
	const struct task_exec_state *state;
	bool may;

	if (same_thread_group(current, task))
		return true;
	rcu_read_lock();
	its = __task_cred(task);
	may = (uid_eq(mine->uid, its->euid) && uid_eq(mine->uid, its->suid) &&
	       uid_eq(mine->uid, its->uid) && gid_eq(mine->gid, its->egid) &&
	       gid_eq(mine->gid, its->sgid) && gid_eq(mine->gid, its->gid) &&
	       its->user_ns == mine->user_ns &&
	       cap_issubset(its->cap_permitted, mine->cap_permitted)) ||
	      ns_capable(its->user_ns, CAP_SYS_PTRACE);
	/* Credentials before dumpability: pairs with the barrier in commit_creds(). */
	smp_rmb();
	state = rcu_dereference(task->exec_state);
	may = may && state && (READ_ONCE(state->dumpable) == TASK_DUMPABLE_OWNER ||
			       ns_capable(state->user_ns, CAP_SYS_PTRACE));
	rcu_read_unlock();
	return may;
}

bool pfm_is_kernel_thread(const struct task_struct *task)
{
	return task->flags & PF_KTHREAD;
}

bool pfm_is_exiting(const struct task_struct *task)
{
	return READ_ONCE(task->flags) & PF_EXITING;
}

/* Has the new program more rights than its user, or secrets from him? */
bool pfm_exec_is_secret(const struct linux_binprm *bprm)
{
	return bprm->secureexec || bprm->interp_flags & BINPRM_FLAGS_ENFORCE_NONDUMP;
}
EXPORT_SYMBOL_GPL(pfm_exec_is_secret);

/* An inline function in a kernel without security modules. */
bool pfm_is_locked_down(void)
{
	return security_locked_down(LOCKDOWN_PERF);
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

/* Rounds: counters are looked at before they can turn over: src/perfcounters/session.rs */
static void (*rounds_look)(void);
static unsigned int rounds_every;
static void rounds_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(rounds, rounds_work);

static void rounds_work(struct work_struct *work)
{
	rounds_look();
	schedule_delayed_work(&rounds, msecs_to_jiffies(rounds_every));
}

void pfm_rounds_init(void (*look)(void))
{
	rounds_look = look;
}

void pfm_rounds_start(unsigned int milliseconds)
{
	rounds_every = milliseconds;
	schedule_delayed_work(&rounds, msecs_to_jiffies(milliseconds));
}

void pfm_rounds_stop(void)
{
	cancel_delayed_work_sync(&rounds);
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
 * that it has used. Modules cannot write CR4; so every CPU is made to switch: a
 * worker takes another address space, then the caller's, and lets it go.
 */
static struct mm_struct *rdpmc_other, *rdpmc_mine;

static void rdpmc_switch(struct work_struct *work)
{
	kthread_use_mm(rdpmc_other);
	kthread_unuse_mm(rdpmc_other);
	kthread_use_mm(rdpmc_mine);
	kthread_unuse_mm(rdpmc_mine);
	kthread_use_mm(rdpmc_other);
	kthread_unuse_mm(rdpmc_other);
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

/* On every CPU, from the caller's address space to another one; may sleep. */
static void rdpmc_switch_all(void)
{
	static DEFINE_MUTEX(lock);
	struct work_struct __percpu *works = alloc_percpu(struct work_struct);
	unsigned int cpu;

	if (!works)
		return;
	mutex_lock(&lock);
	rdpmc_mine = current->mm;
	rdpmc_other = mm_of_init();
	if (rdpmc_other && rdpmc_mine && rdpmc_other != rdpmc_mine) {
		for_each_possible_cpu(cpu)
			INIT_WORK(per_cpu_ptr(works, cpu), rdpmc_switch);
		for_each_online_cpu(cpu)
			queue_work_on(cpu, system_percpu_wq, per_cpu_ptr(works, cpu));
		for_each_possible_cpu(cpu)
			flush_work(per_cpu_ptr(works, cpu));
	}
	if (rdpmc_other)
		mmput(rdpmc_other);
	mutex_unlock(&lock);
	free_percpu(works);
}

static bool rdpmc_works(void)
{
	unsigned long cr4;

	asm volatile("mov %%cr4, %0" : "=r" (cr4));
	return cr4 & X86_CR4_PCE;
}

/* Lets the caller's address space use RDPMC, if that can be. May sleep. */
bool pfm_rdpmc_allow(void)
{
	/* CR4 of one CPU says something of the others only if it was allowed before. */
	if (atomic_inc_return(&current->mm->context.perf_rdpmc_allowed) == 1 || !rdpmc_works())
		rdpmc_switch_all();
	if (rdpmc_works())
		return true;
	atomic_dec(&current->mm->context.perf_rdpmc_allowed);
	return false;
}

void pfm_make_perf_forget(void)
{
	if (!current->mm)
		return;
	atomic_inc(&current->mm->context.perf_rdpmc_allowed);
	rdpmc_switch_all();
	atomic_dec(&current->mm->context.perf_rdpmc_allowed);
}

/* Changes of the table of threads: sys/sched.rs. Interrupts are off. */
static DEFINE_RAW_SPINLOCK(threads_lock);

void pfm_threads_lock(void)
{
	raw_spin_lock(&threads_lock);
}

void pfm_threads_unlock(void)
{
	raw_spin_unlock(&threads_lock);
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
