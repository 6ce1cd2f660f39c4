/* SPDX-License-Identifier: GPL-2.0 */
/*
 * perfmon: the interface between perfcounters.ko and the modules that describe
 * PMUs or implement sampling formats.
 *
 * A PMU description has two tables, with a row for each register: the PMCs,
 * which configure, and the PMDs, which hold data. The logical number of a
 * register, which tools use, is the description's first number plus the index
 * of the row. See Documentation/perfmon.md. perfmon.rs, in the same directory,
 * is this interface for modules in Rust.
 */
#ifndef _LINUX_PERFMON_H
#define _LINUX_PERFMON_H

#include <linux/types.h>

struct module;
struct pid_namespace;
struct pt_regs;
struct task_struct;

/* perfmon_register.type; 0: the number is not used */
#define PERFMON_REG_CONTROL	0x01	/* PMC */
#define PERFMON_REG_COUNTER	0x02	/* PMD that counts, extended to 64 bits */
#define PERFMON_REG_READ_ONLY	0x04	/* PMD that ignores writes */
#define PERFMON_REG_VIRTUAL	0x08	/* PMD without a hardware register, read by read() */
#define PERFMON_REG_SYSTEM	0x10	/* only in system-wide contexts */
#define PERFMON_REG_THREAD	0x20	/* only in thread contexts */
#define PERFMON_REG_NO_64	0x40	/* counter that is not extended to 64 bits */
#define PERFMON_REG_TASK	0x80	/* virtual: read() returns a count of the thread */
#define PERFMON_REG_CLOCK	0x100	/* virtual counter of ns; a timer ends its periods */

/*
 * There are two kinds of virtual registers. One has a value and is read-only. The
 * other, with PERFMON_REG_COUNTER, is a count that only grows: a context counts its
 * growth while the context is in a PMU. With PERFMON_REG_TASK as well, a thread
 * context counts the growth from PERFMON_START to PERFMON_STOP, also while the
 * thread is not running.
 */

/**
 * struct perfmon_register - a row of a table
 * @name: name of the register in the processor's manual, without blanks
 * @address: number of the MSR; for a virtual register, a number that read() understands
 * @reset: PMC: value before the first write, and permanent value of the @reserved bits
 * @reserved: PMC: bits that a write does not change
 * @enable: PMC: bits of which at least one must be set for a counter to count. PMD: the
 *	bits in its PMC that belong to this counter only, if several counters share the PMC
 * @interrupt: PMC: bits that enable the overflow interrupt; only the kernel sets them.
 *	PMD: those of the bits that belong to this counter; 0: all of them
 * @kernel: PMC: bits that enable counting in kernel mode; setting them needs CAP_PERFMON, or
 *	kernel.perf_event_paranoid <= 1, and no lockdown for confidentiality
 * @pmcs: PMD: bit n is set if PMC n of the table controls this counter
 * @rdpmc: PMD: operand (ECX) of RDPMC for this counter
 * @type: PERFMON_REG_*
 * @width: PMD: width of the counter in bits
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
 * struct perfmon_pmu - a PMU description
 * @size: sizeof(struct perfmon_pmu), which also identifies the version
 * @nr_pmcs: number of rows in @pmcs
 * @nr_pmds: number of rows in @pmds
 * @first: logical number of the first row of both tables: 0 for the hardware PMU, of which
 *	there can be one description; 256 to 319 for virtual registers, of which there can be
 *	several descriptions that do not overlap
 * @reserved: zero
 * @owner: THIS_MODULE; it cannot be unloaded while a context uses the description
 * @name: name of the PMU: letters, digits, dots and dashes
 * @pmcs: table of PMCs
 * @pmds: table of PMDs
 * @global_ctrl: MSR whose bit @rdpmc & 31 enables a counter, or whose bit 32 + (@rdpmc & 31)
 *	enables a fixed counter, which has bit 30 set in its @rdpmc; 0: there is no such MSR
 * @global_status: MSR whose bits, at the same positions, report the counters that have
 *	overflowed; 0: there is no such MSR
 * @global_clear: MSR that clears the bits of @global_status
 * @probe: checks for the presence of the PMU; returns 0, or an errno that
 *	perfmon_pmu_register() returns. Process context; may be NULL
 * @check: checks the value to be written to the PMC in row @pmc, after reserved bits were
 *	replaced; may change the value, or refuse it with an errno. Process context; may be NULL
 * @read: returns the current value of the virtual register at @address, on this CPU. @control
 *	is the value of the first PMC in the row's @pmcs; @task is the context's thread, or NULL
 *	for a CPU's context and a detached one; @ns is the pid namespace of the context's
 *	creator. Any context: interrupts are off for counters, preemption is off for values;
 *	may be NULL
 * @cpu: called when a CPU has become online (@online) or goes offline, on that CPU; when the
 *	description is registered, also on each online CPU, with interrupts off. May be called
 *	twice for the same change; may be NULL
 * @here: returns true if this CPU has the hardware register at @address and, for a counter, if
 *	it has @width bits. Interrupts off. NULL: a register is present if its MSR can be read.
 *	The registration fails if there is a register that no CPU has
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
 * Registers a PMU description, which must stay valid until it is unregistered.
 *
 * Context: process; may sleep.
 * Return: 0; -EINVAL if the description is invalid, the kernel log names the row;
 * -EEXIST if its numbers or its name are in use; -ENODEV if no CPU has one of the
 * hardware registers, or a counter does not keep what is written; -ENOMEM; an
 * errno of probe().
 */
