// SPDX-License-Identifier: GPL-2.0

//! Reader side of user-space tracing: reads the traces of `/dev/perftrace`.
//!
//! ```no_run
//! use perftrace_reader::{output::TextOutput, Clock, Device, Reader, Source, TraceConfig};
//!
//! let config = TraceConfig { name: "now".to_owned(), ..TraceConfig::default() };
//! let trace = Device::open()?.create_trace(&config)?;
//! let info = trace.info()?;
//! let mut lines = TextOutput::new(std::io::stdout(), Clock::new(&info), false);
//! let mut reader = Reader::new(&info);
//! std::thread::sleep(std::time::Duration::from_secs(1));
//! reader.read_round(&trace, &mut lines)?;
//! # Ok::<(), perftrace_reader::Error>(())
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `abi.rs` | the ioctls of `linux/perftrace.h`, with the structures of `trace_rules`; unsafe |
//! | `device.rs` | the device: lists traces and markers, creates and opens traces |
//! | `source.rs` | the trait of a trace that can be read |
//! | `records.rs` | parses the records of a buffer, without trust in their bytes |
//! | `filter.rs` | compiles the text of a filter |
//! | `fields.rs` | fields of markers, and their values |
//! | `metadata.rs` | cache of processes and markers |
//! | `reader.rs` | reads all buffers of a trace in rounds |
//! | `syscalls.rs`, `.txt`, `.awk` | names of system calls |
//! | `clock.rs` | converts ticks to times |
//! | `output/` | CTF 2, text, Perfetto's JSON |
//! | `error.rs` | the errors of this crate |

mod abi;
mod clock;
mod device;
mod error;
pub mod fields;
pub mod filter;
mod metadata;
pub mod output;
mod reader;
pub mod records;
mod source;
mod syscalls;

pub use clock::Clock;
pub use device::{Device, Trace, TraceConfig, MAX_VISITED_MARKERS, PERFTRACE_DEVICE_PATH};
pub use error::Error;
pub use metadata::{MarkerClass, Process};
pub use protocols::trace_buffer::{LOST_RECORD, PAD_RECORD, RECORD_MAX};
pub use reader::{ReadTotals, Reader};
pub use source::{BufferId, ChunkInfo, MarkerInfo, ProcessInfo, Source, TraceInfo};
pub use trace_rules::abi::flag::{
    ALL_USERS, FILTERED, FLIGHT, KEEP, PAUSED, SHARED, UNSTABLE, WAIT,
};
pub use trace_rules::abi::map::{READ_BYTES, WORDS};
pub use trace_rules::abi::wake_file::{NR_RETRY_WORDS, RETRY_WORDS};
pub use trace_rules::abi::{
    CLOCK_MONOTONIC, CLOCK_TSC, KEY_KERNEL, KEY_SHARED, MAX_BUFFER_BYTES, MAX_FIELDS_BYTES,
    MAX_FILTER_BYTES, MAX_NAME_BYTES, MIN_BUFFER_BYTES, NR_MARKERS, NR_TRACES, WAKE,
};
