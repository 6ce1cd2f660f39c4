// SPDX-License-Identifier: GPL-2.0

//! A ring buffer of records with one writer and concurrent readers
//! (`include/uapi/linux/perfmon_ring.h`). A ring is written forward or backward, and either keeps
//! old records or overwrites them.
//!
//! Positions are in bytes, modulo 2^64. The head of a forward ring begins at 0 and increases. The
//! head of a backward ring begins at 0 and decreases: the newest record is at the head, and older
//! records follow it. In a backward ring, a reader can begin at the head and read all records
//! without knowing where older records begin.
//!
//! ```text
//!   writer                              reader
//!   T: tail, acquire                    C: head, acquire
//!   A: reserve, write barrier              words of a record
//!      words of a record                D: acquire fence; reserve: overwritten?
//!   B: head, release                    U: tail, release
//! ```
//!
//! - B (store of the head) pairs with C (load of the head): a reader that sees the new head sees
//!   the record.
//! - A (store of `reserve`) pairs with D (load of `reserve`): a reader that read a word of a newer
//!   record sees the `reserve` that the writer stored before the record.
//! - T (load of the tail) pairs with U (store of the tail): the writer overwrites only bytes that
//!   the reader has released.
//!
//! The reader writes only the tail. The writer compares the tail with other positions, but never
//! uses it as an address.

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
pub const RECORD_SAMPLE: u16 = 1;
/// `PERFMON_RECORD_LOST`.
pub const RECORD_LOST: u16 = 2;
/// `PERFMON_RECORD_THROTTLE`.
pub const RECORD_THROTTLE: u16 = 3;
/// `PERFMON_RECORD_UNTHROTTLE`.
pub const RECORD_UNTHROTTLE: u16 = 4;
/// `PERFMON_RECORD_EXEC`.
pub const RECORD_EXEC: u16 = 5;

/// The page with the state of a ring: `struct perfmon_ring_page`. Each pair of 32-bit fields of the
/// structure is one word here, with the first field in the low half.
#[repr(C)]
pub struct RingStatePage {
    version_and_size: Word,
    flags_and_data_offset: Word,
    data_size: Word,
    head: Word,
    reserve: Word,
    lost: Word,
    paused: Word,
}

/// Size in bytes of `struct perfmon_ring_page`, which is at the beginning of the page.
pub const RING_STATE_BYTES: usize = 56;

#[cfg(not(loom))]
const _: () = assert!(size_of::<RingStatePage>() == RING_STATE_BYTES);

impl RingStatePage {
    /// Creates a page in memory of the caller, for tests.
    pub fn new() -> Self {
        let zero = || Word::new(0);
        Self {
            version_and_size: zero(),
            flags_and_data_offset: zero(),
            data_size: zero(),
            head: zero(),
            reserve: zero(),
            lost: zero(),
            paused: zero(),
        }
    }

    /// Sets the fields of the page that stay constant afterwards. The caller has zeroed the page,
    /// and has not yet mapped it for a reader.
    pub fn init(&self, flags: u32, data_offset: u32, data_size: u64) {
        let size = RING_STATE_BYTES as u64;
        self.version_and_size
            .store_relaxed(u64::from(VERSION) | (size << 32));
        self.flags_and_data_offset
            .store_relaxed(u64::from(flags) | (u64::from(data_offset) << 32));
        self.data_size.store_relaxed(data_size);
    }

    /// Returns the flags of the ring: [`BACKWARD`], [`OVERWRITE`].
    pub fn flags(&self) -> u32 {
        self.flags_and_data_offset.load_relaxed() as u32
    }

    /// Returns the size of the data in bytes.
    pub fn data_size(&self) -> u64 {
        self.data_size.load_relaxed()
    }

    /// Returns the offset of the data in the file of the monitoring context.
    pub fn data_offset(&self) -> u32 {
        (self.flags_and_data_offset.load_relaxed() >> 32) as u32
    }

    /// Returns true if the page has the version and at least the size that this module supports.
    pub fn is_supported(&self) -> bool {
        let begin = self.version_and_size.load_relaxed();
        begin as u32 == VERSION && begin >> 32 >= RING_STATE_BYTES as u64
    }

    /// Returns the number of records that could not be written.
    pub fn lost(&self) -> u64 {
        self.lost.load_relaxed()
    }