int perfmon_pmu_register(const struct perfmon_pmu *pmu);

/*
 * Unregisters a PMU description. No context uses it: the module that owns it
 * could not be unloaded otherwise.
 *
 * Context: process; may sleep.
 */
void perfmon_pmu_unregister(const struct perfmon_pmu *pmu);

/*
 * Sampling formats: a format decides what is done at an overflow, and writes the
 * sampling buffer. See Documentation/sampling.md.
 */

/**
 * struct perfmon_buffer - the sampling buffer of a context, as its format sees it
 * @memory: the buffer, initially zero, which user space maps read-only; for a ring its data,
 *	which must be written with perfmon_ring_write() only
 * @size: bytes of @memory
 * @state: private data of the format, perfmon_format.state_size bytes, initially zero
 * @ring: not NULL if the buffer is a ring
 */
struct perfmon_buffer {
	void *memory;
	u64 size;
	void *state;
	void *ring;
};

/**
 * struct perfmon_layout - the kind of buffer that a format requests
 * @size: bytes of the buffer, at most 1 GiB; for a ring the bytes of its data, a power of two
 *	and at least a page
 * @ring: not 0 if the buffer is a ring
 * @ring_flags: PERFMON_RING_*
 * @watermark: number of bytes written after which perfmon_ring_write() returns
 *	PERFMON_RING_DUE; 0: never
 */
struct perfmon_layout {
	u64 size;
	u32 ring;
	u32 ring_flags;
	u64 watermark;
};

/* perfmon_overflow.flags */
#define PERFMON_OVERFLOW_NOTIFY	0x01	/* the counter has PFM_REGFL_OVFL_NOTIFY */
#define PERFMON_OVERFLOW_KERNEL	0x02	/* the context may see kernel addresses */

/**
 * struct perfmon_overflow - the overflow of a PMD
 * @ip: address of the interrupted instruction, or PERFMON_IN_GUEST
 * @time: CLOCK_MONOTONIC in nanoseconds
 * @last_reset: value of the PMD at the start of the period
 * @eventid: pfarg_pmd.reg_smpl_eventid
 * @values: values of the PMDs in reg_smpl_pmds, in ascending order of their numbers
 * @regs: registers of the interrupted code; NULL: only @ip is known
 * @pid: process id, in the pid namespace of the context's creator; 0: not visible there
 * @tid: thread id, in the same namespace; 0: not visible there
 * @cpu: the current CPU
 * @nr_values: number of @values
 * @flags: PERFMON_OVERFLOW_*
 * @pmd: the PMD that overflowed
 * @set: id of the event set
 * @lost: samples since the previous one that were not taken because sampling was throttled
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

/* Return value of perfmon_format.overflow() */
#define PERFMON_DO_NOTIFY	0x1	/* queue a message if PFM_REGFL_OVFL_NOTIFY is set */
#define PERFMON_DO_RESET	0x2	/* start the next period; implied without DO_MASK */
#define PERFMON_DO_MASK		0x4	/* mask the context until PERFMON_RESTART */
#define PERFMON_DO_WAKE		0x8	/* queue a message unless there is one; never masks */

