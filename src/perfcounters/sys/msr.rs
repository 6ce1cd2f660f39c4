// SPDX-License-Identifier: GPL-2.0

//! Counters and their control registers, on this CPU.
//!
//! Callers give only addresses that a registered description has, of a PMU that
//! is held (`contexts::Session`), and only values that its masks allow: no
//! write can fault. Any context, with interrupts off where it matters who runs.

use super::shim;

/// Writes.
#[inline]
pub(crate) fn write(address: u64, value: u64) {
    // SAFETY: See the module.
    unsafe { shim::pfm_wrmsr(address as u32, value) }
}

/// Reads a counter by its number.
#[inline]
pub(crate) fn read_counter(rdpmc: u32) -> u64 {
    // SAFETY: See the module.
    unsafe { shim::pfm_rdpmc(rdpmc) }
}

/// The time stamp counter.
#[inline]
pub(crate) fn time_stamp() -> u64 {
    // SAFETY: Every 64-bit x86 has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Is there a counter at this address, under that control register? If perf has
/// it there is; else it must keep a value.
pub(crate) fn is_there(control: u64, counter: u64) -> kernel::error::Result<bool> {
    match Reserved::all([control].into_iter()) {
        // SAFETY: It is ours: nobody else counts with it meanwhile.
        Ok(_reserved) => Ok(unsafe { shim::pfm_msr_holds(counter as u32) }),
        Err(error) if error == kernel::error::code::EBUSY => Ok(true),
        Err(error) => Err(error),
    }
}

/// Control registers that perf and the NMI watchdog can no longer have.
///
/// # Invariants
///
/// Each of `held` is reserved for us.
pub(crate) struct Reserved {
    held: kernel::alloc::KVec<u32>,
}

impl Reserved {
    /// All of them, or `EBUSY`.
    pub(crate) fn all(addresses: impl Iterator<Item = u64>) -> kernel::error::Result<Self> {
        let mut reserved = Self {
            held: kernel::alloc::KVec::new(),
        };
        for address in addresses {
            let address = address as u32;
            reserved.held.reserve(1, kernel::alloc::flags::GFP_KERNEL)?;
            // SAFETY: Any number may be asked for.
            if !unsafe { shim::pfm_reserve(address) } {
                return Err(kernel::error::code::EBUSY);
            }
            // INVARIANT: just reserved; there is room.
            let _ = reserved
                .held
                .push(address, kernel::alloc::flags::GFP_KERNEL);
        }
        Ok(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        for address in &self.held {
            // SAFETY: Reserved for us, by the type's invariant.
            unsafe { shim::pfm_release(*address) }
        }
    }
}
