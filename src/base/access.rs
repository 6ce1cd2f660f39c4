// SPDX-License-Identifier: GPL-2.0

//! Access checks: whether a thread may monitor or trace another (`helpers/access.c`).

use kernel::cred::Credential;
use kernel::error::{to_result, Result};
use kernel::prelude::*;
use kernel::task::Task;

use super::capabilities::may_manage_accounting;
use super::helpers;

/// A mount of procfs for internal use, which exists while the module is loaded. To check access to
/// a process, the module opens a file of the process in this mount of procfs: the kernel then
/// checks ptrace's rules and asks the security modules.
pub struct ProcfsMount(());

impl ProcfsMount {
    /// Mounts procfs. May sleep.
    pub fn mount() -> Result<Self> {
        // SAFETY: `pfc_mount_private_procfs()` is called once, before any access check can be made.
        to_result(unsafe { helpers::pfc_mount_private_procfs() })?;
        Ok(Self(()))
    }
}

impl Drop for ProcfsMount {
    fn drop(&mut self) {
        // SAFETY: The module is being unloaded, so that no access check can be made any more.
        unsafe { helpers::pfc_unmount_private_procfs() }
    }
}

/// Checks whether ptrace's rules and the security modules allow the caller to read a thread's state
/// or, with `attach`, to stop the thread. Access to threads of the caller's own process is always
/// allowed. May sleep; caller holds no lock of this module.
///
/// # Errors
///
/// `EPERM` if the caller has no permission; `ESRCH` if the thread is exiting; `EINTR` or `ENOMEM`
/// if the check could not be made.
pub fn check_access(task: &Task, attach: bool) -> Result {
    // SAFETY: The reference keeps the task alive, and the caller is in process context.
    to_result(unsafe { helpers::pfc_check_access(task.as_ptr(), attach) })
}

/// Returns whether the caller may read a thread's state by the rules of ptrace alone; the security
/// modules are not asked. Access to threads of the caller's own process is always allowed. The
/// thread may be exiting.
pub fn ptrace_rule_allows_read(task: &Task) -> bool {
    // SAFETY: The reference keeps the task alive, and the caller is in process context.
    unsafe { helpers::pfc_ptrace_rule_allows_read(task.as_ptr()) }
}

/// Checks whether the caller may read the values of a task's accounting.
///
/// # Errors
///
/// `EPERM` if ptrace's rule denies the caller access to the task's memory, and the caller lacks
/// both `CAP_PERFMON` and `CAP_SYS_ADMIN`.
pub fn may_read_accounting(task: &Task) -> Result {
    match ptrace_rule_allows_read(task) {
        true => Ok(()),
        false => may_manage_accounting(),
    }
}

/// Returns whether the caller may monitor the kernel. perf's policy (`perf_event_paranoid`,
/// capability, security modules) must allow the caller to do so, and the kernel must not be locked
/// down for confidentiality.
pub fn may_monitor_kernel() -> bool {
    // SAFETY: The caller is in process context, as the callee requires.
    unsafe { helpers::pfc_may_monitor_kernel() }
}

/// Checks whether ptrace's rules and the security modules allow a user with the credentials `cred`
/// to read a process's state or, with `attach`, to stop the process. The result does not depend on
/// the caller's credentials. The caller may be a thread of the checked process. May sleep; caller
/// holds no lock of this module.
///
/// # Errors
///
/// `EPERM` if the user has no permission; `ESRCH` if the process is exiting; `EINTR` or `ENOMEM` if
/// the check could not be made.
pub fn check_access_as(cred: &Credential, task: &Task, attach: bool) -> Result {
    // SAFETY: The references keep the credentials and the task alive; the caller is in process
    // context.
    to_result(unsafe { helpers::pfc_check_access_as(cred.as_ptr(), task.as_ptr(), attach) })
}

/// Converts the result of [`check_access`] or [`check_access_as`] to true if access is allowed, and
/// to false if it is denied.
///
/// # Errors
///
/// `EINTR` or `ENOMEM` if the check could not be made.
pub fn is_access_allowed(checked: Result) -> Result<bool> {
    match checked {
        Ok(()) => Ok(true),
        Err(error) if error == EINTR || error == ENOMEM => Err(error),
        Err(_) => Ok(false),
    }
}

