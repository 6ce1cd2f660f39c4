/* SPDX-License-Identifier: GPL-2.0 */
/*
 * perfmon: what a PMU description module gives to perfcounters.ko.
 *
 * A description is two tables, of the registers that configure (PMCs) and of
 * those that hold data (PMDs), one row each, as in the processor's manual. A
 * row's place, counted from the description's first number, is the logical
 * number that tools use. See Documentation/perfmon.md; the twin for Rust is
 * perfmon.rs beside this file.
 */
#ifndef _LINUX_PERFMON_H
#define _LINUX_PERFMON_H

#include <linux/types.h>

struct module;
struct pid_namespace;
struct pt_regs;
struct task_struct;

/* perfmon_register.type; 0 is a hole in the numbers */
#define PERFMON_REG_CONTROL	0x01	/* configures: a PMC */
#define PERFMON_REG_COUNTER	0x02	/* counts: a PMD made 64 bits wide */
#define PERFMON_REG_READ_ONLY	0x04	/* writes are ignored */
#define PERFMON_REG_VIRTUAL	0x08	/* not a register: the description's read() */
#define PERFMON_REG_SYSTEM	0x10	/* only in system-wide contexts */
#define PERFMON_REG_THREAD	0x20	/* only in contexts of threads */
#define PERFMON_REG_NO_64	0x40	/* a counter that is not made 64 bits wide */
#define PERFMON_REG_TASK	0x80	/* virtual: in a thread's context read() is the thread's */
#define PERFMON_REG_CLOCK	0x100	/* virtual counter: nanoseconds; a timer waits for it */

/*
 * A virtual register is either a value, read-only; or with PERFMON_REG_COUNTER
 * something that only grows, of which a context counts what it grows by while its
 * thread is on a CPU. With PERFMON_REG_TASK it belongs to the thread, and grows
 * wherever that is.
 */

/**
 * struct perfmon_register - a row of a table
 * @name: the manual's name, without blanks
 * @address: the MSR; of a virtual register whatever read() understands
 * @reset: PMC: value before it is written, and for ever of its @reserved bits
 * @reserved: PMC: bits that a write does not change
 * @enable: PMC: bits of which a counter needs one to count. PMD: bits of its PMC that
 *	are for this counter alone, where several share the PMC
 * @interrupt: PMC: bits that make an overflow interrupt; the kernel's to set. PMD: those
 *	of them that are for this counter; 0: all
 * @kernel: PMC: bits that let it count in the kernel; they want CAP_PERFMON
 * @pmcs: PMD: bit n: PMC n of this table controls it
 * @rdpmc: PMD: what RDPMC calls it
 * @type: PERFMON_REG_*
 * @width: PMD: bits of the counter
 */
struct perfmon_register {
	const char *name;
	u64 address;
	u64 reset;
	u64 reserved;
	u64 enable;
	u64 interrupt;
	u64 kernel;
	u64 pmcs;
	u32 rdpmc;
	u16 type;
	u16 width;
};

/**
 * struct perfmon_pmu - a description
 * @size: sizeof(struct perfmon_pmu), which says the version, too
 * @nr_pmcs: rows of @pmcs
 * @nr_pmds: rows of @pmds
 * @first: number of the first row of both: 0 for hardware, of which there is one
 *	description; 256 to 319 for others, as many as do not overlap
 * @reserved: zero
 * @owner: THIS_MODULE; it stays while a context uses the description
 * @name: letters, digits, dots and dashes
 * @pmcs: table of PMCs
 * @pmds: table of PMDs
 * @global_ctrl: MSR in which bit @rdpmc & 31 (and 32 above that for fixed
 *	counters, whose @rdpmc has bit 30) lets a counter count; 0: there is none
 * @global_status: MSR in which the same bits say which counters overflowed; 0: none
 * @global_clear: MSR that takes them back
 * @probe: is it there? 0 or an errno, which the registration returns; process
 *	context; may be NULL
 * @check: looks at a PMC's value once reserved bits are right and may change it,
 *	or refuse it with an errno; @pmc is its row; process context; may be NULL
 * @read: the virtual register at @address now, on this CPU. @control is the value
 *	of the first PMC of the row's @pmcs, @task the thread of the context or NULL
 *	if it is a CPU's or not attached, @ns the pid name space of who made the context.
 *	Any context, interrupts off for counters, preemption off for values; may be NULL
 * @cpu: a CPU has come (@online) or goes; on that CPU; also for each that is there
 *	when the description is registered, with interrupts off; perhaps twice; may
 *	be NULL
 * @here: returns whether this CPU has the hardware's register at @address; a counter
 *	must have @width bits. Called on that CPU, interrupts off. If it is NULL a register
 *	exists if its MSR can be read. Registration fails if no CPU has one of the registers
 */