    /// Pauses the ring, or ends the pause. Records that are written while the ring is paused are
    /// lost.
    pub fn set_paused(&self, paused: bool) {
        self.paused.store_relaxed(paused.into());
    }
}

impl Default for RingStatePage {
    fn default() -> Self {
        Self::new()
    }
}

/// The data of a ring, as the writer accesses them: 64-bit words that readers load at the same
/// time.
pub trait WritableRingData {
    /// Stores `value` at `position` with a relaxed store.
    fn put(&self, position: u64, value: u64);

    /// Stores `values` from `position` on, each with [`put`](Self::put).
    #[inline]
    fn put_values_one_by_one(&self, mut position: u64, values: &[u64]) {
        for value in values {
            self.put(position, *value);
            position = position.wrapping_add(8);
        }
    }

    /// Stores `values` from `position` on, by the fastest method that the memory allows.
    #[inline]
    fn put_values_fast(&self, position: u64, values: &[u64]) {
        self.put_values_one_by_one(position, values);
    }
}

impl WritableRingData for [Word] {
    #[inline]
    fn put(&self, position: u64, value: u64) {
        let mask = self.len().wrapping_sub(1);
        if let Some(word) = self.get((position / 8) as usize & mask) {
            word.store_relaxed(value);
        }
    }
}

/// The parts of a ring that its writer and its readers share. The data are zero before the first
/// record is written.
pub struct SharedRing<'a, D: ?Sized = [Word]> {
    /// The page with the state of the ring. Only the writer changes the page.
    pub page: &'a RingStatePage,
    /// The tail: the position up to which the reader has consumed records. Only the reader changes
    /// the tail.
    pub tail: &'a Word,
    /// The data of the ring. The size of the data is a power of two.
    pub data: &'a D,
}

impl<D: ?Sized> Clone for SharedRing<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: ?Sized> Copy for SharedRing<'_, D> {}

impl<'a> SharedRing<'a> {
    fn word(&self, position: u64) -> Option<&'a Word> {
        let mask = self.data.len().wrapping_sub(1);
        self.data.get((position / 8) as usize & mask)
    }
}

/// Returns the first word of a record.
const fn record_header(size: u64, kind: u16) -> u64 {
    size | ((kind as u64) << 32)
}

/// The state of the writer. A ring has one writer at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingWriter {
    head: u64,
    flags: u32,
    size: u64,
    /// Number of lost records that no LOST record in the ring reports yet.
    unreported_lost: u64,
    lost: u64,
    /// Number of bytes after which the reader is woken; 0: the reader is never woken.
    watermark: u64,
    bytes_since_wakeup: u64,
}

/// Result of a write. The two low bits of each variant's number are one of the constants
/// `PERFMON_RING_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WriteResult {
    /// The record is in the ring.
    Kept = 0,
    /// The record is in the ring, and the reader should be woken: the watermark is reached, or
    /// there is no room for another record of this size.
    Due = 1,
    /// The record is lost: there is no room, or the ring is paused.
    Lost = 2,
    /// The record is lost. The reader should be woken, because records were written since its last
    /// wakeup.
    Full = 5,
}

impl WriteResult {
    /// Converts the result into one of the constants `PERFMON_RING_*`.
    #[inline]
    pub const fn number(self) -> u32 {
        self as u32 & 3
    }

    /// True if the record is lost.
    #[inline]
    pub const fn is_lost(self) -> bool {
        // One test of two bits, which `Kept` and `Due` do not have.
        self as u32 & 6 != 0
    }

    /// True if the reader should be woken.
    #[inline]
    pub const fn is_due(self) -> bool {
        matches!(self, Self::Due | Self::Full)
    }
}

impl RingWriter {
    /// Creates the writer of a ring with `size` bytes of data, a power of two.
    pub const fn new(flags: u32, size: u64, watermark: u64) -> Self {
        Self {
            head: 0,
            flags,
            size,
            unreported_lost: 0,
            lost: 0,
            watermark,
            bytes_since_wakeup: 0,
        }
    }

    /// Begins writing at `position` instead of 0, for tests of positions that a ring reaches only
    /// after years. `position` is a multiple of 8. The caller stores `position` in the tail as
    /// well.
    pub fn begin_at_position<D: ?Sized>(&mut self, ring: &SharedRing<'_, D>, position: u64) {
        self.head = position;
        ring.page.reserve.store_relaxed(position);
        // B: the release store pairs with C, the acquire load of the reader.
        ring.page.head.store_release(position);
    }

