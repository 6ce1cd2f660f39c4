// SPDX-License-Identifier: GPL-2.0

//! Mappings of `/dev/perftrace` in traced processes, and the page faults of these mappings.
//!
//! A traced process maps two parts of the device ("pieces"): the read-only piece (control page,
//! marker words, filters) and the buffers. Page faults insert pages into the device's mappings.

#![expect(unsafe_code, reason = "calls of C with mappings")]

use kernel::alloc::KBox;
use kernel::bindings;
use kernel::error::to_result;
use kernel::ffi::c_ulong;
use kernel::prelude::*;
use trace_rules::abi::{self, flag, map, NR_TRACES};

use crate::children;
use crate::fault_memory::FaultMemory;
use crate::helpers;
use crate::page::PAGE_SIZE;
use crate::process::Process;
use crate::process_calls::{self, AttachedFile};
use crate::registry::{Tracing, TRACING};
use crate::trace::Trace;
use base::cpu;
use base::device::{PageFault, Vma};

/// Maps all read-only pages (file offset 0) or all buffers (offset `map::BUFFERS`) of the traced
/// process `attached`. Returns `EINVAL` for another offset or length, or if the VMA is not in the
/// address space of the attached process.
pub(super) fn map(
    attached: &AttachedFile,
    vma: &mut Vma,
    ops: &'static bindings::vm_operations_struct,
) -> Result {
    let pgoff = vma.pgoff();
    let writable = pgoff == map::BUFFERS / PAGE_SIZE as u64;
    let bytes = match writable {
        true => process_calls::buffer_area_bytes(),
        false => map::READ_BYTES,
    };
    if !(writable || pgoff == 0)
        || vma.bytes() as u64 != bytes
        || !attached.mm.is_at_address(vma.mm())
    {
        return Err(EINVAL);
    }
    // SAFETY: The mapping is being set up.
    to_result(unsafe { helpers::pt_setup_vma(vma.as_ptr(), ops, writable) })?;
    let first = process_calls::process_range_offset(attached.key) / PAGE_SIZE as u64;
    // SAFETY: The mapping is being set up. The VMA is in no tree of mappings yet, so its file
    // offset may be changed.
    unsafe { (*vma.as_ptr()).vm_pgoff = (pgoff.wrapping_add(first)) as c_ulong };
    set_process_key_of_vma(vma, attached.key);
    add_or_subtract_mapping(vma, true);
    Ok(())
}

/// Returns the key of the traced process to which a mapping belongs; 0 if the process could not be
/// traced.
fn process_key_of_vma(vma: &Vma) -> u64 {
    vma.private_data() as u64
}

/// Stores in a mapping the key of the traced process to which the mapping belongs.
fn set_process_key_of_vma(vma: &mut Vma, key: u64) {
    vma.set_private_data(key as usize);
}

/// Adds a mapping to the count of its process's mappings if `more` is true, otherwise subtracts it.
/// Updates the address at which the process has mapped the read-only pages or the buffers.
fn add_or_subtract_mapping(vma: &Vma, more: bool) {
    let from = process_calls::offset_within_range(vma.pgoff().wrapping_mul(PAGE_SIZE as u64));
    let piece = usize::from(from >= map::BUFFERS);
    let bytes = match piece {
        0 => map::READ_BYTES,
        _ => process_calls::buffer_area_bytes(),
    };
    let whole = vma.bytes() as u64 == bytes;
    process_calls::add_or_subtract_mapping(
        process_key_of_vma(vma),
        piece,
        vma.start() as u64,
        whole,
        more,
    );
}

