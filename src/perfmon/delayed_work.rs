// SPDX-License-Identifier: GPL-2.0

//! Deferred work of perfmon that belongs to no single context: the periodic reading of counters
//! before they wrap, and the delayed detaching of probes.

#![expect(unsafe_code, reason = "calls of C")]

use kernel::error::{to_result, Result};

use crate::helpers;

/// Queues a call of `pfm_detach_idle_probes` after `milliseconds`. `pfm_detach_idle_probes`
/// detaches the scheduler probes if it finds no monitored thread. If a thread is monitored again
/// before `pfm_detach_idle_probes` runs, the probes need not be attached again.
pub(crate) fn queue_idle_probes_detach(milliseconds: u32) {
    // SAFETY: [`Workqueues`] exists as long as a context exists.
    unsafe { helpers::pfm_idle_queue(milliseconds) }
}

/// The workqueues of perfmon. Dropping this value cancels the delayed work, and waits for the
/// queued work.
pub(crate) struct Workqueues(());

impl Workqueues {
    /// Creates the workqueues. Returns `ENOMEM` if memory is short.
    pub(crate) fn create() -> Result<Self> {
        // SAFETY: `pfm_start_workqueues()` is called once, and drop destroys the workqueues.
        to_result(unsafe { helpers::pfm_start_workqueues() })?;
        Ok(Self(()))
    }
}

impl Drop for Workqueues {
    fn drop(&mut self) {
        // SAFETY: `create` has created the workqueues. No file of `/dev/perfmon` is open, so no
        // more work is queued.
        unsafe { helpers::pfm_stop_workqueues() }
    }
}

/// The periodic work that reads all counters before they wrap. At most one `WrapTimer` exists.
/// Dropping the value stops the work, but does not wait for work that is already running.
pub(crate) struct WrapTimer(());

impl WrapTimer {
    /// Starts the periodic work, with a period of `milliseconds`.
    pub(crate) fn start(milliseconds: u32) -> Self {
        // SAFETY: [`Workqueues`] exists as long as a context exists, and drop stops the periodic
        // work.
        unsafe { helpers::pfm_wrap_timer_start(milliseconds) }
        Self(())
    }
}

impl Drop for WrapTimer {
    fn drop(&mut self) {
        // SAFETY: `start` has started the periodic work.
        unsafe { helpers::pfm_wrap_timer_stop() }
    }
}
