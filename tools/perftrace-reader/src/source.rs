// SPDX-License-Identifier: GPL-2.0

//! Where a trace's bytes come from: the kernel, or in tests somewhere else.

use crate::error::Error;

/// How a trace stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Its number.
    pub slot: u32,
    /// [`crate::FLIGHT`] and so on.
    pub flags: u32,
    /// Of a buffer's records.
    pub bytes: u32,
    /// Numbers of CPUs.
    pub nr_cpus: u32,
    /// [`crate::CLOCK_TSC`] or [`crate::CLOCK_MONOTONIC`].
    pub clock: u32,
    /// Ticks of a millisecond.
    pub khz: u32,
    /// Whose it is.
    pub uid: u32,
    /// Now.
    pub ticks: u64,
    /// Now, in nanoseconds since 1970.
    pub realtime: u64,
    /// When it was made, in ticks.
    pub began: u64,
    /// Processes that have buffers in it.
    pub nr_processes: u64,
    /// Bytes of all of its buffers.
    pub memory: u64,
    /// Events that found no room.
    pub lost: u64,
    /// Bytes that made no sense where they were counted.
    pub cut: u64,
    /// Processes that had ended and were dropped unread.
    pub dropped: u64,
    /// Buffers for which there was no memory.
    pub no_memory: u64,
    /// Processes that were dropped, as they may not be looked at any more.
    pub denied: u64,
    /// Its name.
    pub name: String,
    /// Its globs.
    pub markers: String,
}

impl Info {
    /// Is this flag set?
    pub fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// A buffer: whose, and of which CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The process, or what is none.
    pub key: u64,
    /// The CPU.
    pub cpu: u32,
}

impl Place {
    /// Before the first one.
    pub const FIRST: Self = Self { key: 0, cpu: !0 };
}

/// What was new in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The buffer.
    pub place: Place,
    /// As the writer counts what found no room.
    pub lost: u64,
    /// Bytes that were written before these; of flight recorders up to these.
    pub position: u64,
    /// When it was read.
    pub ticks: u64,
}

/// A process in a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its number here; 0: not here.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// It is no more.
    pub ended: bool,
    /// When it attached, in ticks.
    pub began: u64,
    /// Its name.
    pub comm: String,
}

/// What a number in a process's records means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// The process.
    pub key: u64,
    /// The number.
    pub number: u32,
    /// How often it is registered.
    pub refs: u32,
    /// `provider:event`.
    pub name: String,
    /// As text.
    pub fields: String,
}

/// A trace that can be read.
pub trait Source {
    /// How it stands.
    fn info(&self) -> Result<Info, Error>;

    /// What is new in the next buffer after that one, in place of what these bytes are. None:
    /// no other buffer has anything.
    fn read(&self, after: Place, to: &mut Vec<u8>) -> Result<Option<Chunk>, Error>;

    /// None: there is no such process.
    fn process(&self, key: u64) -> Result<Option<Task>, Error>;

    /// None: there is no such number.
    fn describe(&self, key: u64, number: u32) -> Result<Option<Description>, Error>;
}
