// SPDX-License-Identifier: GPL-2.0

//! Adds processes to traces, when a trace or a process has been created. `TRACING` is not held while
//! permission is checked.

use kernel::prelude::*;

use crate::lock_yielder::LockYielder;
use crate::marker_bits::set_all_marker_bits_of_process;
use crate::permission::{may_trace_or_count_untraced, permission_query, PermissionQuery};
use crate::process::Process;
use crate::registry::{Tracing, TRACING};
use crate::sorted::search;
use crate::trace::Trace;
use base::task::has_fatal_signal;

impl Tracing {
    /// Adds a process to a trace. The caller has checked that the trace's creator may trace the
    /// process.
    fn join(&mut self, id: u64, key: u64) {
        let generations = self.generations;
        let Some((trace, process)) = self.trace_and_process(id, key) else {
            return;
        };
        let Some(slot) = trace.state.slot().filter(|_| trace.may_join(process)) else {
            return;
        };
        let generation = generations.get(slot).copied().unwrap_or(0);
        // The process may have accessed the slot's buffers before it joins the trace. Unmap the
        // placeholder pages that these accesses have mapped.
        process.unmap_slot_pages(slot);
        process.record_in_slot(slot, true);
        process.announce_trace_begin(slot, trace.control_slot(generation));
    }

    /// Finds the process with the lowest key that is greater than `after`. Returns the key and, if
    /// the process can join the trace, the permission check that the caller has to make.
    fn next_process_and_join_query(
        &self,
        id: u64,
        after: u64,
    ) -> Option<(u64, Option<PermissionQuery>)> {
        let trace = self.traces.iter().find(|trace| trace.id == id)?;
        if !trace.state.is_active() {
            return None;
        }
        let process = self.next_process_where(after, |_| true)?;
        let may = trace
            .may_join(process)
            .then(|| permission_query((trace, process)));
        Some((process.key, may.flatten()))
    }

    /// Returns the first process, in the order of the keys, whose key is greater than `after` and
    /// for which `wanted` returns true.
    pub(super) fn next_process_where(
        &self,
        after: u64,
        wanted: impl Fn(&Process) -> bool,
    ) -> Option<&Process> {
        let from = search(&self.processes, after.wrapping_add(1), |process| {
            process.key
        });
        let (Ok(place) | Err(place)) = from;
        let mut rest = self.processes.iter().skip(place);
        rest.find(|process| wanted(process))
            .map(|process| &**process)
    }
}

/// Adds a process to all traces whose creators may trace it. Called for a new process, and for a
/// child of fork() after the child's first access to its mappings. The caller does not hold
/// `TRACING`.
pub(crate) fn join_traces(key: u64) {
    let mut after = 0u64;
    let mut call = LockYielder::new();
    loop {
        let could = |trace: &Trace, process: &Process| trace.may_join(process);
        let found = TRACING
            .lock()
            .next_trace_where(key, after, could)
            .map(permission_query);
        let Some((asks, leader)) = found.flatten() else {
            return;
        };
        after = asks.id;
        if may_trace_or_count_untraced(&asks, key, &leader) {
            TRACING.lock().join(asks.id, key);
            set_all_marker_bits_of_process(asks.id, key, &mut call);
        }
    }
}

/// Adds to a new trace all processes that can join it, one at a time. Returns `EINTR` if the caller
/// is being killed: the trace may then lack processes, and the caller ends the trace. The caller
/// does not hold `TRACING`. If memory is short, the permission check of a process can fail, and the
/// process is then counted in the trace (`no_memory`). Besides the permission checks, only the
/// cache of glob matches needs memory, and names can be matched without the cache.
///
/// Processes that attach during the call add themselves to the trace ([`join_traces`]), and this
/// function skips such processes. Otherwise this function would not return while new processes
/// attach faster than it adds them to the trace.
pub(super) fn add_joinable_processes(id: u64) -> Result {
    let mut after = 0u64;
    let mut call = LockYielder::new();
    let end = TRACING.lock().next_key;
    loop {
        let next = TRACING.lock().next_process_and_join_query(id, after);
        // Test for the signal at the end of the list too: a fatal signal interrupts the permission
        // check of a process, and this process does not join the trace.
        if has_fatal_signal() {
            return Err(EINTR);
        }
        let Some((key, could)) = next.filter(|(key, _)| *key < end) else {
            return Ok(());
        };
        after = key;
        if could.is_some_and(|(asks, leader)| may_trace_or_count_untraced(&asks, key, &leader)) {
            TRACING.lock().join(id, key);
            set_all_marker_bits_of_process(id, key, &mut call);
        }
        call.sleep_if_busy();
    }
}
