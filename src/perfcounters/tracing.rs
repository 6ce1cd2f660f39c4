// SPDX-License-Identifier: GPL-2.0

//! User tracing: traces and the processes in them. What is in a buffer, and how it gets
//! there without a call, is in `Documentation/tracing.md`.
//!
//! All of it is under one lock, also what processes touch for the first time; events take
//! none. Slots are given out in turn, so that one is unused for long before it is another
//! trace's.

mod answers;
pub(crate) mod attached;
mod calls;
pub(crate) mod children;
mod ends;
mod kernel_events;
mod known;
pub(crate) mod leave;
mod news;
mod process;
mod signal;
mod trace;

use engine::filter;
use engine::trace::{flag, Create, Describe, Info, KEY_KERNEL, NR_TRACES};
use kernel::alloc::flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT};
use kernel::alloc::{KBox, KVVec, KVec};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use kernel::task::Task;

pub(crate) use self::calls::{
    any_process, describe, end, forget_all, has_ended, info, may_have, next, next_marker,
    next_trace, open, pause, process,
};
use self::ends::forget_trace;
use self::kernel_events::KernelEvents;
use self::news::tell_processes;
use self::process::{Alive, Process};
use self::signal::Signal;
use self::trace::{move_to, room_beyond, search, Trace};
use crate::provider::Probes;
use crate::sys::account::{Share, Thing};
use crate::sys::buffers::Page;
use crate::sys::lock::TRACING;
use crate::sys::misc;
use crate::sys::ppa::Clock;
use crate::sys::process::{uid_of, Kept, Who};
use crate::sys::rights::{self, Seen};

/// Of one user without CAP_PERFMON, at the most; and so many are left to those with it.
const OF_ONE_USER: usize = 8;
const LEFT: usize = 4;
/// Of one user without it, with those that have ended and that files still hold.
const HELD: usize = 32;
/// Keys below are no process's.
const FIRST_KEY: u64 = 16;

/// Traces and processes.
pub(crate) struct Tracing {
    pub(crate) traces: KVVec<KBox<Trace>>,
    /// By key.
    pub(crate) processes: KVVec<KBox<Process>>,
    /// Address spaces of those that have not ended, in order, and their keys.
    pub(crate) spaces: KVVec<(usize, u64)>,
    /// Traces by their slots; 0: none.
    slots: [u64; NR_TRACES],
    generations: [u32; NR_TRACES],
    next_slot: usize,
    /// Of traces, and of files that hold them.
    next_id: u64,
    pub(crate) next_key: u64,
    /// What is read where there is nothing.
    pub(crate) zeroes: Option<Page>,
    /// The module is about to go: nobody can be traced, nor trace.
    pub(crate) closed: bool,
}

fn place_of(processes: &[KBox<Process>], key: u64) -> Option<usize> {
    search(processes, key, |process| process.key).ok()
}

/// What a trace is of those that its maker may have.
pub(crate) struct Shares {
    _held: Share,
    /// Until it ends.
    going: Option<Share>,
}

/// Who asks.
struct Caller {
    uid: u32,
    capable: bool,
}

impl Caller {
    fn new() -> Self {
        Self {
            uid: Who::calls().uid,
            capable: rights::is_perfmon_capable(),
        }
    }

    fn may_open(&self, trace: &Trace) -> bool {
        self.capable || trace.is_own()
    }

    /// Without the lock.
    fn may_trace(&self, leader: &Task) -> bool {
        self.capable || rights::may(leader, false).is_ok()
    }
}

/// A file's hold of a trace.
pub(crate) struct Held {
    pub(crate) id: u64,
    /// Of this file, as a reader.
    reader: u64,
    pub(crate) signal: Arc<Signal>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let ends = {
            let mut all = TRACING.lock();
            let Ok(trace) = all.trace(self.id) else {
                return;
            };
            trace.files = trace.files.wrapping_sub(1);
            if trace.reader == self.reader {
                trace.reader = 0;
            }
            trace.files == 0 && !trace.is(flag::KEEP)
        };
        if ends {
            let _ = calls::end(self.id);
        }
        forget_trace(self.id);
    }
}

/// Probes that go when the lock is given back.
type Going = Option<Probes<KernelEvents>>;

impl Tracing {
    /// Neither.
    pub(crate) const NONE: Self = Self {
        traces: KVVec::new(),
        processes: KVVec::new(),
        spaces: KVVec::new(),
        slots: [0; NR_TRACES],
        generations: [0; NR_TRACES],
        next_slot: 0,
        next_id: 1,
        next_key: FIRST_KEY,
        zeroes: None,
        closed: false,
    };

