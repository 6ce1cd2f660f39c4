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
use kernel::uaccess::{UserPtr, UserSlice};

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
// SAFETY: As above.
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
        // SAFETY: As above.
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

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        self.there.load_relaxed().wrapping_mul(PAGE as u64)
    }

    /// Events that found no room, as the writer says.
    pub(crate) fn lost(&self) -> u64 {
        let [_, _, _, lost, ..] = self.counts();
        lost.load_relaxed()
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

    /// Bytes of a span that are good, after it was copied.
    pub(crate) fn good(&self, span: &Span) -> u32 {
        match self.flight {
            true => trace::left(self.counts(), span, self.bytes),
            false => span.bytes,
        }
    }

    /// What is before this is not needed any more.
    pub(crate) fn read_up_to(&self, next: u64) {
        self.position.store_relaxed(next);
        let [.., tail] = self.counts();
        // Release: with the writer's acquire: all of it was copied.
        tail.store_release(next);
    }

    /// Copies a span to user space. May sleep.
    pub(crate) fn copy(&self, span: &Span, to: UserPtr) -> Result {
        let mut writer = UserSlice::new(to, span.bytes as usize).writer();
        let (mut at, mut left) = (span.from as usize, span.bytes as usize);
        while left != 0 {
            let within = at % PAGE;
            let nr = PAGE.wrapping_sub(within).min(left);
            match self.at((at / PAGE).wrapping_add(1)) {
                Some(page) => {
                    let mut some = [0u64; 32];
                    let mut done = 0usize;
                    // By way of our own memory: what changes meanwhile is copied once.
                    while done < nr {
                        let part = nr.wrapping_sub(done).min(256) / 8;
                        for (n, to) in some.iter_mut().enumerate().take(part) {
                            let place = (within.wrapping_add(done) / 8).wrapping_add(n);
                            // SAFETY: Below the page's end, as `nr` is; it stays as long
                            // as the buffer.
                            let word = unsafe { page.cast::<Word>().add(place).as_ref() };
                            *to = word.load_relaxed();
                        }
                        let bytes = super::user::bytes_of(some.get(..part).unwrap_or(&[]));
                        writer.write_slice(bytes)?;
                        done = done.wrapping_add(part.wrapping_mul(8));
                    }
                }
                // Nobody has ever written there.
                None => {
                    for _ in 0..nr / 8 {
                        writer.write_slice(&[0; 8])?;
                    }
                }
            }
            left = left.wrapping_sub(nr);
            at = at.wrapping_add(nr) & (self.bytes as usize).wrapping_sub(1);
        }
        Ok(())
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
