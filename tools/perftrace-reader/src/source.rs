// SPDX-License-Identifier: GPL-2.0

//! The trait [`Source`] of a trace that can be read. The trait is implemented for traces in the
//! kernel and, in tests, for a fake trace.

use crate::error::Error;

/// The state of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceInfo {
    /// The number of the trace's slot.
    pub slot: u32,
    /// The flags of the trace, such as [`crate::FLIGHT`].
    pub flags: u32,
    /// Size in bytes of the area for records in each buffer.
    pub record_area_bytes: u32,
    /// Highest CPU number plus one.
    pub nr_cpus: u32,
    /// [`crate::CLOCK_TSC`] or [`crate::CLOCK_MONOTONIC`], the clock of the trace.
    pub clock: u32,
    /// Frequency of the trace's clock in ticks per millisecond.
    pub khz: u32,
    /// The id of the user who owns the trace.
    pub uid: u32,
    /// The current time in ticks.
    pub now_ticks: u64,
    /// The current time in nanoseconds since 1970.
    pub now_realtime_ns: u64,
    /// The time at which the trace was created, in ticks.
    pub began: u64,
    /// Number of processes that have buffers in the trace.
    pub nr_processes: u64,
    /// Number of bytes of all buffers of the trace, and of the data about processes that have
    /// ended.
    pub memory: u64,
    /// Number of events that were lost for lack of room in a buffer.
    pub nr_lost_for_lack_of_room: u64,
    /// Number of bytes that were discarded because the counts of a buffer were invalid.
    pub invalid_bytes: u64,
    /// Number of processes that had ended and were dropped before their events were read.
    pub nr_unread_processes_dropped: u64,
    /// Number of buffers, markers, processes and child processes that could not be added to the
    /// trace, because memory was short or a limit was reached.
    pub nr_setup_failures: u64,
    /// Number of processes that were dropped because the creator of the trace lost the permission
    /// to trace them.
    pub nr_untraceable_processes: u64,
    /// The name of the trace.
    pub name: String,
    /// The globs of the markers that the trace records.
    pub markers: String,
}

impl TraceInfo {
    /// Returns true if the flag `flag` is set.
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// Identifies a buffer by its process and its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId {
    /// The key of the process, or a key that belongs to no process, such as [`crate::KEY_SHARED`].
    pub key: u64,
    /// The CPU of the buffer.
    pub cpu: u32,
}

impl BufferId {
    /// An id that precedes all buffers: the first read of a round begins after this id.
    pub const BEFORE_FIRST: Self = Self { key: 0, cpu: !0 };
}

/// The result of reading a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkInfo {
    /// The buffer that was read.
    pub buffer: BufferId,
    /// The buffer's count of lost events.
    pub buffer_lost_total: u64,
    /// Position in the buffer: the number of bytes that were written before the bytes of this read.
    /// In a flight recorder, the position is the number of all bytes that were written to the
    /// buffer.
    pub position: u64,
    /// The time at which the buffer was read, in ticks.
    pub ticks: u64,
}

/// A process in a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessInfo {
    /// The process id in the reader's pid namespace; 0 if the process has no id there.
    pub pid: u32,
    /// The id of the user of the process.
    pub uid: u32,
    /// True if the process has ended.
    pub has_ended: bool,
    /// The time at which the process attached, in ticks.
    pub attached_at_ticks: u64,
    /// The name (`comm`) of the process.
    pub comm: String,
}

/// A marker of a process. The records of the process refer to the marker by its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkerInfo {
    /// The key of the process that registered the marker.
    pub key: u64,
    /// The number of the marker in its process.
    pub number: u32,
    /// The number of registrations of the marker.
    pub refs: u32,
    /// The name of the marker, `provider:event`.
    pub name: String,
    /// The fields of the marker, as text.
    pub fields: String,
}

/// A trace that can be read.
pub trait Source {
    /// Returns the state of the trace.
    fn info(&self) -> Result<TraceInfo, Error>;

    /// Searches the buffers that follow the buffer `after`, and reads the first one that has new
    /// bytes. Replaces the contents of `to` with the bytes that were read. Returns `None` if no
    /// buffer after `after` has new bytes.
    fn read_next_buffer(
        &self,
        after: BufferId,
        to: &mut Vec<u8>,
    ) -> Result<Option<ChunkInfo>, Error>;

    /// Returns the process with this key, or `None` if the process does not exist. If shared buffers
    /// exist, a description without a name is returned for [`crate::KEY_SHARED`].
    fn process(&self, key: u64) -> Result<Option<ProcessInfo>, Error>;

    /// Returns the marker with this number, or `None` if the process has no marker of this number.
    fn describe_marker(&self, key: u64, number: u32) -> Result<Option<MarkerInfo>, Error>;
}
