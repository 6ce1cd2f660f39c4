// SPDX-License-Identifier: GPL-2.0

//! Adds processes to traces and sets marker bits whenever a trace, a process or a marker has been
//! created.
//!
//! `TRACING` is not held while permission is checked or while marker names are matched with globs.

use kernel::sync::Arc;
use trace_rules::abi::flag;
use trace_rules::sorted::MAX_VISITS_PER_LOCK_HOLD;

use crate::ends::LockYielder;
use crate::glob_cache::{GlobCache, TraceGlobs};
use crate::marker::RegisteredMarker;
use crate::permission::{may_trace_leader, permission_query, PermissionQuery};
use crate::process::Process;
use crate::registry::{Tracing, TRACING};
use crate::sorted::search;
use crate::trace::Trace;
use base::account::MemoryCharge;
use base::task::has_fatal_signal;

/// The result of [`Tracing::set_marker_bits_from_cache`]: the marker from which to continue, the
/// marker whose name must be matched with the globs, or the end of the process's markers.
enum CachedBitsScan {
    Pending(usize),
    Unmatched(usize, Arc<RegisteredMarker>),
    Done,
}

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
        process.announce_trace_begin(slot, trace.process_view(generation));
    }

    /// Returns a copy of a trace's globs, or `None` if the process is not in the trace.
    fn copy_trace_globs(&mut self, id: u64, key: u64) -> Option<TraceGlobs> {
        let (trace, process) = self.trace_and_process(id, key)?;
        trace.has_live(process).then(|| trace.trace_globs())
    }

    /// Sets the bits of a process's markers, beginning with marker `from`, as the cache of glob
    /// matches says. Stops at the first marker whose name is not in the cache.
    fn set_marker_bits_from_cache(
        &mut self,
        wishes: &TraceGlobs,
        key: u64,
        from: usize,
    ) -> CachedBitsScan {
        let Some((trace, process)) = self.trace_and_process(wishes.id, key) else {
            return CachedBitsScan::Done;
        };
        let mut number = from;
        while let Some(known) = process.markers.get(number) {
            let Some(has) = trace.glob_cache.find(&known.name) else {
                return CachedBitsScan::Unmatched(number, known.clone());
            };
            set_wanted(trace, process, wishes, (number, has));
            number = number.wrapping_add(1);
            if number.wrapping_sub(from) >= MAX_VISITS_PER_LOCK_HOLD {
                return CachedBitsScan::Pending(number);
            }
        }
        CachedBitsScan::Done
    }

    /// Sets a marker's bit, and adds to the cache whether the marker's name matches. If the cache
    /// is too small, returns the number of buckets for a larger table, and a charge of 0 bytes to
    /// the user of the trace. The caller uses this charge to charge the larger table to the same
    /// user.
    fn store_glob_match(
        &mut self,
        wishes: &TraceGlobs,
        key: u64,
        known: &RegisteredMarker,
        answer: (usize, bool),
    ) -> Option<(usize, MemoryCharge)> {
        let (trace, process) = self.trace_and_process(wishes.id, key)?;
        set_wanted(trace, process, wishes, answer);
        let larger = trace.glob_cache.put(&known.name, answer.1)?;
        Some((larger, trace.payer().empty()))
    }

    /// Finds the process with the lowest key that is greater than `after`. Returns the key and, if
    /// the process can join the trace, the permission check that the caller has to make.
    fn next_joinable_process(&self, id: u64, after: u64) -> Option<(u64, Option<PermissionQuery>)> {
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
            .trace_of(key, after, could)
            .map(permission_query);
        let Some((asks, leader)) = found.flatten() else {
            return;
        };
        after = asks.id;
        if may_trace_leader(&asks, &leader) {
            TRACING.lock().join(asks.id, key);
            set_all_marker_bits_of_process(asks.id, key, &mut call);
        }
    }
}

