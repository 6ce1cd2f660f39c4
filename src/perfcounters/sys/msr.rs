// SPDX-License-Identifier: GPL-2.0

//! Counters and their control registers, on this CPU.
//!
//! Callers give only addresses that a registered description has, of a PMU that
//! is held (`contexts::Session`), and only values that its masks allow: no
//! write can fault. Any context, with interrupts off where it matters who runs.

use core::arch::asm;

use super::shim;

/// Writes.
#[inline]
pub(crate) fn write(address: u64, value: u64) {
    // SAFETY: See the module.
    unsafe { shim::pfm_wrmsr(address as u32, value) }
}

/// Reads one that is no counter.
#[inline]
pub(crate) fn read(address: u64) -> u64 {
    // SAFETY: See the module.
    unsafe { shim::pfm_rdmsr(address as u32) }
}

/// Reads a counter by its number.
#[inline]
pub(crate) fn read_counter(rdpmc: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: See the module.
    unsafe {
        asm!("rdpmc", in("ecx") rdpmc, out("eax") low, out("edx") high,
            options(nostack, preserves_flags))
    }
    (u64::from(high) << 32) | u64::from(low)
}

/// The time stamp counter.
#[inline]
pub(crate) fn time_stamp() -> u64 {
    // SAFETY: Every 64-bit x86 has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Are there counters at all these addresses? If perf has their control registers
/// there are; else each must keep a value.
pub(crate) fn are_there(
    controls: impl Iterator<Item = u64>,
    mut counters: impl Iterator<Item = u64>,
) -> kernel::error::Result<bool> {
    match Reserved::all(controls) {
        // SAFETY: They are ours: nobody else counts with them meanwhile.
        Ok(_reserved) => Ok(counters.all(|c| unsafe { shim::pfm_msr_holds(c as u32) })),
        Err(error) if error == kernel::error::code::EBUSY => Ok(true),
        Err(error) => Err(error),
    }
}

/// perf remembers counters that it has used, and at some later switch clears them,
/// whosever they are then. It does so now. Process context; may sleep.
pub(crate) fn make_perf_forget() {
    // SAFETY: Process context, with an address space.
    unsafe { shim::pfm_make_perf_forget() }
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
