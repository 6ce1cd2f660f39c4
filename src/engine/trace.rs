// SPDX-License-Identifier: GPL-2.0

//! User tracing: the structures of `include/uapi/linux/perftrace.h`, and the positions and counts
//! of its buffers.
//!
//! Traced processes write the buffers and may be hostile, so the functions of this module do not
//! trust the counts of a buffer. The functions do not examine records; each reader has to check the
//! records that it reads.

use core::mem::size_of;

use crate::sync::{fence_acquire, Word};

pub use crate::filter::{FIELDS_MAX, FILTER_MAX, NAME_MAX};

/// Version of the ioctl interface and of the pages that a process maps.
pub const VERSION: u32 = 1;
/// Maximum number of traces that can be active at the same time.
pub const NR_TRACES: usize = 16;
/// Maximum number of markers that a process can register during its lifetime.
pub const NR_MARKERS: usize = 4096;
/// The number that is returned for a marker whose registration was refused.
pub const NO_NUMBER: u32 = u32::MAX;
/// Minimum size of the records of a buffer, in bytes.
pub const BYTES_MIN: u32 = 4096;
/// Maximum size of the records of a buffer, in bytes.
pub const BYTES_MAX: u32 = 4 << 20;
/// log2 of the distance in bytes between two buffers in the mapping.
pub const STRIDE: u32 = 23;

/// Offsets in the memory that a process maps, in bytes.
pub mod map {
    #![allow(missing_docs, reason = "documented in the C header")]
    pub const WORDS: u64 = 0x1000;
    pub const FILTERS: u64 = 0x10000;
    pub const READ_BYTES: u64 = 0x20000;
    pub const BUFFERS: u64 = 0x10_0000;
}

/// Maximum size of a record in bytes, including its header and the key in shared buffers.
pub const RECORD_MAX: usize = 2048;
/// Offset of the records in a buffer, in bytes.
pub const RECORDS: usize = 4096;
/// Size of `struct perftrace_record` in 8-byte words.
pub const HEAD_WORDS: usize = 2;
/// Marker number of a padding record, which only fills space.
pub const PAD: u16 = 0xffff;
/// Marker number of a record that reports how many events were lost.
pub const LOST: u16 = 0xfffe;
/// Bit in the number of a thread (`struct perftrace_thread`): the number is also used by another
/// process.
pub const THREAD_SHARED: u64 = 1;
/// Clock of a trace: ticks are those of RDTSC.
pub const CLOCK_TSC: u32 = 0;
/// Clock of a trace: ticks are nanoseconds of `CLOCK_MONOTONIC`.
pub const CLOCK_MONOTONIC: u32 = 1;

/// Flags of a trace.
pub mod flag {
    #![allow(missing_docs, reason = "documented in the C header")]
    pub const FLIGHT: u32 = 0x01;
    pub const WAIT: u32 = 0x02;
    pub const SHARED: u32 = 0x04;
    pub const FILTERED: u32 = 0x08;
    pub const KEEP: u32 = 0x10;
    pub const PAUSED: u32 = 0x20;
    pub const ALL_USERS: u32 = 0x40;
    pub const UNSTABLE: u32 = 0x80;
    /// Flags that a new trace may have.
    pub const ALL: u32 = FLIGHT | WAIT | SHARED | KEEP | PAUSED | ALL_USERS;
    /// Flags that a traced process sees.
    pub const PROCESS_VISIBLE: u32 = FLIGHT | WAIT | SHARED | FILTERED;
}

/// Flag of `PERFTRACE_RELEASE`: processes may attach again.
pub const RESUME: u32 = 0x01;
/// Bit in each word of the file that replaces the first part of a process's mapping. A process that
/// finds the bit set attaches again at its next event.
pub const WAKE: u32 = 1 << 31;

/// Key of the buffers for kernel events. This key and [`KEY_SHARED`] belong to no process.
pub const KEY_KERNEL: u64 = 1;
/// Key of the buffers that all processes of a trace share.
pub const KEY_SHARED: u64 = 2;

/// A type that may be all zeros.
pub trait Zero {
    /// The value that is all zeros.
    const ZERO: Self;
}

impl Zero for u32 {
    const ZERO: Self = 0;
}

impl Zero for u64 {
    const ZERO: Self = 0;
}

impl<const N: usize> Zero for [u8; N] {
    const ZERO: Self = [0; N];
}

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident($size:expr) { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug)]
            #[allow(missing_docs, reason = "documented in the C header")]
            pub struct $name {
                $(pub $field: $type,)*
            }
            impl Zero for $name {
                const ZERO: Self = Self {
                    $($field: Zero::ZERO,)*
                };
            }
            const _: () = assert!(size_of::<$name>() == $size);
            // The size of the structure is the sum of the sizes of its fields, so there is no
            // padding.
            const _: () = assert!(0 $(+ size_of::<$type>())* == $size);
        )*
    };
}