/// Sets the bits of a new marker for all traces that the process is in. The caller does not hold
/// `TRACING`.
pub(crate) fn set_marker_bits(key: u64, number: usize, known: &RegisteredMarker) {
    let mut after = 0u64;
    loop {
        let all = TRACING.lock();
        let found = all.trace_of(key, after, |trace, process| trace.has_live(process));
        let said = |trace: &Trace| (trace.trace_globs(), trace.glob_cache.find(&known.name));
        let Some((wishes, said)) = found.map(|(trace, _)| said(trace)) else {
            return;
        };
        drop(all);
        after = wishes.id;
        match said {
            Some(has) => {
                let mut all = TRACING.lock();
                if let Some((trace, process)) = all.trace_and_process(wishes.id, key) {
                    set_wanted(trace, process, &wishes, (number, has));
                }
            }
            None => match_marker(&wishes, key, number, known),
        }
    }
}

/// Adds to a new trace all processes that can join it, one at a time. Stops early if the caller is
/// killed. The caller does not hold `TRACING`. If memory is short, the permission check of a
/// process can fail, and the process is then counted in the trace (`no_memory`). Besides the
/// permission checks, only the cache of glob matches needs memory, and names can be matched without
/// the cache.
///
/// Processes that attach during the call add themselves to the trace ([`join_traces`]), and this
/// function skips them. If it did not skip them, the call would not end while processes attach
/// faster than the function adds them.
pub(super) fn add_processes(id: u64) {
    let mut after = 0u64;
    let mut call = LockYielder::new();
    let end = TRACING.lock().next_key;
    loop {
        let next = TRACING.lock().next_joinable_process(id, after);
        let Some((key, could)) = next.filter(|(key, _)| *key < end && !has_fatal_signal()) else {
            return;
        };
        after = key;
        if could.is_some_and(|(asks, leader)| may_trace_leader(&asks, &leader)) {
            TRACING.lock().join(id, key);
            set_all_marker_bits_of_process(id, key, &mut call);
        }
        call.sleep_if_busy();
    }
}

/// Sets the bits of all markers of a process in a trace. `TRACING` is not held while names are
/// matched with globs.
pub(super) fn set_all_marker_bits_of_process(id: u64, key: u64, call: &mut LockYielder) {
    let Some(wishes) = TRACING.lock().copy_trace_globs(id, key) else {
        return;
    };
    let mut number = 0usize;
    loop {
        let told = TRACING
            .lock()
            .set_marker_bits_from_cache(&wishes, key, number);
        number = match told {
            CachedBitsScan::Pending(number) => number,
            CachedBitsScan::Unmatched(number, known) => {
                match_marker(&wishes, key, number, &known);
                number.wrapping_add(1)
            }
            CachedBitsScan::Done => return,
        };
        call.sleep_if_busy();
    }
}

/// Matches a marker's name with a trace's globs while `TRACING` is not held. The result of the
/// match sets or clears the marker's bit, and is added to the cache of glob matches.
fn match_marker(wishes: &TraceGlobs, key: u64, number: usize, known: &RegisteredMarker) {
    let answer = (number, wishes.matches(&known.name));
    let larger = TRACING.lock().store_glob_match(wishes, key, known, answer);
    let Some((larger, payer)) = larger else {
        return;
    };
    let made = GlobCache::new(larger, &payer);
    let mut all = TRACING.lock();
    let Ok(trace) = all.trace(wishes.id) else {
        return;
    };
    let before = match made {
        Ok(made) => {
            let before = trace.glob_cache.grow(made);
            trace.glob_cache.put(&known.name, answer.1);
            Some(before)
        }
        Err(_) => {
            trace.glob_cache.stop_growing();
            None
        }
    };
    drop(all);
    drop(before);
}

/// Sets or clears a marker's bit for a trace.
fn set_wanted(trace: &Trace, process: &Process, wishes: &TraceGlobs, (number, has): (usize, bool)) {
    // Do nothing if the trace was paused or resumed after the globs were copied: the call that
    // paused or resumed the trace also sets the bits of all markers.
    let same = wishes.is_paused() == trace.has_flag(flag::PAUSED);
    if let Some(slot) = trace
        .state
        .slot()
        .filter(|_| same && trace.has_live(process))
    {
        process.set_wanted(number, slot, has && !wishes.is_paused());
    }
}
