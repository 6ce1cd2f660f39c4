// SPDX-License-Identifier: GPL-2.0

//! Mappings of `/dev/perfmon`: the sampling buffer, and the self page of a thread's context.
//! Mapping the self page also permits RDPMC in the process.

#![expect(unsafe_code, reason = "calls of C with mappings")]

use kernel::bindings;
use kernel::error::to_result;
use kernel::mm::virt::VmaNew;
use kernel::prelude::*;
use protocols::ring::TAIL_OFFSET;
use protocols::self_page::OFFSET;

use crate::contexts::context::Context;
use crate::helpers;
use crate::stats::{self, SelfStat};
use base::device::{PageFault, Vma};

/// The data of a mapping of the self page that permits RDPMC.
const RDPMC_ALLOWED: usize = 1;

/// Increments the count of the self page's mappings when mremap() moves a mapping: the moved
/// mapping is a new mapping, and the old one is closed later.
pub(super) fn count_copied_mapping(context: Option<&Context>, vma: &Vma) {
    if let Some(context) = context {
        context.copy_mapping();
    }
    if vma.data() == RDPMC_ALLOWED {
        // SAFETY: `vma.mm()` is the address space of the mapping `vma`, which permits RDPMC.
        unsafe { helpers::pfm_rdpmc_add_permission(vma.mm()) };
    }
}

/// Decrements the count of the self page's mappings when a mapping is removed, and drops the
/// mapping's permission for RDPMC.
pub(super) fn count_removed_mapping(context: Option<&Context>, vma: &Vma) {
    if let Some(context) = context {
        context.unmap_self_page();
    }
    if vma.data() == RDPMC_ALLOWED {
        // SAFETY: `vma.mm()` is valid. Only this code drops the RDPMC permission of `vma`.
        unsafe { helpers::pfm_rdpmc_forbid(vma.mm()) };
    }
}

/// Handles a page fault: inserts the self page.
pub(super) fn fault(context: Option<&Context>, fault: &PageFault<'_>) -> bindings::vm_fault_t {
    let _span = stats::timer(SelfStat::Faults, SelfStat::FaultTime);
    match context.ok_or(EINVAL).and_then(Context::self_page) {
        // SAFETY: pfc_vma_readonly() has set up the mapping. The self page lives as long as the
        // context, which is freed only after its `/dev/perfmon` file was closed.
        Ok(frame) => unsafe { fault.insert_pfn(frame) },
        Err(_) => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
    }
}

/// Maps the memory that the file offset selects: the sampling buffer, the reader's page of a ring,
/// or the self page. `ops` are the operations of mappings of the self page. Returns `EINVAL` if the
/// offset or the length is not valid.
pub(super) fn map(
    context: &Context,
    vma: &mut Vma,
    ops: &'static bindings::vm_operations_struct,
) -> Result {
    let page = protocols::PAGE_SIZE;
    let tail = vma.pgoff() == TAIL_OFFSET / page as u64;
    if vma.pgoff() == 0 || tail {
        return context.sampling_memory().ok_or(EINVAL)?.map(vma, tail);
    }
    if vma.pgoff() != OFFSET / page as u64 || vma.bytes() != page {
        return Err(EINVAL);
    }
    context.self_page()?;
    // SAFETY: The mapping is being set up.
    to_result(unsafe { base::helpers::pfc_vma_readonly(vma.as_ptr(), ops) })?;
    // fork() must not copy the mapping: the self page shows the counts of the context's thread, not
    // of the child.
    // SAFETY: The mapping is being set up.
    unsafe { VmaNew::from_raw(vma.as_ptr()) }.set_dontcopy();
    context.map_self_page()?;
    let has_counters = context.descriptions().counters().next().is_some();
    // SAFETY: The caller is in process context, in the process that maps the page.
    let allowed = has_counters && unsafe { helpers::pfm_rdpmc_allow() };
    if allowed {
        vma.set_data(RDPMC_ALLOWED);
    }
    context.set_rdpmc(allowed);
    Ok(())
}
