/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * perfmon: programming the performance monitoring unit through /dev/perfmon.
 *
 * PERFMON_CREATE binds a context to an open file: the state of a PMU's registers
 * for one thread or one CPU. Registers have logical numbers: a PMC configures,
 * a PMD holds data. /proc/perfmon_map lists the registers of this machine.
 * Structures and flags have the names and the layout of perfmon2 2.8; its system
 * calls are ioctls here.
 *
 * See Documentation/perfmon.md.
 */
#ifndef _UAPI_LINUX_PERFMON_H
#define _UAPI_LINUX_PERFMON_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Register numbers: 0 to 255 are hardware registers, 256 to 319 virtual ones. */
#define PFM_MAX_PMCS		(256 + 64)
#define PFM_MAX_PMDS		(256 + 64)
#define PFM_BVSIZE(x)		(((x) + 63) / 64)
#define PFM_PMC_BV		PFM_BVSIZE(PFM_MAX_PMCS)
#define PFM_PMD_BV		PFM_BVSIZE(PFM_MAX_PMDS)

/* ctx_flags */
#define PFM_FL_NOTIFY_BLOCK	0x01	/* a notification that masks blocks the thread */
#define PFM_FL_SYSTEM_WIDE	0x02	/* monitor a CPU, not a thread */
#define PFM_FL_OVFL_NO_MSG	0x80	/* overflows queue no messages */
#define PERFMON_FL_CORE		0x100	/* count only on CPUs of the type ctx_core */

/* set_flags */
#define PFM_SETFL_OVFL_SWITCH	0x01	/* switch to the next set after overflows */
#define PFM_SETFL_TIME_SWITCH	0x02	/* switch to the next set after set_timeout */
#define PFM_SETFL_EXPL_NEXT	0x04	/* the next set is set_id_next, not the next id */

/* reg_flags */
#define PFM_REGFL_OVFL_NOTIFY	0x01	/* PMD: its overflow queues a message */
#define PFM_REGFL_RANDOM	0x02	/* PMD: randomize its sampling periods */
#define PFM_REGFL_NO_EMUL64	0x04	/* PMC: its PMDs are as wide as the counters */
/* Set only by the kernel, in PERFMON_READ_PMDS and PERFMON_READ_RUNS: */
#define PERFMON_REGFL_SHORT	0x100	/* PMD: some events are missing from its value */

/**
 * struct pfarg_ctx - a new context, argument of PERFMON_CREATE
 * @ctx_flags: PFM_FL_*, PERFMON_FL_CORE
 * @ctx_core: with PERFMON_FL_CORE, the core type: bits 24 to 31 of EAX of CPUID leaf 0x1a;
 *	otherwise zero
 * @ctx_reserved2: zero
 */
struct pfarg_ctx {
	__u32	ctx_flags;
	__u32	ctx_core;
	__u64	ctx_reserved2[7];
};

