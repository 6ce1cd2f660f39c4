// SPDX-License-Identifier: GPL-2.0

//! Detaches traced processes from `/dev/perftrace`, so that the module can be unloaded
//! (`src/trace/helpers/detach.c`). Detaching replaces a process's mappings of the device and closes
//! its files of the device.

#![expect(unsafe_code, reason = "calls of C")]

use core::ptr::NonNull;

use kernel::bindings;
use kernel::error::{from_err_ptr, to_result, Result};
use kernel::ffi::{c_int, c_ulong};
use kernel::prelude::*;
use kernel::task::Task;

use crate::buffer::PAGE;
use crate::helpers;
pub(crate) use crate::helpers::DeviceOps;
use crate::range::PROCESS_RANGE_SHIFT;
use base::device::{FileOperationTables, FileOperations};

impl DeviceOps {
    /// Creates the structure. The device's mappings have the operations `vm_ops`, and its files
    /// have the operations `file_ops`.
    pub(crate) fn new<T: FileOperations>(operations: &'static FileOperationTables<T>) -> Self {
        Self {
            vm_ops: operations.mappings(),
            file_ops: operations.files(),
            offset_mask: ((1 << PROCESS_RANGE_SHIFT) / PAGE as c_ulong).wrapping_sub(1),
        }
    }
}

/// A regular file that is mapped in place of the read-only part of a process's mapping of
/// `/dev/perftrace`.
///
/// # Invariants
///
/// `self` holds a reference to the file.
pub(crate) struct WakeMappingFile(NonNull<bindings::file>);

impl WakeMappingFile {
    /// Takes a reference to the file that the caller has open as descriptor `fd`. Returns `EBADF`
    /// if the descriptor is not open, and `EINVAL` if the file is not regular, is not open
    /// read-only, cannot be mapped or is too small.
    pub(crate) fn get(fd: c_int) -> Result<Self> {
        // SAFETY: The caller is in process context, and `pt_wake_file_get()` checks the descriptor.
        let file = from_err_ptr(unsafe { helpers::pt_wake_file_get(fd) })?;
        // INVARIANT: `pt_wake_file_get()` has returned a reference, which the new `WakeMappingFile`
        // owns.
        NonNull::new(file).map(Self).ok_or(EBADF)
    }
}

impl Drop for WakeMappingFile {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` holds a reference, which is dropped once.
        unsafe { helpers::pt_wake_file_put(self.0.as_ptr()) }
    }
}

/// Queues work that detaches the process `key`, whose thread-group leader is `leader`. The work
/// runs when one of the process's threads next returns to user mode. Returns `ENOMEM`, or `ESRCH`
/// if all threads are exiting. May sleep.
pub(crate) fn detach_later(
    device: &DeviceOps,
    (key, leader): (u64, &Task),
    wake: Option<&WakeMappingFile>,
) -> Result {
    let wake = wake.map_or(core::ptr::null_mut(), |wake| wake.0.as_ptr());
    // SAFETY: The task `leader` and the file are valid during the call. `pt_detach_later()` copies
    // `device`, which points to statics of this module. The queued work holds a reference to the
    // module.
    to_result(unsafe { helpers::pt_detach_later(leader.as_ptr(), device, wake, key) })
}
