// SPDX-License-Identifier: GPL-2.0

//! libperfmon: the twelve system calls of perfmon2 as a C library, and functions that read the
//! counters of the calling thread and the rings of contexts without a system call.
//!
//! `include/perfmon/perfmon.h` describes the functions. Arguments are passed to the kernel, which
//! checks them. Only the events that PMCs select are checked here, because the kernel knows none.
//!
//! The library cannot panic, and is built without std. The library needs the C library only, and
//! exports only the symbols of its functions. Builds in which a panic unwinds, which are for lints
//! only, use std, because unwinding needs it.
//!
//! | file | contents |
//! |---|---|
//! | `abi.rs` | the functions of the C library; unsafe |
//! | `constraints.rs` | the counters that can count an event; the file of the crate `perfmon` |
//! | `device.rs` | the ioctls of `/dev/perfmon`; unsafe |
//! | `event.rs` | whether a counter can count an event; unsafe |
//! | `ring.rs` | the mapped ring of a context, and its reader; unsafe |
//! | `panic.rs` | the panic handler, which aborts the program; unsafe |

#![cfg_attr(panic = "abort", no_std)]

mod abi;
#[path = "../../perfmon/src/constraints.rs"]
mod constraints;
mod device;
mod event;
#[cfg(panic = "abort")]
mod panic;
mod ring;