    /// `ENODEV`: the module is about to go.
    pub(crate) fn is_open(&self) -> Result {
        match self.closed {
            true => Err(ENODEV),
            false => Ok(()),
        }
    }

    pub(crate) fn trace(&mut self, id: u64) -> Result<&mut Trace> {
        let mut traces = self.traces.iter_mut();
        let found = traces.find(|trace| trace.id == id).ok_or(EINVAL)?;
        Ok(found)
    }

    pub(crate) fn in_slot(&mut self, slot: usize) -> Option<&mut Trace> {
        match *self.slots.get(slot)? {
            0 => None,
            id => self.trace(id).ok(),
        }
    }

    pub(crate) fn place(&self, key: u64) -> Option<usize> {
        place_of(&self.processes, key)
    }

    /// The key of who has an address space and has not ended.
    pub(crate) fn of_mm(&self, mm: usize) -> Option<u64> {
        let at = search(&self.spaces, mm as u64, |(mm, _)| *mm as u64).ok()?;
        self.spaces.get(at).map(|(_, key)| *key)
    }

    /// A process or its child could not be traced, for want of memory or by a limit: those whose
    /// traces it would be in are told.
    pub(crate) fn miss(&mut self, key: u64) {
        let Some(at) = self.place(key) else { return };
        let Self {
            traces, processes, ..
        } = self;
        let Some(process) = processes.get(at) else {
            return;
        };
        for trace in traces.iter_mut().filter(|trace| trace.could_take(process)) {
            trace.miss();
        }
    }

    pub(crate) fn process(&mut self, key: u64) -> Result<&mut Process> {
        let place = self.place(key).ok_or(ESRCH)?;
        Ok(self.processes.get_mut(place).ok_or(ESRCH)?)
    }

    /// One that has not ended. `ESRCH`.
    pub(crate) fn living(&mut self, key: u64) -> Result<&mut Process> {
        let process = self.process(key)?;
        match process.has_ended() {
            true => Err(ESRCH),
            false => Ok(process),
        }
    }

    fn generation(&self, slot: usize) -> u32 {
        self.generations.get(slot).copied().unwrap_or(0)
    }

    /// A trace and a process, if both are there.
    fn both(&mut self, id: u64, key: u64) -> Option<(&mut KBox<Trace>, &mut KBox<Process>)> {
        let at = self.place(key)?;
        let trace = self.traces.iter_mut().find(|trace| trace.id == id)?;
        Some((trace, self.processes.get_mut(at)?))
    }

    /// For a new trace of the caller, which is counted as his from now on. `EBUSY`, `ENOMEM`.
    fn free_slot(&self) -> Result<(usize, Shares)> {
        let capable = rights::is_perfmon_capable();
        let most = |limit: usize| if capable { usize::MAX } else { limit };
        let used = self.slots.iter().filter(|id| **id != 0).count();
        if used >= NR_TRACES.wrapping_sub(if capable { 0 } else { LEFT }) {
            return Err(EBUSY);
        }
        let share = |thing, limit| Share::of_caller(thing, most(limit), EBUSY);
        let shares = Shares {
            _held: share(Thing::Held, HELD)?,
            going: Some(share(Thing::Traces, OF_ONE_USER)?),
        };
        let mut slots = (0..NR_TRACES).map(|n| self.next_slot.wrapping_add(n) % NR_TRACES);
        let free = slots.find(|slot| self.slots.get(*slot) == Some(&0));
        Ok((free.ok_or(EBUSY)?, shares))
    }

    /// A trace that is ready begins. There is room for it.
    fn begin(&mut self, mut trace: KBox<Trace>, slot: usize) -> Result {
        trace.slot = Some(slot);
        let id = trace.id;
        if let (Some(place), Some(generation)) =
            (self.slots.get_mut(slot), self.generations.get_mut(slot))
        {
            *place = id;
            *generation = generation.wrapping_add(1);
        }
        self.next_slot = slot.wrapping_add(1) % NR_TRACES;
        let _ = self.traces.push_within_capacity(trace);
        Ok(())
    }

    /// Processes go that have ended and are in no trace, after a trace has fewer.
    fn forget(&mut self) {
        let mut news = false;
        for trace in &mut self.traces {
            news |= core::mem::take(&mut trace.shrunk);
        }
        if !news {
            // Nobody can be in none that was in one.
            return;
        }
        let Self {
            traces, processes, ..
        } = self;
        processes.retain(|process| {
            !process.has_ended() || traces.iter().any(|trace| trace.set(process.key).is_some())
        });
    }

