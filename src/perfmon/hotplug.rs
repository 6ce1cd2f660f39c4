// SPDX-License-Identifier: GPL-2.0

//! The callbacks of perfmon for CPU hotplug, suspend and resume.

use kernel::ffi::CStr;
use perfmon_rules::register_map::Scope;

use crate::contexts::context::{context_of_task, loaded_or_attached_context};
use crate::contexts::phase::Target;
use crate::pmus;
use crate::reservation::{reset_pmu, RESERVED_PMU_REGISTERS};
use crate::stats;
use base::hotplug::OnlineCallbacks;
use base::power::PowerCallbacks;
use base::{cpu, preempt, task};

/// The hotplug callbacks of perfmon. The debugfs files of a CPU that goes offline remain.
pub(crate) struct Hotplug;

impl OnlineCallbacks for Hotplug {
    const NAME: &'static CStr = c"perfmon:online";

    /// Resets the PMU of this CPU if the PMU is reserved.
    fn online(cpu: u32) {
        stats::cpu_online(cpu);
        if let Some(registers) = RESERVED_PMU_REGISTERS.lock().as_ref() {
            reset_pmu(registers);
        }
        pmus::handle_cpu_hotplug(cpu, true);
    }

    /// Ends the context that is attached to this CPU.
    fn offline(cpu: u32) {
        pmus::handle_cpu_hotplug(cpu, false);
        let _preempt = preempt::NoPreempt::new();
        if let Some(context) = loaded_or_attached_context(Scope::System) {
            context.handle_end_of_target(Target::Cpu(cpu::this_cpu()));
        }
    }
}

/// The suspend and resume callbacks of perfmon.
pub(crate) struct Power;

impl PowerCallbacks for Power {
    /// Removes the contexts from this CPU's PMU.
    fn suspend() {
        let thread = loaded_or_attached_context(Scope::Thread);
        let system = loaded_or_attached_context(Scope::System);
        for context in Iterator::chain(thread.into_iter(), system) {
            context.sched_out();
        }
    }

    /// Programs the contexts into this CPU's PMU again.
    fn resume() {
        let system = loaded_or_attached_context(Scope::System);
        let thread = context_of_task(task::current_task_address());
        // Reset the PMU, because firmware may have changed its registers. All tasks are frozen, so
        // try_lock() succeeds: no task holds `RESERVED_PMU_REGISTERS`.
        if let Some(held) = RESERVED_PMU_REGISTERS.try_lock() {
            if let Some(registers) = held.as_ref() {
                reset_pmu(registers);
            }
        }
        if let Some(context) = system {
            context.sched_in(Target::Cpu(cpu::this_cpu()));
        }
        if let Some(context) = thread {
            context.sched_in(Target::Thread(task::current_task_address()));
        }
    }
}
