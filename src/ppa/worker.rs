// SPDX-License-Identifier: GPL-2.0

//! Functions that queue the workers of accounting, and the type of the directories `/proc/ppa/PID`,
//! which one of the workers removes.

#![expect(unsafe_code, reason = "calls of C")]

use core::ptr::NonNull;

use kernel::ffi::c_void;
use kernel::prelude::*;

use crate::helpers;

/// The directory `/proc/ppa/PID` with a task's files.
///
/// # Invariants
///
/// The directory exists until the `Directory` is dropped.
pub(crate) struct Directory(NonNull<c_void>);

// SAFETY: A `Directory` is only used to remove the directory, which any thread may do.
unsafe impl Send for Directory {}

impl Directory {
    /// Creates a task's directory `/proc/ppa/PID` and the files in it, which identify the task by
    /// `id`. May sleep.
    pub(crate) fn create(pid: u32, id: usize) -> Result<Self> {
        // SAFETY: `create` is called while the directory `/proc/ppa` exists.
        let directory = unsafe { helpers::ppa_entry_create(pid, id) };
        // INVARIANT: The callee has created the directory.
        NonNull::new(directory).map(Self).ok_or(ENOMEM)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: The directory exists by the type's invariant. The callee waits for readers.
        unsafe { helpers::ppa_entry_remove(self.0.as_ptr()) }
    }
}

/// Queues the worker that removes the files of tasks that have ended or are no longer selected. The
/// worker also stops accounting if accounting is turned off and no selected task needs it. Callable
/// in any context that may wake a thread.
pub(crate) fn queue_worker() {
    // SAFETY: The work that is queued is a static variable.
    unsafe { helpers::ppa_queue_worker() }
}

/// Queues the worker that writes the CPUs' values to the counter pages. The worker runs after `ms`
/// milliseconds.
pub(crate) fn queue_publisher(ms: u32) {
    // SAFETY: The work that is queued is a static variable.
    unsafe { helpers::ppa_queue_publisher(ms) }
}
