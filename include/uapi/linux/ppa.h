/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * ppa: precise process accounting, which measures with time stamps how each task and each CPU
 * spends its time.
 *
 * A read() of /dev/ppa returns an array of struct ppa_task, which has at most 256 elements, and at
 * most as many as fit into the buffer. A program that reads until read() returns 0 gets all tasks,
 * in no particular order, followed by the tasks that have ended. lseek() to 0 starts with the first
 * task again. An ended task is returned once and then discarded. A task that ends between two reads
 * may be returned twice, with the same @pid and @began. If a task is returned twice, the structure
 * that is returned last has the task's final values. read() needs CAP_PERFMON.
 *
 * PPA_GETTASK needs no capability for tasks that the caller may read by the
 * rules of ptrace. PPA_GETTASK returns the ids that are valid in the caller's pid and user
 * namespaces.
 *
 * All times are in ticks, unless the description of a field gives another unit. A tick is a cycle
 * of the time stamp counter or, if the kernel considers that counter unstable, a nanosecond. struct
 * ppa_info has the number of ticks per millisecond.
 *
 * Documentation/accounting.md describes the accounting.
 */
#ifndef _UAPI_LINUX_PPA_H
#define _UAPI_LINUX_PPA_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Indices of ppa_task.values, and of the values of each group of CPUs in /proc/ppa/PID/rawppa. */
#define PPA_SCHEDACCUM		0	/* time on a CPU, without time in interrupts */
#define PPA_SCACCUM		1	/* part of PPA_SCHEDACCUM in system calls */
#define PPA_INTACCUM		2	/* time of interrupts that interrupted the task */
#define PPA_RSCHEDCNT		3	/* calls of the scheduler that switched to no other task */
#define PPA_SCHEDOUTCNT		4	/* switches away because the task blocked */
#define PPA_PRMPTCTXTCNT	5	/* switches at the end of the slice, or by yield */
#define PPA_PRMPTPRICNT		6	/* preemptions by a more urgent task, or within the slice */
#define PPA_SCHLATACCUM		7	/* time from wakeups until the task ran */
#define PPA_SYSCALLCNT		8	/* number of system calls */
#define PPA_INTCNT		9	/* interrupts that interrupted the task */
#define PPA_AVGCTXT		10	/* time spent in context switches to the task */
#define PPA_NR_VALUES		11

/*
 * Number of buckets for latencies from wakeup to run: < 10 us, < 100 us, < 1
 * ms, ..., < 10 s, >= 10 s.
 */
#define PPA_NR_LATENCIES	8
/*
 * Number of counters of delivered signals, one for each signal number from 0 to
 * SIGRTMAX.
 */
#define PPA_NR_SIGNALS		65

/* Bits of /proc/sys/kernel/ppa_levels, which selects the events that accounting measures. */
#define PPA_LEVEL_SCHED		0x01	/* scheduling; the bit is always set */
#define PPA_LEVEL_IRQ		0x02	/* interrupts and softirqs */
#define PPA_LEVEL_SYSCALL	0x04	/* system calls */
#define PPA_LEVEL_SWITCH	0x08	/* PPA_AVGCTXT and PPA_RSCHEDCNT */

/* Bits of ppa_task.flags */
#define PPA_TASK_KERNEL		0x01	/* the task is a kernel thread */
#define PPA_TASK_ENDED		0x02	/* the task has ended */
#define PPA_TASK_RUNNING	0x04	/* the task is on a CPU */
#define PPA_TASK_LATENCIES	0x08	/* @latencies are counted */

/**
 * struct ppa_task - the accounting of a task, that is, of a thread
 * @size: size of this structure in bytes
 * @flags: PPA_TASK_*
 * @pid: id of the thread; read() returns ids of the initial pid namespace
 * @tgid: id of the thread's process
 * @ppid: id of the parent process
 * @uid: real user id of the task
 * @cpu: number of the CPU that the task ran on last
 * @reserved: 0
 * @began: CLOCK_BOOTTIME in nanoseconds when the task was created
 * @counted: ticks from the start of the task's accounting to the call, or to the end of the task
 * @values: values PPA_SCHEDACCUM to PPA_AVGCTXT, summed over all CPUs
 * @runq: ticks that the task waited for a CPU after a preemption
 * @latencies: number of wakeups in each bucket of latencies, see PPA_NR_LATENCIES
 * @signals: number of delivered signals, by signal number
 * @reserved2: 0
 * @comm: name of the task
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
 * Indices of a CPU's values in /proc/rawsysppa. The values PPA_CPU_SYSCALLS and PPA_CPU_*_COUNT are
 * counts; all other values are times in ticks. The values always include all tasks. While only
 * selected tasks are accounted, PPA_CPU_USER also contains some system time of tasks that are not
 * selected, and PPA_CPU_INTERRUPTS also contains the softirqs of ksoftirqd threads that are not
 * selected.
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
 * struct ppa_info - the state of accounting, returned by PPA_GETINFO
 * @size: size of this structure in bytes
 * @version: version of this structure: PPA_VERSION
 * @khz: rate of the accounting clock, in ticks per millisecond
 * @levels: PPA_LEVEL_* that are measured; 0 while accounting is off
 * @flags: the first three values of /proc/sys/kernel/ppa, as bits 0 to 2, and PPA_UNSTABLE
 * @scaling: the fourth value of /proc/sys/kernel/ppa: CPUs per group
 * @nr_cpus: number of CPU ids (the kernel's nr_cpu_ids)
 * @nr_groups: number of groups of CPUs
 * @nr_tasks: number of tasks that are being accounted
 * @nr_ended: number of tasks that have ended and were not returned by this open file yet
 * @lost: number of ended tasks that this open file will not return, because a limit was reached
 * @refused: number of tasks that are not accounted because memory was short, or because their user
 *	would exceed the module parameter user_kb
 * @now: the current time in ticks
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

/* Bit of ppa_info.flags: the clock is the time stamp counter, which has become unstable. */
#define PPA_UNSTABLE	0x08

#define PPA_GETINFO	_IOR('A', 0xa0, struct ppa_info)
/*
 * PPA_GETTASK returns the accounting of the task with the given @pid. ESRCH:
 * the task does not exist; EPERM: the caller may not read the task; ENODATA:
 * the task is not accounted; EAGAIN: no consistent copy was possible.
 */
#define PPA_GETTASK	_IOWR('A', 0xa1, struct ppa_task)

#endif /* _UAPI_LINUX_PPA_H */
