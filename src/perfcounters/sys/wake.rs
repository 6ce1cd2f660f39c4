// SPDX-License-Identifier: GPL-2.0

//! Deferred work of perfmon as a whole: the periodic reading of counters before they wrap, the
//! delayed detaching of probes, suspend and resume.

use kernel::error::{to_result, Result};

use super::shim;
use crate::{accounting, session};

#[no_mangle]
extern "C" fn pfm_round() {
    session::look_round();
}

#[no_mangle]
extern "C" fn pfm_idle() {
    session::tire();
}

/// Queues [`session::tire`], which detaches the scheduler's probes if no thread is monitored, in so
/// many milliseconds. The delay saves the cost of attaching them again.
pub(crate) fn idle_later(milliseconds: u32) {
    // SAFETY: [`Work`] exists as long as there are contexts.
    unsafe { shim::pfm_idle_later(milliseconds) }
}

/// The workqueues of perfmon. Drop cancels the delayed work, finishes the queued work and detaches
/// the scheduler's probes.
pub(crate) struct Work(());

impl Work {
    /// Creates the workqueues. `ENOMEM`.
    pub(crate) fn begin() -> Result<Self> {
        // SAFETY: Called once, and drop destroys the workqueues.
        to_result(unsafe { shim::pfm_work_start() })?;
        Ok(Self(()))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // SAFETY: `begin` has created the workqueues. No file is open, so that no more work is
        // queued.
        unsafe { shim::pfm_work_end() }
        session::tire();
    }
}

/// Unloads the contexts of this CPU before the machine suspends (`going`), and loads them again
/// when it resumes. Accounting does not count the time in between.
///
/// # Safety
///
/// Called only by `sys/shim/pmu.c`, on the last online CPU, with interrupts off.
unsafe extern "C" fn sleep(going: bool) {
    accounting::sleep(going);
    session::sleep(going);
}

/// The periodic work that reads all counters before they wrap. There is at most one. Drop stops it,
/// but does not wait for a run in progress.
pub(crate) struct Rounds(());

impl Rounds {
    /// Starts the work, with this period.
    pub(crate) fn every(milliseconds: u32) -> Self {
        // SAFETY: [`Work`] exists as long as there are contexts, and drop stops the periodic work.
        unsafe { shim::pfm_rounds_start(milliseconds) }
        Self(())
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        // SAFETY: `every` has started the work.
        unsafe { shim::pfm_rounds_stop() }
    }
}

/// The registered callbacks of suspend and resume; drop unregisters them.
pub(crate) struct Sleep(());

impl Sleep {
    /// Registers the callbacks.
    pub(crate) fn register() -> Self {
        // SAFETY: Called once. `sleep` is a function of this module, and drop unregisters it.
        unsafe { shim::pfm_sleep_register(sleep) };
        Self(())
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        // SAFETY: `register` has registered the callbacks.
        unsafe { shim::pfm_sleep_unregister() }
    }
}
