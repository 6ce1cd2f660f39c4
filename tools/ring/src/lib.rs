// SPDX-License-Identifier: GPL-2.0

//! The ring of a context that samples, `linux/perfmon_ring.h`: its records, read while
//! the kernel writes them.
//!
//! ```no_run
//! # fn context(_: &str, _: &[u8]) -> std::fs::File { todo!() }
//! let argument = ring::Argument::new(1 << 16);
//! let context = context("ring", &argument.to_bytes());
//! let mut ring = ring::Ring::open(&context)?;
//! for record in ring.records() {
//!     println!("{record:?}");
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The protocol and its barriers are the engine's (`engine::ring`). A record is copied
//! and then looked at whether it was written over meanwhile, so none is ever half one
//! and half another.
//!
//! | file | holds |
//! |---|---|
//! | `mapping.rs` | the mappings; unsafe |
//! | `record.rs` | what records say |
//! | `reader.rs` | where the reader is |

mod mapping;
mod reader;
mod record;

use std::io;
use std::os::fd::AsFd;

pub use engine::ring::{BACKWARD, OVERWRITE};
use mapping::Mapping;
pub use reader::{Reader, Records};
pub use record::{Record, Sample, IN_GUEST, STACK_KERNEL, STACK_USER};

/// `perfmon_ring_arg.fields`: frames of the kernel's stack.
pub const KERNEL_STACK: u32 = 0x01;
/// `perfmon_ring_arg.fields`: frames of user space's stack.
pub const USER_STACK: u32 = 0x02;

/// `struct perfmon_ring_arg`: what the formats `ring`, `flight-recorder` and
/// `call-stack` want.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Argument {
    /// Bytes of data, a power of two, at least a page.
    pub size: u64,
    /// [`BACKWARD`], [`OVERWRITE`].
    pub flags: u32,
    /// Bytes between two messages; 0: half of the size.
    pub watermark: u32,
    /// [`KERNEL_STACK`], [`USER_STACK`].
    pub fields: u32,
    /// Of each stack at most; 0: 127.
    pub max_frames: u32,
}

impl Argument {
    /// Of so many bytes, and else as the format has it.
    pub fn new(size: u64) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    /// As the kernel reads it.
    pub fn to_bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&self.size.to_ne_bytes());
        let words = [self.flags, self.watermark, self.fields, self.max_frames];
        for (at, word) in (8..).step_by(4).zip(words) {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// The ring of a context, unmapped when dropped.
#[derive(Debug)]
pub struct Ring {
    mapping: Mapping,
    reader: Reader,
}

impl Ring {
    /// Maps it. `InvalidData`: it is laid out as this library does not know.
    pub fn open(context: &impl AsFd) -> io::Result<Self> {
        Ok(Self {
            mapping: Mapping::new(context.as_fd())?,
            reader: Reader::default(),
        })
    }

    /// The records that came since, oldest first. What is taken of a ring that is not
    /// overwritten makes room.
    pub fn records(&mut self) -> Records<'_> {
        self.reader.records(self.mapping.shared())
    }

    /// Records that could not be written, since the beginning.
    pub fn lost(&self) -> u64 {
        self.mapping.shared().page.lost()
    }

    /// Bytes of data.
    pub fn size(&self) -> u64 {
        self.mapping.shared().page.data_size()
    }

    /// Something was found that is no record: nothing more can be read.
    pub fn is_broken(&self) -> bool {
        self.reader.is_broken()
    }
}
