/* SPDX-License-Identifier: GPL-2.0 */
/*
 * perfcounters: the interface for drivers.
 *
 *	static int reads;
 *	static perf_counter_t reads_fast;
 *
 *	reads = perf_add("disk/sda/reads");		// process context
 *	reads_fast = perf_counter_handle(reads);
 *	...
 *	perf_adjust(reads, 1);				// any context, in order
 *	perf_counter_add(reads_fast, 1);		// any context, one instruction
 *	...
 *	perf_del(reads);				// process context
 *
 * A driver built without CONFIG_PERFCOUNTERS gets no-ops and depends on
 * nothing. Out of tree, add "ccflags-y += -DCONFIG_PERFCOUNTERS" and the
 * include path; see tests/modules.
 */
#ifndef _LINUX_PERFCOUNTERS_H
#define _LINUX_PERFCOUNTERS_H

#include <linux/bitops.h>
#include <linux/errno.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <uapi/linux/perfcounters.h>

/**
 * struct perf_counter_spec - an instance to be added with perf_add_desc()
 * @size: sizeof(struct perf_counter_spec), so that fields can be appended
 * @kind: enum perfcounters_kind
 * @unit: enum perfcounters_unit
 * @exponent: a value is value * 10^exponent units
 * @reserved: 0
 * @nr_slots: 0 or 1; for a histogram its number of buckets, 2 to 64
 * @name: as for perf_add()
 * @help: one sentence for people, at most PERFCOUNTERS_HELP_MAX - 1 bytes of
 *	UTF-8; may be NULL
 */
struct perf_counter_spec {
	u32		size;
	u16		kind;
	u16		unit;
	s8		exponent;
	u8		reserved;
	u16		nr_slots;
	const char	*name;
	const char	*help;
};

/* A resolved instance: where this CPU's value is. */
typedef s64 __percpu *perf_counter_t;

#ifdef CONFIG_PERFCOUNTERS

int __perf_add(const char *name, struct module *owner);
int __perf_add_desc(const struct perf_counter_spec *spec, struct module *owner);

/**
 * perf_add() - add a counter of events
 * @name: 1 to 127 bytes of UTF-8 without control characters
 *
 * The instance is this module's: what it has not deleted when it goes is made
 * dormant then. Whatever perf_add() returns may be given to all other calls, so
 * no driver need fail for a counter.
 *
 * Context: process; may sleep.
 * Return: the instance number, the same for the name as long as perfcounters.ko
 * is loaded, unless it returns with more slots than before; values are zero.
 * -EINVAL, -ENAMETOOLONG, -EILSEQ, -EEXIST (the name is live), -ENOSPC or
 * -ENOMEM; then nothing has changed and the kernel log says why.
 */
#define perf_add(name)	__perf_add(name, THIS_MODULE)

/**
 * perf_add_desc() - add an instance of any kind
 * @spec: what to add, a pointer to a struct perf_counter_spec
 *
 * Context: as perf_add().
 * Return: as perf_add().
 */
#define perf_add_desc(spec)	__perf_add_desc(spec, THIS_MODULE)

/**
 * perf_del() - make an instance dormant
 * @instance: its number; it and the last values stay
 *
 * The caller has stopped its updates through handles. An errno of perf_add()
 * changes nothing; neither does a number that is not live, which is noted in
 * the kernel log.
 * Context: process; may sleep.
 */
void perf_del(int instance);

/**
 * perf_adjust() - add to this CPU's value, seen whole and in order by snapshots
 * @instance: a number; one that is not live, or an errno, changes nothing
 * @delta: may be negative
 *
 * Context: any, NMI included.
 */
void perf_adjust(int instance, s64 delta);

/**
 * perf_counter_handle() - resolve an instance for the inlines below
 * @instance: a number
 *
 * Context: any.
 * Return: the handle, valid until perf_del(); perf_counter_nowhere if the
 * number is not live.
 */
perf_counter_t perf_counter_handle(int instance);

