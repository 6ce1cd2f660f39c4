// SPDX-License-Identifier: GPL-2.0

//! What traced processes ask for: to be traced, to have their markers known, and the pages that
//! they touch.

use engine::trace::{self, flag, map, Marker, KEY_SHARED, NO_NUMBER, NR_TRACES};
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KBox, KVVec};
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::sys::buffers::{Page, PAGE};
use crate::sys::cpu;
use crate::sys::lock::TRACING;
use crate::sys::misc;
use crate::sys::process::{is_limit, max_traced, say_refused, set_traced, Mapping, Mm, Who};
use crate::tracing::children;
use crate::tracing::known::Known;
use crate::tracing::news::{tell_marker, tell_traces};
pub(crate) use crate::tracing::process::Nobodys;
pub(crate) use crate::tracing::process::{base, within, SPAN};
use crate::tracing::process::{Process, Room};
use crate::tracing::trace::{move_to, room_beyond, search, Spare, Trace};
use crate::tracing::Tracing;

/// Descriptors by which one process is attached, at the most: one for each copy of the library.
const MAX_FILES: u32 = 256;

/// A process that is traced: its key, where it has its pieces, and what it writes where there is
/// no trace.
pub(crate) type Joined = (u64, [u64; 2], Arc<Nobodys>);

/// The caller's process is traced from now on, or by one more file. `EBUSY`, `ENODEV`; `ENOSPC`,
/// `EDQUOT`, `ENOMEM`: it would be in traces, which are told, as is the kernel's log. May sleep.
pub(crate) fn attach(mm: &Mm, mapping: Mapping, shared: bool) -> Result<Joined> {
    let attached = try_attach(mm, mapping, shared);
    if let Some(error) = attached.as_ref().err().filter(|error| is_limit(**error)) {
        let uid = Who::calls().uid;
        let mut all = TRACING.lock();
        let wanted = |trace: &&mut KBox<Trace>| trace.is_for(uid, shared);
        for trace in all.traces.iter_mut().filter(wanted) {
            trace.miss();
        }
        drop(all);
        say_refused(false, *error);
    }
    attached
}

fn try_attach(mm: &Mm, mapping: Mapping, shared: bool) -> Result<Joined> {
    let key = match children::own(mm) {
        Err(ESRCH) => {
            let mut all = TRACING.lock();
            all.is_open()?;
            may_attach(&all)?;
            let key = all.next_key;
            all.next_key = key.wrapping_add(1);
            key
        }
        own => {
            let joined = join(&mut TRACING.lock(), own?, mapping, shared)?;
            // It may be in more traces by now.
            if shared {
                tell_traces(joined.0);
            }
            return Ok(joined);
        }
    };
    children::watch()?;
    // Memory is got without the lock: where it is scarce that takes its time.
    let mut zeroes = Some(Page::new()?);
    let process = Process::new(key, mm, mapping, shared)?;
    let nobodys = process.nobodys().ok_or(ESRCH)?.clone();
    let process = KBox::new(process, GFP_KERNEL_ACCOUNT)?;
    let joined = with_room(|all| {
        if let Some(key) = all.of_mm(mm.address()) {
            return join(all, key, mapping, shared);
        }
        all.is_open()?;
        may_attach(all)?;
        if all.zeroes.is_none() {
            all.zeroes = zeroes.take();
        }
        add(all, process)?;
        Ok((key, [0, 0], nobodys))
    })?;
    tell_traces(joined.0);
    Ok(joined)
}

/// Does something under the lock with room for one more process, which is made without it.
pub(crate) fn with_room<T>(what: impl FnOnce(&mut Tracing) -> Result<T>) -> Result<T> {
    let mut room = (KVVec::new(), KVVec::new());
    loop {
        let mut all = TRACING.lock();
        let nr = all.processes.len().max(all.spaces.len());
        if all.processes.capacity() > nr && all.spaces.capacity() > nr {
            return what(&mut all);
        }
        if room.0.capacity() > nr && room.1.capacity() > nr {
            move_to(&mut all.processes, room.0);
            move_to(&mut all.spaces, room.1);
            return what(&mut all);
        }
        drop(all);
        room = (room_beyond(nr)?, room_beyond(nr)?);
    }
}

