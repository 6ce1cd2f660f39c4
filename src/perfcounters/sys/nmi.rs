// SPDX-License-Identifier: GPL-2.0

//! The overflow interrupt, an NMI, and where it came.

use core::arch::asm;

use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::pid_namespace::PidNamespace;

use super::shim;
use crate::description::Overflow;
use crate::sampling;

/// What was interrupted, for as long as the interrupt is handled.
#[derive(Clone, Copy)]
pub(crate) struct Interrupted(*const bindings::pt_regs);

/// What the handler needs to know of the PMU.
pub(crate) use super::shim::Global;

/// Where this CPU is, and when: by what was interrupted; else by an NMI that was missed;
/// else where its thread left user mode. `kernel`: may that be in the kernel? `ns`: whose
/// numbers for threads. Any context, preemption off.
#[inline(always)]
pub(crate) fn find(
    overflow: &mut Overflow,
    interrupted: Option<Interrupted>,
    kernel: bool,
    ns: &PidNamespace,
) {
    let regs = interrupted.map_or(core::ptr::null(), |i| i.0);
    // SAFETY: It fills the structure in; the registers stay for the interrupt.
    unsafe {
        let missed = match regs.is_null() {
            true => shim::pfm_missed(),
            false => 0,
        };
        shim::pfm_find(overflow, regs, missed, kernel, ns.as_ptr());
    }
}

/// Nanoseconds of CLOCK_MONOTONIC. Any context.
pub(crate) fn now() -> u64 {
    // SAFETY: No requirements.
    unsafe { shim::pfm_now() }
}

/// Nanoseconds that timers can tell apart.
pub(crate) fn resolution() -> u64 {
    // SAFETY: No requirements.
    unsafe { shim::pfm_resolution() }
}

/// The interrupted code's context is looked after as soon as interrupts are on.
pub(crate) fn miss(interrupted: Interrupted) {
    // SAFETY: In an NMI.
    unsafe { shim::pfm_miss(interrupted.0) }
}

/// When the first of those came that are looked after now, by the time stamp counter.
pub(crate) fn missed_since() -> u64 {
    // SAFETY: Interrupts are off.
    unsafe { shim::pfm_missed_since() }
}

/// Whether NMIs of this processor may arrive after their overflow was handled.
pub(crate) fn may_be_late() -> bool {
    // SAFETY: No requirements.
    unsafe { shim::pfm_late_nmis() }
}

/// One NMI of this CPU, within 100 ms of this time stamp, is for an overflow that was handled
/// already. Preemption off.
#[inline]
pub(crate) fn expect(since: u64) {
    // SAFETY: A per-CPU word of ours; an NMI in between sees one value or the other.
    unsafe {
        asm!("movq {t}, %gs:{word}(%rip)", t = in(reg) since,
            word = sym shim::pfm_expected_since,
            options(att_syntax, nostack, preserves_flags))
    }
}

/// Whether this NMI is the one that [`expect`] announced. It is claimed once.
pub(crate) fn was_expected() -> bool {
    // SAFETY: In an NMI.
    unsafe { shim::pfm_expected() }
}

/// After samples that began at that time stamp: nanoseconds for which there must not
/// be more; 0: none. Preemption off.
#[inline]
pub(crate) fn storm(began: u64) -> u64 {
    let timed: u8;
    // SAFETY: A per-CPU word of ours, in one instruction. NMIs that come before `pfm_storm` has set
    // it anew find it below 0: each is timed, as they may be all that this CPU does.
    unsafe {
        asm!("decl %gs:{word}(%rip)", "setle {timed}", timed = out(reg_byte) timed,
            word = sym shim::pfm_storm_left,
            options(att_syntax, nostack))
    }
    match timed {
        0 => 0,
        // SAFETY: Preemption is off.
        _ => unsafe { shim::pfm_storm(began) },
    }
}

/// Lets overflows of this CPU be NMIs.
pub(crate) fn unmask() {
    // SAFETY: The PMU is ours.
    unsafe { shim::pfm_lvtpc() }
}

/// The handler; drop takes it away.
pub(crate) struct Handler(());

impl Handler {
    /// NMIs are asked whether they are ours. Process context.
    pub(crate) fn register() -> Result<Self> {
        // SAFETY: There is one.
        to_result(unsafe { shim::pfm_nmi_start() })?;
        Ok(Self(()))
    }
}

/// The PMU is ours: from here on overflows are NMIs of ours; drop ends that. One at a time.
pub(crate) struct Owned(());

impl Owned {
    /// It has these registers. Process context; may sleep.
    pub(crate) fn new(global: &Global) -> Self {
        // SAFETY: One at a time, under `SESSION`.
        unsafe { shim::pfm_nmi_own(global) }
        Self(())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: Changes are one at a time, under `SESSION`.
        unsafe { shim::pfm_nmi_own(core::ptr::null()) }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // SAFETY: Registered. Waits for those that run.
        unsafe { shim::pfm_nmi_stop() }
    }
}

/// # Safety
///
/// Called by the shim, in an NMI, with what the handler was registered with.
#[no_mangle]
unsafe extern "C" fn pfm_overflowed(regs: *const bindings::pt_regs, global: *const Global) -> u32 {
    // SAFETY: Nobody changes it while there is a handler.
    sampling::interrupt(Interrupted(regs), unsafe { &*global })
}

/// Called by the shim after [`miss`], with interrupts off.
#[no_mangle]
extern "C" fn pfm_overflowed_again() {
    sampling::look_again();
}

/// What the timer's interrupt interrupted.
pub(crate) fn of_interrupt() -> Option<Interrupted> {
    // SAFETY: In a hard interrupt's handler.
    let regs = unsafe { shim::pfm_irq_regs() };
    (!regs.is_null()).then_some(Interrupted(regs))
}