/* 64 slots for each CPU that nobody reads: updates of what is not live end here. */
extern perf_counter_t perf_counter_nowhere;

/* The seqflags, slot 0 of every CPU. Set before any driver can be loaded. */
extern u64 __percpu *perf_counter_seqflag;

/**
 * perf_counter_add() - add to a counter that stands alone
 * @counter: from perf_counter_handle()
 * @delta: may be negative
 *
 * One instruction, in any context, NMI included. Snapshots see the value whole
 * but not in order with other counters; use a group or perf_adjust() for that.
 */
static __always_inline void perf_counter_add(perf_counter_t counter, s64 delta)
{
	this_cpu_add(*counter, delta);
}

/**
 * perf_counter_set() - set this CPU's value of a gauge
 * @counter: from perf_counter_handle()
 * @value: the new value
 */
static __always_inline void perf_counter_set(perf_counter_t counter, s64 value)
{
	this_cpu_write(*counter, value);
}

/**
 * perf_counter_peak() - raise this CPU's value of a peak
 * @counter: from perf_counter_handle()
 * @value: kept if it is larger than what is there
 *
 * Any context; a few instructions more only when the peak rises.
 */
static __always_inline void perf_counter_peak(perf_counter_t counter, s64 value)
{
	s64 seen = this_cpu_read(*counter);

	while (value > seen && !this_cpu_try_cmpxchg(*counter, &seen, value))
		;
}

/**
 * perf_counter_hist() - count a value in its log2 bucket
 * @counter: from perf_counter_handle() of a PERFCOUNTERS_HISTOGRAM
 * @nr_slots: the number of buckets it was added with
 * @value: bucket 0 takes values <= 0, bucket b those of [2^(b-1), 2^b)
 */
static __always_inline void perf_counter_hist(perf_counter_t counter,
					      unsigned int nr_slots, s64 value)
{
	unsigned int bucket = value > 0 ? fls64(value) : 0;

	/* At most 63, also where no instance has so few slots. */
	if (bucket > nr_slots - 1)
		bucket = nr_slots - 1;
	this_cpu_inc(counter[bucket]);
}

/**
 * perf_counter_begin() - begin a group of updates that belong together
 *
 * No reader's snapshot shows a part of what stands between this and
 * perf_counter_end(). Any context; groups nest with those of interrupts. Keeps
 * the task on its CPU, so do not sleep before perf_counter_end().
 */
static __always_inline void perf_counter_begin(void)
{
	preempt_disable();
	/* A: in flight, before the values. Pairs with the reader's D. */
	this_cpu_inc(*perf_counter_seqflag);
	barrier();
}

/**
 * perf_counter_end() - end a group of updates
 */
static __always_inline void perf_counter_end(void)
{
	barrier();
	/* B: no longer in flight, one more completed. Pairs with C. */
	this_cpu_add(*perf_counter_seqflag, PERFCOUNTERS_SEQ_BUSY);
	preempt_enable();
}

#else /* !CONFIG_PERFCOUNTERS */

#define perf_counter_nowhere	((perf_counter_t)NULL)

static inline int perf_add(const char *name)
{
	return 0;
}

static inline int perf_add_desc(const struct perf_counter_spec *spec)
{
	return 0;
}

static inline void perf_del(int instance)
{
}

static inline void perf_adjust(int instance, s64 delta)
{
}

static inline perf_counter_t perf_counter_handle(int instance)
{
	return NULL;
}

static inline void perf_counter_add(perf_counter_t counter, s64 delta)
{
}

static inline void perf_counter_set(perf_counter_t counter, s64 value)
{
}

static inline void perf_counter_peak(perf_counter_t counter, s64 value)
{
}

static inline void perf_counter_hist(perf_counter_t counter,
				     unsigned int nr_slots, s64 value)
{
}

static inline void perf_counter_begin(void)
{
}

static inline void perf_counter_end(void)
{
}

#endif /* CONFIG_PERFCOUNTERS */

#endif /* _LINUX_PERFCOUNTERS_H */