/**
 * struct pfarg_pmc - a configuration register
 * @reg_num: logical number of the PMC
 * @reg_set: id of the event set
 * @reg_flags: PFM_REGFL_NO_EMUL64 or zero
 * @reg_value: value to write; reserved bits keep their reset value
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
 * @reg_num: logical number of the PMD
 * @reg_set: id of the event set
 * @reg_flags: write: PFM_REGFL_OVFL_NOTIFY, PFM_REGFL_RANDOM; read: PERFMON_REGFL_SHORT is
 *	set or cleared
 * @reg_value: value to write, or the value read. A period ends when the value wraps, so a
 *	period of n events starts at -n
 * @reg_long_reset: start value of the period that begins with PERFMON_RESTART, after an
 *	overflow has masked the context
 * @reg_short_reset: start value of every other period after the first
 * @reg_last_reset_val: read: start value of the latest period of a sampling PMD
 * @reg_ovfl_switch_cnt: with PFM_SETFL_OVFL_SWITCH, overflows of this PMD in a run of the set
 *	until the next set is switched in; 0: this PMD does not switch sets
 * @reg_reset_pmds: PMDs to reset together with this one; those that do not sample become 0
 * @reg_smpl_pmds: PMDs to record when this one overflows, at most 64
 * @reg_smpl_eventid: passed to the sampling format
 * @reg_random_mask: with PFM_REGFL_RANDOM, mask of the random number by which a period is
 *	lengthened; otherwise zero
 * @reg_random_seed: seed of the random numbers; 0: the kernel chooses one
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
 * struct pfarg_start - argument of PERFMON_START; may be NULL
 * @start_set: id of the event set to start with; without the structure the active set is used
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
 * struct pfarg_load - argument of PERFMON_LOAD, which attaches a context
 * @load_pid: thread id; with PFM_FL_SYSTEM_WIDE a CPU number, which must be the CPU that
 *	the caller runs on
 * @load_set: id of the event set to make active
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
 * struct pfarg_setdesc - an event set to create or to delete
 * @set_id: id of the set
 * @set_id_next: id of the set after it, with PFM_SETFL_EXPL_NEXT; otherwise 0
 * @set_flags: PFM_SETFL_*
 * @set_timeout: with PFM_SETFL_TIME_SWITCH, the nanoseconds in the PMU after which a run of
 *	the set ends; otherwise 0. PERFMON_CREATE_EVTSETS returns the value used: at least
 *	10 us, and a multiple of the resolution of high-resolution timers
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
 * struct pfarg_setinfo - the state of an event set
 * @set_id: in: id of the set
 * @set_id_next: id of the set after it, with PFM_SETFL_EXPL_NEXT; otherwise 0
 * @set_flags: PFM_SETFL_*
 * @set_ovfl_pmds: PMDs whose overflow ended the set's last run; empty during a run
 * @set_runs: number of runs, the current one included
 * @set_timeout: nanoseconds left in the current run or, if there is none, of the next one;
 *	0 without PFM_SETFL_TIME_SWITCH
 * @set_act_duration: nanoseconds that the set was in the PMU, in all runs
 * @set_avail_pmcs: PMCs that the context may use
 * @set_avail_pmds: PMDs that the context may use
 * @reserved: zero
 *
 * A run of a set begins when the set is programmed into the PMU after a switch, and ends with
 * the switch to another set or with PERFMON_UNLOAD.
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
 * struct perfmon_runs - sums over the runs of a set, for the variance of a scaled count
 * @reg_num: in: a counter PMD that was written and does not sample
 * @reg_set: in: id of its set
 * @reg_flags: in: zero; out: PERFMON_REGFL_SHORT if some events are missing from @value
 * @runs: number of runs, the current one included
 * @time: nanoseconds that the set was in the PMU, in all runs
 * @time2: sum of the squares of these times of each run, the low half first
 * @value: events that @reg_num counted in all runs
 * @value2: sum of the squares of its counts of each run, the low half first
 * @value_time: sum of the products of count and time of each run, the low half first
 *
 * If the PMD is written during a run, the events of that run before the write are not in
 * @value, @value2 and @value_time.
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
 * struct perfmon_vector - an array of elements for one call
 * @items: address of the first element
 * @nr: number of elements; 0 is valid and does nothing
 * @size: bytes of an element, for example sizeof(struct pfarg_pmc)
 */
struct perfmon_vector {
	__u64	items;
	__u32	nr;
	__u32	size;
};

/* Maximum total size in bytes of the elements of a call; E2BIG if it is exceeded. */
#define PERFMON_VECTOR_MAX	4096

/*
 * Virtual registers of the module pfm_soft, which /proc/perfmon_map lists as well.
 * Counters that the context uses count from PERFMON_START to PERFMON_STOP.
 */
