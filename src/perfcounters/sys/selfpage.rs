// SPDX-License-Identifier: GPL-2.0

//! The self page of a thread's context: its memory, its mappings, and RDPMC for
//! those who map it.

use core::ptr::NonNull;

use engine::ring::TAIL_OFFSET;
use engine::selfpage::{SelfPage, OFFSET};
use kernel::bindings;
use kernel::error::{from_result, to_result, Result};
use kernel::ffi::c_int;
use kernel::prelude::*;

use super::account::Charge;
use super::costs::Span;
use super::file::Ops;
use super::perfmon::context_of;
use super::shim;
use crate::costs::Cost;
use crate::sets::Set;

/// A page that a thread reads.
///
/// # Invariants
///
/// `address` is a whole page in the direct map, ours until drop. It goes with its
/// context, whose file every mapping holds.
pub(crate) struct Page {
    address: NonNull<SelfPage>,
    _charge: Charge,
}

// SAFETY: A page of atomic words.
unsafe impl Send for Page {}
// SAFETY: A page of atomic words, which who holds the context's lock writes.
unsafe impl Sync for Page {}

const _: () = assert!(size_of::<SelfPage>() <= engine::abi::PAGE_SIZE);

impl Page {
    /// Allocates one: memory of who has `charge`, and of the caller's control group. `EDQUOT`:
    /// that is too much. May sleep.
    pub(crate) fn new(charge: &Charge) -> Result<Self> {
        let charge = charge.more(engine::abi::PAGE_SIZE)?;
        let flags = bindings::GFP_KERNEL_ACCOUNT | bindings::__GFP_ZERO;
        // SAFETY: No requirements.
        let address = unsafe { bindings::get_free_pages_noprof(flags, 0) };
        // INVARIANT: just allocated so.
        let page = Self {
            address: NonNull::new(address as *mut SelfPage).ok_or(ENOMEM)?,
            _charge: charge,
        };
        page.words().init();
        Ok(page)
    }

    fn words(&self) -> &SelfPage {
        // SAFETY: Ours, zeroed, large enough and aligned, by the type's invariant;
        // words may be shared with user space.
        unsafe { self.address.as_ref() }
    }

    /// Its frame.
    pub(crate) fn frame(&self) -> usize {
        // SAFETY: In the direct map, by the type's invariant.
        unsafe { shim::pfc_virt_pfn(self.address.as_ptr().cast()) }
    }

    /// Writes how a context stands. Its lock is held.
    #[inline]
    pub(crate) fn update(&self, set: &Set, flags: (u32, u64), tsc: u64, ran: u64) {
        let value = |pmd| set.registers.value(pmd);
        let counters = match set.id {
            0 if !set.registers.is_any_short() => set.registers.program.counters(),
            // Of other sets, and of what is short, only the kernel tells.
            _ => &[],
        };
        self.words().update(counters, flags, value, tsc, ran);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: Ours and, by the type's invariant, not mapped any more.
        unsafe { bindings::free_pages(self.address.as_ptr() as usize, 0) }
    }
}

static VM_OPS: Ops<bindings::vm_operations_struct> = Ops(bindings::vm_operations_struct {
    open: Some(open),
    close: Some(close),
    fault: Some(fault),
    ..pin_init::zeroed()
});

/// What a mapping knows: may its process use RDPMC?
const ALLOWED: *mut kernel::ffi::c_void = core::ptr::without_provenance_mut(1);

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn open(vma: *mut bindings::vm_area_struct) {
    // SAFETY: A mapping of ours that is moved, and its file.
    unsafe {
        if let Ok(context) = context_of((*vma).vm_file) {
            context.map_again();
        }
        if (*vma).vm_private_data == ALLOWED {
            shim::pfm_rdpmc_keep((*vma).vm_mm);
        }
    }
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn close(vma: *mut bindings::vm_area_struct) {
    // SAFETY: A mapping of ours, and its file; what it was allowed it gives back once.
    unsafe {
        if let Ok(context) = context_of((*vma).vm_file) {
            context.unmap();
        }
        if (*vma).vm_private_data == ALLOWED {
            shim::pfm_rdpmc_forbid((*vma).vm_mm);
        }
    }
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    let _span = Span::begin(Cost::Faults, Cost::FaultTime);
    // SAFETY: The kernel's own, for the time of the call.
    let (vma, address, file) = unsafe {
        let at = &(*vmf).__bindgen_anon_1;
        (at.vma, at.address, (*at.vma).vm_file)
    };
    // SAFETY: The mapping's file, which is one of ours.
    let frame = unsafe { context_of(file) }.and_then(|context| context.self_page());
    match frame {
        // SAFETY: The area has VM_PFNMAP and can have no private copies
        // (pfc_vma_readonly), and the page lives as long as its file.
        Ok(frame) => unsafe { bindings::vmf_insert_pfn(vma, address, frame) },
        Err(_) => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
    }
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
pub(super) unsafe extern "C" fn mmap(
    file: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    from_result(|| {
        // SAFETY: The area being set up.
        let (pgoff, length) = unsafe {
            let bounds = &(*vma).__bindgen_anon_1.__bindgen_anon_1;
            ((*vma).vm_pgoff, bounds.vm_end.wrapping_sub(bounds.vm_start))
        };
        let page = engine::abi::PAGE_SIZE;
        // SAFETY: A file of ours.
        let context = unsafe { context_of(file)? };
        let tail = pgoff as u64 == TAIL_OFFSET / page as u64;
        if pgoff == 0 || tail {
            let areas = context.areas().ok_or(EINVAL)?;
            // SAFETY: The area being set up.
            return unsafe { areas.map(vma, tail, length) }.map(|()| 0);
        }
        if pgoff as u64 != OFFSET / page as u64 || length != page {
            return Err(EINVAL);
        }
        context.self_page()?;
        // SAFETY: The area being set up; the operations are static.
        to_result(unsafe { shim::pfm_vma_self(vma, &VM_OPS.0) })?;
        context.map()?;
        let has_counters = context.described().counters().next().is_some();
        // SAFETY: Process context, of the process that maps.
        let allowed = has_counters && unsafe { shim::pfm_rdpmc_allow() };
        if allowed {
            // SAFETY: The area being set up.
            unsafe { (*vma).vm_private_data = ALLOWED };
        }
        context.set_rdpmc(allowed);
        Ok(0)
    })
}
