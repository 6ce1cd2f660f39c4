// SPDX-License-Identifier: GPL-2.0

//! Deferred work of perfmon that belongs to no single context: the periodic reading of counters
//! before they wrap, the delayed detaching of probes, suspend and resume.

use kernel::error::{to_result, Result};

use super::shim;
use crate::{accounting, session};

#[no_mangle]
extern "C" fn pfm_wrap_timer_work() {
    session::sync_all_cpus();
}

#[no_mangle]
extern "C" fn pfm_idle_work() {
    session::detach_idle_probes();
}

/// Queues a call of [`session::detach_idle_probes`] after `milliseconds`, which detaches the probes
/// of the scheduler's tracepoints if no thread is monitored then. If a thread is monitored again
/// during the delay, the probes need not be attached again.
pub(crate) fn queue_idle_work(milliseconds: u32) {
    // SAFETY: [`Workqueues`] exists as long as a context exists.
    unsafe { shim::pfm_idle_queue(milliseconds) }
}

/// The workqueues of perfmon. Dropping this value cancels the delayed work, waits for the queued
/// work and detaches the probes of the scheduler's tracepoints.
pub(crate) struct Workqueues(());

impl Workqueues {
    /// Creates the workqueues. Returns `ENOMEM` if memory is short.
    pub(crate) fn create() -> Result<Self> {
        // SAFETY: `pfm_work_start()` is called once, and drop destroys the workqueues.
        to_result(unsafe { shim::pfm_work_start() })?;
        Ok(Self(()))
    }
}

impl Drop for Workqueues {
    fn drop(&mut self) {
        // SAFETY: `create` has created the workqueues. No file of `/dev/perfmon` is open, so no
        // more work is queued.
        unsafe { shim::pfm_work_end() }
        session::detach_idle_probes();
    }
}

/// If `suspend` is true, unloads the contexts of this CPU before the machine suspends. Otherwise
/// loads them again when the machine resumes. Accounting does not count the time in between.
///
/// # Safety
///
/// Called only by `sys/shim/pmu.c`, on the last online CPU, with interrupts off.
unsafe extern "C" fn suspend_or_resume(suspend: bool) {
    accounting::suspend_or_resume(suspend);
    session::suspend_or_resume(suspend);
}

/// The periodic work that reads all counters before they wrap. At most one `WrapTimer` exists.
/// Dropping it stops the work, but does not wait for work that is already running.
pub(crate) struct WrapTimer(());

impl WrapTimer {
    /// Starts the periodic work, with a period of `milliseconds`.
    pub(crate) fn start(milliseconds: u32) -> Self {
        // SAFETY: [`Workqueues`] exists as long as a context exists, and drop stops the periodic
        // work.
        unsafe { shim::pfm_wrap_timer_start(milliseconds) }
        Self(())
    }
}

impl Drop for WrapTimer {
    fn drop(&mut self) {
        // SAFETY: `start` has started the periodic work.
        unsafe { shim::pfm_wrap_timer_stop() }
    }
}

/// The registered callbacks of suspend and resume. Dropping this value unregisters the callbacks.
pub(crate) struct Power(());

impl Power {
    /// Registers the callbacks of suspend and resume.
    pub(crate) fn register() -> Self {
        // SAFETY: `pfm_power_register()` is called once. `suspend_or_resume` is a function of this
        // module, and drop unregisters it.
        unsafe { shim::pfm_power_register(suspend_or_resume) };
        Self(())
    }
}

impl Drop for Power {
    fn drop(&mut self) {
        // SAFETY: `register` has registered the callbacks, which are unregistered once.
        unsafe { shim::pfm_power_unregister() }
    }
}
