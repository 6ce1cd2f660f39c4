// SPDX-License-Identifier: GPL-2.0

//! The buffer of one CPU in a trace. The pages of a trace buffer are allocated when they are first
//! touched.

#![expect(unsafe_code, reason = "memory that user space maps")]

use core::ptr::NonNull;

use kernel::alloc::KVVec;
use kernel::prelude::*;
use protocols::sync::Word;
use protocols::trace_buffer::{self, BufferRange, Counts};

use crate::clock::{nr_clock_restarts, trace_clock};
use crate::page::{Page, GFP_NO_OOM, PAGE_SIZE};
use base::account::MemoryCharge;

/// The buffer of one CPU in a trace: a page of counts ([`Counts`]), followed by the pages of
/// records.
///
/// # Invariants
///
/// Each word of `pages` is 0 or the address of a page. The buffer holds a reference to each of
/// these pages, as a [`Page`] holds a reference to its page. A nonzero word does not change until
/// drop. The first word of `pages` is nonzero.
pub(crate) struct Buffer {
    pages: KVVec<Word>,
    pub(crate) bytes: u32,
    pub(crate) flight: bool,
    /// The stream position up to which the reader has read or skipped the bytes. The reader skips
    /// corrupt bytes.
    read_position: Word,
    /// `room_wait_tail_plus_1` and `room_wait_start_ns` describe the last wait of a thread for
    /// buffer space. `room_wait_tail_plus_1` is the reader's position during the wait, plus one.
    /// `room_wait_start_ns` is the time in nanoseconds at which the first thread began to wait
    /// while the reader was at this position. `room_wait_tail_plus_1` and `room_wait_start_ns` are
    /// 0 if no thread has waited.
    room_wait_tail_plus_1: Word,
    room_wait_start_ns: Word,
    /// The count of lost events that was last returned to the reader.
    reported_lost: Word,
    /// The state of the plausibility check of the writer's count of lost events. `plausible_lost`
    /// is the last plausible count, `plausible_lost_time` is a time in ticks shortly before the
    /// last plausible count was loaded, and `had_implausible_lost` is nonzero after an implausible
    /// count. After an implausible count, no later count is used.
    plausible_lost: Word,
    plausible_lost_time: Word,
    had_implausible_lost: Word,
    /// Number of bytes that were discarded because the counts were corrupt. An implausible count of
    /// lost events counts as 8 discarded bytes.
    discarded_bytes: Word,
    /// The number of page allocations that failed, and the number of pages that are allocated.
    alloc_failures: Word,
    nr_allocated_pages: Word,
    /// The charge for the memory of the buffer, which lasts until the last reference to the buffer
    /// is dropped. A reader may hold a reference for long after the buffer was removed from its
    /// trace. Declared last, so that drop frees the memory first.
    charge: MemoryCharge,
}

/// A page and the charge for its memory.
pub(crate) type ChargedPage = (Page, MemoryCharge);

impl Buffer {
    /// Creates a buffer in which only the page of counts is allocated. `charge` is the charge for
    /// at least [`bytes_without_records`](Self::bytes_without_records). Returns `ENOMEM` if memory
    /// is short. May sleep.
    pub(crate) fn new(bytes: u32, flight: bool, charge: MemoryCharge) -> Result<Self> {
        let nr = (bytes as usize / PAGE_SIZE).wrapping_add(1);
        let mut pages = KVVec::with_capacity(nr, GFP_NO_OOM)?;
        for _ in 0..nr {
            pages.push(Word::new(0), GFP_NO_OOM)?;
        }
        let buffer = Self {
            pages,
            bytes,
            flight,
            read_position: Word::new(0),
            room_wait_tail_plus_1: Word::new(0),
            room_wait_start_ns: Word::new(0),
            reported_lost: Word::new(0),
            plausible_lost: Word::new(0),
            plausible_lost_time: Word::new(trace_clock().now_by_user_readable_clock()),
            had_implausible_lost: Word::new(0),
            discarded_bytes: Word::new(0),
            alloc_failures: Word::new(0),
            nr_allocated_pages: Word::new(0),
            charge,
        };
        let counts = buffer.get_or_alloc_page(0).ok_or(ENOMEM)?;
        // INVARIANT: `get_or_alloc_page(0)` has made the first word of `pages` nonzero.
        // SAFETY: The page is aligned, zeroed and held by the buffer, and no other thread has it
        // yet.
        trace_buffer::init_fast_path_limit(unsafe { &*(counts as *const Counts) }, bytes, flight);
        Ok(buffer)
    }

