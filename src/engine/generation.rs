// SPDX-License-Identifier: GPL-2.0

//! gen1 and gen2: has the set of instances changed?
//!
//! ```text
//!   writer (one at a time)               reader
//!   A: gen1 += 1, write barrier          C: g = gen2, acquire
//!      metadata                             copy metadata and values
//!   B: gen2 = gen1, release              D: fence, gen1; != g? discard
//! ```
//!
//! B pairs with C: who sees the new gen2 sees all of that change. A pairs with
//! D: who saw a part of a change sees its gen1. Values copied across a change
//! are discarded, as the seed demands.

use crate::sync::{fence_acquire, fence_release, Word};

/// The two words, wherever they lie.
#[derive(Clone, Copy)]
pub struct Generation<'a> {
    gen1: &'a Word,
    gen2: &'a Word,
}

impl<'a> Generation<'a> {
    /// Takes the two words of a header.
    pub fn new(gen1: &'a Word, gen2: &'a Word) -> Self {
        Self { gen1, gen2 }
    }

    /// Writer: a change begins. The caller holds the registry's lock.
    pub fn begin(&self) {
        // A: pairs with D.
        self.gen1
            .store_relaxed(self.gen1.load_relaxed().wrapping_add(1));
        fence_release();
    }

    /// Writer: the change is complete.
    pub fn end(&self) {
        // B: pairs with C.
        self.gen2.store_release(self.gen1.load_relaxed());
    }

    /// Reader: the generation of what is read from here on.
    pub fn enter(&self) -> u64 {
        // C: pairs with B.
        self.gen2.load_acquire()
    }

    /// Reader: does everything read since [`Self::enter`] belong to generation
    /// `entered`?
    pub fn holds(&self, entered: u64) -> bool {
        // D: pairs with A.
        fence_acquire();
        self.gen1.load_relaxed() == entered
    }
}
