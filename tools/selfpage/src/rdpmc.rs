// SPDX-License-Identifier: GPL-2.0

//! The instruction that reads a counter of the hardware, and whose that may be.
#![expect(unsafe_code, reason = "instructions that Rust has no names for")]

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

/// The thread pointer of this thread, which the ABI keeps at its own address.
#[inline]
pub(crate) fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: The ABI's; it stays what it is while the thread runs.
    unsafe {
        asm!("movq %fs:0, {p}", p = out(reg) pointer,
            options(att_syntax, nostack, preserves_flags, readonly, pure));
    }
    pointer
}
