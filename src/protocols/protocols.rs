// SPDX-License-Identifier: GPL-2.0

//! The protocols of memory that the kernel and programs share, without any kernel API.
//!
//! The files of this crate and those of `src/*/rules` are compiled into `perfcounters.ko` and, by
//! cargo, into the user-space libraries and their tests. Their code therefore does not call the
//! kernel, does not allocate, has no statics, and uses no floating point in the kernel. The code
//! cannot panic: arithmetic wraps or saturates explicitly, and slices are read with `get`.
//!
//! | module | contents |
//! |---|---|
//! | [`seqflag`] | consistent reads of a CPU's counters: updates in flight and completed |
//! | [`generation`] | gen1 and gen2: changes of the set of instances |
//! | [`ring`] | ring buffer with one writer and concurrent readers |
//! | [`self_page`] | page from which a thread reads its own counters |
//! | [`trace_buffer`] | counts and records of a trace's buffer |
//! | [`filter`] | filters for events of user tracing |
//! | [`sync`] | atomics: the processor's, or loom's |

#![cfg_attr(not(in_kernel), no_std)]
#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod filter;
pub mod generation;
pub mod ring;
pub mod self_page;
pub mod seqflag;
pub mod sync;
pub mod trace_buffer;

/// Size of a page on all supported machines.
pub const PAGE_SIZE: usize = 4096;
