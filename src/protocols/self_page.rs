// SPDX-License-Identifier: GPL-2.0

//! The self page: memory from which a thread reads the counts of its monitoring context without a
//! system call (`struct perfmon_self` of `include/uapi/linux/perfmon.h`).
//!
//! ```text
//!   writer (the context's lock held)      reader (its thread)
//!   A: sequence odd, write barrier        C: sequence even, acquire
//!      flags, sums, starts                   flags, sum, start, RDPMC
//!   B: sequence even, release             D: acquire fence; sequence changed? retry
//! ```
//!
//! - B (last store of the sequence) pairs with C (first load of the sequence): a reader that sees
//!   the new sequence sees all words that were stored before the sequence.
//! - A (store of an odd sequence) pairs with D (second load of the sequence): a reader that loaded
//!   a changed word sees the odd sequence or a later one, and retries.
//!
//! If the thread is switched out between its load of the sequence and its RDPMC, the kernel updates
//! the page and thereby changes the sequence, so the reader retries.

use crate::sync::{fence_acquire, fence_release, Word};

/// `PERFMON_SELF_VERSION`.
pub const VERSION: u32 = 1;
/// `PERFMON_SELF_COUNTING`: the registers of the context are loaded in the PMU of a CPU.
pub const FLAG_COUNTING: u32 = 0x01;
/// `PERFMON_SELF_RDPMC`: the owner may execute RDPMC.
pub const FLAG_RDPMC_ALLOWED: u32 = 0x02;
/// `PERFMON_SELF_COUNTERS`: maximum number of counters on the page. Under loom the page has one
/// counter, so that the model has fewer words.
pub const MAX_SELF_PAGE_COUNTERS: usize = if cfg!(loom) { 1 } else { 32 };
/// `sizeof(struct perfmon_self)`.
const SELF_PAGE_BYTES: usize = 48 + MAX_SELF_PAGE_COUNTERS * 24;
/// `PERFMON_SELF_OFFSET`.
pub const SELF_PAGE_FILE_OFFSET: u64 = 1 << 40;

/// A counter of the self page. Bits 0 to 31 of `rdpmc_pmd_width` hold the counter's number for
/// RDPMC. Bits 32 to 47 hold the number of the counter's PMD (a 64-bit data register of the
/// context), and bits 48 to 63 hold the width of the counter.
#[repr(C)]
pub struct Counter {
    sum: Word,
    start: Word,
    rdpmc_pmd_width: Word,
}

/// The state of a hardware counter that [`SelfPage::update`] writes to the page.
pub struct CounterState {
    /// Number of the PMD.
    pub pmd: u16,
    /// Number of the counter for RDPMC.
    pub rdpmc: u32,
    /// Mask of the bits of the hardware counter, according to its width.
    pub mask: u64,
    /// Value of the hardware counter when it was last started or read.
    pub start: u64,
    /// The 64-bit value of the PMD when the hardware counter had the value `start`.
    pub pmd_value: u64,
}

/// The self page. Each pair of 32-bit fields of the uapi structure is one word here, with the first
/// field in the low half.
#[repr(C)]
pub struct SelfPage {
    version_and_size: Word,
    sequence_flags: Word,
    tsc_sum: Word,
    tsc_start: Word,
    nr: Word,
    counters: [Counter; MAX_SELF_PAGE_COUNTERS],
    owner: Word,
}

// `SELF_PAGE_BYTES` is the size of `struct perfmon_self` in the uapi header.
// src/perfmon/helpers/pmu.c asserts the same size for C.
#[cfg(not(loom))]
const _: () = assert!(size_of::<SelfPage>() == SELF_PAGE_BYTES);

/// Result of a read of a counter from the self page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelfPageReading {
    /// The value, computed from the page and, if the counter counts, from RDPMC.
    Value(u64),
    /// The value cannot be computed from the page and has to be read by a system call.
    UseSyscall,
}

impl SelfPage {
    /// Creates a page in memory of the caller, for tests.
    pub fn new() -> Self {
        let zero = || Word::new(0);
        Self {
            version_and_size: zero(),
            sequence_flags: zero(),
            tsc_sum: zero(),
            tsc_start: zero(),
            nr: zero(),
            counters: core::array::from_fn(|_| Counter {
                sum: zero(),
                start: zero(),
                rdpmc_pmd_width: zero(),
            }),
            owner: zero(),
        }
    }

    /// Writer: sets the version and the size. The caller has zeroed the page, and has not yet
    /// mapped it for a reader.
    pub fn init(&self) {
        self.version_and_size
            .store_relaxed(u64::from(VERSION) | ((SELF_PAGE_BYTES as u64) << 32));
    }

