// SPDX-License-Identifier: GPL-2.0

//! User tracing: traces and the processes in them. `Documentation/tracing.md` describes the layout
//! of the buffers, and how a process writes to the buffers without a system call.
//!
//! The lock [`TRACING`](traces::TRACING) protects all state of user tracing. Page faults of traced
//! processes also take it. Writing an event takes no lock.

pub(crate) mod attached;
mod buffer_set;
mod calls;
pub(crate) mod children;
pub(crate) mod clock;
pub(crate) mod detach;
mod ends;
mod glob_cache;
mod kernel_events;
mod marker;
mod membership;
pub(crate) mod process;
mod process_memory;
mod signal;
mod sorted;
mod trace;
pub(crate) mod traces;

pub(crate) use self::calls::{
    any_process, create, describe, end, free_all, has_ended, info, may_read, next, next_marker,
    next_trace, open, pause, process, TraceRef,
};