/* perfmon_format.flags */
#define PERFMON_FORMAT_RESTART_ACTIVE	0x1	/* call @restart also if not masked */

/**
 * struct perfmon_format - a sampling format
 * @size: sizeof(struct perfmon_format), which also identifies the version
 * @arg_size: bytes of the format's argument, at most PERFMON_FORMAT_ARG
 * @state_size: bytes of perfmon_buffer.state, at most a page
 * @queue_depth: maximum number of queued messages, 1 to 30; a message that finds the queue
 *	full masks the context
 * @flags: PERFMON_FORMAT_*
 * @reserved: zero
 * @owner: THIS_MODULE; it cannot be unloaded while a context uses the format
 * @name: letters, digits and dashes; fewer than PERFMON_FORMAT_NAME
 * @uuid: UUID of the format
 * @layout: checks the argument and fills in @layout; returns 0 or an errno. Process context
 * @init: initializes a new buffer; returns 0 or an errno. Process context; may be NULL
 * @overflow: handles an overflow; returns PERFMON_DO_*. Called in an NMI or with interrupts
 *	off; calls for the same buffer are serialized
 * @restart: called at PERFMON_RESTART, when user space has processed the buffer; returns 0, or
 *	PERFMON_DO_MASK to leave the context masked. Interrupts off, serialized with @overflow;
 *	may be NULL
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
 * Registers a sampling format, which must stay valid until it is unregistered.
 *
 * Context: process; may sleep.
 * Return: 0; -EINVAL if the format is invalid, the kernel log has the reason; -EEXIST
 * if its name or UUID is in use; -ENOMEM.
 */
int perfmon_format_register(const struct perfmon_format *format);

/*
 * Unregisters a sampling format. No context uses it: the module that owns it could not
 * be unloaded otherwise.
 *
 * Context: process; may sleep.
 */
void perfmon_format_unregister(const struct perfmon_format *format);

/**
 * struct perfmon_part - a part of a record
 * @words: the words of the part
 * @nr: number of words
 */
struct perfmon_part {
	const u64 *words;
	u64 nr;
};

/* Return value of perfmon_ring_write() */
#define PERFMON_RING_KEPT	0	/* the record was written */
#define PERFMON_RING_DUE	1	/* watermark or full: return PERFMON_DO_WAKE */
#define PERFMON_RING_LOST	2	/* the record was not written */

/*
 * Writes a record to the ring: a header of the given type, followed by one to three
 * parts. With PERFMON_RING_DUE the record may have been lost, if it found the ring full.
 *
 * Context: perfmon_format.overflow() only.
 */
u32 perfmon_ring_write(struct perfmon_buffer *buffer, u16 type,
		       const struct perfmon_part *parts, u32 nr);

/* Argument @which of perfmon_stack() */
#define PERFMON_STACK_OF_KERNEL	0x1
#define PERFMON_STACK_OF_USER	0x2

/*
 * Unwinds the stacks selected by @which: writes PERFMON_STACK_KERNEL and at most @most
 * frames of the kernel stack, then PERFMON_STACK_USER and at most @most frames of the user
 * stack. @frames has room for 2 * (@most + 1) words. The kernel stack is unwound with the
 * kernel's unwinder, the user stack by frame pointers.
 *
 * Context: any, NMI included.
 * Return: the number of words written.
 */
u32 perfmon_stack(const struct perfmon_overflow *overflow, u32 which, u64 *frames, u32 most);

#endif /* _LINUX_PERFMON_H */
