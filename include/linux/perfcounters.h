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
 * If a driver is built without CONFIG_PERFCOUNTERS, all functions of this
 * header are no-ops, and the driver does not depend on perfcounters.ko. The
 * Kbuild file of an out-of-tree driver has to add the include path of this
 * header and "ccflags-y += -DCONFIG_PERFCOUNTERS", as tests/modules/Kbuild does.
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
 * @size: sizeof(struct perf_counter_spec); it identifies the version of the
 *	structure, to which fields can be appended
 * @kind: enum perfcounters_kind
 * @unit: enum perfcounters_unit
 * @exponent: power of ten, -18 to 18: a value v means v * 10^exponent units
 * @reserved: 0
 * @nr_slots: number of slots: 0 or 1, or for a histogram the number of buckets,
 *	2 to 64
 * @name: name of the instance, in the format of the argument of perf_add()
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

/* The handle of an instance: a per-CPU pointer to its first slot. */
typedef s64 __percpu *perf_counter_t;

#ifdef CONFIG_PERFCOUNTERS

int __perf_add(const char *name, struct module *owner);
int __perf_add_desc(const struct perf_counter_spec *spec, struct module *owner);

/**
 * perf_add() - add a counter of events
 * @name: name of the counter: 1 to 127 bytes of UTF-8 without control
 *	characters
 *
 * The calling module owns the instance, that is, the new counter. When the
 * module is unloaded, the instances that the module has not deleted become
 * dormant. A driver does not have to handle a failure of perf_add(). The other
 * functions of this header accept an errno of perf_add() in place of an
 * instance number; a call with an errno has no effect.
 *
 * Context: process; may sleep.
 * Return: the instance number, or a negative errno; the reason for an errno is
 * written to the kernel log, at a limited rate. The values of the new instance
 * start at zero. As long as perfcounters.ko is loaded, an instance that is
 * added again under the same name gets the same number, unless it has more
 * slots than before.
 *
 * -EINVAL: an argument is invalid, or the caller is in atomic context
 * -ENAMETOOLONG: the name or the help text is too long
 * -EILSEQ: the name or the help text is not UTF-8, or has control characters
 * -EEXIST: an instance of this name is live
 * -ENOSPC: all instance numbers are in use
 * -ENOMEM: there is not enough memory
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
 * The number and the last values of a dormant instance can still be read.
 * Before the call, the caller must have stopped all updates through handles of
 * the instance. If the instance is not live, perf_del() only logs a message.
 *
 * Context: process; may sleep.
 */
void perf_del(int instance);

/**
 * perf_adjust() - add to this CPU's value; snapshots keep the order of updates
 * @instance: number of the instance; the call has no effect if @instance is an errno or the
 *	instance is not live
 * @delta: amount to add; may be negative
 *
 * A single perf_adjust() has the same guarantee as a group of updates between
 * perf_counter_begin() and perf_counter_end().
 *
 * Context: any, NMI included.
 */
void perf_adjust(int instance, s64 delta);

/**
 * perf_counter_handle() - resolve an instance for the inline functions below
 * @instance: number of the instance, or an errno of perf_add()
 *
 * Context: any.
 * Return: the handle, valid until perf_del() of the instance;
 * perf_counter_nowhere if the instance is not live.
 */
perf_counter_t perf_counter_handle(int instance);

/*
 * The handle of an instance that is not live: it points to 64 slots per CPU
 * that no reader can see.
 */
extern perf_counter_t perf_counter_nowhere;

/*
 * Per-CPU pointer to the seqflags, the sequence words in slot 0 of each CPU.
 * perfcounters.ko sets the pointer before any driver can be loaded.
 */
extern u64 __percpu *perf_counter_seqflag;

/**
 * perf_counter_add() - add to a counter, without ordering
 * @counter: from perf_counter_handle()
 * @delta: amount to add; may be negative
 *
 * The function executes one instruction. A snapshot never sees a torn value,
 * but may see this update out of order with updates of other counters. Use
 * perf_adjust(), or a group of updates, if snapshots must see updates in order.
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
 * perf_counter_peak() - raise this CPU's maximum in a PERFCOUNTERS_PEAK
 * instance
 * @counter: from perf_counter_handle()
 * @value: the new maximum, if it is larger than the stored maximum
 *
 * The function executes a compare-and-exchange only if @value is above the
 * stored maximum.
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
 * @counter: handle of a PERFCOUNTERS_HISTOGRAM instance, from perf_counter_handle()
 * @nr_slots: number of buckets of the instance
 * @value: counted in bucket 0 if it is <= 0, in bucket b if it is in [2^(b-1), 2^b), and in the
 *	last bucket if it is too large for the other buckets
 *
 * Context: any, NMI included.
 */
static __always_inline void perf_counter_hist(perf_counter_t counter,
					      unsigned int nr_slots, s64 value)
{
	unsigned int bucket = value > 0 ? fls64(value) : 0;

	/*
	 * Values beyond the range of the last bucket are also counted in the
	 * last bucket. A histogram has at most 64 buckets, so the index is also
	 * valid in perf_counter_nowhere, which has 64 slots.
	 */
	if (bucket > nr_slots - 1)
		bucket = nr_slots - 1;
	this_cpu_inc(counter[bucket]);
}

/**
 * perf_counter_begin() - begin a group of updates that belong together
 *
 * A snapshot shows either all or none of the updates made between
 * perf_counter_begin() and the matching perf_counter_end(). A group may contain other groups, also
 * groups of interrupts and NMIs. Preemption is disabled from perf_counter_begin() to the matching
 * perf_counter_end(), so the caller must not sleep in between.
 *
 * Context: any, NMI included.
 */
static __always_inline void perf_counter_begin(void)
{
	preempt_disable();
	/*
	 * Step A of the seqflag protocol (src/protocols/seqflag.rs): count the
	 * group of updates as in flight before the group changes values. Pairs
	 * with D, the acquire fence of readers.
	 */
	this_cpu_inc(*perf_counter_seqflag);
	barrier();
}

/**
 * perf_counter_end() - end a group of updates
 *
 * Context: the context in which the matching perf_counter_begin() was called.
 */
static __always_inline void perf_counter_end(void)
{
	/*
	 * Step B of the seqflag protocol (src/protocols/seqflag.rs): count the
	 * group of updates as completed after the group has changed values.
	 * Pairs with C, the acquire load of readers.
	 */
	barrier();
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
