/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * ppa: precise process accounting. Where the time of each task and CPU went, from time
 * stamps.
 *
 * /dev/ppa: each read() gives some struct ppa_task, at most as many as fit the buffer, of
 * all tasks, in no order, then of those that have ended until then, which are forgotten
 * then; 0 is the end, and lseek() to 0 the beginning. One that ends meanwhile may be told twice,
 * with the same pid and began: the second time is the whole. That is for CAP_PERFMON; PPA_GETTASK
 * is for anybody, for tasks that ptrace would let him read, with the numbers that he knows.
 *
 * Times are in ticks; struct ppa_info has how many are a millisecond.
 *
 * See Documentation/accounting.md.
 */
#ifndef _UAPI_LINUX_PPA_H
#define _UAPI_LINUX_PPA_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Indices of a task's values; /proc/ppa/PID/rawppa has them of each group of CPUs. */
#define PPA_SCHEDACCUM		0	/* time on the CPU, without interrupts */
#define PPA_SCACCUM		1	/* of that, in system calls */
#define PPA_INTACCUM		2	/* interrupts, besides */
#define PPA_RSCHEDCNT		3	/* went on after the scheduler was asked */
#define PPA_SCHEDOUTCNT		4	/* blocked */
#define PPA_PRMPTCTXTCNT	5	/* another task's turn: slice over, or yielded */
#define PPA_PRMPTPRICNT		6	/* a task that is more urgent */
#define PPA_SCHLATACCUM		7	/* time from wakeup to run */
#define PPA_SYSCALLCNT		8	/* system calls */
#define PPA_INTCNT		9	/* interrupts */
#define PPA_AVGCTXT		10	/* time in the switches to it */
#define PPA_NR_VALUES		11

/* Latencies from wakeup to run: below 10 us, 100 us, 1 ms, ..., 10 s, and beyond. */
#define PPA_NR_LATENCIES	8
/* Signals delivered, by number: 0 to SIGRTMAX. */
#define PPA_NR_SIGNALS		65

/* What is measured: /proc/sys/kernel/ppa_levels */
#define PPA_LEVEL_SCHED		0x01	/* always */
#define PPA_LEVEL_IRQ		0x02	/* interrupts and softirqs */
#define PPA_LEVEL_SYSCALL	0x04	/* system calls */
#define PPA_LEVEL_SWITCH	0x08	/* PPA_AVGCTXT and PPA_RSCHEDCNT */

/* ppa_task.flags */
#define PPA_TASK_KERNEL		0x01	/* the kernel's own */
#define PPA_TASK_ENDED		0x02	/* it is no more */
#define PPA_TASK_RUNNING	0x04	/* on a CPU just now */
#define PPA_TASK_LATENCIES	0x08	/* @latencies are counted */

/**
 * struct ppa_task - a task
 * @size: of this structure
 * @flags: PPA_TASK_*
 * @pid: of the thread; by read() in the initial name space
 * @tgid: of its process
 * @ppid: of its parent process
 * @uid: its real user
 * @cpu: where it ran last
 * @reserved: 0
 * @began: CLOCK_BOOTTIME when it was made, in nanoseconds
 * @counted: ticks since it is accounted, up to now or its end
 * @values: PPA_*, over all CPUs
 * @runq: ticks ready to run, but not since a wakeup
 * @latencies: how many of each length
 * @signals: how many of each
 * @reserved2: 0
 * @comm: its name
 */
struct ppa_task {
	__u32	size;
	__u32	flags;
	__u32	pid;
	__u32	tgid;
	__u32	ppid;
	__u32	uid;
	__u32	cpu;
	__u32	reserved;
	__u64	began;
	__u64	counted;
	__u64	values[PPA_NR_VALUES];
	__u64	runq;
	__u64	latencies[PPA_NR_LATENCIES];
	__u32	signals[PPA_NR_SIGNALS];
	__u32	reserved2;
	char	comm[16];
};

/* Indices of a CPU's values, as /proc/rawsysppa has them. */
enum ppa_cpu_value {
	PPA_CPU_USER,
	PPA_CPU_SYSTEM,
	PPA_CPU_INTERRUPTS,
	PPA_CPU_IDLE,
	PPA_CPU_SYSCALLS,
	PPA_CPU_INTERRUPT_COUNT,
	PPA_CPU_SOFTIRQ,
	PPA_CPU_SOFTIRQ_COUNT,
	PPA_CPU_HI,
	PPA_CPU_HI_COUNT,
	PPA_CPU_TASKLET,
	PPA_CPU_TASKLET_COUNT,
	PPA_CPU_TIMER,
	PPA_CPU_TIMER_COUNT,
	PPA_CPU_NET_TX,
	PPA_CPU_NET_TX_COUNT,
	PPA_CPU_NET_RX,
	PPA_CPU_NET_RX_COUNT,
	PPA_NR_CPU_VALUES,
};

/**
 * struct ppa_info - how accounting stands
 * @size: of this structure
 * @version: PPA_VERSION
 * @khz: ticks of a millisecond
 * @levels: PPA_LEVEL_*, what is measured now; 0: nothing
 * @flags: the first three values of /proc/sys/kernel/ppa, as bits
 * @scaling: the fourth: CPUs of a group
 * @nr_cpus: CPUs that can be
 * @nr_groups: of them
 * @nr_tasks: that are accounted
 * @nr_ended: that have ended and were not read yet
 * @lost: that have ended and were forgotten, for there were too many
 * @refused: that could not be accounted, for want of memory
 * @now: ticks now
 */
struct ppa_info {
	__u32	size;
	__u32	version;
	__u32	khz;
	__u32	levels;
	__u32	flags;
	__u32	scaling;
	__u32	nr_cpus;
	__u32	nr_groups;
	__u64	nr_tasks;
	__u64	nr_ended;
	__u64	lost;
	__u64	refused;
	__u64	now;
};

#define PPA_VERSION	1

#define PPA_GETINFO	_IOR('A', 0xa0, struct ppa_info)
/* The task whose @pid is given; ESRCH, or ENODATA if it is not accounted. */
#define PPA_GETTASK	_IOWR('A', 0xa1, struct ppa_task)

#endif /* _UAPI_LINUX_PPA_H */
