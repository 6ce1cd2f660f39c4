// SPDX-License-Identifier: GPL-2.0

//! User tracing: traces and the processes in them. `Documentation/tracing.md` describes the layout
//! of the buffers, and how a process writes to the buffers without a system call.
//!
//! The lock [`TRACING`](static@traces::TRACING) protects all state of user tracing. Page faults of
//! traced processes also take it. Writing an event takes no lock. `Documentation/architecture.md`
//! lists the files.

#![deny(unsafe_code)]

pub(crate) mod attached;
pub(crate) mod buffer_set;
pub(crate) mod buffers;
pub(crate) mod calls;
pub(crate) mod children;
pub(crate) mod clock;
pub(crate) mod detach;
pub(crate) mod detach_mappings;
pub(crate) mod device;
pub(crate) mod ends;
pub(crate) mod glob_cache;
pub(crate) mod helpers;
pub(crate) mod kernel_events;
pub(crate) mod mapping;
pub(crate) mod marker;
pub(crate) mod membership;
pub(crate) mod open_file;
pub(crate) mod process;
pub(crate) mod process_memory;
pub(crate) mod signal;
pub(crate) mod sorted;
pub(crate) mod stats;
pub(crate) mod trace;
pub(crate) mod traced;
pub(crate) mod traces;
