// SPDX-License-Identifier: GPL-2.0

//! gen1 and gen2: two words of the header page of `/dev/perfcounters`. Readers use gen1 and gen2 to
//! detect that an instance (a named counter) was added, revived or deleted.
//!
//! ```text
//!   writer (one at a time)               reader
//!   A: gen1 += 1, write barrier          C: g = gen2, acquire
//!      metadata                             copy metadata and values
//!   B: gen2 = gen1, release              D: acquire fence; gen1 != g? discard
//! ```
//!
//! - B (store of gen2) pairs with C (load of gen2): a reader that sees the new gen2 sees the whole
//!   change.
//! - A (store of gen1) pairs with D (load of gen1): a reader that copied a word from an unfinished
//!   change sees the gen1 that the writer stored before this change.
//!
//! A reader discards values that it copied while the set of instances changed.

use crate::sync::{fence_acquire, fence_release, Word};

/// References to the words gen1 and gen2 in the header page or, in tests, in other memory.
#[derive(Clone, Copy)]
pub struct Generation<'a> {
    gen1: &'a Word,
    gen2: &'a Word,
}

impl<'a> Generation<'a> {
    /// Creates the references to the words gen1 and gen2 of a header.
    pub fn new(gen1: &'a Word, gen2: &'a Word) -> Self {
        Self { gen1, gen2 }
    }

    /// Writer: begins a change. Caller holds the lock of the registry of instances.
    pub fn begin_change(&self) {
        // A: the write barrier pairs with D, the acquire fence of the reader.
        self.gen1
            .store_relaxed(self.gen1.load_relaxed().wrapping_add(1));
        fence_release();
    }

    /// Writer: completes the change. Caller holds the lock of the registry of instances.
    pub fn end_change(&self) {
        // B: the release store pairs with C, the acquire load of the reader.
        self.gen2.store_release(self.gen1.load_relaxed());
    }

    /// Reader: begins a read. Returns the generation to pass to [`Self::is_current`] when the read
    /// ends.
    pub fn read_begin(&self) -> u64 {
        // C: the acquire load pairs with B, the release store of the writer.
        self.gen2.load_acquire()
    }

    /// Reader: ends a read that began when [`Self::read_begin`] returned `entered`. Returns true if
    /// no change was in progress during the read, so that the copied values are consistent.
    pub fn is_current(&self, entered: u64) -> bool {
        // D: the acquire fence pairs with A, the write barrier of the writer.
        fence_acquire();
        self.gen1.load_relaxed() == entered
    }
}
