// SPDX-License-Identifier: GPL-2.0

//! Mappings of `/dev/perftrace` in traced processes.
//!
//! A traced process maps two parts of the device ("pieces"): the read-only piece (control page,
//! marker words, filters) and the buffers. Page faults insert the pages of both pieces.

#![expect(unsafe_code, reason = "operations of mappings, and calls of C")]

use kernel::bindings;
use kernel::error::{from_result, to_result};
use kernel::ffi::{c_int, c_ulong, c_void};
use kernel::prelude::*;

use trace_rules::abi::map;

use crate::attached;
use crate::buffers::PAGE;
use crate::children;
use crate::helpers;
use crate::open_file::{opened, Role};
use crate::stats;
use base::address_space::Mm;
use base::device::Ops;

pub(super) static VM_OPS: Ops<bindings::vm_operations_struct> =
    Ops(bindings::vm_operations_struct {
        open: Some(vma_open),
        close: Some(vma_close),
        fault: Some(fault),
        ..pin_init::zeroed()
    });

/// Maps the read-only piece or the buffers. The file offset selects the piece, and the mapping must
/// cover the whole piece. Returns `EINVAL` if the offset or the length is not valid, or if no
/// process with this address space has attached through the file.
///
/// # Safety
///
/// Called only by the kernel, as `file_operations.mmap` of `/dev/perftrace`.
pub(super) unsafe extern "C" fn mmap(
    file: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    from_result(|| {
        // SAFETY: The kernel calls this operation only for files that `open` has set up.
        let role = unsafe { opened(file) }.role();
        let Some(Role::Process(attached)) = role.as_deref() else {
            return Err(EINVAL);
        };
        // SAFETY: The memory area is being set up, and only this call uses it.
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
            true => attached::mapped_bytes(),
            false => map::READ_BYTES,
        };
        if !(writable || pgoff == 0) || length != bytes || !attached.mm.is_at(mm) {
            return Err(EINVAL);
        }
        // SAFETY: The memory area is being set up, and `VM_OPS` is static.
        to_result(unsafe { helpers::pt_vma(vma, &VM_OPS.0, writable) })?;
        let first = attached::base(attached.key) / PAGE as u64;
        // SAFETY: The memory area is being set up. It is in no tree of mappings yet, so its file
        // offset may be changed.
        unsafe { (*vma).vm_pgoff = (pgoff.wrapping_add(first)) as c_ulong };
        // SAFETY: The memory area is a mapping of this device that is being set up. Its bounds and
        // file offset are final.
        unsafe {
            set_key(vma, attached.key);
            count_mapping(vma, attached.key, true);
        }
        Ok(0)
    })
}

/// Returns the key of the traced process to which the memory area belongs; 0 if the process could
/// not be traced.
///
/// # Safety
///
/// `vma` is a mapping of this device.
unsafe fn key_of(vma: *const bindings::vm_area_struct) -> u64 {
    // SAFETY: By the function's requirement `vma` is a mapping of this device, whose private data
    // is a key.
    unsafe { (*vma).vm_private_data as u64 }
}

/// Stores in a memory area the key of the traced process to which the area belongs.
///
/// # Safety
///
/// `vma` is a mapping of this device that is being set up or copied.
unsafe fn set_key(vma: *mut bindings::vm_area_struct, key: u64) {
    // SAFETY: By the function's requirement `vma` is valid, and nothing else accesses its private
    // data.
    unsafe { (*vma).vm_private_data = key as *mut c_void };
}

/// Adds a memory area to the count of a process's mappings if `more` is true, otherwise subtracts
/// it. Updates the address at which the process has mapped the piece.
///
/// # Safety
///
/// `vma` is a mapping of this device.
unsafe fn count_mapping(vma: *const bindings::vm_area_struct, key: u64, more: bool) {
    // SAFETY: By the function's requirement `vma` is valid. The bounds of a memory area do not
    // change while one of its `vm_operations_struct` functions or mmap() runs.
    let (pgoff, at, end) = unsafe {
        let bounds = &(*vma).__bindgen_anon_1.__bindgen_anon_1;
        (
            (*vma).vm_pgoff as u64,
            bounds.vm_start as u64,
            bounds.vm_end as u64,
        )
    };
    let from = attached::offset_within(pgoff.wrapping_mul(PAGE as u64));
    let piece = usize::from(from >= map::BUFFERS);
    let bytes = match piece {
        0 => map::READ_BYTES,
        _ => attached::mapped_bytes(),
    };
    let whole = end.wrapping_sub(at) == bytes;
    attached::count_mapping(key, piece, at, whole, more);
}

