/* SPDX-License-Identifier: GPL-2.0 */
/*
 * perfmon: the interface between perfmon.ko and the modules that describe
 * PMUs or implement sampling formats.
 *
 * A PMU description has two tables, one of PMCs (configuration registers) and one of PMDs (data
 * registers), with a row for each register. Tools identify a register by its logical number, which
 * is perfmon_pmu.first plus the index of the register's row in its table. Modules in Rust use the
 * same interface through include/linux/perfmon.rs. The interface is described in
 * Documentation/perfmon.md.
 */
#ifndef _LINUX_PERFMON_H
#define _LINUX_PERFMON_H

#include <linux/types.h>

struct module;
struct pid_namespace;
struct pt_regs;
struct task_struct;

/* Bits of perfmon_register.type; a row of type 0 is empty: its number is not used. */
#define PERFMON_REG_CONTROL	0x01	/* PMC */
#define PERFMON_REG_COUNTER	0x02	/* PMD that counts; the module extends it to 64 bits */
#define PERFMON_REG_READ_ONLY	0x04	/* PMD that ignores writes */
#define PERFMON_REG_VIRTUAL	0x08	/* PMD without hardware: read() returns its value */
#define PERFMON_REG_SYSTEM	0x10	/* register that only system-wide contexts can use */
#define PERFMON_REG_THREAD	0x20	/* register that only thread contexts can use */
#define PERFMON_REG_NO_64	0x40	/* counter that is not extended to 64 bits */
#define PERFMON_REG_TASK	0x80	/* virtual PMD: read() returns the thread's event count */
#define PERFMON_REG_CLOCK	0x100	/* virtual PMD: counts ns; a timer ends its periods */

/*
 * There are two kinds of virtual registers. A virtual register without
 * PERFMON_REG_COUNTER is read-only: a read of its PMD returns the current value
 * of the register. A virtual register with PERFMON_REG_COUNTER has a value that
 * only grows. A PMD with PERFMON_REG_COUNTER counts the increments of the
 * register's value while the context is programmed into a CPU's PMU. A PMD with
 * PERFMON_REG_COUNTER and PERFMON_REG_TASK in a thread's context counts all
 * increments between PERFMON_START and PERFMON_STOP, even those while the
 * thread is not running.
 */

/**
 * struct perfmon_register - a row of the table of PMCs or of the table of PMDs
 * @name: name of the register in the processor's manual, without blanks
 * @address: number of the MSR; for a virtual register, a number that perfmon_pmu.read() understands
 * @reset: for a PMC, its value before the first write, and the permanent value of the @reserved
 *	bits
 * @reserved: for a PMC, the bits that a write does not change
 * @enable: for a PMC, a bit mask: a counter counts only if at least one of these bits is set. For a
 *	PMD that shares its PMC with other PMDs, the bits of the PMC that affect the counter of this
 *	PMD only
 * @interrupt: for a PMC, the bits that enable overflow interrupts; only the kernel sets these bits.
 *	For a PMD, the bits of its PMC that enable the overflow interrupt of this PMD's counter; 0:
 *	all bits in @interrupt of the PMC
 * @kernel: for a PMC, the bits that enable counting in kernel mode. A write that sets a bit of
 *	@kernel needs CAP_PERFMON or kernel.perf_event_paranoid <= 1, and a kernel that is not
 *	locked down for confidentiality
 * @pmcs: for a PMD, a bit mask: bit n is set if PMC n of the table controls this counter
 * @rdpmc: for a PMD, the operand (ECX) of RDPMC that reads this counter
 * @type: PERFMON_REG_*
 * @width: for a PMD, the width of the counter in bits
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
 * @owner: THIS_MODULE; the module cannot be unloaded while a context uses the description
 * @name: name of the PMU; it consists of letters, digits, dots and dashes
 * @pmcs: table of PMCs
 * @pmds: table of PMDs
 * @global_ctrl: number of the global-control MSR, 0 if the PMU has none. Bit (@rdpmc & 31) of the
 *	MSR enables a counter. A fixed counter has bit 30 set in its @rdpmc, and is enabled by bit
 *	32 + (@rdpmc & 31)
 * @global_status: number of the global-status MSR, 0 if the PMU has none. A counter has the same
 *	bit in the global-status MSR as in the global-control MSR. A bit of the global-status MSR is
 *	set if the counter of the bit has overflowed
 * @global_clear: number of the MSR through which bits of @global_status are cleared
 * @probe: callback that checks whether the PMU is present; returns 0, or an errno that
 *	perfmon_pmu_register() returns. The callback is called in process context, and may be NULL
 * @check: callback that checks a value before it is written to the PMC in row @pmc.
 *	When check() is called, the reserved bits of @value have their reset value. check() can
 *	change @value, or return an errno to refuse the write. The callback check() is called in
 *	process context, and may be NULL
 * @read: callback that returns the current value of the virtual register at @address, on this CPU.
 *	The argument @control of read() is the value of the PMC that controls the register: the PMC
 *	of the lowest bit in perfmon_register.pmcs. @control is 0 if no PMC controls the register.
 *	@task is the context's thread, or NULL if the context is detached or belongs to a CPU. @ns
 *	is the pid namespace of the context's creator. The callback read() may be called in any
 *	context, NMI included. During a call for a register with PERFMON_REG_COUNTER, interrupts are
 *	off. A call for any other virtual register may be preempted, and may continue on another
 *	CPU, unless a sample is taken: interrupts are off then. The callback may be NULL
 * @cpu: callback that is called on a CPU when that CPU has become online or goes offline.
 *	The argument @online is true if the CPU has become online. When the description is
 *	registered, the callback is also called on each online CPU, with interrupts off. The
 *	callback cpu() may be called twice when a CPU becomes online or goes offline, and may be
 *	NULL
 * @here: callback that returns true if this CPU has the hardware register at @address. For a
 *	counter, the callback returns true only if the counter of this CPU has @width bits. The
 *	callback is called with interrupts off. If the callback is NULL, a register is present if
 *	its MSR can be read. The registration fails if a register is present on no CPU
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
 * Return: 0 on success; -EINVAL if the description is invalid (the kernel log names the row);
 * -EEXIST if the name or a register number of the description is in use; -ENODEV if a hardware
 * register is present on no CPU, or a counter does not keep a value that is written to it; -ENOMEM;
 * or an errno of probe().
 */
