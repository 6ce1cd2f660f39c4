// SPDX-License-Identifier: GPL-2.0

//! Detaches traced processes from the module, so that the module can be unloaded
//! (`src/trace/helpers/detach.c`).
//!
//! A traced process keeps the device open and mapped for as long as it runs, even if it writes no
//! event. If traced processes could not be detached, the module could not be unloaded while a
//! daemon with markers runs.
//!
//! Each traced process detaches itself, in a task work, because the mappings of a process can be
//! replaced only in the context of that process. Detaching replaces a process's mappings of the
//! device `/dev/perftrace` and closes its files of the device.

#![expect(unsafe_code, reason = "calls of C")]

use core::ptr::NonNull;

use kernel::bindings;
use kernel::error::{from_err_ptr, to_result, Result};
use kernel::ffi::{c_int, c_ulong};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use crate::children::identify_and_get_leader;
use crate::helpers;
pub(crate) use crate::helpers::DeviceOps;
use crate::page::PAGE_SIZE;
use crate::process_memory::PROCESS_RANGE_SHIFT;
use crate::registry::TRACING;
use base::device::{FileOperationTables, FileOperations};
use base::task::has_fatal_signal;

/// Prevents further processes from attaching, and asks all attached processes to detach. Returns
/// the number of processes that are still attached. May sleep.
///
/// # Errors
///
/// `EBUSY` while traces exist that have not ended.
pub(crate) fn request_detach(
    device: &DeviceOps,
    wake: Option<&FileMappedAfterDetach>,
) -> Result<usize> {
    let mut all = TRACING.lock();
    if all.traces.iter().any(|trace| trace.state.slot().is_some()) {
        return Err(EBUSY);
    }
    all.is_unloading = true;
    drop(all);
    let (mut after, mut left) = (0u64, 0usize);
    loop {
        let mut all = TRACING.lock();
        let next = all.next_process_where(after, |process| !process.has_ended());
        let Some(key) = next.map(|process| process.key) else {
            return Ok(left);
        };
        (after, left) = (key, left.wrapping_add(1));
        if has_fatal_signal() {
            return Ok(left);
        }
        // Set `is_detaching` before the work is queued: the work may fail at once, and then clears
        // `is_detaching`.
        let told = core::mem::replace(&mut all.live_process(key)?.is_detaching, true);
        drop(all);
        // If the process has no task yet or memory is short, the next call of `request_detach` asks
        // the process again.
        let ask = |leader: ARef<Task>| detach_later(device, (key, &leader), wake);
        if !told && identify_and_get_leader(key).and_then(ask).is_err() {
            pt_detach_failed(key);
        }
    }
}

/// Cancels [`request_detach`]: new processes can attach again, and processes that have not detached
/// yet stay attached.
pub(crate) fn cancel_detach() {
    let mut all = TRACING.lock();
    all.is_unloading = false;
    for process in &mut all.processes {
        process.is_detaching = false;
    }
}

/// Records that the process `key` could not detach, so that the next [`request_detach`] asks the
/// process again.
#[no_mangle]
extern "C" fn pt_detach_failed(key: u64) {
    if let Ok(process) = TRACING.lock().live_process(key) {
        process.is_detaching = false;
    }
}

/// Returns whether [`request_detach`] has asked processes to detach, and [`cancel_detach`] has not
/// cancelled this request.
#[no_mangle]
extern "C" fn pt_is_detaching() -> bool {
    TRACING.lock().is_unloading
}

impl DeviceOps {
    /// Creates the structure. The device's mappings have the operations `vm_ops`, and its files
    /// have the operations `file_ops`.
    pub(crate) fn new<T: FileOperations>(operations: &'static FileOperationTables<T>) -> Self {
        Self {
            vm_ops: operations.mappings(),
            file_ops: operations.files(),
            range_pgoff_mask: ((1 << PROCESS_RANGE_SHIFT) / PAGE_SIZE as c_ulong).wrapping_sub(1),
        }
    }
}

/// A regular file that is mapped in place of the read-only part of a process's mapping of
/// `/dev/perftrace`.
///
/// # Invariants
///
/// `self` holds a reference to the file.
pub(crate) struct FileMappedAfterDetach(NonNull<bindings::file>);

impl FileMappedAfterDetach {
    /// Takes a reference to the file that the caller has open as descriptor `fd`. Returns `EBADF`
    /// if the descriptor is not open, and `EINVAL` if the file is not regular, is not open
    /// read-only, cannot be mapped or is too small.
    pub(crate) fn get(fd: c_int) -> Result<Self> {
        // SAFETY: The caller is in process context, and `pt_wake_file_get()` checks the descriptor.
        let file = from_err_ptr(unsafe { helpers::pt_wake_file_get(fd) })?;
        // INVARIANT: `pt_wake_file_get()` has returned a reference, which the new
        // `FileMappedAfterDetach` owns.
        NonNull::new(file).map(Self).ok_or(EBADF)
    }
}

impl Drop for FileMappedAfterDetach {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` holds a reference, which is dropped once.
        unsafe { helpers::pt_wake_file_put(self.0.as_ptr()) }
    }
}

/// Queues work that detaches the process `key`, whose thread-group leader is `leader`. The work
/// runs when one of the process's threads next returns to user mode. Returns `ENOMEM`, or `ESRCH`
/// if all threads are exiting. May sleep.
fn detach_later(
    device: &DeviceOps,
    (key, leader): (u64, &Task),
    wake: Option<&FileMappedAfterDetach>,
) -> Result {
    let wake = wake.map_or(core::ptr::null_mut(), |wake| wake.0.as_ptr());
    // SAFETY: The task `leader` and the file are valid during the call. `pt_detach_later()` copies
    // `device`, which points to statics of this module. The queued work holds a reference to the
    // module.
    to_result(unsafe { helpers::pt_detach_later(leader.as_ptr(), device, wake, key) })
}
