// SPDX-License-Identifier: GPL-2.0

//! Functions that queue the workers of accounting.

#![expect(unsafe_code, reason = "calls of C")]

use crate::helpers;

/// Queues the worker that removes the files of tasks that have ended or are no longer selected. The
/// worker also stops accounting if accounting is turned off and no selected task needs it. Callable
/// in any context that may wake a thread.
pub(crate) fn queue_cleanup_worker() {
    // SAFETY: The work that is queued is a static variable.
    unsafe { helpers::ppa_queue_worker() }
}

/// Queues the worker that writes the CPUs' values to the counter pages. The worker runs after `ms`
/// milliseconds.
pub(crate) fn queue_publisher(ms: u32) {
    // SAFETY: The work that is queued is a static variable.
    unsafe { helpers::ppa_queue_publisher(ms) }
}
