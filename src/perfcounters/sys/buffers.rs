// SPDX-License-Identifier: GPL-2.0

//! Memory of user tracing: pages that traced processes map, and buffers made of them, which
//! come page by page, when they are touched.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use engine::sync::Word;
use engine::trace::{self, Counts, Span};
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KVVec;
use kernel::bindings;
use kernel::prelude::*;

use super::ppa::Clock;
use super::shim;

/// Bytes of a page.
pub(crate) const PAGE: usize = engine::abi::PAGE_SIZE;

/// A page.
///
/// # Invariants
///
/// It is a whole one, in the direct map, with a reference of ours until drop. Whoever maps
/// it has references of his own.
pub(crate) struct Page(NonNull<u8>);

// SAFETY: All accesses are atomic, of aligned words.
unsafe impl Send for Page {}
// SAFETY: All accesses are atomic, of aligned words.
unsafe impl Sync for Page {}

impl Page {
    /// A zeroed one, charged to the caller. May sleep.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: No requirements.
        let address = unsafe { shim::pt_page_new() };
        // INVARIANT: just allocated so.
        Ok(Self(NonNull::new(address as *mut u8).ok_or(ENOMEM)?))
    }

    /// Where it is.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// Stores a 32-bit word, by its number; others may read it. What was stored before is
    /// seen by who sees this.
    pub(crate) fn put(&self, word: usize, value: u32) {
        if word < PAGE / 4 {
            // SAFETY: Within the page, aligned; never accessed but atomically.
            let word = unsafe { AtomicU32::from_ptr(self.0.as_ptr().cast::<u32>().add(word)) };
            // Release: with the order of the loads in a traced process.
            word.store(value, Ordering::Release);
        }
    }

    /// The same, as it is.
    pub(crate) fn get(&self, word: usize) -> u32 {
        if word >= PAGE / 4 {
            return 0;
        }
        // SAFETY: Within the page, aligned; never accessed but atomically.
        let word = unsafe { AtomicU32::from_ptr(self.0.as_ptr().cast::<u32>().add(word)) };
        word.load(Ordering::Relaxed)
    }

    /// Stores bytes, of a page that nobody maps yet.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        // SAFETY: Within the page, which is nobody else's.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.as_ptr(), bytes.len().min(PAGE))
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: Ours; the page goes with its last reference.
        unsafe { bindings::free_pages(self.address(), 0) }
    }
}

/// A buffer of a trace: its counts' page, then its records'.
///
/// # Invariants
///
/// A word of `pages` is 0 or, from then on until drop, the address of a page as in [`Page`].
/// The first one is there.
pub(crate) struct Buffer {
    pages: KVVec<Word>,
    pub(crate) bytes: u32,
    pub(crate) flight: bool,
    /// Up to here it was read, or was senseless.
    position: Word,
    /// A thread has waited for a reader that did not come.
    stalled: Word,
    /// The last place beyond which a thread waits for the reader, and one; since when.
    awaited: Word,
    awaited_since: Word,
    /// Lost events that a reader was told of.
    told: Word,
    /// The same, as far as it can be believed, and when that was looked at; 1: no more of it is
    /// believed.
    believed: Word,
    looked: Word,
    senseless: Word,
    /// Bytes that made no sense.
    cut: Word,
    /// Pages for which there was no memory; those that are there.
    refused: Word,
    there: Word,
}

