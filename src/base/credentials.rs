// SPDX-License-Identifier: GPL-2.0

//! The identity of a task: its user and its name.

use kernel::current;
use kernel::task::Task;

use super::helpers;
pub use super::helpers::Identity;

impl Identity {
    /// Returns the user and the name of the current task.
    pub fn of_current() -> Self {
        Self::of_task(current!())
    }

    /// Returns the user and the name of a task.
    pub fn of_task(task: &Task) -> Self {
        let mut who = Self::default();
        // SAFETY: The reference keeps the task alive, and the callee fills in `who`.
        unsafe { helpers::pfc_identity(&mut who, task.as_ptr()) };
        who
    }
}

/// Converts a user id of the initial user namespace to a user id of the caller's user namespace.
/// Returns the overflow uid if the user id has no mapping in the caller's namespace.
pub fn uid_in_caller_namespace(uid: u32) -> u32 {
    // SAFETY: The callee only reads the current task's user namespace.
    unsafe { helpers::pfc_uid_in_caller_ns(uid) }
}
