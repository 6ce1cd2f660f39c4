// SPDX-License-Identifier: GPL-2.0

//! The overflow interrupt, which is an NMI: its handler, the interrupted position, deferred and
//! late NMIs, and the limit of the sample rate.

use core::arch::asm;

use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::pid_namespace::PidNamespace;

use super::shim;
use crate::description::Overflow;
use crate::sampling;

/// The registers of the interrupted code, valid while the interrupt is handled.
#[derive(Clone, Copy)]
pub(crate) struct Interrupted(*const bindings::pt_regs);

/// The PMU's global registers, as the handler uses them.
pub(crate) use super::shim::Global;

/// Fills in the position, time, thread and CPU of an overflow.
///
/// The position is, in this order: that of the interrupted code; that of the last NMI that [`miss`]
/// has deferred; where the thread entered the kernel from user mode. A position in the kernel
/// counts only if `kernel` is set. The ids of process and thread are those of namespace `ns`. Any
/// context, preemption off.
#[inline(always)]
pub(crate) fn find(
    overflow: &mut Overflow,
    interrupted: Option<Interrupted>,
    kernel: bool,
    ns: &PidNamespace,
) {
    let regs = interrupted.map_or(core::ptr::null(), |i| i.0);
    // SAFETY: The callee fills in the structure, and the registers are valid while the interrupt is
    // handled.
    unsafe {
        let missed = match regs.is_null() {
            true => shim::pfm_missed(),
            false => 0,
        };
        shim::pfm_find(overflow, regs, missed, kernel, ns.as_ptr());
    }
}

/// Returns CLOCK_MONOTONIC in nanoseconds. Any context.
pub(crate) fn now() -> u64 {
    // SAFETY: Reads a clock that can be read in an NMI; no requirements.
    unsafe { shim::pfm_now() }
}

/// Returns the resolution of timers in nanoseconds.
pub(crate) fn resolution() -> u64 {
    // SAFETY: Reads a variable of the kernel; no requirements.
    unsafe { shim::pfm_resolution() }
}

/// Defers the handling of an overflow until interrupts are on, because the interrupted code holds
/// the lock of a context. Called in an NMI.
pub(crate) fn miss(interrupted: Interrupted) {
    // SAFETY: Called in an NMI, so that this CPU's words are not used concurrently.
    unsafe { shim::pfm_miss(interrupted.0) }
}

/// Returns the time stamp of the first of the deferred NMIs that are now handled, and forgets it.
/// Interrupts off.
pub(crate) fn missed_since() -> u64 {
    // SAFETY: Interrupts are off, so that the thread stays on this CPU.
    unsafe { shim::pfm_missed_since() }
}

/// Returns whether an NMI of this processor may arrive after its overflow was handled.
pub(crate) fn may_be_late() -> bool {
    // SAFETY: Reads a constant of the processor; no requirements.
    unsafe { shim::pfm_late_nmis() }
}

/// Announces a late NMI: one NMI of this CPU, within 100 ms of this time stamp, is for an overflow
/// that was already handled. Preemption off.
#[inline]
pub(crate) fn expect(since: u64) {
    // SAFETY: One instruction writes a per-CPU word that only this module uses. An NMI before or
    // after it sees the old or the new value.
    unsafe {
        asm!("movq {t}, %gs:{word}(%rip)", t = in(reg) since,
            word = sym shim::pfm_expected_since,
            options(att_syntax, nostack, preserves_flags))
    }
}

/// Returns whether this NMI is the one that [`expect`] has announced. The announcement is used up.
pub(crate) fn was_expected() -> bool {
    // SAFETY: Called in an NMI, so that the thread stays on this CPU.
    unsafe { shim::pfm_expected() }
}

/// Accounts the samples of an interrupt that began at time stamp `began`, for the limits of the
/// sample rate. Returns for how many nanoseconds the contexts must take no samples; 0 if the limits
/// are kept. Preemption off.
///
/// About one interrupt in 16 is measured; the others only count down.
#[inline]
pub(crate) fn storm(began: u64) -> u64 {
    let timed: u8;
    // SAFETY: One instruction changes a per-CPU word that only this module uses. NMIs between the
    // end of the count and the call of `pfm_storm`, which sets the word again, are not accounted;
    // nothing else follows from them.
    unsafe {
        asm!("decl %gs:{word}(%rip)", "setz {timed}", timed = out(reg_byte) timed,
            word = sym shim::pfm_storm_left,
            options(att_syntax, nostack))
    }
    match timed {
        0 => 0,
        // SAFETY: Preemption is off, so that the thread stays on this CPU.
        _ => unsafe { shim::pfm_storm(began) },
    }
}

/// Has this CPU's local APIC deliver counter overflows as NMIs. On Intel the entry is masked by
/// each overflow.
pub(crate) fn unmask() {
    // SAFETY: The PMU is reserved for this module while this is called.
    unsafe { shim::pfm_lvtpc() }
}

/// The registered NMI handler; drop unregisters it. It exists as long as the module.
pub(crate) struct Handler(());

impl Handler {
    /// Registers the handler. Until an [`Owned`] exists it claims late NMIs only. Process context.
    pub(crate) fn register() -> Result<Self> {
        // SAFETY: Called once, by module init.
        to_result(unsafe { shim::pfm_nmi_start() })?;
        Ok(Self(()))
    }
}

/// The handler treats overflows as those of this module while this exists. There is at most one.
pub(crate) struct Owned(());

impl Owned {
    /// Sets the PMU's global registers, and lets the handler use them. Process context; may sleep.
    pub(crate) fn new(global: &Global) -> Self {
        // SAFETY: The caller holds `SESSION`, so that there is one at a time.
        unsafe { shim::pfm_nmi_own(global) }
        Self(())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: The caller holds `SESSION`, so that there is one at a time.
        unsafe { shim::pfm_nmi_own(core::ptr::null()) }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // SAFETY: The handler is registered. The callee waits for handlers that run.
        unsafe { shim::pfm_nmi_stop() }
    }
}

/// Handles an NMI. Returns the number of overflows.
///
/// # Safety
///
/// Called only by `sys/shim/sampling.c`, in an NMI, with the registers that [`Owned::new`] has set.
#[no_mangle]
unsafe extern "C" fn pfm_overflowed(regs: *const bindings::pt_regs, global: *const Global) -> u32 {
    // SAFETY: The shim changes the structure only while there is no [`Owned`], after it has waited
    // for handlers that run.
    sampling::interrupt(Interrupted(regs), unsafe { &*global })
}

/// Handles the overflows of the NMIs that [`miss`] has deferred. Called by `sys/shim/sampling.c`,
/// with interrupts off.
#[no_mangle]
extern "C" fn pfm_overflowed_again() {
    sampling::look_again();
}

/// Returns the registers of the code that the current interrupt has interrupted. Called in a hard
/// interrupt.
pub(crate) fn of_interrupt() -> Option<Interrupted> {
    // SAFETY: Called in a hard interrupt, whose registers are valid until it returns.
    let regs = unsafe { shim::pfm_irq_regs() };
    (!regs.is_null()).then_some(Interrupted(regs))
}
