// SPDX-License-Identifier: GPL-2.0

//! A page that traced processes map.

#![expect(unsafe_code, reason = "memory that user space maps")]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use kernel::alloc::Flags;
use kernel::bindings;
use kernel::prelude::*;

use crate::helpers;

/// Size of a page in bytes.
pub(crate) const PAGE_SIZE: usize = protocols::PAGE_SIZE;

/// GFP flags for code that can run in a page fault of a traced process: if memory is short, the
/// allocation fails, and the OOM killer is not invoked.
// SAFETY: `Flags` has one field, a `u32` of any value, and `transmute` checks the size.
pub(crate) const GFP_NO_OOM: Flags =
    unsafe { core::mem::transmute::<u32, Flags>(helpers::pt_gfp_no_oom) };

/// A page that can be mapped into user space.
///
/// # Invariants
///
/// The pointer is the address of a whole page in the direct map, and `self` holds a reference to
/// the page. Each mapping of the page holds a separate reference.
pub(crate) struct Page(NonNull<u8>);

// SAFETY: The page's memory is accessed by aligned atomic words only, or through `&mut self`.
unsafe impl Send for Page {}
// SAFETY: The page's memory is accessed by aligned atomic words only, or through `&mut self`.
unsafe impl Sync for Page {}

impl Page {
    /// Allocates a zeroed page, charged to the caller's control group. Returns `ENOMEM` if memory
    /// is short. May sleep.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: `pt_page_new()` may sleep in the allocation, because the caller is in process
        // context.
        let address = unsafe { helpers::pt_page_new() };
        // INVARIANT: The page was just allocated, with one reference, which `self` takes over.
        Ok(Self(NonNull::new(address as *mut u8).ok_or(ENOMEM)?))
    }

    /// Creates a `Page` from the address of a page.
    ///
    /// # Safety
    ///
    /// The address is that of a whole page in the direct map. The caller passes a reference to the
    /// page to the new `Page`.
    pub(crate) unsafe fn from_address(address: NonNull<u8>) -> Self {
        // INVARIANT: The caller guarantees the address and the reference.
        Self(address)
    }

    /// Returns the address of the page in the direct map.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// Stores `value` in the 32-bit word with index `word`, with release semantics: a reader that
    /// sees the new value sees all earlier stores. Does nothing if `word` is beyond the end of the
    /// page.
    pub(crate) fn store_word_release(&self, word: usize, value: u32) {
        if word < PAGE_SIZE / 4 {
            // SAFETY: The word is within the page and aligned, and shared words are accessed
            // atomically only.
            let word = unsafe { AtomicU32::from_ptr(self.0.as_ptr().cast::<u32>().add(word)) };
            // Release: pairs with the ordered loads in a traced process. The process loads the
            // words in the reverse order of the stores: first the word that is stored last.
            word.store(value, Ordering::Release);
        }
    }

    /// Returns the 32-bit word with index `word`, or 0 if `word` is beyond the end of the page.
    pub(crate) fn load_word(&self, word: usize) -> u32 {
        if word >= PAGE_SIZE / 4 {
            return 0;
        }
        // SAFETY: The word is within the page and aligned, and shared words are accessed atomically
        // only.
        let word = unsafe { AtomicU32::from_ptr(self.0.as_ptr().cast::<u32>().add(word)) };
        word.load(Ordering::Relaxed)
    }

    /// Copies `bytes` to the beginning of the page. The page must not be mapped yet.
    pub(crate) fn copy_to_start(&mut self, bytes: &[u8]) {
        // SAFETY: At most a page is copied. `&mut self` excludes other accesses by the kernel, and
        // the page is not mapped yet.
        unsafe {
            core::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.0.as_ptr(),
                bytes.len().min(PAGE_SIZE),
            )
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` holds a reference to the page. The page is freed
        // with its last reference.
        unsafe { bindings::free_pages(self.address(), 0) }
    }
}