struct perfmon_pmu {
	u32 size;
	u16 nr_pmcs;
	u16 nr_pmds;
	u16 first;
	u16 reserved[3];
	struct module *owner;
	const char *name;
	const struct perfmon_register *pmcs;
	const struct perfmon_register *pmds;
	u64 global_ctrl;
	u64 global_status;
	u64 global_clear;
	int (*probe)(void);
	int (*check)(unsigned int pmc, u64 *value);
	u64 (*read)(u64 address, u64 control, struct task_struct *task,
		    struct pid_namespace *ns);
	void (*cpu)(unsigned int cpu, bool online);
	bool (*here)(u64 address, unsigned int width);
};

/*
 * Process context. -EINVAL for a table that makes no sense, the kernel's log
 * says which row; -EEXIST if its numbers or its name are taken; -ENODEV if the
 * hardware's registers are not there.
 */
int perfmon_pmu_register(const struct perfmon_pmu *pmu);

/* Process context; no context uses it, or its module could not be removed. */
void perfmon_pmu_unregister(const struct perfmon_pmu *pmu);

/*
 * Sampling formats: what becomes of an overflow. Documentation/sampling.md.
 */

/**
 * struct perfmon_buffer - what a format has of a context
 * @memory: the buffer, which user space maps read-only; zeroed; of a ring: its data,
 *	to be written with perfmon_ring_write() only
 * @size: its bytes
 * @state: perfmon_format.state_size bytes of the format's own, zeroed
 * @ring: not NULL if it is a ring
 */
struct perfmon_buffer {
	void *memory;
	u64 size;
	void *state;
	void *ring;
};

/**
 * struct perfmon_layout - the buffer that a format wants
 * @size: bytes; of a ring: of its data, a power of two, at least a page
 * @ring: the buffer is a ring
 * @ring_flags: PERFMON_RING_*
 * @watermark: perfmon_ring_write() says so after so many bytes; 0: never
 */
struct perfmon_layout {
	u64 size;
	u32 ring;
	u32 ring_flags;
	u64 watermark;
};

/* perfmon_overflow.flags */
#define PERFMON_OVERFLOW_NOTIFY	0x01	/* the counter has PFM_REGFL_OVFL_NOTIFY */
#define PERFMON_OVERFLOW_KERNEL	0x02	/* the context may see the kernel */

/**
 * struct perfmon_overflow - an overflow
 * @ip: the instruction, or PERFMON_IN_GUEST
 * @time: nanoseconds of CLOCK_MONOTONIC
 * @last_reset: what the counter held at the beginning of the period
 * @eventid: pfarg_pmd.reg_smpl_eventid
 * @values: PMDs of reg_smpl_pmds, ascending
 * @regs: where it was; NULL: only @ip is known
 * @pid: the process, in the pid name space of who made the context; 0: not there
 * @tid: the thread, the same
 * @cpu: this CPU
 * @nr_values: of @values
 * @flags: PERFMON_OVERFLOW_*
 * @pmd: the counter
 * @set: the event set
 * @lost: samples that were not taken since the one before, as there were too many
 */
