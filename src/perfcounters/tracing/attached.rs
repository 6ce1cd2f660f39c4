// SPDX-License-Identifier: GPL-2.0

//! What traced processes ask for: to be traced, to have their markers known, and the pages that
//! they touch.

use engine::trace::{self, flag, map, Marker, KEY_SHARED, NR_TRACES};
use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KBox;
use kernel::prelude::*;

use crate::sys::buffers::{Page, PAGE};
use crate::sys::cpu;
use crate::sys::lock::TRACING;
use crate::sys::ppa::Clock;
use crate::sys::process::{Mapping, Mm, Who};
use crate::tracing::process::{Known, Process};
use crate::tracing::trace::{search, Spare, Trace};
use crate::tracing::Tracing;

/// Processes that are traced, or not read, at the most.
const MOST: usize = 1 << 16;
/// The same of one user.
const OF_ONE_USER: usize = MOST / 4;

/// The caller's process is traced from now on: its key. `EBUSY`: it is already. May sleep.
pub(crate) fn attach(mm: &Mm, mapping: Mapping, shared: bool) -> Result<u64> {
    let key = {
        let mut all = TRACING.lock();
        may_attach(&all, mm)?;
        let key = all.next_key;
        all.next_key = key.wrapping_add(1);
        key
    };
    // Memory is got without the lock: where it is scarce that takes its time.
    let mut zeroes = Some(Page::new()?);
    let process = Process::new(key, mm, Some(mapping), shared, Clock::choose())?;
    let process = KBox::new(process, GFP_KERNEL)?;
    let mut all = TRACING.lock();
    may_attach(&all, mm)?;
    if all.zeroes.is_none() {
        all.zeroes = zeroes.take();
    }
    all.processes.reserve(1, GFP_KERNEL)?;
    let at = match search(&all.processes, key, |process| process.key) {
        Ok(place) | Err(place) => place,
    };
    let done = all.processes.insert_within_capacity(at, process);
    done.map_err(|_| ENOMEM)?;
    all.tell(key, true, None);
    Ok(key)
}

/// `EBUSY`: it is traced; `ENOSPC`: too many are, of its user or of all.
fn may_attach(all: &Tracing, mm: &Mm) -> Result {
    let uid = Who::calls().uid;
    let mut own = 0usize;
    for process in &all.processes {
        if process.mm == mm.address() && !process.has_ended() {
            return Err(EBUSY);
        }
        own = own.wrapping_add(usize::from(process.who.uid == uid));
    }
    let most = all.processes.len() >= MOST || own >= OF_ONE_USER;
    match most {
        true => Err(ENOSPC),
        false => Ok(()),
    }
}

/// It has, or has not, one more mapping; without any it has ended.
pub(crate) fn maps(key: u64, one_more: bool) {
    let mut all = TRACING.lock();
    let Ok(process) = all.process(key) else {
        return;
    };
    process.maps = match one_more {
        true => process.maps.saturating_add(1),
        false => process.maps.saturating_sub(1),
    };
    if process.maps == 0 {
        end_process(&mut all, key);
    }
}

/// Its file is closed: it has ended, if it has not before.
pub(crate) fn detach(key: u64) {
    end_process(&mut TRACING.lock(), key);
}

fn end_process(all: &mut Tracing, key: u64) {
    let Ok(process) = all.process(key) else {
        return;
    };
    if process.mapping.take().is_none() {
        return;
    }
    for trace in all.traces.iter().filter(|t| t.set(key).is_some()) {
        trace.signal.ring();
    }
    all.limit(key);
    all.forget();
}

/// Markers of a process: each gets its number. None is there if one is refused, which is told.
/// May sleep.
pub(crate) fn register(key: u64, markers: &mut [Marker], bad: &mut u32) -> Result {
    let mut done = 0usize;
    let mut failed = None;
    for marker in markers.iter_mut() {
        // One at a time: others have their turns in between.
        let linked = Known::new(marker).and_then(|known| {
            let mut all = TRACING.lock();
            let (number, new) = all.process(key)?.register(known)?;
            if new {
                all.tell(key, false, Some(number));
            }
            Ok(number)
        });
        match linked {
            Ok(number) => marker.number = number as u32,
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
        done = done.wrapping_add(1);
    }
    let Some(error) = failed else { return Ok(()) };
    *bad = done as u32;
    for marker in markers.iter().take(done) {
        let _ = unregister(key, marker.number);
    }
    Err(error)
}

/// One is taken back. `EINVAL`: there is none of that number.
pub(crate) fn unregister(key: u64, number: u32) -> Result {
    TRACING.lock().process(key)?.unregister(number as usize)
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
        let Some((key, trace)) = key.and_then(|key| taking(&mut all, key, slot as usize)) else {
            return Some(put(nobodys));
        };
        match trace.page(key, cpu, number, &mut spare) {
            Ok(page) => return Some(put(page.unwrap_or(nobodys))),
            Err(_) if made.is_err() => {
                trace.refuse(key, cpu);
                return Some(put(nobodys));
            }
            Err(need) => {
                let buffers = (trace.bytes, trace.is(flag::FLIGHT));
                drop(all);
                // Another trace may be in the slot afterwards: then this is not for it.
                if spare.is_for(buffers) {
                    made = spare.make(need, buffers);
                } else {
                    spare = Spare::default();
                }
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
    let process = processes.get(at)?;
    let mut traces = traces.iter_mut();
    let trace = traces.find(|trace| trace.slot == Some(slot))?;
    trace.takes(process).then_some((key, trace))
}

fn read_page(all: &mut Tracing, key: u64, place: usize) -> Option<usize> {
    let filters = map::FILTERS as usize / PAGE;
    let at = all.place(key)?;
    let process = all.processes.get(at)?;
    let Some(slot) = place.checked_sub(filters) else {
        return process.page(place);
    };
    let mut traces = all.traces.iter();
    let trace = traces.find(|trace| trace.slot == Some(slot))?;
    match trace.takes(process) {
        true => Some(trace.filter.as_ref()?.address()),
        false => None,
    }
}