impl Buffer {
    /// One without records. May sleep.
    pub(crate) fn new(bytes: u32, flight: bool) -> Result<Self> {
        let nr = (bytes as usize / PAGE).wrapping_add(1);
        let mut pages = KVVec::with_capacity(nr, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..nr {
            pages.push(Word::new(0), GFP_KERNEL_ACCOUNT)?;
        }
        let buffer = Self {
            pages,
            bytes,
            flight,
            position: Word::new(0),
            stalled: Word::new(0),
            awaited: Word::new(0),
            awaited_since: Word::new(0),
            told: Word::new(0),
            believed: Word::new(0),
            looked: Word::new(Clock::of_traces().ticks()),
            senseless: Word::new(0),
            cut: Word::new(0),
            refused: Word::new(0),
            there: Word::new(0),
        };
        let counts = buffer.page(0).ok_or(ENOMEM)?;
        // INVARIANT: there it is.
        // SAFETY: A page of ours that nobody else has yet, aligned.
        trace::begin(unsafe { &*(counts as *const Counts) }, bytes, flight);
        Ok(buffer)
    }

    /// All of its pages come now. May sleep.
    pub(crate) fn complete(&self) -> Result {
        (0..self.pages.len()).try_for_each(|n| self.page(n).map(|_| ()).ok_or(ENOMEM))
    }

    /// A page's address, which comes now if it was not there. `None`: there is no such page,
    /// or no memory. May sleep.
    fn page(&self, number: usize) -> Option<usize> {
        match self.pages.get(number)?.load_relaxed() {
            0 => self.page_or(number, &mut Page::new().ok()),
            there => Some(there as usize),
        }
    }

    /// The same; `None`: a page would be needed. Under the lock of all tracing.
    pub(crate) fn page_or(&self, number: usize, spare: &mut Option<Page>) -> Option<usize> {
        let word = self.pages.get(number)?;
        if word.load_relaxed() == 0 {
            let page = spare.take()?;
            let there = self.there.load_relaxed();
            self.there.store_relaxed(there.wrapping_add(1));
            // INVARIANT: as long as the buffer is there. Release: with the acquire in `at`.
            word.store_release(page.address() as u64);
            core::mem::forget(page);
        }
        Some(word.load_relaxed() as usize)
    }

    fn at(&self, page: usize) -> Option<NonNull<u8>> {
        NonNull::new(self.pages.get(page)?.load_acquire() as *mut u8)
    }

    /// Its counts.
    pub(crate) fn counts(&self) -> &Counts {
        // SAFETY: There, by the type's invariant; words that anybody may change.
        unsafe { &*(self.pages.first().map_or(0, Word::load_relaxed) as *const Counts) }
    }

    /// A word of its records.
    #[inline]
    pub(crate) fn word(&self, number: usize) -> Option<&Word> {
        const WORDS: usize = PAGE / 8;
        let page = self.at((number / WORDS).wrapping_add(1))?;
        // SAFETY: Within the page, which stays as long as the buffer.
        Some(unsafe { page.cast::<Word>().add(number % WORDS).as_ref() })
    }

    /// Bytes of memory of one without records.
    pub(crate) fn empty_bytes(bytes: u32) -> usize {
        let words = (bytes as usize / PAGE).wrapping_add(1);
        let pages = words.wrapping_mul(size_of::<Word>());
        pages.wrapping_add(size_of::<Self>()).wrapping_add(PAGE)
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        let records = self.there.load_relaxed().wrapping_sub(1);
        let empty = Self::empty_bytes(self.bytes) as u64;
        records.wrapping_mul(PAGE as u64).wrapping_add(empty)
    }

    /// Events that found no room, as the writer says.
    pub(crate) fn claimed(&self) -> u64 {
        let [_, _, _, lost, ..] = self.counts();
        lost.load_relaxed()
    }

    /// The same, as far as it can be: what makes no sense is not counted, and neither is what
    /// that writer says afterwards.
    pub(crate) fn lost(&self) -> u64 {
        // Acquire: with the release below, who sees this look sees what it believed.
        let looked = self.looked.load_acquire();
        let believed = self.believed.load_relaxed();
        let claimed = self.claimed();
        if self.senseless.load_relaxed() != 0 {
            return believed;
        }
        let now = Clock::of_traces().ticks();
        if claimed == believed {
            // Nothing was lost until now. Release: with the acquire above.
            self.looked.store_release(now);
            return believed;
        }
        match trace::plausible(believed, claimed, now.saturating_sub(looked)) {
            Some(lost) => {
                self.believed.store_relaxed(lost);
                // Release: with the acquire above.
                self.looked.store_release(now);
                lost
            }
            None => {
                self.senseless.store_relaxed(1);
                let cut = self.cut.load_relaxed().wrapping_add(8);
                self.cut.store_relaxed(cut);
                believed
            }
        }
    }

    /// There was no memory for a page of it.
    pub(crate) fn refuse(&self) {
        let refused = self.refused.load_relaxed();
        self.refused.store_relaxed(refused.wrapping_add(1));
    }

    /// Bytes that made no sense; pages for which there was no memory.
    pub(crate) fn faults(&self) -> (u64, u64) {
        (self.cut.load_relaxed(), self.refused.load_relaxed())
    }

    /// What there is to be read, if anything.
    pub(crate) fn span(&self) -> Option<Span> {
        if self.flight {
            return match trace::recorded(self.counts(), self.bytes) {
                Ok(span) => (span.bytes != 0).then_some(span),
                Err(_) => {
                    // Once, or it would be counted with each reading.
                    self.cut.store_relaxed(self.bytes.into());
                    None
                }
            };
        }
        let since = self.position.load_relaxed();
        match trace::written(self.counts(), since, self.bytes) {
            Ok(span) => (span.bytes != 0).then_some(span),
            Err(senseless) => {
                let cut = self.cut.load_relaxed().wrapping_add(self.bytes.into());
                self.cut.store_relaxed(cut);
                self.read_up_to(senseless.next);
                None
            }
        }
    }

    /// What a reader is to be told: what there is to be read, or that more was lost, with which
    /// no bytes come any more where the writer has ended.
    pub(crate) fn news(&self) -> Option<Span> {
        let position = self.position.load_relaxed();
        let nothing = Span {
            position,
            from: 0,
            bytes: 0,
            next: position,
        };
        let is_told = self.flight || self.lost() == self.told.load_relaxed();
        self.span().or((!is_told).then_some(nothing))
    }

    /// A reader knows of so many lost ones.
    pub(crate) fn told(&self, lost: u64) {
        self.told.store_relaxed(lost);
    }

    /// Bytes of a span that are good, after it was copied.
    pub(crate) fn good(&self, span: &Span) -> u32 {
        match self.flight {
            true => trace::left(self.counts(), span, self.bytes),
            false => span.bytes,
        }
    }

    /// Up to where it was read.
    pub(crate) fn position(&self) -> u64 {
        self.position.load_relaxed()
    }

    /// Has its reader not come when somebody waited?
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load_relaxed() != 0
    }

