// SPDX-License-Identifier: GPL-2.0

//! A lock that is taken with interrupts off, so that the scheduler's probes can
//! take it too. Never held around a wakeup, an allocation or user memory.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use kernel::bindings;
use kernel::prelude::*;
use kernel::types::Opaque;

use super::shim;

/// A value behind such a lock.
///
/// # Invariants
///
/// `lock` is initialised, and guards `value`.
#[pin_data]
pub(crate) struct RawLock<T> {
    #[pin]
    lock: Opaque<bindings::raw_spinlock_t>,
    value: UnsafeCell<T>,
}

// SAFETY: The value is reached under the lock only.
unsafe impl<T: Send> Send for RawLock<T> {}
// SAFETY: The value is reached under the lock only.
unsafe impl<T: Send> Sync for RawLock<T> {}

impl<T> RawLock<T> {
    /// A lock around what `value` makes.
    pub(crate) fn new(value: impl Init<T>) -> impl PinInit<Self> {
        pin_init!(Self {
            lock <- Opaque::ffi_init(|lock| {
                // SAFETY: Being initialised; pinned by the type.
                unsafe { shim::pfm_lock_init(lock) }
            }),
            value <- init::cell(value),
        })
    }

    /// Takes it, with interrupts off until the guard goes.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        // SAFETY: Initialised, by the type's invariant.
        let flags = unsafe { bindings::_raw_spin_lock_irqsave(self.lock.get()) };
        // INVARIANT: just taken.
        Guard { lock: self, flags }
    }
}

impl<T> RawLock<T> {
    /// Takes it in an NMI, where interrupts are off and nobody may be waited for.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        // SAFETY: Initialised, by the type's invariant.
        let got = unsafe { bindings::_raw_spin_trylock(self.lock.get()) } != 0;
        // INVARIANT: just taken.
        got.then(|| Guard {
            lock: self,
            flags: AS_THEY_ARE,
        })
    }
}

/// No flags, which have a bit that is always set.
const AS_THEY_ARE: usize = 0;

/// The lock, held.
///
/// # Invariants
///
/// This CPU holds `lock`, with interrupts off; `flags` are those to go back to.
pub(crate) struct Guard<'a, T> {
    lock: &'a RawLock<T>,
    flags: usize,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: Held, by the type's invariant.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: Held, by the type's invariant, and by this guard alone.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let lock = self.lock.lock.get();
        match self.flags {
            // SAFETY: Held, by the type's invariant.
            AS_THEY_ARE => unsafe { bindings::_raw_spin_unlock(lock) },
            // SAFETY: Held, by the type's invariant; the flags are those that taking it gave.
            flags => unsafe { bindings::_raw_spin_unlock_irqrestore(lock, flags) },
        }
    }
}

mod init {
    use core::cell::UnsafeCell;
    use kernel::prelude::*;

    /// `value` inside a cell, in place: some are too large for the stack.
    pub(super) fn cell<T>(value: impl Init<T>) -> impl Init<UnsafeCell<T>> {
        // SAFETY: A cell has its content's layout, and the content is
        // initialised if and only if this says so.
        unsafe {
            pin_init::init_from_closure(move |slot: *mut UnsafeCell<T>| {
                value.__init(slot.cast::<T>())
            })
        }
    }
}
