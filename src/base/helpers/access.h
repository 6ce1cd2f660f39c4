/* SPDX-License-Identifier: GPL-2.0 */
/* Access checks. */
#ifndef _PERFCOUNTERS_ACCESS_H
#define _PERFCOUNTERS_ACCESS_H

#include <linux/types.h>

struct cred;
struct pid;
struct task_exec_state;
struct task_struct;

int pfc_mount_private_procfs(void);
void pfc_unmount_private_procfs(void);
bool pfc_ptrace_rule_allows_read(struct task_struct *task);
int pfc_check_access(struct task_struct *task, bool attach);
struct pid *pfc_current_process(void);
bool pfc_may_stop_current(struct pid *process, bool ask_lsm);
int pfc_check_access_as(const struct cred *cred, struct task_struct *task, bool attach);
int pfc_check_access_to_cred_owner(const struct cred *cred);
bool pfc_has_rights_of(const struct cred *cred);
const struct cred *pfc_get_current_cred(void);

/*
 * Snapshot of a thread's credentials, its program (exec_state) and its dumpability. The snapshot
 * holds references to the credentials and to the exec_state.
 */
struct pfc_access_snapshot {
	const struct cred *cred;
	struct task_exec_state *state;
	u32 dumpable;
};

int pfc_snapshot_take(struct pfc_access_snapshot *snapshot, struct task_struct *task);
void pfc_snapshot_put(struct pfc_access_snapshot *snapshot);
bool pfc_snapshot_is_unchanged(const struct pfc_access_snapshot *snapshot,
			       struct task_struct *task);
bool pfc_snapshot_was_unchanged_until_exec(const struct pfc_access_snapshot *snapshot,
					   struct task_struct *task);
bool pfc_snapshot_same_program(const struct pfc_access_snapshot *snapshot,
			       struct task_struct *task);
bool pfc_ptrace_rule_allows_cred(const struct cred *cred, struct task_struct *task,
				 const struct pfc_access_snapshot *snapshot);
bool pfc_may_monitor_kernel(void);

#endif
