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
 * struct perfmon_nway_arg - argument of the format "n-way"
 * @size: bytes of each buffer, a multiple of 8, 552 to 64 Mi
 * @nr: number of buffers, 2 to 16
 * @reserved1: zero
 * @reserved: zero
 *
 * The format fills several buffers in turn, so that the context is masked only when all of
 * them are full.
 */
struct perfmon_nway_arg {
	__u64	size;
	__u32	nr;
	__u32	reserved1;
	__u64	reserved[6];
};

/**
 * struct perfmon_nway_hdr - header of the memory of "n-way"
 * @nr: number of buffers
 * @size: bytes of each buffer
 * @nr_full: number of full buffers, from buffer @first on
 * @first: the oldest full buffer; if there is none, the buffer that is being filled
 * @total: number of buffers that have become full so far
 * @masked: how often all buffers were full
 * @lost: samples before the last entry that were not taken because sampling was throttled
 * @reserved: zero
 * @used: bytes of entries in each buffer
 *
 * A buffer that becomes full queues a message if the PMD has PFM_REGFL_OVFL_NOTIFY.
 * PERFMON_RESTART empties buffer @first. Buffer n begins at offset 192 + n * @size; its
 * entries are struct pfm_dfl_smpl_entry, as in the format "default".
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
 * struct perfmon_histogram_arg - argument of the format "histogram"
 * @base: lowest address that has a bucket
 * @shift: log2 of the bytes of code that share a bucket, 0 to 63
 * @nr: number of buckets, 1 to 2^14
 * @reserved: zero
 *
 * The format counts samples by instruction address.
 */
struct perfmon_histogram_arg {
	__u64	base;
	__u32	shift;
	__u32	nr;
	__u64	reserved[6];
};

/**
 * struct perfmon_histogram - the buffer of "histogram"
 * @base: as in the argument
 * @shift: as in the argument
 * @nr: number of buckets
 * @samples: number of samples, those in @outside included
 * @outside: samples whose address has no bucket
 * @lost: samples before the last one that were not taken because sampling was throttled
 * @reserved: zero
 * @buckets: number of samples in each bucket
 *
 * The buffer is never full. PERFMON_RESTART sets @samples, @outside, @lost and @buckets to 0.
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
