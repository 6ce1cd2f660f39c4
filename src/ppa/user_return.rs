// SPDX-License-Identifier: GPL-2.0

//! Hooks of process accounting for the time that a task spends in the kernel before `sys_enter`,
//! after `sys_exit` and in page faults. The C part is in `src/ppa/helpers/user_return.c`.

#![expect(unsafe_code, reason = "calls of C, and the hooks that C calls")]

use core::arch::asm;

use kernel::error::{to_result, Result};
use kernel::ffi::c_ulong;

use crate::helpers;
use crate::per_cpu::PerCpu;
use crate::state::{level, AccountingState};

/// Returns whether the kernel can report the return to user mode. If the kernel cannot report the
/// return to user mode, no probe requests a report.
pub(crate) fn is_supported() -> bool {
    // SAFETY: `ppa_exit_work` is a constant of C, so no code writes it.
    unsafe { helpers::ppa_exit_work != 0 }
}

/// Returns whether the current task has work to do before it enters user mode, such as signals and
/// task work. Returns false if the task only has to be rescheduled.
#[inline(always)]
pub(crate) fn has_exit_work() -> bool {
    let flags: c_ulong;
    // SAFETY: The `movq`s read the kernel's per-CPU pointer to the current task, and the first word
    // of the task: the flags of its `thread_info`. The word `ppa_exit_work` is constant.
    unsafe {
        asm!("movq %gs:current_task(%rip), {f}", "movq ({f}), {f}", f = out(reg) flags,
            options(att_syntax, nostack, readonly, preserves_flags));
        flags & helpers::ppa_exit_work != 0
    }
}

/// Arms the notifier of this CPU's next entry to user mode. Returns false if the kernel does not
/// support user-return notifiers. Called with preemption off; callable in the scheduler's probes.
fn arm() -> bool {
    // SAFETY: The caller has preemption off.
    unsafe { helpers::ppa_arm_user_return() }
}

/// Lets the kernel report when this CPU enters user mode. The code is a separate function so that
/// the probes, which seldom call it, save few registers.
#[cold]
#[inline(never)]
pub(crate) fn arm_user_return_report() {
    arm();
}

impl AccountingState {
    /// Accounts system time until this CPU enters user mode. Returns false if system calls are not
    /// measured or the kernel cannot report the entry to user mode. Preemption off.
    #[cold]
    #[inline(never)]
    pub(crate) fn enter_kernel(&self, here: &PerCpu) -> bool {
        let is_armed = self.levels & level::CALLS != 0 && arm();
        if is_armed {
            here.cpu_state.enter_kernel(|| self.clock.now());
        }
        is_armed
    }
}

/// Removes the notifier of a CPU that is offline. Called in the CPU's hotplug callback.
pub(crate) fn cpu_dead(cpu: u32) {
    // SAFETY: The CPU does not execute, and does not come online during its hotplug callback.
    unsafe { helpers::ppa_user_return_cpu_dead(cpu) };
}

/// Guard of the hooks. Dropping the guard detaches the hooks, and waits until no hook runs. The
/// probes that call [`arm_user_return_report`] are detached before the guard is dropped.
pub(crate) struct KernelEntryHooks;

impl KernelEntryHooks {
    /// Attaches the probe of seccomp. Called after the probe of `sys_exit` was attached, because
    /// the probe of seccomp begins system time that the probe of `sys_exit` ends. May sleep.
    /// Returns `ENOMEM`. The caller holds `ACCOUNTING`.
    pub(crate) fn attach_seccomp(&self) -> Result {
        // SAFETY: The caller is in process context and holds `ACCOUNTING`. Drop detaches the probe.
        to_result(unsafe { helpers::ppa_attach_seccomp() })
    }
}

impl Drop for KernelEntryHooks {
    fn drop(&mut self) {
        // SAFETY: The caller is in process context and holds `ACCOUNTING`. No probe arms a notifier
        // any more.
        unsafe {
            helpers::ppa_detach_seccomp();
            helpers::ppa_disarm_user_return();
        }
    }
}

/// Ends the system time of the current task.
///
/// Context: interrupts off, immediately before this CPU enters user mode.
#[no_mangle]
extern "C" fn ppa_user_return() {
    if let Some(here) = PerCpu::this_cpu() {
        let task = || here.task().map(|record| &record.task_state);
        here.cpu_state.syscall_exit(task, || here.clock.now());
    }
}

/// Begins the system time of a system call that seccomp checks.
///
/// Context: the task that makes the call, preemption off.
#[no_mangle]
extern "C" fn ppa_seccomp_begins() {
    if let Some(here) = PerCpu::this_cpu() {
        here.cpu_state.syscall_seccomp_check(|| here.clock.now());
    }
}
