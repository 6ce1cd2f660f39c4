// SPDX-License-Identifier: GPL-2.0

//! The trait of a trace that can be read. The kernel implements it, and in tests a fake.

use crate::error::Error;

/// The state of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// The number of its slot.
    pub slot: u32,
    /// The flags, such as [`crate::FLIGHT`].
    pub flags: u32,
    /// Bytes of a buffer's records.
    pub bytes: u32,
    /// Number of CPU numbers.
    pub nr_cpus: u32,
    /// [`crate::CLOCK_TSC`] or [`crate::CLOCK_MONOTONIC`].
    pub clock: u32,
    /// Ticks per millisecond.
    pub khz: u32,
    /// The user who owns it.
    pub uid: u32,
    /// The current time in ticks.
    pub ticks: u64,
    /// The current time in nanoseconds since 1970.
    pub realtime: u64,
    /// The time at which it was created, in ticks.
    pub began: u64,
    /// Number of processes that have buffers in it.
    pub nr_processes: u64,
    /// Bytes of all of its buffers, and of what is kept about processes that have ended.
    pub memory: u64,
    /// Number of events that found no room.
    pub lost: u64,
    /// Bytes that were discarded because a buffer's counts were invalid.
    pub cut: u64,
    /// Number of processes that had ended and were dropped unread.
    pub dropped: u64,
    /// Number of buffers, markers, processes and children that there was no memory for, or that
    /// were beyond a limit.
    pub no_memory: u64,
    /// Number of processes that were dropped because the trace's creator may not trace them any
    /// more.
    pub denied: u64,
    /// The name of the trace.
    pub name: String,
    /// The globs of the markers that it wants.
    pub markers: String,
}

impl Info {
    /// Returns whether the flag is set.
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// A buffer, by its process and its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId {
    /// The process's key, or a key that stands for no process, such as [`crate::KEY_SHARED`].
    pub key: u64,
    /// The CPU.
    pub cpu: u32,
}

impl BufferId {
    /// The place before the first buffer.
    pub const BEFORE_FIRST: Self = Self { key: 0, cpu: !0 };
}

/// The result of reading a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The buffer.
    pub buffer: BufferId,
    /// The buffer's count of lost events.
    pub lost: u64,
    /// Bytes that were written before these or, in flight recorders, up to the end of these.
    pub position: u64,
    /// The time at which it was read, in ticks.
    pub ticks: u64,
}

/// A process in a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessInfo {
    /// The process id in the reader's pid namespace; 0 if the process has none there.
    pub pid: u32,
    /// The user of the process.
    pub uid: u32,
    /// The process has ended.
    pub ended: bool,
    /// The time at which it attached, in ticks.
    pub began: u64,
    /// The name (`comm`) of the process.
    pub comm: String,
}

/// The meaning of a marker's number in a process's records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkerInfo {
    /// The process's key.
    pub key: u64,
    /// The marker's number.
    pub number: u32,
    /// The number of its registrations.
    pub refs: u32,
    /// `provider:event`.
    pub name: String,
    /// The fields, as text.
    pub fields: String,
}

/// A trace that can be read.
pub trait Source {
    /// Returns the state of the trace.
    fn info(&self) -> Result<Info, Error>;

    /// Reads what is new in the next buffer after `after`, and replaces the contents of `to` with
    /// it. Returns `None` if no other buffer has anything.
    fn read(&self, after: BufferId, to: &mut Vec<u8>) -> Result<Option<Chunk>, Error>;

    /// Returns a process, or `None` if it does not exist.
    fn process(&self, key: u64) -> Result<Option<ProcessInfo>, Error>;

    /// Returns a marker, or `None` if the process has no such number.
    fn describe(&self, key: u64, number: u32) -> Result<Option<MarkerInfo>, Error>;
}
