// SPDX-License-Identifier: GPL-2.0

//! Ending and freeing of traces and of ended processes.
//!
//! A trace can have `max_traced` processes with 4,096 markers each, so `TRACING` is released after
//! each process that is updated, and after [`MAX_VISITS_PER_LOCK_HOLD`] processes that are not in
//! the trace. After a release, [`LockYielder`] lets other tasks take `TRACING`.

use kernel::alloc::KBox;
use trace_rules::sorted::{LimitedSearch, MAX_VISITS_PER_LOCK_HOLD};

use crate::kernel_events::KernelEvents;
use crate::lock_yielder::LockYielder;
use crate::process::Process;
use crate::process_memory::LiveProcess;
use crate::registry::{set_traced, Tracing, TRACING};
use crate::sorted::search;
use crate::trace::Trace;
use base::tracepoint::Probes;

/// Calls `what` for each process in the trace whose slot is `slot`, until `what` returns false.
/// `TRACING` is released and taken again between two processes.
pub(super) fn for_each_process_in_slot(
    slot: usize,
    mut what: impl FnMut(&mut Tracing, u64) -> bool,
) {
    let mut from = 0u64;
    let mut call = LockYielder::new();
    loop {
        let mut all = TRACING.lock();
        from = match all.find_process_in_slot_from(from, slot) {
            LimitedSearch::Found(key) => match what(&mut all, key) {
                true => key.wrapping_add(1),
                false => return,
            },
            LimitedSearch::From(key) => key,
            LimitedSearch::End => return,
        };
        drop(all);
        call.sleep_if_busy();
    }
}

/// Removes the ended processes of a trace after all of their data were read. Called when the reader
/// begins a pass over all buffers. Processes are not removed from other traces: a reader that has
/// read a record from another trace may still request the names of the record's process and marker.
pub(super) fn begin_pass_and_remove_read(id: u64, call: &mut LockYielder) {
    let Ok(was_complete) = TRACING.lock().trace(id).map(Trace::begin_read_pass) else {
        return;
    };
    let mut from = 0u64;
    loop {
        let mut all = TRACING.lock();
        let Ok(trace) = all.trace(id) else { return };
        let read = trace.take_completely_read_set(from, was_complete);
        from = match &read {
            LimitedSearch::Found(set) => set.key.wrapping_add(1),
            LimitedSearch::From(key) => *key,
            LimitedSearch::End => return,
        };
        let process = match &read {
            LimitedSearch::Found(set) => all.take_unreferenced_process(set.key),
            _ => None,
        };
        drop(all);
        drop((read, process));
        call.sleep_if_busy();
    }
}

/// Removes a trace that has ended, if no file refers to the trace. Also removes the ended processes
/// that are in no other trace. The trace's memory is freed while `TRACING` is not held.
pub(super) fn free_trace_if_unused(id: u64) {
    let mut all = TRACING.lock();
    let needless = |t: &KBox<Trace>| t.id == id && t.nr_files == 0 && t.state.slot().is_none();
    let Some(at) = all.traces.iter().position(needless) else {
        return;
    };
    let Ok(trace) = all.traces.remove(at) else {
        return;
    };
    drop(all);
    let mut call = LockYielder::new();
    for some in trace.sets.chunks(MAX_VISITS_PER_LOCK_HOLD) {
        let mut all = TRACING.lock();
        for set in some {
            all.take_unreferenced_process(set.key);
        }
        drop(all);
        call.sleep_if_busy();
    }
}

/// Frees all traces and processes. Called when the module is unloaded: at that time no file is open
/// and no trace with `flag::KEEP` is active.
pub(crate) fn free_all_traces_and_processes() {
    let mut all = TRACING.lock();
    let was = core::mem::replace(&mut *all, Tracing::NONE);
    drop(all);
    drop(was);
}

/// Ends a process: frees its pages, and decides which traces keep the process.
pub(crate) fn end_process(all: &mut Tracing, key: u64) {
    let Ok(process) = all.process(key) else {
        return;
    };
    let mm = process.mm as u64;
    if !process.end() {
        return;
    }
    if let Ok(at) = search(&all.address_spaces, mm, |(mm, _)| *mm as u64) {
        let _ = all.address_spaces.remove(at);
        set_traced(mm as usize, false);
    }
    all.choose_traces_keeping_ended(key);
    all.count_ended_and_drop_excess(key);
    all.take_unreferenced_process(key);
}

