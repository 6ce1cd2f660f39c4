// SPDX-License-Identifier: GPL-2.0

//! Who may monitor whom: `sys/shim/rights.c`.

use core::ptr::NonNull;

use kernel::bindings;
use kernel::cred::Credential;
use kernel::error::{to_result, Result};
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use super::shim;

/// What procfs is asked by, while the module is there.
pub(crate) struct Rights(());

impl Rights {
    /// From now on. May sleep.
    pub(crate) fn begin() -> Result<Self> {
        // SAFETY: Once, before anybody can ask.
        to_result(unsafe { shim::pfm_rights_begin() })?;
        Ok(Self(()))
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        // SAFETY: Nobody can ask any more.
        unsafe { shim::pfm_rights_end() }
    }
}

/// May the caller look at this thread, or, with `attach`, stop it? As ptrace and the security
/// modules have it. `EPERM`, `ESRCH` if it ends. May sleep; no lock of ours held.
pub(crate) fn may(task: &Task, attach: bool) -> Result {
    // SAFETY: A task that stays; process context.
    to_result(unsafe { shim::pfm_may(task.as_ptr(), attach) })
}

/// May the caller look at this thread by ptrace's rule alone? One that is exiting may be looked at,
/// too.
pub(crate) fn may_watch(task: &Task) -> bool {
    // SAFETY: A task that stays; process context.
    unsafe { shim::pfm_may_watch(task.as_ptr()) }
}

/// May the caller monitor the kernel, CPUs and others' threads?
pub(crate) fn is_perfmon_capable() -> bool {
    // SAFETY: No requirements.
    unsafe {
        bindings::capable(bindings::CAP_PERFMON as c_int)
            || bindings::capable(bindings::CAP_SYS_ADMIN as c_int)
    }
}

/// Returns whether the caller may monitor the kernel, CPUs and others' threads, without an audit.
/// For a preference, or where a denial is followed by a check for another right.
pub(crate) fn has_perfmon() -> bool {
    has_quietly(bindings::CAP_PERFMON) || has_quietly(bindings::CAP_SYS_ADMIN)
}

/// Returns whether the caller has a capability in the initial user namespace, without an audit.
fn has_quietly(capability: u32) -> bool {
    // SAFETY: No requirements; the first user name space is always there.
    unsafe { bindings::ns_capable_noaudit(&raw mut bindings::init_user_ns, capability as c_int) }
}

/// The caller's credentials. Process context.
pub(crate) fn of_caller() -> ARef<Credential> {
    // SAFETY: A reference of ours, never null; `Credential` is a transparent wrapper.
    unsafe { ARef::from_raw(NonNull::new_unchecked(shim::pfm_rights_of_caller()).cast()) }
}

/// May the caller load and unload modules?
pub(crate) fn may_unload() -> bool {
    // SAFETY: No requirements.
    unsafe { bindings::capable(bindings::CAP_SYS_MODULE as c_int) }
}

/// Returns whether users' contexts are evicted for the caller, an administrator. Not audited:
/// without that right the call fails with `EBUSY` or `EEXIST`, not `EPERM`.
pub(crate) fn is_admin() -> bool {
    has_quietly(bindings::CAP_SYS_ADMIN)
}

/// May the caller monitor the kernel? Whom perf lets do so (`perf_event_paranoid`, capability,
/// security modules); nobody in one that is locked down.
pub(crate) fn is_kernel_open() -> bool {
    // SAFETY: Process context.
    unsafe { shim::pfm_is_kernel_open() }
}

/// May one who has these credentials look at this process, or, with `attach`, stop it, also if
/// that process itself asks? As ptrace and the security modules have it. May sleep; no lock of
/// ours held. `EPERM`, `ESRCH` if it ends; `EINTR`, `ENOMEM`: it could not be asked.
pub(crate) fn may_by(cred: &Credential, task: &Task, attach: bool) -> Result {
    // SAFETY: A task that stays; process context.
    to_result(unsafe { shim::pfm_may_by(cred.as_ptr(), task.as_ptr(), attach) })
}

