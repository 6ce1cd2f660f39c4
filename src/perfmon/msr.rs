// SPDX-License-Identifier: GPL-2.0

//! Access to the MSRs and counters of this CPU.
//!
//! Callers pass only addresses that a registered PMU description contains, and only values that the
//! description allows. Callers write only while this module has reserved the PMU
//! (`crate::session`). CPUs of one machine may have different registers. An access to a
//! register that this CPU lacks is harmless: each access has an entry in the exception table, and
//! tells the caller that the register is missing.
//!
//! Context: any. If the access must be made on a certain CPU, the caller runs there with interrupts
//! off.

#![expect(unsafe_code, reason = "access to MSRs")]

use core::arch::asm;

use kernel::error::to_result;
use kernel::prelude::*;

use crate::helpers;

/// Type of the exception-table entries of `guarded!`: `EX_TYPE_IMM_REG` sets register cx to all
/// ones, which is not the number of any MSR or counter. `src/perfmon/helpers/pmu.c` compares this
/// value with the kernel's definitions.
const EXTABLE_TYPE: u32 = 17 | 1 << 8 | 0xffff << 16;

/// Assembles an instruction that takes a register's number in ecx, with an entry in the exception
/// table. If the register does not exist, the instruction faults and ecx is all ones.
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
            what = const EXTABLE_TYPE,
            inout("ecx") $number => $seen,
            $($operands)*
        )
    };
}

/// Writes an MSR. Returns false if the MSR does not exist or does not accept the value.
#[inline]
pub(crate) fn write(address: u64, value: u64) -> bool {
    let number = address as u32;
    let seen: u32;
    // SAFETY: By the module documentation of this file, callers pass only a register and a value
    // that the PMU description allows. After a fault, execution continues after the instruction,
    // and only ecx has changed.
    unsafe {
        guarded!("wrmsr", number, seen,
            in("eax") value as u32,
            in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags))
    }
    seen == number
}

/// Returns whether this CPU has the MSR.
pub(crate) fn msr_exists(address: u64) -> bool {
    // SAFETY: `pfm_msr_exists()` reads the MSR by an instruction that has an entry in the exception
    // table. Reading a register of a PMU description has no side effect.
    unsafe { helpers::pfm_msr_exists(address as u32) }
}

/// Reads an MSR that is not a counter. Returns 0 if the MSR does not exist.
#[inline]
pub(crate) fn read(address: u64) -> u64 {
    let number = address as u32;
    let (low, high, seen): (u32, u32, u32);
    // SAFETY: Reading a register of a PMU description has no side effect. After a fault, execution
    // continues after the instruction, and only ecx has changed.
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

/// Reads the counter with RDPMC number `rdpmc`. Returns `None` if this CPU has no such counter.
#[inline]
pub(crate) fn read_counter(rdpmc: u32) -> Option<u64> {
    let (low, high, seen): (u32, u32, u32);
    // SAFETY: Reading a counter has no side effect. After a fault, execution continues after the
    // instruction, and only ecx has changed.
    unsafe {
        guarded!("rdpmc", rdpmc, seen,
            out("eax") low,
            out("edx") high,
            options(nostack, preserves_flags))
    }
    (seen == rdpmc).then_some(u64::from(high) << 32 | u64::from(low))
}

/// Logs that this CPU lacks registers that a context uses, and that the context therefore ends.
/// Called with interrupts off, not in an NMI, and without a context's lock, because printk may wake
/// tasks.
pub(crate) fn log_register_fault() {
    // SAFETY: `pfm_log_register_fault()` only reads the CPU's number and prints, as is allowed with
    // interrupts off, outside NMIs and without a context's lock.
    unsafe { helpers::pfm_log_register_fault() }
}

/// Returns whether user code on this CPU may execute RDPMC (CR4.PCE). Called with preemption off.
#[inline]
pub(crate) fn is_rdpmc_enabled() -> bool {
    const CR4_PCE: u64 = 1 << 8;
    let cr4: u64;
    // SAFETY: The kernel may read CR4, which has no side effects.
    unsafe { asm!("mov {}, cr4", out(reg) cr4, options(nostack, nomem, preserves_flags)) }
    cr4 & CR4_PCE != 0
}

/// Returns whether the counter with MSR address `counter` keeps, on this CPU, a value that is
/// written to it. `_reserved` must contain the control register of the counter, so that perf does
/// not use the counter at the same time.
pub(crate) fn counter_keeps_value(counter: u64, _reserved: &ReservedMsrs) -> bool {
    // SAFETY: The counter's control register is reserved, so that nothing else uses the counter.
    unsafe { helpers::pfm_msr_keeps_value(counter as u32) }
}

/// Makes perf clear now, on a CPU, the counters that it has used ("dirty" counters).
///
/// perf marks the counters that it has used as dirty. When a CPU switches to an address space that
/// may use RDPMC, perf clears the dirty counters, even those that a context of this module uses
/// now. To clear the dirty counters before a CPU's context uses its first hardware registers, this
/// function makes a worker switch address spaces on that CPU. A thread's context does not need this
/// function, because a thread's context is never in the PMU at a switch of address spaces.
///
/// Context: process context; may sleep.
///
/// # Errors
///
/// `EBUSY` if the worker did not run within 100 ms, `ENOMEM`.
pub(crate) fn flush_perf_dirty_counters(cpu: u32) -> Result {
    // SAFETY: The caller is in process context, as `pfm_flush_perf_dirty_counters()` requires. The
    // function accepts any number.
    to_result(unsafe { helpers::pfm_flush_perf_dirty_counters(cpu) })
}

/// Control registers of counters that are reserved for this module, so that perf and the NMI
/// watchdog cannot use them.
///
/// # Invariants
///
/// Each register in `msrs` is reserved, and `self` releases it.
pub(crate) struct ReservedMsrs {
    msrs: kernel::alloc::KVec<u32>,
}

impl ReservedMsrs {
    /// Reserves the registers at all `addresses`, or none of them. Returns `EBUSY` if a register is
    /// reserved already, or `ENOMEM`.
    pub(crate) fn reserve(addresses: impl Iterator<Item = u64>) -> kernel::error::Result<Self> {
        let mut reserved = Self {
            msrs: kernel::alloc::KVec::new(),
        };
        for address in addresses {
            let address = address as u32;
            reserved.msrs.reserve(1, kernel::alloc::flags::GFP_KERNEL)?;
            // SAFETY: `pfm_reserve_msr()` accepts any number.
            if !unsafe { helpers::pfm_reserve_msr(address) } {
                return Err(kernel::error::code::EBUSY);
            }
            // INVARIANT: The register was just reserved. The push cannot fail, as the vector has
            // room.
            let _ = reserved
                .msrs
                .push(address, kernel::alloc::flags::GFP_KERNEL);
        }
        Ok(reserved)
    }
}

impl Drop for ReservedMsrs {
    fn drop(&mut self) {
        for address in &self.msrs {
            // SAFETY: By the type's invariant `self` has reserved the register, which is released
            // once.
            unsafe { helpers::pfm_release_msr(*address) }
        }
    }
}