/// Adds a new memory area to the count of its process. If fork() has copied the area, the copy gets
/// the key of a new traced process, the child, which inherits its parent's markers.
///
/// # Safety
///
/// Called only by the kernel, as `vm_operations_struct.open` of a mapping of this device.
unsafe extern "C" fn vma_open(vma: *mut bindings::vm_area_struct) {
    // SAFETY: The memory area is a mapping of this device that was split, moved or copied. The mmap
    // lock is held for writing.
    unsafe {
        helpers::pt_wipe_on_fork(vma);
        let mm = (*vma).vm_mm as usize;
        let mut key = key_of(vma);
        if key != 0 && !attached::is_of(key, mm) {
            key = children::create_child(key, mm);
            set_key(vma, key);
        }
        count_mapping(vma, key, true);
    }
}

/// Subtracts a memory area, which is being removed, from the count of its process.
///
/// # Safety
///
/// Called only by the kernel, as `vm_operations_struct.close` of a mapping of this device.
unsafe extern "C" fn vma_close(vma: *mut bindings::vm_area_struct) {
    // SAFETY: The memory area `vma` is a mapping of this device.
    unsafe { count_mapping(vma, key_of(vma), false) }
}

#[no_mangle]
extern "C" fn pt_announce() {
    if let Some(mm) = Mm::of_current() {
        children::announce(&mm);
    }
}

#[no_mangle]
extern "C" fn pt_shared_thread(parent: u32) {
    children::mark_shared_thread(parent);
}

#[no_mangle]
extern "C" fn pt_count_missed(mm: usize) {
    children::count_missed(mm);
}

/// Sets up the pages of a child of fork() when the child first accesses its mappings. Returns false
/// if another task, such as a kernel thread, makes the access. If memory is short, the child is not
/// traced any more.
fn attach_child(key: u64) -> bool {
    match children::attach_child(key) {
        Ok(false) | Err(ESRCH) => {}
        // SAFETY: The caller is in process context. The current task will return to user mode,
        // because `attach_child()` has refused kernel threads.
        Ok(true) if unsafe { helpers::pt_queue_announce() } == 0 => {}
        Err(EFAULT) => return false,
        _ => children::abandon(key),
    }
    true
}

/// Handles a page fault: inserts the page of the faulting address.
///
/// # Safety
///
/// Called only by the kernel, as `vm_operations_struct.fault` of a mapping of this device.
unsafe extern "C" fn fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    let _span = stats::fault_timer();
    // SAFETY: The kernel passes the fault, which is valid during the call.
    let (vma, pgoff) = unsafe {
        let at = &(*vmf).__bindgen_anon_1;
        (at.vma, at.pgoff)
    };
    // SAFETY: The memory area is a mapping of this device, and holds the mapped file.
    let (role, key) = unsafe { (opened((*vma).vm_file).role(), key_of(vma)) };
    let Some(Role::Process(attached)) = role.as_deref() else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    if !attach_child(key) {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    }
    let nobodys = attached.placeholder.address();
    // SAFETY: `vmf` is valid until `fault` returns. `page` is a whole page in the direct map, and
    // `pt_vma()` has set `VM_MIXEDMAP`, so that pages can be inserted.
    let put = |page: usize| unsafe { helpers::pt_insert(vmf, page) };
    let place = attached::offset_within((pgoff as u64).wrapping_mul(PAGE as u64)) / PAGE as u64;
    attached::fault(Some(key), place, nobodys, put)
        .unwrap_or(bindings::vm_fault_reason_VM_FAULT_SIGBUS)
}
