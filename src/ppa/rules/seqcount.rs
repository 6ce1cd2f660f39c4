// SPDX-License-Identifier: GPL-2.0

//! Several words that other CPUs can read consistently: [`SeqCount`] protects the words, and
//! [`retry_read`] repeats a read that was not consistent.

use super::values::add;
use protocols::sync::{fence_release, Word};

/// Two counts by which readers detect a change of several words: the writer increments
/// `begun_writes` before the change and `ended_writes` after the change.
#[derive(Default)]
pub(super) struct SeqCount {
    begun_writes: Word,
    ended_writes: Word,
}

impl SeqCount {
    #[inline(always)]
    pub(super) fn write_begin(&self) {
        add(&self.begun_writes, 1);
        // Pairs with the acquire fence before `is_consistent`: a reader that loads a word written
        // after this fence also loads the new `begun_writes`.
        fence_release();
    }

    #[inline(always)]
    pub(super) fn write_end(&self) {
        // Pairs with the acquire in `read_begin`: a reader that sees this count sees all new words.
        let ends = self.ended_writes.load_relaxed().wrapping_add(1);
        self.ended_writes.store_release(ends);
    }

    /// Returns true if no write has begun yet.
    pub(super) fn was_never_written(&self) -> bool {
        self.begun_writes.load_relaxed() == 0
    }

    /// Begins a read. Returns the count to pass to [`is_consistent`](Self::is_consistent).
    pub(super) fn read_begin(&self) -> u64 {
        self.ended_writes.load_acquire()
    }

    /// Returns true if all words that were read since [`read_begin`](Self::read_begin) returned
    /// `start` are consistent. Called after an acquire fence.
    pub(super) fn is_consistent(&self, start: u64) -> bool {
        self.begun_writes.load_relaxed() == start
    }
}

/// Maximum number of attempts to read consistent values. After the last attempt the read fails, so
/// that the caller can sleep: the hypervisor may have preempted the writer's virtual CPU.
const MAX_ATTEMPTS: u32 = 1000;

/// Calls `read` until it succeeds, at most [`MAX_ATTEMPTS`] times.
pub(super) fn retry_read<T>(mut read: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..MAX_ATTEMPTS {
        if let Some(found) = read() {
            return Some(found);
        }
        core::hint::spin_loop();
    }
    None
}
