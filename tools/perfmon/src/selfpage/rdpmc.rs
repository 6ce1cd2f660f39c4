// SPDX-License-Identifier: GPL-2.0

//! The instruction RDPMC, which reads a hardware counter, and the thread pointer, which identifies
//! the thread that may use RDPMC.
#![expect(unsafe_code, reason = "instructions that Rust has no names for")]

use core::arch::asm;

/// Returns the value of the hardware counter that the RDPMC operand `number` selects.
///
/// If the kernel has not enabled RDPMC for the process, the instruction raises SIGSEGV. The caller
/// must have found `PERFMON_SELF_RDPMC` in the flags of the page.
#[inline]
pub(crate) fn rdpmc(number: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: The instruction writes only the registers that are given as operands. If the counter
    // may not be read, the instruction raises a fault and memory is not changed. The option `nomem`
    // is not given, so that the compiler does not move loads of the page across the instruction.
    unsafe {
        asm!("rdpmc", in("ecx") number, out("eax") low, out("edx") high,
            options(nostack, preserves_flags));
    }
    (u64::from(high) << 32) | u64::from(low)
}

/// Returns the thread pointer of the calling thread. The ABI requires that the word at %fs:0, to
/// which the thread pointer points, holds the thread pointer itself.
#[inline]
pub(crate) fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: By the ABI %fs:0 is readable and has the same value for the lifetime of the thread.
    unsafe {
        asm!("movq %fs:0, {p}", p = out(reg) pointer,
            options(att_syntax, nostack, preserves_flags, readonly, pure));
    }
    pointer
}
