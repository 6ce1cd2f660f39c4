/* SPDX-License-Identifier: GPL-2.0 */
/* What sys/{msr,rawlock,sched,pmu}.rs call in C; sys/shim.rs declares it, too. */
#ifndef _PERFCOUNTERS_SHIM_PMU_H
#define _PERFCOUNTERS_SHIM_PMU_H

#include <linux/percpu.h>
#include <linux/spinlock_types.h>
#include <linux/types.h>

struct linux_binprm;
struct seq_file;
struct task_struct;

DECLARE_PER_CPU(void *, pfm_loaded);

void pfm_lock_init(raw_spinlock_t *lock);
void pfm_wrmsr(u32 msr, u64 value);
u64 pfm_rdpmc(u32 counter);
bool pfm_msr_holds(u32 msr);
bool pfm_reserve(u32 msr);
void pfm_release(u32 msr);
int pfm_map_create(int (*show)(struct seq_file *seq, void *unused));
void pfm_map_remove(void);
bool pfm_same_process(const struct task_struct *task);
bool pfm_is_kernel_thread(const struct task_struct *task);
bool pfm_is_exiting(const struct task_struct *task);
bool pfm_exec_is_secret(const struct linux_binprm *bprm);
void pfm_preempt_disable(void);
void pfm_preempt_enable(void);

#endif
