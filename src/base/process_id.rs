// SPDX-License-Identifier: GPL-2.0

//! Ids of processes and threads, and their numbers in PID namespaces.

use core::ptr::NonNull;

use kernel::bindings;
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