    /// Returns the number of bytes that may be written without overwriting records that must be
    /// kept.
    #[inline]
    fn free_bytes<D: ?Sized>(&self, ring: &SharedRing<'_, D>) -> u64 {
        if self.flags & OVERWRITE != 0 {
            return self.size;
        }
        // T: the acquire load pairs with U, the release store of the reader. The tail may have any
        // value, because it is only compared with other positions.
        let tail = ring.tail.load_acquire();
        let used = match self.flags & BACKWARD {
            0 => self.head.wrapping_sub(tail),
            _ => tail.wrapping_sub(self.head),
        };
        self.size.saturating_sub(used)
    }

    /// Returns the position of the next record, which has `bytes` bytes, and the head of the ring
    /// after that record is written.
    #[inline]
    fn next_record_and_head(&self, bytes: u64) -> (u64, u64) {
        match self.flags & BACKWARD {
            0 => (self.head, self.head.wrapping_add(bytes)),
            _ => {
                let at = self.head.wrapping_sub(bytes);
                (at, at)
            }
        }
    }

    #[inline]
    fn put<D: WritableRingData + ?Sized, const N: usize>(
        &mut self,
        ring: &SharedRing<'_, D>,
        kind: u16,
        bytes: u64,
        parts: &[&[u64]; N],
    ) {
        let (mut at, head) = self.next_record_and_head(bytes);
        // A: the write barrier pairs with D, the acquire fence of the reader.
        ring.page.reserve.store_relaxed(head);
        fence_release();
        ring.data.put(at, record_header(bytes, kind));
        at = at.wrapping_add(8);
        for part in parts {
            ring.data.put_values_fast(at, part);
            at = at.wrapping_add((part.len() as u64).wrapping_mul(8));
        }
        self.head = head;
        // B: the release store pairs with C, the acquire load of the reader.
        ring.page.head.store_release(head);
    }

    /// Counts a record that was not written because the ring is full or paused. Returns `Full` if
    /// the reader should be woken, otherwise `Lost`.
    #[cold]
    fn count_unwritten_record<D: ?Sized>(&mut self, ring: SharedRing<'_, D>) -> WriteResult {
        self.add_to_lost_records(&ring, 1);
        if self.watermark != 0 && self.bytes_since_wakeup != 0 {
            self.bytes_since_wakeup = 0;
            return WriteResult::Full;
        }
        WriteResult::Lost
    }

    /// Writes a LOST record, which reports how many records were lost since the last record was
    /// written.
    #[cold]
    fn write_lost_record<D: WritableRingData + ?Sized>(&mut self, ring: SharedRing<'_, D>) {
        let untold = core::mem::take(&mut self.unreported_lost);
        self.put(&ring, RECORD_LOST, 16, &[&[untold]]);
    }

    /// Adds `nr` to the number of lost records. The caller uses `add_to_lost_records` for records
    /// that it does not pass to [`write`](Self::write), and serialises the calls of both functions.
    pub fn add_to_lost_records<D: ?Sized>(&mut self, ring: &SharedRing<'_, D>, nr: u64) {
        self.lost = self.lost.wrapping_add(nr);
        self.unreported_lost = self.unreported_lost.wrapping_add(nr);
        ring.page.lost.store_relaxed(self.lost);
    }

    /// Writes a record. Context: any; the caller serialises writers.
    ///
    /// A record that is at least 16 bytes smaller than the ring always fits after the reader has
    /// read all records. The 16 bytes are for a LOST record, which may have to be written before
    /// the record. A larger record fits only if no LOST record has to be written before it.
    #[inline(always)]
    pub fn write<D: WritableRingData + ?Sized, const N: usize>(
        &mut self,
        ring: &SharedRing<'_, D>,
        kind: u16,
        parts: &[&[u64]; N],
    ) -> WriteResult {
        let mut bytes = 8u64;
        for part in parts {
            bytes = bytes.wrapping_add((part.len() as u64).wrapping_mul(8));
        }
        let room = self.free_bytes(ring);
        let first = if self.unreported_lost != 0 { 16 } else { 0 };
        if bytes.wrapping_add(first) > room || ring.page.paused.load_relaxed() != 0 {
            return self.count_unwritten_record(*ring);
        }
        if self.unreported_lost != 0 {
            self.write_lost_record(*ring);
        }
        self.put(ring, kind, bytes, parts);
        let bytes = bytes.wrapping_add(first);
        self.bytes_since_wakeup = self.bytes_since_wakeup.wrapping_add(bytes);
        // Wake the reader now if another record of this size would not fit: that record would be
        // lost, and lost records do not count towards the watermark.
        let full = self.flags & OVERWRITE == 0 && room.wrapping_sub(bytes) < bytes;
        if self.watermark != 0 && (self.bytes_since_wakeup >= self.watermark || full) {
            self.bytes_since_wakeup = 0;
            return WriteResult::Due;
        }
        WriteResult::Kept
    }
}