    /// Allocates all pages of the buffer, so that writes to the buffer cause no page fault. The
    /// charge that was passed to [`new`](Self::new) includes all pages. Returns `ENOMEM` if memory
    /// is short. May sleep.
    pub(crate) fn allocate_all_pages(&self) -> Result {
        (0..self.pages.len()).try_for_each(|n| self.get_or_alloc_page(n).map(|_| ()).ok_or(ENOMEM))
    }

    /// Returns the address of page `number`, which is allocated if needed. The page has been charged
    /// already. Returns `None` if `number` is too large or memory is short. May sleep.
    fn get_or_alloc_page(&self, number: usize) -> Option<usize> {
        match self.pages.get(number)?.load_relaxed() {
            0 => {
                let paid = |page| (page, self.charge.empty_for_same_user());
                self.page_or_insert_spare(number, &mut Page::new().ok().map(paid))
            }
            there => Some(there as usize),
        }
    }

    /// Returns the address of page `number`. If page `number` is not allocated yet, the buffer
    /// takes the page in `spare`, and its charge. Returns `None` if `number` is too large, or if a
    /// page is needed and `spare` is empty. Caller holds `TRACING`.
    pub(crate) fn page_or_insert_spare(
        &self,
        number: usize,
        spare: &mut Option<ChargedPage>,
    ) -> Option<usize> {
        let word = self.pages.get(number)?;
        if word.load_relaxed() == 0 {
            let (page, mut charge) = spare.take()?;
            self.charge.absorb(&mut charge);
            let there = self.nr_allocated_pages.load_relaxed();
            self.nr_allocated_pages.store_relaxed(there.wrapping_add(1));
            // INVARIANT: The word in `pages` is set once, and keeps the reference of `page` until
            // drop.
            // Release: pairs with the acquire in `at`, which reads through the address.
            word.store_release(page.address() as u64);
            core::mem::forget(page);
        }
        Some(word.load_relaxed() as usize)
    }

    fn at(&self, page: usize) -> Option<NonNull<u8>> {
        NonNull::new(self.pages.get(page)?.load_acquire() as *mut u8)
    }

    /// Returns the page of counts, which the writer updates.
    pub(crate) fn counts(&self) -> &Counts {
        // SAFETY: By the type's invariant the first page lives as long as `self`. The page holds
        // atomic words, which user space may change at any time.
        unsafe { &*(self.pages.first().map_or(0, Word::load_relaxed) as *const Counts) }
    }

    /// Returns the 64-bit word with index `number` in the pages of records, or `None` if the word's
    /// page is not allocated.
    #[inline]
    pub(crate) fn word(&self, number: usize) -> Option<&Word> {
        const WORDS_PER_PAGE: usize = PAGE_SIZE / 8;
        let page = self.at((number / WORDS_PER_PAGE).wrapping_add(1))?;
        // SAFETY: The word is within the page, and the page lives as long as the buffer, by the
        // type's invariant.
        Some(unsafe { page.cast::<Word>().add(number % WORDS_PER_PAGE).as_ref() })
    }

    /// Returns the memory use in bytes of a buffer in which no page of records is allocated.
    pub(crate) fn bytes_without_records(bytes: u32) -> usize {
        let words = (bytes as usize / PAGE_SIZE).wrapping_add(1);
        let pages = words.wrapping_mul(size_of::<Word>());
        pages
            .wrapping_add(size_of::<Self>())
            .wrapping_add(PAGE_SIZE)
    }