/// Returns whether the rules of ptrace alone let a user with the credentials `cred` read the memory
/// of a process. The rules are applied to the present credentials of the process, and to the
/// program that the process ran when the snapshot `seen` was taken.
pub fn ptrace_rule_allows_cred(cred: &Credential, task: &Task, seen: &AccessSnapshot) -> bool {
    // SAFETY: The references keep the credentials and the task alive, and `pfc_snapshot_take()` has
    // filled in `seen`. The caller is in process context.
    unsafe { helpers::pfc_ptrace_rule_allows_cred(cred.as_ptr(), task.as_ptr(), &raw const seen.0) }
}

/// Checks whether ptrace's rules and the security modules allow the caller to read the state of a
/// process that has the credentials `cred`. The function creates a kernel thread that has the
/// credentials `cred`, and checks whether the caller may access the kernel thread. May sleep;
/// caller holds no lock of this module.
///
/// # Errors
///
/// `EPERM` if the caller has no permission, and `EINTR` or `ENOMEM` if the check could not be made.
pub fn check_access_to_cred_owner(cred: &Credential) -> Result {
    // SAFETY: The reference keeps the credentials alive during the call; the caller is in process
    // context.
    to_result(unsafe { helpers::pfc_check_access_to_cred_owner(cred.as_ptr()) })
}

/// Returns whether the caller has all rights of a task with the credentials `cred`. The caller must
/// have the effective user id and the user namespace of `cred`, and the caller's permitted
/// capabilities must include all effective capabilities of `cred`.
pub fn has_rights_of(cred: &Credential) -> bool {
    // SAFETY: The reference keeps the credentials alive during the call.
    unsafe { helpers::pfc_has_rights_of(cred.as_ptr()) }
}

/// A snapshot of the properties of a thread that decide who may access the thread: its credentials,
/// its program (`exec_state`), and whether the program is dumpable.
///
/// # Invariants
///
/// `pfc_snapshot_take()` has filled in `self.0`, which holds references to the credentials and to
/// the `exec_state` until drop.
pub struct AccessSnapshot(helpers::AccessSnapshot);

// SAFETY: A snapshot holds references to a `struct cred` and an `exec_state`, which any thread may
// drop.
unsafe impl Send for AccessSnapshot {}
// SAFETY: The fields of an `AccessSnapshot` do not change. The `dumpable` of the `exec_state` to
// which `state` points may change at any time, and the C helpers read it with READ_ONCE().
unsafe impl Sync for AccessSnapshot {}

impl AccessSnapshot {
    /// Takes a snapshot of a thread's properties. Returns `ESRCH` if the thread has exited.
    pub fn of_task(task: &Task) -> Result<Self> {
        let mut seen = helpers::AccessSnapshot {
            cred: core::ptr::null(),
            state: core::ptr::null_mut(),
            dumpable: 0,
        };
        // SAFETY: The reference keeps the task alive, and the callee fills in `seen`.
        to_result(unsafe { helpers::pfc_snapshot_take(&raw mut seen, task.as_ptr()) })?;
        // INVARIANT: `pfc_snapshot_take()` has succeeded.
        Ok(Self(seen))
    }

    /// Returns whether the thread now has the credentials and dumpability of the snapshot `self`.
    /// The thread may have executed another program since the snapshot.
    pub fn is_unchanged(&self, task: &Task) -> bool {
        // SAFETY: By the type's invariant `self.0` is filled in. The reference keeps the task
        // alive.
        unsafe { helpers::pfc_snapshot_is_unchanged(&raw const self.0, task.as_ptr()) }
    }

    /// Returns whether the snapshots `self` and `then` are of the same program, and the thread
    /// still runs this program.
    pub fn runs_same_program(&self, task: &Task, then: &Self) -> bool {
        // SAFETY: By the type's invariant `self.0` is filled in. The reference keeps the task
        // alive.
        let runs = unsafe { helpers::pfc_snapshot_same_program(&raw const self.0, task.as_ptr()) };
        runs && self.0.state == then.0.state
    }

    /// Returns whether the thread still has the credentials of the snapshot `self`, and whether the
    /// dumpability of the snapshot's program is unchanged. Unlike
    /// [`is_unchanged`](Self::is_unchanged), this function checks the program that the thread ran
    /// when the snapshot was taken, even if the thread has executed another program since then.
    pub fn was_unchanged_until_exec(&self, task: &Task) -> bool {
        // SAFETY: By the type's invariant `self.0` is filled in. The reference keeps the task
        // alive.
        unsafe { helpers::pfc_snapshot_was_unchanged_until_exec(&raw const self.0, task.as_ptr()) }
    }
}

impl Drop for AccessSnapshot {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self.0` is filled in. The snapshot is not used after
        // drop.
        unsafe { helpers::pfc_snapshot_put(&raw mut self.0) }
    }
}
