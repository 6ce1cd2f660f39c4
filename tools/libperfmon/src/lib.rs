// SPDX-License-Identifier: GPL-2.0

//! perfmon2's twelve calls, and reading of the own counters and of rings without one,
//! as a C library: `include/perfmon/perfmon.h` says what each does.
//!
//! What a program hands over is handed on to the kernel unread, which checks it.
//! Nothing here can panic. Programs get it without std: it wants nothing of them
//! but their C library, and brings no other symbols. Where a panic would unwind,
//! which is in builds for lints only, that is not possible.
//!
//! | file | holds |
//! |---|---|
//! | `abi.rs` | the functions of the C library; unsafe |
//! | `device.rs` | the ioctls of `/dev/perfmon`; unsafe |
//! | `ring.rs` | the ring of a context, mapped; unsafe |
//! | `panic.rs` | the end of the program, if it came to that; unsafe |

#![cfg_attr(panic = "abort", no_std)]

mod abi;
mod device;
#[cfg(panic = "abort")]
mod panic;
mod ring;