structures! {
    /// `struct perftrace_slot`: the state of a trace that a traced process can read.
    Slot(16) {
        generation: u32,
        flags: u32,
        mask: u32,
        wait_ms: u32,
    }
    /// `struct perftrace_control`: the page that a traced process reads, without the array of slots
    /// at its end.
    Control(48) {
        version: u32,
        nr_cpus: u32,
        stride: u32,
        clock: u32,
        key: u64,
        offset: u64,
        pid: u32,
        reserved: u32,
        reserved2: u64,
    }
    /// Argument of `PERFTRACE_ATTACH`.
    Attach(56) {
        size: u32,
        flags: u32,
        nr_cpus: u32,
        stride: u32,
        bytes: u64,
        key: u64,
        control: u64,
        buffers: u64,
        thread: u64,
    }
    /// `struct perftrace_marker`: a marker's name, fields and number.
    Marker(328) {
        name: [u8; NAME_MAX],
        fields: [u8; FIELDS_MAX],
        number: u32,
        error: u32,
    }
    /// Argument of `PERFTRACE_REGISTER` and `PERFTRACE_UNREGISTER`.
    Markers(24) {
        size: u32,
        nr: u32,
        markers: u64,
        bad: u32,
        refused: u32,
    }
    /// Argument of `PERFTRACE_RELEASE`.
    Release(16) {
        size: u32,
        flags: u32,
        wake: u32,
        left: u32,
    }
    /// Argument of `PERFTRACE_CREATE` and `PERFTRACE_OPEN`.
    Create(360) {
        size: u32,
        flags: u32,
        bytes: u32,
        filter_bytes: u32,
        filter: u64,
        position: u32,
        slot: u32,
        wait_ms: u32,
        reserved: u32,
        name: [u8; NAME_MAX],
        markers: [u8; FIELDS_MAX],
    }
    /// Argument of `PERFTRACE_INFO` and `PERFTRACE_NEXT_TRACE`.
    Info(432) {
        size: u32,
        slot: u32,
        flags: u32,
        bytes: u32,
        nr_cpus: u32,
        clock: u32,
        khz: u32,
        uid: u32,
        ticks: u64,
        realtime: u64,
        began: u64,
        nr_processes: u64,
        memory: u64,
        lost: u64,
        cut: u64,
        dropped: u64,
        no_memory: u64,
        denied: u64,
        name: [u8; NAME_MAX],
        markers: [u8; FIELDS_MAX],
    }
    /// Argument of `PERFTRACE_READ`.
    Read(48) {
        key: u64,
        cpu: u32,
        bytes: u32,
        to: u64,
        lost: u64,
        position: u64,
        ticks: u64,
    }
    /// Argument of `PERFTRACE_PROCESS`.
    Process(48) {
        key: u64,
        pid: u32,
        uid: u32,
        flags: u32,
        nr_markers: u32,
        began: u64,
        comm: [u8; 16],
    }
    /// Argument of `PERFTRACE_DESCRIBE` and `PERFTRACE_NEXT_MARKER`.
    Describe(344) {
        key: u64,
        number: u32,
        refs: u32,
        marker: Marker,
    }
    /// Argument of `PERFTRACE_NOTIFY`.
    Notify(8) {
        slot: u32,
        cpu: u32,
    }
    /// Argument of `PERFTRACE_WAIT_ROOM`.
    Room(16) {
        slot: u32,
        cpu: u32,
        tail: u64,
    }
}

/// `PERFTRACE_ENDED`: the process has ended.
pub const ENDED: u32 = 1;

/// Numbers of the ioctls.
pub mod call {
    #![allow(missing_docs, reason = "documented in the C header")]
    use super::*;

    const fn iowr<T>(number: u32) -> u32 {
        iow::<T>(number) | (2 << 30)
    }

    const fn iow<T>(number: u32) -> u32 {
        (1 << 30) | ((size_of::<T>() as u32) << 16) | ((b'A' as u32) << 8) | number
    }

