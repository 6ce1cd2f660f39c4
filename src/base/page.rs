// SPDX-License-Identifier: GPL-2.0

//! Zeroed pages that user space maps read-only.

use core::mem::size_of;
use core::ptr::NonNull;

use kernel::bindings;
use kernel::page::PAGE_SIZE;

use super::helpers;

/// A page that this module owns.
///
/// # Invariants
///
/// `address` is the address of a whole page in the direct map. The page was zeroed when it was
/// allocated, and is owned until drop. The page is dropped only at module exit, when no mapping of
/// the page can be left.
pub struct Page {
    address: NonNull<u8>,
}

// SAFETY: User space only reads the page. After module init, code that writes the page holds the
// lock of the registry of counter instances.
unsafe impl Send for Page {}
// SAFETY: User space only reads the page. After module init, code that writes the page holds the
// lock of the registry of counter instances.
unsafe impl Sync for Page {}

impl Page {
    /// Allocates a zeroed page. Returns `None` if memory is short. May sleep.
    pub fn new() -> Option<Self> {
        // SAFETY: The callee may allocate, as the caller is in process context.
        let address = unsafe {
            bindings::get_free_pages_noprof(bindings::GFP_KERNEL | bindings::__GFP_ZERO, 0)
        };
        // INVARIANT: The page was just allocated, and the allocator has zeroed it.
        Some(Self {
            address: NonNull::new(address as *mut u8)?,
        })
    }

    /// Returns the pointer to the page's first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// Returns the page's address as a number, from which [`page_frame_number`] computes the page
    /// frame number.
    pub fn address(&self) -> usize {
        self.address.as_ptr() as usize
    }

    /// Writes a value at an offset in the page, by a volatile write. `offset` is a multiple of the
    /// alignment of `T`, and the value ends within the page.
    pub fn write_at<T: Copy>(&self, offset: usize, value: T) {
        debug_assert!(offset + size_of::<T>() <= PAGE_SIZE);
        // SAFETY: The offset is within the page, and callers pass the aligned offsets of fields.
        unsafe {
            self.address
                .as_ptr()
                .add(offset)
                .cast::<T>()
                .write_volatile(value)
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant the page is owned, and no longer mapped.
        unsafe { bindings::free_pages(self.address.as_ptr() as usize, 0) }
    }
}

/// Returns the page frame number of a [`Page`], given the result of [`Page::address`]. Callable in
/// any context.
pub fn page_frame_number(address: usize) -> usize {
    // SAFETY: `address` is the address of a `Page`, which is in the direct map.
    unsafe { helpers::pfc_virt_pfn(address as *const _) }
}