int perfmon_pmu_register(const struct perfmon_pmu *pmu);

/*
 * Unregisters a PMU description. The module that owns the description calls
 * this function while it is being unloaded, when no context uses the
 * description any more.
 *
 * Context: process; may sleep.
 */
void perfmon_pmu_unregister(const struct perfmon_pmu *pmu);

/*
 * A sampling format decides what happens when a counter overflows, and writes samples into the
 * sampling buffer. Documentation/sampling.md describes how to write a format.
 */

/**
 * struct perfmon_buffer - the sampling buffer of a context, as its format sees it
 * @memory: address of the buffer, which is zeroed when it is allocated and which user space maps
 *	read-only. For a ring, address of the ring's data, which only perfmon_ring_write() may write
 * @size: size of @memory in bytes
 * @state: private data of the format, perfmon_format.state_size bytes, initially zero
 * @ring: the ring, private to perfmon.ko; NULL if the buffer is not a ring
 */
struct perfmon_buffer {
	void *memory;
	u64 size;
	void *state;
	void *ring;
};

/**
 * struct perfmon_layout - the kind of buffer that a format requests
 * @size: size of the buffer in bytes, at most 1 GiB; for a ring the size of its data, a power of
 *	two and at least a page
 * @ring: not 0 if the buffer is a ring
 * @ring_flags: PERFMON_RING_*
 * @watermark: number of bytes after which perfmon_ring_write() returns PERFMON_RING_DUE; 0: no
 *	watermark
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
 * @time: time of the overflow, CLOCK_MONOTONIC in nanoseconds
 * @last_reset: value of the PMD at the start of the period
 * @eventid: value that user space has set in pfarg_pmd.reg_smpl_eventid
 * @values: values of the PMDs in reg_smpl_pmds, in ascending order of their numbers
 * @regs: CPU registers of the interrupted code; NULL if only @ip is known
 * @pid: id of the process, in the pid namespace of the context's creator; 0 if the process is not
 *	visible in that namespace
 * @tid: id of the thread, in the pid namespace of the context's creator; 0 if the thread is not
 *	visible in that namespace
 * @cpu: number of the CPU on which the PMD overflowed
 * @nr_values: number of @values
 * @flags: PERFMON_OVERFLOW_*
 * @pmd: logical number of the PMD that overflowed
 * @set: id of the event set that was active at the overflow
 * @lost: number of samples that were lost since the previous sample because sampling was throttled
 * @throttled: nanoseconds for which sampling was throttled since the previous sample
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
	u64 throttled;
};

/* Bits of the return value of perfmon_format.overflow() */
#define PERFMON_DO_NOTIFY	0x1	/* queue a message if the PMD has PFM_REGFL_OVFL_NOTIFY */
#define PERFMON_DO_RESET	0x2	/* start the next period; implied unless DO_MASK is set */
#define PERFMON_DO_MASK		0x4	/* mask the context until PERFMON_RESTART */
#define PERFMON_DO_WAKE		0x8	/* if no message is queued, queue one; never mask context */

