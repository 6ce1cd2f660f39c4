// SPDX-License-Identifier: GPL-2.0

//! The seqflag: one word per CPU that tells readers whether what they copied
//! of that CPU's counters belongs together.
//!
//! Low 16 bits: updates in flight on this CPU (a task's, and nested in it a
//! softirq's, a hard interrupt's, an NMI's). High bits: completed updates. Only
//! the CPU itself writes the word, one instruction each for [`BEGIN`] and
//! [`END`], so neither an interrupt nor an NMI can tear or lose an update.
//!
//! ```text
//!   writer (its own CPU)                 reader (any CPU)
//!   A: flag += BEGIN                     C: w = flag, acquire; busy? try again
//!      values += ...                        copy values
//!   B: flag += END                       D: fence, flag again; != w? try again
//! ```
//!
//! B pairs with C: a reader that sees the completed count sees the values of
//! all completed updates. A pairs with D: a reader that saw a value of an
//! update sees, in D, at least the beginning of that update. x86 keeps stores
//! in order and loads in order; elsewhere B is a release and A is followed by a
//! write barrier.

use crate::sync::{fence_acquire, Word};

/// Bits of the count in flight.
pub const SHIFT: u32 = 16;
/// Mask of the count in flight.
pub const BUSY: u64 = (1 << SHIFT) - 1;
/// Added when an update begins.
pub const BEGIN: u64 = 1;
/// Added when it ends: one less in flight, one more completed.
pub const END: u64 = (1 << SHIFT) - 1;

/// Is no update in flight?
#[inline(always)]
pub const fn quiet(word: u64) -> bool {
    word & BUSY == 0
}

/// Updates completed so far, modulo 2^48.
#[inline(always)]
pub const fn completed(word: u64) -> u64 {
    word >> SHIFT
}

/// One try at a consistent copy: runs `copy` between two looks at the flag.
///
/// `copy` must load with [`Word::load_relaxed`] and may be run in vain; its
/// result is given out only if no update was in flight or came in between.
#[inline]
pub fn try_read<T>(flag: &Word, copy: impl FnOnce() -> T) -> Option<T> {
    // C: pairs with B.
    let before = flag.load_acquire();
    if !quiet(before) {
        return None;
    }
    let copied = copy();
    // D: pairs with A. The copy's loads are done before the second look.
    fence_acquire();
    if flag.load_relaxed() == before {
        Some(copied)
    } else {
        None
    }
}
