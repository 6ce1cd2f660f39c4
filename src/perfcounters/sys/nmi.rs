// SPDX-License-Identifier: GPL-2.0

//! The overflow interrupt, an NMI, and where it came.

use kernel::bindings;
use kernel::error::{to_result, Result};

use super::shim;
use crate::sampling;

/// What was interrupted, for as long as the interrupt is handled.
#[derive(Clone, Copy)]
pub(crate) struct Interrupted(*const bindings::pt_regs);

/// Where and when an overflow was; `regs` is NULL, or what was interrupted.
pub(crate) use super::shim::Where as Place;

/// Where this CPU is: by what was interrupted; else by an NMI that was missed; else
/// where its thread left user mode. `kernel`: may that be in the kernel? Any context,
/// preemption off.
#[inline(always)]
pub(crate) fn place(interrupted: Option<Interrupted>, kernel: bool) -> Place {
    let mut place = shim::Where {
        ip: 0,
        time: 0,
        regs: core::ptr::null(),
        pid: 0,
        tid: 0,
        cpu: 0,
    };
    let regs = interrupted.map_or(core::ptr::null(), |i| i.0);
    // SAFETY: It fills the structure in; the registers stay for the interrupt.
    unsafe {
        let missed = match regs.is_null() {
            true => shim::pfm_missed(),
            false => 0,
        };
        shim::pfm_where(&mut place, regs, missed, kernel);
    }
    place
}

/// Nanoseconds of CLOCK_MONOTONIC. Any context.
pub(crate) fn now() -> u64 {
    // SAFETY: No requirements.
    unsafe { shim::pfm_now() }
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
    pub(crate) fn register() -> Result<Self> {
        // SAFETY: There is one at a time.
        to_result(unsafe { shim::pfm_nmi_start() })?;
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
/// Called by the shim, in an NMI.
#[no_mangle]
unsafe extern "C" fn pfm_overflowed(regs: *const bindings::pt_regs) -> u32 {
    sampling::interrupt(Interrupted(regs))
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
