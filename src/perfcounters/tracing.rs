// SPDX-License-Identifier: GPL-2.0

//! User tracing: traces and the processes in them. What is in a buffer, and how it gets
//! there without a call, is in `Documentation/tracing.md`.
//!
//! All of it is under one lock, also what processes touch for the first time; events take
//! none. Slots are given out in turn, so that one is unused for long before it is another
//! trace's.

pub(crate) mod attached;
mod kernel_events;
mod process;
mod trace;

use engine::filter;
use engine::trace::{self as abi, flag, map, Create, Describe, Info, Zero, NR_TRACES};
use engine::trace::{KEY_KERNEL, KEY_SHARED};
use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::{KBox, KVVec, KVec};
use kernel::prelude::*;
use kernel::sync::Arc;

use self::kernel_events::{KernelEvents, MARKERS};
use self::process::Process;
use self::trace::{search, Signal, Trace};
use crate::provider::Probes;
use crate::sys::buffers::{Buffer, Page, PAGE};
use crate::sys::cpu;
use crate::sys::lock::TRACING;
use crate::sys::misc;
use crate::sys::ppa::Clock;
use crate::sys::process::{uid_of, Kept, Who};
use crate::sys::sched;

/// Of one user without CAP_PERFMON, at the most; and so many are left to those with it.
const OF_ONE_USER: usize = 8;
const LEFT: usize = 4;
/// Of one user without it, with those that have ended and that files still hold.
const HELD: usize = 32;
/// Keys below are no process's.
const FIRST_KEY: u64 = 16;

/// Traces and processes.
pub(crate) struct Tracing {
    pub(crate) traces: KVec<KBox<Trace>>,
    /// By key.
    pub(crate) processes: KVVec<KBox<Process>>,
    /// Traces by their slots; 0: none.
    slots: [u64; NR_TRACES],
    generations: [u32; NR_TRACES],
    next_slot: usize,
    /// Of traces, and of files that hold them.
    next_id: u64,
    pub(crate) next_key: u64,
    /// What is read where there is nothing.
    pub(crate) zeroes: Option<Page>,
}

fn place_of(processes: &[KBox<Process>], key: u64) -> Option<usize> {
    search(processes, key, |process| process.key).ok()
}

fn is_over(processes: &[KBox<Process>], key: u64) -> bool {
    let process = place_of(processes, key).and_then(|place| processes.get(place));
    process.is_some_and(|process| process.has_ended())
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
            capable: sched::is_perfmon_capable(),
        }
    }

    fn may_open(&self, trace: &Trace) -> bool {
        self.capable || trace.is_own(self.uid)
    }

    fn may_trace(&self, process: &Process) -> bool {
        self.capable || (process.who.uid == self.uid && process.who.secret == 0)
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
        let mut all = TRACING.lock();
        let mut going = None;
        if let Ok(trace) = all.trace(self.id) {
            trace.files = trace.files.wrapping_sub(1);
            if trace.reader == self.reader {
                trace.reader = 0;
            }
            if trace.files == 0 && !trace.is(flag::KEEP) {
                going = all.end(self.id);
            }
        }
        all.forget();
        drop(all);
        drop(going);
    }
}

/// Probes that go when the lock is given back.
type Going = Option<Probes<KernelEvents>>;

impl Tracing {
    /// Neither.
    pub(crate) const NONE: Self = Self {
        traces: KVec::new(),
        processes: KVVec::new(),
        slots: [0; NR_TRACES],
        generations: [0; NR_TRACES],
        next_slot: 0,
        next_id: 1,
        next_key: FIRST_KEY,
        zeroes: None,
    };

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

    pub(crate) fn process(&mut self, key: u64) -> Result<&mut Process> {
        let place = self.place(key).ok_or(ESRCH)?;
        Ok(self.processes.get_mut(place).ok_or(ESRCH)?)
    }

    fn generation(&self, slot: usize) -> u32 {
        self.generations.get(slot).copied().unwrap_or(0)
    }

    /// A process's markers in each slot, and the slots: it is new, or has new markers.
    pub(crate) fn tell(&self, key: u64, slots: bool, number: Option<usize>) {
        let Some(process) = self.place(key).and_then(|place| self.processes.get(place)) else {
            return;
        };
        for trace in &self.traces {
            let Some(slot) = trace.slot.filter(|_| trace.takes(process)) else {
                continue;
            };
            if slots {
                process.begin_slot(slot, trace.seen(self.generation(slot)));
            }
            if let Some(number) = number {
                process.set_wanted(number, slot, &|name| trace.wants(name));
            }
        }
    }

