// SPDX-License-Identifier: GPL-2.0

//! Rust declarations of the C functions and structures of accounting.

use kernel::bindings;
use kernel::ffi::{c_int, c_uint, c_ulong, c_void};

extern "C" {
    pub(crate) static ppa_percpu: usize;
    pub(crate) fn ppa_set_percpu(cpu: c_uint, here: *mut c_void);
    pub(crate) fn ppa_percpu_of(cpu: c_uint) -> usize;
    pub(crate) fn ppa_index_lock() -> c_ulong;
    pub(crate) fn ppa_index_unlock(flags: c_ulong);
    pub(crate) fn ppa_files_create() -> c_int;
    pub(crate) fn ppa_files_close();
    pub(crate) fn ppa_files_remove();
    pub(crate) fn ppa_record_line(seq: *mut bindings::seq_file, uid: u32, bytes: u64);
    pub(crate) fn ppa_entry_create(pid: u32, id: c_ulong) -> *mut c_void;
    pub(crate) fn ppa_entry_remove(directory: *mut c_void);
    pub(crate) fn ppa_queue_worker();
    pub(crate) fn ppa_wait_for_worker();
    pub(crate) fn ppa_queue_publisher(ms: c_uint);
    pub(crate) static ppa_exit_work: c_ulong;
    pub(crate) fn ppa_arm_user_return() -> bool;
    pub(crate) fn ppa_disarm_user_return();
    pub(crate) fn ppa_user_return_cpu_dead(cpu: c_uint);
    pub(crate) fn ppa_attach_seccomp() -> c_int;
    pub(crate) fn ppa_detach_seccomp();
}
