// SPDX-License-Identifier: GPL-2.0
/*
 * The deferred work of a context.
 */
#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/pid.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include "../../base/helpers/helpers.h"
#include "helpers.h"

/*
 * The deferred work of a monitoring context. Code that may not do the work itself, for example
 * because it runs in an NMI, defers the work by one of these members:
 *
 * - @notifier wakes readers, pollers and the monitored thread, and sends SIGIO, as soon as
 *   interrupts are on;
 * - @deferred_work calls pfm_deferred_work() on the same CPU, as soon as interrupts are on;
 * - @timer calls pfm_deferred_work() on the same CPU when the timer expires;
 * - @permission_work calls pfm_recheck_permission() in a worker;
 * - @free_work frees the context in a worker, after a grace period.
 */
struct pfm_deferral {
	/* First member: Rust code casts a pfm_deferral pointer to a pointer to the notifier. */
	struct pfc_notifier notifier;
	struct irq_work deferred_work;
	struct hrtimer timer;
	struct work_struct permission_work;
	const void *context;
	struct rcu_work free_work;
	/* The wait queue on which the monitored thread sleeps until PERFMON_RESTART. */
	wait_queue_head_t restart_waiters;
	/* The context, or NULL once the context is being freed. */
	const void *live_context;
	refcount_t refs;
};

static_assert(offsetof(struct pfm_deferral, notifier) == 0);

/*
 * Makes the monitored thread sleep at overflows. Each time that a context is attached, a new
 * blocker is allocated, because @work of the old blocker can stay queued until the old thread
 * returns to user mode.
 */
struct pfm_blocker {
	struct callback_head work;
	struct pfm_deferral *deferral;
	/*
	 * The process that attached the context. The thread may sleep only while this process has
	 * the permission to stop it.
	 */
	struct pid *requester;
	atomic_t is_blocking;
	bool may_continue;
	refcount_t refs;
};

static void deferral_put(struct pfm_deferral *deferral)
{
	if (refcount_dec_and_test(&deferral->refs))
		kfree(deferral);
}

static void blocker_put(struct pfm_blocker *blocker)
{
	if (!refcount_dec_and_test(&blocker->refs))
		return;
	put_pid(blocker->requester);
	deferral_put(blocker->deferral);
	kfree(blocker);
}

/*
 * Task work of the monitored thread: sleeps until @may_continue is set. As in perfmon2, a signal
 * ends the sleep. The sleep also ends if the process @requester has exited, or if this process may
 * no longer stop the thread. Before the sleep, pfc_may_stop_current() checks the permission of
 * @requester by the access rule of ptrace. During the sleep, pfc_may_stop_current() repeats the
 * check once a second and also asks the security modules.
 */
static void blocker_work(struct callback_head *head)
{
	struct pfm_blocker *blocker = container_of(head, struct pfm_blocker, work);
	struct pfm_deferral *deferral = blocker->deferral;
	bool may = true, again = false;
	const void *context;

	/* Once @is_blocking is 0, another overflow can queue this task work again. */
	atomic_set(&blocker->is_blocking, 0);
	while (!READ_ONCE(blocker->may_continue)) {
		may = pfc_may_stop_current(blocker->requester, again);
		if (!may || wait_event_interruptible_timeout(deferral->restart_waiters,
							     READ_ONCE(blocker->may_continue), HZ))
			break;
		again = true;
	}
	if (!may) {
		/*
		 * The context is valid inside this RCU section: it is freed a grace period after
		 * @live_context was set to NULL.
		 */
		rcu_read_lock();
		context = READ_ONCE(deferral->live_context);
		if (context)
			pfm_end_refused(context, blocker);
		rcu_read_unlock();
	}
	blocker_put(blocker);
	pfc_task_work_done();
}

static void deferral_wake_work(struct irq_work *work)
{
	struct pfm_deferral *deferral = container_of(work, struct pfm_deferral, notifier.wake_work);

	pfc_notifier_wake(&deferral->notifier);
	wake_up(&deferral->restart_waiters);
}

static void deferral_deferred_work(struct irq_work *work)
{
	pfm_deferred_work(container_of(work, struct pfm_deferral, deferred_work)->context, false);
}

static enum hrtimer_restart deferral_timer(struct hrtimer *timer)
{
	struct pfm_deferral *deferral = container_of(timer, struct pfm_deferral, timer);

	pfm_deferred_work(deferral->context, true);
	/* If the timer is still needed, pfm_deferred_work() has started it again. */
	return HRTIMER_NORESTART;
}

/*
 * Runs in a worker, because pfm_recheck_permission() may wait for an exec of the monitored thread.
 */
static void deferral_permission_work(struct work_struct *work)
{
	pfm_recheck_permission(container_of(work, struct pfm_deferral, permission_work)->context);
}

struct pfm_deferral *pfm_deferral_new(void)
{
	struct pfm_deferral *deferral = kzalloc(sizeof(*deferral), GFP_KERNEL_ACCOUNT);

