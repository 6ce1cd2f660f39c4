/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * perfmon: programming the performance monitoring unit through /dev/perfmon.
 *
 * A context is the state of a PMU's registers for one thread or one CPU;
 * PERFMON_CREATE binds a context to an open file. Registers have logical
 * numbers. A PMC (configuration register) selects the event to count, and a PMD
 * (data register) holds the count. /proc/perfmon_map lists the registers of
 * this machine. Structures and flags have the names and the layout of perfmon2
 * 2.8; the system calls of perfmon2 are ioctls in this interface.
 *
 * The interface is described in Documentation/perfmon.md.
 */
#ifndef _UAPI_LINUX_PERFMON_H
#define _UAPI_LINUX_PERFMON_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * Registers 0 to 255 are hardware registers; registers 256 to 319 are virtual
 * registers.
 */
#define PFM_MAX_PMCS		(256 + 64)
#define PFM_MAX_PMDS		(256 + 64)
#define PFM_BVSIZE(x)		(((x) + 63) / 64)
#define PFM_PMC_BV		PFM_BVSIZE(PFM_MAX_PMCS)
#define PFM_PMD_BV		PFM_BVSIZE(PFM_MAX_PMDS)

/* Bits of pfarg_ctx.ctx_flags */
#define PFM_FL_NOTIFY_BLOCK	0x01	/* block the thread when a notification masks the context */
#define PFM_FL_SYSTEM_WIDE	0x02	/* monitor a CPU, not a thread */
#define PFM_FL_OVFL_NO_MSG	0x80	/* overflows queue no messages */
#define PERFMON_FL_CORE		0x100	/* count only on CPUs of the type ctx_core */

/* Bits of pfarg_setdesc.set_flags */
#define PFM_SETFL_OVFL_SWITCH	0x01	/* switch to the next set after overflows */
#define PFM_SETFL_TIME_SWITCH	0x02	/* switch to the next set after set_timeout */
#define PFM_SETFL_EXPL_NEXT	0x04	/* the next set is set_id_next, not the next id */

/* Bits of pfarg_pmc.reg_flags and of pfarg_pmd.reg_flags */
#define PFM_REGFL_OVFL_NOTIFY	0x01	/* PMD: an overflow of the PMD queues a message */
#define PFM_REGFL_RANDOM	0x02	/* PMD: randomize its sampling periods */
#define PFM_REGFL_NO_EMUL64	0x04	/* PMC: do not extend the PMDs of the PMC to 64 bits */
/* Bit of reg_flags that only the kernel sets, in PERFMON_READ_PMDS and PERFMON_READ_RUNS. */
#define PERFMON_REGFL_SHORT	0x100	/* PMD: some events are missing from its value */

/**
 * struct pfarg_ctx - argument of PERFMON_CREATE, which creates a context
 * @ctx_flags: PFM_FL_*, PERFMON_FL_CORE
 * @ctx_core: with PERFMON_FL_CORE, the core type, as in bits 24 to 31 of EAX of CPUID leaf 0x1a;
 *	otherwise zero
 * @ctx_reserved2: zero
 */
struct pfarg_ctx {
	__u32	ctx_flags;
	__u32	ctx_core;
	__u64	ctx_reserved2[7];
};

