// SPDX-License-Identifier: GPL-2.0

//! The CPU hotplug callbacks.

use kernel::bindings;
use kernel::error::{from_result, to_result, Result};
use kernel::ffi::{c_int, c_uint};
use kernel::str::CStrExt as _;

/// Hotplug callback that runs on each CPU that comes online.
///
/// # Safety
///
/// Called only by the kernel, as a hotplug callback on that CPU.
unsafe extern "C" fn online(cpu: c_uint) -> c_int {
    from_result(|| {
        crate::costs::cpu_online(cpu);
        crate::counters::cpu_online(cpu, true);
        crate::session::cpu_online();
        crate::pmu::cpu(cpu, true);
        crate::accounting::cpu_hotplug(true);
        Ok(0)
    })
}

/// Hotplug callback that runs on a CPU before the CPU goes offline. Undoes the steps of [`online`]
/// in reverse order. The CPU's debugfs files remain.
///
/// # Safety
///
/// Called only by the kernel, as a hotplug callback on that CPU.
unsafe extern "C" fn offline(cpu: c_uint) -> c_int {
    from_result(|| {
        crate::accounting::cpu_hotplug(false);
        crate::pmu::cpu(cpu, false);
        crate::session::cpu_offline();
        crate::counters::cpu_online(cpu, false);
        Ok(0)
    })
}

/// Hotplug callback that runs on another CPU after `cpu` has gone offline.
///
/// # Safety
///
/// Called only by the kernel, as a hotplug callback, when `cpu` runs no code.
unsafe extern "C" fn dead(cpu: c_uint) -> c_int {
    crate::accounting::cpu_dead(cpu);
    0
}

/// The registered hotplug callbacks. Dropping this value removes the callbacks.
///
/// # Invariants
///
/// `state` and `dead` are dynamic hotplug states that [`register`](Self::register) has registered.
pub(crate) struct Hotplug {
    state: c_int,
    dead: c_int,
}

impl Hotplug {
    /// Registers the callbacks. [`online`] is called for each CPU that is online already. May
    /// sleep.
    pub(crate) fn register() -> Result<Self> {
        // SAFETY: The callback is a function of this module. Drop removes the callback without
        // calling it.
        let gone = unsafe {
            bindings::__cpuhp_setup_state(
                bindings::cpuhp_state_CPUHP_BP_PREPARE_DYN,
                c"perfcounters:gone".as_char_ptr(),
                false,
                None,
                Some(dead),
                false,
            )
        };
        to_result(gone)?;
        // SAFETY: The callbacks are functions of this module, and drop removes them.
        let state = unsafe {
            bindings::__cpuhp_setup_state(
                bindings::cpuhp_state_CPUHP_AP_ONLINE_DYN,
                c"perfcounters:online".as_char_ptr(),
                true,
                Some(online),
                Some(offline),
                false,
            )
        };
        to_result(state).inspect_err(|_| {
            // SAFETY: The hotplug state was just registered, and nothing else removes the state.
            unsafe { bindings::__cpuhp_remove_state(gone, false) }
        })?;
        // INVARIANT: Both states were just registered.
        Ok(Self { state, dead: gone })
    }
}

impl Drop for Hotplug {
    fn drop(&mut self) {
        // SAFETY: Both states are registered by the type's invariant, and removed once.
        unsafe {
            bindings::__cpuhp_remove_state(self.state, false);
            bindings::__cpuhp_remove_state(self.dead, false);
        }
    }
}