/* perfmon_format.flags */
#define PERFMON_FORMAT_RESTART_ACTIVE	0x1	/* call @restart for unmasked contexts too */

/**
 * struct perfmon_format - a sampling format
 * @size: sizeof(struct perfmon_format), which also identifies the version
 * @arg_size: size of the format's argument in bytes, at most PERFMON_FORMAT_ARG
 * @state_size: size of perfmon_buffer.state in bytes, at most a page
 * @queue_depth: maximum number of queued messages of a context, 1 to 30; if a message does not fit
 *	into the queue, the context is masked
 * @flags: PERFMON_FORMAT_*
 * @reserved: zero
 * @owner: THIS_MODULE; the module cannot be unloaded while a context uses the format
 * @name: name of the format: letters, digits and dashes, fewer than PERFMON_FORMAT_NAME bytes
 * @uuid: UUID of the format
 * @layout: callback that checks the format's argument and fills in a struct perfmon_layout.
 *	The callback layout() returns 0 or an errno, and is called in process context
 * @init: callback that initializes a new buffer; returns 0 or an errno.
 *	The callback is called in process context, and may be NULL
 * @overflow: callback that handles an overflow; returns PERFMON_DO_*.
 *	The callback is called in an NMI or with interrupts off; calls for the same buffer are
 *	serialized
 * @restart: callback for PERFMON_RESTART; returns 0, or PERFMON_DO_MASK.
 *	User space calls PERFMON_RESTART to report that it has processed the buffer. PERFMON_DO_MASK
 *	leaves the context masked. The callback is called with interrupts off and is serialized with
 *	@overflow; the callback may be NULL
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
 * Return: 0 on success; -EINVAL if the format is invalid (the kernel log has the reason); -EEXIST
 * if the name or the UUID of the format is in use; -ENOMEM.
 */
int perfmon_format_register(const struct perfmon_format *format);

/*
 * Unregisters a sampling format. The module that owns the format calls this
 * function while it is being unloaded, when no context uses the format any
 * more.
 *
 * Context: process; may sleep.
 */
void perfmon_format_unregister(const struct perfmon_format *format);

/**
 * struct perfmon_part - a part of a record for perfmon_ring_write()
 * @words: address of the words of the part
 * @nr: number of words in the part
 */
struct perfmon_part {
	const u64 *words;
	u64 nr;
};

/* Return value of perfmon_ring_write() */
#define PERFMON_RING_KEPT	0	/* the record was written */
#define PERFMON_RING_DUE	1	/* watermark or end reached: return PERFMON_DO_WAKE */
#define PERFMON_RING_LOST	2	/* the record was not written */

/*
 * Writes a record to the ring: a header of the given type, followed by one to three parts. If the
 * ring is full or paused, the record is lost. PERFMON_RING_DUE asks the caller to wake the reader,
 * and can be the result for a written record or for a lost one.
 *
 * Context: perfmon_format.overflow() only.
 */
u32 perfmon_ring_write(struct perfmon_buffer *buffer, u16 type,
		       const struct perfmon_part *parts, u32 nr);

/* Bits of perfmon_stack()'s argument @which, which selects the stacks. */
#define PERFMON_STACK_OF_KERNEL	0x1
#define PERFMON_STACK_OF_USER	0x2

/*
 * Unwinds the stacks that @which selects, and writes them into @frames: first PERFMON_STACK_KERNEL
 * and at most @most frames of the kernel stack, then PERFMON_STACK_USER and at most @most frames of
 * the user stack. The array @frames must have room for 2 * (@most + 1) words. The kernel stack is
 * unwound with the kernel's unwinder, the user stack by its frame pointers.
 *
 * Context: any, NMI included.
 * Return: the number of words written into @frames.
 */
u32 perfmon_stack(const struct perfmon_overflow *overflow, u32 which, u64 *frames, u32 most);

#endif /* _LINUX_PERFMON_H */
