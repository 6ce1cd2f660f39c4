// SPDX-License-Identifier: GPL-2.0

//! Reads the counters of the `/dev/perfmon` context of the calling thread without a system call,
//! from the self page of the context.
//!
//! ```no_run
//! # use std::os::fd::AsRawFd;
//! # fn read_pmds(_: u16) -> u64 { 0 }
//! # let context = std::fs::File::open("/dev/perfmon")?;
//! let page = perfmon::selfpage::SelfPageMapping::new(context.as_raw_fd())
//!     .map_err(std::io::Error::from_raw_os_error)?;
//! // If the page does not have the value, ask the kernel.
//! let instructions = page.counter(0).unwrap_or_else(|| read_pmds(0));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The crate `protocols` has the protocol and its memory barriers ([`SelfPage::read_pmd`]). The
//! file `rdpmc.rs` has the RDPMC instruction and the thread pointer.
#![expect(unsafe_code, reason = "the address of a mapping that C code has kept")]

mod rdpmc;

use core::ffi::c_int;
use core::hint::spin_loop;
use core::ops::Deref;
use core::ptr::NonNull;

pub use protocols::self_page::SelfPage;
use protocols::self_page::{SelfPageReading, SELF_PAGE_FILE_OFFSET, VERSION};
use protocols::sync::Word;
use protocols::PAGE_SIZE;
use rdpmc::{rdpmc, thread_pointer};

use crate::area::MappedArea;

/// Maximum number of attempts to read the page consistently. If all attempts fail, the caller has
/// to read the counter by a system call.
const MAX_READ_ATTEMPTS: u32 = 100;

/// Returns the value of a hardware PMD (data register of a context), or `None` if a system call is
/// needed.
///
/// A system call is needed for PMDs that the page does not show. While the context counts, a thread
/// to which the context is not attached always needs a system call.
#[inline]
pub fn read_counter(page: &SelfPage, pmd: u16) -> Option<u64> {
    read_counter_as_thread(page, pmd, thread_pointer(), rdpmc)
}

#[inline]
fn read_counter_as_thread(
    page: &SelfPage,
    pmd: u16,
    thread: u64,
    rdpmc: impl Fn(u32) -> u64,
) -> Option<u64> {
    for _ in 0..MAX_READ_ATTEMPTS {
        match page.read_pmd(pmd, thread, &rdpmc) {
            Some(SelfPageReading::Value(value)) => return Some(value),
            Some(SelfPageReading::UseSyscall) => return None,
            None => spin_loop(),
        }
    }
    None
}

/// The mapped self page of a context. Dropping a `SelfPageMapping` unmaps the self page.
#[derive(Debug)]
pub struct SelfPageMapping(MappedArea);

impl SelfPageMapping {
    /// Maps the self page of the context whose file descriptor is `context`.
    ///
    /// # Errors
    ///
    /// Returns an errno: `EPROTO` if the page has a version that this crate does not support, or
    /// the errno of mmap().
    pub fn new(context: c_int) -> Result<Self, c_int> {
        let area = MappedArea::new(context, SELF_PAGE_FILE_OFFSET, PAGE_SIZE)?;
        // Pages of all versions begin with the version and the size.
        let begin = area.words().first().map_or(0, Word::load_relaxed);
        match begin as u32 == VERSION && begin >> 32 >= size_of::<SelfPage>() as u64 {
            true => Ok(Self(area)),
            false => Err(libc::EPROTO),
        }
    }

    /// Returns the value of a hardware PMD, or `None` if a system call is needed; see
    /// [`read_counter`].
    #[inline]
    pub fn counter(&self, pmd: u16) -> Option<u64> {
        read_counter(self, pmd)
    }

    /// Returns the address of the page, to pass it to C code. The page stays mapped until the
    /// address is passed to [`from_raw`](Self::from_raw) and the resulting mapping is dropped.
    pub fn into_raw(self) -> NonNull<SelfPage> {
        self.0.into_raw().cast()
    }

