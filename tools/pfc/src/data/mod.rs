// SPDX-License-Identifier: GPL-2.0

//! Samples in a file, in the format of linux-perf's perf.data: what `pfc record` writes
//! can be read by `perf report` and the like, and the other way round.
//!
//! | file | holds |
//! |---|---|
//! | `write.rs` | the file: header, attributes, records one after the other, features |
//! | `record.rs` | what a record's bytes are |
//!
//! Read by the crate linux-perf-data: see `profile/`.

pub mod record;
pub mod write;

pub use record::{middle_time, take_until, Encoder, SampleId};
pub use write::{encode_file, Attribute, Writer};

/// Where a file goes, and comes from, if nothing is said.
pub const DEFAULT_FILE: &str = "pfc.data";

/// Addresses from here on are the kernel's.
pub const KERNEL_START: u64 = 1 << 63;
/// From here on they are no addresses: they say whose frames follow in a stack.
pub const CONTEXT_MAX: u64 = -4095_i64 as u64;
