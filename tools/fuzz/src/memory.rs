// SPDX-License-Identifier: GPL-2.0

//! An allocator that counts the memory of each thread.
#![allow(unsafe_code, reason = "a global allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The maximum memory of a thread in bytes. An allocation that takes a thread above the maximum
/// fails. Without this limit, a faulty parser could use up the memory of the machine before the
/// fuzzer checks how much memory the parser has used.
const MAX_THREAD_BYTES: usize = 2 << 30;

thread_local! {
    /// `THREAD_LIVE_BYTES` is the number of bytes that this thread has allocated and not freed;
    /// `THREAD_PEAK_BYTES` is the maximum of `THREAD_LIVE_BYTES`. `THREAD_LIVE_BYTES` can be
    /// negative in a thread that frees memory of other threads.
    static THREAD_LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
    static THREAD_PEAK_BYTES: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which also counts the memory of each thread. A test program that calls
/// [`crate::Fuzzer::run`] uses this type as its global allocator.
#[derive(Debug)]
pub struct CountingAllocator;

/// Returns the peak of this thread's memory in bytes: the maximum, over time, of its allocated
/// bytes.
pub(crate) fn peak_thread_bytes() -> usize {
    usize::try_from(THREAD_PEAK_BYTES.get()).unwrap_or(0)
}

/// Adds `bytes` to the memory count of this thread. Returns false, and adds nothing, if the thread
/// would exceed [`MAX_THREAD_BYTES`].
fn add_to_thread_live_bytes(bytes: usize) -> bool {
    // A thread that has dropped its thread-local values can still allocate and free memory. If the
    // thread has dropped its byte count `THREAD_LIVE_BYTES`, allow the allocation without counting
    // its bytes.
    let live = THREAD_LIVE_BYTES.try_with(|live| {
        live.set(live.get().wrapping_add_unsigned(bytes));
        live.get()
    });
    let Ok(live) = live else { return true };
    let _ = THREAD_PEAK_BYTES.try_with(|peak| peak.set(peak.get().max(live)));
    let is_allowed = live <= MAX_THREAD_BYTES as isize;
    if !is_allowed {
        subtract_from_thread_live_bytes(bytes);
    }
    is_allowed
}

fn subtract_from_thread_live_bytes(bytes: usize) {
    let _ = THREAD_LIVE_BYTES.try_with(|live| live.set(live.get().wrapping_sub_unsigned(bytes)));
}

// SAFETY: All memory comes from the system's allocator, with the layout of the caller. Counting
// does not allocate memory: the thread-local values have constant initial values and need no
// destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match add_to_thread_live_bytes(layout.size()) {
            // SAFETY: The caller fulfils the contract of alloc().
            true => unsafe { System.alloc(layout) },
            false => std::ptr::null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match add_to_thread_live_bytes(layout.size()) {
            // SAFETY: The caller fulfils the contract of alloc_zeroed().
            true => unsafe { System.alloc_zeroed(layout) },
            false => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        subtract_from_thread_live_bytes(layout.size());
        // SAFETY: The system's allocator has allocated the memory at `memory` with `layout`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !add_to_thread_live_bytes(new_size) {
            return std::ptr::null_mut();
        }
        subtract_from_thread_live_bytes(layout.size());
        // SAFETY: The system's allocator has allocated the memory at `memory` with `layout`, and
        // the caller fulfils the contract of realloc().
        unsafe { System.realloc(memory, layout, new_size) }
    }
}