    /// Pages of a slot are taken out wherever they are mapped.
    fn take_out(&self, slot: usize) {
        let slot = slot as u64;
        let bytes = u64::from(cpu::nr_cpu_ids()) << abi::STRIDE;
        let buffers = map::BUFFERS.wrapping_add(slot.wrapping_mul(bytes));
        let filter = map::FILTERS.wrapping_add(slot.wrapping_mul(PAGE as u64));
        let mut before = None;
        for process in &self.processes {
            let Some(mapping) = process.mapping.filter(|_| before != process.mapping) else {
                continue;
            };
            before = process.mapping;
            mapping.take_out(buffers, bytes);
            mapping.take_out(filter, PAGE as u64);
        }
    }

    /// For a new trace of the caller, who is this user.
    fn free_slot(&self, owner: u32) -> Option<usize> {
        let nr = |wanted: &dyn Fn(&Trace) -> bool| {
            let there = self.traces.iter().filter(|t| t.slot.is_some() && wanted(t));
            there.fold(0usize, |nr, _| nr.wrapping_add(1))
        };
        let own = nr(&|trace| trace.owner == owner);
        let held = self.traces.iter().filter(|trace| trace.owner == owner);
        let held = held.fold(0usize, |nr, _| nr.wrapping_add(1));
        if (own >= OF_ONE_USER || held >= HELD || nr(&|_| true) >= NR_TRACES.wrapping_sub(LEFT))
            && !sched::is_perfmon_capable()
        {
            return None;
        }
        (0..NR_TRACES)
            .map(|n| self.next_slot.wrapping_add(n) % NR_TRACES)
            .find(|slot| self.slots.get(*slot) == Some(&0))
    }

    /// A trace that is ready begins.
    fn begin(&mut self, mut trace: KBox<Trace>, slot: usize) -> Result {
        self.traces.reserve(1, GFP_KERNEL)?;
        // Late writers of the one before have touched pages again.
        self.take_out(slot);
        trace.slot = Some(slot);
        let id = trace.id;
        if let (Some(place), Some(generation)) =
            (self.slots.get_mut(slot), self.generations.get_mut(slot))
        {
            *place = id;
            *generation = generation.wrapping_add(1);
        }
        self.next_slot = slot.wrapping_add(1) % NR_TRACES;
        let generation = self.generation(slot);
        for process in self.processes.iter().filter(|p| trace.takes(p)) {
            process.begin_slot(slot, trace.seen(generation));
            process.want(slot, &|name| trace.wants(name));
        }
        let _ = self.traces.push_within_capacity(trace);
        Ok(())
    }

    /// No event is wanted any more; what there is stays with the trace.
    fn end(&mut self, id: u64) -> Going {
        let trace = self.trace(id).ok()?;
        let slot = trace.slot.take()?;
        let (kernel, signal) = (trace.kernel.take(), trace.signal.clone());
        trace.kept = None;
        for process in &self.processes {
            process.want(slot, &|_| false);
        }
        if let (Some(place), Some(generation)) =
            (self.slots.get_mut(slot), self.generations.get_mut(slot))
        {
            *place = 0;
            *generation = generation.wrapping_add(1);
        }
        let generation = self.generation(slot);
        if let Some(trace) = self.traces.iter().find(|trace| trace.id == id) {
            for process in self.processes.iter().filter(|p| trace.takes(p)) {
                process.end_slot(slot, generation);
            }
        }
        self.take_out(slot);
        signal.ring();
        kernel
    }

    /// Traces go that have ended and that nobody holds, then processes that are in none.
    pub(crate) fn forget(&mut self) {
        let needless = |t: &KBox<Trace>| t.files == 0 && (t.slot.is_none() || !t.is(flag::KEEP));
        self.traces.retain(|trace| !needless(trace));
        let Self {
            traces, processes, ..
        } = self;
        processes.retain(|process| {
            !process.has_ended() || traces.iter().any(|trace| trace.set(process.key).is_some())
        });
    }

    /// What was read of processes that have ended goes, in one trace.
    fn tidy(&mut self, id: u64) {
        let Self {
            traces, processes, ..
        } = self;
        for trace in traces.iter_mut().filter(|trace| trace.id == id) {
            trace.tidy(&|key| is_over(processes, key));
        }
    }

