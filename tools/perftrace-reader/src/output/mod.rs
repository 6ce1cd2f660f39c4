// SPDX-License-Identifier: GPL-2.0

//! What is made of a trace: a file for each format.
//!
//! | file | holds |
//! |---|---|
//! | `ctf.rs` `schema.rs` | CTF 2, for babeltrace2 and Trace Compass; its metadata |
//! | `text.rs` | lines, for people |
//! | `perfetto.rs` | JSON in the trace event format, for ui.perfetto.dev and the like |
//! | `merge.rs` | what came out of several buffers, in the order of time |

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
use crate::source::{Info, Place};

/// What is known of a trace before anything is read of it.
#[derive(Clone, Debug)]
pub struct About {
    /// Its name.
    pub name: String,
    /// Its clock.
    pub clock: Clock,
    /// When it was made, in ticks.
    pub began: u64,
    /// What else is worth to be known: names and values.
    pub environment: Vec<(String, String)>,
}

impl About {
    /// Of a trace.
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
    /// Ticks; in a buffer they never fall.
    pub time: u64,
    /// The thread, as it said.
    pub thread: u32,
    /// Its process.
    pub process: Rc<Process>,
    /// What it is.
    pub marker: Rc<Marker>,
    /// The values of its fields, all there, and nothing else.
    pub payload: &'a [u8],
}

/// Events were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Before this one of the packet's events.
    pub before: usize,
    /// When it was told.
    pub time: u64,
    /// How many.
    pub count: u64,
    /// How many of this buffer ever, this one included.
    pub total: u64,
}

/// What was read of a buffer at once, oldest first.
#[derive(Clone, Debug)]
pub struct Packet<'a> {
    /// The buffer.
    pub place: Place,
    /// Its events.
    pub events: Vec<Event<'a>>,
    /// Where some are missing.
    pub losses: Vec<Loss>,
    /// Events that this buffer lost up to when it was read, those of `losses` included.
    pub lost: u64,
    /// Bytes that made no sense.
    pub cut: u64,
}

/// Where events go.
pub trait Output {
    /// What came out of a buffer.
    fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()>;

    /// All buffers were read: what is older than this is there, as a rule.
    fn round(&mut self, until: u64) -> io::Result<()>;

    /// Nothing more will come of this process.
    fn gone(&mut self, key: u64) -> io::Result<()>;

    /// Nothing more will come at all.
    fn finish(&mut self) -> io::Result<()>;

    /// Bytes that were written.
    fn bytes(&self) -> u64;
}
