/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * perfmon: the default sampling format, as perfmon2 has it: a header, and entries one
 * after the other until the buffer is full. Its name is "default".
 */
#ifndef _UAPI_LINUX_PERFMON_DFL_SMPL_H
#define _UAPI_LINUX_PERFMON_DFL_SMPL_H

#include <linux/types.h>

#define PFM_DFL_SMPL_UUID { \
	0x4d, 0x72, 0xbe, 0xc0, 0x06, 0x64, 0x41, 0x43, \
	0x82, 0xb4, 0xd3, 0xfd, 0x27, 0x24, 0x3c, 0x97 }

#define PFM_DFL_SMPL_VERSION	0x10000u	/* 1.0 */

/**
 * struct pfm_dfl_smpl_arg - its argument
 * @buf_size: bytes, header included
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
 * struct pfm_dfl_smpl_hdr - at the beginning of the buffer
 * @hdr_count: entries
 * @hdr_cur_offs: bytes of them, from the beginning of the buffer
 * @hdr_overflows: how often it was full
 * @hdr_buf_size: bytes of the buffer
 * @hdr_min_buf_space: bytes that an entry takes at most
 * @hdr_version: PFM_DFL_SMPL_VERSION
 * @hdr_buf_flags: of the argument
 * @hdr_lost: samples that were not taken, as there were too many, before the last entry
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
	__u64	hdr_reserved[9];
};

/**
 * struct pfm_dfl_smpl_entry - an overflow; the PMDs of reg_smpl_pmds follow, 64
 *	bits each, ascending
 * @pid: the thread
 * @ovfl_pmd: the counter that overflowed
 * @reserved: zero
 * @last_reset_val: what it held at the beginning of the period
 * @ip: the instruction, or PERFMON_IN_GUEST
 * @tstamp: nanoseconds of CLOCK_MONOTONIC
 * @cpu: where it was
 * @set: the event set
 * @tgid: the process
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