/// Adds a mapping that was split, moved or copied to the count of its process. If fork() has copied
/// the mapping, the copy gets the key of the child: a new traced process with its parent's markers.
/// If the process that the mapping belonged to has ended, the copy belongs to no process.
pub(super) fn add_copied_mapping(vma: &mut Vma) {
    // SAFETY: The mapping is being copied, under the mmap lock, which is held for writing.
    unsafe { helpers::pt_wipe_on_fork(vma.as_ptr()) };
    let (key, mm) = (process_key_of_vma(vma), vma.mm() as usize);
    if key != 0 && !process_calls::has_address_space(key, mm) {
        let child = children::create_forked_child(key, mm);
        // If the parent has ended and attached again, this mapping is not in the child's range of
        // the device file. Pages that were inserted into this mapping would then never be unmapped.
        let at = vma.pgoff().wrapping_mul(PAGE_SIZE as u64);
        let is_in_range = at.wrapping_sub(process_calls::offset_within_range(at))
            == process_calls::process_range_offset(child);
        set_process_key_of_vma(vma, if is_in_range { child } else { 0 });
    }
    add_or_subtract_mapping(vma, true);
}

/// Subtracts a mapping, which is being removed, from the count of its process.
pub(super) fn subtract_removed_mapping(vma: &Vma) {
    add_or_subtract_mapping(vma, false);
}

/// Sets up the pages of a child of fork() when the child first accesses its mappings. Returns false
/// if another task, such as a kernel thread, makes the access. If memory is short, the child is not
/// traced any more.
fn attach_child_on_first_access(key: u64) -> bool {
    match children::attach_forked_child_to_device(key) {
        Ok(false) | Err(ESRCH) => {}
        // SAFETY: The caller is in process context. The current task will return to user mode,
        // because `attach_forked_child_to_device()` has refused kernel threads.
        Ok(true) if unsafe { helpers::pt_queue_announce() } == 0 => {}
        Err(EFAULT) => return false,
        _ => children::end_untraceable_child(key),
    }
    true
}

/// Handles a page fault: inserts the page of the faulting address.
pub(super) fn handle_page_fault(
    attached: &AttachedFile,
    fault: &PageFault<'_>,
) -> bindings::vm_fault_t {
    let key = process_key_of_vma(&fault.vma);
    if !attach_child_on_first_access(key) {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    }
    let nobodys = attached.placeholder.address();
    // SAFETY: The fault is being handled. `page` is a whole page in the direct map, and
    // `pt_setup_vma()` has set `VM_MIXEDMAP`, so that pages can be inserted.
    let put = |page: usize| unsafe { helpers::pt_insert_page(fault.as_ptr(), page) };
    let place = process_calls::offset_within_range(fault.pgoff.wrapping_mul(PAGE_SIZE as u64))
        / PAGE_SIZE as u64;
    insert_page(Some(key), place, nobodys, put).unwrap_or(bindings::vm_fault_reason_VM_FAULT_SIGBUS)
}

