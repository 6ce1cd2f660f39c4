// SPDX-License-Identifier: GPL-2.0

//! Access checks: whether a thread may monitor or trace another (`helpers/access.c`).

use core::ptr::NonNull;

use kernel::bindings;
use kernel::cred::Credential;
use kernel::error::{to_result, Result};
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use super::helpers;
use super::task::TaskRef;

/// A mount of procfs for internal use, which exists while the module is loaded. An access check
/// opens a file of a process in this mount, so that the kernel's own ptrace and security-module
/// checks decide.
pub(crate) struct ProcfsMount(());

impl ProcfsMount {
    /// Mounts procfs. May sleep.
    pub(crate) fn mount() -> Result<Self> {
        // SAFETY: The callee is called once, before any check can be made.
        to_result(unsafe { helpers::pfm_procfs_mount() })?;
        Ok(Self(()))
    }
}

impl Drop for ProcfsMount {
    fn drop(&mut self) {
        // SAFETY: The module is being unloaded, so that no access check can be made any more.
        unsafe { helpers::pfm_procfs_unmount() }
    }
}

/// Checks whether the caller may read a thread's state or, with `attach`, stop the thread, by the
/// rules of ptrace and of the security modules. Threads of the caller's own process are always
/// allowed. May sleep; caller holds no lock of this module.
///
/// # Errors
///
/// `EPERM` if the caller has no permission; `ESRCH` if the thread exits; `EINTR` or `ENOMEM` if the
/// check could not be made.
pub(crate) fn check_access(task: &Task, attach: bool) -> Result {
    // SAFETY: The reference keeps the task alive, and the caller is in process context.
    to_result(unsafe { helpers::pfm_check_access(task.as_ptr(), attach) })
}

/// Returns whether the caller may read a thread's state by the rules of ptrace alone, without the
/// security modules. Threads of the caller's own process are always allowed. The thread may be
/// exiting.
pub(crate) fn may_watch(task: &Task) -> bool {
    // SAFETY: The reference keeps the task alive, and the caller is in process context.
    unsafe { helpers::pfm_may_watch(task.as_ptr()) }
}

/// Returns whether the caller may monitor the kernel, CPUs and threads of other users:
/// `CAP_PERFMON` or `CAP_SYS_ADMIN`.
pub(crate) fn is_perfmon_capable() -> bool {
    // SAFETY: The callee only checks capabilities of the current task.
    unsafe {
        bindings::capable(bindings::CAP_PERFMON as c_int)
            || bindings::capable(bindings::CAP_SYS_ADMIN as c_int)
    }
}

/// Checks whether the caller may read all values of accounting and control accounting. Each file of
/// accounting requires this permission, except that a task's values may also be read by callers
/// that [`may_read`] the task.
///
/// # Errors
///
/// `EPERM` without `CAP_PERFMON` or `CAP_SYS_ADMIN`.
pub(crate) fn may_account() -> Result {
    is_perfmon_capable().then_some(()).ok_or(EPERM)
}

/// Checks whether the caller may read the values of a task's accounting.
///
/// # Errors
///
/// `EPERM` if ptrace's rule does not let the caller read the task, and the caller has neither
/// `CAP_PERFMON` nor `CAP_SYS_ADMIN`.
pub(crate) fn may_read(task: &Task) -> Result {
    match may_watch(task) {
        true => Ok(()),
        false => may_account(),
    }
}

/// Returns whether the caller may monitor the kernel, CPUs and threads of other users, without an
/// audit record. Used where a denial selects a default, or where a check of another right follows a
/// denial.
pub(crate) fn has_perfmon_noaudit() -> bool {
    has_capability_noaudit(bindings::CAP_PERFMON) || has_capability_noaudit(bindings::CAP_SYS_ADMIN)
}

/// Returns whether the caller has a capability in the initial user namespace, without an audit
/// record.
fn has_capability_noaudit(capability: u32) -> bool {
    // SAFETY: The callee checks a capability of the current task, and the initial user namespace
    // always exists.
    unsafe { bindings::ns_capable_noaudit(&raw mut bindings::init_user_ns, capability as c_int) }
}

