// SPDX-License-Identifier: GPL-2.0

//! What a thread's context of `/dev/perfmon` has counted, read by that thread
//! without a system call: `struct perfmon_self` of
//! `include/uapi/linux/perfmon.h`.
//!
//! ```no_run
//! # use std::os::fd::AsRawFd;
//! # fn read_pmds(_: u16) -> u64 { 0 }
//! # let context = std::fs::File::open("/dev/perfmon")?;
//! let page = selfpage::Mapping::new(context.as_raw_fd())
//!     .map_err(std::io::Error::from_raw_os_error)?;
//! // What the page cannot say, only the kernel can.
//! let instructions = page.counter(0).unwrap_or_else(|| read_pmds(0));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Without std, as the C library is that is made of it.
//!
//! | file | holds |
//! |---|---|
//! | `page.rs` | the page and its protocol; no unsafe |
//! | `mapping.rs` | the mapping; unsafe |
//! | `rdpmc.rs` | the instruction; unsafe |

#![no_std]

mod mapping;
mod page;
mod rdpmc;

pub use mapping::Mapping;
pub use page::{Page, VERSION};
