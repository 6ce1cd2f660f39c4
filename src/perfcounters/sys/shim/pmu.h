/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions that sys/{msr,rawlock,sched,pmu,threads,rights,account,wake}.rs call. sys/shim.rs
 * declares them for Rust.
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
struct pfm_place;
struct pid;
struct seq_file;
struct task_struct;
struct vm_area_struct;
struct vm_operations_struct;

DECLARE_PER_CPU(unsigned long[2], pfm_loaded);
DECLARE_PER_CPU(u64[2], pfm_counting);
/* Registers and core type of a CPU. Kind in src/perfcounters/kinds.rs has the same layout. */
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

DECLARE_PER_CPU(u64, pfm_quiet_since);
u64 pfm_quiet_since_of(u32 cpu);

void pfm_lock_init(raw_spinlock_t *lock);
void pfm_say_fault(void);
void pfm_say_lacking(int cpu);
bool pfm_msr_exists(u32 msr);
bool pfm_msr_holds(u32 msr);
bool pfm_reserve(u32 msr);
void pfm_release(u32 msr);

/* Resources that are counted for each user. Thing in sys/shim.rs has the same values. */
enum pfm_thing {
	PFM_BYTES,
	/* Processes that are traced, or have ended and are not read yet. */
	PFM_PROCESSES,
	/* PFM_TRACES: traces that have not ended. PFM_HELD: all traces that exist. */
	PFM_TRACES,
	PFM_HELD,
	PFM_CONTEXTS,
	/* Concurrent calls of PERFTRACE_OPEN; not shown in debugfs. */
	PFM_QUESTIONS,
	PFM_THINGS,
};

struct pfm_amount {
	enum pfm_thing thing;
	u64 nr;
};

bool pfm_account_is_free(void);
u64 pfm_account_bytes(void);
int pfm_account_add(const struct cred *cred, struct pfm_amount more, u64 most);
void pfm_account_sub(const struct cred *cred, struct pfm_amount less);
void pfm_account_show(struct dentry *tree);
void pfm_account_line(struct seq_file *seq, u32 uid, u64 bytes);
int pfm_map_create(int (*show)(struct seq_file *seq, void *unused));
void pfm_map_remove(void);
void pfm_tree_create(void);
void pfm_tree_grow(const struct perfmon_pmu *pmu);
void pfm_tree_cut(const struct perfmon_pmu *pmu);
void pfm_tree_remove(void);
extern struct workqueue_struct *pfm_work;
int pfm_work_start(void);
void pfm_work_end(void);
void pfm_idle_later(unsigned int milliseconds);
void pfm_rounds_start(unsigned int milliseconds);
void pfm_rounds_stop(void);
void pfm_sleep_register(void (*sleep)(bool going));
void pfm_sleep_unregister(void);
int pfm_vma_self(struct vm_area_struct *vma, const struct vm_operations_struct *ops);
bool pfm_rdpmc_allow(void);
int pfm_make_perf_forget(void);
int pfm_threads_begin(void);
void pfm_threads_end(void);
struct pfm_place *pfm_place_new(void);
void pfm_place_free(struct pfm_place *place);
int pfm_thread_add(struct pfm_place *place, unsigned long task, const void *context);
void pfm_thread_remove(struct pfm_place *place);
const void *pfm_thread_find(unsigned long task);
void pfm_rdpmc_keep(struct mm_struct *mm);
void pfm_rdpmc_forbid(struct mm_struct *mm);
int pfm_rights_begin(void);
void pfm_rights_end(void);
bool pfm_may_watch(struct task_struct *task);
int pfm_may(struct task_struct *task, bool attach);
struct pid *pfm_my_process(void);
bool pfm_may_stop_me(struct pid *process, bool ask);
int pfm_may_by(const struct cred *cred, struct task_struct *task, bool attach);
int pfm_may_see(const struct cred *cred);
bool pfm_covers(const struct cred *cred);
const struct cred *pfm_rights_of_caller(void);

/*
 * Snapshot of a thread's credentials and program, with references. Seen in sys/shim.rs has the same
 * layout.
 */
struct pfm_seen {
	const struct cred *cred;
	struct task_exec_state *state;
	u32 dumpable;
};

int pfm_see(struct pfm_seen *seen, struct task_struct *task);
void pfm_unsee(struct pfm_seen *seen);
bool pfm_is_as_seen(const struct pfm_seen *seen, struct task_struct *task);
bool pfm_was_as_seen(const struct pfm_seen *seen, struct task_struct *task);
bool pfm_runs_as_seen(const struct pfm_seen *seen, struct task_struct *task);
bool pfm_rule_by(const struct cred *cred, struct task_struct *task, const struct pfm_seen *seen);
bool pfm_is_kernel_thread(const struct task_struct *task);
bool pfm_is_exiting(const struct task_struct *task);
bool pfm_is_kernel_open(void);
u64 pfm_thread_pointer(void);
int pfm_where(const struct task_struct *task);
bool pfm_exec_is_secret(const struct linux_binprm *bprm);
void pfm_preempt_disable(void);
void pfm_preempt_enable(void);

/* Defined in Rust: sys/wake.rs. */
void pfm_round(void);
void pfm_idle(void);

#endif
