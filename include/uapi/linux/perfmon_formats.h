/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * perfmon: the sampling formats "n-way" and "histogram".
 *
 * Documentation/sampling.md describes these formats.
 */
#ifndef _UAPI_LINUX_PERFMON_FORMATS_H
#define _UAPI_LINUX_PERFMON_FORMATS_H

#include <linux/types.h>

/**
 * struct perfmon_nway_arg - argument of the sampling format "n-way"
 * @size: size of each buffer in bytes, a multiple of 8, from 552 bytes to 64 MiB
 * @nr: number of buffers, 2 to 16
 * @reserved1: zero
 * @reserved: zero
 *
 * The format "n-way" fills several buffers, one after the other, and masks the context only when
 * all of these buffers are full.
 */
struct perfmon_nway_arg {
	__u64	size;
	__u32	nr;
	__u32	reserved1;
	__u64	reserved[6];
};

/**
 * struct perfmon_nway_hdr - header of the memory that the sampling format "n-way" writes
 * @nr: number of buffers
 * @size: size of each buffer in bytes
 * @nr_full: number of full buffers; buffer @first is the oldest of them
 * @first: index of the oldest full buffer or, if no buffer is full, index of the buffer that is
 *	being filled
 * @total: number of buffers that have become full so far
 * @masked: how often the context was masked because all buffers were full
 * @lost: total number of lost samples. A sample is lost while sampling is throttled, or if another
 *	PMD has overflowed at the same time and has filled the last buffer. Samples that are lost by
 *	throttling are counted when the next entry is written
 * @throttled: total time in nanoseconds for which sampling was throttled, as of the last entry
 * @used: for each buffer, the total size of its entries in bytes
 *
 * When a buffer becomes full, a message is queued if the PMD that overflowed has
 * PFM_REGFL_OVFL_NOTIFY. PERFMON_RESTART empties buffer @first. The offset of buffer n is
 * 192 + n * @size. The entries of a buffer are struct pfm_dfl_smpl_entry, as in the format
 * "default".
 */
struct perfmon_nway_hdr {
	__u64	nr;
	__u64	size;
	__u64	nr_full;
	__u64	first;
	__u64	total;
	__u64	masked;
	__u64	lost;
	__u64	throttled;
	__u64	used[16];
};

/**
 * struct perfmon_histogram_arg - argument of the sampling format "histogram"
 * @base: lowest instruction address that has a bucket
 * @shift: log2 of the number of addresses that share a bucket, 0 to 63
 * @nr: number of buckets, 1 to 2^14
 * @reserved: zero
 *
 * The format "histogram" counts samples by instruction address.
 */
struct perfmon_histogram_arg {
	__u64	base;
	__u32	shift;
	__u32	nr;
	__u64	reserved[6];
};

/**
 * struct perfmon_histogram - the buffer of the sampling format "histogram"
 * @base: lowest instruction address that has a bucket
 * @shift: log2 of the number of addresses that share a bucket
 * @nr: number of buckets
 * @samples: number of samples, including those that @outside counts
 * @outside: number of samples whose instruction address has no bucket
 * @lost: number of samples that were not taken because sampling was throttled, as of the last
 *	counted sample
 * @throttled: time in nanoseconds for which sampling was throttled, as of the last counted sample
 * @reserved: zero
 * @buckets: number of samples in each bucket
 *
 * The buffer of the format "histogram" never becomes full. PERFMON_RESTART sets @samples, @outside,
 * @lost, @throttled and @buckets to 0.
 */
struct perfmon_histogram {
	__u64	base;
	__u64	shift;
	__u64	nr;
	__u64	samples;
	__u64	outside;
	__u64	lost;
	__u64	throttled;
	__u64	reserved;
	__u64	buckets[];
};

#endif /* _UAPI_LINUX_PERFMON_FORMATS_H */