#define PERFMON_CPU_CLOCK	256	/* nanoseconds of the thread on a CPU, or of the CPU */
#define PERFMON_TASK_CLOCK	257	/* as PERFMON_CPU_CLOCK; thread contexts only */
#define PERFMON_CONTEXT_SWITCHES 258	/* thread contexts only; CPUs: see counter pages */
#define PERFMON_PAGE_FAULTS	259	/* minor and major page faults */
#define PERFMON_MIGRATIONS	260	/* to another CPU; thread contexts only */
#define PERFMON_MAJOR_FAULTS	261	/* page faults that needed I/O */
/* Values at the time of the read: cannot be written, need no PERFMON_START. */
#define PERFMON_PID		264	/* process id of the thread, or of the current task */
#define PERFMON_TID		265	/* thread id of the same task */
#define PERFMON_CPU		266	/* the CPU that the thread is on, or this CPU */
#define PERFMON_TSC		267	/* the time stamp counter */
#define PERFMON_FREE_MEMORY	268	/* bytes */
#define PERFMON_RUNNING_TASKS	269	/* runnable tasks of the machine; 0 in samples */
/*
 * Counter pages: PMC PERFMON_INSTANCE + n holds the number of an instance. The
 * PMD of the same number counts the growth of the instance's value on the CPU, or
 * on whichever CPU the thread runs. PMD PERFMON_VALUE + n is the instance's value,
 * summed over all CPUs, at the time of the read.
 */
#define PERFMON_INSTANCE	272
#define PERFMON_VALUE		276
#define PERFMON_NR_INSTANCES	4

/**
 * struct perfmon_self_counter - a hardware counter, on the self page
 * @sum: the PMD's value when the kernel last updated the page
 * @start: the value of the hardware counter at that time
 * @rdpmc: operand (ECX) of RDPMC for this counter
 * @pmd: logical number of the PMD
 * @width: width of the hardware counter in bits
 */
struct perfmon_self_counter {
	__u64	sum;
	__u64	start;
	__u32	rdpmc;
	__u16	pmd;
	__u16	width;
};

/* perfmon_self.flags */
#define PERFMON_SELF_COUNTING	0x01	/* the context is in a PMU: add the increment */
#define PERFMON_SELF_RDPMC	0x02	/* the thread @owner may execute RDPMC */

/* Maximum number of counters on the self page. */
#define PERFMON_SELF_COUNTERS	32

/**
 * struct perfmon_self - the self page: a thread context's counts, read without a system call
 * @version: PERFMON_SELF_VERSION
 * @size: bytes of this structure
 * @sequence: odd while the kernel updates the page; changes with each update
 * @flags: PERFMON_SELF_*
 * @tsc_sum: time stamp counter ticks that the context has spent in a PMU, up to @tsc_start
 * @tsc_start: the time stamp counter at the last update
 * @nr: number of valid entries in @counters
 * @reserved: zero
 * @counters: the hardware counters that the context uses, without those of
 *	PFM_REGFL_NO_EMUL64. There are none while an event set other than 0 is active, or if a
 *	counter has PERFMON_REGFL_SHORT
 * @owner: with PERFMON_SELF_RDPMC, the thread pointer of the context's thread, as the thread
 *	finds it at %fs:0; only this thread may use RDPMC with this page
 *
 * The page is mapped, shared and read-only, at PERFMON_SELF_OFFSET of the context's file.
 * A read is valid if @sequence was even before it and has the same value after it. The
 * value of a counter is then:
 *	COUNTING and RDPMC, and the reader is @owner:
 *		sum + ((rdpmc(rdpmc) - start) modulo 2^width)
 *	not COUNTING: sum
 *	otherwise: not known from the page; call PERFMON_READ_PMDS
 * A PMD that is not in @counters is read with PERFMON_READ_PMDS.
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
/* Offset of the self page in a context's file; the sampling buffer is at offset 0. */
#define PERFMON_SELF_OFFSET	(1ULL << 40)

/*
 * pfarg_ovfl_msg.msg_type. After all but PFM_MSG_OVFL the context can still be read, but counts
 * nothing until PERFMON_UNLOAD and another PERFMON_LOAD. A thread that has attached the context
 * to itself gets no PFM_MSG_END.
 */
#define PFM_MSG_OVFL	1	/* PMDs have overflowed, or a ring is due to be read */
#define PFM_MSG_END	2	/* thread exited, CPU offline, or permission withdrawn */
#define PFM_MSG_FAULT	3	/* the CPU did not have all registers of the context */
#define PFM_MSG_EVICTED	4	/* an administrator needed its registers or thread */

/*
 * Value of an instruction address, here and in samples, if the CPU ran a KVM guest, whose
 * registers are not known. Equal to perf's PERF_CONTEXT_GUEST.
 */
#define PERFMON_IN_GUEST	((__u64)-2048)