/**
 * struct pfarg_pmc - a configuration register (PMC)
 * @reg_num: logical number of the PMC
 * @reg_set: id of the event set
 * @reg_flags: PFM_REGFL_NO_EMUL64 or zero
 * @reg_value: value to write to the PMC, whose reserved bits keep their reset value
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
 * struct pfarg_pmd - a data register (PMD)
 * @reg_num: logical number of the PMD
 * @reg_set: id of the event set
 * @reg_flags: PFM_REGFL_OVFL_NOTIFY and PFM_REGFL_RANDOM for a write; a read sets or clears
 *	PERFMON_REGFL_SHORT, which a write ignores
 * @reg_value: value to write to the PMD, or the value read. A sampling period ends when the value
 *	of the PMD wraps to 0, so a period of n events starts with the value -n
 * @reg_long_reset: value of the PMD at the start of a sampling period that begins with
 *	PERFMON_RESTART of a masked context
 * @reg_short_reset: value of the PMD at the start of a sampling period that begins without
 *	PERFMON_RESTART; the first sampling period starts with @reg_value
 * @reg_last_reset_val: set by a read: start value of the latest period of a sampling PMD
 * @reg_ovfl_switch_cnt: with PFM_SETFL_OVFL_SWITCH, number of overflows of this PMD after which a
 *	run of the set ends and the next set becomes active; 0: overflows of this PMD do not switch
 *	sets
 * @reg_reset_pmds: PMDs that are also reset when this PMD is reset; among them, PMDs that do not
 *	sample are reset to 0
 * @reg_smpl_pmds: PMDs whose values are recorded when this PMD overflows, at most 64
 * @reg_smpl_eventid: value that is passed to the sampling format at each overflow of this PMD
 * @reg_random_mask: with PFM_REGFL_RANDOM, mask of random numbers: each sampling period but the
 *	first is extended by (random number & @reg_random_mask) events. Without PFM_REGFL_RANDOM,
 *	the mask must be zero
 * @reg_random_seed: seed of the random numbers; 0: the kernel chooses a seed
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
 * @start_set: id of the event set to start with; if the argument is NULL, the active set is used
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
 * struct pfarg_load - argument of PERFMON_LOAD, which attaches a context to a thread or a CPU
 * @load_pid: id of the thread; with PFM_FL_SYSTEM_WIDE the number of the CPU, which must be the CPU
 *	that the caller runs on
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
 * struct pfarg_setdesc - an event set to create, to change or to delete
 * @set_id: id of the set
 * @set_id_next: id of the set that follows this set, with PFM_SETFL_EXPL_NEXT; otherwise 0
 * @set_flags: PFM_SETFL_*
 * @set_timeout: with PFM_SETFL_TIME_SWITCH, maximum length of a run in nanoseconds; otherwise 0.
 *	A run of the set ends when the set has been in the PMU for @set_timeout nanoseconds.
 *	PERFMON_CREATE_EVTSETS returns the timeout that is used, which is at least 10 us and a
 *	multiple of the resolution of high-resolution timers
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
 * @set_id_next: id of the set that follows this set, with PFM_SETFL_EXPL_NEXT; otherwise 0
 * @set_flags: PFM_SETFL_*
 * @set_ovfl_pmds: PMDs whose overflows ended the last run of the set; empty during a run
 * @set_runs: number of runs of the set, the current run included
 * @set_timeout: nanoseconds until the timeout ends the current run of the set. If the set has no
 *	current run, length of its next run. 0 without PFM_SETFL_TIME_SWITCH
 * @set_act_duration: nanoseconds that the set was in the PMU, added over all of its runs
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
 * struct perfmon_runs - sums over the runs of an event set, for the variance of a scaled count
 * @reg_num: in: logical number of a counter PMD whose last write by PERFMON_WRITE_PMDS set no
 *	sampling fields; in a context with a sampling format, all counter PMDs sample, and the call
 *	fails with EINVAL
 * @reg_set: in: id of the event set in which the PMD counts
 * @reg_flags: in: zero; out: PERFMON_REGFL_SHORT if some events are missing from @value
 * @runs: number of runs of the set, the current run included
 * @time: nanoseconds that the set was in the PMU, added over all of its runs
 * @time2: sum over all runs of the square of the time that the set was in the PMU, the low half
 *	first
 * @value: number of events that @reg_num counted in all runs
 * @value2: sum over all runs of the square of the number of events, the low half first
 * @value_time: sum over all runs of the product of the number of events and the time, the low half
 *	first
 *
 * If the PMD is written during a run of the set, @value, @value2 and @value_time do not include the
 * events that the PMD counted in this run before the write.
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
 * struct perfmon_vector - argument of calls that take an array of structures
 * @items: address of the first element
 * @nr: number of elements; 0 is valid and does nothing
 * @size: size of an element in bytes, for example sizeof(struct pfarg_pmc)
 */
struct perfmon_vector {
	__u64	items;
	__u32	nr;
	__u32	size;
};

/*
 * Maximum size in bytes of the array of a struct perfmon_vector; a call with a
 * larger array fails with E2BIG.
 */
#define PERFMON_VECTOR_MAX	4096

/*
 * Numbers of the PMDs of the module pfm_soft, all of which are virtual
 * registers. PMDs 256 to 261 are virtual counters, which count from
 * PERFMON_START to PERFMON_STOP.
 */
#define PERFMON_CPU_CLOCK	256	/* ns that the thread ran, or ns that passed on the CPU */
#define PERFMON_TASK_CLOCK	257	/* same as PERFMON_CPU_CLOCK; thread contexts only */
#define PERFMON_CONTEXT_SWITCHES 258	/* thread contexts only; for CPUs see counter pages */
#define PERFMON_PAGE_FAULTS	259	/* minor and major page faults */
#define PERFMON_MIGRATIONS	260	/* CPU migrations of the thread; thread contexts only */
#define PERFMON_MAJOR_FAULTS	261	/* page faults that needed I/O */
/*
 * PMDs 264 to 269 are read-only, return a current value instead of a count, and can be read without
 * PERFMON_START. If a thread's context is attached, PERFMON_PID, PERFMON_TID and PERFMON_CPU are
 * the process id, the thread id and the CPU of the context's thread. For all other contexts,
 * PERFMON_PID and PERFMON_TID are the ids of the current task, and PERFMON_CPU is the CPU on which
 * the register is read. In samples the value of PERFMON_RUNNING_TASKS is 0, because counting the
 * tasks takes too long while interrupts are off.
 */
