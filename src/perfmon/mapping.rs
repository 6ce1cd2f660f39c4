// SPDX-License-Identifier: GPL-2.0

//! Mappings of `/dev/perfmon`: the sampling buffer, and the self page of a thread's context.
//! Mapping the self page also permits RDPMC in the process.

#![expect(unsafe_code, reason = "file operations of mappings, and calls of C")]

use kernel::bindings;
use kernel::error::{from_result, to_result};
use kernel::ffi::c_int;
use kernel::prelude::*;
use protocols::ring::TAIL_OFFSET;
use protocols::self_page::OFFSET;

use crate::helpers;
use crate::open_file::context_of;
use crate::stats::{self, SelfStat};
use base::device::Ops;

static VM_OPS: Ops<bindings::vm_operations_struct> = Ops(bindings::vm_operations_struct {
    open: Some(open),
    close: Some(close),
    fault: Some(fault),
    ..pin_init::zeroed()
});

/// Value of `vm_private_data` that marks a mapping of the self page that permits RDPMC.
const RDPMC_ALLOWED: *mut kernel::ffi::c_void = core::ptr::without_provenance_mut(1);

/// Increments the count of the self page's mappings when mremap() moves a mapping: the moved
/// mapping is a new mapping, and the old one is closed later.
///
/// # Safety
///
/// Called only by the kernel, as `vm_operations_struct.open` of a mapping of the self page.
unsafe extern "C" fn open(vma: *mut bindings::vm_area_struct) {
    // SAFETY: The memory area is a mapping of the self page, and holds the file of the context.
    unsafe {
        if let Ok(context) = context_of((*vma).vm_file) {
            context.copy_mapping();
        }
        if (*vma).vm_private_data == RDPMC_ALLOWED {
            helpers::pfm_rdpmc_keep((*vma).vm_mm);
        }
    }
}

/// Decrements the count of the self page's mappings when a mapping is removed, and drops the
/// mapping's permission for RDPMC.
///
/// # Safety
///
/// Called only by the kernel, as `vm_operations_struct.close` of a mapping of the self page.
unsafe extern "C" fn close(vma: *mut bindings::vm_area_struct) {
    // SAFETY: The memory area is a mapping of the self page, and holds the file of the context. The
    // permission for RDPMC of this memory area is dropped once.
    unsafe {
        if let Ok(context) = context_of((*vma).vm_file) {
            context.unmap_self_page();
        }
        if (*vma).vm_private_data == RDPMC_ALLOWED {
            helpers::pfm_rdpmc_forbid((*vma).vm_mm);
        }
    }
}

/// Handles a page fault: inserts the self page.
///
/// # Safety
///
/// Called only by the kernel, as `vm_operations_struct.fault` of a mapping of the self page.
unsafe extern "C" fn fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    let _span = stats::timer(SelfStat::Faults, SelfStat::FaultTime);
    // SAFETY: The kernel passes the fault, which is valid during the call.
    let (vma, address, file) = unsafe {
        let at = &(*vmf).__bindgen_anon_1;
        (at.vma, at.address, (*at.vma).vm_file)
    };
    // SAFETY: The memory area `vma` is a mapping of `/dev/perfmon`, and holds the file of the
    // context.
    let frame = unsafe { context_of(file) }.and_then(|context| context.self_page());
    match frame {
        // SAFETY: pfc_vma_readonly() has set VM_PFNMAP and excluded private copies of pages. The
        // self page lives as long as the context, which is not closed before the file.
        Ok(frame) => unsafe { bindings::vmf_insert_pfn(vma, address, frame) },
        Err(_) => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
    }
}

/// Maps the sampling buffer, the reader's page of a ring, or the self page: the file offset selects
/// which. Returns `EINVAL` if the offset or the length is not valid.
///
/// # Safety
///
/// Called only by the kernel, as `file_operations.mmap` of `/dev/perfmon`.
pub(super) unsafe extern "C" fn mmap(
    file: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    from_result(|| {
        // SAFETY: The memory area is being set up, and only this call uses it.
        let (pgoff, length) = unsafe {
            let bounds = &(*vma).__bindgen_anon_1.__bindgen_anon_1;
            ((*vma).vm_pgoff, bounds.vm_end.wrapping_sub(bounds.vm_start))
        };
        let page = protocols::PAGE_SIZE;
        // SAFETY: The kernel calls this operation only for files that `open` has set up.
        let context = unsafe { context_of(file)? };
        let tail = pgoff as u64 == TAIL_OFFSET / page as u64;
        if pgoff == 0 || tail {
            let areas = context.sampling_memory().ok_or(EINVAL)?;
            // SAFETY: The memory area is being set up, and its length is `length`.
            return unsafe { areas.map(vma, tail, length) }.map(|()| 0);
        }
        if pgoff as u64 != OFFSET / page as u64 || length != page {
            return Err(EINVAL);
        }
        context.self_page()?;
        // SAFETY: The memory area is being set up, and `VM_OPS` is static.
        to_result(unsafe { helpers::pfm_vma_self_page(vma, &VM_OPS.0) })?;
        context.map_self_page()?;
        let has_counters = context.descriptions().counters().next().is_some();
        // SAFETY: The caller is in process context, in the process that maps the page.
        let allowed = has_counters && unsafe { helpers::pfm_rdpmc_allow() };
        if allowed {
            // SAFETY: The memory area is being set up, and only this call uses it.
            unsafe { (*vma).vm_private_data = RDPMC_ALLOWED };
        }
        context.set_rdpmc(allowed);
        Ok(0)
    })
}
