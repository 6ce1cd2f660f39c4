// SPDX-License-Identifier: GPL-2.0

//! Rust declarations of the C functions and structures of user tracing.

#![allow(improper_ctypes, reason = "kernel structures hold empty lock classes")]

use kernel::bindings;
use kernel::ffi::{c_int, c_ulong};

/// `struct pt_device_ops`: the operation tables by which the C code recognises mappings and files
/// of `/dev/perftrace`.
#[repr(C)]
pub(crate) struct DeviceOps {
    pub(crate) vm_ops: *const bindings::vm_operations_struct,
    pub(crate) file_ops: *const bindings::file_operations,
    pub(crate) offset_mask: c_ulong,
}

extern "C" {
    pub(crate) fn pt_max_traced() -> u32;
    pub(crate) fn pt_page_new() -> c_ulong;
    pub(crate) fn pt_vma(
        vma: *mut bindings::vm_area_struct,
        ops: *const bindings::vm_operations_struct,
        writable: bool,
    ) -> c_int;
    pub(crate) fn pt_log_refused(markers: bool, error: c_int);
    pub(crate) fn pt_wipe_on_fork(vma: *mut bindings::vm_area_struct);
    pub(crate) fn pt_insert(vmf: *mut bindings::vm_fault, page: c_ulong) -> bindings::vm_fault_t;
    pub(crate) fn pt_thread_replace(at: i64, was: u64, first: u64, second: u64);
    pub(crate) fn pt_queue_announce() -> c_int;
    pub(crate) fn pt_set_traced(mm: usize, is: bool);
    pub(crate) fn pt_queue_shared_thread(child: *mut bindings::task_struct);
    pub(crate) fn pt_unreported_exit();
    pub(crate) fn pt_detach_later(
        leader: *mut bindings::task_struct,
        ours: *const DeviceOps,
        wake: *mut bindings::file,
    ) -> c_int;
    pub(crate) fn pt_wake_file_get(fd: c_int) -> *mut bindings::file;
    pub(crate) fn pt_wake_file_put(wake: *mut bindings::file);
}
