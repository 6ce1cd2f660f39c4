/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * perfmon: programming the performance monitoring unit through /dev/perfmon.
 *
 * A file descriptor is a context: the state of a PMU's registers, for a thread
 * or for a CPU. Registers have logical numbers: a PMC configures, a PMD holds
 * data; /proc/perfmon_map says which they are here. Structures and flags have
 * the names and the layout that they had in perfmon2 2.8; its calls are ioctls.
 *
 * See Documentation/perfmon.md.
 */
#ifndef _UAPI_LINUX_PERFMON_H
#define _UAPI_LINUX_PERFMON_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Registers: 0 to 255 are the hardware's, 256 to 319 the kernel's own. */
#define PFM_MAX_PMCS		(256 + 64)
#define PFM_MAX_PMDS		(256 + 64)
#define PFM_BVSIZE(x)		(((x) + 63) / 64)
#define PFM_PMC_BV		PFM_BVSIZE(PFM_MAX_PMCS)
#define PFM_PMD_BV		PFM_BVSIZE(PFM_MAX_PMDS)

/* ctx_flags */
#define PFM_FL_NOTIFY_BLOCK	0x01	/* block the thread while its tool looks */
#define PFM_FL_SYSTEM_WIDE	0x02	/* a CPU, not a thread */
#define PFM_FL_OVFL_NO_MSG	0x80	/* no message for an overflow */
#define PERFMON_FL_CORE		0x100	/* only on CPUs of the type ctx_core */

/* set_flags */
#define PFM_SETFL_OVFL_SWITCH	0x01	/* the next set after an overflow */
#define PFM_SETFL_TIME_SWITCH	0x02	/* the next set after a time */
#define PFM_SETFL_EXPL_NEXT	0x04	/* set_id_next is next, not the next higher */

/* reg_flags */
#define PFM_REGFL_OVFL_NOTIFY	0x01	/* PMD: tell of its overflow */
#define PFM_REGFL_RANDOM	0x02	/* PMD: randomise the next period */
#define PFM_REGFL_NO_EMUL64	0x04	/* PMC: the counter is as wide as it is */
/* PERFMON_READ_PMDS and PERFMON_READ_RUNS alone set it: */
#define PERFMON_REGFL_SHORT	0x100	/* PMD: something is missing in its value */

/**
 * struct pfarg_ctx - a new context
 * @ctx_flags: PFM_FL_*, PERFMON_FL_CORE
 * @ctx_core: with PERFMON_FL_CORE the core type, CPUID leaf 0x1a, bits 24 to 31 of EAX;
 *	else zero
 * @ctx_reserved2: zero
 */
struct pfarg_ctx {
	__u32	ctx_flags;
	__u32	ctx_core;
	__u64	ctx_reserved2[7];
};

/**
 * struct pfarg_pmc - a configuration register
 * @reg_num: its logical number
 * @reg_set: the event set
 * @reg_flags: PFM_REGFL_*
 * @reg_value: what to write; reserved bits keep their value
 * @reg_reserved2: zero
 */
struct pfarg_pmc {
	__u16	reg_num;
	__u16	reg_set;
	__u32	reg_flags;
	__u64	reg_value;
	__u64	reg_reserved2[4];
};

/**
 * struct pfarg_pmd - a data register
 * @reg_num: its logical number
 * @reg_set: the event set
 * @reg_flags: PFM_REGFL_*
 * @reg_value: what to write, or what was read
 * @reg_long_reset: value after an overflow with a notification
 * @reg_short_reset: value after another one
 * @reg_last_reset_val: read: the last of them
 * @reg_ovfl_switch_cnt: overflows until the next set
 * @reg_reset_pmds: PMDs to reset with this one
 * @reg_smpl_pmds: PMDs to record with this one
 * @reg_smpl_eventid: handed to the sampling format
 * @reg_random_mask: bits of a period to randomise
 * @reg_random_seed: where the random numbers begin; 0: somewhere
 * @reg_reserved2: zero
 */
struct pfarg_pmd {
	__u16	reg_num;
	__u16	reg_set;
	__u32	reg_flags;
	__u64	reg_value;
	__u64	reg_long_reset;
	__u64	reg_short_reset;
	__u64	reg_last_reset_val;
	__u64	reg_ovfl_switch_cnt;
	__u64	reg_reset_pmds[PFM_PMD_BV];
	__u64	reg_smpl_pmds[PFM_PMD_BV];
	__u64	reg_smpl_eventid;
	__u64	reg_random_mask;
	__u32	reg_random_seed;
	__u32	reg_reserved2[7];
};

