// SPDX-License-Identifier: GPL-2.0
/*
 * The notifier of a context or of a trace: the wakeup of readers, and deferred work.
 */
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/pid.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include "../../../base/helpers/access.h"
#include "../../../base/helpers/work.h"
#include "pmu.h"
#include "sampling.h"

/*
 * The notifier of a context or of a trace. It can be used in any context, including NMIs, and
 * defers work to a context in which the work is allowed:
 *
 * - @wake_work wakes readers and pollers, and sends SIGIO, as soon as interrupts are on;
 * - @deferred_work calls pfm_deferred_work() on the same CPU, as soon as interrupts are on;
 * - @timer calls pfm_deferred_work() on the same CPU when the timer expires;
 * - @permission_work calls pfm_recheck_permission() in a worker;
 * - @free_work frees the context in a worker, after a grace period;
 * - @block_work makes the monitored thread sleep before it returns to user mode.
 */
struct pfm_notifier {
	wait_queue_head_t readers;
	struct irq_work wake_work;
	struct irq_work deferred_work;
	struct hrtimer timer;
	struct work_struct permission_work;
	struct fasync_struct *fasync;
	const void *context;
	struct rcu_work free_work;
	/* The wait queue on which the monitored thread sleeps until PERFMON_RESTART. */
	wait_queue_head_t restart_waiters;
	struct callback_head block_work;
	atomic_t is_blocking;
	bool may_continue;
	/*
	 * The process on whose behalf the monitored thread sleeps (see
	 * pfm_notifier_block_thread()).
	 */
	struct pid *requester;
	/* The context, or NULL once the context is being freed. */
	const void *live_context;
	refcount_t refs;
};

static void notifier_put(struct pfm_notifier *notifier)
{
	if (refcount_dec_and_test(&notifier->refs))
		kfree(notifier);
}

/*
 * Task work of the monitored thread: sleeps until @may_continue is set. As in perfmon2, a signal
 * ends the sleep. The sleep also ends if the process on whose behalf the thread sleeps exits or
 * loses the permission to stop the thread. This permission is checked once a second, by the
 * security modules as well.
 */
static void notifier_block_work(struct callback_head *head)
{
	struct pfm_notifier *notifier = container_of(head, struct pfm_notifier, block_work);
	struct pid *requester = notifier->requester;
	bool may = pfm_may_stop_current(requester, false);
	const void *context;

	/* After @is_blocking is 0, another overflow can queue this task work again. */
	atomic_set(&notifier->is_blocking, 0);
	while (may && !wait_event_interruptible_timeout(notifier->restart_waiters,
							READ_ONCE(notifier->may_continue), HZ))
		may = pfm_may_stop_current(requester, true);
	put_pid(requester);
	if (!may) {
		/*
		 * The context is valid inside this RCU section: it is freed a grace period after
		 * @live_context was set to NULL.
		 */
		rcu_read_lock();
		context = READ_ONCE(notifier->live_context);
		if (context)
			pfm_end_refused(context);
		rcu_read_unlock();
	}
	notifier_put(notifier);
	pfc_task_work_done();
}

static void notifier_wake_work(struct irq_work *work)
{
	struct pfm_notifier *notifier = container_of(work, struct pfm_notifier, wake_work);

	wake_up_interruptible_poll(&notifier->readers, EPOLLIN | EPOLLRDNORM);
	kill_fasync(&notifier->fasync, SIGIO, POLL_IN);
	wake_up(&notifier->restart_waiters);
}

static void notifier_deferred_work(struct irq_work *work)
{
	pfm_deferred_work(container_of(work, struct pfm_notifier, deferred_work)->context, false);
}

static enum hrtimer_restart notifier_timer(struct hrtimer *timer)
{
	struct pfm_notifier *notifier = container_of(timer, struct pfm_notifier, timer);

	pfm_deferred_work(notifier->context, true);
	/* If the timer is still needed, pfm_deferred_work() has started it again. */
	return HRTIMER_NORESTART;
}

/*
 * Runs in a worker, because pfm_recheck_permission() may wait for an exec of the monitored thread.
 */
static void notifier_permission_work(struct work_struct *work)
{
	pfm_recheck_permission(container_of(work, struct pfm_notifier, permission_work)->context);
}

struct pfm_notifier *pfm_notifier_new(void)
{
	struct pfm_notifier *notifier = kzalloc(sizeof(*notifier), GFP_KERNEL_ACCOUNT);

	if (!notifier)
		return NULL;
	init_waitqueue_head(&notifier->readers);
	notifier->wake_work = IRQ_WORK_INIT(notifier_wake_work);
	notifier->deferred_work = IRQ_WORK_INIT_HARD(notifier_deferred_work);
	INIT_WORK(&notifier->permission_work, notifier_permission_work);
	init_waitqueue_head(&notifier->restart_waiters);
	init_task_work(&notifier->block_work, notifier_block_work);
	refcount_set(&notifier->refs, 1);
	hrtimer_setup(&notifier->timer, notifier_timer, CLOCK_MONOTONIC,
		      HRTIMER_MODE_REL_PINNED_HARD);
	return notifier;
}

/*
 * Frees the notifier. If a thread sleeps in notifier_block_work(), it is woken, and drops the last
 * reference to the notifier. The caller makes sure that no other function of the notifier runs
 * during or after this call. May sleep.
 */
