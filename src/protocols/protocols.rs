// SPDX-License-Identifier: GPL-2.0

//! Protocols for memory that the kernel shares with programs. The code of this crate uses no kernel
//! API.
//!
//! The files of this crate and the files in `src/*/rules` are compiled into the modules and, by
//! cargo, into the user-space libraries and their tests. Code that is shared with user space calls
//! no kernel function, allocates no memory and has no statics. In the kernel build the code uses no
//! floating point. The code cannot panic: arithmetic wraps or saturates explicitly, and slices are
//! read with `get`.
//!
//! | module | contents |
//! |---|---|
//! | [`seqflag`] | word that counts updates of a CPU's counters, for consistent reads |
//! | [`generation`] | gen1 and gen2, by which readers detect added and deleted instances |
//! | [`ring`] | ring buffer with one writer and concurrent readers |
//! | [`self_page`] | page from which a thread reads its own counters |
//! | [`trace_buffer`] | positions, counts and records of a buffer of user tracing |
//! | [`filter`] | programs that select events of user tracing |
//! | [`structure`] | structures that are copied byte by byte |
//! | [`sync`] | atomic words: those of `core`, or those of loom in tests |

#![cfg_attr(not(in_kernel), no_std)]
#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod filter;
pub mod generation;
pub mod ring;
pub mod self_page;
pub mod seqflag;
pub mod structure;
pub mod sync;
pub mod trace_buffer;

/// Size of a page on all supported machines.
pub const PAGE_SIZE: usize = 4096;