#define PERFMON_PID		264	/* process id of the context's thread, or else of current */
#define PERFMON_TID		265	/* thread id of the context's thread, or else of current */
#define PERFMON_CPU		266	/* CPU of the context's thread, or else the current CPU */
#define PERFMON_TSC		267	/* the time stamp counter */
#define PERFMON_FREE_MEMORY	268	/* free memory of the machine in bytes */
#define PERFMON_RUNNING_TASKS	269	/* number of runnable tasks of the machine */
/*
 * Registers through which a context uses instances of /dev/perfcounters. PMC
 * PERFMON_INSTANCE + n holds the number of an instance. PMD PERFMON_INSTANCE +
 * n counts the increments of the instance's value on the context's CPU, or on
 * the CPU that the context's thread runs on. A read of PMD PERFMON_VALUE + n
 * returns the instance's current value, summed over all CPUs.
 */
#define PERFMON_INSTANCE	272
#define PERFMON_VALUE		276
#define PERFMON_NR_INSTANCES	4

/**
 * struct perfmon_self_counter - a hardware counter on the self page of a context
 * @sum: the PMD's value when the kernel last updated the page
 * @start: the value of the hardware counter when the kernel last updated the page
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

/* Bits of perfmon_self.flags */
#define PERFMON_SELF_COUNTING	0x01	/* context is in a PMU: add the RDPMC increment to @sum */
#define PERFMON_SELF_RDPMC	0x02	/* the thread @owner may execute RDPMC */

/* Maximum number of counters on the self page. */
#define PERFMON_SELF_COUNTERS	32

/**
 * struct perfmon_self - the self page of a thread's context: counts that are read without a system
 * call
 * @version: PERFMON_SELF_VERSION
 * @size: size of this structure in bytes
 * @sequence: odd while the kernel updates the page; changes with each update
 * @flags: PERFMON_SELF_*
 * @tsc_sum: time that the context has spent in a PMU up to @tsc_start, in ticks of the time stamp
 *	counter
 * @tsc_start: value of the time stamp counter when the kernel last updated the page
 * @nr: number of valid entries in @counters
 * @reserved: zero
 * @counters: the hardware counters that the context uses, except counters with
 *	PFM_REGFL_NO_EMUL64; the array is empty while an event set other than 0 is active, or if a
 *	counter has PERFMON_REGFL_SHORT
 * @owner: with PERFMON_SELF_RDPMC, the thread pointer of the context's thread, which is also the
 *	word at %fs:0 of that thread; only this thread may use RDPMC with this page
 *
 * The self page is mapped, shared and read-only, at PERFMON_SELF_OFFSET of the context's file. A
 * read of the page is valid if @sequence was even before the read and has the same value after it.
 * After a valid read the value of a counter is:
 *	COUNTING and RDPMC, and the reader is @owner:
 *		sum + ((rdpmc(rdpmc) - start) modulo 2^width)
 *	not COUNTING: sum
 *	otherwise: not on the page; call PERFMON_READ_PMDS
 * The value of a PMD that is not in @counters is read with PERFMON_READ_PMDS.
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
/* Offset of the self page in the file of a context; the sampling buffer is at offset 0. */
#define PERFMON_SELF_OFFSET	(1ULL << 40)

/*
 * Values of pfarg_ovfl_msg.msg_type. After PFM_MSG_END, PFM_MSG_FAULT or PFM_MSG_EVICTED the
 * registers of the context can still be read, but the context counts nothing until PERFMON_UNLOAD
 * and another PERFMON_LOAD. A thread that has attached the context to itself gets no PFM_MSG_END.
 */
#define PFM_MSG_OVFL	1	/* PMDs have overflowed, or a ring is due to be read */
#define PFM_MSG_END	2	/* thread exited, CPU offline, or permission withdrawn */
#define PFM_MSG_FAULT	3	/* the CPU did not have all registers of the context */
#define PFM_MSG_EVICTED	4	/* the context has ended in favor of an administrator's context */

/*
 * Value that messages and samples contain in place of an instruction address if the CPU ran a KVM
 * guest. The registers of a guest are not known. The value equals PERF_CONTEXT_GUEST of perf.
 */
#define PERFMON_IN_GUEST	((__u64)-2048)

