// SPDX-License-Identifier: GPL-2.0
/*
 * Functions that return the ids, the user and the state of a task, and the ABI of the current
 * system call.
 */
#include <linux/binfmts.h>
#include <linux/compat.h>
#include <linux/cred.h>
#include <linux/export.h>
#include <linux/mm_types.h>
#include <linux/overflow.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/sched/task_stack.h>
#include <linux/uaccess.h>
#include <linux/uidgid.h>
#include <asm/fsgsbase.h>
#include <asm/syscall.h>
#include <asm/unistd.h>
#include "helpers.h"

/* Returns the CPU time of a task in nanoseconds, as of its last tick or context switch. */
u64 pfc_task_cpu_time_ns(const struct task_struct *task)
{
	return READ_ONCE(task->se.sum_exec_runtime);
}
EXPORT_SYMBOL_NS_GPL(pfc_task_cpu_time_ns, "PERFCOUNTERS");

/*
 * Returns the CPU on which @task runs, or -1 if @task does not run.
 *
 * If the result is -1, the next switch to @task calls the probe of sched_exit_tp, and this probe
 * sees everything that the caller has stored in the monitoring context of @task. The scheduler sets
 * on_cpu before it calls the probe. The probe takes the lock of the context, which is a full
 * barrier, before it loads the state of the context.
 */
int pfc_running_cpu(const struct task_struct *task)
{
	/* Pairs with the lock of the context, which the probe of sched_exit_tp takes. */
	smp_mb();
	return READ_ONCE(task->on_cpu) ? (int)task_cpu(task) : -1;
}
EXPORT_SYMBOL_NS_GPL(pfc_running_cpu, "PERFCOUNTERS");

/*
 * Returns the FS base of the current thread in user mode. Called with interrupts or preemption off.
 */
u64 pfc_thread_pointer(void)
{
	return x86_fsbase_read_cpu();
}
EXPORT_SYMBOL_NS_GPL(pfc_thread_pointer, "PERFCOUNTERS");

bool pfc_is_kernel_thread(const struct task_struct *task)
{
	return task->flags & PF_KTHREAD;
}
EXPORT_SYMBOL_NS_GPL(pfc_is_kernel_thread, "PERFCOUNTERS");

bool pfc_is_exiting(const struct task_struct *task)
{
	return READ_ONCE(task->flags) & PF_EXITING;
}
EXPORT_SYMBOL_NS_GPL(pfc_is_exiting, "PERFCOUNTERS");

/*
 * Returns true if exec gives the new program more rights than the user has, or if the user may not
 * read the program's file.
 */
bool pfc_exec_gains_rights_or_unreadable(const struct linux_binprm *bprm)
{
	return bprm->secureexec || bprm->interp_flags & BINPRM_FLAGS_ENFORCE_NONDUMP;
}
EXPORT_SYMBOL_GPL(pfc_exec_gains_rights_or_unreadable);

/*
 * Returns true if a task that is not running is inside a system call. For a running task and for a
 * kernel thread, the result is always false.
 */
bool pfc_in_syscall(struct task_struct *task)
{
	void *stack = READ_ONCE(task->stack);
	unsigned long number;
	struct pt_regs *regs;

	if (task->on_cpu || task->flags & PF_KTHREAD || !stack)
		return false;
	/*
	 * @regs has the value of task_pt_regs(). The stack of the task may be freed during the
	 * read, so the stack is read with copy_from_kernel_nofault().
	 */
	regs = (struct pt_regs *)(stack + THREAD_SIZE - TOP_OF_KERNEL_STACK_PADDING) - 1;
	if (copy_from_kernel_nofault(&number, &regs->orig_ax, sizeof(number)))
		return false;
	return (int)number != -1;
}
EXPORT_SYMBOL_NS_GPL(pfc_in_syscall, "PERFCOUNTERS");

/*
 * Returns true if the task has passed exit_notify(), so that its last context switch follows soon
 * or is over.
 */
bool pfc_has_ended(struct task_struct *task)
{
	return READ_ONCE(task->exit_state);
}
EXPORT_SYMBOL_NS_GPL(pfc_has_ended, "PERFCOUNTERS");

/*
 * Returns true if the task has set its last state, TASK_DEAD. A task sets TASK_DEAD with preemption
 * off, and preemption stays off until the task's last context switch. An RCU grace period that
 * begins after TASK_DEAD was set therefore waits for the task's last switch.
 */
bool pfc_is_dead(struct task_struct *task)
{
	return READ_ONCE(task->__state) == TASK_DEAD;
}
EXPORT_SYMBOL_NS_GPL(pfc_is_dead, "PERFCOUNTERS");

/*
 * Returns true if a running task entered the kernel by the system call sched_yield(), whose number
 * depends on the ABI of the call.
 */
bool pfc_is_in_sched_yield(struct task_struct *task)
{
	unsigned long number;

	if (task->flags & PF_KTHREAD)
		return false;
	number = task_pt_regs(task)->orig_ax;
#ifdef CONFIG_IA32_EMULATION
	if (task_thread_info(task)->status & TS_COMPAT)
		return (u32)number == __NR_ia32_sched_yield;
#endif
	return (number & ~__X32_SYSCALL_BIT) == __NR_sched_yield;
}
EXPORT_SYMBOL_NS_GPL(pfc_is_in_sched_yield, "PERFCOUNTERS");

/*
 * Returns true if the current system call uses the i386 ABI. System calls of the i386 ABI are made
 * by 32-bit programs, and by 64-bit programs with "int 0x80".
 */
