/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions that Rust code calls: wrappers of macros, of inline functions and of symbols that
 * Rust code cannot use. bindgen (src/Kbuild.bindgen) makes declarations for Rust from this file.
 */
#ifndef _PERFCOUNTERS_HELPERS_H
#define _PERFCOUNTERS_HELPERS_H

#include <linux/irq_work.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/spinlock_types.h>
#include <linux/task_work.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#ifdef __BINDGEN__
#include <linux/netdevice.h>
#endif

struct cred;
struct fasync_struct;
struct irqaction;
struct linux_binprm;
struct mm_struct;
struct net_device;
struct pfc_power_registration;
struct pid;
struct sk_buff;
struct task_exec_state;
struct task_struct;
struct tracepoint;
struct vm_area_struct;
struct vm_operations_struct;

unsigned long pfc_virt_pfn(const void *p);
bool pfc_may_sleep(void);
u32 pfc_tsc_khz(void);
u32 pfc_tsc_ns_scale(void);
int pfc_vma_noexec(struct vm_area_struct *vma);
int pfc_vma_readonly(struct vm_area_struct *vma,
		     const struct vm_operations_struct *ops);
struct tracepoint *pfc_tracepoint_find(const char *name);
void pfc_tracepoint_sync(void);
bool pfc_irq_is_first(unsigned int irq, const struct irqaction *action);
struct pfc_power_registration *pfc_power_register(void (*callback)(bool suspend));
void pfc_power_unregister(struct pfc_power_registration *power);
void pfc_rtnl_lock(void);
void pfc_rtnl_unlock(void);
struct net_device *pfc_netdev_next(struct net_device *dev);
/*
 * Bits that pfc_netdev_change_of_event() returns for a notification: the interface was removed, or
 * the interface was added. For a renamed interface, PFC_NETDEV_REMOVED and PFC_NETDEV_ADDED are
 * set.
 */
#define PFC_NETDEV_REMOVED	1
#define PFC_NETDEV_ADDED	2
unsigned int pfc_netdev_index(const struct net_device *dev);
unsigned int pfc_netdev_name(const struct net_device *dev, char *name);
unsigned int pfc_netdev_change_of_event(unsigned long event, const struct net_device *dev);
bool pfc_netdev_has_rx_tracepoint(const struct net_device *dev);
struct net_device *pfc_netdev_of_notification(void *info);
struct net_device *pfc_skb_dev(const struct sk_buff *skb);
struct net_device *pfc_skb_receiving_dev(const struct sk_buff *skb);
u32 pfc_netdev_wire_len(const struct net_device *dev, u32 len);
u32 pfc_skb_wire_len(const struct sk_buff *skb);
bool pfc_skb_is_rx_dropped(const struct sk_buff *skb);

u64 pfc_monotonic_ns(void);
u64 pfc_hrtimer_resolution_ns(void);
u32 pfc_stable_tsc_khz(void);
u64 pfc_local_clock(void);
s64 pfc_time_namespace_offset_ns(void);

void pfc_lock_init(raw_spinlock_t *lock);
void pfc_preempt_disable(void);
void pfc_preempt_enable(void);
bool pfc_in_nmi(void);

u64 pfc_idle_ns(unsigned int cpu);
bool pfc_cpu_online(unsigned int cpu);

u64 pfc_task_cpu_time_ns(const struct task_struct *task);
int pfc_running_cpu(const struct task_struct *task);
u64 pfc_thread_pointer(void);
bool pfc_is_kernel_thread(const struct task_struct *task);
bool pfc_is_exiting(const struct task_struct *task);
bool pfc_exec_gains_rights_or_unreadable(const struct linux_binprm *bprm);
bool pfc_in_syscall(struct task_struct *task);
bool pfc_has_ended(struct task_struct *task);
bool pfc_is_dead(struct task_struct *task);
bool pfc_is_in_sched_yield(struct task_struct *task);
bool pfc_is_i386_syscall(void);
bool pfc_is_compat_syscall(void);

/* The real user id of a task, and the ids of the task, its process and its parent process. */
struct pfc_task_ids {
	u32 uid, pid, tgid, ppid;
	/*
	 * Not 0 if the task was reaped: the task has no pid any more, and its last context switch
	 * follows soon or is over.
	 */
	u32 reaped;
};

