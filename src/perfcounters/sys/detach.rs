// SPDX-License-Identifier: GPL-2.0

//! Detaches traced processes from `/dev/perftrace`, so that the module can be unloaded
//! (`sys/shim/detach.c`). Detaching replaces a process's mappings of the device and closes its
//! files of the device.

use core::ptr::NonNull;

use kernel::bindings;
use kernel::error::{from_err_ptr, to_result, Result};
use kernel::ffi::{c_int, c_ulong};
use kernel::prelude::*;
use kernel::task::Task;

use super::buffers::PAGE;
use super::shim;
use super::trace::{opened, Role, OPS};
use super::trace_vma::VM_OPS;
use crate::base::address_space::Mm;
use crate::tracing::attached::PROCESS_SHIFT;
use crate::tracing::detach;

/// `struct pt_device_ops`: the operation tables by which the shim recognises mappings and files of
/// `/dev/perftrace`.
#[repr(C)]
pub(crate) struct DeviceOps {
    vm_ops: *const bindings::vm_operations_struct,
    file_ops: *const bindings::file_operations,
    offset_mask: c_ulong,
}

/// A regular file that is mapped in place of the read-only part of a process's mapping of
/// `/dev/perftrace`.
///
/// # Invariants
///
/// `self` holds a reference to the file.
pub(crate) struct WakeFile(NonNull<bindings::file>);

impl WakeFile {
    /// Takes a reference to the file that the caller has open as descriptor `fd`. Returns `EBADF`
    /// if the descriptor is not open, and `EINVAL` unless the file is a regular file that is open
    /// read-only, can be mapped and is large enough.
    pub(crate) fn get(fd: c_int) -> Result<Self> {
        // SAFETY: The caller is in process context, and `pt_wake_file_get()` checks the descriptor.
        let file = from_err_ptr(unsafe { shim::pt_wake_file_get(fd) })?;
        // INVARIANT: `pt_wake_file_get()` has returned a reference, which the new `WakeFile` owns.
        NonNull::new(file).map(Self).ok_or(EBADF)
    }
}

impl Drop for WakeFile {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` holds a reference, which is dropped once.
        unsafe { shim::pt_wake_file_put(self.0.as_ptr()) }
    }
}

/// Queues work that detaches the process whose thread-group leader is `leader`. The work runs when
/// one of the process's threads next returns to user mode. Returns `ENOMEM`, or `ESRCH` if all
/// threads are exiting. May sleep.
pub(crate) fn detach_later(leader: &Task, wake: Option<&WakeFile>) -> Result {
    let ours = DeviceOps {
        vm_ops: &VM_OPS.0,
        file_ops: &OPS.0,
        offset_mask: ((1 << PROCESS_SHIFT) / PAGE as c_ulong).wrapping_sub(1),
    };
    let wake = wake.map_or(core::ptr::null_mut(), |wake| wake.0.as_ptr());
    // SAFETY: The task `leader` and the file are valid during the call. `pt_detach_later()` copies
    // `ours`, which points to statics of this module. The queued work holds a reference to the
    // module.
    to_result(unsafe { shim::pt_detach_later(leader.as_ptr(), &ours, wake) })
}

#[no_mangle]
extern "C" fn pt_detach_failed() {
    if let Some(mm) = Mm::of_current() {
        detach::detach_failed(&mm);
    }
}

#[no_mangle]
extern "C" fn pt_is_detaching() -> bool {
    detach::is_closed()
}

/// Returns whether a file of `/dev/perftrace` belongs to a traced process.
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