	if (!deferral)
		return NULL;
	pfc_notifier_init(&deferral->notifier, deferral_wake_work);
	deferral->deferred_work = IRQ_WORK_INIT_HARD(deferral_deferred_work);
	INIT_WORK(&deferral->permission_work, deferral_permission_work);
	init_waitqueue_head(&deferral->restart_waiters);
	refcount_set(&deferral->refs, 1);
	hrtimer_setup(&deferral->timer, deferral_timer, CLOCK_MONOTONIC,
		      HRTIMER_MODE_REL_PINNED_HARD);
	return deferral;
}

/*
 * Cancels the deferred work, and frees @deferral unless a blocker still refers to it. The caller
 * makes sure that no other function of @deferral runs during or after this call. May sleep.
 */
void pfm_deferral_free(struct pfm_deferral *deferral)
{
	irq_work_sync(&deferral->deferred_work);
	hrtimer_cancel(&deferral->timer);
	cancel_work_sync(&deferral->permission_work);
	irq_work_sync(&deferral->notifier.wake_work);
	deferral_put(deferral);
}

static void deferral_free_work(struct work_struct *work)
{
	struct pfm_deferral *deferral =
		container_of(to_rcu_work(work), struct pfm_deferral, free_work);

	pfm_context_put(deferral->context);
}

/*
 * Makes a worker drop a reference to the context after a grace period, during which code under RCU
 * or with preemption off may still use the context. Called in process context.
 */
void pfm_deferral_free_context(struct pfm_deferral *deferral)
{
	WRITE_ONCE(deferral->live_context, NULL);
	INIT_RCU_WORK(&deferral->free_work, deferral_free_work);
	queue_rcu_work(pfm_work, &deferral->free_work);
}

/*
 * Returns a blocker for an attachment by the process @requester, or NULL if memory is short. May
 * sleep.
 */
struct pfm_blocker *pfm_blocker_new(struct pfm_deferral *deferral, struct pid *requester)
{
	struct pfm_blocker *blocker = kzalloc(sizeof(*blocker), GFP_KERNEL_ACCOUNT);

	if (!blocker)
		return NULL;
	init_task_work(&blocker->work, blocker_work);
	refcount_inc(&deferral->refs);
	blocker->deferral = deferral;
	blocker->requester = get_pid(requester);
	refcount_set(&blocker->refs, 1);
	return blocker;
}

/*
 * Lets a thread that sleeps in blocker_work() continue, because the context is no longer attached
 * to the thread. The last user of @blocker frees it. Called in process context, without a context's
 * lock.
 */
void pfm_blocker_free(struct pfm_blocker *blocker)
{
	pfm_blocker_resume(blocker);
	pfm_deferral_wake_blocked(blocker->deferral);
	blocker_put(blocker);
}

/* Makes the current thread sleep before it returns to user mode. Callable in any context. */
void pfm_blocker_block_thread(struct pfm_blocker *blocker)
{
	WRITE_ONCE(blocker->may_continue, false);
	if (atomic_xchg(&blocker->is_blocking, 1))
		return;
	refcount_inc(&blocker->refs);
	if (!pfc_task_work_add(current, &blocker->work,
			       in_nmi() ? TWA_NMI_CURRENT : TWA_RESUME)) {
		/* The thread is exiting. The context holds another reference to @blocker. */
		refcount_dec(&blocker->refs);
		atomic_set(&blocker->is_blocking, 0);
	}
}

/*
 * Allows a thread that sleeps in blocker_work() to continue as soon as pfm_deferral_wake_blocked()
 * wakes it. Callable in any context. Callers of this function and of pfm_blocker_block_thread()
 * hold the context's lock. Only pfm_blocker_free() calls this function without the lock.
 */
void pfm_blocker_resume(struct pfm_blocker *blocker)
{
	WRITE_ONCE(blocker->may_continue, true);
}

/*
 * Wakes a thread that sleeps in blocker_work(). The thread continues if pfm_blocker_resume() has
 * allowed the thread to continue.
 */
void pfm_deferral_wake_blocked(struct pfm_deferral *deferral)
{
	wake_up(&deferral->restart_waiters);
}

void pfm_deferral_attach(struct pfm_deferral *deferral, const void *context)
{
	deferral->context = context;
	deferral->live_context = context;
}

void pfm_deferral_queue_work(struct pfm_deferral *deferral)
{
	irq_work_queue(&deferral->deferred_work);
}

/*
 * Makes a worker check whether the context's user may still monitor the context's thread. Context:
 * not in an NMI, and without a lock of the module.
 */
void pfm_deferral_queue_permission_check(struct pfm_deferral *deferral)
{
	queue_work(pfm_work, &deferral->permission_work);
}

/* Starts the timer on this CPU. Called with interrupts off and not in an NMI. */
void pfm_deferral_start_timer(struct pfm_deferral *deferral, u64 nanoseconds)
{
	hrtimer_start(&deferral->timer, ns_to_ktime(min_t(u64, nanoseconds, KTIME_MAX / 2)),
		      HRTIMER_MODE_REL_PINNED_HARD);
}

/*
 * Cancels the timer. Does not wait for a timer callback that is already running on another CPU;
 * such a callback finds nothing to do. Called with interrupts off and not in an NMI.
 */
void pfm_deferral_cancel_timer(struct pfm_deferral *deferral)
{
	hrtimer_try_to_cancel(&deferral->timer);
}
