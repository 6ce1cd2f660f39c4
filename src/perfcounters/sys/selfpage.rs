// SPDX-License-Identifier: GPL-2.0

//! Mappings of `/dev/perfmon`: the sampling buffer, and the self page of a thread's context.
//! Mapping the self page also permits RDPMC in the process.

use core::ptr::NonNull;

use kernel::bindings;
use kernel::error::{from_result, to_result, Result};
use kernel::ffi::c_int;
use kernel::prelude::*;
use perfmon_rules::program::self_page_counters;
use protocols::ring::TAIL_OFFSET;
use protocols::self_page::{SelfPage, OFFSET};

use super::perfmon::context_of;
use super::perfmon_shim as shim;
use crate::base::account::Charge;
use crate::base::device::Ops;
use crate::base::helpers;
use crate::costs::{self, SelfStat};
use crate::event_set::Set;

/// The self page of a context (`struct perfmon_self`).
///
/// # Invariants
///
/// `address` is that of a whole page in the direct map, which `self` owns until drop. The page is
/// freed with its context. Every mapping of the page holds the context's file.
pub(crate) struct Page {
    address: NonNull<SelfPage>,
    _charge: Charge,
}

// SAFETY: The page holds atomic words, which any thread may access.
unsafe impl Send for Page {}
// SAFETY: The page holds atomic words, which only the holder of the context's lock writes.
unsafe impl Sync for Page {}

const _: () = assert!(size_of::<SelfPage>() <= protocols::PAGE_SIZE);

impl Page {
    /// Allocates a self page, charged to the user of `charge` and to the caller's control group.
    /// Returns `EDQUOT` if the charge would exceed the user's limit, or `ENOMEM`. May sleep.
    pub(crate) fn new(charge: &Charge) -> Result<Self> {
        let charge = charge.charge(protocols::PAGE_SIZE)?;
        let flags = bindings::GFP_KERNEL_ACCOUNT | bindings::__GFP_ZERO;
        // SAFETY: `get_free_pages_noprof()` may sleep in the allocation, because the caller is in
        // process context.
        let address = unsafe { bindings::get_free_pages_noprof(flags, 0) };
        // INVARIANT: The page was just allocated, zeroed.
        let page = Self {
            address: NonNull::new(address as *mut SelfPage).ok_or(ENOMEM)?,
            _charge: charge,
        };
        page.words().init();
        Ok(page)
    }

    fn words(&self) -> &SelfPage {
        // SAFETY: By the type's invariant `self` owns a whole page, which is aligned and large
        // enough. The page holds atomic words, which may be shared with user space.
        unsafe { self.address.as_ref() }
    }

    /// Returns the page frame number of the self page.
    pub(crate) fn frame(&self) -> usize {
        // SAFETY: The page is in the direct map, by the type's invariant.
        unsafe { helpers::pfc_virt_pfn(self.address.as_ptr().cast()) }
    }

    /// Writes the state of the context to its self page. Caller holds the context's lock.
    #[inline]
    pub(crate) fn update(&self, set: &Set, flags: (u32, u64), tsc: u64, ran: u64) {
        let value = |pmd| set.registers.value(pmd);
        let counters = match set.id {
            0 if !set.registers.is_any_incomplete() => set.registers.program.counters(),
            // The page shows no counters if the active event set is not set 0, or if a value is
            // incomplete (`SHORT`). Its reader must then call PERFMON_READ_PMDS.
            _ => &[],
        };
        let counters = self_page_counters(counters, value);
        self.words().update(counters, flags, tsc, ran);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` owns the page, which is no longer mapped.
        unsafe { bindings::free_pages(self.address.as_ptr() as usize, 0) }
    }
}

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
            shim::pfm_rdpmc_keep((*vma).vm_mm);
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
            shim::pfm_rdpmc_forbid((*vma).vm_mm);
        }
    }
}

/// Handles a page fault: inserts the self page.
///
/// # Safety
///
/// Called only by the kernel, as `vm_operations_struct.fault` of a mapping of the self page.
unsafe extern "C" fn fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    let _span = costs::timer(SelfStat::Faults, SelfStat::FaultTime);
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
        to_result(unsafe { shim::pfm_vma_self_page(vma, &VM_OPS.0) })?;
        context.map_self_page()?;
        let has_counters = context.descriptions().counters().next().is_some();
        // SAFETY: The caller is in process context, in the process that maps the page.
        let allowed = has_counters && unsafe { shim::pfm_rdpmc_allow() };
        if allowed {
            // SAFETY: The memory area is being set up, and only this call uses it.
            unsafe { (*vma).vm_private_data = RDPMC_ALLOWED };
        }
        context.set_rdpmc(allowed);
        Ok(0)
    })
}
