// SPDX-License-Identifier: GPL-2.0

//! `shim/shim.h`, for Rust.

#![allow(improper_ctypes, reason = "kernel structures hold empty lock classes")]

use kernel::bindings;
use kernel::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

extern "C" {
    pub(crate) static mut perf_counter_seqflag: *mut u64;
    pub(crate) fn pfc_percpu_pfn(p: *mut c_void, cpu: c_uint) -> c_ulong;
    pub(crate) fn pfc_virt_pfn(p: *const c_void) -> c_ulong;
    pub(crate) fn pfc_may_sleep() -> bool;
    pub(crate) fn pfc_tsc_khz() -> u32;
    pub(crate) fn pfc_vma_readonly(
        vma: *mut bindings::vm_area_struct,
        ops: *const bindings::vm_operations_struct,
    ) -> c_int;
    pub(crate) fn pfc_tracepoint_find(name: *const c_char) -> *mut bindings::tracepoint;
    pub(crate) fn pfc_tracepoint_sync();
}
