// SPDX-License-Identifier: GPL-2.0

//! Words that other CPUs can read consistently: [`SeqCount`] protects several words, and
//! [`IrqTime`] holds the time of interrupts in one word.

use super::values::add;
use protocols::sync::{fence_release, Word};

/// Two counts by which readers detect a change of several words: the writer increments `begins`
/// before the change and `ends` after the change.
#[derive(Default)]
pub(super) struct SeqCount {
    begins: Word,
    ends: Word,
}

impl SeqCount {
    #[inline(always)]
    pub(super) fn write_begin(&self) {
        add(&self.begins, 1);
        // Pairs with the acquire fence before `is_consistent`: a reader that loads a word written
        // after this fence also loads the new `begins`.
        fence_release();
    }

    #[inline(always)]
    pub(super) fn write_end(&self) {
        // Pairs with the acquire in `read_begin`: a reader that sees this count sees all new words.
        let ends = self.ends.load_relaxed().wrapping_add(1);
        self.ends.store_release(ends);
    }

    /// Returns true if no write has begun yet.
    pub(super) fn is_unused(&self) -> bool {
        self.begins.load_relaxed() == 0
    }

    /// Begins a read. Returns the count to pass to [`is_consistent`](Self::is_consistent).
    pub(super) fn read_begin(&self) -> u64 {
        self.ends.load_acquire()
    }

    /// Returns true if all words that were read since [`read_begin`](Self::read_begin) returned
    /// `start` are consistent. Called after an acquire fence.
    pub(super) fn is_consistent(&self, start: u64) -> bool {
        self.begins.load_relaxed() == start
    }
}

/// Maximum number of attempts to read consistent values. After the last attempt the read fails, so
/// that the caller can sleep: the hypervisor may have preempted the writer's virtual CPU.
const MAX_ATTEMPTS: u32 = 1000;

/// Calls `read` until it succeeds, at most [`MAX_ATTEMPTS`] times.
pub(super) fn retry<T>(mut read: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..MAX_ATTEMPTS {
        if let Some(found) = read() {
            return Some(found);
        }
        core::hint::spin_loop();
    }
    None
}

/// The time of interrupts in one word, so that a reader always reads a consistent value. Bits 1 to
/// 63 hold the sum of the interrupts' end times minus the sum of their start times. Bit 0 is 1
/// while an interrupt is running.
#[derive(Default)]
pub(super) struct IrqTime(pub(super) Word);

impl IrqTime {
    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        self.0.load_relaxed() & 1 != 0
    }

    /// Returns the time of interrupts up to `now`, modulo 2^63.
    #[inline(always)]
    pub(super) fn total(&self, now: u64) -> u64 {
        let word = self.0.load_relaxed();
        let on = word & 1;
        (word >> 1).wrapping_add(now.wrapping_mul(on)) & (u64::MAX >> 1)
    }

    /// Returns the current time and the time of interrupts up to the current time. Called on the
    /// CPU that writes the word. Repeats the reads if an interrupt occurred between them.
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

    /// Returns the new value of the word after an interrupt has begun or ended at the time `now`.
    #[inline(always)]
    pub(super) fn toggled(word: u64, now: u64) -> u64 {
        match word & 1 {
            0 => (word >> 1).wrapping_sub(now).wrapping_shl(1) | 1,
            _ => (word >> 1).wrapping_add(now).wrapping_shl(1),
        }
    }
}

/// The value of an [`IrqTime`] word at the beginning of a run. The default, `u64::MAX`, is odd and
/// therefore differs from the value at the beginning of any run.
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

/// Returns the difference of two times, or 0 if the difference is negative. Negative differences
/// occur because the clocks of two CPUs may differ a little.
#[inline(always)]
pub(super) fn time_diff(later: u64, earlier: u64) -> u64 {
    match later.wrapping_sub(earlier) as i64 {
        ticks if ticks < 0 => 0,
        ticks => ticks as u64,
    }
}

/// Returns the difference of two times of 63 bits, or 0 if the difference is negative.
#[inline(always)]
pub(super) fn time_diff_63(later: u64, earlier: u64) -> u64 {
    time_diff(later.wrapping_shl(1), earlier.wrapping_shl(1)) >> 1
}
