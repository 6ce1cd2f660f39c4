// SPDX-License-Identifier: GPL-2.0

//! The structures and ioctls of `linux/ppa.h`. All unsafe code of the crate is in this file.
#![expect(unsafe_code, reason = "ioctls")]

use std::os::fd::BorrowedFd;

use rustix::io;
use rustix::ioctl::{ioctl, opcode, Getter, Opcode, Updater};

/// Index of a task's value: ticks on a CPU, without interrupts.
pub const SCHEDACCUM: usize = 0;
/// Index of a task's value: ticks in system calls, a part of [`SCHEDACCUM`].
pub const SCACCUM: usize = 1;
/// Index of a task's value: ticks in interrupts, which [`SCHEDACCUM`] does not include.
pub const INTACCUM: usize = 2;
/// Index of a task's value: calls of the scheduler that chose the same task again.
pub const RSCHEDCNT: usize = 3;
/// Index of a task's value: switches because the task blocked or ended.
pub const SCHEDOUTCNT: usize = 4;
/// Index of a task's value: switches because its time slice was over or it yielded.
pub const PRMPTCTXTCNT: usize = 5;
/// Index of a task's value: switches because a more urgent task preempted the task.
pub const PRMPTPRICNT: usize = 6;
/// Index of a task's value: wakeup latency, the ticks from wakeups until the task ran.
pub const SCHLATACCUM: usize = 7;
/// Index of a task's value: number of system calls.
pub const SYSCALLCNT: usize = 8;
/// Index of a task's value: number of interrupts.
pub const INTCNT: usize = 9;
/// Index of a task's value: ticks that the switches to the task took.
pub(crate) const AVGCTXT: usize = 10;
/// Number of values of a task.
pub const NR_VALUES: usize = 11;
/// Number of histogram classes of wakeup latencies.
pub const NR_LATENCIES: usize = 8;
/// Size of the array of signal counts, which is indexed by signal number.
pub(crate) const NR_SIGNALS: usize = 65;

/// Level: switches, wakeups and run times are measured.
pub const LEVEL_SCHED: u32 = 0x01;
/// Level: interrupts and softirqs are measured.
pub const LEVEL_IRQ: u32 = 0x02;
/// Level: system calls are measured.
pub const LEVEL_SYSCALL: u32 = 0x04;
/// Level: two values are measured, the time of switches and the number of times that the scheduler
/// chooses the same task again.
pub const LEVEL_SWITCH: u32 = 0x08;

/// Bit of [`Info::flags`]: ticks are those of the time stamp counter, and the kernel has marked the
/// time stamp counter as unstable after accounting was turned on.
pub const UNSTABLE: u32 = 0x08;

/// Flag of a task: it is a kernel thread.
pub const TASK_KERNEL: u32 = 0x01;
/// Flag of a task: it has ended.
pub const TASK_ENDED: u32 = 0x02;
/// Flag of a task: it runs on a CPU now.
pub const TASK_RUNNING: u32 = 0x04;
/// Flag of a task: its wakeup latencies are counted in a histogram.
pub const TASK_LATENCIES: u32 = 0x08;

/// The version of the structures [`Task`] and [`Info`].
pub const VERSION: u32 = 1;

