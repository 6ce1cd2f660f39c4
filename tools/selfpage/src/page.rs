// SPDX-License-Identifier: GPL-2.0

//! The page, and how a counter is read from it.
//!
//! The kernel writes the page while its thread is off the processor, or in an
//! interrupt on it; it makes `sequence` odd first and another even number last.
//! So whoever sees the same even number before and after has what belongs
//! together. The barriers:
//!
//! - the first load of `sequence` is an acquire: nothing of the page, and no
//!   RDPMC, is read before it;
//! - an acquire fence stands before the second: nothing of the page is read
//!   after it. RDPMC itself is ordered by the kernel's writing on the very
//!   processor that executes it: an interrupt or a switch has each instruction
//!   before it done and none after it begun, so the compiler alone must not move
//!   it (`rdpmc.rs`).
//!
//! Both are free on x86, where loads stay in order.

use core::hint::spin_loop;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{fence, AtomicU16, AtomicU32, AtomicU64};

use crate::rdpmc::rdpmc;

/// Where the page begins in a context's file.
pub(crate) const OFFSET: i64 = 1 << 40;
/// How much to map.
pub(crate) const BYTES: usize = 4096;
/// The layout that this library knows.
pub const VERSION: u32 = 1;

const COUNTING: u32 = 0x01;
const RDPMC: u32 = 0x02;
/// Counters that the page has room for.
const ROOM: usize = 32;
/// Looks at a page that changes each time; then the kernel is asked.
const LOOKS: u32 = 100;

/// `struct perfmon_self_counter`.
#[repr(C)]
#[derive(Debug, Default)]
struct Counter {
    sum: AtomicU64,
    start: AtomicU64,
    rdpmc: AtomicU32,
    pmd: AtomicU16,
    width: AtomicU16,
}

/// `struct perfmon_self`: atomics only, as the kernel writes them meanwhile.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Page {
    version: AtomicU32,
    size: AtomicU32,
    sequence: AtomicU32,
    flags: AtomicU32,
    tsc_sum: AtomicU64,
    tsc_start: AtomicU64,
    nr: AtomicU32,
    reserved: AtomicU32,
    counters: [Counter; ROOM],
}

// The sum of the fields: there is no padding.
const _: () = assert!(size_of::<Page>() == 6 * 4 + 2 * 8 + ROOM * (2 * 8 + 8));

impl Page {
    /// Is it laid out as this library knows it?
    pub(crate) fn is_known(&self) -> bool {
        self.version.load(Relaxed) == VERSION
            && self.size.load(Relaxed) as usize >= size_of::<Page>()
    }

    /// The value of a PMD of the hardware, for the thread that the context is
    /// loaded on; any other thread would add its own processor's counter.
    /// Nothing, if only a system call knows it.
    #[inline]
    pub fn counter(&self, pmd: u16) -> Option<u64> {
        self.read(pmd, rdpmc)
    }

    #[inline]
    fn read(&self, pmd: u16, rdpmc: impl Fn(u32) -> u64) -> Option<u64> {
        for _ in 0..LOOKS {
            let before = self.sequence.load(Acquire);
            if before & 1 == 0 {
                let value = self.look(pmd, &rdpmc);
                fence(Acquire);
                if self.sequence.load(Relaxed) == before {
                    return value;
                }
            }
            spin_loop();
        }
        None
    }

    /// What it says, which may not belong together.
    #[inline]
    fn look(&self, pmd: u16, rdpmc: impl Fn(u32) -> u64) -> Option<u64> {
        let used = self.counters.get(..self.nr.load(Relaxed) as usize)?;
        let counter = used.iter().find(|c| c.pmd.load(Relaxed) == pmd)?;
        let sum = counter.sum.load(Relaxed);
        let flags = self.flags.load(Relaxed);
        if flags & COUNTING == 0 {
            return Some(sum);
        }
        if flags & RDPMC == 0 {
            return None;
        }
        let unused = 64_u32.checked_sub(counter.width.load(Relaxed).into())?;
        let mask = u64::MAX.checked_shr(unused)?;
        let moved = rdpmc(counter.rdpmc.load(Relaxed)).wrapping_sub(counter.start.load(Relaxed));
        Some(sum.wrapping_add(moved & mask))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    fn page(flags: u32) -> Page {
        let page = Page {
            flags: flags.into(),
            nr: 2.into(),
            sequence: 6.into(),
            ..Page::default()
        };
        for (counter, pmd) in page.counters.iter().zip([17_u16, 3]) {
            counter.pmd.store(pmd, Relaxed);
            counter.width.store(48, Relaxed);
            counter.rdpmc.store(u32::from(pmd) + 100, Relaxed);
            counter.sum.store(1000 * u64::from(pmd), Relaxed);
            counter.start.store((1 << 48) - 5, Relaxed);
        }
        page
    }

    fn never(_: u32) -> u64 {
        panic!("RDPMC")
    }

    #[test]
    fn r1_18_a_counter_is_its_sum_and_what_moved_since() {
        let page = page(COUNTING | RDPMC);
        // It went past its 48 bits, and shows a 49th.
        let value = page.read(3, |number| {
            assert_eq!(number, 103);
            1 << 48 | 7
        });
        assert_eq!(value, Some(3012));
        assert_eq!(page.read(17, |n| u64::from(n) - 117), Some(17_005));
    }

    #[test]
    fn r1_18_a_stopped_counter_is_its_sum() {
        assert_eq!(page(0).read(3, never), Some(3000));
        assert_eq!(page(RDPMC).read(17, never), Some(17_000));
    }

    #[test]
    fn r1_18_what_the_page_does_not_know_is_for_the_kernel() {
        assert_eq!(page(COUNTING).read(3, never), None);
        assert_eq!(page(COUNTING | RDPMC).read(4, never), None);
        // The third has number 0, and is not in use.
        assert_eq!(page(COUNTING | RDPMC).read(0, never), None);
        let odd = page(COUNTING | RDPMC);
        odd.nr.store(33, Relaxed);
        assert_eq!(odd.read(3, never), None);
        odd.nr.store(2, Relaxed);
        for width in [0, 65, u16::MAX] {
            odd.counters[1].width.store(width, Relaxed);
            assert_eq!(odd.read(3, never), None);
        }
    }

    #[test]
    fn r1_18_a_page_that_is_being_written_is_not_used() {
        let page = page(COUNTING | RDPMC);
        page.sequence.store(7, Relaxed);
        assert_eq!(page.read(3, never), None);
    }

    #[test]
    fn r1_18_a_page_that_changed_meanwhile_is_looked_at_again() {
        let page = page(COUNTING | RDPMC);
        let looks = Cell::new(0);
        let value = page.read(3, |_| {
            looks.set(looks.get() + 1);
            if looks.get() < 3 {
                // A switch: the sum is of now, the counter begins anew.
                page.counters[1].sum.store(50_000, Relaxed);
                page.counters[1].start.store(0, Relaxed);
                page.sequence.fetch_add(2, Relaxed);
            }
            9
        });
        assert_eq!((value, looks.get()), (Some(50_009), 3));
        assert_eq!(
            page.read(3, |_| u64::from(page.sequence.fetch_add(2, Relaxed))),
            None
        );
    }

    #[test]
    fn r1_18_another_version_is_not_known() {
        let page = page(0);
        assert!(!page.is_known());
        page.version.store(VERSION, Relaxed);
        assert!(!page.is_known());
        page.size.store(size_of::<Page>() as u32, Relaxed);
        assert!(page.is_known());
        page.version.store(VERSION + 1, Relaxed);
        assert!(!page.is_known());
    }
}
