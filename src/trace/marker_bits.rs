// SPDX-License-Identifier: GPL-2.0

//! Sets and clears the bits of markers: a marker's bit says whether a trace records the events of
//! the marker. The name of the marker is matched with the globs of the trace, while `TRACING` is
//! not held.

use kernel::sync::Arc;
use trace_rules::abi::flag;
use trace_rules::sorted::MAX_VISITS_PER_LOCK_HOLD;

use crate::glob_cache::{GlobCache, TraceGlobs};
use crate::lock_yielder::LockYielder;
use crate::marker::RegisteredMarker;
use crate::process::Process;
use crate::registry::{Tracing, TRACING};
use crate::trace::Trace;
use base::account::MemoryCharge;

/// The result of [`Tracing::set_marker_bits_from_cache`]: the marker from which to continue, the
/// marker whose name must be matched with the globs, or the end of the process's markers.
enum CachedBitsScan {
    Pending(usize),
    Unmatched(usize, Arc<RegisteredMarker>),
    Done,
}

impl Tracing {
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
            set_marker_bit_for_trace(trace, process, wishes, (number, has));
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
    fn set_bit_and_cache_match(
        &mut self,
        wishes: &TraceGlobs,
        key: u64,
        known: &RegisteredMarker,
        answer: (usize, bool),
    ) -> Option<(usize, MemoryCharge)> {
        let (trace, process) = self.trace_and_process(wishes.id, key)?;
        set_marker_bit_for_trace(trace, process, wishes, answer);
        let larger = trace.glob_cache.insert_name(&known.name, answer.1)?;
        Some((larger, trace.memory_charge().empty_for_same_user()))
    }
}

/// Sets the bits of a new marker for all traces that the process is in. The caller does not hold
/// `TRACING`.
pub(crate) fn set_marker_bit_for_all_traces(key: u64, number: usize, known: &RegisteredMarker) {
    let mut after = 0u64;
    loop {
        let all = TRACING.lock();
        let found = all.next_trace_where(key, after, |trace, process| trace.has_live(process));
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
                    set_marker_bit_for_trace(trace, process, &wishes, (number, has));
                }
            }
            None => match_and_set_marker_bit(&wishes, key, number, known),
        }
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
                match_and_set_marker_bit(&wishes, key, number, &known);
                number.wrapping_add(1)
            }
            CachedBitsScan::Done => return,
        };
        call.sleep_if_busy();
    }
}

/// Matches a marker's name with a trace's globs while `TRACING` is not held. The result of the
/// match sets or clears the marker's bit, and is added to the cache of glob matches.
fn match_and_set_marker_bit(
    wishes: &TraceGlobs,
    key: u64,
    number: usize,
    known: &RegisteredMarker,
) {
    let answer = (number, wishes.matches(&known.name));
    let larger = TRACING
        .lock()
        .set_bit_and_cache_match(wishes, key, known, answer);
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
            trace.glob_cache.insert_name(&known.name, answer.1);
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
fn set_marker_bit_for_trace(
    trace: &Trace,
    process: &Process,
    wishes: &TraceGlobs,
    (number, has): (usize, bool),
) {
    // Do nothing if the trace was paused or resumed after the globs were copied: the call that
    // paused or resumed the trace also sets the bits of all markers.
    let same = wishes.was_paused() == trace.has_flag(flag::PAUSED);
    if let Some(slot) = trace
        .state
        .slot()
        .filter(|_| same && trace.has_live(process))
    {
        process.set_marker_bit_if_registered(number, slot, has && !wishes.was_paused());
    }
}