/// The accounting values of one task, `struct ppa_task`.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Size of this structure in bytes.
    pub size: u32,
    /// Flags of the task, `TASK_*`.
    pub flags: u32,
    /// The thread id.
    /// [`Device::read_tasks_and_take_ended`](crate::Device::read_tasks_and_take_ended) returns the
    /// id in the initial PID namespace. [`Device::task`](crate::Device::task) returns the id in the
    /// PID namespace of the caller.
    pub pid: u32,
    /// The process id of the task.
    pub tgid: u32,
    /// The id of the parent process.
    pub ppid: u32,
    /// The real user id of the task.
    pub uid: u32,
    /// The CPU on which the task ran last.
    pub cpu: u32,
    /// Always 0.
    pub reserved: u32,
    /// CLOCK_BOOTTIME in nanoseconds when the task was created.
    pub began: u64,
    /// Ticks from the beginning of the task's accounting to now, or to the end of the task.
    pub counted: u64,
    /// The values of the task, indexed by [`SCHEDACCUM`] and so on.
    pub values: [u64; NR_VALUES],
    /// Ticks that the task waited for a CPU after it was preempted or its time slice was over.
    /// `runq` does not include waits after a wakeup.
    pub runq: u64,
    /// Histogram of wakeup latencies, if [`TASK_LATENCIES`] is set.
    pub latencies: [u64; NR_LATENCIES],
    /// Number of signals delivered, by signal number.
    pub signals: [u32; NR_SIGNALS],
    /// Always 0.
    pub reserved2: u32,
    /// The name of the task, terminated by NUL if it is shorter than 16 bytes.
    pub comm: [u8; 16],
}

const _: () = assert!(size_of::<Task>() == 488);

impl Default for Task {
    fn default() -> Self {
        Self {
            size: size_of::<Self>() as u32,
            flags: 0,
            pid: 0,
            tgid: 0,
            ppid: 0,
            uid: 0,
            cpu: 0,
            reserved: 0,
            began: 0,
            counted: 0,
            values: [0; NR_VALUES],
            runq: 0,
            latencies: [0; NR_LATENCIES],
            signals: [0; NR_SIGNALS],
            reserved2: 0,
            comm: [0; 16],
        }
    }
}

/// The state of process accounting, `struct ppa_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Size of this structure in bytes.
    pub size: u32,
    /// Version of the structures, [`VERSION`].
    pub version: u32,
    /// Frequency of the ticks, in ticks per millisecond.
    pub khz: u32,
    /// Levels that are measured now (`LEVEL_*`); 0 if accounting is off.
    pub levels: u32,
    /// Bits 0 to 2 are the first three values of `/proc/sys/kernel/ppa`; bit 3 is [`UNSTABLE`].
    pub flags: u32,
    /// The fourth value of `/proc/sys/kernel/ppa`: the number of CPUs per group.
    pub scaling: u32,
    /// Number of possible CPUs.
    pub nr_cpus: u32,
    /// Number of groups of CPUs.
    pub nr_groups: u32,
    /// Number of tasks that are accounted.
    pub nr_tasks: u64,
    /// Number of tasks that have ended and were not read yet through this open file of `/dev/ppa`.
    pub nr_ended: u64,
    /// Number of ended tasks that this open file of `/dev/ppa` will not return, because a limit was
    /// reached.
    pub lost: u64,
    /// Number of tasks that could not be accounted, because memory was short or the user of the
    /// task had reached the limit `user_kb`.
    pub refused: u64,
    /// The current time in ticks.
    pub now: u64,
}

const _: () = assert!(size_of::<Info>() == 72);

const GETINFO: Opcode = opcode::read::<Info>(b'A', 0xa0);
const GETTASK: Opcode = opcode::read_write::<Task>(b'A', 0xa1);

/// Calls `PPA_GETINFO`.
pub fn read_info(fd: BorrowedFd<'_>) -> io::Result<Info> {
    // SAFETY: `PPA_GETINFO` writes one `struct ppa_info`, whose size is asserted above. The
    // structure has integers only, so any bits are valid.
    unsafe { ioctl(fd, Getter::<GETINFO, Info>::new()) }
}

/// Calls `PPA_GETTASK`, for the task in the field `pid`.
pub fn read_task(fd: BorrowedFd<'_>, task: &mut Task) -> io::Result<()> {
    // SAFETY: `PPA_GETTASK` reads and writes one `struct ppa_task`, whose size is asserted above.
    // The structure is mutably borrowed until the call returns, and has integers only, so any bits
    // are valid.
    unsafe { ioctl(fd, Updater::<GETTASK, Task>::new(task)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r4_4_calls_have_the_numbers_of_the_header() {
        assert_eq!(GETINFO, 0x8048_41a0);
        assert_eq!(GETTASK, 0xc1e8_41a1);
    }
}