    /// A process has ended: the traces that it is in have not too much of such ones.
    pub(crate) fn limit(&mut self, key: u64) {
        let Self {
            traces, processes, ..
        } = self;
        for trace in traces.iter_mut().filter(|t| t.set(key).is_some()) {
            trace.limit(&|key| is_over(processes, key));
        }
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
        let clock = Clock::choose();
        Info {
            slot: trace.slot.map_or(u32::MAX, |slot| slot as u32),
            uid: uid_of(trace.owner),
            clock: clock.is_monotonic().into(),
            khz: clock.khz,
            ticks: clock.ticks(),
            realtime: misc::realtime_ns(),
            ..trace.info()
        }
    }
}

/// A trace begins, and its slot. `EINVAL`, `EEXIST`, `EBUSY`, `EPERM`.
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
    let trace = Trace::new(id, create, page, Clock::choose().ticks())?;
    let mut trace = KBox::new(trace, GFP_KERNEL)?;
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
        sched::is_kernel_open().then_some(()).ok_or(EPERM)?;
        trace.add_kernel()?;
        going = Some(attach_kernel(&trace, filter, &wants)?);
    }
    if let Some(probes) = &going {
        probes.state().pause(true);
    }
    let signal = trace.signal.clone();
    let mut all = TRACING.lock();
    let name = filter::text(&create.name).ok_or(EINVAL)?;
    let same = |t: &KBox<Trace>| t.slot.is_some() && t.owner == trace.owner && t.has_name(name);
    if all.traces.iter().any(same) {
        return Err(EEXIST);
    }
    let slot = all.free_slot(trace.owner).ok_or(EBUSY)?;
    // Before it has its probes, which cannot go under the lock.
    all.traces.reserve(1, GFP_KERNEL)?;
    let paused = trace.is(flag::PAUSED);
    trace.kept = trace.is(flag::KEEP).then(Kept::new);
    trace.kernel = going.take();
    all.begin(trace, slot)?;
    if let Some(probes) = &all.trace(id)?.kernel {
        probes.state().pause(paused);
    }
    Ok((all.hold(id, signal), slot))
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

/// One's own trace by its name, or else, with CAP_PERFMON, anybody's: the same, and how it is. `ENOENT`.
pub(crate) fn open(name: &[u8]) -> Result<(Held, Info)> {
    let caller = Caller::new();
    let mut all = TRACING.lock();
    let has_name = |t: &&KBox<Trace>| t.slot.is_some() && t.has_name(name) && caller.may_open(t);
    let named = || all.traces.iter().filter(has_name);
    let own = named().find(|trace| trace.owner == caller.uid);
    let id = own.or(named().next()).ok_or(ENOENT)?.id;
    let trace = all.trace(id)?;
    trace.files = trace.files.wrapping_add(1);
    let signal = trace.signal.clone();
    let trace = all.traces.iter().find(|t| t.id == id).ok_or(EINVAL)?;
    let info = all.info(trace);
    Ok((all.hold(id, signal), info))
}

/// It ends, but can still be read.
pub(crate) fn end(id: u64) -> Result {
    let mut all = TRACING.lock();
    if all.trace(id)?.slot.is_none() {
        return Err(ENOENT);
    }
    let going = all.end(id);
    drop(all);
    drop(going);
    Ok(())
}

/// No event is wanted for now, or again.
pub(crate) fn pause(id: u64, pause: bool) -> Result {
    let mut all = TRACING.lock();
    let trace = all.trace(id)?;
    trace.flags = match pause {
        true => trace.flags | flag::PAUSED,
        false => trace.flags & !flag::PAUSED,
    };
    if let Some(probes) = &trace.kernel {
        probes.state().pause(pause);
    }
    let all = &*all;
    let trace = all.traces.iter().find(|t| t.id == id).ok_or(EINVAL)?;
    if let Some(slot) = trace.slot {
        for process in all.processes.iter().filter(|p| trace.takes(p)) {
            process.want(slot, &|name| trace.wants(name));
        }
    }
    Ok(())
}

/// How it stands.
pub(crate) fn info(id: u64) -> Result<Info> {
    let all = TRACING.lock();
    let trace = all.traces.iter().find(|t| t.id == id).ok_or(EINVAL)?;
    Ok(all.info(trace))
}

/// The first trace from a slot on that the caller may open. `ENOENT`.
pub(crate) fn next_trace(slot: u32) -> Result<Info> {
    let caller = Caller::new();
    let all = TRACING.lock();
    let from = slot as usize;
    let mut rest = all.slots.iter().skip(from);
    rest.find_map(|id| {
        let trace = all.traces.iter().find(|t| t.id == *id)?;
        caller.may_open(trace).then(|| all.info(trace))
    })
    .ok_or(ENOENT)
}

