/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * perfmon: the sampling formats "n-way" and "histogram".
 *
 * See Documentation/sampling.md.
 */
#ifndef _UAPI_LINUX_PERFMON_FORMATS_H
#define _UAPI_LINUX_PERFMON_FORMATS_H

#include <linux/types.h>

/**
 * struct perfmon_nway_arg - argument of "n-way": buffers filled by turns, so that
 *	samples are missed only when all are full
 * @size: bytes of each, a multiple of 8, 552 to 64 Mi
 * @nr: how many, 2 to 16
 * @reserved1: zero
 * @reserved: zero
 */
struct perfmon_nway_arg {
	__u64	size;
	__u32	nr;
	__u32	reserved1;
	__u64	reserved[6];
};

/**
 * struct perfmon_nway_hdr - at the beginning
 * @nr: buffers
 * @size: bytes of each
 * @nr_full: full ones, from @first on, that were not given back
 * @first: the oldest of them; or the one that is being filled
 * @total: how many have been filled so far
 * @masked: how often all were full
 * @lost: samples that were not taken, as there were too many, before the last entry
 * @reserved: zero
 * @used: bytes of entries in each
 *
 * Each full one is a message. PERFMON_RESTART gives @first back. Entries are those of
 * the default format, in buffer n from 192 + n * @size on.
 */
struct perfmon_nway_hdr {
	__u64	nr;
	__u64	size;
	__u64	nr_full;
	__u64	first;
	__u64	total;
	__u64	masked;
	__u64	lost;
	__u64	reserved;
	__u64	used[16];
};

/**
 * struct perfmon_histogram_arg - argument of "histogram": how many samples were where
 * @base: the first address
 * @shift: the binary logarithm of a bucket's bytes, up to 63
 * @nr: buckets, up to 2^14
 * @reserved: zero
 */
struct perfmon_histogram_arg {
	__u64	base;
	__u32	shift;
	__u32	nr;
	__u64	reserved[6];
};

/**
 * struct perfmon_histogram - at the beginning
 * @base: as in the argument
 * @shift: as in the argument
 * @nr: buckets
 * @samples: all
 * @outside: those that no bucket is for
 * @lost: those that were not taken, as there were too many, before the last one
 * @reserved: zero
 * @buckets: samples of each
 *
 * It is never full. PERFMON_RESTART makes it zero.
 */
struct perfmon_histogram {
	__u64	base;
	__u64	shift;
	__u64	nr;
	__u64	samples;
	__u64	outside;
	__u64	lost;
	__u64	reserved[2];
	__u64	buckets[];
};

#endif /* _UAPI_LINUX_PERFMON_FORMATS_H */
