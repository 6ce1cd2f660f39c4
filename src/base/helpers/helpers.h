/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions that Rust code calls: wrappers of macros, of inline functions and of symbols that
 * Rust code cannot use.
 */
#ifndef _PERFCOUNTERS_HELPERS_H
#define _PERFCOUNTERS_HELPERS_H

#include <linux/spinlock_types.h>
#include <linux/types.h>

struct irqaction;
struct linux_binprm;
struct mm_struct;
struct net_device;
struct pfc_power;
struct pid;
struct sk_buff;
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
struct pfc_power *pfc_power_register(void (*callback)(bool suspend));
void pfc_power_unregister(struct pfc_power *power);
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
struct net_device *pfc_skb_receive_dev(const struct sk_buff *skb);
struct net_device *pfc_skb_received_dev(const struct sk_buff *skb);
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
void pfc_for_each_task(void (*each)(struct task_struct *task, void *arg), void *arg);
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

void pfc_identity(struct pfc_identity *identity, struct task_struct *task);
bool pfc_has_fatal_signal(void);
u32 pfc_uid_in_caller_ns(u32 uid);

struct mm_struct *pfc_mm_get(void);
void pfc_mm_put(struct mm_struct *mm);

#endif