    pub const ATTACH: u32 = iowr::<Attach>(0x80);
    pub const REGISTER: u32 = iowr::<Markers>(0x81);
    pub const UNREGISTER: u32 = iowr::<Markers>(0x82);
    pub const NOTIFY: u32 = iow::<Notify>(0x83);
    pub const WAIT_ROOM: u32 = iow::<Room>(0x84);
    pub const NEXT_TRACE: u32 = iowr::<Info>(0x88);
    pub const NEXT_MARKER: u32 = iowr::<Describe>(0x89);
    pub const RELEASE: u32 = iowr::<Release>(0x8a);
    pub const CREATE: u32 = iowr::<Create>(0x90);
    pub const OPEN: u32 = iowr::<Create>(0x91);
    pub const INFO: u32 = iowr::<Info>(0x92);
    pub const READ: u32 = iowr::<Read>(0x93);
    pub const PROCESS: u32 = iowr::<Process>(0x94);
    pub const DESCRIBE: u32 = iowr::<Describe>(0x95);
    pub const PAUSE: u32 = iow::<u32>(0x96);
    pub const END: u32 = ((b'A' as u32) << 8) | 0x97;
}

/// Indices of a buffer's counts in its first page, in words of 8 bytes.
pub mod count {
    #![allow(missing_docs, reason = "documented in the C header")]
    pub const HEAD: usize = 0;
    pub const LIMIT: usize = 1;
    pub const LOST: usize = 3;
    /// Number of words in the first page up to and including the last count.
    pub const NR: usize = 9;
}

/// The counts of a buffer. The reader writes the tail; the writers write all other counts.
pub type Counts = [Word; count::NR];

/// Sets the limit of a new buffer. All other counts of the buffer are 0.
pub fn init_counts(counts: &Counts, bytes: u32, flight: bool) {
    let bytes = u64::from(bytes);
    let [_, limit, ..] = counts;
    limit.store_relaxed(match flight {
        true => bytes.wrapping_neg(),
        false => bytes / 2,
    });
}

/// Checks the number of lost events that a writer claims. `seen` is the number that was accepted at
/// the last check, `ticks` ago. A writer takes more than four ticks to lose an event; 1,024 more
/// lost events are tolerated. Returns `claimed`, or `None` if the number is not plausible.
pub fn plausible_lost(seen: u64, claimed: u64, ticks: u64) -> Option<u64> {
    let most = seen.saturating_add(ticks / 4).saturating_add(1024);
    (claimed >= seen && claimed <= most).then_some(claimed)
}

/// A range of a buffer's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferRange {
    /// Number of bytes that were written before this range. In a flight recorder it is the number
    /// of all bytes that were written.
    pub position: u64,
    /// Offset of the first byte of the range in the records of the buffer.
    pub from: u32,
    /// Number of bytes in the range. A range that reaches the end of the buffer continues at the
    /// beginning of the buffer.
    pub bytes: u32,
    /// Position at which the next range begins.
    pub next: u64,
}

/// Error: the counts of a buffer are corrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptCounts {
    /// Position at which reading resumes. Records before this position are dropped.
    pub resume_at: u64,
}

/// Returns the range written since the position `since`, in a buffer of `bytes` bytes, a power of
/// two.
pub fn unread_range(counts: &Counts, since: u64, bytes: u32) -> Result<BufferRange, CorruptCounts> {
    let [head, ..] = counts;
    // Acquire: pairs with the store that commits a record. All records before this head can be
    // read.
    let head = head.load_acquire();
    let new = head.wrapping_sub(since);
    if new > bytes.into() || head % 8 != 0 {
        return Err(CorruptCounts {
            resume_at: head & !7,
        });
    }
    Ok(BufferRange {
        position: since,
        from: since as u32 & bytes.wrapping_sub(1),
        bytes: new as u32,
        next: head,
    })
}

/// Returns the range of a flight recorder's records, newest first. The last record of the range may
/// be incomplete. After the range is copied, [`valid_bytes`] returns how many bytes of the copy are
/// valid.
pub fn flight_range(counts: &Counts, bytes: u32) -> Result<BufferRange, CorruptCounts> {
    let [head, ..] = counts;
    // Acquire: pairs with the store that commits a record. All records from this head on can be
    // read.
    let head = head.load_acquire();
    if head % 8 != 0 {
        return Err(CorruptCounts { resume_at: 0 });
    }
    let all = head.wrapping_neg();
    Ok(BufferRange {
        position: all,
        from: head as u32 & bytes.wrapping_sub(1),
        bytes: all.min(bytes.into()) as u32,
        next: head,
    })
}

