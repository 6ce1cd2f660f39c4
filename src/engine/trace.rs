// SPDX-License-Identifier: GPL-2.0

//! User tracing: `include/uapi/linux/perftrace.h`, and what its buffers' counts mean.
//!
//! Whatever is in a buffer was written by somebody who may be hostile: nothing here trusts a
//! count of its, and nothing is said of its records, which whoever reads them checks.

use core::mem::size_of;

use crate::sync::{fence_acquire, Word};

/// Of the interface.
pub const VERSION: u32 = 1;
/// Traces at once.
pub const NR_TRACES: usize = 16;
/// Markers that a process has in its life.
pub const NR_MARKERS: usize = 4096;
/// Of a marker that is refused.
pub const NO_NUMBER: u32 = u32::MAX;
/// Bytes of names.
pub const NAME_MAX: usize = 64;
/// Bytes of fields, and of a trace's globs.
pub const FIELDS_MAX: usize = 256;
/// Bytes of a filter.
pub const FILTER_MAX: usize = 4096;
/// Bytes of a buffer's records.
pub const BYTES_MIN: u32 = 4096;
/// The same.
pub const BYTES_MAX: u32 = 4 << 20;
/// log2 of the bytes from one buffer to the next.
pub const STRIDE: u32 = 23;

/// Where what a process maps is, in bytes.
pub mod map {
    #![allow(missing_docs, reason = "documented in the C header")]
    pub const WORDS: u64 = 0x1000;
    pub const FILTERS: u64 = 0x10000;
    pub const READ_BYTES: u64 = 0x20000;
    pub const BUFFERS: u64 = 0x10_0000;
}

/// Bytes of a record, with all that belongs to it.
pub const RECORD_MAX: usize = 2048;
/// Where records are in a buffer.
pub const RECORDS: usize = 4096;
/// 8-byte words of `struct perftrace_record`.
pub const HEAD_WORDS: usize = 2;
/// A record that is nothing.
pub const PAD: u16 = 0xffff;
/// A record that says how many events were lost.
pub const LOST: u16 = 0xfffe;
/// In the number of a thread (`struct perftrace_thread`): another process shares it.
pub const THREAD_SHARED: u64 = 1;
/// Ticks are those of RDTSC.
pub const CLOCK_TSC: u32 = 0;
/// Ticks are nanoseconds of `CLOCK_MONOTONIC`.
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
    /// Those that a new trace may have.
    pub const ALL: u32 = FLIGHT | WAIT | SHARED | KEEP | PAUSED | ALL_USERS;
    /// Those that a traced process sees.
    pub const SEEN: u32 = FLIGHT | WAIT | SHARED | FILTERED;
}

/// Of `PERFTRACE_RELEASE`: not any more.
pub const RESUME: u32 = 0x01;
/// In a word of the file that stands for the first piece: attach.
pub const WAKE: u32 = 1 << 31;

/// Keys that are no process's.
pub const KEY_KERNEL: u64 = 1;
/// The same.
pub const KEY_SHARED: u64 = 2;

/// What is all zeroes.
pub trait Zero {
    /// It.
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
            // Without padding.
            const _: () = assert!(0 $(+ size_of::<$type>())* == $size);
        )*
    };
}

