// SPDX-License-Identifier: GPL-2.0

//! The structures and calls of `linux/ppa.h`. All that is unsafe here.
#![expect(unsafe_code, reason = "ioctls")]

use std::os::fd::BorrowedFd;

use rustix::io;
use rustix::ioctl::{ioctl, opcode, Getter, Opcode, Updater};

/// Ticks on the CPU, without interrupts.
pub const SCHEDACCUM: usize = 0;
/// Of those, in system calls.
pub const SCACCUM: usize = 1;
/// Ticks in interrupts, besides.
pub const INTACCUM: usize = 2;
/// Went on after the scheduler was asked.
pub const RSCHEDCNT: usize = 3;
/// Blocked.
pub const SCHEDOUTCNT: usize = 4;
/// Another task's turn: the slice was over, or it yielded.
pub const PRMPTCTXTCNT: usize = 5;
/// Made way for a task that is more urgent.
pub const PRMPTPRICNT: usize = 6;
/// Ticks from wakeup to run.
pub const SCHLATACCUM: usize = 7;
/// System calls.
pub const SYSCALLCNT: usize = 8;
/// Interrupts.
pub const INTCNT: usize = 9;
/// Ticks in the switches to it.
pub const AVGCTXT: usize = 10;
/// Values of a task.
pub const NR_VALUES: usize = 11;
/// Lengths of latencies that are told apart.
pub const NR_LATENCIES: usize = 8;
/// Signals, by number.
pub const NR_SIGNALS: usize = 65;

/// What the scheduler does is measured.
pub const LEVEL_SCHED: u32 = 0x01;
/// Interrupts and softirqs are.
pub const LEVEL_IRQ: u32 = 0x02;
/// System calls are.
pub const LEVEL_SYSCALL: u32 = 0x04;
/// How long switches take, and how often the scheduler goes on with the same task.
pub const LEVEL_SWITCH: u32 = 0x08;

/// The kernel's own.
pub const TASK_KERNEL: u32 = 0x01;
/// It is no more.
pub const TASK_ENDED: u32 = 0x02;
/// On a CPU just now.
pub const TASK_RUNNING: u32 = 0x04;
/// Its latencies are counted.
pub const TASK_LATENCIES: u32 = 0x08;

/// The version that this is.
pub const VERSION: u32 = 1;

/// `struct ppa_task`.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Of this structure.
    pub size: u32,
    /// `TASK_*`.
    pub flags: u32,
    /// The thread, in the initial name space.
    pub pid: u32,
    /// Its process.
    pub tgid: u32,
    /// Its parent process.
    pub ppid: u32,
    /// Its real user.
    pub uid: u32,
    /// Where it ran last.
    pub cpu: u32,
    /// 0.
    pub reserved: u32,
    /// Nanoseconds of `CLOCK_BOOTTIME` when it was made.
    pub began: u64,
    /// Ticks since it is accounted, up to now or its end.
    pub counted: u64,
    /// By number: [`SCHEDACCUM`] and so on.
    pub values: [u64; NR_VALUES],
    /// Ticks ready to run, but not since a wakeup.
    pub runq: u64,
    /// How many of each length, with [`TASK_LATENCIES`].
    pub latencies: [u64; NR_LATENCIES],
    /// How many of each were delivered.
    pub signals: [u32; NR_SIGNALS],
    /// 0.
    pub reserved2: u32,
    /// Its name, up to a NUL.
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

/// `struct ppa_info`: how accounting stands.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Of this structure.
    pub size: u32,
    /// [`VERSION`].
    pub version: u32,
    /// Ticks of a millisecond.
    pub khz: u32,
    /// `LEVEL_*`, what is measured now; 0: nothing.
    pub levels: u32,
    /// The first three values of `/proc/sys/kernel/ppa`, a bit each.
    pub flags: u32,
    /// The fourth: CPUs of a group.
    pub scaling: u32,
    /// CPUs that can be.
    pub nr_cpus: u32,
    /// Groups of them.
    pub nr_groups: u32,
    /// Tasks that are accounted.
    pub nr_tasks: u64,
    /// Those that have ended and were not read yet.
    pub nr_ended: u64,
    /// Those that have ended and were forgotten, for there were too many.
    pub lost: u64,
    /// Those that could not be accounted, for want of memory.
    pub refused: u64,
    /// Ticks now.
    pub now: u64,
}

const _: () = assert!(size_of::<Info>() == 72);

const GETINFO: Opcode = opcode::read::<Info>(b'A', 0xa0);
const GETTASK: Opcode = opcode::read_write::<Task>(b'A', 0xa1);

/// `PPA_GETINFO`.
pub fn info(fd: BorrowedFd<'_>) -> io::Result<Info> {
    // SAFETY: the call writes such a structure, which holds whatever bits it writes.
    unsafe { ioctl(fd, Getter::<GETINFO, Info>::new()) }
}

/// `PPA_GETTASK`: the task of that `pid`.
pub fn task(fd: BorrowedFd<'_>, task: &mut Task) -> io::Result<()> {
    // SAFETY: the call reads and writes such a structure, which is borrowed until it
    // is over and holds whatever bits it writes.
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
