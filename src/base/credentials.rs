// SPDX-License-Identifier: GPL-2.0

//! The credentials of a task, and its identity: its user and its name.

use core::ptr::NonNull;

use kernel::bindings;
use kernel::cred::Credential;
use kernel::current;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use super::helpers;
pub use super::helpers::Identity;
use super::task::TaskRef;

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

/// Returns the caller's credentials. Called in process context.
pub fn caller_credentials() -> ARef<Credential> {
    // SAFETY: The callee returns a reference, never null, which the result owns; `Credential` is a
    // transparent wrapper of `struct cred`.
    unsafe {
        ARef::from_raw(NonNull::new_unchecked(helpers::pfc_get_current_cred().cast_mut()).cast())
    }
}

/// Returns the credentials of a task. May be called in any context except an NMI.
pub fn task_credentials(task: TaskRef<'_>) -> ARef<Credential> {
    // SAFETY: The task is valid by the invariant of `TaskRef`. The callee returns a reference,
    // never null, which the result owns; `Credential` is a transparent wrapper of `struct cred`.
    unsafe {
        let cred = bindings::get_task_cred(task.as_ptr());
        ARef::from_raw(NonNull::new_unchecked(cred.cast_mut()).cast())
    }
}
