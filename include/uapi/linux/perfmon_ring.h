/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * perfmon: the ring of a sampling context, and what the formats of pfm_ring write
 * into it.
 *
 * A context's file has the ring's page at 0 and its data from a page on, both
 * read-only; the reader's own page at PERFMON_TAIL_OFFSET can be written. Positions
 * are bytes, modulo 2^64; the byte of a position is at position % data_size. Forward
 * rings begin at 0 and grow; backward ones begin at 0 and fall, so that the newest
 * record is at @head and older ones follow it.
 *
 * See Documentation/sampling.md.
 */
#ifndef _UAPI_LINUX_PERFMON_RING_H
#define _UAPI_LINUX_PERFMON_RING_H

#include <linux/types.h>

/* perfmon_ring_page.flags, perfmon_ring_arg.flags */
#define PERFMON_RING_BACKWARD	0x01	/* from high positions to low ones */
#define PERFMON_RING_OVERWRITE	0x02	/* old records go; else new ones are lost */

/**
 * struct perfmon_ring_page - how a ring stands
 * @version: PERFMON_RING_VERSION
 * @size: of this structure
 * @flags: PERFMON_RING_*
 * @data_offset: where the data begin in the file
 * @data_size: bytes of data, a power of two
 * @head: everything up to here is written
 * @reserve: the kernel may be writing up to here: forward what is below
 *	@reserve - @data_size is gone, backward what is above @reserve + @data_size
 * @lost: records that could not be written
 * @paused: not 0 while nothing is written
 *
 * Load @head with acquire, copy, then a fence, then load @reserve: what is not gone
 * was copied whole.
 */
struct perfmon_ring_page {
	__u32	version;
	__u32	size;
	__u32	flags;
	__u32	data_offset;
	__u64	data_size;
	__u64	head;
	__u64	reserve;
	__u64	lost;
	__u64	paused;
};

#define PERFMON_RING_VERSION	1

/**
 * struct perfmon_ring_tail - the reader's page
 * @tail: what the reader has done with, on the way to @head; store with release.
 *	While it makes no sense the ring is full. Not looked at with OVERWRITE.
 */
struct perfmon_ring_tail {
	__u64	tail;
};

/**
 * struct perfmon_record - how each record begins, at a multiple of 8 bytes
 * @size: its bytes, this included, a multiple of 8
 * @type: PERFMON_RECORD_*
 * @flags: zero
 */
struct perfmon_record {
	__u32	size;
	__u16	type;
	__u16	flags;
};

#define PERFMON_RECORD_SAMPLE		1	/* struct perfmon_sample */
#define PERFMON_RECORD_LOST		2	/* a __u64: records lost before the next one */
#define PERFMON_RECORD_THROTTLE		3	/* a __u64, the time: too many overflows */
#define PERFMON_RECORD_UNTHROTTLE	4	/* a __u64, the time: sampling goes on */
#define PERFMON_RECORD_EXEC		5	/* a __u64, the time of an exec of the thread */

/* Before the frames of the kernel's, and of user space's stack. */
#define PERFMON_STACK_KERNEL	((__u64)-128)
#define PERFMON_STACK_USER	((__u64)-512)

/**
 * struct perfmon_sample - PERFMON_RECORD_SAMPLE
 * @header: how it begins
 * @ip: the instruction, or PERFMON_IN_GUEST
 * @pid: the process, in the name space of the context's creator
 * @tid: the thread
 * @time: nanoseconds of CLOCK_MONOTONIC
 * @pmd: the counter that overflowed
 * @set: the event set
 * @cpu: where it was
 * @last_reset: what @pmd held at the beginning of the period that ended: minus
 *	its length
 * @eventid: pfarg_pmd.reg_smpl_eventid
 * @nr_values: PMDs of pfarg_pmd.reg_smpl_pmds
 * @nr_frames: of the stack
 * @more: so many values, ascending by PMD; then so many frames
 */
struct perfmon_sample {
	struct perfmon_record header;
	__u64	ip;
	__u32	pid;
	__u32	tid;
	__u64	time;
	__u16	pmd;
	__u16	set;
	__u32	cpu;
	__u64	last_reset;
	__u64	eventid;
	__u32	nr_values;
	__u32	nr_frames;

	__extension__ __u64	more[];
};

/* perfmon_ring_arg.fields */
#define PERFMON_FIELD_KERNEL_STACK	0x01
#define PERFMON_FIELD_USER_STACK	0x02

/**
 * struct perfmon_ring_arg - argument of the formats "ring" (forward, or as @flags
 *	say), "flight-recorder" (backward and overwritten) and "call-stack" (both
 *	stacks)
 * @size: bytes of data, a power of two, at least a page
 * @flags: PERFMON_RING_*
 * @watermark: a message each time so many bytes were written; 0: half of @size;
 *	rings that are overwritten send none with 0
 * @fields: PERFMON_FIELD_*
 * @max_frames: of each stack at most; 0: 127
 * @reserved: zero
 */
struct perfmon_ring_arg {
	__u64	size;
	__u32	flags;
	__u32	watermark;
	__u32	fields;
	__u32	max_frames;
	__u64	reserved[5];
};

#endif /* _UAPI_LINUX_PERFMON_RING_H */