structures! {
    /// A trace, as a process in it sees it.
    Slot(16) {
        generation: u32,
        flags: u32,
        mask: u32,
        wait_ms: u32,
    }
    /// The page that a process reads, but for the slots behind it.
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
    /// `PERFTRACE_ATTACH`
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
    /// A marker.
    Marker(328) {
        name: [u8; NAME_MAX],
        fields: [u8; FIELDS_MAX],
        number: u32,
        error: u32,
    }
    /// `PERFTRACE_REGISTER`, `PERFTRACE_UNREGISTER`
    Markers(24) {
        size: u32,
        nr: u32,
        markers: u64,
        bad: u32,
        refused: u32,
    }
    /// `PERFTRACE_RELEASE`
    Release(16) {
        size: u32,
        flags: u32,
        wake: u32,
        left: u32,
    }
    /// `PERFTRACE_CREATE`, `PERFTRACE_OPEN`
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
    /// `PERFTRACE_INFO`, `PERFTRACE_NEXT_TRACE`
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
    /// `PERFTRACE_READ`
    Read(48) {
        key: u64,
        cpu: u32,
        bytes: u32,
        to: u64,
        lost: u64,
        position: u64,
        ticks: u64,
    }
    /// `PERFTRACE_PROCESS`
    Process(48) {
        key: u64,
        pid: u32,
        uid: u32,
        flags: u32,
        nr_markers: u32,
        began: u64,
        comm: [u8; 16],
    }
    /// `PERFTRACE_DESCRIBE`, `PERFTRACE_NEXT_MARKER`
    Describe(344) {
        key: u64,
        number: u32,
        refs: u32,
        marker: Marker,
    }
    /// `PERFTRACE_NOTIFY`
    Notify(8) {
        slot: u32,
        cpu: u32,
    }
    /// `PERFTRACE_WAIT_ROOM`
    Room(16) {
        slot: u32,
        cpu: u32,
        tail: u64,
    }
}

/// `PERFTRACE_ENDED`
pub const ENDED: u32 = 1;

/// The calls' numbers.
pub mod call {
    #![allow(missing_docs, reason = "documented in the C header")]
    use super::*;

    const fn both<T>(number: u32) -> u32 {
        give::<T>(number) | (2 << 30)
    }

    const fn give<T>(number: u32) -> u32 {
        (1 << 30) | ((size_of::<T>() as u32) << 16) | ((b'A' as u32) << 8) | number
    }

    pub const ATTACH: u32 = both::<Attach>(0x80);
    pub const REGISTER: u32 = both::<Markers>(0x81);
    pub const UNREGISTER: u32 = both::<Markers>(0x82);
    pub const NOTIFY: u32 = give::<Notify>(0x83);
    pub const WAIT_ROOM: u32 = give::<Room>(0x84);
    pub const NEXT_TRACE: u32 = both::<Info>(0x88);
    pub const NEXT_MARKER: u32 = both::<Describe>(0x89);
    pub const RELEASE: u32 = both::<Release>(0x8a);
    pub const CREATE: u32 = both::<Create>(0x90);
    pub const OPEN: u32 = both::<Create>(0x91);
    pub const INFO: u32 = both::<Info>(0x92);
    pub const READ: u32 = both::<Read>(0x93);
    pub const PROCESS: u32 = both::<Process>(0x94);
    pub const DESCRIBE: u32 = both::<Describe>(0x95);
    pub const PAUSE: u32 = give::<u32>(0x96);
    pub const END: u32 = ((b'A' as u32) << 8) | 0x97;
}

/// Where in a buffer's first page its counts are: words of 8 bytes.
pub mod count {
    #![allow(missing_docs, reason = "documented in the C header")]
    pub const HEAD: usize = 0;
    pub const LIMIT: usize = 1;
    pub const RESERVE: usize = 2;
    pub const LOST: usize = 3;
    pub const TOLD: usize = 4;
    pub const TAIL: usize = 8;
    /// How many there are.
    pub const NR: usize = 9;
}

/// A buffer's counts: the writer's, but for the tail.
pub type Counts = [Word; count::NR];

/// Sets a new buffer's.
pub fn begin(counts: &Counts, bytes: u32, flight: bool) {
    let bytes = u64::from(bytes);
    let [_, limit, ..] = counts;
    limit.store_relaxed(match flight {
        true => bytes.wrapping_neg(),
        false => bytes / 2,
    });
}

/// How many events a writer can have lost: it says `claimed`, at its last look `seen` were
/// believed, so many ticks ago. Each loss takes longer than four. `None`: it makes no sense.
pub fn plausible(seen: u64, claimed: u64, ticks: u64) -> Option<u64> {
    let most = seen.saturating_add(ticks / 4).saturating_add(1024);
    (claimed >= seen && claimed <= most).then_some(claimed)
}

/// Of a buffer's records: from a place in it, so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Bytes that were written before these, all in all; of flight recorders: up to these.
    pub position: u64,
    /// Where the first of them is.
    pub from: u32,
    /// So many, then on from the buffer's beginning.
    pub bytes: u32,
    /// Where what is new begins afterwards.
    pub next: u64,
}

