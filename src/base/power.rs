// SPDX-License-Identifier: GPL-2.0

//! Callbacks of suspend and resume.

use core::marker::PhantomData;
use core::ptr::NonNull;

use kernel::error::Result;
use kernel::prelude::*;

use super::helpers;

/// Callbacks of suspend and resume.
///
/// The kernel calls the [`resume`](Self::resume) functions of several registrations in the order in
/// which they were registered, and the [`suspend`](Self::suspend) functions in reverse order.
pub trait PowerCallbacks {
    /// Called before the machine suspends, on the last online CPU, with interrupts off.
    fn suspend();

    /// Called when the machine resumes, on the first online CPU, with interrupts off.
    fn resume();
}

/// # Safety
///
/// Called only by `helpers/power.c`, on the only CPU that is online, with interrupts off.
unsafe extern "C" fn suspend_or_resume<T: PowerCallbacks>(suspend: bool) {
    match suspend {
        true => T::suspend(),
        false => T::resume(),
    }
}

/// The registered suspend and resume callbacks `T`. Dropping this value unregisters them.
///
/// # Invariants
///
/// `raw` is a registration that `self` owns.
pub struct PowerRegistration<T> {
    raw: NonNull<helpers::pfc_power_registration>,
    _callbacks: PhantomData<T>,
}

// SAFETY: The registration is only used to unregister the callbacks, which any thread may do.
unsafe impl<T> Send for PowerRegistration<T> {}
// SAFETY: A shared reference to a `PowerRegistration` gives no access to `raw`.
unsafe impl<T> Sync for PowerRegistration<T> {}

impl<T: PowerCallbacks> PowerRegistration<T> {
    /// Registers the callbacks. Returns `ENOMEM` if memory is short. May sleep.
    pub fn register() -> Result<Self> {
        // SAFETY: `suspend_or_resume` is a function of this module, and drop unregisters it.
        let raw = unsafe { helpers::pfc_power_register(Some(suspend_or_resume::<T>)) };
        // INVARIANT: The callbacks were just registered.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            _callbacks: PhantomData,
        })
    }
}

impl<T> Drop for PowerRegistration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `raw` is registered; it is unregistered once.
        unsafe { helpers::pfc_power_unregister(self.raw.as_ptr()) }
    }
}
