// SPDX-License-Identifier: GPL-2.0

//! The self page: what a thread's context has counted, for that thread to read
//! without a call. `struct perfmon_self` of `include/uapi/linux/perfmon.h`.
//!
//! ```text
//!   writer (the context's lock held)      reader (its thread)
//!   A: sequence odd, write barrier        C: sequence even, acquire
//!      flags, sums, starts                   flags, sum, start, RDPMC
//!   B: sequence even, release             D: fence; sequence as before? else again
//! ```
//!
//! B pairs with C: who sees the new sequence sees all that was written before it.
//! A pairs with D: who saw a part of a change sees its sequence. A switch of
//! threads between the load and RDPMC changes the sequence, too.

use crate::program::Counter as Hardware;
use crate::sync::{fence_acquire, fence_release, Word};

/// `PERFMON_SELF_VERSION`.
pub const VERSION: u32 = 1;
/// `PERFMON_SELF_COUNTING`.
pub const COUNTING: u32 = 0x01;
/// `PERFMON_SELF_RDPMC`.
pub const RDPMC: u32 = 0x02;
/// `PERFMON_SELF_COUNTERS`; a model has fewer words to try.
pub const COUNTERS: usize = if cfg!(loom) { 1 } else { 32 };
/// `sizeof(struct perfmon_self)`.
const SIZE: usize = 48 + COUNTERS * 24;
/// `PERFMON_SELF_OFFSET`.
pub const OFFSET: u64 = 1 << 40;

/// A counter; `what` is rdpmc, pmd and width, from the low end.
#[repr(C)]
pub struct Counter {
    sum: Word,
    start: Word,
    what: Word,
}

/// The page. Two 32-bit fields of the uapi structure are one word here, the
/// first one in the low half.
#[repr(C)]
pub struct SelfPage {
    version_size: Word,
    sequence_flags: Word,
    tsc_sum: Word,
    tsc_start: Word,
    nr: Word,
    counters: [Counter; COUNTERS],
    owner: Word,
}

// As in the uapi header, which the shim asserts.
#[cfg(not(loom))]
const _: () = assert!(size_of::<SelfPage>() == SIZE);

/// How to read a counter without a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The page alone knows, and here is the value.
    Value(u64),
    /// The kernel has to be asked.
    Ask,
}

impl SelfPage {
    /// A page of one's own, for tests.
    pub fn new() -> Self {
        let zero = || Word::new(0);
        Self {
            version_size: zero(),
            sequence_flags: zero(),
            tsc_sum: zero(),
            tsc_start: zero(),
            nr: zero(),
            counters: core::array::from_fn(|_| Counter {
                sum: zero(),
                start: zero(),
                what: zero(),
            }),
            owner: zero(),
        }
    }

    /// Writer: fills in what stays, on a page of zeros that nobody sees yet.
    pub fn init(&self) {
        self.version_size
            .store_relaxed(u64::from(VERSION) | ((SIZE as u64) << 32));
    }

    /// Writer: how it stands, `owner` being who may use RDPMC. `value` gives a PMD's 64 bits as of its counter's
    /// start, `ran` what the time stamp counter moved since the last call if it
    /// counted meanwhile. The caller holds the context's lock.
    #[inline]
    pub fn update(
        &self,
        counters: &[Hardware],
        (flags, owner): (u32, u64),
        value: impl Fn(u16) -> u64,
        tsc: u64,
        ran: u64,
    ) {
        let sequence = self.sequence_flags.load_relaxed() as u32;
        // A: pairs with D.
        self.sequence_flags
            .store_relaxed(u64::from(sequence.wrapping_add(1)));
        fence_release();
        self.tsc_sum
            .store_relaxed(self.tsc_sum.load_relaxed().wrapping_add(ran));
        self.tsc_start.store_relaxed(tsc);
        self.owner.store_relaxed(owner);
        let mut nr = 0u64;
        // What is as narrow as the hardware's, only the kernel gives.
        let wide = counters.iter().filter(|c| !c.narrow);
        for (place, counter) in self.counters.iter().zip(wide) {
            nr = nr.wrapping_add(1);
            place.sum.store_relaxed(value(counter.pmd));
            place.start.store_relaxed(counter.start);
            let width = u64::from(counter.mask.count_ones());
            place.what.store_relaxed(
                u64::from(counter.rdpmc) | (u64::from(counter.pmd) << 32) | (width << 48),
            );
        }
        self.nr.store_relaxed(nr);
        // B: pairs with C.
        self.sequence_flags
            .store_release(u64::from(sequence.wrapping_add(2)) | (u64::from(flags) << 32));
    }

    /// Reader, whose thread pointer is `thread`: a PMD's value; `rdpmc` reads a counter of the
    /// hardware. `None` if the page changed meanwhile: try again.
    #[inline]
    pub fn read(&self, pmd: u16, thread: u64, rdpmc: impl FnOnce(u32) -> u64) -> Option<Reading> {
        // C: pairs with B.
        let before = self.sequence_flags.load_acquire();
        if before & 1 != 0 {
            return None;
        }
        let flags = (before >> 32) as u32;
        let reading = self.look(pmd, flags, thread, rdpmc);
        // D: pairs with A.
        fence_acquire();
        (self.sequence_flags.load_relaxed() == before).then_some(reading)
    }

    #[inline]
    fn look(&self, pmd: u16, flags: u32, thread: u64, rdpmc: impl FnOnce(u32) -> u64) -> Reading {
        let nr = self.nr.load_relaxed() as usize;
        for counter in self.counters.iter().take(nr) {
            let what = counter.what.load_relaxed();
            if (what >> 32) as u16 != pmd {
                continue;
            }
            let sum = counter.sum.load_relaxed();
            // Another thread's counter is on another CPU, or was.
            let own = flags & RDPMC != 0 && self.owner.load_relaxed() == thread;
            return match (flags & COUNTING != 0, own) {
                (false, _) => Reading::Value(sum),
                (true, false) => Reading::Ask,
                (true, true) => {
                    let mask = match what >> 48 {
                        width @ 1..=63 => (1u64 << width) - 1,
                        _ => u64::MAX,
                    };
                    let moved = rdpmc(what as u32).wrapping_sub(counter.start.load_relaxed());
                    Reading::Value(sum.wrapping_add(moved & mask))
                }
            };
        }
        Reading::Ask
    }

    /// Reader: time stamp counts on a CPU while it counted; `tsc` is now.
    #[inline]
    pub fn ran(&self, tsc: impl FnOnce() -> u64) -> Option<u64> {
        // C: pairs with B.
        let before = self.sequence_flags.load_acquire();
        if before & 1 != 0 {
            return None;
        }
        let mut sum = self.tsc_sum.load_relaxed();
        if (before >> 32) as u32 & COUNTING != 0 {
            sum = sum.wrapping_add(tsc().wrapping_sub(self.tsc_start.load_relaxed()));
        }
        // D: pairs with A.
        fence_acquire();
        (self.sequence_flags.load_relaxed() == before).then_some(sum)
    }
}

impl Default for SelfPage {
    fn default() -> Self {
        Self::new()
    }
}
