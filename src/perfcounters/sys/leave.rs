// SPDX-License-Identifier: GPL-2.0

//! Detaches traced processes from `/dev/perftrace`, so that the module can be unloaded
//! (`sys/shim/leave.c`): their mappings are replaced and their files closed.

use core::ptr::NonNull;

use kernel::bindings;
use kernel::error::{from_err_ptr, to_result, Result};
use kernel::ffi::{c_int, c_ulong};
use kernel::prelude::*;
use kernel::task::Task;

use super::areas::VM_OPS;
use super::buffers::PAGE;
use super::process::Mm;
use super::shim;
use super::trace::{opened, Role, OPS};
use crate::tracing::attached::SPAN;
use crate::tracing::leave;

/// `struct pt_ours`: how the shim recognises the areas and files of `/dev/perftrace`.
#[repr(C)]
pub(crate) struct Ours {
    areas: *const bindings::vm_operations_struct,
    files: *const bindings::file_operations,
    span: c_ulong,
}

/// A regular file that replaces the read-only piece of a process's mapping.
///
/// # Invariants
///
/// This holds a reference to the file.
pub(crate) struct Wake(NonNull<bindings::file>);

impl Wake {
    /// Takes the caller's file descriptor. `EBADF`, or `EINVAL` if the file cannot replace the
    /// piece: it is not a regular file that is open read-only, can be mapped and is large enough.
    pub(crate) fn get(fd: c_int) -> Result<Self> {
        // SAFETY: Process context; the callee checks the descriptor.
        let file = from_err_ptr(unsafe { shim::pt_wake_get(fd) })?;
        // INVARIANT: `pt_wake_get()` has returned a reference, which this owns.
        NonNull::new(file).map(Self).ok_or(EBADF)
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant this holds a reference, which is dropped once.
        unsafe { shim::pt_wake_put(self.0.as_ptr()) }
    }
}

/// Queues work that detaches a process, given by its first thread, on the next return of one of its
/// threads to user mode. `ENOMEM`, or `ESRCH` if all threads are exiting. May sleep.
pub(crate) fn leave_later(leader: &Task, wake: Option<&Wake>) -> Result {
    let ours = Ours {
        areas: &VM_OPS.0,
        files: &OPS.0,
        span: ((1 << SPAN) / PAGE as c_ulong).wrapping_sub(1),
    };
    let wake = wake.map_or(core::ptr::null_mut(), |wake| wake.0.as_ptr());
    // SAFETY: The task and the file are valid during the call. `ours` is copied. It points to
    // statics of this module, and the queued work holds a reference to the module.
    to_result(unsafe { shim::pt_leave_later(leader.as_ptr(), &ours, wake) })
}

#[no_mangle]
extern "C" fn pt_leaves_later() {
    if let Some(mm) = Mm::calls() {
        leave::later(&mm);
    }
}

#[no_mangle]
extern "C" fn pt_is_closed() -> bool {
    leave::is_closed()
}

/// Returns whether a file is that of a traced process.
///
/// # Safety
///
/// `file` is a file of `/dev/perftrace` to which the caller holds a reference.
#[no_mangle]
unsafe extern "C" fn pt_is_attached(file: *mut bindings::file) -> bool {
    // SAFETY: By the function's requirement `file` is open and one of `/dev/perftrace`.
    let role = unsafe { opened(file) }.role();
    matches!(role.as_deref(), Some(Role::Process(_)))
}
