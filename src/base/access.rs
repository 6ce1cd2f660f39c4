// SPDX-License-Identifier: GPL-2.0

//! Access checks: whether a thread may monitor or trace another (`helpers/access.c`), and the
//! capabilities of the caller (`CAP_PERFMON`, `CAP_SYS_ADMIN`, `CAP_SYS_MODULE`). The file also has
//! the credentials of a task, and its identity: its user and its name.

use core::ptr::NonNull;

use kernel::cred::Credential;
use kernel::error::{to_result, Result};
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;
use kernel::{bindings, current};

use super::helpers;
pub use super::helpers::Identity;
use super::task::TaskRef;

/// A mount of procfs for internal use, which exists while the module is loaded. To check access to
/// a process, the module opens a file of the process in this mount of procfs: the kernel then
/// checks ptrace's rules and asks the security modules.
pub struct PrivateProcfsMount(());

impl PrivateProcfsMount {
    /// Mounts procfs. May sleep.
    pub fn mount() -> Result<Self> {
        // SAFETY: `pfc_mount_private_procfs()` is called once, before any access check can be made.
        to_result(unsafe { helpers::pfc_mount_private_procfs() })?;
        Ok(Self(()))
    }
}

impl Drop for PrivateProcfsMount {
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
pub fn check_may_read_accounting(task: &Task) -> Result {
    match ptrace_rule_allows_read(task) {
        true => Ok(()),
        false => check_may_manage_accounting(),
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
pub fn access_result_to_bool(checked: Result) -> Result<bool> {
    match checked {
        Ok(()) => Ok(true),
        Err(error) if error == EINTR || error == ENOMEM => Err(error),
        Err(_) => Ok(false),
    }
}

/// Returns whether the rules of ptrace alone let a user with the credentials `cred` read the memory
/// of a process. The rules are applied to the present credentials of the process, and to the
/// program that the process ran when the snapshot `seen` was taken.
pub fn ptrace_rule_allows_read_as(
    cred: &Credential,
    task: &Task,
    seen: &AccessTargetSnapshot,
) -> bool {
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
pub fn caller_has_rights_of(cred: &Credential) -> bool {
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
pub struct AccessTargetSnapshot(helpers::AccessSnapshot);

// SAFETY: A snapshot holds references to a `struct cred` and an `exec_state`, which any thread may
// drop.
unsafe impl Send for AccessTargetSnapshot {}
// SAFETY: The fields of an `AccessTargetSnapshot` do not change. The `dumpable` of the `exec_state`
// to which `state` points may change at any time, and the C helpers read it with READ_ONCE().
unsafe impl Sync for AccessTargetSnapshot {}

impl AccessTargetSnapshot {
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
    pub fn has_same_cred_and_dumpable(&self, task: &Task) -> bool {
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
    /// [`has_same_cred_and_dumpable`](Self::has_same_cred_and_dumpable), this function checks the
    /// program that the thread ran when the snapshot was taken, even if the thread has executed
    /// another program since then.
    pub fn was_unchanged_until_exec(&self, task: &Task) -> bool {
        // SAFETY: By the type's invariant `self.0` is filled in. The reference keeps the task
        // alive.
        unsafe { helpers::pfc_snapshot_was_unchanged_until_exec(&raw const self.0, task.as_ptr()) }
    }
}

impl Drop for AccessTargetSnapshot {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self.0` is filled in. The snapshot is not used after
        // drop.
        unsafe { helpers::pfc_snapshot_put(&raw mut self.0) }
    }
}

/// Returns whether the caller may monitor the kernel, CPUs and threads of other users, that is, has
/// `CAP_PERFMON` or `CAP_SYS_ADMIN`.
pub fn is_perfmon_capable() -> bool {
    // SAFETY: The callee only checks capabilities of the current task.
    unsafe {
        bindings::capable(bindings::CAP_PERFMON as c_int)
            || bindings::capable(bindings::CAP_SYS_ADMIN as c_int)
    }
}

/// Checks whether the caller may change the settings of accounting and read the values of all tasks
/// and CPUs. The values of one task may also be read by callers for which
/// [`check_may_read_accounting`] succeeds.
///
/// # Errors
///
/// `EPERM` without `CAP_PERFMON` or `CAP_SYS_ADMIN`.
pub fn check_may_manage_accounting() -> Result {
    is_perfmon_capable().then_some(()).ok_or(EPERM)
}

/// Checks the same capabilities as [`is_perfmon_capable`], but writes no audit record. A request
/// that fails this check may still be allowed by [`check_access`].
pub fn has_perfmon_noaudit() -> bool {
    has_capability_noaudit(bindings::CAP_PERFMON) || has_capability_noaudit(bindings::CAP_SYS_ADMIN)
}

/// Returns whether the caller has a capability in the initial user namespace. The check writes no
/// audit record.
fn has_capability_noaudit(capability: u32) -> bool {
    // SAFETY: The callee checks a capability of the current task, and the initial user namespace
    // always exists.
    unsafe { bindings::ns_capable_noaudit(&raw mut bindings::init_user_ns, capability as c_int) }
}

/// Returns whether the caller may load and unload modules (`CAP_SYS_MODULE`).
pub fn may_load_modules() -> bool {
    // SAFETY: The callee only checks a capability of the current task.
    unsafe { bindings::capable(bindings::CAP_SYS_MODULE as c_int) }
}

/// Returns whether the caller may evict contexts of other users, that is, has `CAP_SYS_ADMIN`. The
/// check writes no audit record: without the capability, the caller's request fails with `EBUSY` or
/// `EEXIST` instead of `EPERM`.
pub fn may_evict_contexts() -> bool {
    has_capability_noaudit(bindings::CAP_SYS_ADMIN)
}

impl Identity {
    /// Returns the user and the name of the current task.
    pub fn of_current() -> Self {
        Self::of_task(current!())
    }

    /// Returns the user and the name of a task.
    pub fn of_task(task: &Task) -> Self {
        let mut who = Self::default();
        // SAFETY: The reference keeps the task alive, and the callee fills in `who`.
        unsafe { helpers::pfc_read_identity(&mut who, task.as_ptr()) };
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