struct perfmon_overflow {
	u64 ip;
	u64 time;
	u64 last_reset;
	u64 eventid;
	const u64 *values;
	struct pt_regs *regs;
	u32 pid;
	u32 tid;
	u32 cpu;
	u32 nr_values;
	u32 flags;
	u16 pmd;
	u16 set;
	u64 lost;
};

/* What perfmon_format.overflow() wants to be done. */
#define PERFMON_DO_NOTIFY	0x1	/* tell, if the counter has PFM_REGFL_OVFL_NOTIFY */
#define PERFMON_DO_RESET	0x2	/* another period, of its short reset */
#define PERFMON_DO_MASK		0x4	/* nothing counts until PERFMON_RESTART */
#define PERFMON_DO_WAKE		0x8	/* a message, unless one waits; never masks */

/* perfmon_format.flags */
#define PERFMON_FORMAT_RESTART_ACTIVE	0x1	/* @restart also while nothing is masked */

/**
 * struct perfmon_format - a sampling format
 * @size: sizeof(struct perfmon_format), which says the version, too
 * @arg_size: bytes of its argument
 * @state_size: bytes that perfmon_buffer.state has
 * @queue_depth: messages that wait at most, 1 to 30; what comes then is MASKed
 * @flags: PERFMON_FORMAT_*
 * @reserved: zero
 * @owner: THIS_MODULE; it stays while a context uses the format
 * @name: letters, digits and dashes; fewer than PERFMON_FORMAT_NAME
 * @uuid: its number
 * @layout: checks the argument and says what buffer it wants, or an errno; process
 *	context
 * @init: sets a new buffer up; 0 or an errno; process context; may be NULL
 * @overflow: an overflow: PERFMON_DO_*. NMI, or interrupts off; one at a time
 * @restart: user space has seen the buffer: PERFMON_RESTART. As @overflow; returns
 *	0, or PERFMON_DO_MASK to stay as it is; may be NULL
 */
struct perfmon_format {
	u32 size;
	u32 arg_size;
	u32 state_size;
	u32 queue_depth;
	u32 flags;
	u32 reserved;
	struct module *owner;
	const char *name;
	u8 uuid[16];
	int (*layout)(const void *arg, struct perfmon_layout *layout);
	int (*init)(struct perfmon_buffer *buffer, const void *arg);
	u32 (*overflow)(struct perfmon_buffer *buffer, const struct perfmon_overflow *overflow);
	u32 (*restart)(struct perfmon_buffer *buffer);
};

/*
 * Process context. -EINVAL for a format that makes no sense, the log says why; -EEXIST
 * if its name or UUID is taken.
 */
int perfmon_format_register(const struct perfmon_format *format);

/* Process context; no context uses it, or its module could not be removed. */
void perfmon_format_unregister(const struct perfmon_format *format);

/**
 * struct perfmon_part - a part of a record
 * @words: its content
 * @nr: how many
 */
struct perfmon_part {
	const u64 *words;
	u64 nr;
};

/* What became of a record. */
#define PERFMON_RING_KEPT	0
#define PERFMON_RING_DUE	1	/* the reader is to be woken: PERFMON_DO_WAKE */
#define PERFMON_RING_LOST	2

/*
 * Writes a record of one to three parts: its header comes first by itself. From
 * perfmon_format.overflow() only.
 */
u32 perfmon_ring_write(struct perfmon_buffer *buffer, u16 type,
		       const struct perfmon_part *parts, u32 nr);

/* perfmon_stack() */
#define PERFMON_STACK_OF_KERNEL	0x1
#define PERFMON_STACK_OF_USER	0x2

/*
 * The frames of the kernel's and of user space's stack, at most @most of each, each
 * behind its PERFMON_STACK_*; returns how many words that are. @frames has room for
 * 2 * (@most + 1). NMI-safe. The kernel's by ORC; user space's by frame pointers.
 */
u32 perfmon_stack(const struct perfmon_overflow *overflow, u32 which, u64 *frames, u32 most);

#endif /* _LINUX_PERFMON_H */
