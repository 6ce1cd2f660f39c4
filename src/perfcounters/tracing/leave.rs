// SPDX-License-Identifier: GPL-2.0

//! The module is about to go: traced processes let go of it. A process has the device open and
//! mapped for as long as it runs, if only for an event to come: nobody could unload the module
//! while a daemon runs that has markers.
//!
//! Each does it by itself, in its own context: only there can what it has mapped be replaced.

use kernel::prelude::*;

use crate::sys::leave::{leave_later, Wake};
use crate::sys::lock::TRACING;
use crate::sys::process::{is_dying, Mm};

/// Nobody can attach any more, and who has attached lets go. Says how many have not yet.
/// `EBUSY`: there are traces. May sleep.
pub(crate) fn release(wake: Option<&Wake>) -> Result<usize> {
    let mut all = TRACING.lock();
    if all.traces.iter().any(|trace| trace.slot.is_some()) {
        return Err(EBUSY);
    }
    all.closed = true;
    drop(all);
    let (mut after, mut left) = (0u64, 0usize);
    loop {
        let all = TRACING.lock();
        let next = all.next_in(after, |process| !process.has_ended());
        let next = next.and_then(|p| Some((p.key, p.leaves, p.leader()?.clone())));
        let Some((key, told, leader)) = next else {
            return Ok(left);
        };
        drop(all);
        (after, left) = (key, left.wrapping_add(1));
        if is_dying() {
            return Ok(left);
        }
        // Who could not be told, for want of memory, is told by the next call.
        if !told && leave_later(&leader, wake).is_ok() {
            if let Ok(process) = TRACING.lock().living(key) {
                process.leaves = true;
            }
        }
    }
}

/// The module stays: a process that was asked to let go of it, and has not, need not any more.
pub(crate) fn resume() {
    let mut all = TRACING.lock();
    all.closed = false;
    for process in &mut all.processes {
        process.leaves = false;
    }
}

/// The calling process had nothing mapped yet: it is told once more.
pub(crate) fn later(mm: &Mm) {
    let mut all = TRACING.lock();
    let key = all.of_mm(mm.address());
    if let Some(Ok(process)) = key.map(|key| all.living(key)) {
        process.leaves = false;
    }
}

/// Is the module about to go?
pub(crate) fn is_closed() -> bool {
    TRACING.lock().closed
}