    /// Writer: publishes the state of the context in the page. Caller holds the context's lock.
    ///
    /// `counters` returns the counters to publish; counters beyond [`MAX_SELF_PAGE_COUNTERS`] are
    /// left out. `owner` is the thread pointer of the thread that may execute RDPMC. `tsc` is the
    /// present value of the time stamp counter. `ran` is the increment of the time stamp counter
    /// since the last call if the context counted during that time, otherwise 0.
    #[inline]
    pub fn update(
        &self,
        counters: impl Iterator<Item = CounterState>,
        (flags, owner): (u32, u64),
        tsc: u64,
        ran: u64,
    ) {
        let sequence = self.sequence_flags.load_relaxed() as u32;
        // A: the write barrier pairs with D, the acquire fence of the reader.
        self.sequence_flags
            .store_relaxed(u64::from(sequence.wrapping_add(1)));
        fence_release();
        self.tsc_sum
            .store_relaxed(self.tsc_sum.load_relaxed().wrapping_add(ran));
        self.tsc_start.store_relaxed(tsc);
        self.owner.store_relaxed(owner);
        let mut nr = 0u64;
        for (place, counter) in self.counters.iter().zip(counters) {
            nr = nr.wrapping_add(1);
            place.sum.store_relaxed(counter.pmd_value);
            place.start.store_relaxed(counter.start);
            let width = u64::from(counter.mask.count_ones());
            place.rdpmc_pmd_width.store_relaxed(
                u64::from(counter.rdpmc) | (u64::from(counter.pmd) << 32) | (width << 48),
            );
        }
        self.nr.store_relaxed(nr);
        // B: the release store pairs with C, the acquire load of the reader.
        self.sequence_flags
            .store_release(u64::from(sequence.wrapping_add(2)) | (u64::from(flags) << 32));
    }

    /// Reader: reads a PMD. `thread` is the thread pointer of the caller. `rdpmc` reads the
    /// hardware counter with the given RDPMC number. Returns `None` if the page changed during the
    /// read; the caller retries.
    #[inline]
    pub fn read_pmd(
        &self,
        pmd: u16,
        thread: u64,
        rdpmc: impl FnOnce(u32) -> u64,
    ) -> Option<SelfPageReading> {
        // C: the acquire load pairs with B, the release store of the writer.
        let before = self.sequence_flags.load_acquire();
        if before & 1 != 0 {
            return None;
        }
        let flags = (before >> 32) as u32;
        let reading = self.read_counter(pmd, flags, thread, rdpmc);
        // D: the acquire fence pairs with A, the write barrier of the writer.
        fence_acquire();
        (self.sequence_flags.load_relaxed() == before).then_some(reading)
    }

    #[inline]
    fn read_counter(
        &self,
        pmd: u16,
        flags: u32,
        thread: u64,
        rdpmc: impl FnOnce(u32) -> u64,
    ) -> SelfPageReading {
        let nr = self.nr.load_relaxed() as usize;
        for counter in self.counters.iter().take(nr) {
            let what = counter.rdpmc_pmd_width.load_relaxed();
            if (what >> 32) as u16 != pmd {
                continue;
            }
            let sum = counter.sum.load_relaxed();
            // RDPMC reads this counter only on the CPU that runs the thread `owner` of the page.
            let own = flags & FLAG_RDPMC_ALLOWED != 0 && self.owner.load_relaxed() == thread;
            return match (flags & FLAG_COUNTING != 0, own) {
                (false, _) => SelfPageReading::Value(sum),
                (true, false) => SelfPageReading::UseSyscall,
                (true, true) => {
                    let mask = match what >> 48 {
                        width @ 1..=63 => (1u64 << width) - 1,
                        _ => u64::MAX,
                    };
                    let moved = rdpmc(what as u32).wrapping_sub(counter.start.load_relaxed());
                    SelfPageReading::Value(sum.wrapping_add(moved & mask))
                }
            };
        }
        SelfPageReading::UseSyscall
    }

    /// Reader: returns the ticks of the time stamp counter during which the context was in a PMU.
    /// `tsc` reads the time stamp counter. Returns `None` if the page changed during the read; the
    /// caller retries.
    #[inline]
    pub fn loaded_ticks(&self, tsc: impl FnOnce() -> u64) -> Option<u64> {
        // C: the acquire load pairs with B, the release store of the writer.
        let before = self.sequence_flags.load_acquire();
        if before & 1 != 0 {
            return None;
        }
        let mut sum = self.tsc_sum.load_relaxed();
        if (before >> 32) as u32 & FLAG_COUNTING != 0 {
            sum = sum.wrapping_add(tsc().wrapping_sub(self.tsc_start.load_relaxed()));
        }
        // D: the acquire fence pairs with A, the write barrier of the writer.
        fence_acquire();
        (self.sequence_flags.load_relaxed() == before).then_some(sum)
    }
}

impl Default for SelfPage {
    fn default() -> Self {
        Self::new()
    }
}
