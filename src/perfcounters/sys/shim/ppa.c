// SPDX-License-Identifier: GPL-2.0
/* Process accounting: C functions that read clocks and the state of tasks. */
#include <linux/cpumask.h>
#include <linux/cred.h>
#include <linux/percpu.h>
#include <linux/pid_namespace.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/sched/task_stack.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/kernel_stat.h>
#include <asm/cpufeature.h>
#include <asm/syscall.h>
#include <asm/tsc.h>
#include <asm/unistd.h>
#include "../../../../include/uapi/linux/ppa.h"
#include "ppa.h"

/*
 * Address of each CPU's accounting state (PerCpu in sys/ppa.rs) while accounting is on, otherwise
 * 0.
 */
DEFINE_PER_CPU(unsigned long, ppa_percpu);

void ppa_set_percpu(unsigned int cpu, void *percpu)
{
	WRITE_ONCE(per_cpu(ppa_percpu, cpu), (unsigned long)percpu);
}

unsigned long ppa_percpu_of(unsigned int cpu)
{
	return READ_ONCE(per_cpu(ppa_percpu, cpu));
}

/*
 * Returns the rate of the time stamp counter in kHz, or 0 if the counter stops or differs between
 * CPUs. With 0, accounting uses local_clock() of the scheduler.
 */
u32 ppa_tsc_khz(void)
{
	return boot_cpu_has(X86_FEATURE_TSC) && !check_tsc_unstable() ? tsc_khz : 0;
}

u64 ppa_local_clock(void)
{
	return local_clock();
}

/*
 * Returns the idle time of a CPU, including the time that the CPU waited for I/O, from the kernel's
 * own statistics. Used while accounting is off.
 */
u64 ppa_idle_ns(unsigned int cpu)
{
	return kcpustat_field_idle(cpu) + kcpustat_field_iowait(cpu);
}

bool ppa_cpu_online(unsigned int cpu)
{
	return cpu_online(cpu);
}

/*
 * Returns true if a task is inside a system call. For a task that runs, and for a kernel thread,
 * the result is false.
 */
bool ppa_in_syscall(struct task_struct *task)
{
	void *stack = READ_ONCE(task->stack);
	unsigned long number;
	struct pt_regs *regs;

	if (task->on_cpu || task->flags & PF_KTHREAD || !stack)
		return false;
	/*
	 * @regs is the same address as task_pt_regs(). The stack may be freed during the read, so
	 * the stack is read without faulting.
	 */
	regs = (struct pt_regs *)(stack + THREAD_SIZE - TOP_OF_KERNEL_STACK_PADDING) - 1;
	if (copy_from_kernel_nofault(&number, &regs->orig_ax, sizeof(number)))
		return false;
	return (int)number != -1;
}

/*
 * Returns true if the task has passed exit_notify(): its last switch follows soon, or is over.
 */
bool ppa_has_ended(struct task_struct *task)
{
	return READ_ONCE(task->exit_state);
}

/*
 * Returns true if the task has set its last state, TASK_DEAD. A task sets TASK_DEAD with preemption
 * off, and preemption stays off until the task's last switch. A grace period that begins after
 * TASK_DEAD was set therefore waits for the last switch.
 */
bool ppa_is_dead(struct task_struct *task)
{
	return READ_ONCE(task->__state) == TASK_DEAD;
}

/*
 * Returns true if a running task entered the kernel by sched_yield(). The number of sched_yield()
 * depends on the ABI of the call.
 */
bool ppa_yields(struct task_struct *task)
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

/*
 * Fills in the ids of a task: with @initial the numbers of the initial namespaces, otherwise the
 * numbers of the caller's namespaces.
 */
void ppa_task_ids(struct task_struct *task, bool initial, struct ppa_task_ids *ids)
{
	struct user_namespace *users = initial ? &init_user_ns : current_user_ns();
	struct pid_namespace *pids = initial ? &init_pid_ns : task_active_pid_ns(current);

	rcu_read_lock();
	ids->uid = from_kuid_munged(users, task_uid(task));
	ids->pid = task_pid_nr_ns(task, pids);
	ids->tgid = task_tgid_nr_ns(task, pids);
	/*
	 * The parent's number is 0 if the task has been reaped, because its parent may have exited.
	 */
	ids->ppid = task_ppid_nr_ns(task, pids);
	ids->reaped = !pid_alive(task);
	rcu_read_unlock();
}

/* Protects changes of the index of task records (sys/records.rs). Readers of the index use RCU. */
static DEFINE_RAW_SPINLOCK(index_lock);

unsigned long ppa_index_lock(void)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&index_lock, flags);
	return flags;
}

void ppa_index_unlock(unsigned long flags)
{
	raw_spin_unlock_irqrestore(&index_lock, flags);
}

/* Calls @each for every thread of every process, except the idle tasks. @each must not sleep. */
void ppa_each_task(void (*each)(struct task_struct *task, void *arg), void *arg)
{
	struct task_struct *process, *task;

	rcu_read_lock();
	for_each_process_thread(process, task)
		each(task, arg);
	rcu_read_unlock();
}

/* Returns the task with this pid in the initial namespace, with a reference, or NULL. */
struct task_struct *ppa_get_task(u32 pid)
{
	struct task_struct *task;

	rcu_read_lock();
	task = pid_task(find_pid_ns(pid, &init_pid_ns), PIDTYPE_PID);
	if (task)
		get_task_struct(task);
	rcu_read_unlock();
	return task;
}
