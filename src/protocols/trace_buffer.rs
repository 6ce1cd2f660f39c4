// SPDX-License-Identifier: GPL-2.0

//! User tracing: the positions and counts of the buffers of a trace, and the kernel's writer.
//!
//! Traced processes write the buffers and may be hostile, so the functions of this module do not
//! trust the counts of a buffer. The functions of this module do not examine records; each reader
//! of a buffer has to check the records.

use crate::sync::{fence_acquire, fence_release, Word};

/// Maximum size of a record in bytes, including its header and, in a buffer that all processes
/// share, the key of the process.
pub const RECORD_MAX: usize = 2048;
/// Offset of the records in a buffer, in bytes.
pub const RECORDS_OFFSET: usize = 4096;
/// Size of `struct perftrace_record` in 8-byte words.
pub const RECORD_HEAD_WORDS: usize = 2;
/// Marker number of a padding record, which only fills space.
pub const PAD_RECORD: u16 = 0xffff;
/// Marker number of a record that reports how many events were lost.
pub const LOST_RECORD: u16 = 0xfffe;

/// Indices of a buffer's counts in its first page, in words of 8 bytes.
pub mod count {
    #![allow(missing_docs, reason = "documented in the C header")]
    pub const HEAD: usize = 0;
    pub const LOST: usize = 3;
    /// Number of words in the first page up to and including the last count.
    pub const NR: usize = 9;
}

/// The words of a buffer's header, `struct perftrace_buffer`. After [`init_fast_path_limit`], the
/// reader writes only the last word, `tail`, and the writers write only the other words.
pub type Counts = [Word; count::NR];

/// Initialises `limit` in the header of a new buffer. `limit` is the position up to which the
/// writers' fast path writes.
pub fn init_fast_path_limit(counts: &Counts, bytes: u32, flight: bool) {
    let bytes = u64::from(bytes);
    let [_, limit, ..] = counts;
    limit.store_relaxed(match flight {
        true => bytes.wrapping_neg(),
        false => bytes / 2,
    });
}

/// Checks the number of lost events that a writer claims. The last check, `ticks` ago, has accepted
/// `seen` lost events. A writer spends more than four ticks on each event that it loses, so at most
/// one new lost event per four ticks is plausible, plus 1,024 events of tolerance. Returns
/// `claimed`, or `None` if the number is not plausible.
pub fn check_lost_count(seen: u64, claimed: u64, ticks: u64) -> Option<u64> {
    let most = seen.saturating_add(ticks / 4).saturating_add(1024);
    (claimed >= seen && claimed <= most).then_some(claimed)
}

/// Returns the ticks of the clock from `since` to `now`. If `now` is less than `since`, returns
/// `now` if `has_restarted` is true, otherwise 0. `has_restarted` is true if a suspend has
/// restarted the TSC: `now` is then the number of ticks since the restart.
pub fn elapsed_ticks(since: u64, now: u64, has_restarted: bool) -> u64 {
    let restarted = if has_restarted { now } else { 0 };
    now.checked_sub(since).unwrap_or(restarted)
}

/// A range of a buffer's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferRange {
    /// Number of bytes that were written before this range. In a flight recorder (a buffer that
    /// overwrites its oldest records), `position` is the number of all bytes written so far.
    pub position: u64,
    /// Offset of the first byte of the range in the records of the buffer.
    pub offset: u32,
    /// Number of bytes in the range. A range that reaches the end of the buffer continues at the
    /// beginning of the buffer.
    pub bytes: u32,
    /// Position at which the next range begins.
    pub next_position: u64,
}

/// Error: the counts of a buffer are corrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptCounts {
    /// Position at which reading resumes. The reader drops the records before this position.
    pub resume_position: u64,
}

/// Returns the range written since the position `since`, in a buffer of `bytes` bytes, a power of
/// two.
pub fn unread_stream_range(
    counts: &Counts,
    since: u64,
    bytes: u32,
) -> Result<BufferRange, CorruptCounts> {
    let [head, ..] = counts;
    // Acquire: pairs with the store that commits a record. All records before the loaded head are
    // complete.
    let head = head.load_acquire();
    let new = head.wrapping_sub(since);
    if new > bytes.into() || head % 8 != 0 {
        return Err(CorruptCounts {
            resume_position: head & !7,
        });
    }
    Ok(BufferRange {
        position: since,
        offset: since as u32 & bytes.wrapping_sub(1),
        bytes: new as u32,
        next_position: head,
    })
}

/// Returns the range of all records of a flight recorder. The range begins with the newest record,
/// and its last record may be incomplete. After the range is copied, [`bytes_not_overwritten`]
/// returns how many bytes of the copy are valid.
pub fn flight_recorder_range(counts: &Counts, bytes: u32) -> Result<BufferRange, CorruptCounts> {
    let [head, ..] = counts;
    // Acquire: pairs with the store that commits a record. All records from the loaded head on are
    // complete unless a writer has begun to overwrite them.
    let head = head.load_acquire();
    if head % 8 != 0 {
        return Err(CorruptCounts { resume_position: 0 });
    }
    let all = head.wrapping_neg();
    Ok(BufferRange {
        position: all,
        offset: head as u32 & bytes.wrapping_sub(1),
        bytes: all.min(bytes.into()) as u32,
        next_position: head,
    })
}

