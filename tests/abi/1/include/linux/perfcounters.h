/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * perfcounters: per-CPU 64-bit kernel counters, mapped read-only into user
 * space from /dev/perfcounters. Reading needs no system call.
 *
 * The file, in pages of @page_size bytes:
 *
 *	page 0			struct perfcounters_header and the CPU bitmaps
 *	then chunk 0, 1, 2...	each: for CPU 0 .. nr_cpus - 1,
 *				pages_per_chunk pages of that CPU's slots
 *	at @desc_offset		struct perfcounters_desc desc[max_instances]
 *
 * A slot is one __s64. An instance's number is its first slot's number; slot 0
 * of every CPU is that CPU's seqflag. Chunks are only ever appended, so no
 * offset moves and an old mapping stays valid.
 *
 * See Documentation/counter-pages.md, which has the reader's protocol.
 */
#ifndef _UAPI_LINUX_PERFCOUNTERS_H
#define _UAPI_LINUX_PERFCOUNTERS_H

#include <linux/types.h>

#define PERFCOUNTERS_VERSION		1

/* Longest name and help text, with the terminating NUL. */
#define PERFCOUNTERS_NAME_MAX		128
#define PERFCOUNTERS_HELP_MAX		80

/* Most instances, and so slots, that can ever exist (slot 0 included). */
#define PERFCOUNTERS_MAX_INSTANCES	65536

/*
 * The seqflag of a CPU: the low bits count the updates in flight on that CPU,
 * the bits above count the completed ones. Low bits zero and the same word
 * before and after a copy: nothing was torn and nothing came in between.
 */
#define PERFCOUNTERS_SEQ_SHIFT		16
#define PERFCOUNTERS_SEQ_BUSY		((1ULL << PERFCOUNTERS_SEQ_SHIFT) - 1)

/* header.flags */
#define PERFCOUNTERS_F_ATOMIC64		(1U << 0)	/* an aligned slot never tears */

/**
 * struct perfcounters_header - page 0 of /dev/perfcounters
 * @version: PERFCOUNTERS_VERSION; another one means another layout
 * @size: bytes of this structure that the kernel fills in; may only grow
 * @min_size: bytes that every kernel of this version fills in
 * @nr_cpus: CPU blocks in each chunk (the kernel's nr_cpu_ids)
 * @gen1: bumped before the set of instances changes
 * @gen2: bumped after; a reader takes @gen2 first and @gen1 last
 * @page_size: bytes in a page
 * @pages_per_chunk: pages of one CPU in one chunk
 * @nr_chunks: chunks that exist now; reading past them raises SIGBUS
 * @nr_slots: slots in use, holes included; no live instance lies beyond
 * @max_instances: nr_slots will never exceed this
 * @flags: PERFCOUNTERS_F_*
 * @counters_offset: file offset of chunk 0
 * @desc_offset: file offset of the descriptor of instance 0
 * @desc_size: bytes from one descriptor to the next
 * @possible_offset: offset in the header page of the bitmap of possible CPUs
 * @online_offset: the same for online CPUs; __u64 words, CPU n is bit n % 64
 *	of word n / 64
 * @tsc_khz: ticks of RDTSC per millisecond, 0 if it is of no use here
 * @boot_id: random; another one means that perfcounters.ko was loaded anew and
 *	instance numbers have nothing to do with the old ones
 * @loaded_ns: CLOCK_REALTIME when the counters came to life
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

/* desc.state */
enum perfcounters_state {
	PERFCOUNTERS_FREE	= 0,	/* no instance here (a run's tail, a hole) */
	PERFCOUNTERS_LIVE	= 1,
	PERFCOUNTERS_DORMANT	= 2,	/* its owner has gone; number and values stay */
};

/* desc.kind: how values of several CPUs, and of two readings, combine */
enum perfcounters_kind {
	PERFCOUNTERS_COUNTER	= 0,	/* only grows; sum over CPUs */
	PERFCOUNTERS_GAUGE	= 1,	/* goes both ways; sum over CPUs */
	PERFCOUNTERS_PEAK	= 2,	/* the largest seen; maximum over CPUs */
	PERFCOUNTERS_TIME	= 3,	/* time spent; only grows; sum over CPUs */
	PERFCOUNTERS_HISTOGRAM	= 4,	/* nr_slots log2 buckets; each sums */
};

/* desc.unit: a value is value * 10^exponent of this */
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
 * struct perfcounters_desc - what an instance is
 * @instance: its number, which is the index of this descriptor
 * @state: enum perfcounters_state
 * @kind: enum perfcounters_kind
 * @unit: enum perfcounters_unit; of a histogram: what its buckets measure
 * @exponent: power of ten, -9 for nanoseconds in PERFCOUNTERS_SECONDS
 * @reserved0: zero
 * @nr_slots: slots of the run; 1 but for histograms. Bucket 0 of a histogram
 *	counts values <= 0, bucket b values of [2^(b-1), 2^b), the last one all
 *	larger ones too
 * @incarnation: 1 for the first life, one more each time the name comes back;
 *	values begin at zero in each life
 * @reserved1: zero
 * @created_ns: CLOCK_REALTIME of the beginning of this life
 * @ended_ns: CLOCK_REALTIME when it became dormant, 0 while it lives
 * @reserved2: zero
 * @name: UTF-8, no control characters, NUL-terminated and padded
 * @help: one sentence, the same rules; may be empty
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
 * perfcounters_offset() - where a CPU's slot lies in /dev/perfcounters
 * @h: the header
 * @cpu: 0 .. nr_cpus - 1
 * @slot: an instance number, plus the bucket for a histogram; 0 is the seqflag
 *
 * Return: the file offset of an __s64. Always inside the file if
 * @slot < h->nr_slots.
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
