// SPDX-License-Identifier: GPL-2.0

//! Which CPUs there are, and word of those that come and go.

use kernel::bindings;
use kernel::error::{from_result, to_result, Result};
use kernel::ffi::{c_int, c_uint};
use kernel::str::CStrExt as _;

/// CPU blocks in a chunk: one more than the highest possible CPU's number.
pub(crate) fn nr_cpu_ids() -> u32 {
    // SAFETY: Constant after boot.
    unsafe { bindings::nr_cpu_ids }
}

/// Can this CPU ever exist?
pub(crate) fn is_possible(cpu: u32) -> bool {
    if cpu >= nr_cpu_ids() {
        return false;
    }
    let bits = (&raw const bindings::__cpu_possible_mask).cast::<u64>();
    // SAFETY: The mask has a bit for each number below nr_cpu_ids and does not
    // change after boot.
    let word = unsafe { bits.add((cpu / 64) as usize).read_volatile() };
    word >> (cpu % 64) & 1 != 0
}

/// All possible CPUs.
pub(crate) fn possible() -> impl Iterator<Item = u32> {
    (0..nr_cpu_ids()).filter(|cpu| is_possible(*cpu))
}

/// # Safety
///
/// Called by the kernel, as a hotplug callback.
unsafe extern "C" fn online(cpu: c_uint) -> c_int {
    from_result(|| {
        crate::costs::cpu_online(cpu);
        crate::counters::cpu_online(cpu, true);
        crate::session::cpu_online();
        crate::pmu::cpu(cpu, true);
        crate::accounting::cpu_comes(true);
        Ok(0)
    })
}

/// # Safety
///
/// Called by the kernel, as a hotplug callback.
unsafe extern "C" fn offline(cpu: c_uint) -> c_int {
    from_result(|| {
        crate::accounting::cpu_comes(false);
        crate::pmu::cpu(cpu, false);
        crate::session::cpu_offline();
        crate::counters::cpu_online(cpu, false);
        Ok(0)
    })
}

/// # Safety
///
/// Called by the kernel, as a hotplug callback, when the CPU is off.
unsafe extern "C" fn gone(cpu: c_uint) -> c_int {
    crate::accounting::cpu_is_gone(cpu);
    0
}

/// Hotplug callbacks, registered; drop removes them.
///
/// # Invariants
///
/// Both are dynamic hotplug states of ours.
pub(crate) struct Hotplug {
    state: c_int,
    gone: c_int,
}

impl Hotplug {
    /// Calls [`crate::counters::cpu_online`] for each CPU that is or comes
    /// online, and before one goes. May sleep.
    pub(crate) fn register() -> Result<Self> {
        // SAFETY: The callback lives as long as the module, and is removed in drop without a
        // last call.
        let gone = unsafe {
            bindings::__cpuhp_setup_state(
                bindings::cpuhp_state_CPUHP_BP_PREPARE_DYN,
                c"perfcounters:gone".as_char_ptr(),
                false,
                None,
                Some(gone),
                false,
            )
        };
        to_result(gone)?;
        // SAFETY: The callback lives as long as the module, and is removed in drop.
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
            // SAFETY: Just registered.
            unsafe { bindings::__cpuhp_remove_state(gone, false) }
        })?;
        // INVARIANT: just registered.
        Ok(Self { state, gone })
    }
}

impl Drop for Hotplug {
    fn drop(&mut self) {
        // SAFETY: Ours, by the type's invariant.
        unsafe {
            bindings::__cpuhp_remove_state(self.state, false);
            bindings::__cpuhp_remove_state(self.gone, false);
        }
    }
}
