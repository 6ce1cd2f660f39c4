// SPDX-License-Identifier: GPL-2.0

//! Announcing new traces, processes and markers to each other.
//!
//! Permission is checked, and names are matched with globs, without the lock.

use engine::trace::flag;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use kernel::task::Task;

use super::answers::{Answers, Wishes};
use super::ends::LOOKED_AT;
use super::known::Known;
use super::process::Process;
use super::trace::{search, Asks, Trace};
use super::Tracing;
use crate::sys::account::Charge;
use crate::sys::lock::TRACING;
use crate::sys::process::is_dying;

/// The result of [`Tracing::tell_known`]: the next marker, the marker to match, or the end.
enum Told {
    UpTo(usize),
    Ask(usize, Arc<Known>),
    All,
}

/// The question whether a trace's maker may trace a process, and the leader of that process.
type Question = (Asks, ARef<Task>);

impl Tracing {
    /// Adds a process to a trace, after the permission was checked.
    fn join(&mut self, id: u64, key: u64) {
        let generations = self.generations;
        let Some((trace, process)) = self.both(id, key) else {
            return;
        };
        let Some(slot) = trace.slot.filter(|_| trace.may_take(process)) else {
            return;
        };
        let generation = generations.get(slot).copied().unwrap_or(0);
        // Unmap the placeholder pages of writers that touched the slot before.
        process.take_out(slot);
        process.set_in(slot, true);
        process.begin_slot(slot, trace.seen(generation));
    }

    /// Returns a trace's globs; `None` if the process is not in the trace.
    fn wishes(&mut self, id: u64, key: u64) -> Option<Wishes> {
        let (trace, process) = self.both(id, key)?;
        trace.takes(process).then(|| trace.wishes())
    }

    /// Sets the bits of a process's markers, from a number on, from the cache. Stops at the first
    /// name that is not in the cache.
    fn tell_known(&mut self, wishes: &Wishes, key: u64, from: usize) -> Told {
        let Some((trace, process)) = self.both(wishes.id, key) else {
            return Told::All;
        };
        let mut number = from;
        while let Some(known) = process.markers.get(number) {
            let Some(has) = trace.answers.find(&known.name) else {
                return Told::Ask(number, known.clone());
            };
            set_wanted(trace, process, wishes, (number, has));
            number = number.wrapping_add(1);
            if number.wrapping_sub(from) >= LOOKED_AT {
                return Told::UpTo(number);
            }
        }
        Told::All
    }

    /// Sets a marker's bit and adds the answer to the cache. If the cache is too small, returns the
    /// size of a larger table and the user to charge.
    fn tell_answer(
        &mut self,
        wishes: &Wishes,
        key: u64,
        known: &Known,
        answer: (usize, bool),
    ) -> Option<(usize, Charge)> {
        let (trace, process) = self.both(wishes.id, key)?;
        set_wanted(trace, process, wishes, answer);
        let larger = trace.answers.put(&known.name, answer.1)?;
        Some((larger, trace.payer().empty()))
    }

    /// Returns the key of the next process and, if that can join the trace, the question of
    /// permission.
    fn next_process(&self, id: u64, after: u64) -> Option<(u64, Option<Question>)> {
        let trace = self.traces.iter().find(|trace| trace.id == id)?;
        if !trace.is_on() {
            return None;
        }
        let process = self.next_in(after, |_| true)?;
        let may = trace.may_take(process).then(|| both_of((trace, process)));
        Some((process.key, may.flatten()))
    }

    /// Returns the process with the lowest key above `after` that `wanted` accepts.
    pub(super) fn next_in(
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

/// Adds a new process, or a child after its first access, to all traces whose makers have
/// permission. The lock is not held.
pub(crate) fn tell_traces(key: u64) {
    let mut after = 0u64;
    loop {
        let could = |trace: &Trace, process: &Process| trace.may_take(process);
        let found = TRACING.lock().trace_of(key, after, could).map(both_of);
        let Some((asks, leader)) = found.flatten() else {
            return;
        };
        after = asks.id;
        if asks.may(&leader) {
            TRACING.lock().join(asks.id, key);
            tell_markers(asks.id, key);
        }
    }
}

/// Returns the question of permission for a trace and a process.
fn both_of((trace, process): (&Trace, &Process)) -> Option<Question> {
    Some((trace.asks(), process.leader()?.clone()))
}

/// Sets the bits of a new marker for all traces that the process is in. The lock is not held.
pub(crate) fn tell_marker(key: u64, number: usize, known: &Known) {
    let mut after = 0u64;
    loop {
        let all = TRACING.lock();
        let found = all.trace_of(key, after, |trace, process| trace.takes(process));
        let said = |trace: &Trace| (trace.wishes(), trace.answers.find(&known.name));
        let Some((wishes, said)) = found.map(|(trace, _)| said(trace)) else {
            return;
        };
        drop(all);
        after = wishes.id;
        match said {
            Some(has) => {
                let mut all = TRACING.lock();
                if let Some((trace, process)) = all.both(wishes.id, key) {
                    set_wanted(trace, process, &wishes, (number, has));
                }
            }
            None => ask(&wishes, key, number, known),
        }
    }
}

/// Adds processes to a new trace, one at a time, until the caller is killed. The lock is not held.
/// No process is missed for lack of memory: only the cache of matches is allocated, which can do
/// without.
pub(super) fn tell_processes(id: u64) {
    let mut after = 0u64;
    loop {
        let next = TRACING.lock().next_process(id, after);
        let Some((key, could)) = next.filter(|_| !is_dying()) else {
            return;
        };
        after = key;
        if could.is_some_and(|(asks, leader)| asks.may(&leader)) {
            TRACING.lock().join(id, key);
            tell_markers(id, key);
        }
    }
}

/// Sets the bits of all markers of a process in a trace. Names are matched without `TRACING`.
pub(super) fn tell_markers(id: u64, key: u64) {
    let Some(wishes) = TRACING.lock().wishes(id, key) else {
        return;
    };
    let mut number = 0usize;
    loop {
        let told = TRACING.lock().tell_known(&wishes, key, number);
        number = match told {
            Told::UpTo(number) => number,
            Told::Ask(number, known) => {
                ask(&wishes, key, number, &known);
                number.wrapping_add(1)
            }
            Told::All => return,
        };
    }
}

/// Matches a marker's name with a trace's globs, without `TRACING`, and adds the answer to the
/// cache.
fn ask(wishes: &Wishes, key: u64, number: usize, known: &Known) {
    let answer = (number, wishes.have(&known.name));
    let larger = TRACING.lock().tell_answer(wishes, key, known, answer);
    let Some((larger, payer)) = larger else {
        return;
    };
    let made = Answers::new(larger, &payer);
    let mut all = TRACING.lock();
    let Ok(trace) = all.trace(wishes.id) else {
        return;
    };
    let before = match made {
        Ok(made) => {
            let before = trace.answers.grow(made);
            trace.answers.put(&known.name, answer.1);
            Some(before)
        }
        Err(_) => {
            trace.answers.stay();
            None
        }
    };
    drop(all);
    drop(before);
}

/// Sets or clears a marker's bit for a trace.
fn set_wanted(trace: &Trace, process: &Process, wishes: &Wishes, (number, has): (usize, bool)) {
    // A call that has paused or resumed the trace meanwhile tells its processes itself.
    let same = wishes.is_paused() == trace.is(flag::PAUSED);
    if let Some(slot) = trace.slot.filter(|_| same && trace.takes(process)) {
        process.set_wanted(number, slot, has && !wishes.is_paused());
    }
}
