/* SPDX-License-Identifier: GPL-2.0 */
/*
 * perfcounters: the interface for drivers that maintain counters.
 *
 *	static int reads;
 *	static perf_counter_t reads_fast;
 *
 *	reads = perf_add("disk/sda/reads");		// process context
 *	reads_fast = perf_counter_handle(reads);
 *	...
 *	perf_adjust(reads, 1);				// any context; ordered for snapshots
 *	perf_counter_add(reads_fast, 1);		// any context; one instruction
 *	...
 *	perf_del(reads);				// process context
 *
 * In a driver built without CONFIG_PERFCOUNTERS all calls are no-ops, and the
 * driver does not depend on perfcounters.ko. Drivers out of tree add
 * "ccflags-y += -DCONFIG_PERFCOUNTERS" and the include path; see tests/modules.
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
 * @exponent: a value v means v * 10^exponent units; -18 to 18
 * @reserved: 0
 * @nr_slots: 0 or 1; for a histogram the number of buckets, 2 to 64
 * @name: in the format of perf_add()
 * @help: a sentence that describes the instance to users, at most
 *	PERFCOUNTERS_HELP_MAX - 1 bytes of UTF-8 without control characters; may
 *	be NULL
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

/* A handle: per-CPU pointer to the first slot of an instance. */
typedef s64 __percpu *perf_counter_t;

#ifdef CONFIG_PERFCOUNTERS

int __perf_add(const char *name, struct module *owner);
int __perf_add_desc(const struct perf_counter_spec *spec, struct module *owner);

/**
 * perf_add() - add a counter of events
 * @name: 1 to 127 bytes of UTF-8 without control characters
 *
 * The instance belongs to the calling module. Instances that the module has not
 * deleted become dormant when it is unloaded. All other calls accept an errno
 * in place of an instance number and have no effect then, so a driver does not
 * have to handle a failure.
 *
 * Context: process; may sleep.
 * Return: the instance number, or a negative errno; the kernel log has the
 * reason, but is rate-limited. The values of the instance are zero. As long as
 * perfcounters.ko is loaded, a name keeps its number, unless it is added with
 * more slots than before.
 *
 * -EINVAL: bad argument, or called from atomic context
 * -ENAMETOOLONG: the name or the help text is too long
 * -EILSEQ: the text is not UTF-8, or has control characters
 * -EEXIST: an instance of this name is live
 * -ENOSPC: all instance numbers are in use
 * -ENOMEM: no memory
 */
#define perf_add(name)	__perf_add(name, THIS_MODULE)

/**
 * perf_add_desc() - add an instance of any kind
 * @spec: description of the instance, a pointer to struct perf_counter_spec
 *
 * Context: process; may sleep.
 * Return: the instance number, or a negative errno; see perf_add().
 */
#define perf_add_desc(spec)	__perf_add_desc(spec, THIS_MODULE)

/**
 * perf_del() - make an instance dormant
 * @instance: number of the instance, or an errno of perf_add(), which is ignored
 *
 * The number and the last values can still be read. The caller must have
 * stopped its updates through handles. If the instance is not live, nothing
 * changes and a line is logged.
 *
 * Context: process; may sleep.
 */
void perf_del(int instance);

/**
 * perf_adjust() - add to this CPU's value in a way that snapshots see in order
 * @instance: number of the instance; ignored if it is not live, or an errno
 * @delta: amount to add; may be negative
 *
 * The update is a group of its own, see perf_counter_begin().
 *
 * Context: any, NMI included.
 */
void perf_adjust(int instance, s64 delta);

/**
 * perf_counter_handle() - resolve an instance for the inline functions below
 * @instance: number of the instance, or an errno of perf_add()
 *
 * Context: any.
 * Return: the handle, valid until perf_del(); perf_counter_nowhere if the
 * instance is not live.
 */
perf_counter_t perf_counter_handle(int instance);

/*
 * 64 slots per CPU that no reader can see. The handle of an instance that is
 * not live points here.
 */
extern perf_counter_t perf_counter_nowhere;

/* The seqflags: slot 0 of every CPU. Set before any driver can be loaded. */
extern u64 __percpu *perf_counter_seqflag;

/**
 * perf_counter_add() - add to a counter, without ordering
 * @counter: from perf_counter_handle()
 * @delta: amount to add; may be negative
 *
 * This is one instruction. A snapshot does not see a torn value, but may see the
 * update out of order with those of other counters. To avoid that, use a group
 * or perf_adjust().
 *
 * Context: any, NMI included.
 */
static __always_inline void perf_counter_add(perf_counter_t counter, s64 delta)
{
	this_cpu_add(*counter, delta);
}

/**
 * perf_counter_set() - set this CPU's value of a gauge
 * @counter: from perf_counter_handle()
 * @value: the new value
 *
 * Context: any, NMI included.
 */
static __always_inline void perf_counter_set(perf_counter_t counter, s64 value)
{
	this_cpu_write(*counter, value);
}

/**
 * perf_counter_peak() - raise this CPU's value of a peak
 * @counter: from perf_counter_handle()
 * @value: stored if it is larger than the present value
 *
 * The compare-and-exchange is executed only if the peak rises.
 *
 * Context: any, NMI included.
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
 * @nr_slots: the number of buckets that the instance was added with
 * @value: counted in bucket 0 if it is <= 0, in bucket b if it is in
 *	[2^(b-1), 2^b), and in the last bucket if it is larger
 *
 * Context: any, NMI included.
 */
static __always_inline void perf_counter_hist(perf_counter_t counter,
					      unsigned int nr_slots, s64 value)
{
	unsigned int bucket = value > 0 ? fls64(value) : 0;

	/* Larger values count in the last bucket. At most 63, as perf_counter_nowhere has 64. */
	if (bucket > nr_slots - 1)
		bucket = nr_slots - 1;
	this_cpu_inc(counter[bucket]);
}

/**
 * perf_counter_begin() - begin a group of updates that belong together
 *
 * A snapshot shows either all or none of the updates made before the matching
 * perf_counter_end(). Groups nest, also with groups of interrupts and NMIs.
 * Preemption is disabled until perf_counter_end(), so do not sleep in between.
 *
 * Context: any, NMI included.
 */
static __always_inline void perf_counter_begin(void)
{
	preempt_disable();
	/* A: count the update in flight before the values. Pairs with the reader's D. */
	this_cpu_inc(*perf_counter_seqflag);
	barrier();
}

/**
 * perf_counter_end() - end a group of updates
 *
 * Context: that of the matching perf_counter_begin().
 */
static __always_inline void perf_counter_end(void)
{
	barrier();
	/* B: one update fewer in flight, one more completed. Pairs with the reader's C. */
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