void pfc_task_ids(struct task_struct *task, bool initial, struct pfc_task_ids *ids);
void pfc_visit_all_tasks(void (*each)(struct task_struct *task, void *arg), void *arg);
struct task_struct *pfc_get_task_by_initial_pid(u32 pid);
struct task_struct *pfc_get_address_space_leader(void);
struct pid *pfc_pid_get(struct task_struct *leader);
u32 pfc_pid_nr(struct pid *pid);
size_t pfc_pid_bytes(struct pid *pid);
u32 pfc_pid_nr_in_own_ns(struct pid *pid);
u32 pfc_tid_in_own_ns(void);

/* Identity of a process that is traced or that creates a trace. */
struct pfc_identity {
	/* The effective user id in the initial user namespace. */
	u32 uid;
	char comm[16];
};

void pfc_read_identity(struct pfc_identity *identity, struct task_struct *task);
bool pfc_has_fatal_signal(void);
u32 pfc_uid_in_caller_ns(u32 uid);

struct mm_struct *pfc_mm_get(void);
void pfc_mm_put(struct mm_struct *mm);

/* Access checks, defined in access.c. */
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

/* Memory and object limits per user, defined in account.c. */

/* Resources that are counted and limited for each user. */
enum pfc_resource {
	PFC_BYTES,
	/* Processes that are traced, or that have ended and are still in a trace. */
	PFC_PROCESSES,
	/*
	 * PFC_TRACES counts the traces that have not ended. PFC_HELD_TRACES counts all traces, also
	 * those that have ended and are not freed yet.
	 */
	PFC_TRACES,
	PFC_HELD_TRACES,
	/* Contexts that exist. */
	PFC_CONTEXTS,
	/*
	 * Concurrent calls of PERFTRACE_OPEN for which the security modules check permission; each
	 * call creates a kernel thread. debugfs does not show PFC_PERMISSION_CHECKS.
	 */
	PFC_PERMISSION_CHECKS,
	PFC_NR_RESOURCES,
};

struct pfc_resource_amount {
	enum pfc_resource resource;
	u64 nr;
};

bool pfc_is_caller_unlimited(void);
bool pfc_is_cred_unlimited(const struct cred *cred);
u64 pfc_user_memory_limit_bytes(void);
int pfc_charge_user_accounts(const struct cred *cred, struct pfc_resource_amount more, u64 most);
void pfc_uncharge_user_accounts(const struct cred *cred, struct pfc_resource_amount less);
void pfc_account_file_create(void);
void pfc_account_file_remove(void);

/* Notifiers, which wake readers, defined in notifier.c. */

/**
 * struct pfc_notifier - wakes readers and pollers, and sends SIGIO
 * @readers: the threads that wait
 * @wake_work: wakes the readers as soon as interrupts are on
 * @fasync: the files whose owners get SIGIO
 *
 * Readers can be woken from any context, including NMIs.
 */
struct pfc_notifier {
	wait_queue_head_t readers;
	struct irq_work wake_work;
	struct fasync_struct *fasync;
};

void pfc_notifier_init(struct pfc_notifier *notifier, void (*work)(struct irq_work *work));
void pfc_notifier_wake(struct pfc_notifier *notifier);
struct pfc_notifier *pfc_notifier_new(void);
void pfc_notifier_free(struct pfc_notifier *notifier);
void pfc_notifier_wake_readers(struct pfc_notifier *notifier);
void pfc_notifier_poll(struct pfc_notifier *notifier, struct file *file, poll_table *table);
int pfc_notifier_wait(struct pfc_notifier *notifier, bool (*ready)(void *arg), void *arg);
int pfc_notifier_wait_timeout(struct pfc_notifier *notifier, bool (*ready)(void *arg), void *arg,
			      u64 nanoseconds);
int pfc_notifier_fasync(struct pfc_notifier *notifier, int fd, struct file *file, int on);

/*
 * Work of workqueues; and task work: functions that a thread calls before it returns to user mode.
 * The functions of work and of task work are defined in work.c.
 */
void pfc_work_init(struct work_struct *work, work_func_t func);
void pfc_work_queue(struct work_struct *work);

bool pfc_task_work_add_with_owner(struct task_struct *thread, struct callback_head *work,
				  enum task_work_notify_mode how, struct module *owner);

/*
 * Queues a task work of this module for @thread. Returns false if the thread is exiting and runs no
 * task work any more. Callable in any context.
 */
#define pfc_task_work_add(thread, work, how)	\
	pfc_task_work_add_with_owner(thread, work, how, THIS_MODULE)

/*
 * Drops the module reference that pfc_task_work_add() has taken. Each task work calls this macro
 * last.
 */
#define pfc_task_work_done()	module_put(THIS_MODULE)

void pfc_task_works_wait(void);

#endif
