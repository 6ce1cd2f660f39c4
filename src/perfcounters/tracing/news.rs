// SPDX-License-Identifier: GPL-2.0

//! What is new: a trace, a process or a marker, and who has to hear of it. Who may look at whom is
//! asked, and names are compared with globs, without the lock.

use engine::trace::{flag, NR_MARKERS};
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use kernel::task::Task;

use super::known::Known;
use super::process::Process;
use super::trace::{search, Asks, Trace, Wishes};
use super::Tracing;
use crate::sys::lock::TRACING;
use crate::sys::process::is_dying;

/// May a trace's maker look at a process, by its first thread?
type Question = (Asks, ARef<Task>);

impl Tracing {
    /// A process that a trace's maker may look at is in it from now on.
    fn join(&mut self, id: u64, key: u64) {
        let generations = self.generations;
        let Some((trace, process)) = self.both(id, key) else {
            return;
        };
        let Some(slot) = trace.slot.filter(|_| trace.may_take(process)) else {
            return;
        };
        let generation = generations.get(slot).copied().unwrap_or(0);
        process.set_in(slot, true);
        process.begin_slot(slot, trace.seen(generation));
    }

    /// What a trace wants of a process that is in it.
    fn wishes(&mut self, id: u64, key: u64) -> Option<Wishes> {
        let (trace, process) = self.both(id, key)?;
        trace.takes(process).then(|| trace.wishes())
    }

    /// A marker of a process. `None`: there are no more.
    fn marker(&mut self, key: u64, number: usize) -> Option<Arc<Known>> {
        let process = self.processes.get(self.place(key)?)?;
        process.markers.get(number).cloned()
    }

    /// A marker of a process in a trace is wanted or not, as was found out.
    fn set_wanted(&mut self, wishes: &Wishes, key: u64, number: usize, wanted: bool) {
        if let Some((trace, process)) = self.both(wishes.id, key) {
            // A call that has paused or resumed the trace meanwhile tells its processes itself.
            let same = wishes.is_paused() == trace.is(flag::PAUSED);
            if let Some(slot) = trace.slot.filter(|_| same && trace.takes(process)) {
                process.set_wanted(number, slot, wanted);
            }
        }
    }

    /// The first process after this one, with its leader if it may be in a trace.
    fn next_process(&self, id: u64, after: u64) -> Option<(u64, Option<Question>)> {
        let trace = self.traces.iter().find(|trace| trace.id == id)?;
        trace.slot?;
        let process = self.next_in(after, |_| true)?;
        let may = trace.may_take(process).then(|| both_of((trace, process)));
        Some((process.key, may.flatten()))
    }

    /// The first process after this one of those wanted.
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

/// A process is new, or a child awake: it hears of the traces whose makers may look at
/// it. Without the lock.
pub(crate) fn tell_traces(key: u64) {
    let mut after = 0u64;
    loop {
        let could =
            |trace: &Trace, process: &Process| trace.slot.is_some() && trace.may_take(process);
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

fn both_of((trace, process): (&Trace, &Process)) -> Option<Question> {
    Some((trace.asks(), process.leader()?.clone()))
}

/// A marker is new: it is wanted, or not. Without the lock.
pub(crate) fn tell_marker(key: u64, number: usize, known: &Known) {
    let mut after = 0u64;
    loop {
        let all = TRACING.lock();
        let found = all.trace_of(key, after, |trace, process| trace.takes(process));
        let Some(wishes) = found.map(|(trace, _)| trace.wishes()) else {
            return;
        };
        drop(all);
        after = wishes.id;
        let wanted = wishes.want(&known.name);
        TRACING.lock().set_wanted(&wishes, key, number, wanted);
    }
}

/// A trace begins: processes hear of it, one at a time, until the caller is killed. Without the
/// lock, and without memory: none is missed for want of it.
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

/// A process is in a trace: its markers are wanted, or not. Without the lock, which nobody's
/// names and globs are compared under.
pub(super) fn tell_markers(id: u64, key: u64) {
    let Some(wishes) = TRACING.lock().wishes(id, key) else {
        return;
    };
    for number in 0..NR_MARKERS {
        let Some(known) = TRACING.lock().marker(key, number) else {
            return;
        };
        let wanted = wishes.want(&known.name);
        TRACING.lock().set_wanted(&wishes, key, number, wanted);
    }
}