    /// What was read of processes that have ended goes, in one trace.
    fn tidy(&mut self, id: u64) {
        for trace in self.traces.iter_mut().filter(|trace| trace.id == id) {
            trace.tidy();
        }
    }

    /// A process has ended: the traces that it is in have not too much of such ones. Takes time for
    /// those that go, and not for those that stay.
    pub(crate) fn limit(&mut self, key: u64) {
        let memory = self.process(key).map_or(0, |process| process.memory());
        for at in 0..self.traces.len() {
            if let Some(trace) = self.traces.get_mut(at) {
                trace.has_ended(key, memory);
            }
            while let Some(gone) = self.traces.get_mut(at).and_then(|t| t.drop_oldest()) {
                self.forget_process(gone);
            }
        }
    }

    /// The first trace after this one of those wanted with a process, and the process.
    fn trace_of(
        &self,
        key: u64,
        after: u64,
        wanted: impl Fn(&Trace, &Process) -> bool,
    ) -> Option<(&Trace, &Process)> {
        let process: &Process = self.processes.get(self.place(key)?)?;
        let later = self.traces.iter().filter(|trace| trace.id > after);
        let trace = later
            .filter(|trace| wanted(trace, process))
            .min_by_key(|trace| trace.id)?;
        Some((trace, process))
    }

    /// The first trace after this one that has something of a process or may get it, and the process.
    fn trace_with(&self, key: u64, after: u64) -> Option<(&Trace, &Process)> {
        self.trace_of(key, after, |trace, process| {
            trace.takes(process) || trace.set(key).is_some()
        })
    }

    /// The makers of all traces that have a process were asked about it, as it was then. Who was
    /// asked about another program, as it runs one by now, is judged by what it was.
    fn settle(&mut self, key: u64, seen: Seen) {
        if self
            .process(key)
            .is_ok_and(|process| !process.set_seen(seen))
        {
            let mut after = 0u64;
            while let Some((trace, process)) = self.trace_with(key, after) {
                let might = process
                    .alive()
                    .is_some_and(|alive| trace.asks().might(alive));
                after = trace.id;
                if !might {
                    self.deny(after, key);
                }
            }
        }
    }

    /// The first marker from a number on, of a process or those after it, and its leader.
    fn marker_from(&self, key: u64, number: usize) -> Option<(Describe, ARef<Task>)> {
        let alive = |process: &&KBox<Process>| process.key >= key && !process.has_ended();
        self.processes.iter().filter(alive).find_map(|process| {
            let from = if process.key == key { number } else { 0 };
            let mut rest = process.markers.iter().zip(0usize..usize::MAX).skip(from);
            let (known, number) = rest.find(|(_, number)| process.refs(*number) != 0)?;
            let found = Describe {
                key: process.key,
                number: number as u32,
                refs: process.refs(number),
                marker: known.marker(number),
            };
            Some((found, process.leader()?.clone()))
        })
    }

    /// A process that has changed since it was asked who may look at it: the one with this key, or
    /// in a shared trace the first member after `after`.
    fn changed(&self, id: u64, key: u64, after: u64) -> Option<(u64, ARef<Task>)> {
        let has_changed = |key: u64| {
            let process = self.processes.get(self.place(key)?)?;
            let changed = !process.has_ended() && process.has_changed();
            let leader = process.leader().filter(|_| changed)?;
            Some((key, leader.clone()))
        };
        let trace = self.traces.iter().find(|trace| trace.id == id)?;
        match trace.is(flag::SHARED) {
            true => {
                let mut rest = trace.sets.iter().filter(|set| set.key > after);
                rest.find_map(|set| has_changed(set.key))
            }
            false if key > after => has_changed(key),
            false => None,
        }
    }

    /// A trace's maker may not look at a process any more.
    fn deny(&mut self, id: u64, key: u64) {
        let Some((trace, process)) = self.both(id, key) else {
            return;
        };
        trace.deny(key);
        if let Some(slot) = trace.slot {
            process.want_none(slot);
            process.set_in(slot, false);
            // Nobody pays for them any more.
            process.take_out(slot);
        }
        // It may have ended meanwhile.
        self.forget_process(key);
    }

    /// A process has ended, and is kept by those whose traces it is in: the first one that
    /// can pays for its markers. Who cannot, or may not look at it any more, loses it.
    pub(crate) fn keep_ended(&mut self, key: u64) {
        let at = self.place(key);
        let Self {
            traces, processes, ..
        } = self;
        let Some(process) = at.and_then(|at| processes.get_mut(at)) else {
            return;
        };
        let changed = process.has_changed();
        let mut paid = false;
        for trace in traces.iter_mut().filter(|t| t.set(key).is_some()) {
            trace.signal.ring();
            let might = |alive: &Alive| trace.asks().might(alive);
            if changed && !process.alive().is_some_and(might) {
                trace.deny(key);
                continue;
            }
            paid = paid || process.pay(trace.payer()).is_ok();
            if !paid {
                trace.drop_process(key);
            }
        }
        process.forget_task();
    }

