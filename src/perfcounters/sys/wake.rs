// SPDX-License-Identifier: GPL-2.0

//! What wakes contexts: rounds in which counters are looked at, and the machine's
//! sleep.

use super::shim;
use crate::session;

/// # Safety
///
/// Called by the shim, in a worker.
unsafe extern "C" fn look() {
    session::look_round();
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
        // SAFETY: `look` stays as long as the module, and drop ends them.
        unsafe {
            shim::pfm_rounds_init(look);
            shim::pfm_rounds_start(milliseconds);
        }
        Self(())
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        // SAFETY: Begun in `every`. Waits for one that runs.
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