bool pfc_is_i386_syscall(void)
{
	return in_ia32_syscall();
}
EXPORT_SYMBOL_GPL(pfc_is_i386_syscall);

/* Returns true if the current system call uses the i386 or the x32 ABI. */
bool pfc_is_compat_syscall(void)
{
	return in_compat_syscall();
}
EXPORT_SYMBOL_NS_GPL(pfc_is_compat_syscall, "PERFCOUNTERS");

/*
 * Fills in the ids of a task: with @initial, the ids in the initial user and pid namespaces;
 * otherwise, the ids in the caller's namespaces.
 */
void pfc_task_ids(struct task_struct *task, bool initial, struct pfc_task_ids *ids)
{
	struct user_namespace *users = initial ? &init_user_ns : current_user_ns();
	struct pid_namespace *pids = initial ? &init_pid_ns : task_active_pid_ns(current);

	rcu_read_lock();
	ids->uid = from_kuid_munged(users, task_uid(task));
	ids->pid = task_pid_nr_ns(task, pids);
	ids->tgid = task_tgid_nr_ns(task, pids);
	/*
	 * If the task has been reaped, its parent may have exited, so that ppid is 0.
	 */
	ids->ppid = task_ppid_nr_ns(task, pids);
	ids->reaped = !pid_alive(task);
	rcu_read_unlock();
}
EXPORT_SYMBOL_NS_GPL(pfc_task_ids, "PERFCOUNTERS");

/* Calls @each for every thread of every process, except the idle tasks. @each must not sleep. */
void pfc_visit_all_tasks(void (*each)(struct task_struct *task, void *arg), void *arg)
{
	struct task_struct *process, *task;

	rcu_read_lock();
	for_each_process_thread(process, task)
		each(task, arg);
	rcu_read_unlock();
}
EXPORT_SYMBOL_NS_GPL(pfc_visit_all_tasks, "PERFCOUNTERS");

/* Returns, with a reference, the thread with this number in the initial pid namespace, or NULL. */
struct task_struct *pfc_get_task_by_initial_pid(u32 pid)
{
	struct task_struct *task;

	rcu_read_lock();
	task = pid_task(find_pid_ns(pid, &init_pid_ns), PIDTYPE_PID);
	if (task)
		get_task_struct(task);
	rcu_read_unlock();
	return task;
}
EXPORT_SYMBOL_NS_GPL(pfc_get_task_by_initial_pid, "PERFCOUNTERS");

/*
 * Returns, with a reference, the leader of the process that owns the caller's address space. If the
 * caller is a child of vfork(), the parent owns the address space, which the child shares.
 */
struct task_struct *pfc_get_address_space_leader(void)
{
	struct task_struct *leader = current->group_leader;
#ifdef CONFIG_MEMCG
	struct task_struct *owner;

	guard(rcu)();
	owner = current->mm ? rcu_dereference(current->mm->owner) : NULL;
	if (owner && owner->mm == current->mm)
		leader = owner->group_leader;
#endif
	return get_task_struct(leader);
}
EXPORT_SYMBOL_NS_GPL(pfc_get_address_space_leader, "PERFCOUNTERS");

struct pid *pfc_pid_get(struct task_struct *leader)
{
	return get_task_pid(leader, PIDTYPE_TGID);
}
EXPORT_SYMBOL_NS_GPL(pfc_pid_get, "PERFCOUNTERS");

/*
 * Returns the number of @pid in the caller's pid namespace, or 0 if @pid has no number in that
 * namespace.
 */
u32 pfc_pid_nr(struct pid *pid)
{
	return pid_vnr(pid);
}
EXPORT_SYMBOL_NS_GPL(pfc_pid_nr, "PERFCOUNTERS");

size_t pfc_pid_bytes(struct pid *pid)
{
	return struct_size(pid, numbers, pid->level + 1);
}
EXPORT_SYMBOL_NS_GPL(pfc_pid_bytes, "PERFCOUNTERS");

/* Returns the number of @pid in its own pid namespace: the result of getpid() in this process. */
u32 pfc_pid_nr_in_own_ns(struct pid *pid)
{
	return pid_nr_ns(pid, ns_of_pid(pid));
}
EXPORT_SYMBOL_NS_GPL(pfc_pid_nr_in_own_ns, "PERFCOUNTERS");

/* Returns the thread id of the caller in the caller's own pid namespace. */
u32 pfc_tid_in_own_ns(void)
{
	struct pid *pid = task_pid(current);

	return pid_nr_ns(pid, ns_of_pid(pid));
}
EXPORT_SYMBOL_NS_GPL(pfc_tid_in_own_ns, "PERFCOUNTERS");

void pfc_read_identity(struct pfc_identity *identity, struct task_struct *task)
{
	identity->uid = from_kuid(&init_user_ns, task_cred_xxx(task, euid));
	get_task_comm(identity->comm, task);
}
EXPORT_SYMBOL_NS_GPL(pfc_read_identity, "PERFCOUNTERS");

/* Returns true if the caller has a pending fatal signal. */
bool pfc_has_fatal_signal(void)
{
	return fatal_signal_pending(current);
}
EXPORT_SYMBOL_NS_GPL(pfc_has_fatal_signal, "PERFCOUNTERS");

/* Converts a uid of the initial user namespace to a uid of the caller's user namespace. */
u32 pfc_uid_in_caller_ns(u32 uid)
{
	return from_kuid_munged(current_user_ns(), KUIDT_INIT(uid));
}
EXPORT_SYMBOL_NS_GPL(pfc_uid_in_caller_ns, "PERFCOUNTERS");
