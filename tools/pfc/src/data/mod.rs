// SPDX-License-Identifier: GPL-2.0

//! The file format of linux-perf's perf.data, in which pfc stores samples. `perf report` and
//! similar programs read the files of `pfc record`, and pfc reads the files of `perf record`.
//!
//! | file | contents |
//! |---|---|
//! | `write.rs`, `layout.rs` | writes a file: header, attributes, records, features |
//! | `record.rs` | encodes the records |
//! | `attr_flags.rs` | bits in the description of an event |
//!
//! Files are read with the crate linux-perf-data, in `profile/`.

pub mod attr_flags;
#[cfg(test)]
pub mod fixtures;
mod layout;
#[cfg(test)]
mod partial_tests;
pub mod record;
pub mod write;

pub use layout::{EventAttribute, FEATURE_BOOT_ID};
pub use record::{
    pids_with_fork_or_exec, take_records_until, time_that_halves_records, RecordEncoder, SampleId,
    CPU_OFFLINE_EVENT_ID, LOST_PROCESS_RECORDS_EVENT_ID,
};
#[cfg(test)]
pub use write::encode_perf_data_recorded_on_kernel;
pub use write::{count_sample_records, encode_perf_data, take_first_half, PerfDataWriter};

/// The file that `pfc record` writes and `pfc report` reads if the user names no file.
pub const DEFAULT_PERF_DATA_PATH: &str = "pfc.data";

/// The lowest address of the kernel. All addresses below `LOWEST_KERNEL_ADDRESS` belong to user
/// space.
pub const LOWEST_KERNEL_ADDRESS: u64 = 1 << 63;
/// PERF_CONTEXT_MAX, the lowest context marker. In a call chain, a value at or above
/// PERF_CONTEXT_MAX is a context marker and not an address. A context marker says whether the
/// frames that follow are of the kernel or of user space.
pub const PERF_CONTEXT_MAX: u64 = -4095_i64 as u64;
