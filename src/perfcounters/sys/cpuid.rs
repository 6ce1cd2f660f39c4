// SPDX-License-Identifier: GPL-2.0

//! What the processor says of itself, for PMU descriptions.

use core::arch::x86_64::{CpuidResult, __cpuid_count};

/// A leaf. All zero if there is none of that number.
#[inline]
pub fn cpuid(leaf: u32, subleaf: u32) -> CpuidResult {
    // SAFETY: Every 64-bit x86 has CPUID; a leaf beyond the last is harmless.
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

/// What this CPU says of its counters' number and width: Intel's leaf 0xa, AMD's 0x80000022.
#[inline]
pub fn counters() -> [u32; 6] {
    let (intel, amd) = (cpuid(0xa, 0), cpuid(0x8000_0022, 0));
    [
        intel.eax,
        intel.ebx,
        intel.ecx,
        intel.edx,
        amd.eax,
        amd.ebx & 0xf,
    ]
}

/// The vendor's twelve letters.
#[inline]
pub fn vendor() -> [u8; 12] {
    let leaf = cpuid(0, 0);
    let mut letters = [0; 12];
    for (to, word) in letters
        .chunks_exact_mut(4)
        .zip([leaf.ebx, leaf.edx, leaf.ecx])
    {
        to.copy_from_slice(&word.to_le_bytes());
    }
    letters
}
