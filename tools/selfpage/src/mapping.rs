// SPDX-License-Identifier: GPL-2.0

//! The page of a context, mapped.
#![expect(unsafe_code, reason = "mmap, errno")]

use core::ffi::c_int;
use core::mem::forget;
use core::ops::Deref;
use core::ptr::{null_mut, NonNull};

use libc::{mmap, munmap, MAP_SHARED, PROT_READ};

use crate::page::{Page, BYTES, OFFSET};

/// The page of a context, unmapped when dropped.
///
/// # Invariants
///
/// `at` is a live mapping of [`BYTES`], which nothing else unmaps.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<Page>,
}

impl Mapping {
    /// Maps the page of the context with that descriptor; or says the errno:
    /// EPROTO if the kernel lays it out in another version than [`VERSION`].
    ///
    /// [`VERSION`]: crate::VERSION
    pub fn new(context: c_int) -> Result<Self, c_int> {
        // SAFETY: No address is asked for, so no existing memory is touched.
        let at = unsafe { mmap(null_mut(), BYTES, PROT_READ, MAP_SHARED, context, OFFSET) };
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

    /// For C, to be given back to [`from_raw`](Self::from_raw).
    pub fn into_raw(self) -> NonNull<Page> {
        let at = self.at;
        forget(self);
        at
    }

    /// From C.
    ///
    /// # Safety
    ///
    /// `at` is of [`into_raw`](Self::into_raw), and no other copy of it is used.
    pub unsafe fn from_raw(at: NonNull<Page>) -> Self {
        // INVARIANT: By the caller's word.
        Self { at }
    }
}

// SAFETY: It is memory of the process, only read, and nothing but atomics.
unsafe impl Send for Mapping {}

impl Deref for Mapping {
    type Target = Page;

    fn deref(&self) -> &Page {
        // SAFETY: By the invariant. The kernel writes it meanwhile, and a page is
        // nothing but atomics.
        unsafe { self.at.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: By the invariant; no reference to it outlives `self`.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), BYTES) };
    }
}