/**
 * struct pfarg_ovfl_msg - a message; each read() of a context's file returns one
 * @msg_type: PFM_MSG_*
 * @msg_ovfl_pid: process id
 * @msg_active_set: id of the event set
 * @msg_ovfl_cpu: CPU of the overflow
 * @msg_ovfl_tid: thread id
 * @msg_ovfl_ip: address of the interrupted instruction, or PERFMON_IN_GUEST
 * @msg_ovfl_pmds: PMDs that overflowed
 *
 * All fields but @msg_type are zero unless it is PFM_MSG_OVFL.
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

/* A message from read(), under its perfmon2 name. */
union pfarg_msg {
	__u32			type;
	struct pfarg_ovfl_msg	pfm_ovfl_msg;
};

/**
 * struct perfmon_create - a new context with a sampling format
 * @ctx: flags of the context, see PERFMON_CREATE
 * @name: address of the format's name; 0: select the format by @uuid
 * @uuid: UUID of the format, used if @name is 0
 * @arg: address of the format's argument
 * @arg_size: bytes of the argument; must be the size that the format expects
 *
 * The sampling buffer is mapped read-only, at offset 0 of the context's file. The reader's
 * page of a ring is mapped at PERFMON_TAIL_OFFSET, see <linux/perfmon_ring.h>.
 */
struct perfmon_create {
	struct pfarg_ctx	ctx;
	__u64			name;
	__u8			uuid[16];
	__u64			arg;
	__u64			arg_size;
};

/* perfmon_status.flags */
#define PERFMON_STATUS_STARTED	 0x01	/* PERFMON_START is in effect */
#define PERFMON_STATUS_MASKED	 0x02	/* nothing is counted until PERFMON_RESTART */
#define PERFMON_STATUS_THROTTLED 0x04	/* sampling is paused; it resumes by itself */
#define PERFMON_STATUS_ENDED	 0x08	/* see PFM_MSG_END, PFM_MSG_FAULT, PFM_MSG_EVICTED */
#define PERFMON_STATUS_ELSEWHERE 0x10	/* the thread's CPU lacks registers: see elsewhere */

/**
 * struct perfmon_status - the state of a context
 * @flags: PERFMON_STATUS_*
 * @nr_throttles: how often sampling was paused because it took too much time, or samples
 *	were too frequent
 * @throttled: total length of these pauses in nanoseconds; counting continues in a pause
 * @lost: samples that were due in these pauses and were not taken
 * @elsewhere: nanoseconds, accurate to a timer tick, that the thread ran on CPUs that lack a
 *	register of the context, or are of another core type; nothing was counted there
 * @reserved: zero
 *
 * Numbers and times are counted from PERFMON_LOAD.
 */
struct perfmon_status {
	__u32	flags;
	__u32	nr_throttles;
	__u64	throttled;
	__u64	lost;
	__u64	elsewhere;
	__u64	reserved[4];
};

/* Maximum size of a format's name including the NUL, and of its argument, in bytes. */
#define PERFMON_FORMAT_NAME	32
#define PERFMON_FORMAT_ARG	4096
/* Offset in a context's file of the page that the reader of a ring writes. */
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
/* 1: drop the records of a ring and count them as lost; 0: write them again */
#define PERFMON_PAUSE		_IOW(PERFMON_TYPE, 0x0b, __u32)
/* Vectors of struct pfarg_setdesc, pfarg_setdesc, pfarg_setinfo, perfmon_runs. */
#define PERFMON_CREATE_EVTSETS	_IOW(PERFMON_TYPE, 0x0c, struct perfmon_vector)
#define PERFMON_DELETE_EVTSETS	_IOW(PERFMON_TYPE, 0x0d, struct perfmon_vector)
#define PERFMON_GETINFO_EVTSETS	_IOW(PERFMON_TYPE, 0x0e, struct perfmon_vector)
#define PERFMON_READ_RUNS	_IOW(PERFMON_TYPE, 0x0f, struct perfmon_vector)
#define PERFMON_STATUS		_IOR(PERFMON_TYPE, 0x10, struct perfmon_status)

#endif /* _UAPI_LINUX_PERFMON_H */