/// The counts make no sense: where to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Senseless {
    /// Nothing up to here.
    pub next: u64,
}

/// What is new since a position, of a buffer of so many bytes, a power of two.
pub fn written(counts: &Counts, since: u64, bytes: u32) -> Result<Span, Senseless> {
    let [head, ..] = counts;
    // Acquire: with the store that commits, all records before it are there.
    let head = head.load_acquire();
    let new = head.wrapping_sub(since);
    if new > bytes.into() || head % 8 != 0 {
        return Err(Senseless { next: head & !7 });
    }
    Ok(Span {
        position: since,
        from: since as u32 & bytes.wrapping_sub(1),
        bytes: new as u32,
        next: head,
    })
}

/// What a flight recorder has, newest first, with all that is left of the oldest. Once it
/// was copied, [`left`] says how much of it is good.
pub fn recorded(counts: &Counts, bytes: u32) -> Result<Span, Senseless> {
    let [head, ..] = counts;
    // Acquire: as above.
    let head = head.load_acquire();
    if head % 8 != 0 {
        return Err(Senseless { next: 0 });
    }
    let all = head.wrapping_neg();
    Ok(Span {
        position: all,
        from: head as u32 & bytes.wrapping_sub(1),
        bytes: all.min(bytes.into()) as u32,
        next: head,
    })
}

/// Bytes of a span that were not written over while it was copied.
pub fn left(counts: &Counts, span: &Span, bytes: u32) -> u32 {
    let [_, _, reserve, ..] = counts;
    // With the writer's order of reserve and record: who copied a new byte sees this.
    fence_acquire();
    let reserve = reserve.load_relaxed();
    // Below the head of the span: so much was begun since.
    let over = span.next.wrapping_sub(reserve);
    let over = match reserve {
        0 => 0,
        _ if over as i64 <= 0 => 0,
        _ => over,
    };
    let free = u64::from(bytes).wrapping_sub(span.bytes.into());
    u64::from(span.bytes).saturating_sub(over.saturating_sub(free)) as u32
}

/// A record of the kernel's own: a header, so many words of fields.
pub struct Record<const N: usize> {
    /// Its marker's number.
    pub marker: u16,
    /// Whose it is.
    pub thread: u32,
    /// When.
    pub time: u64,
    /// The fields.
    pub fields: [u64; N],
}

const fn header(marker: u16, words: usize, thread: u32) -> u64 {
    marker as u64 | ((words as u64) << 16) | ((thread as u64) << 32)
}

/// Writes into a buffer that only this CPU writes, preemption off, where no other writer can
/// come in between. `word` finds a word of its records.
pub struct Writer<'a, F> {
    /// Its counts.
    pub counts: &'a Counts,
    /// Bytes of its records.
    pub bytes: u32,
    /// A flight recorder?
    pub flight: bool,
    /// A word of the records.
    pub word: F,
}

impl<'a, F: Fn(usize) -> Option<&'a Word>> Writer<'a, F> {
    /// Says whether the buffer is half full.
    pub fn write<const N: usize>(&self, record: &Record<N>) -> bool {
        let [head, _, _, lost, told, ..] = self.counts;
        if self.flight {
            self.prepend(record);
            return false;
        }
        let now_lost = lost.load_relaxed();
        let tells = now_lost != told.load_relaxed();
        let words = N.wrapping_add(2);
        // As if both were to cross the end.
        let most = words.wrapping_mul(2).wrapping_add(6).wrapping_mul(8) as u64;
        let [.., tail] = self.counts;
        // Acquire: with the reader's release, it has copied what is written over.
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
        // Release: with the acquire in `written`.
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
            // What is left before the end is a pad, of whole words.
            let begin = end.wrapping_sub(room);
            self.lower(reserve, begin);
            self.put(begin, header(PAD, (room / 8) as usize, 0));
            end = begin;
        }
        let begin = end.wrapping_sub(bytes);
        self.lower(reserve, begin);
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
        // Release: with the acquire in `recorded`.
        head.store_release(begin);
    }

    fn lower(&self, reserve: &Word, begin: u64) {
        reserve.store_relaxed(begin);
        // The bytes come after it: with the fence in `left`.
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
