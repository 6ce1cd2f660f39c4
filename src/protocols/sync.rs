// SPDX-License-Identifier: GPL-2.0

//! [`Word`]: a 64-bit word shared with another CPU or with user space, and the fences that the
//! protocols use. Only this file selects the implementation of `Word`: the atomics of `core`, or
//! the atomics of loom in tests that check the protocols.

// The kernel build also uses the atomics of `core`, and not the atomics of the `kernel` crate. If
// gcc compiles the kernel, each atomic operation of the `kernel` crate is a call of a function,
// which executes the same instructions as the inlined operation of `core`. No C code of the kernel
// accesses a `Word`. Loom checks the orderings of Rust's memory model.
mod world {
    #[cfg(not(loom))]
    use core::sync::atomic::{compiler_fence, fence, AtomicU64, Ordering};
    // Under loom an interrupt is a thread, for which a compiler barrier has no effect.
    #[cfg(loom)]
    use loom::sync::atomic::{fence, fence as compiler_fence, AtomicU64, Ordering};

    pub(super) type Inner = AtomicU64;

    #[inline(always)]
    pub(super) fn load_relaxed(w: &Inner) -> u64 {
        w.load(Ordering::Relaxed)
    }
    #[inline(always)]
    pub(super) fn load_acquire(w: &Inner) -> u64 {
        // Use a relaxed load and a fence, because Rust allows only relaxed loads of memory that is
        // mapped read-only.
        let v = w.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        v
    }
    #[inline(always)]
    pub(super) fn store_relaxed(w: &Inner, v: u64) {
        w.store(v, Ordering::Relaxed)
    }
    #[inline(always)]
    pub(super) fn store_release(w: &Inner, v: u64) {
        w.store(v, Ordering::Release)
    }
    #[inline(always)]
    pub(super) fn cmpxchg_release(w: &Inner, old: u64, new: u64) -> bool {
        w.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }
    #[inline(always)]
    pub(super) fn fence_acquire() {
        fence(Ordering::Acquire)
    }
    #[inline(always)]
    pub(super) fn fence_release() {
        fence(Ordering::Release)
    }
    #[inline(always)]
    pub(super) fn barrier() {
        compiler_fence(Ordering::SeqCst)
    }
}

/// A 64-bit word that other CPUs or processes read or write at the same time.
///
/// Except under loom, a `Word` has the size and alignment of a `u64`, so it can be overlaid on
/// mapped memory. Under loom a `Word` is an object of the model, and cannot be overlaid on memory.
#[cfg_attr(not(loom), repr(transparent))]
pub struct Word(world::Inner);

impl Word {
    /// Creates a word with an initial value.
    pub fn new(value: u64) -> Self {
        Self(world::Inner::new(value))
    }

    /// If the value of the word is `old`, stores `new` and returns true. If the value is not `old`,
    /// leaves the word unchanged and returns false. Release ordering: accesses before the call are
    /// not reordered after the call.
    #[inline(always)]
    pub fn try_cmpxchg_release(&self, old: u64, new: u64) -> bool {
        world::cmpxchg_release(&self.0, old, new)
    }

    /// Loads the word without ordering other accesses. The load is not split into smaller loads.
    #[inline(always)]
    pub fn load_relaxed(&self) -> u64 {
        world::load_relaxed(&self.0)
    }

    /// Loads the word with acquire ordering: later loads and stores are not reordered before this
    /// load.
    #[inline(always)]
    pub fn load_acquire(&self) -> u64 {
        world::load_acquire(&self.0)
    }

    /// Stores a value without ordering other accesses. The store is not split into smaller stores.
    #[inline(always)]
    pub fn store_relaxed(&self, value: u64) {
        world::store_relaxed(&self.0, value)
    }

    /// Stores a value with release ordering: earlier loads and stores are not reordered after this
    /// store.
    #[inline(always)]
    pub fn store_release(&self, value: u64) {
        world::store_release(&self.0, value)
    }
}

impl Default for Word {
    fn default() -> Self {
        Self::new(0)
    }
}

/// Orders earlier loads before later loads and stores.
#[inline(always)]
pub fn fence_acquire() {
    world::fence_acquire()
}

/// Orders earlier loads and stores before later stores.
#[inline(always)]
pub fn fence_release() {
    world::fence_release()
}

/// Keeps the compiler from moving loads and stores across this call, like the kernel's `barrier()`.
/// Orders accesses for interrupts on the same CPU only.
#[inline(always)]
pub fn barrier() {
    world::barrier()
}
