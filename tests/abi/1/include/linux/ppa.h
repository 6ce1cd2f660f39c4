/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * ppa: precise process accounting. Measures with time stamps how each task and each CPU
 * spends its time.
 *
 * A read() of /dev/ppa returns an array of struct ppa_task: as many as fit the buffer, at most
 * 256. A sequence of reads returns all tasks, in no particular order, and after them the tasks
 * that have ended. An ended task is returned once and then discarded. A read that returns 0
 * ends the sequence; lseek() to 0 starts it again. A task that ends during the sequence may be
 * returned twice, with the same pid and began; the second one has the final values. read()
 * needs CAP_PERFMON.
 *
 * PPA_GETTASK is open to every user, for tasks that the caller may read by the rules of ptrace.
 * It uses the caller's pid and user namespaces.
 *
 * Times are in ticks; struct ppa_info has the number of ticks per millisecond.
 *
 * See Documentation/accounting.md.
 */
#ifndef _UAPI_LINUX_PPA_H
#define _UAPI_LINUX_PPA_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Indices of a task's values; /proc/ppa/PID/rawppa has the values of each group of CPUs. */
#define PPA_SCHEDACCUM		0	/* time on a CPU, without interrupts */
#define PPA_SCACCUM		1	/* part of it that was in system calls */
#define PPA_INTACCUM		2	/* time of interrupts that interrupted the task */
#define PPA_RSCHEDCNT		3	/* calls of the scheduler that switched to no other task */
#define PPA_SCHEDOUTCNT		4	/* switches away because the task blocked */
#define PPA_PRMPTCTXTCNT	5	/* switches away at the end of the slice, or by yield */
#define PPA_PRMPTPRICNT		6	/* other preemptions, such as by a more urgent task */
#define PPA_SCHLATACCUM		7	/* time from wakeup to run */
#define PPA_SYSCALLCNT		8	/* system calls */
#define PPA_INTCNT		9	/* interrupts that interrupted the task */
#define PPA_AVGCTXT		10	/* time spent in context switches to the task */
#define PPA_NR_VALUES		11

/* Buckets for latencies from wakeup to run: < 10 us, < 100 us, < 1 ms, ..., < 10 s, >= 10 s. */
#define PPA_NR_LATENCIES	8
/* Counters of delivered signals, by signal number: 0 to SIGRTMAX. */
#define PPA_NR_SIGNALS		65

/* Levels of measurement, set in /proc/sys/kernel/ppa_levels. */
#define PPA_LEVEL_SCHED		0x01	/* scheduling; always set */
#define PPA_LEVEL_IRQ		0x02	/* interrupts and softirqs */
#define PPA_LEVEL_SYSCALL	0x04	/* system calls */
#define PPA_LEVEL_SWITCH	0x08	/* PPA_AVGCTXT and PPA_RSCHEDCNT */

/* ppa_task.flags */
#define PPA_TASK_KERNEL		0x01	/* a kernel thread */
#define PPA_TASK_ENDED		0x02	/* the task has ended */
#define PPA_TASK_RUNNING	0x04	/* the task is on a CPU */
#define PPA_TASK_LATENCIES	0x08	/* @latencies are counted */

/**
 * struct ppa_task - the accounting of a task
 * @size: bytes of this structure
 * @flags: PPA_TASK_*
 * @pid: id of the thread; read() uses the initial pid namespace
 * @tgid: id of its process
 * @ppid: id of its parent process
 * @uid: its real user id
 * @cpu: the CPU that it ran on last
 * @reserved: 0
 * @began: CLOCK_BOOTTIME in nanoseconds when the task was created
 * @counted: ticks from the start of its accounting to now, or to its end
 * @values: PPA_*, summed over all CPUs
 * @runq: ticks that the task waited for a CPU after a preemption
 * @latencies: number of wakeups in each bucket of latencies
 * @signals: number of signals delivered, by signal number
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

/*
 * Indices of a CPU's values in /proc/rawsysppa. PPA_CPU_SYSCALLS and *_COUNT are counts, the
 * others are times in ticks.
 */
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
 * struct ppa_info - the state of accounting
 * @size: bytes of this structure
 * @version: PPA_VERSION
 * @khz: ticks per millisecond
 * @levels: PPA_LEVEL_* that are measured; 0 while accounting is off
 * @flags: the first three values of /proc/sys/kernel/ppa, as bits 0 to 2
 * @scaling: the fourth value: CPUs per group
 * @nr_cpus: number of CPU ids (the kernel's nr_cpu_ids)
 * @nr_groups: number of groups of CPUs
 * @nr_tasks: number of tasks that are accounted
 * @nr_ended: number of tasks that have ended and were not read yet
 * @lost: number of ended tasks that were dropped unread because of a limit
 * @refused: number of tasks that are not accounted because memory was short
 * @now: the time in ticks
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
/*
 * Returns the task with the given @pid. ESRCH: there is no such task; EPERM: the caller may not
 * read it; ENODATA: it is not accounted; EAGAIN: no consistent copy was possible.
 */
#define PPA_GETTASK	_IOWR('A', 0xa1, struct ppa_task)

#endif /* _UAPI_LINUX_PPA_H */
