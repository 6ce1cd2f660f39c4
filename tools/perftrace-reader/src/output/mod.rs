// SPDX-License-Identifier: GPL-2.0

//! Output formats of a trace, one file for each.
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

pub use ctf::Ctf;
pub use merge::Merge;
pub use perfetto::Perfetto;
pub use text::Text;

use crate::clock::Clock;
use crate::metadata::{Marker, Process};
use crate::source::{BufferId, Info};

/// The properties of a trace that are known before it is read.
#[derive(Clone, Debug)]
pub struct TraceProperties {
    /// The name of the trace.
    pub name: String,
    /// The clock of the trace.
    pub clock: Clock,
    /// The time at which it was created, in ticks.
    pub began: u64,
    /// Further information for readers: names and values.
    pub environment: Vec<(String, String)>,
}

impl TraceProperties {
    /// Returns the properties of a trace.
    pub fn new(info: &Info, environment: Vec<(String, String)>) -> Self {
        Self {
            name: info.name.clone(),
            clock: Clock::new(info),
            began: info.began,
            environment,
        }
    }
}

/// An event.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// The time in ticks. Times do not decrease within a buffer.
    pub time: u64,
    /// The thread id, as the program has written it.
    pub thread: u32,
    /// The process that wrote the event.
    pub process: Rc<Process>,
    /// The class of the event.
    pub marker: Rc<Marker>,
    /// The values of its fields, complete and without zeroes behind them.
    pub payload: &'a [u8],
}

/// A report of lost events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The losses precede the packet's event with this index.
    pub before: usize,
    /// The time of the report.
    pub time: u64,
    /// Events that were lost since the previous report.
    pub count: u64,
    /// Events that this buffer has lost so far, these included.
    pub total: u64,
}

/// The contents of a buffer that were read together, oldest first.
#[derive(Clone, Debug)]
pub struct Packet<'a> {
    /// The buffer.
    pub buffer: BufferId,
    /// The events.
    pub events: Vec<Event<'a>>,
    /// The losses before and between the events.
    pub losses: Vec<Loss>,
    /// Events that this buffer had lost when it was read, including those of `losses`.
    pub lost: u64,
    /// Bytes that are not part of a valid event.
    pub cut: u64,
}

/// A consumer of a trace's events.
pub trait Output {
    /// Takes the contents of a buffer.
    fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()>;

    /// Ends a round: all buffers were read. As a rule all events before `until` were passed on.
    fn end_round(&mut self, until: u64) -> io::Result<()>;

    /// Ends a process: no more of its events follow.
    fn process_exited(&mut self, key: u64) -> io::Result<()>;

    /// Ends the output: no more events follow.
    fn finish(&mut self) -> io::Result<()>;

    /// Returns the number of bytes written.
    fn bytes(&self) -> u64;
}
