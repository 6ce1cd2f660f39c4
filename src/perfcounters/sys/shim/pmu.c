// SPDX-License-Identifier: GPL-2.0
/*
 * For contexts: registers of the processor, their reservation, locks that are
 * taken with interrupts off, /proc.
 */
#include <linux/binfmts.h>
#include <linux/export.h>
#include <linux/preempt.h>
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>
#include <asm/msr.h>
#include <asm/nmi.h>
#include <linux/perfmon.h>
#include "pmu.h"

/* include/linux/perfmon.rs holds the twins of these. */
static_assert(sizeof(struct perfmon_register) == 72);
static_assert(offsetof(struct perfmon_register, pmcs) == 56);
static_assert(sizeof(struct perfmon_pmu) == 72);

/* In Rust: sys/pmu.rs. */
EXPORT_SYMBOL_GPL(perfmon_pmu_register);
EXPORT_SYMBOL_GPL(perfmon_pmu_unregister);

/* The context that has the CPU: sys/sched.rs. */
DEFINE_PER_CPU(void *, pfm_loaded);

void pfm_lock_init(raw_spinlock_t *lock)
{
	raw_spin_lock_init(lock);
}

/* Bare instructions: no paravirtual call, no tracing, and fit for an NMI. */
void pfm_wrmsr(u32 msr, u64 value)
{
	native_wrmsrq(msr, value);
}

u64 pfm_rdpmc(u32 counter)
{
	return native_read_pmc(counter);
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

bool pfm_same_process(const struct task_struct *task)
{
	return same_thread_group(current, (struct task_struct *)task);
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

void pfm_preempt_disable(void)
{
	preempt_disable();
}

void pfm_preempt_enable(void)
{
	preempt_enable();
}
