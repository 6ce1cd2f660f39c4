// SPDX-License-Identifier: GPL-2.0

//! Detaches traced processes from the module, so that the module can be unloaded.
//!
//! A traced process keeps the device open and mapped for as long as it runs, even if it writes no
//! event. If traced processes could not be detached, the module could not be unloaded while a
//! daemon with markers runs.
//!
//! Each traced process detaches itself, in a task work, because the mappings of a process can be
//! replaced only in the context of that process.

use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use crate::children::get_leader;
use crate::detach_mappings::{detach_later, DeviceOps, WakeMappingFile};
use crate::registry::TRACING;
use base::task::has_fatal_signal;

/// Prevents further processes from attaching, and asks all attached processes to detach. Returns
/// the number of processes that are still attached. May sleep.
///
/// # Errors
///
/// `EBUSY` while traces exist that have not ended.
pub(crate) fn release(device: &DeviceOps, wake: Option<&WakeMappingFile>) -> Result<usize> {
    let mut all = TRACING.lock();
    if all.traces.iter().any(|trace| trace.state.slot().is_some()) {
        return Err(EBUSY);
    }
    all.closed = true;
    drop(all);
    let (mut after, mut left) = (0u64, 0usize);
    loop {
        let mut all = TRACING.lock();
        let next = all.next_process_where(after, |process| !process.has_ended());
        let Some(key) = next.map(|process| process.key) else {
            return Ok(left);
        };
        (after, left) = (key, left.wrapping_add(1));
        if has_fatal_signal() {
            return Ok(left);
        }
        // Set `is_detaching` before the work is queued: the work may fail at once, and then clears
        // `is_detaching`.
        let told = core::mem::replace(&mut all.live_process(key)?.is_detaching, true);
        drop(all);
        // If the process has no task yet or memory is short, the next call of `release` asks the
        // process again.
        let ask = |leader: ARef<Task>| detach_later(device, (key, &leader), wake);
        if !told && get_leader(key).and_then(ask).is_err() {
            detach_failed(key);
        }
    }
}

/// Cancels [`release`]: new processes can attach again, and processes that have not detached yet
/// stay attached.
pub(crate) fn resume() {
    let mut all = TRACING.lock();
    all.closed = false;
    for process in &mut all.processes {
        process.is_detaching = false;
    }
}

/// Records that the process `key` could not detach, so that the next [`release`] asks the process
/// again.
pub(crate) fn detach_failed(key: u64) {
    if let Ok(process) = TRACING.lock().live_process(key) {
        process.is_detaching = false;
    }
}

/// Returns whether [`release`] has asked processes to detach, and [`resume`] has not cancelled this
/// request.
pub(crate) fn is_closed_to_new_processes() -> bool {
    TRACING.lock().closed
}
