/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * perfmon: the sampling format "default", which is the default format of
 * perfmon2. The buffer begins with a header. Entries are appended after the
 * header until the buffer is full. When the buffer is full, the context is
 * masked: it counts nothing until PERFMON_RESTART.
 */
#ifndef _UAPI_LINUX_PERFMON_DFL_SMPL_H
#define _UAPI_LINUX_PERFMON_DFL_SMPL_H

#include <linux/types.h>

#define PFM_DFL_SMPL_UUID { \
	0x4d, 0x72, 0xbe, 0xc0, 0x06, 0x64, 0x41, 0x43, \
	0x82, 0xb4, 0xd3, 0xfd, 0x27, 0x24, 0x3c, 0x97 }

#define PFM_DFL_SMPL_VERSION	0x10000u	/* 1.0 */

/**
 * struct pfm_dfl_smpl_arg - argument of the sampling format "default"
 * @buf_size: size of the buffer in bytes, header included, at least 680
 * @buf_flags: zero
 * @reserved1: zero
 * @reserved: zero
 */
struct pfm_dfl_smpl_arg {
	__u64	buf_size;
	__u32	buf_flags;
	__u32	reserved1;
	__u64	reserved[6];
};

/**
 * struct pfm_dfl_smpl_hdr - header of the buffer of the sampling format "default"
 * @hdr_count: number of entries since the last PERFMON_RESTART
 * @hdr_cur_offs: offset, in the buffer, of the end of the last entry
 * @hdr_overflows: how often the buffer has become full
 * @hdr_buf_size: size of the buffer in bytes, rounded down to a multiple of 8
 * @hdr_min_buf_space: maximum size of an entry in bytes; the buffer is full if the space that is
 *	left is smaller
 * @hdr_version: PFM_DFL_SMPL_VERSION
 * @hdr_buf_flags: zero
 * @hdr_lost: total number of lost samples. A sample is lost while sampling is throttled, or if
 *	another PMD has overflowed at the same time and has filled the buffer. Samples that are lost
 *	by throttling are counted when the next entry is written
 * @hdr_throttled: total time in nanoseconds for which sampling was throttled, as of the last entry
 * @hdr_reserved: zero
 */
struct pfm_dfl_smpl_hdr {
	__u64	hdr_count;
	__u64	hdr_cur_offs;
	__u64	hdr_overflows;
	__u64	hdr_buf_size;
	__u64	hdr_min_buf_space;
	__u32	hdr_version;
	__u32	hdr_buf_flags;
	__u64	hdr_lost;
	__u64	hdr_throttled;
	__u64	hdr_reserved[8];
};

/**
 * struct pfm_dfl_smpl_entry - a sample, taken at the overflow of a PMD
 * @pid: id of the thread, which perfmon2 called pid
 * @ovfl_pmd: logical number of the PMD that overflowed
 * @reserved: zero
 * @last_reset_val: value of the PMD at the start of the period
 * @ip: address of the interrupted instruction, or PERFMON_IN_GUEST
 * @tstamp: time of the overflow, CLOCK_MONOTONIC in nanoseconds
 * @cpu: number of the CPU on which the PMD overflowed
 * @set: id of the event set that was active
 * @tgid: id of the process
 *
 * The values of the PMDs in reg_smpl_pmds follow the entry, 64 bits each, in ascending order of the
 * PMDs' numbers.
 */
struct pfm_dfl_smpl_entry {
	__u32	pid;
	__u16	ovfl_pmd;
	__u16	reserved;
	__u64	last_reset_val;
	__u64	ip;
	__u64	tstamp;
	__u16	cpu;
	__u16	set;
	__u32	tgid;
};

#endif /* _UAPI_LINUX_PERFMON_DFL_SMPL_H */
