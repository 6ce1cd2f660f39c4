// SPDX-License-Identifier: GPL-2.0

//! A ring of records that one writes and others read while it is written, forward or
//! backward, overwritten or not: `include/uapi/linux/perfmon_ring.h`.
//!
//! Positions are bytes modulo 2^64. A forward ring begins at 0 and grows; a backward
//! one begins at 0 and falls: its newest record is at its head, and the older ones
//! follow it, so that all of it can be read without knowing where a record ended.
//!
//! ```text
//!   writer                              reader
//!   T: tail, acquire                    C: head, acquire
//!   A: reserve, write barrier              words of a record
//!      words of a record                D: fence; reserve: was it overwritten?
//!   B: head, release                    U: tail, release
//! ```
//!
//! B pairs with C: who sees the new head sees the record. A pairs with D: who saw a
//! word of a newer record sees that the older one's place was reserved. T pairs with U:
//! the reader is done with what is written over. Only the tail is the reader's to
//! write, and it is a number to the writer, never a place.

use crate::sync::{fence_acquire, fence_release, Word};

/// `PERFMON_RING_VERSION`.
pub const VERSION: u32 = 1;
/// `PERFMON_RING_BACKWARD`.
pub const BACKWARD: u32 = 0x01;
/// `PERFMON_RING_OVERWRITE`.
pub const OVERWRITE: u32 = 0x02;
/// `PERFMON_TAIL_OFFSET`.
pub const TAIL_OFFSET: u64 = 1 << 41;
/// `PERFMON_RECORD_SAMPLE`.
pub const SAMPLE: u16 = 1;
/// `PERFMON_RECORD_LOST`.
pub const LOST: u16 = 2;
/// `PERFMON_RECORD_THROTTLE`.
pub const THROTTLE: u16 = 3;
/// `PERFMON_RECORD_UNTHROTTLE`.
pub const UNTHROTTLE: u16 = 4;
/// `PERFMON_RECORD_EXEC`.
pub const EXEC: u16 = 5;

/// `struct perfmon_ring_page`: two 32-bit fields are one word, the first one in the
/// low half.
#[repr(C)]
pub struct Page {
    version_size: Word,
    flags_offset: Word,
    data_size: Word,
    head: Word,
    reserve: Word,
    lost: Word,
    paused: Word,
}

/// Bytes of the page's structure.
pub const PAGE_BYTES: usize = 56;

#[cfg(not(loom))]
const _: () = assert!(size_of::<Page>() == PAGE_BYTES);

impl Page {
    /// A page of one's own, for tests.
    pub fn new() -> Self {
        let zero = || Word::new(0);
        Self {
            version_size: zero(),
            flags_offset: zero(),
            data_size: zero(),
            head: zero(),
            reserve: zero(),
            lost: zero(),
            paused: zero(),
        }
    }

    /// Fills in what stays, on a page of zeros that nobody sees yet.
    pub fn init(&self, flags: u32, data_offset: u32, data_size: u64) {
        let size = PAGE_BYTES as u64;
        self.version_size
            .store_relaxed(u64::from(VERSION) | (size << 32));
        self.flags_offset
            .store_relaxed(u64::from(flags) | (u64::from(data_offset) << 32));
        self.data_size.store_relaxed(data_size);
    }

    /// `PERFMON_RING_*`.
    pub fn flags(&self) -> u32 {
        self.flags_offset.load_relaxed() as u32
    }

    /// Bytes of data.
    pub fn data_size(&self) -> u64 {
        self.data_size.load_relaxed()
    }

    /// Where the data begin in the file.
    pub fn data_offset(&self) -> u32 {
        (self.flags_offset.load_relaxed() >> 32) as u32
    }

    /// Is it a page of this version?
    pub fn is_known(&self) -> bool {
        let begin = self.version_size.load_relaxed();
        begin as u32 == VERSION && begin >> 32 >= PAGE_BYTES as u64
    }

    /// Records that could not be written.
    pub fn lost(&self) -> u64 {
        self.lost.load_relaxed()
    }

    /// Nothing is written until it goes on.
    pub fn pause(&self, paused: bool) {
        self.paused.store_relaxed(paused.into());
    }
}

impl Default for Page {
    fn default() -> Self {
        Self::new()
    }
}

/// The data of a ring, as its writer has them: 64-bit words that others read meanwhile.
pub trait Data {
    /// Sets the word of a position, relaxed.
    fn put(&self, position: u64, value: u64);

    /// Sets words from a position on, each by itself.
    #[inline]
    fn put_each(&self, mut position: u64, values: &[u64]) {
        for value in values {
            self.put(position, *value);
            position = position.wrapping_add(8);
        }
    }

    /// The same, as it is fastest.
    #[inline]
    fn put_all(&self, position: u64, values: &[u64]) {
        self.put_each(position, values);
    }
}

