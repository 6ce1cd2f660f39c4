// SPDX-License-Identifier: GPL-2.0

//! Words that readers on other CPUs read consistently: several words between two counts, or the
//! time of interrupts in one word.

use super::add;
use crate::sync::{fence_release, Word};

/// Two counts around changes of several words that are read as one.
#[derive(Default)]
pub(super) struct SeqCount {
    begins: Word,
    ends: Word,
}

impl SeqCount {
    #[inline(always)]
    pub(super) fn write_begin(&self) {
        add(&self.begins, 1);
        // Pairs with the reader's fence: a reader that sees a new word sees this count.
        fence_release();
    }

    #[inline(always)]
    pub(super) fn write_end(&self) {
        // Pairs with the reader's acquire: a reader that sees this count sees all new words.
        let ends = self.ends.load_relaxed().wrapping_add(1);
        self.ends.store_release(ends);
    }

    /// Begins a read.
    pub(super) fn read_begin(&self) -> u64 {
        self.ends.load_acquire()
    }

    /// Returns true if all that was read since `start` is consistent. Called after an acquire
    /// fence.
    pub(super) fn is_consistent(&self, start: u64) -> bool {
        self.begins.load_relaxed() == start
    }
}

/// Attempts of a reader before it fails, and its caller lets others run: the processor of the
/// writer may be a virtual one that does not run at the moment.
const MAX_ATTEMPTS: u32 = 1000;

/// Repeats an attempt until it succeeds, up to [`MAX_ATTEMPTS`] times.
pub(super) fn retry<T>(mut read: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..MAX_ATTEMPTS {
        if let Some(found) = read() {
            return Some(found);
        }
        core::hint::spin_loop();
    }
    None
}

/// The time of interrupts in one word, so that it is always consistent: twice the sum of ends minus
/// begins, plus 1 while an interrupt is running.
#[derive(Default)]
pub(super) struct IrqTime(pub(super) Word);

impl IrqTime {
    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        self.0.load_relaxed() & 1 != 0
    }

    /// Returns the time of interrupts up to now, in 63 bits.
    #[inline(always)]
    pub(super) fn total(&self, now: u64) -> u64 {
        let word = self.0.load_relaxed();
        let on = word & 1;
        (word >> 1).wrapping_add(now.wrapping_mul(on)) & (u64::MAX >> 1)
    }

    /// Returns a time and the time of interrupts up to that moment, where interrupts may come in
    /// between.
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

    /// Returns the word after an interrupt has begun or ended.
    #[inline(always)]
    pub(super) fn toggled(word: u64, now: u64) -> u64 {
        match word & 1 {
            0 => (word >> 1).wrapping_sub(now).wrapping_shl(1) | 1,
            _ => (word >> 1).wrapping_add(now).wrapping_shl(1),
        }
    }
}

/// The word of interrupt time at the beginning of a run. Before the first run it is a value that
/// the word never has at the beginning of a run.
pub(super) struct IrqTimeStart(pub(super) Word);

impl Default for IrqTimeStart {
    fn default() -> Self {
        Self(Word::new(u64::MAX))
    }
}

#[inline(always)]
pub(super) fn toggle(span: &IrqTime, now: u64) {
    let word = span.0.load_relaxed();
    span.0.store_relaxed(IrqTime::toggled(word, now));
}

/// Returns the difference of two times, or 0 if it is negative: the clocks of two CPUs may differ a
/// little.
#[inline(always)]
pub(super) fn time_diff(later: u64, earlier: u64) -> u64 {
    match later.wrapping_sub(earlier) as i64 {
        ticks if ticks < 0 => 0,
        ticks => ticks as u64,
    }
}

/// Returns the difference of two times of 63 bits, or 0 if it is negative.
#[inline(always)]
pub(super) fn time_diff_63(later: u64, earlier: u64) -> u64 {
    time_diff(later.wrapping_shl(1), earlier.wrapping_shl(1)) >> 1
}
