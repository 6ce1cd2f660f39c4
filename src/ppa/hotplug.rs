// SPDX-License-Identifier: GPL-2.0

//! Accounting on CPUs that come online or go offline, and at suspend and resume.

use kernel::ffi::CStr;

use crate::per_cpu::PerCpu;
use crate::user_return;
use base::hotplug::{DeadCallback, OnlineCallbacks};
use base::power::PowerCallbacks;
use base::preempt::NoPreempt;

/// The hotplug callbacks of accounting.
pub(crate) struct Hotplug;

impl OnlineCallbacks for Hotplug {
    const NAME: &'static CStr = c"ppa:online";

    fn online(_: u32) {
        set_offline(false);
    }

    fn offline(_: u32) {
        set_offline(true);
    }
}

impl DeadCallback for Hotplug {
    const NAME: &'static CStr = c"ppa:dead";

    /// Accounts the task that ran last on the offline CPU `cpu`. Called on an online CPU.
    fn on_cpu_dead(cpu: u32) {
        user_return::cpu_dead(cpu);
        let _preempt = NoPreempt::new();
        if let Some(here) = PerCpu::of_offline_cpu(cpu) {
            let last = here.task().map(|record| &record.task_state);
            here.cpu_state.account_last_run(last, here.clock.now());
            here.set_task(None);
        }
    }
}

/// Records that this CPU goes offline or has come online.
fn set_offline(offline: bool) {
    let _preempt = NoPreempt::new();
    if let Some(here) = PerCpu::this_cpu() {
        here.cpu_state.set_offline(offline);
    }
}

/// The suspend and resume callbacks of accounting. The time from suspend to resume is not counted.
pub(crate) struct Power;

impl PowerCallbacks for Power {
    fn suspend() {
        let _preempt = NoPreempt::new();
        if let Some(here) = PerCpu::this_cpu() {
            here.cpu_state.suspend(here.clock.now());
        }
    }

    fn resume() {
        let _preempt = NoPreempt::new();
        if let Some(here) = PerCpu::this_cpu() {
            here.cpu_state.resume(here.clock.now());
        }
    }
}
