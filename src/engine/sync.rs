// SPDX-License-Identifier: GPL-2.0

//! One 64-bit word shared with another CPU or with user space, and the two
//! fences that the protocols use. The only file that knows two worlds apart: the
//! processor's atomics, and loom's.

// In the kernel, too, these are Rust's own: the kernel crate's are a call each where the
// rest is compiled by gcc, and its loads and stores are the same instructions. No word is
// ever touched by C; the models under loom have these orderings.
mod world {
    #[cfg(not(loom))]
    use core::sync::atomic::{fence, AtomicU64, Ordering};
    #[cfg(loom)]
    use loom::sync::atomic::{fence, AtomicU64, Ordering};

    pub(super) type Inner = AtomicU64;

    #[inline(always)]
    pub(super) fn load_relaxed(w: &Inner) -> u64 {
        w.load(Ordering::Relaxed)
    }
    #[inline(always)]
    pub(super) fn load_acquire(w: &Inner) -> u64 {
        // Of memory mapped read-only, Rust only allows relaxed loads.
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
    pub(super) fn replace(w: &Inner, old: u64, new: u64) -> bool {
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
}

/// A 64-bit word that others read or write at the same time.
///
/// In the kernel and on the host it has the size and alignment of a `u64`, so
/// it may be laid over mapped memory; under loom it is a model and may not.
#[cfg_attr(not(loom), repr(transparent))]
pub struct Word(world::Inner);

impl Word {
    /// A word of one's own.
    pub fn new(value: u64) -> Self {
        Self(world::Inner::new(value))
    }

    /// Another value, if it still is the old one: did it change? Earlier accesses do not
    /// pass it.
    #[inline(always)]
    pub fn replace(&self, old: u64, new: u64) -> bool {
        world::replace(&self.0, old, new)
    }

    /// A load that only never tears.
    #[inline(always)]
    pub fn load_relaxed(&self) -> u64 {
        world::load_relaxed(&self.0)
    }

    /// A load that later loads do not pass.
    #[inline(always)]
    pub fn load_acquire(&self) -> u64 {
        world::load_acquire(&self.0)
    }

    /// A store that only never tears.
    #[inline(always)]
    pub fn store_relaxed(&self, value: u64) {
        world::store_relaxed(&self.0, value)
    }

    /// A store that earlier accesses do not pass.
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

/// Earlier loads are done before later loads (and, on the host, stores).
#[inline(always)]
pub fn fence_acquire() {
    world::fence_acquire()
}

/// Earlier stores are done before later stores.
#[inline(always)]
pub fn fence_release() {
    world::fence_release()
}
