// SPDX-License-Identifier: GPL-2.0

//! Ids of processes and threads, and their numbers in PID namespaces.

use core::ptr::NonNull;

use kernel::bindings;
use kernel::prelude::*;
use kernel::task::Task;

use super::helpers;

/// The id of a process, which can be translated to any PID namespace even after the process has
/// ended.
///
/// # Invariants
///
/// `self` holds a reference to the `struct pid`.
pub struct Pid(NonNull<bindings::pid>);

// SAFETY: `Pid` holds a reference to the `struct pid`, which any thread may use and drop.
unsafe impl Send for Pid {}
// SAFETY: `Pid` holds a reference to the `struct pid`, which any thread may use and drop.
unsafe impl Sync for Pid {}

impl Pid {
    /// Returns the id of the process whose first thread is `leader`.
    pub fn of_process(leader: &Task) -> Option<Self> {
        // SAFETY: The reference keeps the task alive.
        // INVARIANT: The callee has returned a reference, which the new value owns.
        NonNull::new(unsafe { helpers::pfc_pid_get(leader.as_ptr()) }).map(Self)
    }

    /// Returns the number of the process in its own PID namespace.
    pub fn own_number(&self) -> u32 {
        // SAFETY: The id is valid, by the type's invariant.
        unsafe { helpers::pfc_pid_nr_in_own_ns(self.0.as_ptr()) }
    }

    /// Returns the number of the process in the caller's PID namespace, or 0 if the process is not
    /// visible in that namespace.
    pub fn number(&self) -> u32 {
        // SAFETY: The id is valid, by the type's invariant.
        unsafe { helpers::pfc_pid_nr(self.0.as_ptr()) }
    }
}

/// Returns the number of the current thread in its own PID namespace.
pub fn thread_number() -> u32 {
    // SAFETY: The caller is in process context, as the callee requires.
    unsafe { helpers::pfc_tid_in_own_ns() }
}

impl Pid {
    /// Returns the size in bytes of the `struct pid`, which the reference keeps allocated.
    pub fn bytes(&self) -> usize {
        // SAFETY: The id is valid, by the type's invariant.
        unsafe { helpers::pfc_pid_bytes(self.0.as_ptr()) }
    }
}

impl Drop for Pid {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` holds a reference, which is dropped once.
        unsafe { bindings::put_pid(self.0.as_ptr()) }
    }
}

/// The id of a process (`struct pid`). While a reference to a `struct pid` exists, no other process
/// gets the same `struct pid`.
///
/// # Invariants
///
/// `self` holds a reference to the `struct pid`.
pub struct ProcessIdentity(NonNull<bindings::pid>);

// SAFETY: A reference to a `struct pid` may be dropped by any thread.
unsafe impl Send for ProcessIdentity {}
// SAFETY: A shared reference to `ProcessIdentity` gives access only to the address of the `struct
// pid`.
unsafe impl Sync for ProcessIdentity {}

impl ProcessIdentity {
    /// Returns the id of the caller's process.
    pub fn of_caller() -> Result<Self> {
        // SAFETY: The caller is in process context, as the callee requires.
        let number = unsafe { helpers::pfc_current_process() };
        // INVARIANT: The callee has returned a reference, which the new `ProcessIdentity` owns.
        NonNull::new(number).map(Self).ok_or(ESRCH)
    }

    /// Returns whether `self` and `other` are the same process.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Returns the pointer to the `struct pid`, for calls of C functions.
    pub fn as_ptr(&self) -> *mut bindings::pid {
        self.0.as_ptr()
    }
}

impl Drop for ProcessIdentity {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` holds a reference, which is dropped once.
        unsafe { bindings::put_pid(self.0.as_ptr()) }
    }
}
