/* SPDX-License-Identifier: GPL-2.0 */
/* Notifiers, which wake readers. */
#ifndef _PERFCOUNTERS_NOTIFIER_H
#define _PERFCOUNTERS_NOTIFIER_H

#include <linux/irq_work.h>
#include <linux/poll.h>
#include <linux/wait.h>

struct fasync_struct;

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

#endif