/// There is one more process, for which there is room.
pub(crate) fn add(all: &mut Tracing, process: KBox<Process>) -> Result {
    let (key, mm) = (process.key, process.mm);
    let (Ok(at) | Err(at)) = search(&all.spaces, mm as u64, |(mm, _)| *mm as u64);
    let spaces = all.spaces.insert_within_capacity(at, (mm, key));
    let (Ok(at) | Err(at)) = search(&all.processes, key, |process| process.key);
    let processes = all.processes.insert_within_capacity(at, process);
    spaces.map_err(|_| ENOMEM)?;
    processes.map_err(|_| ENOMEM)?;
    set_traced(mm, true);
    Ok(())
}

/// A process that is traced has one more file. `EBUSY`: of another node; `ENOSPC`: it has too many;
/// `ENODEV`.
fn join(all: &mut Tracing, key: u64, mapping: Mapping, shared: bool) -> Result<Joined> {
    all.is_open()?;
    let process = all.living(key)?;
    // The first file may be closed before this one, which then has to be of the node that the
    // process's mapping is of.
    if process.mapping != Some(mapping) {
        return Err(EBUSY);
    }
    if process.files >= MAX_FILES {
        return Err(ENOSPC);
    }
    let nobodys = process.nobodys().ok_or(ESRCH)?.clone();
    process.files = process.files.wrapping_add(1);
    process.shared |= shared;
    Ok((process.key, process.pieces, nobodys))
}

/// `ENOSPC`: too many are traced. How many are one user's is counted as they are made.
pub(crate) fn may_attach(all: &Tracing) -> Result {
    match all.processes.len() >= max_traced() {
        true => Err(ENOSPC),
        false => Ok(()),
    }
}

/// Is an address space that of a process?
pub(crate) fn is_of(key: u64, mm: usize) -> bool {
    TRACING
        .lock()
        .process(key)
        .is_ok_and(|process| process.mm == mm)
}

/// It has one more mapping of a piece, from an address on and whole or not; or has not any more:
/// without any it has ended.
pub(crate) fn maps(key: u64, piece: usize, at: u64, whole: bool, one_more: bool) {
    let mut all = TRACING.lock();
    let Ok(process) = all.process(key) else {
        return;
    };
    process.maps = match one_more {
        true => process.maps.saturating_add(1),
        false => process.maps.saturating_sub(1),
    };
    if let Some(known) = process.pieces.get_mut(piece) {
        match one_more {
            // A part of it: it was split.
            true => *known = if whole { at } else { 0 },
            false if *known == at => *known = 0,
            false => {}
        }
    }
    if process.maps == 0 {
        end_process(&mut all, key);
    }
}

/// A copy of the library has something of its threads, from the thread pointer on.
pub(crate) fn has_thread(key: u64, at: i64) {
    if let Ok(process) = TRACING.lock().living(key) {
        process.set_thread(at, true);
    }
}

/// One of its files is closed: with the last one it has ended, if it has not before. The copy of
/// the library that had it had something of its threads there.
pub(crate) fn detach(key: u64, thread: i64) {
    let mut all = TRACING.lock();
    let Ok(process) = all.process(key) else {
        return;
    };
    process.set_thread(thread, false);
    process.files = process.files.saturating_sub(1);
    if process.files == 0 {
        end_process(&mut all, key);
    }
}

pub(crate) fn end_process(all: &mut Tracing, key: u64) {
    let Ok(process) = all.process(key) else {
        return;
    };
    let mm = process.mm as u64;
    if !process.end() {
        return;
    }
    if let Ok(at) = search(&all.spaces, mm, |(mm, _)| *mm as u64) {
        let _ = all.spaces.remove(at);
        set_traced(mm as usize, false);
    }
    all.keep_ended(key);
    all.limit(key);
    all.forget_process(key);
}

