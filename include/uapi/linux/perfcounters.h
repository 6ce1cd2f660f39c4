/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * perfcounters: per-CPU 64-bit kernel counters, mapped read-only into user
 * space from /dev/perfcounters. A program reads the mapped counters without a
 * system call.
 *
 * The contents of /dev/perfcounters, in pages of @page_size bytes:
 *
 *	page 0			struct perfcounters_header and the CPU bitmaps
 *	then chunk 0, 1, 2...	each: for CPU 0 .. nr_cpus - 1,
 *				pages_per_chunk pages of that CPU's slots
 *	at @desc_offset		struct perfcounters_desc desc[max_instances]
 *
 * A slot is one __s64. An instance is a named counter, gauge or histogram; the
 * number of an instance is the number of its first slot. Slot 0 of every CPU is
 * that CPU's seqflag. The file grows only by chunks that are appended, so
 * offsets never change and old mappings stay valid.
 *
 * Documentation/counter-pages.md describes how to read a consistent copy.
 */
#ifndef _UAPI_LINUX_PERFCOUNTERS_H
#define _UAPI_LINUX_PERFCOUNTERS_H

#include <linux/types.h>

#define PERFCOUNTERS_VERSION		1

/* Maximum size of a name and of a help text, including the terminating NUL. */
#define PERFCOUNTERS_NAME_MAX		128
#define PERFCOUNTERS_HELP_MAX		80

/*
 * Maximum number of slots, slot 0 included. Each instance has at least one
 * slot, so there are fewer than PERFCOUNTERS_MAX_INSTANCES instances.
 */
#define PERFCOUNTERS_MAX_INSTANCES	65536

/*
 * The seqflag of a CPU is a word with two counts. The low
 * PERFCOUNTERS_SEQ_SHIFT bits count the updates in flight on that CPU; the
 * higher bits count the completed updates. A copy of the CPU's slots is
 * consistent if the low bits of the seqflag were zero before the copy and the
 * seqflag has the same value after the copy.
 */
#define PERFCOUNTERS_SEQ_SHIFT		16
#define PERFCOUNTERS_SEQ_BUSY		((1ULL << PERFCOUNTERS_SEQ_SHIFT) - 1)

/* Bits of perfcounters_header.flags */
#define PERFCOUNTERS_F_ATOMIC64		(1U << 0)	/* loads of a slot are never torn */

/**
 * struct perfcounters_header - page 0 of /dev/perfcounters
 * @version: PERFCOUNTERS_VERSION; any other value identifies a different layout
 * @size: number of bytes of this structure that the kernel fills in; a later
 *	kernel may fill in more bytes, but not fewer
 * @min_size: number of bytes of this structure that every kernel of this
 *	@version fills in
 * @nr_cpus: number of CPUs for which each chunk has slots (the kernel's nr_cpu_ids)
 * @gen1: generation, incremented before the set of instances changes
 * @gen2: generation, set to @gen1 after the set of instances has changed. A
 *	reader loads @gen2 before it reads the descriptors, and @gen1 after it
 *	has read them; if @gen1 and @gen2 differ, the reader reads the
 *	descriptors again
 * @page_size: bytes in a page
 * @pages_per_chunk: number of pages of one CPU in one chunk
 * @nr_chunks: number of chunks at present; an access beyond the last chunk
 *	raises SIGBUS
 * @nr_slots: number of slots in use, including unused slots between instances;
 *	the number of every live instance is below @nr_slots
 * @max_instances: maximum value that @nr_slots can reach
 * @flags: PERFCOUNTERS_F_*
 * @counters_offset: file offset of chunk 0
 * @desc_offset: file offset of the descriptor of instance 0
 * @desc_size: distance in bytes from one descriptor to the next
 * @possible_offset: offset in the header page of the bitmap of possible CPUs;
 *	CPU n is bit n % 64 of __u64 word n / 64
 * @online_offset: offset in the header page of the bitmap of online CPUs, which
 *	has the format of the bitmap of possible CPUs
 * @tsc_khz: RDTSC ticks per millisecond; 0 if the time stamp counter is not
 *	constant, or stops in idle states
 * @boot_id: random number, chosen each time that perfcounters.ko is loaded; if @boot_id has changed
 *	since an earlier read, the instance numbers from the earlier read are no longer valid
 * @loaded_ns: CLOCK_REALTIME in nanoseconds when perfcounters.ko was loaded
 */
struct perfcounters_header {
	__u32	version;
	__u32	size;
	__u32	min_size;
	__u32	nr_cpus;
	__u64	gen1;
	__u64	gen2;
	__u32	page_size;
	__u32	pages_per_chunk;
	__u32	nr_chunks;
	__u32	nr_slots;
	__u32	max_instances;
	__u32	flags;
	__u64	counters_offset;
	__u64	desc_offset;
	__u32	desc_size;
	__u32	possible_offset;
	__u32	online_offset;
	__u32	tsc_khz;
	__u8	boot_id[16];
	__u64	loaded_ns;
};