/**
 * struct pfarg_start - begin to count
 * @start_set: the event set to begin with; without the structure: the active one
 * @start_reserved1: zero
 * @start_reserved2: zero
 * @start_reserved3: zero
 */
struct pfarg_start {
	__u16	start_set;
	__u16	start_reserved1;
	__u32	start_reserved2;
	__u64	start_reserved3[3];
};

/**
 * struct pfarg_load - attach a context
 * @load_pid: the thread, or with PFM_FL_SYSTEM_WIDE the CPU, which must be the
 *	one that the call is made on
 * @load_set: the event set
 * @load_reserved1: zero
 * @load_reserved2: zero
 */
struct pfarg_load {
	__u32	load_pid;
	__u16	load_set;
	__u16	load_reserved1;
	__u64	load_reserved2[3];
};

/**
 * struct pfarg_setdesc - an event set
 * @set_id: its number
 * @set_id_next: the set after it, with PFM_SETFL_EXPL_NEXT, else 0
 * @set_flags: PFM_SETFL_*
 * @set_timeout: nanoseconds of a turn, with PFM_SETFL_TIME_SWITCH, else 0; gives back
 *	what they became
 * @reserved: zero
 */
struct pfarg_setdesc {
	__u16	set_id;
	__u16	set_id_next;
	__u32	set_flags;
	__u64	set_timeout;
	__u64	reserved[6];
};

/**
 * struct pfarg_setinfo - what became of an event set
 * @set_id: its number
 * @set_id_next: the set after it, with PFM_SETFL_EXPL_NEXT
 * @set_flags: PFM_SETFL_*
 * @set_ovfl_pmds: PMDs whose overflow ended its last turn; none while it has one
 * @set_runs: its turns, the one that is on included
 * @set_timeout: nanoseconds that are left of that
 * @set_act_duration: nanoseconds in the hardware, in all turns
 * @set_avail_pmcs: PMCs that can be used
 * @set_avail_pmds: PMDs that can be used
 * @reserved: zero
 */
struct pfarg_setinfo {
	__u16	set_id;
	__u16	set_id_next;
	__u32	set_flags;
	__u64	set_ovfl_pmds[PFM_PMD_BV];
	__u64	set_runs;
	__u64	set_timeout;
	__u64	set_act_duration;
	__u64	set_avail_pmcs[PFM_PMC_BV];
	__u64	set_avail_pmds[PFM_PMD_BV];
	__u64	reserved[6];
};

/**
 * struct perfmon_runs - how the turns of a set differed
 * @reg_num: a PMD that counts, was written, and does not sample
 * @reg_set: its set
 * @reg_flags: zero; gives back PERFMON_REGFL_SHORT if something is missing in @value
 * @runs: turns, the one that is on included
 * @time: nanoseconds of all
 * @time2: the sum of their squares, the low half first
 * @value: what it counted in all
 * @value2: the sum of the squares of what it counted in each
 * @value_time: the sum of the products of that and the nanoseconds
 *
 * A write in a turn makes it begin anew, for @value.
 */
struct perfmon_runs {
	__u16	reg_num;
	__u16	reg_set;
	__u32	reg_flags;
	__u64	runs;
	__u64	time;
	__u64	time2[2];
	__u64	value;
	__u64	value2[2];
	__u64	value_time[2];
};

/**
 * struct perfmon_vector - several elements in one call
 * @items: address of the first
 * @nr: how many; 0 does nothing
 * @size: bytes of one: sizeof(struct pfarg_pmc), or what the call takes
 */
struct perfmon_vector {
	__u64	items;
	__u32	nr;
	__u32	size;
};

/* Bytes of registers that a call takes at most; more is E2BIG. */
#define PERFMON_VECTOR_MAX	4096

/*
 * The kernel's own registers, of pfm_soft; /proc/perfmon_map has them, too.
 * Counters count from PERFMON_START to PERFMON_STOP, once they were written.
 */
