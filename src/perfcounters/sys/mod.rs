// SPDX-License-Identifier: GPL-2.0

//! The only room with `unsafe`: everything that touches memory shared with
//! others, per-CPU addresses, and the kernel's C side.
//!
//! | file | holds |
//! |---|---|
//! | `tables` | numbers to per-CPU addresses, read in any context |
//! | `adjust` | perf_adjust |
//! | `export` | the rest of the C interface for drivers |
//! | `percpu` | memory of a chunk |
//! | `page`   | the header page and descriptor pages |
//! | `file`   | the two devices and their mappings |
//! | `cpu`    | which CPUs there are, hotplug |
//! | `lock`   | the registry and its lock |
//! | `misc`   | random numbers, time, RCU cookies |
//! | `shim`   | declarations of `shim/shim.c` |
//! | `probe`, `family`, `block`, `irq`, `net` | what providers see of the kernel |

pub(crate) mod adjust;
pub mod block;
pub(crate) mod cpu;
pub(crate) mod export;
pub mod family;
pub(crate) mod file;
pub mod irq;
pub(crate) mod lock;
pub(crate) mod misc;
pub mod net;
pub(crate) mod page;
pub(crate) mod percpu;
pub mod probe;
pub(crate) mod shim;
pub(crate) mod tables;
