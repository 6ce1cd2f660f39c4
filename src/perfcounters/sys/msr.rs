// SPDX-License-Identifier: GPL-2.0

//! Counters and their control registers, on this CPU.
//!
//! Callers give only addresses that a registered description has, of a PMU that
//! is held (`contexts::Session`), and only values that its masks allow. A register
//! that this CPU has not, as its processors differ, is no harm: each access has an
//! entry in the kernel's exception table, and says that it was not there.
//! Any context, with interrupts off where it matters who runs.

use core::arch::asm;

use kernel::error::to_result;
use kernel::prelude::*;

use super::shim;

/// What the kernel's handler of faults does at these instructions: `EX_TYPE_IMM_REG`, the
/// register cx, all ones, which is no register's number. `sys/shim/pmu.c` compares it with the
/// kernel's own numbers.
const NOT_THERE: u32 = 17 | 1 << 8 | 0xffff << 16;

/// Assembles an instruction that takes a register's number in ecx, with an entry in the
/// exception table: if the register is not there, ecx is all ones afterwards.
macro_rules! guarded {
    ($instruction:literal, $number:expr, $seen:ident, $($operands:tt)*) => {
        asm!(
            concat!("2: ", $instruction),
            "3:",
            ".pushsection __ex_table, \"a\"",
            ".balign 4",
            ".long 2b - .",
            ".long 3b - .",
            ".long {what}",
            ".popsection",
            what = const NOT_THERE,
            inout("ecx") $number => $seen,
            $($operands)*
        )
    };
}

/// Writes an MSR. False: there is no such register, or it does not take that value.
#[inline]
pub(crate) fn write(address: u64, value: u64) -> bool {
    let number = address as u32;
    let seen: u32;
    // SAFETY: The module's text says which registers and values callers give. A fault changes
    // ecx and goes on behind the instruction.
    unsafe {
        guarded!("wrmsr", number, seen,
            in("eax") value as u32,
            in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags))
    }
    seen == number
}

/// Has this CPU that register?
pub(crate) fn is_there(address: u64) -> bool {
    // SAFETY: It reads with an entry in the exception table; reading a register changes nothing.
    unsafe { shim::pfm_msr_exists(address as u32) }
}

/// Reads an MSR that is no counter. One that is not there reads as 0.
#[inline]
pub(crate) fn read(address: u64) -> u64 {
    let number = address as u32;
    let (low, high, seen): (u32, u32, u32);
    // SAFETY: Reading changes nothing but these registers. A fault changes ecx and goes on behind
    // the instruction.
    unsafe {
        guarded!("rdmsr", number, seen,
            out("eax") low,
            out("edx") high,
            options(nostack, preserves_flags))
    }
    match seen == number {
        true => u64::from(high) << 32 | u64::from(low),
        false => 0,
    }
}

/// Reads a counter by its number. `None`: there is none of that number.
#[inline]
pub(crate) fn read_counter(rdpmc: u32) -> Option<u64> {
    let (low, high, seen): (u32, u32, u32);
    // SAFETY: Reading changes nothing but these registers. A fault changes ecx and goes on behind
    // the instruction.
    unsafe {
        guarded!("rdpmc", rdpmc, seen,
            out("eax") low,
            out("edx") high,
            options(nostack, preserves_flags))
    }
    (seen == rdpmc).then_some(u64::from(high) << 32 | u64::from(low))
}

/// Logs that this CPU lacks registers of a context. Interrupts off, no NMI, no context's lock held:
/// printk may wake tasks.
pub(crate) fn say_fault() {
    // SAFETY: As the function's text asks.
    unsafe { shim::pfm_say_fault() }
}

/// Logs that this CPU, or every CPU (`None`), lacks registers of a context. Process context.
pub(crate) fn say_lacking(cpu: Option<u32>) {
    let cpu = cpu.and_then(|cpu| i32::try_from(cpu).ok());
    // SAFETY: As the function's text asks.
    unsafe { shim::pfm_say_lacking(cpu.unwrap_or(-1)) }
}

/// The lower half of the time stamp counter.
#[inline]
pub(crate) fn time_stamp_low() -> u32 {
    let low;
    // SAFETY: Every 64-bit x86 has it.
    unsafe { asm!("rdtsc", out("eax") low, out("edx") _, options(nostack, nomem, preserves_flags)) }
    low
}

/// The time stamp counter.
#[inline]
pub(crate) fn time_stamp() -> u64 {
    // SAFETY: Every 64-bit x86 has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Returns whether a counter of this CPU keeps a value. `_reserved` must contain its control register,
/// so that perf does not use it at the same time.
pub(crate) fn holds(counter: u64, _reserved: &Reserved) -> bool {
    // SAFETY: Its control register is reserved for us.
    unsafe { shim::pfm_msr_holds(counter as u32) }
}

/// perf remembers counters that it has used, and clears them when a thread comes that uses
/// RDPMC, whosever they are then: on this CPU, to which the caller is bound, it does so now.
/// A thread's context is never in the hardware at that moment. `EBUSY`: the CPU is too busy.
/// Process context; may sleep.
pub(crate) fn make_perf_forget() -> Result {
    // SAFETY: Process context.
    to_result(unsafe { shim::pfm_make_perf_forget() })
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