#define PERFMON_CPU_CLOCK	256	/* nanoseconds: of the thread on a CPU, or of the CPU */
#define PERFMON_TASK_CLOCK	257	/* the same, of threads only */
#define PERFMON_CONTEXT_SWITCHES 258	/* of threads only; of CPUs: counter pages know */
#define PERFMON_PAGE_FAULTS	259	/* minor and major */
#define PERFMON_MIGRATIONS	260	/* to another CPU; of threads only */
#define PERFMON_MAJOR_FAULTS	261	/* with a read from a disk */
/* What they are now: cannot be written, need no start. */
#define PERFMON_PID		264	/* of the thread, or of whoever runs on the CPU */
#define PERFMON_TID		265
#define PERFMON_CPU		266
#define PERFMON_TSC		267
#define PERFMON_FREE_MEMORY	268	/* bytes */
#define PERFMON_RUNNING_TASKS	269
/*
 * Counter pages: PMC PERFMON_INSTANCE + n holds the number of an instance. The
 * PMD of the same number counts how much it grows on the CPU, or while the thread
 * is on one; PMD PERFMON_VALUE + n is its value now, the sum over all CPUs.
 */
#define PERFMON_INSTANCE	272
#define PERFMON_VALUE		276
#define PERFMON_NR_INSTANCES	4

/**
 * struct perfmon_self_counter - a counter of the hardware, on the self page
 * @sum: what it counted up to @start
 * @start: where the hardware's counter was then
 * @rdpmc: what RDPMC calls it
 * @pmd: its logical number
 * @width: its bits
 */
struct perfmon_self_counter {
	__u64	sum;
	__u64	start;
	__u32	rdpmc;
	__u16	pmd;
	__u16	width;
};

/* perfmon_self.flags */
#define PERFMON_SELF_COUNTING	0x01	/* in the hardware: add what moved since */
#define PERFMON_SELF_RDPMC	0x02	/* RDPMC is allowed to @owner */

/* Counters that the self page has room for. */
#define PERFMON_SELF_COUNTERS	32

/**
 * struct perfmon_self - what a thread's context has counted, without a call
 * @version: PERFMON_SELF_VERSION
 * @size: of this structure
 * @sequence: odd while the kernel writes; another number afterwards
 * @flags: PERFMON_SELF_*
 * @tsc_sum: time stamp counts on a CPU while it counted, up to @tsc_start
 * @tsc_start: the time stamp counter then
 * @nr: of @counters
 * @reserved: zero
 * @counters: those of the hardware that the context uses; none where something is missing in a
 *	value (PERFMON_REGFL_SHORT), which PERFMON_READ_PMDS says
 * @owner: with RDPMC, whose it is to use: the thread pointer of the context's thread, as that
 *	has it at %fs:0
 *
 * A page, mapped shared and read-only at PERFMON_SELF_OFFSET of a context's
 * file. The value of a counter, if @sequence is even, and the same before and after:
 *	COUNTING and RDPMC, and the reader is @owner:
 *		sum + ((rdpmc(rdpmc) - start) & width's mask)
 *	not COUNTING: sum
 *	otherwise: only PERFMON_READ_PMDS knows
 */
struct perfmon_self {
	__u32	version;
	__u32	size;
	__u32	sequence;
	__u32	flags;
	__u64	tsc_sum;
	__u64	tsc_start;
	__u32	nr;
	__u32	reserved;
	struct perfmon_self_counter counters[PERFMON_SELF_COUNTERS];
	__u64	owner;
};

#define PERFMON_SELF_VERSION	1
/* Where the self page begins in a context's file; the sampling buffer is at 0. */
#define PERFMON_SELF_OFFSET	(1ULL << 40)

/* pfarg_ovfl_msg.msg_type */
#define PFM_MSG_OVFL	1	/* a counter that tells of it has overflowed */
#define PFM_MSG_END	2	/* the monitored thread has ended */
#define PFM_MSG_FAULT	3	/* a CPU has not all registers: the context has ended */
#define PFM_MSG_EVICTED	4	/* the administrator needed its registers: it has ended */

/*
 * Instead of an instruction, here and in samples: it was in a guest of KVM, whose registers are
 * not known. As perf's PERF_CONTEXT_GUEST.
 */
#define PERFMON_IN_GUEST	((__u64)-2048)

/**
 * struct pfarg_ovfl_msg - what read() gives, one at a time
 * @msg_type: PFM_MSG_*
 * @msg_ovfl_pid: the process
 * @msg_active_set: the event set
 * @msg_ovfl_cpu: where it was
 * @msg_ovfl_tid: the thread
 * @msg_ovfl_ip: the instruction, or PERFMON_IN_GUEST
 * @msg_ovfl_pmds: PMDs that overflowed
 */
struct pfarg_ovfl_msg {
	__u32	msg_type;
	__u32	msg_ovfl_pid;
	__u16	msg_active_set;
	__u16	msg_ovfl_cpu;
	__u32	msg_ovfl_tid;
	__u64	msg_ovfl_ip;
	__u64	msg_ovfl_pmds[PFM_PMD_BV];
};