    /// Returns the memory use of this buffer in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let records = self.nr_allocated_pages.load_relaxed().wrapping_sub(1);
        let empty = Self::bytes_without_records(self.bytes) as u64;
        records.wrapping_mul(PAGE_SIZE as u64).wrapping_add(empty)
    }

    /// Returns the writer's count of lost events. The count is not checked and can have any value,
    /// because user space can write to it.
    pub(crate) fn unchecked_lost_count(&self) -> u64 {
        let [_, _, _, lost, ..] = self.counts();
        lost.load_relaxed()
    }

    /// Returns the last plausible value of the writer's count of lost events. After an implausible
    /// value, all later values are ignored. Caller holds `TRACING`, which serialises the checks.
    pub(crate) fn check_and_get_lost_count(&self) -> u64 {
        let plausible = self.plausible_lost.load_relaxed();
        if self.had_implausible_lost.load_relaxed() != 0 {
            return plausible;
        }
        // The thread may be preempted at each line, and the measured time between two loads of the
        // count must not be too short. Therefore the time that this check stores (`before`) is read
        // before the check loads the count. The next check compares the stored time with a time
        // that it reads after its own load (`after`).
        let before = trace_clock().now_by_user_readable_clock();
        let claimed = self.unchecked_lost_count();
        let after = trace_clock().now_by_user_readable_clock();
        let since = self.plausible_lost_time.load_relaxed();
        let ticks = trace_buffer::elapsed_ticks(since, after, nr_clock_restarts() != 0);
        match trace_buffer::check_lost_count(plausible, claimed, ticks) {
            Some(lost) => {
                self.plausible_lost.store_relaxed(lost);
                self.plausible_lost_time.store_relaxed(before);
                lost
            }
            None => {
                self.had_implausible_lost.store_relaxed(1);
                let discarded = self.discarded_bytes.load_relaxed().wrapping_add(8);
                self.discarded_bytes.store_relaxed(discarded);
                plausible
            }
        }
    }

    /// Counts a failed allocation of a page.
    pub(crate) fn count_alloc_failure(&self) {
        let refused = self.alloc_failures.load_relaxed();
        self.alloc_failures.store_relaxed(refused.wrapping_add(1));
    }

    /// Returns the number of bytes that were discarded as corrupt, and the number of failed page
    /// allocations.
    pub(crate) fn discarded_bytes_and_alloc_failures(&self) -> (u64, u64) {
        (
            self.discarded_bytes.load_relaxed(),
            self.alloc_failures.load_relaxed(),
        )
    }

    /// Returns the range of bytes that can be read, or `None` if no bytes can be read. If the
    /// counts are corrupt, all unread bytes are discarded.
    /// [`discarded_bytes_and_alloc_failures`](Self::discarded_bytes_and_alloc_failures) then
    /// includes the size of the buffer.
    pub(crate) fn readable_range_or_discard(&self) -> Option<BufferRange> {
        if self.flight {
            return match trace_buffer::flight_recorder_range(self.counts(), self.bytes) {
                Ok(span) => (span.bytes != 0).then_some(span),
                Err(_) => {
                    // The number of discarded bytes is stored, not added: every read of a flight
                    // recorder meets the same corrupt counts again.
                    self.discarded_bytes.store_relaxed(self.bytes.into());
                    None
                }
            };
        }
        let since = self.read_position.load_relaxed();
        match trace_buffer::unread_stream_range(self.counts(), since, self.bytes) {
            Ok(span) => (span.bytes != 0).then_some(span),
            Err(corrupt) => {
                let discarded = self
                    .discarded_bytes
                    .load_relaxed()
                    .wrapping_add(self.bytes.into());
                self.discarded_bytes.store_relaxed(discarded);
                self.advance(corrupt.resume_position);
                None
            }
        }
    }

    /// Returns the range of bytes that can be read. Returns an empty range if no bytes can be read,
    /// the buffer is not a flight recorder, and the count of lost events has changed since the
    /// reader last got the count. The empty range reports lost events even if the writer has ended
    /// and writes no further record that could report them. Caller holds `TRACING`.
    pub(crate) fn unread_or_lost_range(&self) -> Option<BufferRange> {
        let position = self.read_position.load_relaxed();
        let nothing = BufferRange {
            position,
            offset: 0,
            bytes: 0,
            next_position: position,
        };
        let is_told =
            self.flight || self.check_and_get_lost_count() == self.reported_lost.load_relaxed();
        self.readable_range_or_discard()
            .or((!is_told).then_some(nothing))
    }

    /// Records the count of lost events that was returned to the reader.
    pub(crate) fn set_reported_lost(&self, lost: u64) {
        self.reported_lost.store_relaxed(lost);
    }

    /// Returns how many bytes at the beginning of the copied range `span` are valid. In a flight
    /// recorder the writer may overwrite the end of the range during the copy.
    pub(crate) fn bytes_not_overwritten(&self, span: &BufferRange) -> u32 {
        match self.flight {
            true => trace_buffer::bytes_not_overwritten(self.counts(), span, self.bytes),
            false => span.bytes,
        }
    }

    /// Returns the stream position up to which the reader has read or skipped the buffer's bytes.
    pub(crate) fn read_position(&self) -> u64 {
        self.read_position.load_relaxed()
    }

    /// Returns the time in nanoseconds at which the first thread began to wait for the reader to
    /// advance beyond `tail`. The first call with a new `tail` stores `now` as this time, and
    /// returns it. Later calls with the same `tail` return the stored time. Returns `now`, and
    /// stores nothing, if the reader has advanced already. Caller holds `TRACING`.
    pub(crate) fn get_or_set_room_wait_start_ns(&self, tail: u64, now: u64) -> u64 {
        if self.read_position() != tail {
            return now;
        }
        let place = tail.wrapping_add(1);
        if self.room_wait_tail_plus_1.load_relaxed() != place {
            self.room_wait_start_ns.store_relaxed(now);
            self.room_wait_tail_plus_1.store_relaxed(place);
        }
        self.room_wait_start_ns.load_relaxed()
    }

    /// Records that the reader has read all bytes before position `next`, so that the writer can
    /// reuse their space.
    pub(crate) fn advance(&self, next: u64) {
        self.read_position.store_relaxed(next);
        let [.., tail] = self.counts();
        // Release: pairs with the writer's acquire of the tail: the reader has copied the bytes
        // before the writer overwrites them.
        tail.store_release(next);
    }

    /// Copies the words of the range `span` to `to`, beginning at byte `done` of the range. Each
    /// word is loaded once: a value in `to` does not change if the writer changes the word later.
    pub(crate) fn copy(&self, span: &BufferRange, done: usize, to: &mut [u64]) {
        const WORDS_PER_PAGE: usize = PAGE_SIZE / 8;
        let mask = (self.bytes as usize).wrapping_sub(1);
        let mut at = (span.offset as usize).wrapping_add(done) & mask;
        let mut rest = to;
        while !rest.is_empty() {
            let within = at / 8 % WORDS_PER_PAGE;
            let nr = WORDS_PER_PAGE.wrapping_sub(within).min(rest.len());
            let Some((part, others)) = rest.split_at_mut_checked(nr) else {
                return;
            };
            let page = self.at((at / PAGE_SIZE).wrapping_add(1));
            for (n, to) in part.iter_mut().enumerate() {
                // SAFETY: `within + n` is below the number of words of a page, because `nr` is
                // limited to the rest of the page. The page lives as long as the buffer, by the
                // type's invariant.
                let word = page.map(|page| unsafe {
                    page.cast::<Word>().add(within.wrapping_add(n)).as_ref()
                });
                // If a page is not allocated, nothing was written there, and its words read as 0.
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
                // SAFETY: A nonzero word in `pages` is the address of a page, and holds a reference
                // to it. The temporary `Page` takes over the reference and drops it.
                drop(unsafe { Page::from_address(page) });
            }
        }
    }
}
