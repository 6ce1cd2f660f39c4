// SPDX-License-Identifier: GPL-2.0
/*
 * Process accounting: hooks for the time that a task spends in the kernel outside of the interval
 * from sys_enter to sys_exit.
 *
 * - A user-return notifier, which the kernel calls immediately before a CPU enters user mode. The
 *   notifier is armed in page faults, at the delivery of a signal, and at sys_exit if the task has
 *   work to do before it enters user mode. A notifier that is not armed costs nothing.
 * - A probe of the function that checks a system call against seccomp filters. Tasks without a
 *   filter do not call this function. A denied system call does not reach sys_enter.
 */
#include <linux/cpu.h>
#include <linux/entry-common.h>
#include <linux/fprobe.h>
#include <linux/irqflags.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/printk.h>
#include <linux/rcupdate.h>
#include <linux/smp.h>
#include <linux/thread_info.h>
#include <linux/user-return-notifier.h>
#include "helpers.h"

#ifdef CONFIG_USER_RETURN_NOTIFIER
/*
 * The thread flags of the work that a task does after sys_exit, before it enters user mode. If one
 * of these flags is set at sys_exit, system time continues until the CPU enters user mode. The
 * reschedule flags are not included: if such a flag is set, the kernel switches tasks at once, and
 * the short time until the switch is not worth the cost of arming the notifier.
 */
const unsigned long ppa_exit_work = _TIF_SIGPENDING | _TIF_NOTIFY_SIGNAL | _TIF_NOTIFY_RESUME |
				    _TIF_UPROBE | _TIF_PATCH_PENDING;

struct user_return {
	struct user_return_notifier notifier;
	bool is_armed;
};

static DEFINE_PER_CPU(struct user_return, user_return);

/* Called by the kernel with interrupts off, immediately before this CPU enters user mode. */
static void on_user_return(struct user_return_notifier *notifier)
{
	struct user_return *here = container_of(notifier, struct user_return, notifier);

	user_return_notifier_unregister(notifier);
	WRITE_ONCE(here->is_armed, false);
	ppa_user_return();
}

/*
 * Arms the notifier of this CPU. At each switch the kernel moves the notifier's thread flag to the
 * next task, so the notifier is called when this CPU next enters user mode, even if another task
 * runs then. Called with preemption off. Interrupts are turned off because KVM may change the list
 * of notifiers in an interrupt.
 */
bool ppa_arm_user_return(void)
{
	struct user_return *here;
	unsigned long flags;

	local_irq_save(flags);
	here = this_cpu_ptr(&user_return);
	if (!here->is_armed) {
		here->notifier.on_user_return = on_user_return;
		WRITE_ONCE(here->is_armed, true);
		user_return_notifier_register(&here->notifier);
	}
	local_irq_restore(flags);
	return true;
}

static int disarm_on_this_cpu(void *unused)
{
	struct user_return *here;
	unsigned long flags;

	local_irq_save(flags);
	here = this_cpu_ptr(&user_return);
	if (here->is_armed) {
		user_return_notifier_unregister(&here->notifier);
		WRITE_ONCE(here->is_armed, false);
	}
	local_irq_restore(flags);
	return 0;
}

/*
 * Disarms the notifiers of all CPUs, and waits until no notifier runs. Called in process context,
 * after the probes that arm notifiers were detached. A worker on each CPU removes the CPU's
 * notifier. The notifier is not removed in an interrupt, because the interrupt could occur while
 * KVM, with preemption off, changes the list of notifiers.
 */
void ppa_disarm_user_return(void)
{
	unsigned int cpu;

	cpus_read_lock();
	for_each_online_cpu(cpu)
		if (READ_ONCE(per_cpu(user_return, cpu).is_armed))
			smp_call_on_cpu(cpu, disarm_on_this_cpu, NULL, false);
	cpus_read_unlock();
	synchronize_rcu();
}

/* Disarms the notifier of a CPU that is offline. Called in the CPU's hotplug callback. */
void ppa_user_return_cpu_dead(unsigned int cpu)
{
	struct user_return *there = per_cpu_ptr(&user_return, cpu);

	if (there->is_armed) {
		hlist_del(&there->notifier.link);
		there->is_armed = false;
	}
}
#else
const unsigned long ppa_exit_work;

bool ppa_arm_user_return(void)
{
	return false;
}

void ppa_disarm_user_return(void)
{
	synchronize_rcu();
}

void ppa_user_return_cpu_dead(unsigned int cpu)
{
}
#endif

static int seccomp_begins(struct fprobe *probe, unsigned long ip, unsigned long ret_ip,
			  struct ftrace_regs *regs, void *data)
{
	preempt_disable_notrace();
	ppa_seccomp_begins();
	preempt_enable_notrace();
	return 0;
}

static struct fprobe seccomp_probe = { .entry_handler = seccomp_begins };
static bool seccomp_is_attached;

/*
 * Attaches the probe of seccomp's check. Returns -ENOMEM if memory is short. If the kernel does
 * not support the probe, the time of seccomp filters counts as user time, and 0 is returned. Caller
 * holds ACCOUNTING.
 */
int ppa_attach_seccomp(void)
{
	/* @name: the function's name on Linux 7.3 and later; @older: its earlier name. */
	const char *name = "__seccomp_permit_syscall", *older = "__secure_computing";
	int error;

	if (!IS_ENABLED(CONFIG_SECCOMP))
		return 0;
	error = register_fprobe_syms(&seccomp_probe, &name, 1);
	if (error && error != -ENOMEM)
		error = register_fprobe_syms(&seccomp_probe, &older, 1);
	seccomp_is_attached = !error;
	if (error == -ENOMEM)
		return error;
	if (error)
		pr_info_once("ppa: cannot probe seccomp (error %d); the time of seccomp filters counts as user time\n",
			     error);
	return 0;
}

/*
 * Detaches the probe of seccomp's check. After the call, the probe may still run under RCU. Caller
 * holds ACCOUNTING.
 */
void ppa_detach_seccomp(void)
{
	if (seccomp_is_attached)
		unregister_fprobe(&seccomp_probe);
	seccomp_is_attached = false;
}
