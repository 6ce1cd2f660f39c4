// SPDX-License-Identifier: GPL-2.0

//! Output formats of a trace, with one source file for each format.
//!
//! | file | contents |
//! |---|---|
//! | `ctf.rs` `schema.rs` | CTF 2, for babeltrace2 and Trace Compass; its metadata |
//! | `text.rs` | lines, for people |
//! | `perfetto.rs` | JSON in the trace event format, for ui.perfetto.dev and similar tools |
//! | `merge.rs` | merges the events of several buffers in the order of time |

mod ctf;
mod merge;
mod perfetto;
mod schema;
mod text;

use std::io;
use std::rc::Rc;

pub use ctf::CtfOutput;
pub use merge::TimeOrderedQueue;
pub use perfetto::PerfettoOutput;
pub use text::TextOutput;

use crate::clock::Clock;
use crate::metadata::{MarkerClass, Process};
use crate::source::{BufferId, TraceInfo};

/// The properties of a trace that are known before it is read.
#[derive(Clone, Debug)]
pub struct TraceProperties {
    /// The name of the trace.
    pub name: String,
    /// The clock of the trace.
    pub clock: Clock,
    /// The time at which the trace was created, in ticks.
    pub began: u64,
    /// Further information for readers of the trace, as pairs of name and value.
    pub environment: Vec<(String, String)>,
}

impl TraceProperties {
    /// Returns the properties of the trace that `info` describes.
    pub fn new(info: &TraceInfo, environment: Vec<(String, String)>) -> Self {
        Self {
            name: info.name.clone(),
            clock: Clock::new(info),
            began: info.began,
            environment,
        }
    }
}

/// An event that was read from a trace.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// The time of the event in ticks. Times do not decrease within a buffer.
    pub time: u64,
    /// The thread id, as the traced program has written it.
    pub thread: u32,
    /// The process that wrote the event.
    pub process: Rc<Process>,
    /// The class of the event.
    pub marker: Rc<MarkerClass>,
    /// The bytes of the fields of the event, without the zeroes that follow the last field in a
    /// record.
    pub payload: &'a [u8],
}

/// A report of lost events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossReport {
    /// The lost events follow the first `nr_events_before` events of the packet.
    pub nr_events_before: usize,
    /// The time of the report in ticks.
    pub time: u64,
    /// Number of events that were lost since the previous report.
    pub count: u64,
    /// Number of events that the buffer has lost so far, including those of this report.
    pub total: u64,
}

/// The events and losses that one read of a buffer returned, oldest first.
#[derive(Clone, Debug)]
pub struct Packet<'a> {
    /// The buffer that was read.
    pub buffer: BufferId,
    /// The events in the packet.
    pub events: Vec<Event<'a>>,
    /// The reports of events that were lost before and between the events of the packet.
    pub losses: Vec<LossReport>,
    /// Number of events that the buffer had lost when it was read, including the events of
    /// `losses`.
    pub total_lost: u64,
    /// Number of bytes that a flight recorder overwrote before they were read. The overwritten
    /// bytes preceded the first event of the packet.
    pub overwritten_bytes: u64,
    /// Number of bytes that were read and are not part of a valid event.
    pub invalid_bytes: u64,
}

/// A consumer of a trace's events.
pub trait Output {
    /// Processes the events and losses that one read of a buffer returned.
    fn write_packet(&mut self, packet: &Packet<'_>) -> io::Result<()>;

    /// Ends a round, that is, a pass of the reader over all buffers. Usually the output has
    /// received all events whose time is before `until`. After the end of the round, an event with
    /// a time before `until` can follow only if its thread commits the event very late.
    fn end_round(&mut self, until: u64) -> io::Result<()> {
        let _ = until;
        Ok(())
    }

    /// Notifies the output that a process has exited, and that no events of the process follow.
    fn note_process_exit(&mut self, key: u64) -> io::Result<()> {
        let _ = key;
        Ok(())
    }

    /// Ends the output: no further events follow.
    fn finish(&mut self) -> io::Result<()>;

    /// Returns the number of bytes that the output has written. If a write has failed, the bytes of
    /// an incomplete event at the end are not counted.
    fn bytes_written(&self) -> u64;

    /// Returns the number of events that the output has written. Events that the output keeps in
    /// memory, or that it could not write, are not counted.
    fn nr_events_written(&self) -> u64;
}