/// Returns how many bytes at the beginning of a range were not overwritten while the range was
/// copied.
pub fn bytes_not_overwritten(counts: &Counts, span: &BufferRange, bytes: u32) -> u32 {
    let [_, _, reserve, ..] = counts;
    // Pairs with the fence between a writer's stores of `reserve` and of the record: a reader that
    // copied a byte of a newer record sees the `reserve` of that record.
    fence_acquire();
    let reserve = reserve.load_relaxed();
    // Number of bytes that writers have reserved since `span` was determined. In a flight recorder
    // positions decrease, so the reserved bytes are below `span.next_position`.
    let over = span.next_position.wrapping_sub(reserve);
    let over = match reserve {
        0 => 0,
        _ if over as i64 <= 0 => 0,
        _ => over,
    };
    let free = u64::from(bytes).wrapping_sub(span.bytes.into());
    u64::from(span.bytes).saturating_sub(over.saturating_sub(free)) as u32
}

/// A record that the kernel writes: a header and N words of fields.
pub struct Record<const N: usize> {
    /// Number of the marker.
    pub marker: u16,
    /// Number of the thread that caused the event.
    pub thread: u32,
    /// Time of the event, in ticks.
    pub time: u64,
    /// The values of the fields.
    pub fields: [u64; N],
}

const fn record_header(marker: u16, words: usize, thread: u32) -> u64 {
    marker as u64 | ((words as u64) << 16) | ((thread as u64) << 32)
}

/// The kernel's writer of a buffer into which only this CPU writes. While a `Writer` is in use,
/// preemption is off and no other writer of the buffer can interrupt.
pub struct Writer<'a, F> {
    /// The counts in the first page of the buffer.
    pub counts: &'a Counts,
    /// Size of the part of the buffer that holds records, in bytes.
    pub bytes: u32,
    /// True if the buffer is a flight recorder.
    pub is_flight_recorder: bool,
    /// Function that returns a word of the records by its index.
    pub word_at: F,
}

impl<'a, F: Fn(usize) -> Option<&'a Word>> Writer<'a, F> {
    /// Writes a record. Returns true if the reader should be woken: the buffer was more than half
    /// full, or the event is lost.
    pub fn write_and_check_wakeup<const N: usize>(&self, record: &Record<N>) -> bool {
        let [head, _, _, lost, told, ..] = self.counts;
        if self.is_flight_recorder {
            self.write_before_head(record);
            return false;
        }
        let now_lost = lost.load_relaxed();
        let tells = now_lost != told.load_relaxed();
        let words = N.wrapping_add(2);
        // Maximum number of bytes that `record` and a LOST record need, including the padding
        // records that may have to fill the end of the buffer.
        let most = words.wrapping_mul(2).wrapping_add(6).wrapping_mul(8) as u64;
        let [.., tail] = self.counts;
        // Acquire: pairs with the reader's release of the tail. The reader has finished copying the
        // bytes that this record overwrites.
        let used = head.load_relaxed().wrapping_sub(tail.load_acquire());
        if used.wrapping_add(most) > self.bytes.into() {
            lost.store_relaxed(now_lost.wrapping_add(1));
            return true;
        }
        if tells {
            let first = record_header(LOST_RECORD, 3, record.thread);
            self.append(&[first, record.time, now_lost]);
            told.store_relaxed(now_lost);
        }
        let first = record_header(record.marker, words, record.thread);
        self.append_two_parts(&[first, record.time], &record.fields);
        used > u64::from(self.bytes / 2)
    }

    fn append(&self, words: &[u64]) {
        self.append_two_parts(words, &[]);
    }

    fn append_two_parts(&self, first: &[u64], second: &[u64]) {
        let [head, ..] = self.counts;
        let mut at = head.load_relaxed();
        let nr = first.len().wrapping_add(second.len());
        let to_end = (self.bytes as usize).wrapping_sub(self.offset_of_position(at)) / 8;
        if to_end < nr {
            self.put_word(at, record_header(PAD_RECORD, to_end, 0));
            at = at.wrapping_add((to_end as u64).wrapping_mul(8));
        }
        for word in first.iter().chain(second) {
            self.put_word(at, *word);
            at = at.wrapping_add(8);
        }
        // Release: pairs with the acquire in [`unread_stream_range`].
        head.store_release(at);
    }

    fn write_before_head<const N: usize>(&self, record: &Record<N>) {
        let [head, _, reserve, ..] = self.counts;
        let mut end = head.load_relaxed();
        let bytes = (N.wrapping_add(2) as u64).wrapping_mul(8);
        let room = match self.offset_of_position(end) {
            0 => u64::from(self.bytes),
            offset => offset as u64,
        };
        if room < bytes {
            // Too few bytes are left before the newest record: fill them with a padding record, and
            // write the new record at the end of the buffer.
            let begin = end.wrapping_sub(room);
            self.lower_reserve_before_write(reserve, begin);
            self.put_word(begin, record_header(PAD_RECORD, (room / 8) as usize, 0));
            end = begin;
        }
        let begin = end.wrapping_sub(bytes);
        self.lower_reserve_before_write(reserve, begin);
        self.put_word(
            begin,
            record_header(record.marker, N.wrapping_add(2), record.thread),
        );
        self.put_word(begin.wrapping_add(8), record.time);
        let mut at = begin.wrapping_add(16);
        for word in &record.fields {
            self.put_word(at, *word);
            at = at.wrapping_add(8);
        }
        // Release: pairs with the acquire in [`flight_recorder_range`].
        head.store_release(begin);
    }

    fn lower_reserve_before_write(&self, reserve: &Word, begin: u64) {
        reserve.store_relaxed(begin);
        // Release fence: the record is written after the store of `reserve`. Pairs with the fence
        // in [`bytes_not_overwritten`].
        fence_release();
    }

    fn offset_of_position(&self, at: u64) -> usize {
        (at as u32 & self.bytes.wrapping_sub(1)) as usize
    }

    fn put_word(&self, at: u64, value: u64) {
        if let Some(word) = (self.word_at)(self.offset_of_position(at) / 8) {
            word.store_relaxed(value);
        }
    }
}
