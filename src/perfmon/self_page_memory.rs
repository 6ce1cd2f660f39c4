// SPDX-License-Identifier: GPL-2.0

//! The memory of the self page of a thread's context.

#![expect(unsafe_code, reason = "memory that user space maps")]

use core::ptr::NonNull;

use kernel::bindings;
use kernel::error::Result;
use kernel::prelude::*;
use perfmon_rules::program::self_page_counters;
use protocols::self_page::SelfPage;

use crate::contexts::event_set::EventSet;
use base::account::MemoryCharge;
use base::helpers;

/// The self page of a context (`struct perfmon_self`).
///
/// # Invariants
///
/// `address` is the address of a whole page in the direct map. `self` owns the page until drop. The
/// page is freed with its context. Every mapping of the page holds the context's file.
pub(crate) struct SelfPageMemory {
    address: NonNull<SelfPage>,
    _charge: MemoryCharge,
}

// SAFETY: The page holds atomic words, which any thread may access.
unsafe impl Send for SelfPageMemory {}
// SAFETY: The page holds atomic words, which only the holder of the context's lock writes.
unsafe impl Sync for SelfPageMemory {}

const _: () = assert!(size_of::<SelfPage>() <= protocols::PAGE_SIZE);

impl SelfPageMemory {
    /// Allocates a self page, charged to the user of `charge` and to the caller's control group.
    /// Returns `EDQUOT` if the charge would exceed the user's limit, or `ENOMEM`. May sleep.
    pub(crate) fn new(charge: &MemoryCharge) -> Result<Self> {
        let charge = charge.charge_same_user(protocols::PAGE_SIZE)?;
        let flags = bindings::GFP_KERNEL_ACCOUNT | bindings::__GFP_ZERO;
        // SAFETY: `get_free_pages_noprof()` may sleep in the allocation, because the caller is in
        // process context.
        let address = unsafe { bindings::get_free_pages_noprof(flags, 0) };
        // INVARIANT: The page was just allocated, zeroed.
        let page = Self {
            address: NonNull::new(address as *mut SelfPage).ok_or(ENOMEM)?,
            _charge: charge,
        };
        page.self_page().init();
        Ok(page)
    }

    fn self_page(&self) -> &SelfPage {
        // SAFETY: By the type's invariant `self` owns a whole page, which is aligned and large
        // enough. The page holds atomic words, which may be shared with user space.
        unsafe { self.address.as_ref() }
    }

    /// Returns the page frame number of the self page.
    pub(crate) fn page_frame_number(&self) -> usize {
        // SAFETY: The page is in the direct map, by the type's invariant.
        unsafe { helpers::pfc_virt_pfn(self.address.as_ptr().cast()) }
    }

    /// Writes the state of the context to its self page. Caller holds the context's lock.
    #[inline]
    pub(crate) fn update(&self, set: &EventSet, flags: (u32, u64), tsc: u64, ran: u64) {
        let value = |pmd| set.registers.pmd_value(pmd);
        let counters = match set.id {
            0 if !set.registers.is_any_incomplete() => set.registers.program.counters(),
            // The page shows counters only if the active event set is set 0 and no value is
            // incomplete. If a self page has no counters, its reader must call PERFMON_READ_PMDS.
            _ => &[],
        };
        let counters = self_page_counters(counters, value);
        self.self_page().update(counters, flags, tsc, ran);
    }
}

impl Drop for SelfPageMemory {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` owns the page, which is no longer mapped.
        unsafe { bindings::free_pages(self.address.as_ptr() as usize, 0) }
    }
}

/// The mappings of a context's self page. At most one process maps the page at a time.
#[derive(Default)]
pub(crate) struct SelfPageMappings {
    /// The address of the `mm_struct` of the process that maps the page.
    pub(crate) mm: usize,
    pub(crate) nr: usize,
    /// True if threads of the process that maps the page are allowed to execute RDPMC.
    pub(crate) is_rdpmc_allowed: bool,
}
