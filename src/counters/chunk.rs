// SPDX-License-Identifier: GPL-2.0

//! The per-CPU memory of a chunk of counters, which has one or more whole pages for each possible
//! CPU.

#![expect(unsafe_code, reason = "per-CPU memory of counters")]

use core::ptr::NonNull;

use counters_rules::error::Error;
use kernel::bindings;
use kernel::ffi::c_void;
use protocols::PAGE_SIZE;

use crate::helpers;
use base::cpu;

/// The flag `__GFP_NORETRY`, which is missing in the kernel's Rust bindings.
const GFP_NORETRY: bindings::gfp_t = 1 << bindings::___GFP_NORETRY_BIT;

/// The pages of one chunk, zeroed when allocated.
///
/// # Invariants
///
/// `base` is a page-aligned allocation of `pages` pages of the per-CPU allocator. The chunk is
/// dropped only at module exit. At module exit no mapping of the chunk can exist, as a mapping
/// holds the device's file, and the file holds the module.
pub(crate) struct Chunk {
    base: NonNull<c_void>,
    pages: u32,
}

// SAFETY: A `Chunk` consists of an address and a number, which are not bound to a thread.
unsafe impl Send for Chunk {}

impl Chunk {
    /// Allocates a chunk. May sleep.
    ///
    /// A chunk has one or more pages for each possible CPU: several megabytes on large machines. If
    /// memory is short, perf_add() fails with one line in the kernel log, and the OOM killer is not
    /// invoked.
    pub(crate) fn new(pages: u32) -> Result<Self, Error> {
        // SAFETY: `pcpu_alloc_noprof()` may sleep in the allocation, because the caller is in
        // process context. The third parameter, `reserved`, is false.
        let base = unsafe {
            bindings::pcpu_alloc_noprof(
                pages as usize * PAGE_SIZE,
                PAGE_SIZE,
                false,
                bindings::GFP_KERNEL | GFP_NORETRY | bindings::__GFP_NOWARN,
            )
        };
        // INVARIANT: The memory was just allocated with this size and alignment.
        Ok(Self {
            base: NonNull::new(base.cast()).ok_or(Error::NoMemory)?,
            pages,
        })
    }

    /// Returns the per-CPU address of the page with index `page` in this chunk.
    pub(crate) fn page(&self, page: u32) -> usize {
        debug_assert!(page < self.pages);
        self.base.as_ptr() as usize + page as usize * PAGE_SIZE
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` owns the memory, which is no longer mapped.
        unsafe { bindings::free_percpu(self.base.as_ptr().cast()) }
    }
}

/// Sets `perf_counter_seqflag`, the per-CPU pointer with which C and Rust drivers access the
/// sequence word (seqflag) of their CPU. The seqflag is the first slot of the first chunk, which is
/// `chunk`. Called before any driver can be loaded.
pub(crate) fn set_seqflag(chunk: &Chunk) {
    // SAFETY: Only module init calls this function. No driver can use `perf_counter_seqflag` yet.
    unsafe { helpers::perf_counter_seqflag = chunk.page(0) as *mut u64 }
}

/// Returns the page frame number of a page with counters of `cpu`. `page` is the per-CPU address of
/// the page. Callable in any context.
pub(crate) fn page_frame_number(page: usize, cpu: u32) -> usize {
    // SAFETY: Every page of a chunk, such as `page`, has a copy for each possible CPU, and the
    // caller has checked that `cpu` is possible.
    unsafe { helpers::pfc_percpu_pfn(page as *mut c_void, cpu) }
}

/// Sets the value of a slot on `cpu` to zero. `address` is the slot's per-CPU address. No update of
/// the slot is running: its instance is not live, and the registry has waited for all updates that
/// began while the instance was live.
pub(crate) fn zero(address: usize, cpu: u32) {
    let slot = cpu::word_address_on_cpu(address as *mut i64, cpu);
    // SAFETY: The slot is within a chunk, and its CPU is possible. The access is volatile, as user
    // space may read the slot at the same time.
    unsafe { slot.write_volatile(0) }
}
