// SPDX-License-Identifier: GPL-2.0

//! libperfmon: the twelve system calls of perfmon2 as a C library, and functions that read the
//! counters of the calling thread and the rings of contexts without a system call.
//!
//! `include/perfmon/perfmon.h` describes the functions. The kernel checks the arguments of the
//! functions of perfmon2, with two exceptions: the library checks the events that PMCs (control
//! registers) select, because the kernel has no tables of events; and it reads the context argument
//! of a context with a sampling format, which the caller must keep valid.
//!
//! The library cannot panic, and is built without std. The library needs only the C library, and
//! exports only the symbols of its functions. Lint builds use std: a panic unwinds in these builds,
//! and unwinding needs std.
//!
//! | file | contents |
//! |---|---|
//! | `abi.rs` | the functions of the C library; unsafe |
//! | `device.rs` | the ioctls of `/dev/perfmon`; unsafe |
//! | `event.rs` | the check that a counter can count an event; unsafe |
//! | `ring.rs` | the reader of the ring of a context; unsafe |
//! | `panic.rs` | the panic handler, which aborts the program; unsafe |

#![cfg_attr(panic = "abort", no_std)]

mod abi;
mod device;
mod event;
#[cfg(panic = "abort")]
mod panic;
mod ring;
