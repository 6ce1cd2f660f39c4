/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * perftrace: filters, which select the events that a trace records. perftrace.h includes this
 * header. Documentation/tracing.md describes the interface.
 */
#ifndef _UAPI_LINUX_PERFTRACE_FILTER_H
#define _UAPI_LINUX_PERFTRACE_FILTER_H

#include <linux/types.h>

/*
 * A filter is a program without loops. Each step of a filter compares a field with a constant. The
 * result of the comparison selects a later step, or accepts or rejects the event. A comparison is
 * false if the marker does not have the field, or if the field is of another kind than the
 * constant. In addition to the marker's fields, a filter can use $thread and $process (numbers) and
 * $marker (text, "provider:event").
 */
/* Compares a field with @value. Integers of any size and signedness are compared by value. */
#define PERFTRACE_EQ		1
#define PERFTRACE_NE		2
#define PERFTRACE_LT		3
#define PERFTRACE_LE		4
#define PERFTRACE_GT		5
#define PERFTRACE_GE		6
#define PERFTRACE_ANY		7	/* at least one bit of the constant is set in the field */
/*
 * PERFTRACE_GLOB: true if the text matches a glob, which can contain *, ?, [a-z], [!a-z] and \x.
 * @value is the offset of the glob in the filter.
 */
#define PERFTRACE_GLOB		8
#define PERFTRACE_OP		0x0f
#define PERFTRACE_SIGNED	0x10	/* @value is an __s64; invalid with PERFTRACE_GLOB */
#define PERFTRACE_FLOAT		0x20	/* @value is a double; invalid with PERFTRACE_ANY, _GLOB */

#define PERFTRACE_ACCEPT	0xffff
#define PERFTRACE_REJECT	0xfffe

/**
 * struct perftrace_step - a step of a filter
 * @op: PERFTRACE_EQ to PERFTRACE_GLOB, and PERFTRACE_SIGNED or PERFTRACE_FLOAT
 * @reserved: 0
 * @field: offset, in the filter, of the NUL-terminated name of the field
 * @yes: next step if the comparison is true: a step number above the number of this step, or
 *	 PERFTRACE_ACCEPT or PERFTRACE_REJECT, which end the program
 * @no: next step if the comparison is false: a step number, PERFTRACE_ACCEPT or PERFTRACE_REJECT,
 *	with the same meaning as in @yes
 * @value: constant with which the field is compared
 */
struct perftrace_step {
	__u8	op;
	__u8	reserved;
	__u16	field;
	__u16	yes;
	__u16	no;
	__u64	value;
};

/**
 * struct perftrace_filter - a filter, which selects the events that a trace records
 * @bytes: size of the filter in bytes, at most PERFTRACE_FILTER_MAX; the last byte is a NUL
 * @nr_steps: number of steps of the filter, at least one
 * @reserved: 0
 * @steps: the steps of the filter, followed by the names and patterns to which they refer
 */
struct perftrace_filter {
	__u32	bytes;
	__u16	nr_steps;
	__u16	reserved;
	struct perftrace_step	steps[];
};

#endif
