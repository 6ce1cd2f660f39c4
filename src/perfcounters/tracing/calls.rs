// SPDX-License-Identifier: GPL-2.0

//! System calls on files of `/dev/perftrace` that open, end, pause, list and read traces.

use kernel::alloc::KBox;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::task::Task;
use trace_rules::abi::{self as abi, flag, Describe, Info, Zero, NR_TRACES};
use trace_rules::abi::{KEY_KERNEL, KEY_SHARED};

use super::ends::{each_member, Member};
use super::kernel_events::MARKERS;
use super::marker;
use super::membership::set_all_marker_bits;
use super::process::Process;
use super::trace::Trace;
use super::{Caller, TraceRef, Tracing};
use crate::sys;
use crate::sys::access::{self, AccessSnapshot};
use crate::sys::account::{Resource, ResourceCharge};
use crate::sys::buffers::Buffer;
use crate::sys::lock::TRACING;
use crate::sys::process::uid_of;

/// Limit for concurrent calls of [`open`] by one user without CAP_PERFMON.
const MAX_PERMISSION_CHECKS: usize = 8;

/// Opens a trace by its name: a trace of the caller or, with `CAP_PERFMON`, of any user.
///
/// # Errors
///
/// `ENOENT` if no such trace exists; `EPERM` if the security modules do not let the caller inspect
/// a task with the credentials of the trace's maker; `EBUSY` beyond [`MAX_PERMISSION_CHECKS`]
/// concurrent calls.
pub(crate) fn open(name: &[u8]) -> Result<(TraceRef, Info)> {
    let caller = Caller::new();
    let all = TRACING.lock();
    let has_name = |t: &&KBox<Trace>| t.is_on() && t.has_name(name) && caller.may_open(t);
    let named = || all.traces.iter().filter(has_name);
    let own = named().find(|trace| trace.owner == caller.uid);
    let found = own.or(named().next()).ok_or(ENOENT)?;
    let (id, maker) = (found.id, found.maker());
    drop(all);
    if !caller.capable {
        // check_cred_access() creates a kernel thread for the time of the call, so the number of
        // concurrent calls of one user is limited.
        let _asks =
            ResourceCharge::of_caller(Resource::PermissionChecks, MAX_PERMISSION_CHECKS, EBUSY)?;
        access::check_cred_access(&maker)?;
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
    Ok((all.new_ref(id, signal), info))
}

/// Ends a trace. An ended trace can still be read. Returns `ENOENT` if the trace has already ended.
pub(crate) fn end(id: u64) -> Result {
    let mut all = TRACING.lock();
    all.trace(id)?;
    let (slot, going) = all.begin_end(id).ok_or(ENOENT)?;
    drop(all);
    each_member(slot, |all, key| {
        all.remove_from_slot(key, slot);
        true
    });
    TRACING.lock().finish_end(id, slot);
    drop(going);
    Ok(())
}

/// Pauses a trace, or resumes it. A paused trace wants no events.
pub(crate) fn pause(id: u64, pause: bool) -> Result {
    let mut all = TRACING.lock();
    let trace = all.trace(id)?;
    if trace.has_flag(flag::PAUSED) == pause {
        // Without this return, resuming a trace that is not paused would clear the markers' bits
        // for a moment and lose events.
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
        // A concurrent call that resumes or ends the trace updates the processes of the trace
        // itself.
        each_member(slot, |all, key| {
            let trace = all.traces.iter().find(|trace| trace.id == id);
            let paused = trace.is_some_and(|t| t.slot == Some(slot) && t.has_flag(flag::PAUSED));
            if let (true, Ok(process)) = (paused, all.process(key)) {
                process.clear_wanted(slot);
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
                set_all_marker_bits(id, key);
                key.wrapping_add(1)
            }
            Member::From(key) => key,
            Member::None => break,
        };
    }
    Ok(())
}

/// Returns the data of `PERFTRACE_INFO`.
pub(crate) fn info(id: u64) -> Result<Info> {
    let all = TRACING.lock();
    let trace = all.traces.iter().find(|t| t.id == id).ok_or(EINVAL)?;
    Ok(all.info(trace))
}

/// Returns the data of the first trace, in the slot `slot` or a later slot, that the caller may
/// open. Returns `ENOENT` if no such trace exists.
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

/// Returns the next buffer with unread data after the buffer of the process `key` and the CPU
/// `cpu`. A call with the key 0 begins a new pass over all buffers.
///
/// # Errors
///
/// `EBUSY` if another file reads the trace, `ENOENT` if nothing is unread.
pub(crate) fn next(held: &TraceRef, key: u64, cpu: u32) -> Result<(u64, u32, Arc<Buffer>)> {
    let TraceRef { id, reader, .. } = *held;
    let mut all = TRACING.lock();
    let trace = all.trace(id)?;
    if !trace.has_flag(flag::FLIGHT) {
        if trace.reader != 0 && trace.reader != reader {
            return Err(EBUSY);
        }
        trace.reader = reader;
    }
    if key == 0 {
        trace.signal.clear_pending();
        // Ended processes are removed from this trace only, because readers of other traces may
        // still ask for the processes and markers of records that they have read.
        all.reap(id);
        all.free_unreferenced();
    }
    all.trace(id)?.next(key, cpu).ok_or(ENOENT)
}

/// Returns whether the reader of a trace may have the data of a process that the reader has just
/// copied.
///
/// If the process has changed since the permission was last checked, the permission is checked once
/// more. The permission check is more recent than the copy of the data, so later changes do not
/// matter. Returns `EINTR` or `ENOMEM` if the check could not be made.
pub(crate) fn may_read(held: &TraceRef, key: u64) -> Result<bool> {
    let mut after = 0u64;
    loop {
        let changed = TRACING.lock().changed(held.id, key, after);
        let Some((changed, leader)) = changed else {
            break;
        };
        if sys::process::is_dying() {
            return Err(EINTR);
        }
        recheck_permission(changed, &leader)?;
        after = changed;
    }
    Ok(TRACING.lock().trace(held.id)?.set(key).is_some())
}

/// Checks the permission to trace a changed process, for the makers of all traces that the process
/// is in. Data that the process has written since the change need the new permission. The caller
/// does not hold `TRACING`. Returns `EINTR` or `ENOMEM` if the check could not be made.
fn recheck_permission(key: u64, leader: &Task) -> Result {
    // The snapshot is taken before the check, so that a change during the check is noticed.
    let seen = AccessSnapshot::of(leader)?;
    let mut after = 0u64;
    loop {
        let found = TRACING
            .lock()
            .trace_with(key, after)
            .map(|(trace, _)| trace.permission_check());
        let Some(asks) = found else { break };
        after = asks.id;
        if !asks.check(leader)? {
            TRACING.lock().deny(asks.id, key);
        }
    }
    TRACING.lock().set_seen(key, seen);
    Ok(())
}

/// Returns whether a trace has ended, for poll().
pub(crate) fn has_ended(id: u64) -> bool {
    let all = TRACING.lock();
    let trace = all.traces.iter().find(|t| t.id == id);
    trace.is_none_or(|trace| trace.slot.is_none())
}

/// Returns the data of a process in a trace, or `ENOENT` if the process is not in the trace.
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
    Ok(process_info(all.process(key).map_err(|_| ENOENT)?))
}

/// Returns the data of a live process that the caller may trace, or `ENOENT`. The process need not
/// be in a trace.
pub(crate) fn any_process(key: u64) -> Result<abi::Process> {
    let caller = Caller::new();
    let (told, leader) = {
        let mut all = TRACING.lock();
        let process = all.process(key).map_err(|_| ENOENT)?;
        if process.has_ended() {
            return Err(ENOENT);
        }
        (
            process_info(process),
            process.leader().ok_or(ENOENT)?.clone(),
        )
    };
    match caller.may_trace(&leader) {
        true => Ok(told),
        false => Err(ENOENT),
    }
}

/// Returns the data of a process as `struct perftrace_process`.
fn process_info(process: &Process) -> abi::Process {
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

/// Returns a marker of a process in a trace, or `ENOENT` if no such marker exists.
pub(crate) fn describe(id: u64, key: u64, number: u32) -> Result<Describe> {
    let mut all = TRACING.lock();
    all.trace(id)?.set(key).ok_or(ENOENT)?;
    if key == KEY_KERNEL {
        let (name, fields) = MARKERS.get(number as usize).ok_or(ENOENT)?;
        return Ok(Describe {
            key,
            number,
            refs: 1,
            marker: marker::marker(name, fields, number as usize),
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

/// Returns the first marker that the caller may trace, from marker `number` of process `key` on,
/// continuing with processes that have higher keys. Returns `ENOENT` if no such marker exists, or
/// `EINTR`.
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
        // The caller may trace none of this process's markers.
        (key, number) = (found.key.wrapping_add(1), 0);
    }
}

/// Frees all traces and processes. Called when the module is unloaded; then no file is open and no
/// trace is kept.
pub(crate) fn free_all() {
    let mut all = TRACING.lock();
    let was = core::mem::replace(&mut *all, Tracing::NONE);
    drop(all);
    drop(was);
}