/* Values of perfcounters_desc.state */
enum perfcounters_state {
	PERFCOUNTERS_FREE	= 0,	/* unused slot, or not the first slot of an instance */
	PERFCOUNTERS_LIVE	= 1,	/* the module that added the instance uses it */
	PERFCOUNTERS_DORMANT	= 2,	/* the owner deleted the instance; number and values stay */
};

/*
 * Values of perfcounters_desc.kind. The kind of an instance determines how its
 * values on several CPUs are combined (sum or maximum), and whether its value
 * can shrink between two reads.
 */
enum perfcounters_kind {
	PERFCOUNTERS_COUNTER	= 0,	/* only grows; sum over CPUs */
	PERFCOUNTERS_GAUGE	= 1,	/* grows and shrinks; sum over CPUs */
	PERFCOUNTERS_PEAK	= 2,	/* largest value so far; maximum over CPUs */
	PERFCOUNTERS_TIME	= 3,	/* time spent; only grows; sum over CPUs */
	PERFCOUNTERS_HISTOGRAM	= 4,	/* nr_slots log2 buckets, each summed over CPUs */
};

/*
 * Values of perfcounters_desc.unit: the value v of a slot means v * 10^exponent
 * of this unit
 */
enum perfcounters_unit {
	PERFCOUNTERS_NONE	= 0,
	PERFCOUNTERS_EVENTS	= 1,
	PERFCOUNTERS_BYTES	= 2,
	PERFCOUNTERS_SECONDS	= 3,
	PERFCOUNTERS_CYCLES	= 4,
	PERFCOUNTERS_SECTORS	= 5,	/* of 512 bytes */
	PERFCOUNTERS_PACKETS	= 6,
	PERFCOUNTERS_PAGES	= 7,
};

/**
 * struct perfcounters_desc - the descriptor of an instance
 * @instance: number of the instance, which is also the index of this
 *	descriptor; 0 if @state is PERFCOUNTERS_FREE
 * @state: enum perfcounters_state
 * @kind: enum perfcounters_kind
 * @unit: enum perfcounters_unit; for a histogram, the unit of the values that
 *	its buckets count
 * @exponent: power of ten by which values are multiplied: -9 with the unit
 *	PERFCOUNTERS_SECONDS means nanoseconds
 * @reserved0: zero
 * @nr_slots: number of consecutive slots: 1, or the number of buckets of a
 *	histogram. Bucket 0 of a histogram counts values <= 0, bucket b counts
 *	values in [2^(b-1), 2^b), and the last bucket counts all larger values
 *	as well
 * @incarnation: how often an instance of this name has been added since
 *	perfcounters.ko was loaded; the values of the instance start at zero
 *	each time that it is added
 * @reserved1: zero
 * @created_ns: CLOCK_REALTIME in nanoseconds when the instance was last added
 * @ended_ns: CLOCK_REALTIME in nanoseconds when the instance became dormant; 0
 *	while the instance is live
 * @reserved2: zero
 * @name: name of the instance: UTF-8 without control characters, NUL-terminated
 *	and padded with NULs
 * @help: a sentence that describes the instance, in the format of @name; may be
 *	empty
 */
struct perfcounters_desc {
	__u32	instance;
	__u32	state;
	__u16	kind;
	__u16	unit;
	__s8	exponent;
	__u8	reserved0;
	__u16	nr_slots;
	__u32	incarnation;
	__u32	reserved1;
	__u64	created_ns;
	__u64	ended_ns;
	__u64	reserved2;
	char	name[PERFCOUNTERS_NAME_MAX];
	char	help[PERFCOUNTERS_HELP_MAX];
};

/**
 * perfcounters_offset() - compute the file offset of a CPU's slot
 * @h: the header page of the mapped /dev/perfcounters
 * @cpu: number of the CPU, 0 .. nr_cpus - 1
 * @slot: number of the instance, plus the bucket for a histogram; slot 0 is the
 *	seqflag
 *
 * Return: the offset of the slot, an __s64, in /dev/perfcounters. The offset is
 * inside the file if @slot < h->nr_slots.
 */
static inline __u64 perfcounters_offset(const struct perfcounters_header *h,
					__u32 cpu, __u32 slot)
{
	__u64 slots_per_chunk = (__u64)h->pages_per_chunk * h->page_size / 8;
	__u64 block = slots_per_chunk * 8;

	return h->counters_offset +
	       (slot / slots_per_chunk * h->nr_cpus + cpu) * block +
	       slot % slots_per_chunk * 8;
}

#endif /* _UAPI_LINUX_PERFCOUNTERS_H */