impl Data for [Word] {
    #[inline]
    fn put(&self, position: u64, value: u64) {
        let mask = self.len().wrapping_sub(1);
        if let Some(word) = self.get((position / 8) as usize & mask) {
            word.store_relaxed(value);
        }
    }
}

/// What both sides have of a ring. The data were zeros when it began.
pub struct Shared<'a, D: ?Sized = [Word]> {
    /// How it stands. The writer's.
    pub page: &'a Page,
    /// The reader's word.
    pub tail: &'a Word,
    /// The data: a power of two.
    pub data: &'a D,
}

impl<D: ?Sized> Clone for Shared<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: ?Sized> Copy for Shared<'_, D> {}

impl<'a> Shared<'a> {
    fn word(&self, position: u64) -> Option<&'a Word> {
        let mask = self.data.len().wrapping_sub(1);
        self.data.get((position / 8) as usize & mask)
    }
}

/// The first word of a record.
const fn header(size: u64, kind: u16) -> u64 {
    size | ((kind as u64) << 32)
}

/// The writing side, which one has at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Writer {
    head: u64,
    flags: u32,
    size: u64,
    /// Lost, and not yet said so in the ring.
    untold: u64,
    lost: u64,
    /// Bytes between wakeups; 0: never.
    watermark: u64,
    since: u64,
}

/// What became of a record. The numbers' low bits are `PERFMON_RING_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Written {
    /// It is in the ring.
    Kept = 0,
    /// It is, and it is time to wake the reader: by the watermark, or as there is no
    /// room for another one like it.
    Due = 1,
    /// There is no room, or the ring is paused.
    Lost = 2,
    /// The same, and it is time to wake the reader, who has not been since the last record.
    Full = 5,
}

impl Written {
    /// `PERFMON_RING_*`.
    #[inline]
    pub const fn number(self) -> u32 {
        self as u32 & 3
    }
}

impl Writer {
    /// Of a ring of so many bytes, a power of two.
    pub const fn new(flags: u32, size: u64, watermark: u64) -> Self {
        Self {
            head: 0,
            flags,
            size,
            untold: 0,
            lost: 0,
            watermark,
            since: 0,
        }
    }

    /// Begins at another position than 0, a multiple of 8, which the tail must say, too:
    /// for tests of what comes after years.
    pub fn begin<D: ?Sized>(&mut self, ring: &Shared<'_, D>, position: u64) {
        self.head = position;
        ring.page.reserve.store_relaxed(position);
        // B: pairs with C.
        ring.page.head.store_release(position);
    }

    /// Bytes that may be written.
    #[inline]
    fn room<D: ?Sized>(&self, ring: &Shared<'_, D>) -> u64 {
        if self.flags & OVERWRITE != 0 {
            return self.size;
        }
        // T: pairs with U. Whatever it says, it is only compared.
        let tail = ring.tail.load_acquire();
        let used = match self.flags & BACKWARD {
            0 => self.head.wrapping_sub(tail),
            _ => tail.wrapping_sub(self.head),
        };
        self.size.saturating_sub(used)
    }

    /// Where a record of so many bytes begins, and the head once it is written.
    #[inline]
    fn place(&self, bytes: u64) -> (u64, u64) {
        match self.flags & BACKWARD {
            0 => (self.head, self.head.wrapping_add(bytes)),
            _ => {
                let at = self.head.wrapping_sub(bytes);
                (at, at)
            }
        }
    }

    #[inline]
    fn put<D: Data + ?Sized, const N: usize>(
        &mut self,
        ring: &Shared<'_, D>,
        kind: u16,
        bytes: u64,
        parts: &[&[u64]; N],
    ) {
        let (mut at, head) = self.place(bytes);
        // A: pairs with D.
        ring.page.reserve.store_relaxed(head);
        fence_release();
        ring.data.put(at, header(bytes, kind));
        at = at.wrapping_add(8);
        for part in parts {
            ring.data.put_all(at, part);
            at = at.wrapping_add((part.len() as u64).wrapping_mul(8));
        }
        self.head = head;
        // B: pairs with C.
        ring.page.head.store_release(head);
    }

    /// A record finds no room. Says whether its reader is to be woken.
    #[cold]
    fn lose_one<D: ?Sized>(&mut self, ring: &Shared<'_, D>) -> Written {
        self.lose(ring, 1);
        if self.watermark != 0 && self.since != 0 {
            self.since = 0;
            return Written::Full;
        }
        Written::Lost
    }

    /// Writes how many records were lost since the last one that was kept.
    #[cold]
    fn put_lost<D: Data + ?Sized>(&mut self, ring: &Shared<'_, D>) {
        let untold = core::mem::take(&mut self.untold);
        self.put(ring, LOST, 16, &[&[untold]]);
    }

