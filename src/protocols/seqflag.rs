// SPDX-License-Identifier: GPL-2.0

//! The seqflag: a per-CPU sequence word for consistent reads of that CPU's counters.
//!
//! A seqflag works like a seqcount, but it nests. A task's update may be interrupted by updates of
//! a softirq, a hard interrupt and an NMI on the same CPU.
//!
//! | bits | hold |
//! |---|---|
//! | 0 to 15 | updates in flight on this CPU |
//! | 16 to 63 | updates completed, modulo 2^48 |
//!
//! A writer adds [`BEGIN_INCREMENT`] to the word of its CPU, changes counters, and adds
//! [`END_INCREMENT`], with preemption off. Each addition is one instruction, so an interrupt or NMI
//! cannot split it. No other CPU writes the seqflag of this CPU.
//!
//! A reader reads the seqflag before and after it copies the counters. The copy is consistent if
//! the two values of the seqflag are equal and count no update in flight.
//!
//! # Ordering
//!
//! ```text
//!   writer (its own CPU)                 reader (any CPU)
//!   A: flag += BEGIN_INCREMENT           C: w = flag, acquire; in flight? retry
//!      values += ...                        copy values
//!   B: flag += END_INCREMENT             D: acquire fence; flag != w? retry
//! ```
//!
//! - B (addition of END_INCREMENT) pairs with C (first load of the flag): a reader whose copy of
//!   the seqflag counts an update as completed also sees the values of this update.
//! - A (addition of BEGIN_INCREMENT) pairs with D (second load of the flag): a reader that copied a
//!   new value sees that the seqflag has changed.
//!
//! On x86, stores are not reordered with other stores, and loads are not reordered with other
//! loads, so the two additions of the writer need only compiler barriers. On architectures other
//! than x86, the addition of BEGIN_INCREMENT needs a write barrier after it, and the addition of
//! END_INCREMENT must be a release.
//!
//! Writers in C call `perf_adjust()`, or `perf_counter_begin()` and `perf_counter_end()`
//! (`include/linux/perfcounters.h`). Writers in Rust use an `UpdateGroup`
//! (`include/linux/perfcounters.rs`). This file implements the reader;
//! `tools/protocols/tests/loom.rs` checks the protocol.

use crate::sync::{fence_acquire, Word};

/// Width in bits of the count of updates in flight.
pub const IN_FLIGHT_BITS: u32 = 16;
/// Mask of the count of updates in flight.
pub const IN_FLIGHT_MASK: u64 = (1 << IN_FLIGHT_BITS) - 1;
/// Number that is added to the seqflag when an update begins: one more update is in flight.
pub const BEGIN_INCREMENT: u64 = 1;
/// Number that is added to the seqflag when an update ends: one update fewer is in flight (-1), and
/// one more is completed (+2^16).
pub const END_INCREMENT: u64 = (1 << IN_FLIGHT_BITS) - 1;

/// Returns true if the seqflag value `word` has no update in flight.
#[inline(always)]
pub const fn is_idle(word: u64) -> bool {
    word & IN_FLIGHT_MASK == 0
}

/// Returns the number of completed updates in the seqflag value `word`, modulo 2^48.
#[inline(always)]
pub const fn completed_updates(word: u64) -> u64 {
    word >> IN_FLIGHT_BITS
}

/// Makes one attempt at a consistent copy of a CPU's counters.
///
/// Returns `None` if an update was in flight before the copy, or began or ended during the copy;
/// the caller retries. If an update begins during the copy, `copy` may load a mix of old and new
/// values. `copy` must tolerate such a mix, although its result is then dropped. `copy` must load
/// with [`Word::load_relaxed`].
#[inline]
pub fn try_read<T>(flag: &Word, copy: impl FnOnce() -> T) -> Option<T> {
    // C: the acquire load pairs with B, the addition of `END_INCREMENT` by the writer.
    let before = flag.load_acquire();
    if !is_idle(before) {
        return None;
    }
    let copied = copy();
    // D: the acquire fence pairs with A, the addition of `BEGIN_INCREMENT` by the writer. The fence
    // keeps the loads of `copy` before the second load of the flag.
    fence_acquire();
    if flag.load_relaxed() == before {
        Some(copied)
    } else {
        None
    }
}
