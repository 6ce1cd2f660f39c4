/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions that sys/{access,account,msr,pmu,rawlock,sched,selfpage,threads,wrap_timer}.rs call.
 * sys/shim.rs declares these functions for Rust.
 */
#ifndef _PERFCOUNTERS_SHIM_PMU_H
#define _PERFCOUNTERS_SHIM_PMU_H

#include <linux/percpu.h>
#include <linux/spinlock_types.h>
#include <linux/types.h>

struct cred;
struct dentry;
struct linux_binprm;
struct mm_struct;
struct perfmon_pmu;
struct pfm_thread_entry;
struct pid;
struct seq_file;
struct task_struct;
struct vm_area_struct;
struct vm_operations_struct;

DECLARE_PER_CPU(unsigned long[2], pfm_loaded);
DECLARE_PER_CPU(u64[2], pfm_counting);
/*
 * Registers and core type of a CPU. CpuKind in src/perfcounters/cpu_kinds.rs has the layout of this
 * structure.
 */
struct pfm_kind {
	u32 id;
	u32 core;
	u64 pmcs;
	u64 pmds;
};

DECLARE_PER_CPU(struct pfm_kind, pfm_kind);
void pfm_kind_of(u32 cpu, struct pfm_kind *kind);
void pfm_kind_set(u32 cpu, const struct pfm_kind *kind);
u64 pfm_run_time(const struct task_struct *task);

DECLARE_PER_CPU(u64, pfm_reset_for);
u64 pfm_reset_for_of(u32 cpu);

void pfm_lock_init(raw_spinlock_t *lock);
void pfm_log_fault(void);
void pfm_log_lacking(int cpu);
bool pfm_msr_exists(u32 msr);
bool pfm_msr_keeps_value(u32 msr);
bool pfm_reserve_msr(u32 msr);
void pfm_release_msr(u32 msr);

/*
 * Resources that are counted for each user. Resource in sys/shim.rs has the values of this
 * enumeration.
 */
enum pfm_resource {
	PFM_BYTES,
	/* Processes that are traced, or that have ended and are not read yet. */
	PFM_PROCESSES,
	/* PFM_TRACES: traces that have not ended. PFM_HELD_TRACES: all traces that exist. */
	PFM_TRACES,
	PFM_HELD_TRACES,
	PFM_CONTEXTS,
	/* Concurrent calls of PERFTRACE_OPEN; not shown in debugfs. */
	PFM_PERMISSION_CHECKS,
	PFM_NR_RESOURCES,
};

struct pfm_amount {
	enum pfm_resource resource;
	u64 nr;
};

bool pfm_account_is_unlimited(void);
bool pfm_account_cred_is_unlimited(const struct cred *cred);
u64 pfm_account_bytes(void);
int pfm_account_add(const struct cred *cred, struct pfm_amount more, u64 most);
void pfm_account_sub(const struct cred *cred, struct pfm_amount less);
void pfm_account_show(struct dentry *tree);
void pfm_account_line(struct seq_file *seq, u32 uid, u64 bytes);
int pfm_map_create(int (*show)(struct seq_file *seq, void *unused));
void pfm_map_remove(void);
void pfm_tree_create(void);
void pfm_tree_add_pmu(const struct perfmon_pmu *pmu);
void pfm_tree_remove_pmu(const struct perfmon_pmu *pmu);
void pfm_tree_remove(void);
extern struct workqueue_struct *pfm_work;
int pfm_work_start(void);
void pfm_work_end(void);
void pfm_idle_queue(unsigned int milliseconds);
void pfm_wrap_timer_start(unsigned int milliseconds);
void pfm_wrap_timer_stop(void);
void pfm_power_register(void (*callback)(bool suspend));
void pfm_power_unregister(void);
int pfm_vma_self_page(struct vm_area_struct *vma, const struct vm_operations_struct *ops);
bool pfm_rdpmc_allow(void);
int pfm_flush_perf_dirty_counters(void);
int pfm_threads_init(void);
void pfm_threads_destroy(void);
struct pfm_thread_entry *pfm_thread_entry_new(void);
void pfm_thread_entry_free(struct pfm_thread_entry *entry);
int pfm_thread_add(struct pfm_thread_entry *entry, unsigned long task, const void *context);
void pfm_thread_remove(struct pfm_thread_entry *entry);
const void *pfm_thread_find(unsigned long task);
void pfm_rdpmc_keep(struct mm_struct *mm);
void pfm_rdpmc_forbid(struct mm_struct *mm);
int pfm_procfs_mount(void);
void pfm_procfs_unmount(void);
bool pfm_may_watch(struct task_struct *task);
int pfm_check_access(struct task_struct *task, bool attach);
struct pid *pfm_current_process(void);
bool pfm_may_stop_current(struct pid *process, bool ask_lsm);
int pfm_check_access_as(const struct cred *cred, struct task_struct *task, bool attach);
int pfm_check_cred_access(const struct cred *cred);
bool pfm_has_rights_of(const struct cred *cred);
const struct cred *pfm_get_current_cred(void);

/*
 * Snapshot of a thread's credentials and program, with references. AccessSnapshot in sys/shim.rs
 * has the layout of this structure.
 */
struct pfm_access_snapshot {
	const struct cred *cred;
	struct task_exec_state *state;
	u32 dumpable;
};

int pfm_snapshot_take(struct pfm_access_snapshot *snapshot, struct task_struct *task);
void pfm_snapshot_put(struct pfm_access_snapshot *snapshot);
bool pfm_snapshot_is_unchanged(const struct pfm_access_snapshot *snapshot,
			       struct task_struct *task);
bool pfm_snapshot_was_unchanged(const struct pfm_access_snapshot *snapshot,
				struct task_struct *task);
bool pfm_snapshot_same_program(const struct pfm_access_snapshot *snapshot,
			       struct task_struct *task);
bool pfm_ptrace_allows(const struct cred *cred, struct task_struct *task,
		       const struct pfm_access_snapshot *snapshot);
bool pfm_is_kernel_thread(const struct task_struct *task);
bool pfm_is_exiting(const struct task_struct *task);
bool pfm_may_monitor_kernel(void);
u64 pfm_thread_pointer(void);
int pfm_running_cpu(const struct task_struct *task);
bool pfm_exec_is_secret(const struct linux_binprm *bprm);
void pfm_preempt_disable(void);
void pfm_preempt_enable(void);

/* Functions that sys/wrap_timer.rs defines in Rust. */
void pfm_wrap_timer_work(void);
void pfm_idle_work(void);

#endif
