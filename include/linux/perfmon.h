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
 * @enable: PMC: bits of which a counter needs one to count
 * @interrupt: PMC: bits that make an overflow interrupt; the kernel's to set
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
 * @probe: is it there? 0 or an errno, which the registration returns; process
 *	context; may be NULL
 * @check: looks at a PMC's value once reserved bits are right and may change it,
 *	or refuse it with an errno; @pmc is its row; process context; may be NULL
 * @read: the virtual register at @address now, on this CPU. @control is the value
 *	of the first PMC of the row's @pmcs, @task the thread of the context or NULL
 *	if it is a CPU's or not attached. Any context, interrupts off for counters,
 *	preemption off for values; may be NULL
 * @cpu: a CPU has come (@online) or goes; on that CPU; also for each that is there
 *	when the description is registered, with interrupts off; perhaps twice; may
 *	be NULL
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
	int (*probe)(void);
	int (*check)(unsigned int pmc, u64 *value);
	u64 (*read)(u64 address, u64 control, struct task_struct *task);
	void (*cpu)(unsigned int cpu, bool online);
};

/*
 * Process context. -EINVAL for a table that makes no sense, the kernel's log
 * says which row; -EEXIST if its numbers or its name are taken; -ENODEV if the
 * hardware's registers are not there.
 */
int perfmon_pmu_register(const struct perfmon_pmu *pmu);

/* Process context; no context uses it, or its module could not be removed. */
void perfmon_pmu_unregister(const struct perfmon_pmu *pmu);

#endif /* _LINUX_PERFMON_H */
