/* SPDX-License-Identifier: GPL-2.0 */
/* Access checks. src/base/helpers.rs declares the same functions for Rust. */
#ifndef _PERFCOUNTERS_ACCESS_H
#define _PERFCOUNTERS_ACCESS_H

#include <linux/types.h>

struct cred;
struct pid;
struct task_exec_state;
struct task_struct;

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
 * Snapshot of a thread's credentials and program (exec_state), with a reference to each.
 * AccessSnapshot in src/base/helpers.rs has the layout of this structure.
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
bool pfm_may_monitor_kernel(void);

#endif
