// SPDX-License-Identifier: GPL-2.0

//! Functions that read CPUID, for PMU descriptions.

use core::arch::x86_64::{CpuidResult, __cpuid_count};

use kernel::bindings;
use kernel::ffi::{c_int, c_void};

use super::kernel_version::WAIT_FOR_SMP_CALL;

/// Returns the registers of a CPUID leaf, or zeros if the processor does not have this leaf.
#[inline]
pub fn read_cpuid_leaf(leaf: u32, subleaf: u32) -> CpuidResult {
    // SAFETY: Every 64-bit x86 processor has the CPUID instruction. If the leaf is beyond the
    // processor's last leaf, CPUID returns undefined values, which are replaced by zeros below.
    let (last, result) = unsafe {
        (
            __cpuid_count(leaf & 0x8000_0000, 0),
            __cpuid_count(leaf, subleaf),
        )
    };
    match last.eax {
        last if last >= leaf => result,
        _ => CpuidResult {
            eax: 0,
            ebx: 0,
            ecx: 0,
            edx: 0,
        },
    }
}

/// Returns whether the processor is hybrid (has CPUs of different core types). On each CPU of a
/// hybrid processor, bit 15 of EDX of CPUID leaf 7 is set.
#[inline]
pub fn is_hybrid_processor() -> bool {
    vendor_string() == *b"GenuineIntel" && read_cpuid_leaf(7, 0).edx >> 15 & 1 != 0
}

/// Returns the core type of this CPU, such as 0x20 (Atom) or 0x40 (Core). Returns 0 if the
/// processor is not hybrid or has no CPUID leaf 0x1a.
#[inline]
pub fn this_cpu_core_type() -> u32 {
    match is_hybrid_processor() {
        true => read_cpuid_leaf(0x1a, 0).eax >> 24,
        false => 0,
    }
}

/// Calls a function on each online CPU, one after the other, with interrupts off. Called in process
/// context.
#[inline]
pub fn call_on_each_cpu_in_turn(mut function: &mut dyn FnMut()) {
    /// # Safety
    ///
    /// `function` is an exclusive `&mut &mut dyn FnMut()`.
    #[inline]
    unsafe extern "C" fn call(function: *mut c_void) {
        // SAFETY: By the function's requirement the pointer is valid and exclusive.
        unsafe { (*function.cast::<&mut dyn FnMut()>())() }
    }
    // SAFETY: `nr_cpu_ids` is constant after boot.
    let nr = unsafe { bindings::nr_cpu_ids };
    for cpu in 0..nr {
        let function: *mut &mut dyn FnMut() = &mut function;
        // SAFETY: Because of `WAIT_FOR_SMP_CALL`, smp_call_function_single() returns after `call`
        // has run, so `function` outlives its use. If the CPU is not online,
        // smp_call_function_single() returns an error and does not call `call`.
        unsafe {
            bindings::smp_call_function_single(
                cpu as c_int,
                Some(call),
                function.cast(),
                WAIT_FOR_SMP_CALL,
            );
        }
    }
}

/// Returns the vendor string of the processor, which has twelve letters, such as "GenuineIntel".
#[inline]
pub fn vendor_string() -> [u8; 12] {
    let leaf = read_cpuid_leaf(0, 0);
    let mut letters = [0; 12];
    for (to, word) in letters
        .chunks_exact_mut(4)
        .zip([leaf.ebx, leaf.edx, leaf.ecx])
    {
        to.copy_from_slice(&word.to_le_bytes());
    }
    letters
}
