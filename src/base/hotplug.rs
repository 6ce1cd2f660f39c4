// SPDX-License-Identifier: GPL-2.0

//! Registration of CPU hotplug callbacks.

use core::marker::PhantomData;

use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::ffi::{c_int, c_uint};
use kernel::str::{CStr, CStrExt as _};

/// Callbacks for CPUs that come online or go offline.
///
/// The kernel calls the [`online`](Self::online) functions of several registrations in the order in
/// which they were registered, and the [`offline`](Self::offline) functions in reverse order.
pub trait OnlineCallbacks {
    /// The name of the hotplug state.
    const NAME: &'static CStr;

    /// Called on each CPU that comes online.
    fn online(cpu: u32);

    /// Called on a CPU before the CPU goes offline.
    fn offline(cpu: u32);
}

/// A callback for a CPU that is no longer online.
pub trait DeadCallback {
    /// The name of the hotplug state.
    const NAME: &'static CStr;

    /// Called on another CPU after `cpu` has gone offline.
    fn on_cpu_dead(cpu: u32);
}

/// # Safety
///
/// Called only by the kernel, as a hotplug callback on CPU `cpu`.
unsafe extern "C" fn online<T: OnlineCallbacks>(cpu: c_uint) -> c_int {
    T::online(cpu);
    0
}

/// # Safety
///
/// Called only by the kernel, as a hotplug callback on CPU `cpu`.
unsafe extern "C" fn offline<T: OnlineCallbacks>(cpu: c_uint) -> c_int {
    T::offline(cpu);
    0
}

/// # Safety
///
/// Called only by the kernel, as a hotplug callback, when `cpu` runs no code.
unsafe extern "C" fn on_cpu_dead<T: DeadCallback>(cpu: c_uint) -> c_int {
    T::on_cpu_dead(cpu);
    0
}

/// The registered hotplug callbacks `T`. Dropping this value removes the callbacks, without calling
/// them.
///
/// # Invariants
///
/// `state` is a dynamic hotplug state that is registered.
pub struct HotplugRegistration<T> {
    state: c_int,
    _callbacks: PhantomData<T>,
}

impl<T: OnlineCallbacks> HotplugRegistration<T> {
    /// Registers the callbacks. [`OnlineCallbacks::online`] is called for each CPU that is online
    /// already. May sleep.
    pub fn register() -> Result<Self> {
        // SAFETY: The callbacks are functions of this module, and drop removes them.
        let state = unsafe {
            bindings::__cpuhp_setup_state(
                bindings::cpuhp_state_CPUHP_AP_ONLINE_DYN,
                T::NAME.as_char_ptr(),
                true,
                Some(online::<T>),
                Some(offline::<T>),
                false,
            )
        };
        to_result(state)?;
        // INVARIANT: The state was just registered.
        Ok(Self {
            state,
            _callbacks: PhantomData,
        })
    }
}

impl<T: DeadCallback> HotplugRegistration<T> {
    /// Registers the callback. May sleep.
    pub fn register_dead_callback() -> Result<Self> {
        // SAFETY: The callback is a function of this module, and drop removes it.
        let state = unsafe {
            bindings::__cpuhp_setup_state(
                bindings::cpuhp_state_CPUHP_BP_PREPARE_DYN,
                T::NAME.as_char_ptr(),
                false,
                None,
                Some(on_cpu_dead::<T>),
                false,
            )
        };
        to_result(state)?;
        // INVARIANT: The state was just registered.
        Ok(Self {
            state,
            _callbacks: PhantomData,
        })
    }
}

impl<T> Drop for HotplugRegistration<T> {
    fn drop(&mut self) {
        // SAFETY: The state is registered by the type's invariant, and removed once.
        unsafe { bindings::__cpuhp_remove_state(self.state, false) }
    }
}
