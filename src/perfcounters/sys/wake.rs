// SPDX-License-Identifier: GPL-2.0

//! What wakes contexts: rounds in which counters are looked at, and the machine's
//! sleep.

use kernel::error::{to_result, Result};

use super::shim;
use crate::session;

#[no_mangle]
extern "C" fn pfm_round() {
    session::look_round();
}

#[no_mangle]
extern "C" fn pfm_idle() {
    session::tire();
}

/// Nobody needs what is kept for the next one: [`session::tire`] so much later.
pub(crate) fn idle_later(milliseconds: u32) {
    // SAFETY: `Work` is there as long as there are contexts.
    unsafe { shim::pfm_idle_later(milliseconds) }
}

/// Work for later, by nobody's CPU; drop does what is left of it.
pub(crate) struct Work(());

impl Work {
    /// There can be some.
    pub(crate) fn begin() -> Result<Self> {
        // SAFETY: Once; drop ends it.
        to_result(unsafe { shim::pfm_work_start() })?;
        Ok(Self(()))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // SAFETY: Begun; no file of ours is open, so nobody queues any.
        unsafe { shim::pfm_work_end() }
        session::tire();
    }
}

/// # Safety
///
/// Called by the shim, on the last CPU, with interrupts off.
unsafe extern "C" fn sleep(going: bool) {
    session::sleep(going);
}

/// Rounds; drop ends them. There is one at a time.
pub(crate) struct Rounds(());

impl Rounds {
    /// One every so many milliseconds.
    pub(crate) fn every(milliseconds: u32) -> Self {
        // SAFETY: `Work` is there; drop ends them.
        unsafe { shim::pfm_rounds_start(milliseconds) }
        Self(())
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        // SAFETY: Begun in `every`.
        unsafe { shim::pfm_rounds_stop() }
    }
}

/// Word of the machine's sleep; drop ends it.
pub(crate) struct Sleep(());

impl Sleep {
    /// From now on.
    pub(crate) fn register() -> Self {
        // SAFETY: Once; `sleep` stays as long as the module, and drop ends it.
        unsafe { shim::pfm_sleep_register(sleep) };
        Self(())
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        // SAFETY: Registered.
        unsafe { shim::pfm_sleep_unregister() }
    }
}