/// Returns how many bytes at the beginning of a range were not overwritten while the range was
/// copied.
pub fn valid_bytes(counts: &Counts, span: &BufferRange, bytes: u32) -> u32 {
    let [_, _, reserve, ..] = counts;
    // Pairs with the fence between a writer's store of `reserve` and its record: a reader that
    // copied a byte of a newer record sees the `reserve` of that record.
    fence_acquire();
    let reserve = reserve.load_relaxed();
    // Number of bytes that writers have reserved below the head of the range since the range was
    // determined.
    let over = span.next.wrapping_sub(reserve);
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

const fn header(marker: u16, words: usize, thread: u32) -> u64 {
    marker as u64 | ((words as u64) << 16) | ((thread as u64) << 32)
}

/// The kernel's writer of a buffer into which only this CPU writes. Preemption is off, and no other
/// writer of the buffer can interrupt this one.
pub struct Writer<'a, F> {
    /// The counts in the first page of the buffer.
    pub counts: &'a Counts,
    /// Size of the part of the buffer that holds records, in bytes.
    pub bytes: u32,
    /// The buffer is a flight recorder.
    pub flight: bool,
    /// Function that returns a word of the records by its index.
    pub word: F,
}

impl<'a, F: Fn(usize) -> Option<&'a Word>> Writer<'a, F> {
    /// Writes a record. Returns true if the reader should be woken: the buffer was more than half
    /// full, or the event is lost.
    pub fn write<const N: usize>(&self, record: &Record<N>) -> bool {
        let [head, _, _, lost, told, ..] = self.counts;
        if self.flight {
            self.prepend(record);
            return false;
        }
        let now_lost = lost.load_relaxed();
        let tells = now_lost != told.load_relaxed();
        let words = N.wrapping_add(2);
        // Enough bytes for the `LOST` record and for the record itself, each with a padding record
        // at the end of the buffer.
        let most = words.wrapping_mul(2).wrapping_add(6).wrapping_mul(8) as u64;
        let [.., tail] = self.counts;
        // Acquire: pairs with the reader's release of the tail. The reader has copied the bytes
        // that are overwritten now.
        let used = head.load_relaxed().wrapping_sub(tail.load_acquire());
        if used.wrapping_add(most) > self.bytes.into() {
            lost.store_relaxed(now_lost.wrapping_add(1));
            return true;
        }
        if tells {
            let first = header(LOST, 3, record.thread);
            self.append(&[first, record.time, now_lost]);
            told.store_relaxed(now_lost);
        }
        let first = header(record.marker, words, record.thread);
        self.append_parts(&[first, record.time], &record.fields);
        used > u64::from(self.bytes / 2)
    }

    fn append(&self, words: &[u64]) {
        self.append_parts(words, &[]);
    }

    fn append_parts(&self, first: &[u64], second: &[u64]) {
        let [head, ..] = self.counts;
        let mut at = head.load_relaxed();
        let nr = first.len().wrapping_add(second.len());
        let to_end = (self.bytes as usize).wrapping_sub(self.place(at)) / 8;
        if to_end < nr {
            self.put(at, header(PAD, to_end, 0));
            at = at.wrapping_add((to_end as u64).wrapping_mul(8));
        }
        for word in first.iter().chain(second) {
            self.put(at, *word);
            at = at.wrapping_add(8);
        }
        // Release: pairs with the acquire in [`unread_range`].
        head.store_release(at);
    }

    fn prepend<const N: usize>(&self, record: &Record<N>) {
        let [head, _, reserve, ..] = self.counts;
        let mut end = head.load_relaxed();
        let bytes = (N.wrapping_add(2) as u64).wrapping_mul(8);
        let room = match self.place(end) {
            0 => u64::from(self.bytes),
            place => place as u64,
        };
        if room < bytes {
            // The record would cross the beginning of the buffer: fill the bytes at the beginning
            // with a padding record.
            let begin = end.wrapping_sub(room);
            self.lower_reserve(reserve, begin);
            self.put(begin, header(PAD, (room / 8) as usize, 0));
            end = begin;
        }
        let begin = end.wrapping_sub(bytes);
        self.lower_reserve(reserve, begin);
        self.put(
            begin,
            header(record.marker, N.wrapping_add(2), record.thread),
        );
        self.put(begin.wrapping_add(8), record.time);
        let mut at = begin.wrapping_add(16);
        for word in &record.fields {
            self.put(at, *word);
            at = at.wrapping_add(8);
        }
        // Release: pairs with the acquire in [`flight_range`].
        head.store_release(begin);
    }

    fn lower_reserve(&self, reserve: &Word, begin: u64) {
        reserve.store_relaxed(begin);
        // Release fence: the record is written after the store of `reserve`. Pairs with the fence
        // in [`valid_bytes`].
        crate::sync::fence_release();
    }

    fn place(&self, at: u64) -> usize {
        (at as u32 & self.bytes.wrapping_sub(1)) as usize
    }

    fn put(&self, at: u64, value: u64) {
        if let Some(word) = (self.word)(self.place(at) / 8) {
            word.store_relaxed(value);
        }
    }
}