/// Where the next thing to read is. `EBUSY`: another file reads it; `ENOENT`: there is no more.
pub(crate) fn next(held: &Held, key: u64, cpu: u32) -> Result<(u64, u32, Arc<Buffer>)> {
    let Held { id, reader, .. } = *held;
    let mut all = TRACING.lock();
    let trace = all.trace(id)?;
    if !trace.is(flag::FLIGHT) {
        if trace.reader != 0 && trace.reader != reader {
            return Err(EBUSY);
        }
        trace.reader = reader;
    }
    if key == 0 {
        trace.signal.answer();
        // What others have read they may still ask about.
        all.tidy(id);
        all.forget();
    }
    all.trace(id)?.next(key, cpu).ok_or(ENOENT)
}

/// It has ended: who waits for it hears so.
pub(crate) fn has_ended(id: u64) -> bool {
    let all = TRACING.lock();
    let trace = all.traces.iter().find(|t| t.id == id);
    trace.is_none_or(|trace| trace.slot.is_none())
}

/// A process in a trace. `ENOENT`.
pub(crate) fn process(id: u64, key: u64) -> Result<abi::Process> {
    let mut all = TRACING.lock();
    let nobody = abi::Process {
        key,
        ..abi::Process::ZERO
    };
    all.trace(id)?.set(key).ok_or(ENOENT)?;
    if key == KEY_KERNEL {
        return Ok(abi::Process {
            nr_markers: MARKERS.len() as u32,
            comm: *b"kernel\0\0\0\0\0\0\0\0\0\0",
            ..nobody
        });
    }
    if key == KEY_SHARED {
        return Ok(nobody);
    }
    Ok(told(all.process(key).map_err(|_| ENOENT)?))
}

/// A process that the caller may trace. `ENOENT`.
pub(crate) fn any_process(key: u64) -> Result<abi::Process> {
    let caller = Caller::new();
    let mut all = TRACING.lock();
    let process = all.process(key).map_err(|_| ENOENT)?;
    match caller.may_trace(process) && !process.has_ended() {
        true => Ok(told(process)),
        false => Err(ENOENT),
    }
}

fn told(process: &Process) -> abi::Process {
    abi::Process {
        key: process.key,
        pid: process.pid.number(),
        uid: uid_of(process.who.uid),
        flags: if process.has_ended() { abi::ENDED } else { 0 },
        nr_markers: process.markers.len() as u32,
        began: process.began,
        comm: process.who.comm,
    }
}

/// A marker of a process in a trace. `ENOENT`.
pub(crate) fn describe(id: u64, key: u64, number: u32) -> Result<Describe> {
    let mut all = TRACING.lock();
    all.trace(id)?.set(key).ok_or(ENOENT)?;
    if key == KEY_KERNEL {
        let (name, fields) = MARKERS.get(number as usize).ok_or(ENOENT)?;
        return Ok(Describe {
            key,
            number,
            refs: 1,
            marker: process::marker(name, fields, number as usize),
        });
    }
    let process = all.process(key).map_err(|_| ENOENT)?;
    let known = process.markers.get(number as usize).ok_or(ENOENT)?;
    Ok(Describe {
        key,
        number,
        refs: known.refs,
        marker: known.marker(number as usize),
    })
}

/// The first marker from a number on, of a process or those after it, that the caller may
/// trace. `ENOENT`.
pub(crate) fn next_marker(key: u64, number: u32) -> Result<Describe> {
    let caller = Caller::new();
    let all = TRACING.lock();
    for process in all.processes.iter().filter(|p| p.key >= key) {
        if process.has_ended() || !caller.may_trace(process) {
            continue;
        }
        let from = if process.key == key {
            number as usize
        } else {
            0
        };
        let mut rest = process.markers.iter().zip(0usize..usize::MAX).skip(from);
        if let Some((known, number)) = rest.find(|(known, _)| known.refs != 0) {
            return Ok(Describe {
                key: process.key,
                number: number as u32,
                refs: known.refs,
                marker: known.marker(number),
            });
        }
    }
    Err(ENOENT)
}

/// The module goes: nobody has a file, or a trace that is kept.
pub(crate) fn forget_all() {
    let mut all = TRACING.lock();
    let was = core::mem::replace(&mut *all, Tracing::NONE);
    drop(all);
    drop(was);
}
