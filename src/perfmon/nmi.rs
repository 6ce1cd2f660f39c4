// SPDX-License-Identifier: GPL-2.0

//! Wrappers for the NMIs of counter overflows: the registration of the NMI handler, the registers
//! of the interrupted code, and the limits on the time of sampling.

#![expect(unsafe_code, reason = "calls of C, and interrupted registers")]

use core::arch::asm;

use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::pid_namespace::PidNamespace;

use crate::description::Overflow;
use crate::helpers;
pub(crate) use crate::helpers::NmiRegisters;

/// Registers of the interrupted code, valid until the interrupt handler returns.
#[derive(Clone, Copy)]
pub(crate) struct IrqRegs(pub(crate) *const bindings::pt_regs);

/// Fills in the instruction address, the time, and the thread of an overflow.
///
/// The instruction address is taken from the registers in `interrupted`. If `interrupted` is `None`
/// and an NMI was deferred ([`defer`]), the address is that of the instruction that this NMI
/// interrupted. If `interrupted` is `None` and no NMI was deferred, the address is the one at which
/// the thread left user mode. A kernel address is stored only if `kernel` is set. Process and
/// thread ids are those of the PID namespace `ns`. Callable in any context with preemption off.
#[inline(always)]
pub(crate) fn fill_overflow_take_deferred_ip(
    overflow: &mut Overflow,
    interrupted: Option<IrqRegs>,
    kernel: bool,
    ns: &PidNamespace,
) {
    let (regs, missed) = match interrupted {
        Some(IrqRegs(regs)) => (regs, 0),
        // SAFETY: The caller has turned preemption off.
        None => (core::ptr::null(), unsafe {
            helpers::pfm_take_deferred_nmi_ip()
        }),
    };
    // SAFETY: `overflow` is writable. `regs` is null, or valid until the interrupt returns.
    unsafe {
        helpers::pfm_fill_overflow(overflow, regs.cast_mut(), missed, kernel, ns.as_ptr());
    }
}

/// Defers the handling of an overflow until interrupts are on, because the interrupted code holds
/// the lock of the context whose counter has overflowed. `pfm_handle_deferred_nmi()` in
/// `contexts/nmi_handler.rs` handles the deferred overflow.
pub(crate) fn defer(interrupted: IrqRegs) {
    // SAFETY: The function is called in an NMI.
    unsafe { helpers::pfm_defer_nmi(interrupted.0.cast_mut()) }
}

/// Returns the time stamp of the first NMI that was deferred on this CPU since the last call of
/// this function.
pub(crate) fn take_first_deferred_nmi_time() -> u64 {
    // SAFETY: The caller has turned interrupts off.
    unsafe { helpers::pfm_take_first_deferred_nmi_time() }
}

/// Returns whether, on this model of processor, an NMI may arrive after its overflow was handled.
pub(crate) fn may_nmi_be_stale() -> bool {
    // SAFETY: `pfm_may_nmi_be_stale()` may be called in any context.
    unsafe { helpers::pfm_may_nmi_be_stale() }
}

/// Announces that this CPU may get one more NMI for an overflow that was already handled. The
/// announcement of the NMI expires 100 ms after the time stamp `since`. Called with preemption off.
#[inline]
pub(crate) fn expect_stale_nmi(since: u64) {
    // SAFETY: One `movq`, which no NMI can split, writes the word `pfm_stale_nmi_since`.
    unsafe {
        asm!("movq {t}, %gs:{word}(%rip)", t = in(reg) since,
            word = sym helpers::pfm_stale_nmi_since,
            options(att_syntax, nostack, preserves_flags))
    }
}

/// Returns whether [`expect_stale_nmi`] has announced the current NMI, and withdraws the
/// announcement.
pub(crate) fn take_stale_nmi() -> bool {
    // SAFETY: The function is called in an NMI.
    unsafe { helpers::pfm_take_stale_nmi() }
}

/// Accounts the time from the time stamp `began` until now as time of sampling. In an NMI,
/// `interrupted` holds the registers of the interrupted code.
///
/// Returns how many nanoseconds the contexts that took samples must pause, or 0. Called with
/// preemption off.
#[inline]
pub(crate) fn account_sampling_time(began: u64, interrupted: Option<IrqRegs>) -> u64 {
    let timed: u8;
    // `setle` is used instead of `setz`, because an NMI can interrupt `pfm_throttle_time` before
    // `pfm_timed_sample_in` is set to a positive number again. Such an NMI must call
    // `pfm_throttle_time` as well: if every NMI causes the next NMI, the interrupted call never
    // continues.
    //
    // SAFETY: One `decl`, which no NMI can split, decrements the word `pfm_timed_sample_in`.
    unsafe {
        asm!("decl %gs:{word}(%rip)", "setle {timed}", timed = out(reg_byte) timed,
            word = sym helpers::pfm_timed_sample_in,
            options(att_syntax, nostack))
    }
    match timed {
        0 => 0,
        _ => {
            let regs = interrupted.map_or(core::ptr::null(), |i| i.0);
            // SAFETY: Preemption is off, and `regs` is null or valid until the interrupt returns.
            unsafe { helpers::pfm_throttle_time(began, regs) }
        }
    }
}

/// Unmasks the overflow interrupt (LVTPC) in the local APIC of this CPU, and sets its delivery mode
/// to NMI.
pub(crate) fn unmask_lvtpc() {
    // SAFETY: This module has reserved the PMU, so that perf does not use the overflow interrupt.
    unsafe { helpers::pfm_unmask_lvtpc() }
}

/// The registered NMI handler. Dropping this value unregisters the handler.
pub(crate) struct NmiHandler(());

impl NmiHandler {
    /// Registers the handler. Called in process context.
    pub(crate) fn register() -> Result<Self> {
        // SAFETY: Only one `NmiHandler` exists at a time, so the NMI handler is not registered
        // twice.
        to_result(unsafe { helpers::pfm_nmi_register() })?;
        Ok(Self(()))
    }
}

/// While this value exists, overflow NMIs of the reserved PMU are handled. At most one
/// `OverflowHandling` exists.
pub(crate) struct OverflowHandling(());

impl OverflowHandling {
    /// Begins to handle the overflows of the PMU whose global registers are `global`. May sleep.
    pub(crate) fn new(global: &NmiRegisters) -> Self {
        // SAFETY: `SESSION` is held, so only one `pfm_nmi_set_registers()` runs at a time.
        unsafe { helpers::pfm_nmi_set_registers(global) }
        Self(())
    }
}

impl Drop for OverflowHandling {
    fn drop(&mut self) {
        // SAFETY: `SESSION` is held, so only one `pfm_nmi_set_registers()` runs at a time.
        unsafe { helpers::pfm_nmi_set_registers(core::ptr::null()) }
    }
}

impl Drop for NmiHandler {
    fn drop(&mut self) {
        // SAFETY: The handler is registered, and unregistering waits for handlers that run.
        unsafe { helpers::pfm_nmi_unregister() }
    }
}

/// Returns the registers of the code that the current hard interrupt has interrupted.
pub(crate) fn irq_regs() -> Option<IrqRegs> {
    // SAFETY: The function is called in the handler of a hard interrupt.
    let regs = unsafe { helpers::pfm_irq_regs() };
    (!regs.is_null()).then_some(IrqRegs(regs))
}
