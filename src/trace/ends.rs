// SPDX-License-Identifier: GPL-2.0

//! Ending and freeing of traces and of ended processes.
//!
//! A trace can have `max_traced` processes with 4,096 markers each, so `TRACING` is released after
//! each process that is updated, and after [`MAX_VISITS_PER_LOCK_HOLD`] processes that are not in
//! the trace. After a release, [`LockYielder`] lets other tasks take `TRACING`.

use kernel::alloc::KBox;
use kernel::time::delay::fsleep;
use kernel::time::Delta;

use trace_rules::sorted::{LimitedSearch, MAX_VISITS_PER_LOCK_HOLD};

use crate::process::Process;
use crate::registry::{DropAfterUnlock, Tracing, TRACING};
use crate::trace::Trace;
use base::clock;

/// A call that takes `TRACING` again and again sleeps after this number of nanoseconds.
const MAX_BUSY_NS: u64 = 300_000;
/// The duration of the sleep of a call that has run for [`MAX_BUSY_NS`] without a sleep.
const BUSY_SLEEP: Delta = Delta::from_micros(50);

/// Lets other tasks take `TRACING` during a call that takes it again and again. A task that waits
/// for a mutex on another CPU does not get the mutex if the call takes the mutex again at once.
pub(super) struct LockYielder {
    /// The beginning of the call, or the end of its last sleep, in CLOCK_MONOTONIC.
    since: u64,
}

impl LockYielder {
    pub(super) fn new() -> Self {
        let since = clock::monotonic_ns();
        Self { since }
    }

    /// Sleeps if the call has not slept for [`MAX_BUSY_NS`]. The caller does not hold `TRACING`.
    pub(super) fn sleep_if_busy(&mut self) {
        if clock::monotonic_ns().saturating_sub(self.since) >= MAX_BUSY_NS {
            fsleep(BUSY_SLEEP);
            self.since = clock::monotonic_ns();
        }
    }
}

/// Calls `what` for each process in the trace whose slot is `slot`, until `what` returns false.
/// `TRACING` is released and taken again between two processes.
pub(super) fn for_each_member(slot: usize, mut what: impl FnMut(&mut Tracing, u64) -> bool) {
    let mut from = 0u64;
    let mut call = LockYielder::new();
    loop {
        let mut all = TRACING.lock();
        from = match all.find_member_from(from, slot) {
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
pub(super) fn reap(id: u64, call: &mut LockYielder) {
    let Ok(was_complete) = TRACING.lock().trace(id).map(Trace::begin_pass) else {
        return;
    };
    let mut from = 0u64;
    loop {
        let mut all = TRACING.lock();
        let Ok(trace) = all.trace(id) else { return };
        let read = trace.take_read_set(from, was_complete);
        from = match &read {
            LimitedSearch::Found(set) => set.key.wrapping_add(1),
            LimitedSearch::From(key) => *key,
            LimitedSearch::End => return,
        };
        let process = match &read {
            LimitedSearch::Found(set) => all.take_unreferenced(set.key),
            _ => None,
        };
        drop(all);
        drop((read, process));
        call.sleep_if_busy();
    }
}

/// Removes a trace that has ended, if no file refers to the trace. Also removes the ended processes
/// that are in no other trace. The trace's memory is freed while `TRACING` is not held.
pub(super) fn free_trace(id: u64) {
    let mut all = TRACING.lock();
    let needless = |t: &KBox<Trace>| t.id == id && t.files == 0 && t.state.slot().is_none();
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
            all.take_unreferenced(set.key);
        }
        drop(all);
        call.sleep_if_busy();
    }
}

impl Tracing {
    /// Starts the end of a trace: from now on no process can join the trace, and the generation of
    /// its slot is even. The caller then removes each process with
    /// [`remove_from_slot`](Self::remove_from_slot) and calls [`finish_end`](Self::finish_end).
    /// Returns `None` if the trace has already ended or another call is ending it.
    pub(super) fn begin_end(&mut self, id: u64) -> Option<(usize, DropAfterUnlock)> {
        let trace = self.trace(id).ok()?;
        let slot = trace.state.begin_end()?;
        let kernel = trace.kernel.take();
        trace.module_ref = None;
        if let Some(generation) = self.generations.get_mut(slot) {
            *generation = generation.wrapping_add(1);
        }
        Some((slot, kernel))
    }

    /// Removes a process from the trace that occupies a slot. Clears the bits of the process's
    /// markers, stores the slot's new generation in the process's control page, and unmaps the
    /// buffers. The trace keeps the buffers.
    pub(super) fn remove_from_slot(&mut self, key: u64, slot: usize) {
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
                shares.until_ended = None;
            }
            trace.signal.end();
        }
    }

    /// Removes an ended process from the list of processes if the process is in no trace, and
    /// returns the process.
    pub(super) fn take_unreferenced(&mut self, key: u64) -> Option<KBox<Process>> {
        let at = self.index_of(key)?;
        let ended = self.processes.get(at)?.has_ended();
        if !ended || self.traces.iter().any(|trace| trace.set(key).is_some()) {
            return None;
        }
        self.processes.remove(at).ok()
    }
}
