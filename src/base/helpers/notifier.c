// SPDX-License-Identifier: GPL-2.0
/*
 * Notifiers: the wakeup of readers from any context.
 */
#include <linux/export.h>
#include <linux/fs.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include "helpers.h"

/* Initialises a notifier whose irq_work is @work, which calls pfc_notifier_wake(). */
void pfc_notifier_init(struct pfc_notifier *notifier, void (*work)(struct irq_work *work))
{
	init_waitqueue_head(&notifier->readers);
	notifier->wake_work = IRQ_WORK_INIT(work);
	notifier->fasync = NULL;
}
EXPORT_SYMBOL_NS_GPL(pfc_notifier_init, "PERFCOUNTERS");

/*
 * Wakes the readers, and sends SIGIO. Called by the irq_work of the notifier. A thread in poll()
 * that waits only for EPOLLHUP is woken too, because a trace reports EPOLLHUP when it has ended. If
 * the trace has not ended, poll() continues to wait.
 */
void pfc_notifier_wake(struct pfc_notifier *notifier)
{
	wake_up_interruptible_poll(&notifier->readers, EPOLLIN | EPOLLRDNORM | EPOLLHUP);
	kill_fasync(&notifier->fasync, SIGIO, POLL_IN);
}
EXPORT_SYMBOL_NS_GPL(pfc_notifier_wake, "PERFCOUNTERS");

static void notifier_wake_work(struct irq_work *work)
{
	pfc_notifier_wake(container_of(work, struct pfc_notifier, wake_work));
}

struct pfc_notifier *pfc_notifier_new(void)
{
	struct pfc_notifier *notifier = kzalloc(sizeof(*notifier), GFP_KERNEL_ACCOUNT);

	if (notifier)
		pfc_notifier_init(notifier, notifier_wake_work);
	return notifier;
}
EXPORT_SYMBOL_NS_GPL(pfc_notifier_new, "PERFCOUNTERS");

/*
 * Frees a notifier that pfc_notifier_new() has created. The caller makes sure that no other
 * function of the notifier runs during or after this call. May sleep.
 */
void pfc_notifier_free(struct pfc_notifier *notifier)
{
	irq_work_sync(&notifier->wake_work);
	kfree(notifier);
}
EXPORT_SYMBOL_NS_GPL(pfc_notifier_free, "PERFCOUNTERS");

/* Wakes the readers, and sends SIGIO, as soon as interrupts are on. Callable in any context. */
void pfc_notifier_wake_readers(struct pfc_notifier *notifier)
{
	irq_work_queue(&notifier->wake_work);
}
EXPORT_SYMBOL_NS_GPL(pfc_notifier_wake_readers, "PERFCOUNTERS");

void pfc_notifier_poll(struct pfc_notifier *notifier, struct file *file, poll_table *table)
{
	poll_wait(file, &notifier->readers, table);
}
EXPORT_SYMBOL_NS_GPL(pfc_notifier_poll, "PERFCOUNTERS");

int pfc_notifier_wait(struct pfc_notifier *notifier, bool (*ready)(void *arg), void *arg)
{
	return wait_event_interruptible(notifier->readers, ready(arg));
}
EXPORT_SYMBOL_NS_GPL(pfc_notifier_wait, "PERFCOUNTERS");

/*
 * Like pfc_notifier_wait(), but waits for at most @nanoseconds. Returns 1 if @ready returned true,
 * 0 if the time has expired, or -ERESTARTSYS if a signal has arrived.
 */
int pfc_notifier_wait_timeout(struct pfc_notifier *notifier, bool (*ready)(void *arg), void *arg,
			      u64 nanoseconds)
{
	ktime_t time = ns_to_ktime(min_t(u64, nanoseconds, KTIME_MAX / 2));
	int rc = wait_event_interruptible_hrtimeout(notifier->readers, ready(arg), time);

	return rc == -ETIME ? 0 : rc ? rc : 1;
}
EXPORT_SYMBOL_NS_GPL(pfc_notifier_wait_timeout, "PERFCOUNTERS");

int pfc_notifier_fasync(struct pfc_notifier *notifier, int fd, struct file *file, int on)
{
	int rc = fasync_helper(fd, file, on, &notifier->fasync);

	return rc < 0 ? rc : 0;
}
EXPORT_SYMBOL_NS_GPL(pfc_notifier_fasync, "PERFCOUNTERS");