/// Finds the page to map at a page fault of a process, and calls `put` with the page's address.
/// `place` is the offset of the fault in the process's range of the device file, in pages.
///
/// `put` is called with `TRACING` held, so that no page is mapped after
/// [`unmap_slot_pages`](crate::process::Process::unmap_slot_pages) has unmapped it. If no trace has
/// a buffer of the process at `place`, the process's placeholder page is mapped. If the process has
/// no placeholder page, the placeholder page of the open file is mapped; `nobodys` is the address of
/// this page. Returns `None` if `place` is beyond the buffers of the last trace slot.
fn insert_page<T>(
    key: Option<u64>,
    place: u64,
    nobodys: usize,
    put: impl FnOnce(usize) -> T,
) -> Option<T> {
    if place < map::READ_BYTES / PAGE_SIZE as u64 {
        let mut all = TRACING.lock();
        let zeroes = all.zero_page.as_ref()?.address();
        let page = key.and_then(|key| read_only_page(&mut all, key, place as usize));
        return Some(put(page.unwrap_or(zeroes)));
    }
    let place = place.checked_sub(map::BUFFERS / PAGE_SIZE as u64)?;
    let pages = 1u64 << (abi::BUFFER_STRIDE_SHIFT - PAGE_SIZE.ilog2());
    let (buffer, number) = (place / pages, (place % pages) as usize);
    let slot = buffer.checked_div(cpu::nr_cpu_ids().into())?;
    let cpu = buffer.wrapping_sub(slot.wrapping_mul(cpu::nr_cpu_ids().into())) as usize;
    if slot >= NR_TRACES as u64 {
        return None;
    }
    let (mut spare, mut made) = (FaultMemory::default(), Ok(()));
    loop {
        let mut all = TRACING.lock();
        let own = key.and_then(|key| Some(all.process(key).ok()?.placeholder()?.address()));
        let nobodys = own.unwrap_or(nobodys);
        let Some((key, trace)) =
            key.and_then(|key| mark_mapped_and_find_trace(&mut all, key, slot as usize))
        else {
            return Some(put(nobodys));
        };
        // The memory in `spare` was allocated and charged for one trace. If another trace has the
        // slot now, drop the memory in `spare`.
        if !spare.is_usable_for_trace(trace.id) {
            drop(all);
            (spare, made) = (FaultMemory::default(), Ok(()));
            continue;
        }
        match trace.page_or_insert_spare(key, cpu, number, &mut spare) {
            Ok(page) => return Some(put(page.unwrap_or(nobodys))),
            Err(_) if made.is_err() => {
                trace.count_alloc_failure(key, cpu);
                if trace.has_flag(flag::SHARED) {
                    if let Ok(process) = all.process(key) {
                        remove_from_shared_trace(process, slot as usize);
                    }
                }
                return Some(put(nobodys));
            }
            Err(need) => {
                let terms = trace.buffer_params();
                drop(all);
                made = spare.allocate(need, &terms);
            }
        }
    }
}

/// Removes a process from the shared trace in a slot, because memory for a page of a shared buffer
/// is short. The placeholder page then replaces all pages of the trace's buffers.
///
/// If the placeholder page replaced only the missing page, the process would damage the records of
/// other processes. With a placeholder page in place of the counts, the process would write to the
/// positions of a `head` that no other process has. With a placeholder page in place of records, it
/// would commit records that are not in the buffer.
fn remove_from_shared_trace(process: &mut Process, slot: usize) {
    process.clear_slot_bits(slot);
    process.record_in_slot(slot, false);
    process.unmap_slot_pages(slot);
    // The caller maps the placeholder page.
    process.mark_slot_mapped(slot);
}

/// Marks a slot as mapped in the process. Returns the trace in the slot if the process is in that
/// trace.
fn mark_mapped_and_find_trace(
    all: &mut Tracing,
    key: u64,
    slot: usize,
) -> Option<(u64, &mut KBox<Trace>)> {
    let at = all.process_index(key)?;
    let Tracing {
        traces, processes, ..
    } = all;
    let process = processes.get_mut(at)?;
    // Mark the slot as mapped even if no trace is in the slot, so that the placeholder page is
    // unmapped when a trace begins.
    process.mark_slot_mapped(slot);
    let mut traces = traces.iter_mut();
    let trace = traces.find(|trace| trace.state.slot() == Some(slot))?;
    trace.has_live(process).then_some((key, trace))
}

/// Returns the address of a page that a process maps read-only: its control page, a page of its
/// marker words, or the filter of a trace.
fn read_only_page(all: &mut Tracing, key: u64, place: usize) -> Option<usize> {
    let filters = map::FILTERS as usize / PAGE_SIZE;
    let at = all.process_index(key)?;
    let Some(slot) = place.checked_sub(filters).filter(|slot| *slot < NR_TRACES) else {
        return all.processes.get(at)?.page(place);
    };
    let process = all.processes.get_mut(at)?;
    process.mark_slot_mapped(slot);
    let mut traces = all.traces.iter();
    let trace = traces.find(|trace| trace.state.slot() == Some(slot))?;
    match trace.has_live(process) {
        true => Some(trace.filter.as_ref()?.address()),
        false => None,
    }
}