    /// So many records were not even made. The same callers.
    pub fn lose<D: ?Sized>(&mut self, ring: &Shared<'_, D>, nr: u64) {
        self.lost = self.lost.wrapping_add(nr);
        self.untold = self.untold.wrapping_add(nr);
        ring.page.lost.store_relaxed(self.lost);
    }

    /// Writes a record. Any context; one at a time. Records of up to 16 bytes less than
    /// the ring's always find room in the end, larger ones unless some were lost before.
    #[inline(always)]
    pub fn write<D: Data + ?Sized, const N: usize>(
        &mut self,
        ring: &Shared<'_, D>,
        kind: u16,
        parts: &[&[u64]; N],
    ) -> Written {
        let mut bytes = 8u64;
        for part in parts {
            bytes = bytes.wrapping_add((part.len() as u64).wrapping_mul(8));
        }
        let room = self.room(ring);
        let first = if self.untold != 0 { 16 } else { 0 };
        if bytes.wrapping_add(first) > room || ring.page.paused.load_relaxed() != 0 {
            return self.lose_one(ring);
        }
        if self.untold != 0 {
            self.put_lost(ring);
        }
        self.put(ring, kind, bytes, parts);
        let bytes = bytes.wrapping_add(first);
        self.since = self.since.wrapping_add(bytes);
        // Before nothing is kept any more that could become due.
        let full = self.flags & OVERWRITE == 0 && room.wrapping_sub(bytes) < bytes;
        if self.watermark != 0 && (self.since >= self.watermark || full) {
            self.since = 0;
            return Written::Due;
        }
        Written::Kept
    }
}

/// What a reader found at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A record of that kind: so many words of it, header included, were copied.
    Record {
        /// `PERFMON_RECORD_*`.
        kind: u16,
        /// Its words, header included.
        words: usize,
    },
    /// Nothing further has been written.
    End,
    /// It has been written over, or is being.
    Gone,
    /// It has so many words: bring more room.
    Long(usize),
    /// It is no record: this is not a ring's memory.
    Broken,
}

/// The head, with all that was written up to it.
pub fn head(ring: &Shared<'_>) -> u64 {
    // C: pairs with B.
    ring.page.head.load_acquire()
}

/// Copies the record at a position between which and `head` others may lie: forward
/// from an older position to the head, backward from the head to an older position.
pub fn read(ring: &Shared<'_>, head: u64, at: u64, to: &mut [u64]) -> Found {
    let flags = ring.page.flags();
    let size = (ring.data.len() as u64).wrapping_mul(8);
    // Bytes that may be a record's: up to the head, or up to what is written over.
    let left = match flags & BACKWARD {
        0 => head.wrapping_sub(at),
        _ => head.wrapping_add(size).wrapping_sub(at),
    };
    if left == 0 {
        return match flags & BACKWARD {
            0 => Found::End,
            // Everything the ring has room for was read.
            _ => Found::Gone,
        };
    }
    if left > size {
        return Found::Gone;
    }
    let Some(first) = ring.word(at) else {
        return Found::Broken;
    };
    let first = first.load_relaxed();
    let bytes = first & 0xffff_ffff;
    let found = if bytes > left || bytes < 8 || bytes % 8 != 0 {
        match flags & BACKWARD {
            0 => Found::Broken,
            // Older than the first record.
            _ if first == 0 => Found::End,
            // The last one that is written over in part.
            _ => Found::Gone,
        }
    } else {
        let words = (bytes / 8) as usize;
        match to.get_mut(..words) {
            None => Found::Long(words),
            Some(to) => {
                let mut from = at;
                for value in to.iter_mut() {
                    *value = ring.word(from).map_or(0, Word::load_relaxed);
                    from = from.wrapping_add(8);
                }
                // Loaded once: the copy is as long as it says.
                if let Some(value) = to.first_mut() {
                    *value = first;
                }
                Found::Record {
                    kind: (first >> 32) as u16,
                    words,
                }
            }
        }
    };
    // D: pairs with A.
    fence_acquire();
    let reserve = ring.page.reserve.load_relaxed();
    let whole = match flags & BACKWARD {
        0 => reserve.wrapping_sub(at) <= size,
        _ => {
            let end = match found {
                Found::Record { .. } => at.wrapping_add(bytes),
                _ => at.wrapping_add(8),
            };
            end.wrapping_sub(reserve) <= size
        }
    };
    match whole {
        true => found,
        false => Found::Gone,
    }
}

/// The reader is done with everything up to a position: with the records of a
/// forward ring below it, or those of a backward one from it on.
pub fn release(ring: &Shared<'_>, position: u64) {
    // U: pairs with T.
    ring.tail.store_release(position);
}
