// SPDX-License-Identifier: GPL-2.0

//! Functions that tell the execution context of the caller, and a guard that disables preemption.

use core::arch::asm;

use super::helpers;

#[allow(clippy::duplicate_mod, reason = "`driver` includes the file as well")]
#[path = "../../include/linux/preempt.rs"]
mod instructions;
use instructions::{preempt_count, PREEMPTION_IS_INLINED};

/// Returns whether the caller may sleep. In a kernel without `CONFIG_PREEMPT_COUNT`, only interrupt
/// context and disabled interrupts are detected; disabled preemption is not.
pub fn may_sleep() -> bool {
    // SAFETY: The callee only reads the preemption count and the interrupt flag.
    unsafe { helpers::pfc_may_sleep() }
}

/// Returns whether the caller runs in an NMI.
#[inline]
pub fn in_nmi() -> bool {
    // SAFETY: The callee only reads the preemption count.
    unsafe { helpers::pfc_in_nmi() }
}

/// Guard that keeps preemption off until the guard is dropped.
pub struct NoPreempt(());

impl NoPreempt {
    /// Turns preemption off until the guard is dropped.
    #[inline(always)]
    pub fn new() -> Self {
        if PREEMPTION_IS_INLINED {
            // SAFETY: The instruction increments the per-CPU preemption count, which the drop of
            // the guard decrements.
            unsafe { asm!(preempt_count!(inc), options(att_syntax, nostack)) };
        } else {
            // SAFETY: The drop of the guard turns preemption on again.
            unsafe { helpers::pfc_preempt_disable() };
        }
        Self(())
    }
}

impl Drop for NoPreempt {
    #[inline(always)]
    fn drop(&mut self) {
        if PREEMPTION_IS_INLINED {
            // SAFETY: The instruction decrements the preemption count that `new` has incremented.
            // If the count becomes 0 and a reschedule is due, the instructions call the scheduler
            // through a static call that preserves all registers. The kernel has no red zone and
            // aligns stacks to 8 bytes, so the call needs no stack frame.
            unsafe {
                asm!(
                    preempt_count!(dec),
                    "jnz 2f",
                    "call __SCT__preempt_schedule",
                    "2:",
                    options(att_syntax, nostack)
                )
            };
        } else {
            // SAFETY: `new` has turned preemption off.
            unsafe { helpers::pfc_preempt_enable() }
        }
    }
}