/// Returns the caller's credentials. Called in process context.
pub(crate) fn of_caller() -> ARef<Credential> {
    // SAFETY: The callee returns a reference, never null, which the result owns; `Credential` is a
    // transparent wrapper of `struct cred`.
    unsafe { ARef::from_raw(NonNull::new_unchecked(helpers::pfm_get_current_cred()).cast()) }
}

/// Returns the credentials of a task. May be called in any context except an NMI.
pub(crate) fn of_task(task: TaskRef<'_>) -> ARef<Credential> {
    // SAFETY: The task is valid by the invariant of `TaskRef`. The callee returns a reference,
    // never null, which is given to the result; `Credential` is a transparent wrapper of the
    // structure.
    unsafe {
        let cred = bindings::get_task_cred(task.as_ptr());
        ARef::from_raw(NonNull::new_unchecked(cred.cast_mut()).cast())
    }
}

/// Returns whether the caller may load and unload modules (`CAP_SYS_MODULE`).
pub(crate) fn may_unload() -> bool {
    // SAFETY: The callee only checks a capability of the current task.
    unsafe { bindings::capable(bindings::CAP_SYS_MODULE as c_int) }
}

/// Returns whether contexts of users are evicted in favour of the caller, because the caller has
/// `CAP_SYS_ADMIN`. No audit record is written, because without the capability the call fails with
/// `EBUSY` or `EEXIST`, not with `EPERM`.
pub(crate) fn may_evict() -> bool {
    has_capability_noaudit(bindings::CAP_SYS_ADMIN)
}

/// Returns whether the caller may monitor the kernel: perf would allow the caller to do so
/// (`perf_event_paranoid`, capability, security modules), and the kernel is not locked down for
/// confidentiality.
pub(crate) fn may_monitor_kernel() -> bool {
    // SAFETY: The caller is in process context, as the callee requires.
    unsafe { helpers::pfm_may_monitor_kernel() }
}

/// Checks whether a user with these credentials may read a process's state or, with `attach`, stop
/// the process, by the rules of ptrace and of the security modules. The result does not depend on
/// the caller's credentials, and the caller may be a thread of that process. May sleep; caller
/// holds no lock of this module.
///
/// # Errors
///
/// `EPERM` if the user has no permission; `ESRCH` if the process exits; `EINTR` or `ENOMEM` if the
/// check could not be made.
pub(crate) fn check_access_as(cred: &Credential, task: &Task, attach: bool) -> Result {
    // SAFETY: The references keep the credentials and the task; process context.
    to_result(unsafe { helpers::pfm_check_access_as(cred.as_ptr(), task.as_ptr(), attach) })
}

/// Returns whether a user with these credentials could have read the process's state while the
/// process ran the program of `seen`, by the rules of ptrace alone.
pub(crate) fn ptrace_allows(cred: &Credential, task: &Task, seen: &AccessSnapshot) -> bool {
    // SAFETY: The references keep the credentials and the task, and `pfm_snapshot_take()` has
    // filled in the structure; process context.
    unsafe { helpers::pfm_ptrace_allows(cred.as_ptr(), task.as_ptr(), &raw const seen.0) }
}

/// Checks whether the caller may read the state of a process with these credentials, by the rules
/// of ptrace and of the security modules. No process needs to have these credentials: a kernel
/// thread with these credentials is checked. May sleep; caller holds no lock of this module.
///
/// # Errors
///
/// `EPERM` if the caller has no permission; `EINTR` or `ENOMEM` if the check could not be made.
pub(crate) fn check_cred_access(cred: &Credential) -> Result {
    // SAFETY: The reference keeps the credentials during the call; process context.
    to_result(unsafe { helpers::pfm_check_cred_access(cred.as_ptr()) })
}

/// Returns whether the caller is the same user, in the same user namespace, as these credentials,
/// and is permitted all of their effective capabilities.
pub(crate) fn has_rights_of(cred: &Credential) -> bool {
    // SAFETY: The reference keeps the credentials during the call.
    unsafe { helpers::pfm_has_rights_of(cred.as_ptr()) }
}

