// SPDX-License-Identifier: GPL-2.0
/*
 * late_exit: runs a kernel thread on CPU 1 that exits while accounting, on CPU 0, adds the
 * thread's record.
 *
 * The kprobes of this module enforce the following order of events:
 *
 *	1. CPU 0: Accounting has added the thread's record to the index, and calls pfc_is_dead().
 *	2. CPU 1: The thread, whose record is now in the index, is switched in. The thread exits,
 *	   and waits just before its last context switch.
 *	3. CPU 0: Accounting returns from pfc_is_dead(), and begins its next pass over the tasks.
 *	4. CPU 1: The thread is switched out for the last time.
 *
 * The parameter "passed" is 1 after all four steps. If a wait takes longer than 15 s, the module
 * continues and "passed" stays 0.
 */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/kprobes.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>

static int pid;
module_param(pid, int, 0444);
MODULE_PARM_DESC(pid, "The id of the thread");

static int passed;
module_param(passed, int, 0444);
MODULE_PARM_DESC(passed, "1 after the thread has exited in the order of this test");

static struct task_struct *thread;
static DECLARE_COMPLETION(go);
static bool asked, answered, at_end, next_pass;

/* Waits up to 15 s until @flag is set. Context: kprobe handler, interrupts off. */
static bool spin_for(bool *flag)
{
	/* Pairs with the smp_store_release() calls that set the flags. */
	for (int ms = 0; ms < 15000 && !smp_load_acquire(flag); ms++)
		mdelay(1);
	return READ_ONCE(*flag);
}

static int on_question(struct kprobe *probe, struct pt_regs *regs)
{
	if ((struct task_struct *)regs->di != thread || asked)
		return 0;
	asked = true;
	complete(&go);
	spin_for(&at_end);
	/* Pairs with smp_load_acquire() in spin_for() and on_pass(). */
	smp_store_release(&answered, true);
	return 0;
}

static int on_pass(struct kprobe *probe, struct pt_regs *regs)
{
	/* Pairs with smp_store_release() in on_question(). */
	if (smp_load_acquire(&answered))
		/* Pairs with smp_load_acquire() in spin_for(). */
		smp_store_release(&next_pass, true);
	return 0;
}

/*
 * Runs at the entry of exit_task_stack_account(), which do_exit() calls after exit_notify() with
 * preemption on.
 */
static int on_exit(struct kprobe *probe, struct pt_regs *regs)
{
	if (current != thread || !asked)
		return 0;
	/* Pairs with smp_load_acquire() in spin_for(). */
	smp_store_release(&at_end, true);
	passed = spin_for(&next_pass);
	return 0;
}

static struct kprobe probes[] = {
	{ .symbol_name = "pfc_is_dead", .pre_handler = on_question },
	{ .symbol_name = "pfc_visit_all_tasks", .pre_handler = on_pass },
	{ .symbol_name = "exit_task_stack_account", .pre_handler = on_exit },
};

static int exits(void *unused)
{
	wait_for_completion(&go);
	return 0;
}

static void remove_probes(int nr)
{
	while (nr--)
		unregister_kprobe(&probes[nr]);
}

static int __init late_exit_init(void)
{
	int error;

	for (int i = 0; i < ARRAY_SIZE(probes); i++) {
		error = register_kprobe(&probes[i]);
		if (error) {
			pr_err("late_exit: no kprobe on %s: %d\n", probes[i].symbol_name, error);
			remove_probes(i);
			return error;
		}
	}
	thread = kthread_create_on_cpu(exits, NULL, 1, "late_exit");
	if (IS_ERR(thread)) {
		remove_probes(ARRAY_SIZE(probes));
		return PTR_ERR(thread);
	}
	get_task_struct(thread);
	pid = task_pid_nr(thread);
	wake_up_process(thread);
	return 0;
}

static void __exit late_exit_exit(void)
{
	complete(&go);
	kthread_stop(thread);
	put_task_struct(thread);
	remove_probes(ARRAY_SIZE(probes));
}

module_init(late_exit_init);
module_exit(late_exit_exit);
MODULE_DESCRIPTION("perfcounters: a thread that exits while accounting begins");
MODULE_AUTHOR("The perfcounters developers");
MODULE_LICENSE("GPL");
