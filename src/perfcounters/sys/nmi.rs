// SPDX-License-Identifier: GPL-2.0

//! The overflow interrupt, an NMI, and where it came.

use kernel::bindings;
use kernel::error::{to_result, Result};

use super::shim;
use crate::description::Overflow;
use crate::sampling;

/// What was interrupted, for as long as the interrupt is handled.
#[derive(Clone, Copy)]
pub(crate) struct Interrupted(*const bindings::pt_regs);

/// What the handler needs to know of the PMU.
pub(crate) use super::shim::Global;

/// Where this CPU is, and when: by what was interrupted; else by an NMI that was missed;
/// else where its thread left user mode. `kernel`: may that be in the kernel? Any context,
/// preemption off.
#[inline(always)]
pub(crate) fn find(overflow: &mut Overflow, interrupted: Option<Interrupted>, kernel: bool) {
    let regs = interrupted.map_or(core::ptr::null(), |i| i.0);
    // SAFETY: It fills the structure in; the registers stay for the interrupt.
    unsafe {
        let missed = match regs.is_null() {
            true => shim::pfm_missed(),
            false => 0,
        };
        shim::pfm_find(overflow, regs, missed, kernel);
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

/// An NMI will come on this CPU for something that was seen already.
pub(crate) fn expect() {
    // SAFETY: Preemption off.
    unsafe { shim::pfm_expect() }
}

/// Was it this one?
pub(crate) fn was_expected() -> bool {
    // SAFETY: In an NMI.
    unsafe { shim::pfm_expected() }
}

/// After samples that began at that time stamp: nanoseconds for which there must not
/// be more; 0: none.
pub(crate) fn storm(began: u64) -> u64 {
    // SAFETY: Preemption off.
    unsafe { shim::pfm_storm(began) }
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
    pub(crate) fn register(global: &Global) -> Result<Self> {
        // SAFETY: There is one at a time.
        to_result(unsafe { shim::pfm_nmi_start(global) })?;
        Ok(Self(()))
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