/// The id of a process (`struct pid`), which no other process gets while it is referenced.
///
/// # Invariants
///
/// `self` holds a reference to the `struct pid`.
pub(crate) struct Process(NonNull<bindings::pid>);

// SAFETY: A reference to a `struct pid` may be dropped by any thread.
unsafe impl Send for Process {}
// SAFETY: A shared reference to `Process` gives the address of the `struct pid` only.
unsafe impl Sync for Process {}

impl Process {
    /// Returns the id of the caller's process.
    pub(crate) fn of_caller() -> Result<Self> {
        // SAFETY: The caller is in process context, as the callee requires.
        let number = unsafe { helpers::pfm_current_process() };
        // INVARIANT: The callee has returned a reference, which the new `Process` owns.
        NonNull::new(number).map(Self).ok_or(ESRCH)
    }

    /// Returns whether `self` and `other` are the same process.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Returns the pointer to the `struct pid`, for C.
    pub(crate) fn as_ptr(&self) -> *mut bindings::pid {
        self.0.as_ptr()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` holds a reference, which is dropped once.
        unsafe { bindings::put_pid(self.0.as_ptr()) }
    }
}

/// The properties of a thread on which access to the thread depends, at one moment: its
/// credentials, its program (`exec_state`), and whether the program is dumpable.
///
/// # Invariants
///
/// `pfm_snapshot_take()` has filled in the structure, which holds its references until drop.
pub(crate) struct AccessSnapshot(helpers::AccessSnapshot);

// SAFETY: The structure holds references, which any thread may drop.
unsafe impl Send for AccessSnapshot {}
// SAFETY: The fields of an `AccessSnapshot` do not change. The structures to which the fields point
// are read with RCU or READ_ONCE(), as the kernel does.
unsafe impl Sync for AccessSnapshot {}

impl AccessSnapshot {
    /// Takes the properties of a thread. Returns `ESRCH` if the thread has exited.
    pub(crate) fn of(task: &Task) -> Result<Self> {
        let mut seen = helpers::AccessSnapshot {
            cred: core::ptr::null(),
            state: core::ptr::null_mut(),
            dumpable: 0,
        };
        // SAFETY: The reference keeps the task alive, and the callee fills in the structure.
        to_result(unsafe { helpers::pfm_snapshot_take(&raw mut seen, task.as_ptr()) })?;
        // INVARIANT: `pfm_snapshot_take()` has succeeded.
        Ok(Self(seen))
    }

    /// Returns whether the thread still has the credentials and the dumpability of `self`, even if
    /// the thread runs another program now.
    pub(crate) fn is_unchanged(&self, task: &Task) -> bool {
        // SAFETY: The structure is filled in by the type's invariant, and the reference keeps the
        // task alive.
        unsafe { helpers::pfm_snapshot_is_unchanged(&raw const self.0, task.as_ptr()) }
    }

    /// Returns whether the thread still runs the program of which `self` is a snapshot, and whether
    /// `then` is a snapshot of this program too.
    pub(crate) fn runs_same_program(&self, task: &Task, then: &Self) -> bool {
        // SAFETY: The structure is filled in by the type's invariant, and the reference keeps the
        // task alive.
        let runs = unsafe { helpers::pfm_snapshot_same_program(&raw const self.0, task.as_ptr()) };
        runs && self.0.state == then.0.state
    }

    /// Returns whether the thread still has the credentials of `self`, and the program of `self`
    /// still has the dumpability of `self`. Unlike [`is_unchanged`](Self::is_unchanged), this
    /// function checks the program that the thread ran when the snapshot was taken, even if the
    /// thread runs another program now.
    pub(crate) fn was_unchanged(&self, task: &Task) -> bool {
        // SAFETY: The structure is filled in by the type's invariant, and the reference keeps the
        // task alive.
        unsafe { helpers::pfm_snapshot_was_unchanged(&raw const self.0, task.as_ptr()) }
    }
}

impl Drop for AccessSnapshot {
    fn drop(&mut self) {
        // SAFETY: The structure is filled in by the type's invariant, and no longer used.
        unsafe { helpers::pfm_snapshot_put(&raw mut self.0) }
    }
}