    fn id(&mut self) -> u64 {
        self.next_id = self.next_id.wrapping_add(1);
        self.next_id
    }

    /// A file has it from now on; it is counted in `files` already.
    fn hold(&mut self, id: u64, signal: Arc<Signal>) -> Held {
        let reader = self.id();
        Held { id, reader, signal }
    }

    fn info(&self, trace: &Trace) -> Info {
        let clock = Clock::of_traces();
        let info = trace.info();
        let unstable = if clock.is_unstable() {
            flag::UNSTABLE
        } else {
            0
        };
        Info {
            flags: info.flags | unstable,
            slot: trace.slot.map_or(u32::MAX, |slot| slot as u32),
            uid: uid_of(trace.owner),
            clock: clock.is_monotonic().into(),
            khz: clock.khz,
            ticks: clock.ticks(),
            realtime: misc::realtime_ns(),
            ..info
        }
    }
}

/// A trace begins, and its slot. `EINVAL`, `EEXIST`, `EBUSY`, `EPERM`, `ENODEV`.
/// May sleep.
pub(crate) fn create(create: &Create, filter: KVVec<u8>) -> Result<(Held, usize)> {
    let page = match filter.is_empty() {
        true => None,
        false => {
            let mut page = Page::new()?;
            page.fill(&filter);
            Some(page)
        }
    };
    let id = TRACING.lock().id();
    let trace = Trace::new(id, create, page, Clock::of_traces().ticks())?;
    let mut trace = KBox::new(trace, GFP_KERNEL_ACCOUNT)?;
    let globs = filter::text(&create.markers).unwrap_or(b"");
    // A glob for all names is not meant for the kernel's.
    let kernels = || {
        globs
            .split(|byte| *byte == b' ')
            .filter(|g| g.starts_with(b"kernel:"))
    };
    let wants = |name: &[u8]| kernels().any(|glob| filter::glob(glob, name));
    // Kept until after the lock: probes' going waits for others.
    let mut going = None;
    if kernels().next().is_some() {
        // The capability as well: perf's sysctl lets users monitor the kernel on behalf of their
        // own threads, and these events are of all tasks.
        let may = rights::is_perfmon_capable() && rights::is_kernel_open();
        may.then_some(()).ok_or(EPERM)?;
        trace.add_kernel()?;
        going = Some(attach_kernel(&trace, filter, &wants)?);
    }
    if let Some(probes) = &going {
        probes.state().pause(true);
    }
    let signal = trace.signal.clone();
    let mut room = KVVec::new();
    let mut all = loop {
        let mut all = TRACING.lock();
        let nr = all.traces.len();
        if all.traces.capacity() > nr {
            break all;
        }
        if room.capacity() > nr {
            move_to(&mut all.traces, room);
            break all;
        }
        drop(all);
        room = room_beyond(nr)?;
    };
    all.is_open()?;
    let name = filter::text(&create.name).ok_or(EINVAL)?;
    let same = |t: &KBox<Trace>| t.slot.is_some() && t.owner == trace.owner && t.has_name(name);
    if all.traces.iter().any(same) {
        return Err(EEXIST);
    }
    let (slot, shares) = all.free_slot()?;
    trace.shares = Some(shares);
    let paused = trace.is(flag::PAUSED);
    trace.kept = trace.is(flag::KEEP).then(Kept::new);
    trace.kernel = going.take();
    all.begin(trace, slot)?;
    if let Some(probes) = &all.trace(id)?.kernel {
        probes.state().pause(paused);
    }
    let held = all.hold(id, signal);
    drop(all);
    tell_processes(id);
    Ok((held, slot))
}

fn attach_kernel(
    trace: &Trace,
    filter: KVVec<u8>,
    wants: &dyn Fn(&[u8]) -> bool,
) -> Result<Probes<KernelEvents>> {
    let set = trace.set(KEY_KERNEL).ok_or(EINVAL)?;
    let mut buffers = KVec::with_capacity(set.buffers.len(), GFP_KERNEL)?;
    for buffer in &set.buffers {
        buffers.push(buffer.clone(), GFP_KERNEL)?;
    }
    KernelEvents::attach(buffers, filter, trace.signal.clone(), wants)
}
