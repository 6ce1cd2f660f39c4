// SPDX-License-Identifier: GPL-2.0

//! The rules of monitoring contexts, event sets and sampling (`/dev/perfmon`). The code uses no
//! kernel API.
//!
//! | module | contents |
//! |---|---|
//! | [`abi`] | structures and ioctl numbers of `/dev/perfmon` |
//! | [`register_map`] | logical registers: rows of a PMU description, values that may be written |
//! | [`register_bitmap`] | sets of register numbers |
//! | [`registers`], [`program`] | an event set's registers: 64-bit values, program of the PMU |
//! | [`register_memory`], [`allocator`] | memory for an event set's registers; its allocator |
//! | [`claims`] | registers that contexts use, so that threads and CPUs can share a PMU |
//! | [`event_sets`] | conditions for switches of event sets, sums over the runs of a set |
//! | [`period`] | sampling periods and their randomization |
//! | [`messages`] | messages about overflows |
//! | [`error`] | reasons why a call on a context is refused |

#![cfg_attr(not(in_kernel), no_std)]
#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod abi;
pub mod allocator;
pub mod claims;
pub mod error;
pub mod event_sets;
pub mod messages;
pub mod period;
pub mod program;
pub mod register_bitmap;
pub mod register_map;
pub mod register_memory;
pub mod registers;
