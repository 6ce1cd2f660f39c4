// SPDX-License-Identifier: GPL-2.0

//! Words that are read whole while they change: several between two counts, an interrupt's
//! time in one.

use super::add;
use crate::sync::{fence_release, Word};

/// Changes of several words that are read as one.
#[derive(Default)]
pub(super) struct Changes {
    begins: Word,
    ends: Word,
}

impl Changes {
    #[inline(always)]
    pub(super) fn begin(&self) {
        add(&self.begins, 1);
        // The reader's fence: who sees a new word sees this one.
        fence_release();
    }

    #[inline(always)]
    pub(super) fn end(&self) {
        // The reader's acquire: who sees this sees all new words.
        let ends = self.ends.load_relaxed().wrapping_add(1);
        self.ends.store_release(ends);
    }

    /// To read from here on.
    pub(super) fn start(&self) -> u64 {
        self.ends.load_acquire()
    }

    /// Was what was read since then read whole? After a fence.
    pub(super) fn is_whole(&self, start: u64) -> bool {
        self.begins.load_relaxed() == start
    }
}

/// How often a reader tries before it lets others run: the writer may have lost its
/// processor in between.
const TRIES: u32 = 1000;

/// Tries until it succeeds; not for ever.
pub(super) fn tried<T>(mut read: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..TRIES {
        if let Some(found) = read() {
            return Some(found);
        }
        core::hint::spin_loop();
    }
    None
}

/// Interrupt time in one word, so that it is always whole: twice the sum of ends minus
/// beginnings, and whether one is on.
#[derive(Default)]
pub(super) struct Span(pub(super) Word);

impl Span {
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.0.load_relaxed() & 1 != 0
    }

    /// What has been, up to now: 63 bits.
    #[inline(always)]
    pub(super) fn total(&self, now: u64) -> u64 {
        let word = self.0.load_relaxed();
        let on = word & 1;
        (word >> 1).wrapping_add(now.wrapping_mul(on)) & (u64::MAX >> 1)
    }

    /// The same, and a time that it is of: where interrupts come.
    #[inline(always)]
    pub(super) fn total_now(&self, clock: &impl Fn() -> u64) -> (u64, u64) {
        loop {
            let before = self.0.load_relaxed();
            let now = clock();
            let total = self.total(now);
            if self.0.load_relaxed() == before {
                return (now, total);
            }
        }
    }

    /// Begins or ends.
    #[inline(always)]
    pub(super) fn turn(word: u64, now: u64) -> u64 {
        match word & 1 {
            0 => (word >> 1).wrapping_sub(now).wrapping_shl(1) | 1,
            _ => (word >> 1).wrapping_add(now).wrapping_shl(1),
        }
    }
}

/// Interrupts' time at the beginning of a turn; of one that has not begun, what it never is.
pub(super) struct Since(pub(super) Word);

impl Default for Since {
    fn default() -> Self {
        Self(Word::new(u64::MAX))
    }
}

#[inline(always)]
pub(super) fn turn(span: &Span, now: u64) {
    let word = span.0.load_relaxed();
    span.0.store_relaxed(Span::turn(word, now));
}

/// What a later number is above an earlier one; clocks of two CPUs may differ a little.
#[inline(always)]
pub(super) fn above(later: u64, earlier: u64) -> u64 {
    match later.wrapping_sub(earlier) as i64 {
        ticks if ticks < 0 => 0,
        ticks => ticks as u64,
    }
}

/// The same of 63 bits.
#[inline(always)]
pub(super) fn above_63(later: u64, earlier: u64) -> u64 {
    above(later.wrapping_shl(1), earlier.wrapping_shl(1)) >> 1
}