/**
 * struct pfarg_ovfl_msg - a message; each read() of a context's file returns one
 * @msg_type: PFM_MSG_*
 * @msg_ovfl_pid: id of the process in which the PMD overflowed
 * @msg_active_set: id of the event set that was active
 * @msg_ovfl_cpu: number of the CPU on which the PMD overflowed
 * @msg_ovfl_tid: id of the thread in which the PMD overflowed
 * @msg_ovfl_ip: address of the interrupted instruction, or PERFMON_IN_GUEST
 * @msg_ovfl_pmds: PMDs that overflowed
 *
 * If @msg_type is not PFM_MSG_OVFL, all other fields are zero.
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

/*
 * The message that read() of a context's file returns; a union, as in perfmon2.
 */
union pfarg_msg {
	__u32			type;
	struct pfarg_ovfl_msg	pfm_ovfl_msg;
};

/**
 * struct perfmon_create - argument of PERFMON_CREATE_FORMAT, which creates a context with a
 * sampling format
 * @ctx: flags of the context, see PERFMON_CREATE
 * @name: address of the format's name; 0: the format is selected by @uuid
 * @uuid: UUID of the format, used if @name is 0
 * @arg: address of the format's argument
 * @arg_size: size of the argument in bytes, which must be the size that the format expects
 *
 * The sampling buffer is mapped read-only, at offset 0 of the context's file. If the buffer is a
 * ring (<linux/perfmon_ring.h>), the page that its reader writes is mapped at PERFMON_TAIL_OFFSET.
 */
struct perfmon_create {
	struct pfarg_ctx	ctx;
	__u64			name;
	__u8			uuid[16];
	__u64			arg;
	__u64			arg_size;
};

/* Bits of perfmon_status.flags */
#define PERFMON_STATUS_STARTED	 0x01	/* PERFMON_START is in effect */
#define PERFMON_STATUS_MASKED	 0x02	/* nothing is counted until PERFMON_RESTART */
#define PERFMON_STATUS_THROTTLED 0x04	/* sampling is paused, and will resume by itself */
#define PERFMON_STATUS_ENDED	 0x08	/* see PFM_MSG_END, PFM_MSG_FAULT, PFM_MSG_EVICTED */
#define PERFMON_STATUS_ELSEWHERE 0x10	/* the context cannot count on the CPU of its thread */

/**
 * struct perfmon_status - the state of a context
 * @flags: PERFMON_STATUS_*
 * @nr_throttles: how often sampling was paused because samples took too much time or were too
 *	frequent
 * @throttled: total length of the pauses of sampling in nanoseconds; counting continues in a pause
 * @lost: number of samples that were due in pauses of sampling and were not taken
 * @elsewhere: time in nanoseconds, accurate to a timer tick, for which the thread ran on CPUs of
 *	another core type, or on CPUs without a register of the context. The context counted nothing
 *	on these CPUs
 * @reserved: zero
 *
 * All numbers and times in this structure are counted from PERFMON_LOAD.
 */
struct perfmon_status {
	__u32	flags;
	__u32	nr_throttles;
	__u64	throttled;
	__u64	lost;
	__u64	elsewhere;
	__u64	reserved[4];
};

/* Maximum size in bytes of a sampling format's name, NUL included, and of its argument. */
#define PERFMON_FORMAT_NAME	32
#define PERFMON_FORMAT_ARG	4096
/* Offset, in the file of a context, of the page that the reader of a ring writes. */
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
/*
 * If the argument is 1, PERFMON_PAUSE pauses the ring of the context: the
 * kernel drops new records and counts them as lost. If the argument is 0,
 * PERFMON_PAUSE ends the pause.
 */
#define PERFMON_PAUSE		_IOW(PERFMON_TYPE, 0x0b, __u32)
/*
 * The array elements of the next four calls are, in this order, struct
 * pfarg_setdesc, pfarg_setdesc, pfarg_setinfo and perfmon_runs.
 */
#define PERFMON_CREATE_EVTSETS	_IOW(PERFMON_TYPE, 0x0c, struct perfmon_vector)
#define PERFMON_DELETE_EVTSETS	_IOW(PERFMON_TYPE, 0x0d, struct perfmon_vector)
#define PERFMON_GETINFO_EVTSETS	_IOW(PERFMON_TYPE, 0x0e, struct perfmon_vector)
#define PERFMON_READ_RUNS	_IOW(PERFMON_TYPE, 0x0f, struct perfmon_vector)
#define PERFMON_STATUS		_IOR(PERFMON_TYPE, 0x10, struct perfmon_status)

#endif /* _UAPI_LINUX_PERFMON_H */