    /// Makes a mapping from an address that [`into_raw`](Self::into_raw) returned to C.
    ///
    /// # Safety
    ///
    /// `addr` was returned by [`into_raw`](Self::into_raw), and is not used elsewhere after the
    /// call.
    pub unsafe fn from_raw(addr: NonNull<SelfPage>) -> Self {
        // SAFETY: By the function's contract `addr` is from `into_raw()` and not used elsewhere.
        // The area of a `SelfPageMapping` has one page.
        Self(unsafe { MappedArea::from_raw(addr.cast(), PAGE_SIZE) })
    }
}

impl Deref for SelfPageMapping {
    type Target = SelfPage;

    #[inline]
    fn deref(&self) -> &SelfPage {
        self.0.self_page()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;
    use protocols::self_page::{CounterState, FLAG_COUNTING, FLAG_RDPMC_ALLOWED};

    /// Returns the state of PMD 0 (data register), a counter of 48 bits with RDPMC operand 7.
    /// `value` returns the value of the PMD.
    fn counter_state(value: impl Fn() -> u64) -> impl Iterator<Item = CounterState> {
        core::iter::once_with(move || CounterState {
            pmd: 0,
            rdpmc: 7,
            mask: (1 << 48) - 1,
            start: (1 << 48) - 5,
            pmd_value: value(),
        })
    }

    /// Thread pointer of the reading thread in these tests.
    const READER_THREAD_POINTER: u64 = 0x7000;

    fn update(page: &SelfPage, flags: u32, value: impl Fn() -> u64) {
        page.update(counter_state(value), (flags, READER_THREAD_POINTER), 0, 0);
    }

    /// Reads a PMD from the page. Panics if the page requests RDPMC.
    fn read(page: &SelfPage, pmd: u16) -> Option<u64> {
        read_counter_as_thread(page, pmd, READER_THREAD_POINTER, |_| panic!("RDPMC"))
    }

    #[test]
    fn r1_18_counting_pmd_is_page_sum_plus_rdpmc_delta() {
        let page = SelfPage::new();
        update(&page, FLAG_COUNTING | FLAG_RDPMC_ALLOWED, || 3000);
        // The hardware counter has wrapped. RDPMC returns a value with bit 48 set, although the
        // counter has only 48 bits (0 to 47).
        let value = read_counter_as_thread(&page, 0, READER_THREAD_POINTER, |number| {
            assert_eq!(number, 7);
            (1 << 48) | 7
        });
        assert_eq!(value, Some(3012));
    }

    #[test]
    fn r1_18_stopped_pmd_is_page_sum_without_rdpmc() {
        let page = SelfPage::new();
        for flags in [0, FLAG_RDPMC_ALLOWED] {
            update(&page, flags, || 3000);
            assert_eq!(read(&page, 0), Some(3000));
        }
    }

    #[test]
    fn r1_18_pmd_that_the_page_lacks_needs_a_system_call() {
        let page = SelfPage::new();
        assert_eq!(read(&page, 0), None);
        update(&page, FLAG_COUNTING, || 3000);
        assert_eq!(read(&page, 0), None);
        update(&page, FLAG_COUNTING | FLAG_RDPMC_ALLOWED, || 3000);
        assert_eq!(read(&page, 256), None);
    }

    #[test]
    fn r1_18_page_gives_no_value_during_an_update() {
        let page = SelfPage::new();
        let read_during_update = || {
            assert_eq!(read(&page, 0), None);
            1
        };
        update(
            &page,
            FLAG_COUNTING | FLAG_RDPMC_ALLOWED,
            read_during_update,
        );
        assert!(read_counter_as_thread(&page, 0, READER_THREAD_POINTER, |_| 0).is_some());
    }

    #[test]
    fn r1_18_page_that_changes_during_a_read_is_read_again() {
        let page = SelfPage::new();
        let change = |sum| update(&page, FLAG_COUNTING | FLAG_RDPMC_ALLOWED, move || sum);
        change(1000);
        let tries = Cell::new(0);
        let value = read_counter_as_thread(&page, 0, READER_THREAD_POINTER, |_| {
            tries.set(tries.get() + 1);
            if tries.get() < 3 {
                change(1000 * tries.get());
            }
            (1 << 48) - 5
        });
        assert_eq!((value, tries.get()), (Some(2000), 3));
        // If the page changes at each attempt, the reader returns no value.
        let value = read_counter_as_thread(&page, 0, READER_THREAD_POINTER, |_| {
            change(1);
            0
        });
        assert_eq!(value, None);
    }
}