void pfm_notifier_free(struct pfm_notifier *notifier)
{
	irq_work_sync(&notifier->deferred_work);
	hrtimer_cancel(&notifier->timer);
	cancel_work_sync(&notifier->permission_work);
	irq_work_sync(&notifier->wake_work);
	pfm_notifier_resume(notifier);
	pfm_notifier_wake_blocked(notifier);
	notifier_put(notifier);
}

static void notifier_free_work(struct work_struct *work)
{
	struct pfm_notifier *notifier =
		container_of(to_rcu_work(work), struct pfm_notifier, free_work);

	pfm_context_put(notifier->context);
}

/*
 * Makes a worker drop a reference to the context after a grace period. Before this, code that runs
 * under RCU or with preemption off may still use the context. Called in process context.
 */
void pfm_notifier_free_context(struct pfm_notifier *notifier)
{
	WRITE_ONCE(notifier->live_context, NULL);
	INIT_RCU_WORK(&notifier->free_work, notifier_free_work);
	queue_rcu_work(pfm_work, &notifier->free_work);
}

/*
 * Makes the current thread sleep before it returns to user mode, on behalf of the process
 * @requester. Callable in any context.
 */
void pfm_notifier_block_thread(struct pfm_notifier *notifier, struct pid *requester)
{
	WRITE_ONCE(notifier->may_continue, false);
	if (atomic_xchg(&notifier->is_blocking, 1))
		return;
	refcount_inc(&notifier->refs);
	notifier->requester = get_pid(requester);
	if (!pfc_task_work_add(current, &notifier->block_work,
			       in_nmi() ? TWA_NMI_CURRENT : TWA_RESUME)) {
		/*
		 * The thread is exiting. The references to the notifier and to the pid that are
		 * dropped here are not the last: the context holds one of each.
		 */
		refcount_dec(&notifier->refs);
		put_pid(requester);
		atomic_set(&notifier->is_blocking, 0);
	}
}

/*
 * Allows a thread that sleeps in notifier_block_work() to continue as soon as
 * pfm_notifier_wake_blocked() wakes it. Callable in any context. Unless the notifier is being
 * freed, the caller holds the context's lock, as the caller of pfm_notifier_block_thread() does.
 */
void pfm_notifier_resume(struct pfm_notifier *notifier)
{
	WRITE_ONCE(notifier->may_continue, true);
}

/*
 * Wakes a thread that sleeps in notifier_block_work(). It continues if pfm_notifier_resume() has
 * allowed it.
 */
void pfm_notifier_wake_blocked(struct pfm_notifier *notifier)
{
	wake_up(&notifier->restart_waiters);
}

void pfm_notifier_attach(struct pfm_notifier *notifier, const void *context)
{
	notifier->context = context;
	notifier->live_context = context;
}

void pfm_notifier_wake_readers(struct pfm_notifier *notifier)
{
	irq_work_queue(&notifier->wake_work);
}

void pfm_notifier_queue_work(struct pfm_notifier *notifier)
{
	irq_work_queue(&notifier->deferred_work);
}

/*
 * Makes a worker check whether the context's user may still monitor the context's thread. Context:
 * not in an NMI, and without a lock of the module.
 */
void pfm_notifier_queue_permission_check(struct pfm_notifier *notifier)
{
	queue_work(pfm_work, &notifier->permission_work);
}

/* Starts the notifier's timer on this CPU. Called with interrupts off and not in an NMI. */
void pfm_notifier_start_timer(struct pfm_notifier *notifier, u64 nanoseconds)
{
	hrtimer_start(&notifier->timer, ns_to_ktime(min_t(u64, nanoseconds, KTIME_MAX / 2)),
		      HRTIMER_MODE_REL_PINNED_HARD);
}

/*
 * Cancels the timer. Does not wait for a timer callback that is already running on another CPU;
 * such a callback finds nothing to do. Called with interrupts off and not in an NMI.
 */
void pfm_notifier_cancel_timer(struct pfm_notifier *notifier)
{
	hrtimer_try_to_cancel(&notifier->timer);
}

void pfm_notifier_poll(struct pfm_notifier *notifier, struct file *file, poll_table *table)
{
	poll_wait(file, &notifier->readers, table);
}

int pfm_notifier_wait(struct pfm_notifier *notifier, bool (*ready)(void *arg), void *arg)
{
	return wait_event_interruptible(notifier->readers, ready(arg));
}

/*
 * Like pfm_notifier_wait(), but waits for at most @nanoseconds. Returns 1 if @ready returned true,
 * 0 if the time has expired, or -ERESTARTSYS if a signal has arrived.
 */
int pfm_notifier_wait_for(struct pfm_notifier *notifier, bool (*ready)(void *arg), void *arg,
			  u64 nanoseconds)
{
	ktime_t time = ns_to_ktime(min_t(u64, nanoseconds, KTIME_MAX / 2));
	int rc = wait_event_interruptible_hrtimeout(notifier->readers, ready(arg), time);

	return rc == -ETIME ? 0 : rc ? rc : 1;
}

int pfm_notifier_fasync(struct pfm_notifier *notifier, int fd, struct file *file, int on)
{
	int rc = fasync_helper(fd, file, on, &notifier->fasync);

	return rc < 0 ? rc : 0;
}