/// Might one who has these credentials have looked at this process when it ran the program that was
/// seen, by ptrace's rule alone?
pub(crate) fn rule_by(cred: &Credential, task: &Task, seen: &Seen) -> bool {
    // SAFETY: A task that stays, and a structure that `pfm_see()` has filled; process context.
    unsafe { shim::pfm_rule_by(cred.as_ptr(), task.as_ptr(), &raw const seen.0) }
}

/// May the caller look at one who has these credentials, as ptrace and the security modules have
/// it? They may be nobody's any more. `EPERM`; `EINTR`, `ENOMEM`. May sleep; no lock of ours held.
pub(crate) fn may_see(cred: &Credential) -> Result {
    // SAFETY: There are these credentials, for the call; process context.
    to_result(unsafe { shim::pfm_may_see(cred.as_ptr()) })
}

/// Has the caller all rights that these credentials have?
pub(crate) fn covers(cred: &Credential) -> bool {
    // SAFETY: No requirements.
    unsafe { shim::pfm_covers(cred.as_ptr()) }
}

/// A process, by its number, which stays its own until it ends.
///
/// # Invariants
///
/// We hold a reference of the number.
pub(crate) struct Process(NonNull<bindings::pid>);

// SAFETY: A reference; it belongs to no thread.
unsafe impl Send for Process {}
// SAFETY: Only its address is read.
unsafe impl Sync for Process {}

impl Process {
    /// The caller's.
    pub(crate) fn of_caller() -> Result<Self> {
        // SAFETY: Process context.
        let number = unsafe { shim::pfm_my_process() };
        // INVARIANT: the reference is ours.
        NonNull::new(number).map(Self).ok_or(ESRCH)
    }

    /// As C knows it.
    pub(super) fn as_ptr(&self) -> *mut bindings::pid {
        self.0.as_ptr()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: Ours, by the type's invariant.
        unsafe { bindings::put_pid(self.0.as_ptr()) }
    }
}

/// Who a thread is, as far as who may look at it hangs on that.
///
/// # Invariants
///
/// `pfm_see()` has filled it.
pub(crate) struct Seen(shim::Seen);

// SAFETY: References to what is counted, and belongs to no thread.
unsafe impl Send for Seen {}
// SAFETY: Its fields never change, and what they refer to is read as the kernel reads it.
unsafe impl Sync for Seen {}

impl Seen {
    /// Now. `ESRCH`.
    pub(crate) fn of(task: &Task) -> Result<Self> {
        let mut seen = shim::Seen {
            cred: core::ptr::null(),
            state: core::ptr::null_mut(),
            dumpable: 0,
        };
        // SAFETY: A task that stays.
        to_result(unsafe { shim::pfm_see(&raw mut seen, task.as_ptr()) })?;
        // INVARIANT: as it has succeeded.
        Ok(Self(seen))
    }

    /// Is that so still, whatever program the thread runs now?
    pub(crate) fn is_still(&self, task: &Task) -> bool {
        // SAFETY: Filled, by the type's invariant; a task that stays.
        unsafe { shim::pfm_is_as_seen(&raw const self.0, task.as_ptr()) }
    }

    /// Does the thread run the program still that it ran then, and when it was seen another time?
    pub(crate) fn runs_still(&self, task: &Task, then: &Self) -> bool {
        // SAFETY: Filled, by the type's invariant; a task that stays.
        let runs = unsafe { shim::pfm_runs_as_seen(&raw const self.0, task.as_ptr()) };
        runs && self.0.state == then.0.state
    }

    /// Is that so still, or was it so for as long as the thread ran the program that it ran then?
    pub(crate) fn was_still(&self, task: &Task) -> bool {
        // SAFETY: Filled, by the type's invariant; a task that stays.
        unsafe { shim::pfm_was_as_seen(&raw const self.0, task.as_ptr()) }
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        // SAFETY: Filled, by the type's invariant; nobody uses it any more.
        unsafe { shim::pfm_unsee(&raw mut self.0) }
    }
}
