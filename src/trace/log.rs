// SPDX-License-Identifier: GPL-2.0

//! The log lines of user tracing about processes and markers that are not traced.

#![expect(unsafe_code, reason = "calls of C")]

use kernel::error::Error;
use kernel::task::Task;

use crate::helpers;

/// Logs that the current process, or some of its markers, could not be traced. Called in process
/// context.
pub(crate) fn log_refused_tracing(markers: bool, error: Error) {
    // SAFETY: The caller is in process context, as `pt_log_refused_tracing()` requires.
    unsafe { helpers::pt_log_refused_tracing(markers, error.to_errno()) }
}

/// Logs that a process is not traced because the permission to trace it could not be checked.
pub(crate) fn log_unchecked_permission(leader: &Task, error: Error) {
    // SAFETY: The reference keeps the task alive.
    unsafe { helpers::pt_log_unchecked_permission(leader.as_ptr(), error.to_errno()) }
}