    /// Since when, in nanoseconds, threads wait for the reader to come beyond a place: from now on,
    /// if none has waited there before. Under the lock of all tracing.
    pub(crate) fn awaited_since(&self, tail: u64, now: u64) -> u64 {
        let place = tail.wrapping_add(1);
        if self.awaited.load_relaxed() != place {
            self.awaited_since.store_relaxed(now);
            self.awaited.store_relaxed(place);
        }
        self.awaited_since.load_relaxed()
    }

    /// It has not: nobody else waits before it does.
    pub(crate) fn stall(&self) {
        self.stalled.store_relaxed(1);
    }

    /// What is before this is not needed any more.
    pub(crate) fn read_up_to(&self, next: u64) {
        self.stalled.store_relaxed(0);
        self.position.store_relaxed(next);
        let [.., tail] = self.counts();
        // Release: with the writer's acquire: all of it was copied.
        tail.store_release(next);
    }

    /// Copies words of a span, from `done` bytes on. What changes meanwhile is copied once.
    pub(crate) fn copy(&self, span: &Span, done: usize, to: &mut [u64]) {
        const WORDS: usize = PAGE / 8;
        let mask = (self.bytes as usize).wrapping_sub(1);
        let mut at = (span.from as usize).wrapping_add(done) & mask;
        let mut rest = to;
        while !rest.is_empty() {
            let within = at / 8 % WORDS;
            let nr = WORDS.wrapping_sub(within).min(rest.len());
            let Some((part, others)) = rest.split_at_mut_checked(nr) else {
                return;
            };
            let page = self.at((at / PAGE).wrapping_add(1));
            for (n, to) in part.iter_mut().enumerate() {
                // SAFETY: Below the page's end, as `nr` is; it stays as long as the buffer.
                let word = page.map(|page| unsafe {
                    page.cast::<Word>().add(within.wrapping_add(n)).as_ref()
                });
                // Where there is no page nobody has ever written.
                *to = word.map_or(0, Word::load_relaxed);
            }
            rest = others;
            at = at.wrapping_add(nr.wrapping_mul(8)) & mask;
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        for word in &self.pages {
            if let Some(page) = NonNull::new(word.load_relaxed() as *mut u8) {
                // By its drop.
                drop(Page(page));
            }
        }
    }
}
