// SPDX-License-Identifier: GPL-2.0

//! The NMI of counter overflows: its handler, the interrupted code, and the limits on sampling.

use core::arch::asm;

use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::pid_namespace::PidNamespace;

use super::shim;
use crate::description::Overflow;
use crate::sampling;

/// Registers of the interrupted code. Valid until the interrupt handler returns.
#[derive(Clone, Copy)]
pub(crate) struct Interrupted(*const bindings::pt_regs);

/// The PMU registers that the handler uses.
pub(crate) use super::shim::Global;

/// Fills in where and when an overflow happened.
///
/// The address is that of the interrupted code. Without `interrupted` it is the address of a
/// deferred NMI ([`miss`]), or else where the thread left user mode. `kernel` permits addresses in
/// the kernel; thread numbers are those of `ns`. Any context, preemption off.
#[inline(always)]
pub(crate) fn find(
    overflow: &mut Overflow,
    interrupted: Option<Interrupted>,
    kernel: bool,
    ns: &PidNamespace,
) {
    let regs = interrupted.map_or(core::ptr::null(), |i| i.0);
    // SAFETY: `overflow` is writable, and the registers are valid until the interrupt returns.
    unsafe {
        let missed = match regs.is_null() {
            true => shim::pfm_missed(),
            false => 0,
        };
        shim::pfm_find(overflow, regs, missed, kernel, ns.as_ptr());
    }
}

/// Returns the nanoseconds of CLOCK_MONOTONIC. Any context.
pub(crate) fn now() -> u64 {
    // SAFETY: No requirements.
    unsafe { shim::pfm_now() }
}

/// Returns the resolution of timers in nanoseconds.
pub(crate) fn resolution() -> u64 {
    // SAFETY: No requirements.
    unsafe { shim::pfm_resolution() }
}

/// Defers an overflow whose context was locked by the interrupted code: [`sampling::look_again`]
/// runs as soon as interrupts are on.
pub(crate) fn miss(interrupted: Interrupted) {
    // SAFETY: In an NMI.
    unsafe { shim::pfm_miss(interrupted.0) }
}

/// Returns the time stamp of the first deferred NMI since the last call.
pub(crate) fn missed_since() -> u64 {
    // SAFETY: Interrupts are off.
    unsafe { shim::pfm_missed_since() }
}

/// Returns whether NMIs of this processor may arrive after their overflow was handled.
pub(crate) fn may_be_late() -> bool {
    // SAFETY: No requirements.
    unsafe { shim::pfm_late_nmis() }
}

/// Announces that one NMI of this CPU, within 100 ms of the time stamp `since`, is for an overflow
/// that was already handled. Preemption off.
#[inline]
pub(crate) fn expect(since: u64) {
    // SAFETY: Stores to a per-CPU word of this module, in one instruction that no NMI can split.
    unsafe {
        asm!("movq {t}, %gs:{word}(%rip)", t = in(reg) since,
            word = sym shim::pfm_expected_since,
            options(att_syntax, nostack, preserves_flags))
    }
}

/// Returns true for the NMI that [`expect`] announced, once.
pub(crate) fn was_expected() -> bool {
    // SAFETY: In an NMI.
    unsafe { shim::pfm_expected() }
}

/// Accounts the samples that began at the time stamp `began`. `interrupted`: the code that an NMI
/// interrupted.
///
/// Returns for how many nanoseconds the contexts that sampled must pause, or 0. Preemption off.
#[inline]
pub(crate) fn storm(began: u64, interrupted: Option<Interrupted>) -> u64 {
    let timed: u8;
    // `le`, not `z`: `pfm_storm` writes the word at its end. If this is an interrupt, NMIs may come
    // before that, and find 0 or less. Each of them must be timed: if every NMI causes the next
    // one, the interrupted call does not reach its end.
    //
    // SAFETY: Decrements a per-CPU word of this module, in one instruction that no NMI can split.
    unsafe {
        asm!("decl %gs:{word}(%rip)", "setle {timed}", timed = out(reg_byte) timed,
            word = sym shim::pfm_storm_left,
            options(att_syntax, nostack))
    }
    match timed {
        0 => 0,
        _ => {
            let regs = interrupted.map_or(core::ptr::null(), |i| i.0);
            // SAFETY: Preemption is off, and the registers are valid until the interrupt returns.
            unsafe { shim::pfm_storm(began, regs) }
        }
    }
}

/// Unmasks the overflow interrupt in the local APIC of this CPU, as an NMI.
pub(crate) fn unmask() {
    // SAFETY: The PMU is reserved by this module.
    unsafe { shim::pfm_lvtpc() }
}

/// The registered NMI handler. Dropping it unregisters the handler.
pub(crate) struct Handler(());

impl Handler {
    /// Registers the handler. Process context.
    pub(crate) fn register() -> Result<Self> {
        // SAFETY: Only one `Handler` exists at a time.
        to_result(unsafe { shim::pfm_nmi_start() })?;
        Ok(Self(()))
    }
}

/// The reserved PMU: NMIs are handled as its overflows until this is dropped. Only one exists.
pub(crate) struct Owned(());

impl Owned {
    /// Begins to handle overflows of the PMU with the registers `global`. May sleep.
    pub(crate) fn new(global: &Global) -> Self {
        // SAFETY: `SESSION` is held, so that only one call runs at a time.
        unsafe { shim::pfm_nmi_own(global) }
        Self(())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: `SESSION` is held, so that only one call runs at a time.
        unsafe { shim::pfm_nmi_own(core::ptr::null()) }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // SAFETY: The handler is registered. The call waits for handlers that run.
        unsafe { shim::pfm_nmi_stop() }
    }
}

/// # Safety
///
/// Called by the shim in an NMI; `regs` and `global` are valid until it returns.
#[no_mangle]
unsafe extern "C" fn pfm_overflowed(regs: *const bindings::pt_regs, global: *const Global) -> u32 {
    // SAFETY: `pfm_nmi_own` changes `global` only while no handler uses it.
    sampling::interrupt(Interrupted(regs), unsafe { &*global })
}

/// Handles deferred overflows. Called by the shim after [`miss`], with interrupts off.
#[no_mangle]
extern "C" fn pfm_overflowed_again() {
    sampling::look_again();
}

/// Returns the registers of the code that the current hard interrupt interrupted.
pub(crate) fn of_interrupt() -> Option<Interrupted> {
    // SAFETY: In a hard interrupt's handler.
    let regs = unsafe { shim::pfm_irq_regs() };
    (!regs.is_null()).then_some(Interrupted(regs))
}