/* What read() gives, as perfmon2 has it. */
union pfarg_msg {
	__u32			type;
	struct pfarg_ovfl_msg	pfm_ovfl_msg;
};

/**
 * struct perfmon_create - a new context that samples in a format
 * @ctx: as for PERFMON_CREATE
 * @name: address of the format's name; 0: @uuid says which
 * @uuid: the format's
 * @arg: address of the format's argument
 * @arg_size: its bytes, which must be those that the format wants
 *
 * The buffer is mapped at 0 of the context's file, read-only; PERFMON_TAIL_OFFSET
 * is for formats with a ring, <linux/perfmon_ring.h>.
 */
struct perfmon_create {
	struct pfarg_ctx	ctx;
	__u64			name;
	__u8			uuid[16];
	__u64			arg;
	__u64			arg_size;
};

/* perfmon_status.flags */
#define PERFMON_STATUS_STARTED	 0x01	/* it counts, whenever its thread runs */
#define PERFMON_STATUS_MASKED	 0x02	/* nothing counts until PERFMON_RESTART */
#define PERFMON_STATUS_THROTTLED 0x04	/* it samples no more, for some milliseconds */
#define PERFMON_STATUS_ENDED	 0x08	/* its thread or CPU has gone, or could not be used */
#define PERFMON_STATUS_ELSEWHERE 0x10	/* its thread is on a CPU without its registers */

/**
 * struct perfmon_status - how a context stands
 * @flags: PERFMON_STATUS_*
 * @nr_throttles: how often it sampled too much, and did not for a while
 * @throttled: nanoseconds of that; it counted all the same
 * @lost: samples that were not taken then
 * @elsewhere: nanoseconds, to a tick of the clock, that its thread ran on CPUs that do not
 *	have all of its registers, or are of another core type: it did not count there
 * @reserved: zero
 *
 * All since PERFMON_LOAD.
 */
struct perfmon_status {
	__u32	flags;
	__u32	nr_throttles;
	__u64	throttled;
	__u64	lost;
	__u64	elsewhere;
	__u64	reserved[4];
};

/* Bytes of a format's name with its NUL, and of its argument, at most. */
#define PERFMON_FORMAT_NAME	32
#define PERFMON_FORMAT_ARG	4096
/* Where the page begins that a ring's reader writes. */
#define PERFMON_TAIL_OFFSET	(1ULL << 41)

#define PERFMON_TYPE		0xbf
#define PERFMON_CREATE		_IOW(PERFMON_TYPE, 0x01, struct pfarg_ctx)
#define PERFMON_WRITE_PMCS	_IOW(PERFMON_TYPE, 0x02, struct perfmon_vector)
#define PERFMON_WRITE_PMDS	_IOW(PERFMON_TYPE, 0x03, struct perfmon_vector)
#define PERFMON_READ_PMDS	_IOW(PERFMON_TYPE, 0x04, struct perfmon_vector)
#define PERFMON_LOAD		_IOW(PERFMON_TYPE, 0x05, struct pfarg_load)
#define PERFMON_UNLOAD		_IO(PERFMON_TYPE, 0x06)
#define PERFMON_START		_IOW(PERFMON_TYPE, 0x07, struct pfarg_start)
#define PERFMON_STOP		_IO(PERFMON_TYPE, 0x08)
#define PERFMON_CREATE_FORMAT	_IOW(PERFMON_TYPE, 0x09, struct perfmon_create)
#define PERFMON_RESTART		_IO(PERFMON_TYPE, 0x0a)
/* 1: records are dropped, and counted, until 0 */
#define PERFMON_PAUSE		_IOW(PERFMON_TYPE, 0x0b, __u32)
/* vectors of struct pfarg_setdesc, pfarg_setinfo, perfmon_runs */
#define PERFMON_CREATE_EVTSETS	_IOW(PERFMON_TYPE, 0x0c, struct perfmon_vector)
#define PERFMON_DELETE_EVTSETS	_IOW(PERFMON_TYPE, 0x0d, struct perfmon_vector)
#define PERFMON_GETINFO_EVTSETS	_IOW(PERFMON_TYPE, 0x0e, struct perfmon_vector)
#define PERFMON_READ_RUNS	_IOW(PERFMON_TYPE, 0x0f, struct perfmon_vector)
#define PERFMON_STATUS		_IOR(PERFMON_TYPE, 0x10, struct perfmon_status)

#endif /* _UAPI_LINUX_PERFMON_H */