/// Probes that are to be dropped after `TRACING` is released.
pub(super) type DropAfterUnlock = Option<Probes<KernelEvents>>;

impl Tracing {
    /// Starts the end of a trace: from now on no process can join the trace, and the generation of
    /// its slot is even. The caller then removes each process with
    /// [`remove_process_from_slot`](Self::remove_process_from_slot) and calls
    /// [`finish_end`](Self::finish_end). Returns `None` if the trace has already ended or another
    /// call is ending it.
    pub(super) fn begin_end(&mut self, id: u64) -> Option<(usize, DropAfterUnlock)> {
        let trace = self.trace(id).ok()?;
        let slot = trace.state.begin_end()?;
        let probes = trace.kernel_probes.take();
        trace.module_ref = None;
        if let Some(generation) = self.generations.get_mut(slot) {
            *generation = generation.wrapping_add(1);
        }
        Some((slot, probes))
    }

    /// Removes a process from the trace that occupies a slot. Clears the bits of the process's
    /// markers, stores the slot's new generation in the process's control page, and unmaps the
    /// buffers. The trace keeps the buffers.
    pub(super) fn remove_process_from_slot(&mut self, key: u64, slot: usize) {
        let generation = self.generation(slot);
        let Ok(process) = self.process(key) else {
            return;
        };
        process.clear_slot_bits(slot);
        process.announce_trace_end(slot, generation);
        process.record_in_slot(slot, false);
        process.unmap_slot_pages(slot);
    }

    /// Frees the slot of a trace, and wakes the readers of the trace. Called after all processes
    /// were removed from the trace.
    pub(super) fn finish_end(&mut self, id: u64, slot: usize) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = 0;
        }
        if let Ok(trace) = self.trace(id) {
            trace.state.finish_end();
            if let Some(shares) = &mut trace.quota {
                shares.charge_until_ended = None;
            }
            trace.signal.notify_trace_end();
        }
    }

    /// Removes an ended process from the list of processes if the process is in no trace, and
    /// returns the process.
    pub(super) fn take_unreferenced_process(&mut self, key: u64) -> Option<KBox<Process>> {
        let at = self.process_index(key)?;
        let ended = self.processes.get(at)?.has_ended();
        let has_set = |trace: &KBox<Trace>| trace.buffer_set(key).is_some();
        if !ended || self.traces.iter().any(has_set) {
            return None;
        }
        self.processes.remove(at).ok()
    }

    /// Decides which traces keep a process that has ended. The memory of the process's markers is
    /// charged to the user of the first trace in `traces` whose quota allows it. The process is
    /// removed from the traces that precede this trace in the list, because their quotas do not
    /// allow it. It is also removed from each trace whose creator has no permission any more.
    fn choose_traces_keeping_ended(&mut self, key: u64) {
        let at = self.process_index(key);
        let Self {
            traces, processes, ..
        } = self;
        let Some(process) = at.and_then(|at| processes.get_mut(at)) else {
            return;
        };
        let changed = process.have_credentials_changed();
        let mut paid = false;
        for trace in traces.iter_mut().filter(|t| t.buffer_set(key).is_some()) {
            trace.signal.notify_reader();
            let might = |alive: &LiveProcess| trace.permission_check().allows_by_ptrace_rule(alive);
            if changed && !process.leader_and_access().is_some_and(might) {
                trace.remove_denied_process(process);
                continue;
            }
            paid = paid || process.charge_trace_owner(trace.memory_charge()).is_ok();
            if !paid {
                trace.drop_process(key);
            }
        }
        process.drop_leader();
    }

    /// Counts an ended process in each trace that contains the process. If the ended processes of a
    /// trace exceed a limit (count or memory), removes the oldest of them.
    fn count_ended_and_drop_excess(&mut self, key: u64) {
        let memory = self.process(key).map_or(0, |process| process.memory());
        for at in 0..self.traces.len() {
            if let Some(trace) = self.traces.get_mut(at) {
                trace.count_ended_process(key, memory);
            }
            let drop_oldest = |trace: &mut KBox<Trace>| trace.drop_oldest_if_over_limit();
            while let Some(gone) = self.traces.get_mut(at).and_then(drop_oldest) {
                self.take_unreferenced_process(gone);
            }
        }
    }
}
