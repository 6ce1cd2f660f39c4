// SPDX-License-Identifier: GPL-2.0

//! What the files of `/dev/perftrace` ask of traces: to open, end, pause, list and read them.

use engine::trace::{self as abi, flag, Describe, Info, Zero, NR_TRACES};
use engine::trace::{KEY_KERNEL, KEY_SHARED};
use kernel::alloc::KBox;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::task::Task;

use super::ends::{each_member, Member};
use super::kernel_events::MARKERS;
use super::known;
use super::news::tell_markers;
use super::process::Process;
use super::trace::Trace;
use super::{Caller, Held, Tracing};
use crate::sys;
use crate::sys::account::{Share, Thing};
use crate::sys::buffers::Buffer;
use crate::sys::lock::TRACING;
use crate::sys::process::uid_of;
use crate::sys::rights::{self, Seen};

/// Limit for concurrent calls of [`open`] by one user without CAP_PERFMON.
const QUESTIONS: usize = 8;

/// Opens a trace by its name: the caller's own or, with CAP_PERFMON, anybody's. `ENOENT`;
/// `EPERM`: the security modules do not let the caller look at its maker; `EBUSY`: the
/// limit for concurrent calls without CAP_PERFMON.
pub(crate) fn open(name: &[u8]) -> Result<(Held, Info)> {
    let caller = Caller::new();
    let all = TRACING.lock();
    let has_name = |t: &&KBox<Trace>| t.is_on() && t.has_name(name) && caller.may_open(t);
    let named = || all.traces.iter().filter(has_name);
    let own = named().find(|trace| trace.owner == caller.uid);
    let found = own.or(named().next()).ok_or(ENOENT)?;
    let (id, maker) = (found.id, found.maker());
    drop(all);
    if !caller.capable {
        // may_see() creates a kernel thread for the time of the call: limit them by user.
        let _asks = Share::of_caller(Thing::Questions, QUESTIONS, EBUSY)?;
        rights::may_see(&maker)?;
    }
    let mut all = TRACING.lock();
    let trace = all.trace(id).map_err(|_| ENOENT)?;
    if !trace.is_on() {
        return Err(ENOENT);
    }
    trace.files = trace.files.wrapping_add(1);
    let signal = trace.signal.clone();
    let trace = all.traces.iter().find(|t| t.id == id).ok_or(EINVAL)?;
    let info = all.info(trace);
    Ok((all.hold(id, signal), info))
}

/// It ends, but can still be read.
pub(crate) fn end(id: u64) -> Result {
    let mut all = TRACING.lock();
    all.trace(id)?;
    let (slot, going) = all.begin_end(id).ok_or(ENOENT)?;
    drop(all);
    each_member(slot, |all, key| {
        all.leave(key, slot);
        true
    });
    TRACING.lock().finish_end(id, slot);
    drop(going);
    Ok(())
}

/// No event is wanted for now, or again.
pub(crate) fn pause(id: u64, pause: bool) -> Result {
    let mut all = TRACING.lock();
    let trace = all.trace(id)?;
    if trace.is(flag::PAUSED) == pause {
        // Nothing is unwanted for a moment, and then lost.
        return Ok(());
    }
    trace.flags = match pause {
        true => trace.flags | flag::PAUSED,
        false => trace.flags & !flag::PAUSED,
    };
    if let Some(probes) = &trace.kernel {
        probes.state().pause(pause);
    }
    let slot = trace.slot.unwrap_or(NR_TRACES);
    drop(all);
    if pause {
        // A call that resumes or ends it meanwhile tells its processes itself.
        each_member(slot, |all, key| {
            let trace = all.traces.iter().find(|trace| trace.id == id);
            let paused = trace.is_some_and(|t| t.slot == Some(slot) && t.is(flag::PAUSED));
            if let (true, Ok(process)) = (paused, all.process(key)) {
                process.want_none(slot);
            }
            paused
        });
        return Ok(());
    }
    let mut from = 0u64;
    while !sys::process::is_dying() {
        let next = TRACING.lock().next_member(from, slot);
        from = match next {
            Member::Found(key) => {
                tell_markers(id, key);
                key.wrapping_add(1)
            }
            Member::From(key) => key,
            Member::None => break,
        };
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

/// May the reader of a trace have what it has copied of a process by now? A process that has
/// changed since it was last asked about is asked about once: the answer is younger than the
/// copy, whatever the process does meanwhile. `EINTR`, `ENOMEM`.
pub(crate) fn may_have(held: &Held, key: u64) -> Result<bool> {
    let mut after = 0u64;
    loop {
        let changed = TRACING.lock().changed(held.id, key, after);
        let Some((changed, leader)) = changed else {
            break;
        };
        if sys::process::is_dying() {
            return Err(EINTR);
        }
        ask_again(changed, &leader)?;
        after = changed;
    }
    Ok(TRACING.lock().trace(held.id)?.set(key).is_some())
}

/// A process has changed: the makers of all traces that have it are asked about anew. What it
/// has written since is as secret as it is. Without the lock. `EINTR`, `ENOMEM`.
fn ask_again(key: u64, leader: &Task) -> Result {
    // First: what changes after this is another change.
    let seen = Seen::of(leader)?;
    let mut after = 0u64;
    loop {
        let found = TRACING
            .lock()
            .trace_with(key, after)
            .map(|(trace, _)| trace.asks());
        let Some(asks) = found else { break };
        after = asks.id;
        if !asks.ask(leader)? {
            TRACING.lock().deny(asks.id, key);
        }
    }
    TRACING.lock().settle(key, seen);
    Ok(())
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
    let (told, leader) = {
        let mut all = TRACING.lock();
        let process = all.process(key).map_err(|_| ENOENT)?;
        if process.has_ended() {
            return Err(ENOENT);
        }
        (told(process), process.leader().ok_or(ENOENT)?.clone())
    };
    match caller.may_trace(&leader) {
        true => Ok(told),
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
            marker: known::marker(name, fields, number as usize),
        });
    }
    let process = all.process(key).map_err(|_| ENOENT)?;
    let known = process.markers.get(number as usize).ok_or(ENOENT)?;
    Ok(Describe {
        key,
        number,
        refs: process.refs(number as usize),
        marker: known.marker(number as usize),
    })
}

/// The first marker from a number on, of a process or those after it, that the caller may
/// trace. `ENOENT`, `EINTR`.
pub(crate) fn next_marker(key: u64, number: u32) -> Result<Describe> {
    let caller = Caller::new();
    let (mut key, mut number) = (key, number as usize);
    loop {
        if sys::process::is_dying() {
            return Err(EINTR);
        }
        let (found, leader) = TRACING.lock().marker_from(key, number).ok_or(ENOENT)?;
        if caller.may_trace(&leader) {
            return Ok(found);
        }
        // None of its markers.
        (key, number) = (found.key.wrapping_add(1), 0);
    }
}

/// The module goes: nobody has a file, or a trace that is kept.
pub(crate) fn forget_all() {
    let mut all = TRACING.lock();
    let was = core::mem::replace(&mut *all, Tracing::NONE);
    drop(all);
    drop(was);
}
