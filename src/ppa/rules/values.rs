// SPDX-License-Identifier: GPL-2.0

//! The numbers of the values of tasks and CPUs, the modes of a CPU, and the reasons of a switch.

use protocols::sync::Word;

/// Number of values that a task has for each group of CPUs (`PPA_*`).
pub const NR_VALUES: usize = 11;
/// Number of accounting values that a CPU has (`PPA_CPU_*`).
pub const NR_CPU_VALUES: usize = 18;
/// Number of classes in the histogram of wakeup latencies.
pub const NR_LATENCIES: usize = 8;
/// Number of signal numbers, including the unused 0.
pub const NR_SIGNALS: usize = 65;

/// Indices of a task's values.
pub mod value {
    #![allow(missing_docs, reason = "documented in the C header")]
    pub const SCHED: usize = 0;
    pub const SYSTEM: usize = 1;
    pub const INTERRUPTS: usize = 2;
    pub const RESCHEDULED: usize = 3;
    pub const BLOCKED: usize = 4;
    pub const EXPIRED: usize = 5;
    pub const PREEMPTED: usize = 6;
    pub const LATENCY: usize = 7;
    pub const CALLS: usize = 8;
    pub const INTERRUPT_COUNT: usize = 9;
    pub const SWITCHING: usize = 10;
}

/// Adds to a word that no other CPU writes.
#[inline(always)]
pub(super) fn add(word: &Word, more: u64) {
    word.store_relaxed(word.load_relaxed().wrapping_add(more));
}

/// The reason why a task is switched out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchReason {
    /// The task blocks or exits.
    Blocked,
    /// The time slice of the task is over, or the task called sched_yield().
    Expired,
    /// The task is preempted before its time slice is over, for example by a task of higher
    /// priority.
    Preempted,
}

/// Modes of a CPU: it executes user code, executes a system call, or is idle.
pub(super) const USER: u64 = 0;
pub(super) const SYSTEM: u64 = 1;
pub(super) const IDLE: u64 = 2;
/// The CPU works in the kernel for a task that will enter user mode when the work is done: after
/// the end of a system call, in a page fault, or to deliver a signal.
pub(super) const KERNEL_UNTIL_USER_MODE: u64 = 3;

/// Returns true if `mode` is `SYSTEM` or `KERNEL_UNTIL_USER_MODE`, the modes of system time, which
/// have bit 0 set.
#[inline(always)]
pub(super) fn is_system_time_mode(mode: u64) -> bool {
    mode & SYSTEM != 0
}
