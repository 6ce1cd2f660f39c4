// SPDX-License-Identifier: GPL-2.0

//! The mapping of a context's self page.
#![expect(unsafe_code, reason = "mmap, errno")]

use core::ffi::c_int;
use core::mem::forget;
use core::ops::Deref;
use core::ptr::{null_mut, NonNull};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use libc::{mmap, munmap, off_t, MAP_SHARED, PROT_READ};
use protocols::self_page::{SelfPage, OFFSET, VERSION};
use protocols::PAGE_SIZE;

use crate::counter;

/// The mapped self page of a context. Dropping the value unmaps the page.
///
/// # Invariants
///
/// `addr` is the address of a mapped self page that only this value unmaps.
#[derive(Debug)]
pub struct Mapping {
    addr: NonNull<SelfPage>,
}

impl Mapping {
    /// Maps the self page of the context whose file descriptor is `context`.
    ///
    /// # Errors
    ///
    /// Returns an errno: `EPROTO` if the page has a version that this crate does not support, or
    /// the errno of mmap().
    pub fn new(context: c_int) -> Result<Self, c_int> {
        let offset = OFFSET as off_t;
        // SAFETY: The kernel chooses an address that is not in use, so no existing mapping is
        // changed.
        let addr = unsafe {
            mmap(
                null_mut(),
                PAGE_SIZE,
                PROT_READ,
                MAP_SHARED,
                context,
                offset,
            )
        };
        if addr == libc::MAP_FAILED {
            // SAFETY: The C library returns the address of the calling thread's errno, which is
            // always valid.
            return Err(unsafe { *libc::__errno_location() });
        }
        let addr = NonNull::new(addr.cast()).ok_or(libc::EFAULT)?;
        // INVARIANT: mmap() mapped the page at `addr`, and no other value knows the address.
        let mapping = Self { addr };
        match mapping.is_known() {
            true => Ok(mapping),
            false => Err(libc::EPROTO),
        }
    }

    /// Returns true if this crate supports the version of the page. All versions begin with
    /// `version` and `size`.
    fn is_known(&self) -> bool {
        let head = self.addr.cast::<[AtomicU32; 2]>();
        // SAFETY: By the type's invariant a page is mapped at `addr`. Only the kernel writes to the
        // page, so the page can be read as atomics. Its alignment is more than 4 bytes.
        let [version, size] = unsafe { head.as_ref() };
        version.load(Relaxed) == VERSION && size.load(Relaxed) as usize >= size_of::<SelfPage>()
    }

    /// Returns the value of a hardware PMD, or `None` if a system call is needed; see [`counter`].
    #[inline]
    pub fn counter(&self, pmd: u16) -> Option<u64> {
        counter(self, pmd)
    }

    /// Returns the address of the page, to pass it to C code. The page stays mapped until the
    /// address is passed to [`from_raw`](Self::from_raw) and the resulting mapping is dropped.
    pub fn into_raw(self) -> NonNull<SelfPage> {
        let addr = self.addr;
        forget(self);
        addr
    }

    /// Makes a mapping from an address that [`into_raw`](Self::into_raw) returned to C.
    ///
    /// # Safety
    ///
    /// `addr` was returned by [`into_raw`](Self::into_raw), and is not used elsewhere after the
    /// call.
    pub unsafe fn from_raw(addr: NonNull<SelfPage>) -> Self {
        // INVARIANT: By the function's contract `addr` is a mapped self page, and no other value
        // unmaps it.
        Self { addr }
    }
}

// SAFETY: The mapping belongs to the process, not to a thread. The page is only read, as atomics.
unsafe impl Send for Mapping {}

impl Deref for Mapping {
    type Target = SelfPage;

    fn deref(&self) -> &SelfPage {
        // SAFETY: By the type's invariant the page is mapped. The kernel may write to the page at
        // the same time, which is sound because a `SelfPage` consists of atomics.
        unsafe { self.addr.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant only this value unmaps the page. No reference to the page
        // outlives `self`.
        let _ = unsafe { munmap(self.addr.as_ptr().cast(), PAGE_SIZE) };
    }
}