/// A marker of a process: it gets its number, or the reason why it has none. May sleep.
pub(crate) fn register(key: u64, marker: &mut Marker) -> Result {
    // One at a time: others have their turns in between.
    let linked = Known::new(marker).and_then(|known| {
        let known = Arc::new(known, GFP_KERNEL_ACCOUNT)?;
        let mut room = Room::default();
        let (number, new) = loop {
            let mut all = TRACING.lock();
            let process = all.living(key)?;
            match process.register(&known, &mut room) {
                Err(error) if error == EAGAIN => {
                    let (nr, _) = process.needs();
                    drop(all);
                    room = Room::beyond(nr)?;
                }
                registered => break registered?,
            }
        };
        if new {
            tell_marker(key, number, &known);
        }
        Ok(number)
    });
    if linked.as_ref().is_err_and(|error| is_limit(*error)) {
        // The traces that would have its events.
        TRACING.lock().miss(key);
    }
    (marker.number, marker.error) = match &linked {
        Ok(number) => (*number as u32, 0),
        Err(error) => (NO_NUMBER, error.to_errno().unsigned_abs()),
    };
    linked.map(|_| ())
}

/// One is taken back. `EINVAL`: there is none of that number.
pub(crate) fn unregister(key: u64, number: u32) -> Result {
    TRACING.lock().living(key)?.unregister(number as usize)
}

/// A buffer has something for its reader. `ENOENT`: there is none, as there was no memory.
pub(crate) fn notify(key: u64, slot: u32, cpu: u32) -> Result {
    let mut all = TRACING.lock();
    if cpu >= cpu::nr_cpu_ids() {
        return Err(EINVAL);
    }
    let trace = all.in_slot(slot as usize).ok_or(ENOENT)?;
    let member = trace.set(key).ok_or(ENOENT)?;
    let set = match trace.is(flag::SHARED) {
        true => trace.set(KEY_SHARED).ok_or(ENOENT)?,
        false => member,
    };
    if !set.buffers.get(cpu as usize).is_some_and(Option::is_some) {
        return Err(ENOENT);
    }
    trace.signal.ring();
    Ok(())
}

/// A thread of a process waits for room in a buffer, for as long as the trace says from the first
/// call on: a signal ends a call, and not the time. `EINVAL`: nobody waits there; `ENOENT`: there is
/// no buffer; `ETIMEDOUT`, `EINTR`.
pub(crate) fn wait_for_room(key: u64, slot: u32, cpu: u32, tail: u64) -> Result {
    let (buffer, signal, end, id) = {
        let mut all = TRACING.lock();
        let trace = all.in_slot(slot as usize).ok_or(ENOENT)?;
        if !trace.is(flag::WAIT) {
            return Err(EINVAL);
        }
        let set = trace.set(key).ok_or(ENOENT)?;
        let buffer = set.buffers.get(cpu as usize).and_then(Option::as_ref);
        let buffer = buffer.ok_or(ENOENT)?.clone();
        trace.signal.ring();
        let since = buffer.awaited_since(tail, misc::monotonic_ns());
        let end = match trace.wait_ms {
            u32::MAX => u64::MAX,
            ms => since.saturating_add(u64::from(ms).wrapping_mul(1_000_000)),
        };
        (buffer, trace.signal.clone(), end, trace.id)
    };
    if buffer.is_stalled() {
        return Err(ETIMEDOUT);
    }
    may_stop(key, id, false)?;
    loop {
        let left = end.saturating_sub(misc::monotonic_ns());
        let some = left.min(LOOK_NS);
        if signal.wait_for_room(|| buffer.position() != tail, some)? {
            return Ok(());
        }
        if some == left {
            buffer.stall();
            return Err(ETIMEDOUT);
        }
        may_stop(key, id, true)?;
    }
}

/// How long a thread waits until the rights of its trace are looked at again.
const LOOK_NS: u64 = 1_000_000_000;

