/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * perfmon: the ring of a sampling context, and the records that the formats of the module
 * pfm_ring write into it.
 *
 * The control page of the ring is at offset 0 of the context's file, and the
 * ring's data begin in the next page. User space maps the control page and the
 * data read-only. The reader of the ring writes its position to the page at
 * PERFMON_TAIL_OFFSET. Positions in the ring are in bytes, modulo 2^64; the
 * byte at a position is at offset position % data_size of the data. Positions
 * of a forward ring start at 0 and increase. Positions of a backward ring start
 * at 0 and decrease, so that the newest record is at @head and older records
 * follow the newest one.
 *
 * Documentation/sampling.md describes the formats of pfm_ring and their records.
 */
#ifndef _UAPI_LINUX_PERFMON_RING_H
#define _UAPI_LINUX_PERFMON_RING_H

#include <linux/types.h>

/* Bits of perfmon_ring_page.flags and of perfmon_ring_arg.flags */
#define PERFMON_RING_BACKWARD	0x01	/* write from high positions to low ones */
#define PERFMON_RING_OVERWRITE	0x02	/* if full, drop old records, not new ones */

/**
 * struct perfmon_ring_page - the control page of a ring, written by the kernel
 * @version: PERFMON_RING_VERSION
 * @size: size of this structure in bytes
 * @flags: PERFMON_RING_*
 * @data_offset: offset of the ring's data in the context's file
 * @data_size: size of the ring's data in bytes, a power of two
 * @head: position up to which records are complete
 * @reserve: position up to which the kernel may be writing. The data at positions below @reserve -
 *	@data_size (in a backward ring: above @reserve + @data_size) have been overwritten
 * @lost: number of records that were not written
 * @paused: not 0 while PERFMON_PAUSE is in effect
 *
 * A reader loads @head with acquire semantics, copies records, executes an
 * acquire fence and loads @reserve. The copied records are intact if the loaded
 * @reserve shows that they were not overwritten.
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
 * struct perfmon_ring_tail - the page that the reader of a ring writes
 * @tail: position up to which the reader has consumed records; must be stored with release
 *	semantics. If @tail is more than perfmon_ring_page.data_size away from
 *	perfmon_ring_page.head, or beyond perfmon_ring_page.head, the ring counts as full. In a ring
 *	with PERFMON_RING_OVERWRITE, the kernel ignores @tail
 */
struct perfmon_ring_tail {
	__u64	tail;
};

/**
 * struct perfmon_record - header of a record, which begins at a multiple of 8 bytes in the ring
 * @size: size of the record in bytes, this header included, a multiple of 8
 * @type: PERFMON_RECORD_*
 * @flags: zero
 */
struct perfmon_record {
	__u32	size;
	__u16	type;
	__u16	flags;
};

#define PERFMON_RECORD_SAMPLE		1	/* struct perfmon_sample */
#define PERFMON_RECORD_LOST		2	/* __u64: number of lost records */
#define PERFMON_RECORD_THROTTLE		3	/* __u64: CLOCK_MONOTONIC in ns at the pause */
#define PERFMON_RECORD_UNTHROTTLE	4	/* __u64: CLOCK_MONOTONIC in ns at the resume */
#define PERFMON_RECORD_EXEC		5	/* __u64: CLOCK_MONOTONIC in ns of an exec */

/*
 * Marker words: one precedes the frames of the kernel stack, the other precedes
 * the frames of the user stack.
 */
#define PERFMON_STACK_KERNEL	((__u64)-128)
#define PERFMON_STACK_USER	((__u64)-512)

/**
 * struct perfmon_sample - a record of type PERFMON_RECORD_SAMPLE
 * @header: header of the record
 * @ip: address of the interrupted instruction, or PERFMON_IN_GUEST
 * @pid: id of the process, in the pid namespace of the context's creator
 * @tid: id of the thread, in the pid namespace of the context's creator
 * @time: time of the overflow, CLOCK_MONOTONIC in nanoseconds
 * @pmd: logical number of the PMD that overflowed
 * @set: id of the event set that was active
 * @cpu: number of the CPU on which the PMD overflowed
 * @last_reset: value of @pmd at the start of the period, which is the negative length of the period
 * @eventid: value that user space has set in pfarg_pmd.reg_smpl_eventid
 * @nr_values: number of PMD values in @more
 * @nr_frames: number of words of the call stacks in @more, including PERFMON_STACK_KERNEL and
 *	PERFMON_STACK_USER
 * @more: the values of the PMDs in pfarg_pmd.reg_smpl_pmds, in ascending order of the PMDs'
 *	numbers; then the words of the call stacks, each PERFMON_STACK_KERNEL, PERFMON_STACK_USER or
 *	an address
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

/* Bits of perfmon_ring_arg.fields */
#define PERFMON_FIELD_KERNEL_STACK	0x01
#define PERFMON_FIELD_USER_STACK	0x02

/**
 * struct perfmon_ring_arg - argument of the sampling formats "ring", "flight-recorder" and
 * "call-stack"
 * @size: size of the ring's data in bytes, a power of two, from a page to 1 GiB
 * @flags: PERFMON_RING_*; the format "flight-recorder" always sets PERFMON_RING_BACKWARD and
 *	PERFMON_RING_OVERWRITE
 * @watermark: number of bytes written after which a message is queued, at most @size. The value 0
 *	means half of @size or, with PERFMON_RING_OVERWRITE, that no messages are queued
 * @fields: PERFMON_FIELD_*; 0 selects both stacks in the format "call-stack"
 * @max_frames: maximum number of frames of each stack, 1 to 127; 0 means 127
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
