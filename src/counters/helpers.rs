// SPDX-License-Identifier: GPL-2.0

//! Rust declarations of the C functions and structures of the counter pages.

use kernel::ffi::{c_int, c_uint, c_ulong, c_void};

extern "C" {
    pub(crate) static mut perf_counter_seqflag: *mut u64;
    pub(crate) static perf_counter_nowhere: *mut i64;
    pub(crate) fn pfc_module_notifier_register() -> c_int;
    pub(crate) fn pfc_module_notifier_unregister();
    pub(crate) fn pfc_percpu_pfn(p: *mut c_void, cpu: c_uint) -> c_ulong;
    pub(crate) fn pfc_may_log(kind: c_uint) -> bool;
}
