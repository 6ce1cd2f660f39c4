/* SPDX-License-Identifier: GPL-2.0 */
/* What sys/{msr,rawlock,sched,pmu}.rs call in C; sys/shim.rs declares it, too. */
#ifndef _PERFCOUNTERS_SHIM_PMU_H
#define _PERFCOUNTERS_SHIM_PMU_H

#include <linux/percpu.h>
#include <linux/spinlock_types.h>
#include <linux/types.h>

struct linux_binprm;
struct mm_struct;
struct perfmon_pmu;
struct seq_file;
struct task_struct;
struct vm_area_struct;
struct vm_operations_struct;

DECLARE_PER_CPU(unsigned long[2], pfm_loaded);
DECLARE_PER_CPU(u64[2], pfm_counting);

void pfm_lock_init(raw_spinlock_t *lock);
void pfm_wrmsr(u32 msr, u64 value);
u64 pfm_rdmsr(u32 msr);
bool pfm_msr_holds(u32 msr);
bool pfm_reserve(u32 msr);
void pfm_release(u32 msr);
int pfm_map_create(int (*show)(struct seq_file *seq, void *unused));
void pfm_map_remove(void);
void pfm_tree_create(void);
void pfm_tree_grow(const struct perfmon_pmu *pmu);
void pfm_tree_cut(const struct perfmon_pmu *pmu);
void pfm_tree_remove(void);
void pfm_rounds_init(void (*look)(void));
void pfm_rounds_start(unsigned int milliseconds);
void pfm_rounds_stop(void);
void pfm_sleep_register(void (*sleep)(bool going));
void pfm_sleep_unregister(void);
int pfm_vma_self(struct vm_area_struct *vma, const struct vm_operations_struct *ops);
bool pfm_rdpmc_allow(void);
void pfm_make_perf_forget(void);
void pfm_threads_lock(void);
void pfm_threads_unlock(void);
void pfm_rdpmc_keep(struct mm_struct *mm);
void pfm_rdpmc_forbid(struct mm_struct *mm);
bool pfm_may_watch(struct task_struct *task);
bool pfm_is_kernel_thread(const struct task_struct *task);
bool pfm_is_exiting(const struct task_struct *task);
bool pfm_is_locked_down(void);
bool pfm_exec_is_secret(const struct linux_binprm *bprm);
void pfm_preempt_disable(void);
void pfm_preempt_enable(void);

#endif