/// May a trace still make threads of the calling process wait? It is asked if the process has
/// changed, or `anyhow`. `ENOENT`: it may not, and the process is put out of it; `EINTR`, `ENOMEM`.
fn may_stop(key: u64, id: u64, anyhow: bool) -> Result {
    let (asks, leader) = {
        let mut all = TRACING.lock();
        let (trace, process) = all.both(id, key).ok_or(ENOENT)?;
        if !trace.takes(process) {
            return Err(ENOENT);
        }
        if !anyhow && !process.has_changed() {
            return Ok(());
        }
        (trace.asks(), process.leader().ok_or(ENOENT)?.clone())
    };
    if asks.ask(&leader)? {
        return Ok(());
    }
    TRACING.lock().deny(id, key);
    Err(ENOENT)
}

/// Bytes of what a process may write.
pub(crate) fn mapped_bytes() -> u64 {
    (u64::from(cpu::nr_cpu_ids()) << trace::STRIDE).wrapping_mul(NR_TRACES as u64)
}

/// The page at a place of a process's mappings, put there under the lock, so that none comes
/// after it was taken out: a child's and others' are `nobodys`. `None`: nothing can be there.
pub(crate) fn fault<T>(
    key: Option<u64>,
    place: u64,
    nobodys: usize,
    put: impl FnOnce(usize) -> T,
) -> Option<T> {
    if place < map::READ_BYTES / PAGE as u64 {
        let mut all = TRACING.lock();
        let zeroes = all.zeroes.as_ref()?.address();
        let page = key.and_then(|key| read_page(&mut all, key, place as usize));
        return Some(put(page.unwrap_or(zeroes)));
    }
    let place = place.checked_sub(map::BUFFERS / PAGE as u64)?;
    let pages = 1u64 << (trace::STRIDE - PAGE.ilog2());
    let (buffer, number) = (place / pages, (place % pages) as usize);
    let slot = buffer.checked_div(cpu::nr_cpu_ids().into())?;
    let cpu = buffer.wrapping_sub(slot.wrapping_mul(cpu::nr_cpu_ids().into())) as usize;
    if slot >= NR_TRACES as u64 {
        return None;
    }
    let (mut spare, mut made) = (Spare::default(), Ok(()));
    loop {
        let mut all = TRACING.lock();
        let own = key.and_then(|key| Some(all.process(key).ok()?.nobodys()?.address()));
        let nobodys = own.unwrap_or(nobodys);
        let Some((key, trace)) = key.and_then(|key| taking(&mut all, key, slot as usize)) else {
            return Some(put(nobodys));
        };
        // Another trace may be in the slot by now: then this is not for it.
        if !spare.is_for(trace.id) {
            drop(all);
            spare = Spare::default();
            continue;
        }
        match trace.page(key, cpu, number, &mut spare) {
            Ok(page) => return Some(put(page.unwrap_or(nobodys))),
            Err(_) if made.is_err() => {
                trace.refuse(key, cpu);
                return Some(put(nobodys));
            }
            Err(need) => {
                let terms = trace.terms();
                drop(all);
                made = spare.make(need, &terms);
            }
        }
    }
}

/// The trace in a slot, if a process is in it.
fn taking(all: &mut Tracing, key: u64, slot: usize) -> Option<(u64, &mut KBox<Trace>)> {
    let at = all.place(key)?;
    let Tracing {
        traces, processes, ..
    } = all;
    let process = processes.get_mut(at)?;
    // Nobody's page, too, has to go when a trace begins.
    process.touch(slot);
    let mut traces = traces.iter_mut();
    let trace = traces.find(|trace| trace.slot == Some(slot))?;
    trace.takes(process).then_some((key, trace))
}

fn read_page(all: &mut Tracing, key: u64, place: usize) -> Option<usize> {
    let filters = map::FILTERS as usize / PAGE;
    let at = all.place(key)?;
    let Some(slot) = place.checked_sub(filters).filter(|slot| *slot < NR_TRACES) else {
        return all.processes.get(at)?.page(place);
    };
    let process = all.processes.get_mut(at)?;
    process.touch(slot);
    let mut traces = all.traces.iter();
    let trace = traces.find(|trace| trace.slot == Some(slot))?;
    match trace.takes(process) {
        true => Some(trace.filter.as_ref()?.address()),
        false => None,
    }
}
