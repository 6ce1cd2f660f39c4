// SPDX-License-Identifier: GPL-2.0

//! Memory of a chunk: page-aligned, for every possible CPU.

use core::ptr::NonNull;

use engine::abi::PAGE_SIZE;
use engine::error::Error;
use kernel::bindings;
use kernel::ffi::c_void;

use super::{cpu, shim};

/// `__GFP_NORETRY`, a macro that bindings have no constant for.
const NO_RETRY: bindings::gfp_t = 1 << bindings::___GFP_NORETRY_BIT;

/// The pages of one chunk, zero at first.
///
/// # Invariants
///
/// `base` is a page-aligned allocation of the per-CPU allocator of `pages`
/// pages. It is dropped only at module exit, when no mapping of it can be left:
/// a mapping holds the device's file, and that holds the module.
pub(crate) struct Chunk {
    base: NonNull<c_void>,
    pages: u32,
}

// SAFETY: An address; what it points to is reached through the other functions.
unsafe impl Send for Chunk {}

impl Chunk {
    /// Allocates. May sleep.
    ///
    /// A chunk is a page of each possible CPU or more, megabytes on large
    /// machines: where they are not to be had perf_add() fails, and says so in
    /// one line, rather than that other processes are killed for them.
    pub(crate) fn new(pages: u32) -> Result<Self, Error> {
        // SAFETY: No requirements; 0 is "not reserved".
        let base = unsafe {
            bindings::pcpu_alloc_noprof(
                pages as usize * PAGE_SIZE,
                PAGE_SIZE,
                false,
                bindings::GFP_KERNEL | NO_RETRY | bindings::__GFP_NOWARN,
            )
        };
        // INVARIANT: just allocated so.
        Ok(Self {
            base: NonNull::new(base.cast()).ok_or(Error::NoMemory)?,
            pages,
        })
    }

    /// Per-CPU address of a page.
    pub(crate) fn page(&self, page: u32) -> usize {
        debug_assert!(page < self.pages);
        self.base.as_ptr() as usize + page as usize * PAGE_SIZE
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: Ours and, by the type's invariant, not mapped any more.
        unsafe { bindings::free_percpu(self.base.as_ptr().cast()) }
    }
}

/// Makes the first slot of a chunk the seqflag, for C and Rust drivers alike.
/// Before any driver can be loaded.
pub(crate) fn set_seqflag(chunk: &Chunk) {
    // SAFETY: Called from module init only; no driver can see it yet.
    unsafe { shim::perf_counter_seqflag = chunk.page(0) as *mut u64 }
}

/// Page frame of a CPU's copy of a page. Any context.
pub(crate) fn frame(page: usize, cpu: u32) -> usize {
    // SAFETY: `page` is a page of a chunk, which exists for every possible CPU;
    // the caller checked the CPU.
    unsafe { shim::pfc_percpu_pfn(page as *mut c_void, cpu) }
}

/// Adds to a slot of any CPU, which nobody else writes: readers see the value before or the
/// one after. The slot is of a live instance that the caller owns.
pub(crate) fn add_on(address: usize, cpu: u32, more: i64) {
    if !cpu::is_possible(cpu) {
        return;
    }
    let slot = slot_on(address, cpu);
    // SAFETY: A slot of a chunk, on a possible CPU; volatile for readers that look on.
    unsafe { slot.write_volatile(slot.read_volatile().wrapping_add(more)) }
}

fn slot_on(address: usize, cpu: u32) -> *mut i64 {
    // SAFETY: `cpu` is a possible CPU, of the callers, so below the array's end.
    let offset = unsafe {
        (&raw const bindings::__per_cpu_offset)
            .cast::<usize>()
            .add(cpu as usize)
            .read()
    };
    address.wrapping_add(offset) as *mut i64
}

/// Stores zero in a slot of another CPU. No update of it is running: it is not
/// live, and the registry waited for updates that saw it alive.
pub(crate) fn zero(address: usize, cpu: u32) {
    let slot = slot_on(address, cpu);
    // SAFETY: A slot of a chunk, on a possible CPU; volatile for readers that
    // look on.
    unsafe { slot.write_volatile(0) }
}
