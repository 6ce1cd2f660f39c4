// SPDX-License-Identifier: GPL-2.0

//! How traced processes let go of the device: `sys/shim/leave.c`.

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

/// `struct pt_ours`.
#[repr(C)]
pub(crate) struct Ours {
    areas: *const bindings::vm_operations_struct,
    files: *const bindings::file_operations,
    span: c_ulong,
}

/// A file that processes have where the first piece was.
///
/// # Invariants
///
/// It is held.
pub(crate) struct Wake(NonNull<bindings::file>);

impl Wake {
    /// The caller's, by its descriptor. `EBADF`, `EINVAL`: it cannot stand for the piece.
    pub(crate) fn get(fd: c_int) -> Result<Self> {
        // SAFETY: Process context.
        let file = from_err_ptr(unsafe { shim::pt_wake_get(fd) })?;
        // INVARIANT: it is held from here on.
        NonNull::new(file).map(Self).ok_or(EBADF)
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        // SAFETY: Held, by the type's invariant.
        unsafe { shim::pt_wake_put(self.0.as_ptr()) }
    }
}

/// A process, by its first thread, lets go soon. `ENOMEM`, `ESRCH`. May sleep.
pub(crate) fn leave_later(leader: &Task, wake: Option<&Wake>) -> Result {
    let ours = Ours {
        areas: &VM_OPS.0,
        files: &OPS.0,
        span: ((1 << SPAN) / PAGE as c_ulong).wrapping_sub(1),
    };
    let wake = wake.map_or(core::ptr::null_mut(), |wake| wake.0.as_ptr());
    // SAFETY: A task that stays for the call, as does the file if there is one; `ours` is copied,
    // and what it points to is static: the work that is added keeps the module.
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

/// # Safety
///
/// A file of ours, which the caller holds.
#[no_mangle]
unsafe extern "C" fn pt_is_attached(file: *mut bindings::file) -> bool {
    // SAFETY: By the function's requirement.
    let role = unsafe { opened(file) }.role();
    matches!(role.as_deref(), Some(Role::Process(_)))
}
