// SPDX-License-Identifier: GPL-2.0

//! Locks: a raw spinlock, and mutexes in static variables, which module init initialises.
//!
//! A [`RawLock`] is taken with interrupts off, so that the probes of scheduler tracepoints can take
//! it too. Code that holds a [`RawLock`] does not wake tasks, allocate memory or access user memory.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use kernel::bindings;
use kernel::prelude::*;
use kernel::sync::lock::{GlobalLock, GlobalLockBackend};
use kernel::types::Opaque;

use super::helpers;

/// A value that is protected by a raw spinlock.
///
/// # Invariants
///
/// `lock` is initialised, and only the holder of `lock` accesses `value`.
#[pin_data]
pub struct RawLock<T> {
    #[pin]
    lock: Opaque<bindings::raw_spinlock_t>,
    value: UnsafeCell<T>,
}

// SAFETY: Threads access `value` only while they hold `lock`.
unsafe impl<T: Send> Send for RawLock<T> {}
// SAFETY: Threads access `value` only while they hold `lock`.
unsafe impl<T: Send> Sync for RawLock<T> {}

impl<T> RawLock<T> {
    /// Creates a `RawLock`. The initialiser `value` initialises the protected value.
    pub fn new(value: impl Init<T>) -> impl PinInit<Self> {
        pin_init!(Self {
            lock <- Opaque::ffi_init(|lock| {
                // SAFETY: The spinlock is being initialised in place, and `RawLock` pins it.
                unsafe { helpers::pfc_lock_init(lock) }
            }),
            value <- init::unsafe_cell(value),
        })
    }

    /// Takes the lock, and turns interrupts off until the guard is dropped.
    #[inline]
    pub fn lock(&self) -> RawLockGuard<'_, T> {
        // SAFETY: The lock is initialised, by the type's invariant.
        let flags = unsafe { bindings::_raw_spin_lock_irqsave(self.lock.get()) };
        // INVARIANT: The lock was just taken, and interrupts turned off.
        RawLockGuard { lock: self, flags }
    }
}

impl<T> RawLock<T> {
    /// Takes the lock, or returns `None` if a CPU holds it. Called in an NMI or with interrupts
    /// off. Interrupts stay off when the guard is dropped.
    #[inline]
    pub fn try_lock(&self) -> Option<RawLockGuard<'_, T>> {
        // SAFETY: The lock is initialised, by the type's invariant.
        let got = unsafe { bindings::_raw_spin_trylock(self.lock.get()) } != 0;
        // INVARIANT: The lock was just taken, and interrupts are off by the function's contract.
        got.then(|| RawLockGuard {
            lock: self,
            flags: IRQ_FLAGS_NOT_SAVED,
        })
    }
}

/// The value of [`RawLockGuard`]'s `flags` if the interrupt flags were not saved. Saved flags are
/// never 0, because bit 1 of EFLAGS is always set.
const IRQ_FLAGS_NOT_SAVED: usize = 0;

/// Guard of a [`RawLock`] that is held.
///
/// # Invariants
///
/// This CPU holds `lock`, with interrupts off. `flags` are the interrupt flags to restore, or
/// [`IRQ_FLAGS_NOT_SAVED`].
pub struct RawLockGuard<'a, T> {
    lock: &'a RawLock<T>,
    flags: usize,
}

impl<T> Deref for RawLockGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: The lock is held, by the type's invariant.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for RawLockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: The lock is held, by the type's invariant, and `&mut self` excludes other
        // accesses through the guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for RawLockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let lock = self.lock.lock.get();
        match self.flags {
            // SAFETY: The lock is held, by the type's invariant.
            IRQ_FLAGS_NOT_SAVED => unsafe { bindings::_raw_spin_unlock(lock) },
            // SAFETY: The lock is held, by the type's invariant, and `flags` is the value that was
            // returned when the lock was taken.
            flags => unsafe { bindings::_raw_spin_unlock_irqrestore(lock, flags) },
        }
    }
}

mod init {
    use core::cell::UnsafeCell;
    use kernel::prelude::*;

    /// Returns an initialiser of an `UnsafeCell`. The content is initialised in place, because some
    /// values are too large for the stack.
    pub(crate) fn unsafe_cell<T>(value: impl Init<T>) -> impl Init<UnsafeCell<T>> {
        // SAFETY: An `UnsafeCell` has the layout of its content. The content is initialised if and
        // only if the closure returns success.
        unsafe {
            pin_init::init_from_closure(move |slot: *mut UnsafeCell<T>| {
                value.__init(slot.cast::<T>())
            })
        }
    }
}

/// Declares a mutex in a static variable. Module init calls [`init_mutex`] for the mutex before any
/// code can take it.
#[macro_export]
macro_rules! global_mutex {
    {
        $(#[$meta:meta])*
        $visibility:vis static $name:ident:
            Mutex<$value:ty> = $initial:expr;
    } => {
        kernel::sync::global_lock! {
            // SAFETY: Module init initialises the mutex before a device or an exported symbol of
            // the module can be used.
            $(#[$meta])*
            $visibility unsafe(uninit) static $name:
                Mutex<$value> = $initial;
        }
    };
}

/// Initialises a mutex that [`global_mutex!`] declares. Called once for each mutex, by module init.
pub fn init_mutex<B: GlobalLockBackend>(mutex: &'static GlobalLock<B>) {
    // SAFETY: Module init calls this function once for the mutex, before any code takes the mutex.
    unsafe { mutex.init() }
}
