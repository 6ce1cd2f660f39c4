// SPDX-License-Identifier: GPL-2.0

//! The instruction that reads a counter of the hardware.
#![expect(unsafe_code, reason = "an instruction that Rust has no name for")]

use core::arch::asm;

/// The hardware's counter `number`, now.
///
/// Where the kernel does not allow it this ends in SIGSEGV, so it is asked for
/// only with `PERFMON_SELF_RDPMC` on the page.
#[inline]
pub(crate) fn rdpmc(number: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: It writes nothing but these registers. A counter that may not be
    // read is a fault of the processor's, which no memory survives wrongly.
    // Without `nomem` the compiler moves no load of the page across it.
    unsafe {
        asm!("rdpmc", in("ecx") number, out("eax") low, out("edx") high,
            options(nostack, preserves_flags));
    }
    (u64::from(high) << 32) | u64::from(low)
}
