// SPDX-License-Identifier: GPL-2.0

//! What traced processes map of `/dev/perftrace`: two pieces, page by page as they are touched.

use kernel::bindings;
use kernel::error::{from_result, to_result};
use kernel::ffi::{c_int, c_ulong, c_void};
use kernel::prelude::*;

use engine::trace::map;

use super::buffers::PAGE;
use super::costs::Span;
use super::file::Ops;
use super::process::Mm;
use super::shim;
use super::trace::{opened, Role};
use crate::costs::Cost;
use crate::tracing::{self, children};

pub(super) static VM_OPS: Ops<bindings::vm_operations_struct> =
    Ops(bindings::vm_operations_struct {
        open: Some(vma_open),
        close: Some(vma_close),
        fault: Some(fault),
        ..pin_init::zeroed()
    });

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
pub(super) unsafe extern "C" fn mmap(
    file: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    from_result(|| {
        // SAFETY: A file of ours.
        let role = unsafe { opened(file) }.role();
        let Some(Role::Process(attached)) = role.as_deref() else {
            return Err(EINVAL);
        };
        // SAFETY: The area being set up.
        let (pgoff, length, mm) = unsafe {
            let bounds = &(*vma).__bindgen_anon_1.__bindgen_anon_1;
            (
                (*vma).vm_pgoff as u64,
                bounds.vm_end.wrapping_sub(bounds.vm_start) as u64,
                (*vma).vm_mm,
            )
        };
        let writable = pgoff == map::BUFFERS / PAGE as u64;
        let bytes = match writable {
            true => tracing::attached::mapped_bytes(),
            false => map::READ_BYTES,
        };
        if !(writable || pgoff == 0) || length != bytes || !attached.mm.is(mm) {
            return Err(EINVAL);
        }
        // SAFETY: The area being set up; the operations are static.
        to_result(unsafe { shim::pt_vma(vma, &VM_OPS.0, writable) })?;
        let first = tracing::attached::base(attached.key) / PAGE as u64;
        // SAFETY: The area being set up, which is in no list yet.
        unsafe { (*vma).vm_pgoff = (pgoff.wrapping_add(first)) as c_ulong };
        // SAFETY: The area being set up, as long as the piece.
        unsafe {
            set_key(vma, attached.key);
            maps(vma, attached.key, true);
        }
        Ok(0)
    })
}

/// The process that has an area; 0: one that cannot be traced.
///
/// # Safety
///
/// An area of ours.
unsafe fn key_of(vma: *const bindings::vm_area_struct) -> u64 {
    // SAFETY: By the function's requirement.
    unsafe { (*vma).vm_private_data as u64 }
}

/// # Safety
///
/// An area of ours, which is being set up or copied.
unsafe fn set_key(vma: *mut bindings::vm_area_struct, key: u64) {
    // SAFETY: By the function's requirement.
    unsafe { (*vma).vm_private_data = key as *mut c_void };
}

/// One more or less of a process's areas.
///
/// # Safety
///
/// An area of ours.
unsafe fn maps(vma: *const bindings::vm_area_struct, key: u64, more: bool) {
    // SAFETY: By the function's requirement.
    let (pgoff, at, end) = unsafe {
        let bounds = &(*vma).__bindgen_anon_1.__bindgen_anon_1;
        (
            (*vma).vm_pgoff as u64,
            bounds.vm_start as u64,
            bounds.vm_end as u64,
        )
    };
    let from = tracing::attached::within(pgoff.wrapping_mul(PAGE as u64));
    let piece = usize::from(from >= map::BUFFERS);
    let bytes = match piece {
        0 => map::READ_BYTES,
        _ => tracing::attached::mapped_bytes(),
    };
    let whole = end.wrapping_sub(at) == bytes;
    tracing::attached::maps(key, piece, at, whole, more);
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn vma_open(vma: *mut bindings::vm_area_struct) {
    // SAFETY: An area of ours, split, moved or copied, with its address space locked.
    unsafe {
        shim::pt_wipe_on_fork(vma);
        let mm = (*vma).vm_mm as usize;
        let mut key = key_of(vma);
        if key != 0 && !tracing::attached::is_of(key, mm) {
            key = children::inherit(key, mm);
            set_key(vma, key);
        }
        maps(vma, key, true);
    }
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn vma_close(vma: *mut bindings::vm_area_struct) {
    // SAFETY: An area of ours.
    unsafe { maps(vma, key_of(vma), false) }
}

#[no_mangle]
extern "C" fn pt_begins() {
    if let Some(mm) = Mm::calls() {
        children::begins(&mm);
    }
}

#[no_mangle]
extern "C" fn pt_shares(parent: u32) {
    children::shares(parent);
}

#[no_mangle]
extern "C" fn pt_missed(mm: usize) {
    children::missed(mm);
}

/// A child that looks at its pages for the first time. False: it is not the child that looks.
fn wake(key: u64) -> bool {
    match children::wake(key) {
        Ok(false) | Err(ESRCH) => {}
        // SAFETY: Process context; who looks is a process.
        Ok(true) if unsafe { shim::pt_begins_later() } == 0 => {}
        Err(EFAULT) => return false,
        _ => children::give_up(key),
    }
    true
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    let _span = Span::begin(Cost::Faults, Cost::FaultTime);
    // SAFETY: The kernel's own, for the time of the call.
    let (vma, pgoff) = unsafe {
        let at = &(*vmf).__bindgen_anon_1;
        (at.vma, at.pgoff)
    };
    // SAFETY: An area of ours.
    let (role, key) = unsafe { (opened((*vma).vm_file).role(), key_of(vma)) };
    let Some(Role::Process(attached)) = role.as_deref() else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    if !wake(key) {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    }
    let nobodys = attached.nobodys.address();
    // SAFETY: The fault is being handled; the pages are whole ones, and the area takes such
    // (pt_vma).
    let put = |page: usize| unsafe { shim::pt_insert(vmf, page) };
    let place = tracing::attached::within((pgoff as u64).wrapping_mul(PAGE as u64)) / PAGE as u64;
    tracing::attached::fault(Some(key), place, nobodys, put)
        .unwrap_or(bindings::vm_fault_reason_VM_FAULT_SIGBUS)
}
