// SPDX-License-Identifier: GPL-2.0

//! Page faults of traced processes: finds the page that a process accesses.

use kernel::alloc::KBox;
use trace_rules::abi::{self, map, NR_TRACES};

use crate::buffer::PAGE;
use crate::buffer_set::FaultMemory;
use crate::registry::{Tracing, TRACING};
use crate::trace::Trace;
use base::cpu;

/// Handles a page fault of a process: finds the page to map, and calls `put` with the page's
/// address. `place` is the offset of the fault in the process's range of the device file, in pages.
///
/// `put` is called with `TRACING` held, so that no page is mapped after
/// [`unmap_slot_pages`](crate::process::Process::unmap_slot_pages) has unmapped it. If no trace has
/// a buffer of the process at `place`, the process's placeholder page is mapped. If the process has
/// no placeholder page, the placeholder page of the open file is mapped; `nobodys` is the address of
/// this page. Returns `None` if `place` is beyond the buffers of the last trace slot.
pub(crate) fn fault<T>(
    key: Option<u64>,
    place: u64,
    nobodys: usize,
    put: impl FnOnce(usize) -> T,
) -> Option<T> {
    if place < map::READ_BYTES / PAGE as u64 {
        let mut all = TRACING.lock();
        let zeroes = all.zeroes.as_ref()?.address();
        let page = key.and_then(|key| read_page(&mut all, key, place as usize));
        return Some(put(page.unwrap_or(zeroes)));
    }
    let place = place.checked_sub(map::BUFFERS / PAGE as u64)?;
    let pages = 1u64 << (abi::STRIDE - PAGE.ilog2());
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
        let Some((key, trace)) = key.and_then(|key| joined_trace(&mut all, key, slot as usize))
        else {
            return Some(put(nobodys));
        };
        // The memory in `spare` was allocated and charged for one trace. If another trace has the
        // slot now, drop the memory in `spare`.
        if !spare.is_for_trace(trace.id) {
            drop(all);
            spare = FaultMemory::default();
            continue;
        }
        match trace.page(key, cpu, number, &mut spare) {
            Ok(page) => return Some(put(page.unwrap_or(nobodys))),
            Err(_) if made.is_err() => {
                trace.count_alloc_failure(key, cpu);
                return Some(put(nobodys));
            }
            Err(need) => {
                let terms = trace.buffer_params();
                drop(all);
                made = spare.make(need, &terms);
            }
        }
    }
}

/// Returns the trace in a slot if the process is in that trace.
fn joined_trace(all: &mut Tracing, key: u64, slot: usize) -> Option<(u64, &mut KBox<Trace>)> {
    let at = all.index_of(key)?;
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
fn read_page(all: &mut Tracing, key: u64, place: usize) -> Option<usize> {
    let filters = map::FILTERS as usize / PAGE;
    let at = all.index_of(key)?;
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