/// Result of the read of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// A record was copied.
    Record {
        /// `PERFMON_RECORD_*`.
        kind: u16,
        /// Number of words of the record, including its header.
        words: usize,
    },
    /// No record is left to read: the position is the end of the last record.
    End,
    /// The writer has overwritten the record, or is overwriting it.
    Overwritten,
    /// The record is longer than the array of the caller; the value is the number of words of the
    /// record.
    TooLong(usize),
    /// No valid record begins at this position: the memory is not a ring, or the position is wrong.
    Corrupt,
}

/// Returns the head of the ring. All records up to the head can be read.
pub fn read_ring_head(ring: &SharedRing<'_>) -> u64 {
    // C: the acquire load pairs with B, the release store of the writer.
    ring.page.head.load_acquire()
}

/// Copies the record at the position `at` into `to`. The caller reads a forward ring from an older
/// position up to `head`, and a backward ring from `head` to older positions.
pub fn read_record(ring: &SharedRing<'_>, head: u64, at: u64, to: &mut [u64]) -> ReadResult {
    let flags = ring.page.flags();
    let size = (ring.data.len() as u64).wrapping_mul(8);
    // Maximum size of the record. A record ends at or below `head` in a forward ring, and at or
    // below `head + size` in a backward ring.
    let left = match flags & BACKWARD {
        0 => head.wrapping_sub(at),
        _ => head.wrapping_add(size).wrapping_sub(at),
    };
    if left == 0 {
        return match flags & BACKWARD {
            0 => ReadResult::End,
            // `at` is one ring size above the head, so the reader has read the whole ring.
            _ => ReadResult::Overwritten,
        };
    }
    if left > size {
        return ReadResult::Overwritten;
    }
    let Some(first) = ring.word(at) else {
        return ReadResult::Corrupt;
    };
    let first = first.load_relaxed();
    let bytes = first & 0xffff_ffff;
    let found = if bytes > left || bytes < 8 || bytes % 8 != 0 {
        match flags & BACKWARD {
            0 => ReadResult::Corrupt,
            // A header of 0 means that no record was written at this position yet.
            _ if first == 0 => ReadResult::End,
            // The record is the oldest one, and the writer has overwritten a part of it.
            _ => ReadResult::Overwritten,
        }
    } else {
        let words = (bytes / 8) as usize;
        match to.get_mut(..words) {
            None => ReadResult::TooLong(words),
            Some(to) => {
                let mut from = at;
                for value in to.iter_mut() {
                    *value = ring.word(from).map_or(0, Word::load_relaxed);
                    from = from.wrapping_add(8);
                }
                // Put `first`, the header that gave the length, into the copy: the writer may have
                // changed the header in the ring since `first` was loaded.
                if let Some(value) = to.first_mut() {
                    *value = first;
                }
                ReadResult::Record {
                    kind: (first >> 32) as u16,
                    words,
                }
            }
        }
    };
    // D: the acquire fence pairs with A, the write barrier of the writer.
    fence_acquire();
    let reserve = ring.page.reserve.load_relaxed();
    let whole = match flags & BACKWARD {
        0 => reserve.wrapping_sub(at) <= size,
        _ => {
            let end = match found {
                ReadResult::Record { .. } => at.wrapping_add(bytes),
                _ => at.wrapping_add(8),
            };
            end.wrapping_sub(reserve) <= size
        }
    };
    match whole {
        true => found,
        false => ReadResult::Overwritten,
    }
}

/// Reader: sets the tail to `position`, so that the writer may overwrite the records below
/// `position` in a forward ring, or from `position` on in a backward ring.
pub fn release_records_up_to(ring: &SharedRing<'_>, position: u64) {
    // U: the release store pairs with T, the acquire load of the writer.
    ring.tail.store_release(position);
}
