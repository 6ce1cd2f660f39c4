// SPDX-License-Identifier: GPL-2.0

//! The page of a context, mapped.
#![expect(unsafe_code, reason = "mmap, errno")]

use core::ffi::c_int;
use core::mem::forget;
use core::ops::Deref;
use core::ptr::{null_mut, NonNull};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use engine::abi::PAGE_SIZE;
use engine::selfpage::{SelfPage, OFFSET, VERSION};
use libc::{mmap, munmap, off_t, MAP_SHARED, PROT_READ};

use crate::counter;

/// The page of a context, unmapped when dropped.
///
/// # Invariants
///
/// `at` is a live mapping of a self page, which nothing else unmaps.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<SelfPage>,
}

impl Mapping {
    /// Maps the page of the context with that descriptor; or says the errno:
    /// EPROTO if the kernel lays it out as this library does not know.
    pub fn new(context: c_int) -> Result<Self, c_int> {
        let offset = OFFSET as off_t;
        // SAFETY: No address is asked for, so no existing memory is touched.
        let at = unsafe {
            mmap(
                null_mut(),
                PAGE_SIZE,
                PROT_READ,
                MAP_SHARED,
                context,
                offset,
            )
        };
        if at == libc::MAP_FAILED {
            // SAFETY: It is this thread's, always there.
            return Err(unsafe { *libc::__errno_location() });
        }
        let at = NonNull::new(at.cast()).ok_or(libc::EFAULT)?;
        // INVARIANT: It was mapped just now, whole.
        let mapping = Self { at };
        match mapping.is_known() {
            true => Ok(mapping),
            false => Err(libc::EPROTO),
        }
    }

    /// `version` and `size`, with which each version begins.
    fn is_known(&self) -> bool {
        let head = self.at.cast::<[AtomicU32; 2]>();
        // SAFETY: By the invariant; a page is nothing but atomics, aligned for more.
        let [version, size] = unsafe { head.as_ref() };
        version.load(Relaxed) == VERSION && size.load(Relaxed) as usize >= size_of::<SelfPage>()
    }

    /// A PMD of the hardware: see [`counter`].
    #[inline]
    pub fn counter(&self, pmd: u16) -> Option<u64> {
        counter(self, pmd)
    }

    /// For C, to be given back to [`from_raw`](Self::from_raw).
    pub fn into_raw(self) -> NonNull<SelfPage> {
        let at = self.at;
        forget(self);
        at
    }

    /// From C.
    ///
    /// # Safety
    ///
    /// `at` is of [`into_raw`](Self::into_raw), and no other copy of it is used.
    pub unsafe fn from_raw(at: NonNull<SelfPage>) -> Self {
        // INVARIANT: By the caller's word.
        Self { at }
    }
}

// SAFETY: It is memory of the process, only read, and nothing but atomics.
unsafe impl Send for Mapping {}

impl Deref for Mapping {
    type Target = SelfPage;

    fn deref(&self) -> &SelfPage {
        // SAFETY: By the invariant. The kernel writes it meanwhile, and a page is
        // nothing but atomics.
        unsafe { self.at.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: By the invariant; no reference to it outlives `self`.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), PAGE_SIZE) };
    }
}
