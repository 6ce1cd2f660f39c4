// SPDX-License-Identifier: GPL-2.0

//! Reads the records of a sampling context's ring (`linux/perfmon_ring.h`) while the kernel writes
//! to it.
//!
//! ```no_run
//! # fn context(_: &str, _: &[u8]) -> std::fs::File { todo!() }
//! # use perfmon::ring::{RingArgument, Ring};
//! let argument = RingArgument::new(1 << 16);
//! let context = context("ring", &argument.to_bytes());
//! let mut ring = Ring::open(&context)?;
//! for record in ring.records() {
//!     println!("{record:?}");
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! `protocols::ring` has the protocol and its memory barriers. The reader copies a record, and
//! discards the copy if the kernel has overwritten the record in the meantime. As copies of
//! overwritten records are discarded, a returned record never consists of parts of two records.
//!
//! | file | contents |
//! |---|---|
//! | `mapping.rs` | the mappings of the ring |
//! | `record.rs` | the records, parsed |
//! | `reader.rs` | the reader, which keeps its position in the ring |

mod mapping;
#[cfg(feature = "std")]
mod reader;
#[cfg(feature = "std")]
mod record;

pub use mapping::RingMapping;
pub use protocols::ring::{BACKWARD, OVERWRITE};
#[cfg(feature = "std")]
pub use reader::{Reader, Records, Ring};
#[cfg(feature = "std")]
pub use record::{Record, Sample, GUEST_SAMPLE_ADDRESS, KERNEL_STACK_MARKER, USER_STACK_MARKER};

/// Flag of [`RingArgument::fields`]: record the frames of the kernel stack.
pub const FIELD_KERNEL_STACK: u32 = 0x01;
/// Flag of [`RingArgument::fields`]: record the frames of the user stack.
pub const FIELD_USER_STACK: u32 = 0x02;

/// The argument of the formats `ring`, `flight-recorder` and `call-stack`; C's `struct
/// perfmon_ring_arg`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingArgument {
    /// Size of the ring's data in bytes, which is a power of two and at least a page.
    pub size: u64,
    /// Flags of the ring, [`BACKWARD`] and [`OVERWRITE`].
    pub flags: u32,
    /// Number of new bytes after which the kernel sends a message to the reader. The watermark 0
    /// means half of `size`; in a ring with [`OVERWRITE`], the watermark 0 disables messages.
    pub watermark: u32,
    /// Optional fields of samples, [`FIELD_KERNEL_STACK`] and [`FIELD_USER_STACK`].
    pub fields: u32,
    /// Maximum number of frames of each stack; 0 means 127.
    pub max_frames: u32,
}

impl RingArgument {
    /// Returns the argument for a ring of `size` bytes; all other fields have the default 0.
    pub fn new(size: u64) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    /// Returns the argument in the layout that the kernel expects.
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
