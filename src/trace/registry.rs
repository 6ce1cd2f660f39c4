// SPDX-License-Identifier: GPL-2.0

//! The lists of all traces and of all traced processes. Each active trace occupies one of
//! [`NR_TRACES`] trace slots. New traces get the slots in rotation, so that a freed slot stays
//! unused for a long time.

use kernel::alloc::{KBox, KVVec};
use kernel::prelude::*;
use trace_rules::abi::{Describe, NR_TRACES};
use trace_rules::sorted::{search_limited, LimitedSearch, MAX_VISITS_PER_LOCK_HOLD};

use crate::helpers;
use crate::page::Page;
use crate::process::Process;
use crate::process_memory::max_traced;
use crate::sorted::{allocate_list_for_more_than, move_to_larger_list, search};
use crate::trace::{Trace, TraceQuota};
use base::access;
use base::account::{Resource, ResourceCharge};
use base::global_mutex;

global_mutex! {
    /// The state of user tracing. Page faults of traced processes take `TRACING`, so no user memory
    /// is accessed while `TRACING` is held. A file's `i_mmap_rwsem`, the lock of its mappings, is
    /// taken under `TRACING`.
    pub(crate) static TRACING: Mutex<Tracing> = Tracing::NONE;
}

/// Maximum number of active traces of one user without `CAP_PERFMON`.
const MAX_TRACES_PER_USER: usize = 8;
/// Number of slots that are reserved for traces of users with `CAP_PERFMON`.
const PERFMON_RESERVED_SLOTS: usize = 4;
/// Maximum number of traces of one user without `CAP_PERFMON`, including ended traces that are not
/// freed because files still refer to them.
const MAX_HELD_TRACES_PER_USER: usize = 32;
/// The key (unique number) of the first traced process. Keys below `FIRST_PROCESS_KEY` are
/// reserved.
const FIRST_PROCESS_KEY: u64 = 16;

/// All traces and traced processes, protected by the lock `TRACING`.
pub(crate) struct Tracing {
    /// All traces, including ended traces that are not freed yet.
    pub(crate) traces: KVVec<KBox<Trace>>,
    /// The traced processes, sorted by key.
    pub(crate) processes: KVVec<KBox<Process>>,
    /// The address spaces of processes that have not ended, with the keys of the processes, sorted
    /// by address space.
    pub(crate) address_spaces: KVVec<(usize, u64)>,
    /// The id of the trace in each slot; 0 if the slot is free.
    pub(super) slots: [u64; NR_TRACES],
    /// The generation of each slot: an odd number while a trace is in the slot.
    pub(super) generations: [u32; NR_TRACES],
    /// The slot at which the search for a free slot starts.
    next_slot: usize,
    /// The last id that was given to a trace or to a file that refers to a trace.
    last_id: u64,
    /// The key (unique number) that the next traced process gets.
    pub(crate) next_key: u64,
    /// A page of zeros. If a process reads an offset of the device file at which no page exists,
    /// the page of zeros is mapped there.
    pub(crate) zero_page: Option<Page>,
    /// True if the module is about to be unloaded: no process can attach and no trace can begin.
    pub(crate) is_unloading: bool,
}

/// Calls `what` with `TRACING` held, after the lists of processes and of address spaces have got
/// capacity for one more process. Memory for larger lists is allocated while `TRACING` is not held.
pub(crate) fn with_room_for_process<T>(what: impl FnOnce(&mut Tracing) -> Result<T>) -> Result<T> {
    let mut room = (KVVec::new(), KVVec::new());
    loop {
        let mut all = TRACING.lock();
        let nr = all.processes.len().max(all.address_spaces.len());
        if all.processes.capacity() > nr && all.address_spaces.capacity() > nr {
            return what(&mut all);
        }
        if room.0.capacity() > nr && room.1.capacity() > nr {
            move_to_larger_list(&mut all.processes, room.0);
            move_to_larger_list(&mut all.address_spaces, room.1);
            return what(&mut all);
        }
        drop(all);
        room = (
            allocate_list_for_more_than(nr)?,
            allocate_list_for_more_than(nr)?,
        );
    }
}

/// Adds a process to the lists of processes and of address spaces. The caller has reserved capacity
/// for the process in `processes` and `address_spaces`.
pub(crate) fn add_process(all: &mut Tracing, process: KBox<Process>) -> Result {
    let (key, mm) = (process.key, process.mm);
    let (Ok(at) | Err(at)) = search(&all.address_spaces, mm as u64, |(mm, _)| *mm as u64);
    let spaces = all.address_spaces.insert_within_capacity(at, (mm, key));
    let (Ok(at) | Err(at)) = search(&all.processes, key, |process| process.key);
    let processes = all.processes.insert_within_capacity(at, process);
    spaces.map_err(|_| ENOMEM)?;
    processes.map_err(|_| ENOMEM)?;
    set_traced(mm, true);
    Ok(())
}

/// Records that an address space is traced, or is no longer traced. A child process may share a
/// traced address space, and with it a `struct perftrace_thread`. Before such a child enters user
/// mode, `pt_queue_shared_thread()` marks the thread id in this structure as shared.
#[expect(unsafe_code, reason = "a call of C")]
pub(super) fn set_traced(mm: usize, is_traced: bool) {
    // SAFETY: `pt_set_traced()` uses the address `mm` as a number only.
    unsafe { helpers::pt_set_traced(mm, is_traced) }
}

/// Returns `ENOSPC` if `max_traced`, the limit of traced processes of all users together, is
/// reached. The limit per user is checked when a [`Process`] is created.
pub(crate) fn check_process_limit(all: &Tracing) -> Result {
    match all.processes.len() >= max_traced() {
        true => Err(ENOSPC),
        false => Ok(()),
    }
}

impl Tracing {
    /// The initial state, in which no traces and no processes exist.
    pub(crate) const NONE: Self = Self {
        traces: KVVec::new(),
        processes: KVVec::new(),
        address_spaces: KVVec::new(),
        slots: [0; NR_TRACES],
        generations: [0; NR_TRACES],
        next_slot: 0,
        last_id: 1,
        next_key: FIRST_PROCESS_KEY,
        zero_page: None,
        is_unloading: false,
    };

    /// Returns `ENODEV` if the module is about to be unloaded.
    pub(crate) fn check_not_unloading(&self) -> Result {
        match self.is_unloading {
            true => Err(ENODEV),
            false => Ok(()),
        }
    }

    /// Returns the trace with this id, or `EINVAL` if no trace has this id.
    pub(crate) fn trace(&mut self, id: u64) -> Result<&mut Trace> {
        let mut traces = self.traces.iter_mut();
        let found = traces.find(|trace| trace.id == id).ok_or(EINVAL)?;
        Ok(found)
    }

    /// Returns the trace in a slot, or `None` if the slot is free.
    pub(crate) fn trace_in_slot(&mut self, slot: usize) -> Option<&mut Trace> {
        match *self.slots.get(slot)? {
            0 => None,
            id => self.trace(id).ok(),
        }
    }

    /// Returns the index in `processes` of the process with this key, or `None` if no process has
    /// this key.
    pub(crate) fn process_index(&self, key: u64) -> Option<usize> {
        search(&self.processes, key, |process| process.key).ok()
    }

    /// Returns the key of the traced process that has this address space, or `None` if there is no
    /// such process or the process has ended.
    pub(crate) fn key_of_mm(&self, mm: usize) -> Option<u64> {
        let at = search(&self.address_spaces, mm as u64, |(mm, _)| *mm as u64).ok()?;
        self.address_spaces.get(at).map(|(_, key)| *key)
    }

    /// Counts a failure to trace a process or one of its children, because memory was short or a
    /// limit was reached. The failure is counted in all traces that the process could have joined.
    pub(crate) fn count_untraced(&mut self, key: u64) {
        let Some(at) = self.process_index(key) else {
            return;
        };
        let Self {
            traces, processes, ..
        } = self;
        let Some(process) = processes.get(at) else {
            return;
        };
        for trace in traces
            .iter_mut()
            .filter(|trace| trace.accepts_process(process))
        {
            trace.count_untraced();
        }
    }

    /// Returns the process with this key, or `ESRCH` if no process has this key.
    pub(crate) fn process(&mut self, key: u64) -> Result<&mut Process> {
        let place = self.process_index(key).ok_or(ESRCH)?;
        Ok(self.processes.get_mut(place).ok_or(ESRCH)?)
    }

    /// Returns the process with this key if it has not ended, otherwise `ESRCH`.
    pub(crate) fn live_process(&mut self, key: u64) -> Result<&mut Process> {
        let process = self.process(key)?;
        match process.has_ended() {
            true => Err(ESRCH),
            false => Ok(process),
        }
    }

    /// Returns the generation of a slot.
    pub(super) fn generation(&self, slot: usize) -> u32 {
        self.generations.get(slot).copied().unwrap_or(0)
    }

    /// Returns the trace with this id and the process with this key, or `None` if either does not
    /// exist.
    pub(super) fn trace_and_process(
        &mut self,
        id: u64,
        key: u64,
    ) -> Option<(&mut KBox<Trace>, &mut KBox<Process>)> {
        let at = self.process_index(key)?;
        let trace = self.traces.iter_mut().find(|trace| trace.id == id)?;
        Some((trace, self.processes.get_mut(at)?))
    }

    /// Finds a free slot for a new trace of the caller, and counts the trace in the caller's
    /// quotas.
    ///
    /// # Errors
    ///
    /// `EBUSY` if no slot is free or a quota of the caller is exhausted, `ENOMEM` if memory is
    /// short.
    pub(super) fn find_slot_and_charge_quota(&self) -> Result<(usize, TraceQuota)> {
        let capable = access::is_perfmon_capable();
        let most = |limit: usize| if capable { usize::MAX } else { limit };
        let used = self.slots.iter().filter(|id| **id != 0).count();
        if used >= NR_TRACES.wrapping_sub(if capable { 0 } else { PERFMON_RESERVED_SLOTS }) {
            return Err(EBUSY);
        }
        let share = |thing, limit| ResourceCharge::of_caller(thing, most(limit), EBUSY);
        let shares = TraceQuota {
            _charge_until_freed: share(Resource::PFC_HELD_TRACES, MAX_HELD_TRACES_PER_USER)?,
            charge_until_ended: Some(share(Resource::PFC_TRACES, MAX_TRACES_PER_USER)?),
        };
        let mut slots = (0..NR_TRACES).map(|n| self.next_slot.wrapping_add(n) % NR_TRACES);
        let free = slots.find(|slot| self.slots.get(*slot) == Some(&0));
        Ok((free.ok_or(EBUSY)?, shares))
    }

    /// Puts a new trace into its slot and into the list of traces. The caller has reserved capacity
    /// for one more trace in the list.
    pub(super) fn begin(&mut self, mut trace: KBox<Trace>, slot: usize) -> Result {
        trace.state.begin(slot);
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

    /// Returns the process `key`, and the trace with the lowest id that is greater than `after` and
    /// for which `wanted` returns true.
    pub(super) fn next_trace_where(
        &self,
        key: u64,
        after: u64,
        wanted: impl Fn(&Trace, &Process) -> bool,
    ) -> Option<(&Trace, &Process)> {
        let process: &Process = self.processes.get(self.process_index(key)?)?;
        let later = self.traces.iter().filter(|trace| trace.id > after);
        let trace = later
            .filter(|trace| wanted(trace, process))
            .min_by_key(|trace| trace.id)?;
        Some((trace, process))
    }

    /// Returns the process `key`, and a trace that the process is in or that has buffers of the
    /// process. Of all such traces, the function returns the one with the lowest id that is greater
    /// than `after`.
    pub(super) fn next_trace_with_process(
        &self,
        key: u64,
        after: u64,
    ) -> Option<(&Trace, &Process)> {
        self.next_trace_where(key, after, |trace, process| {
            trace.has_live(process) || trace.buffer_set(key).is_some()
        })
    }

    /// Searches for the first registered marker of the process `key` whose number is `number` or
    /// higher. If this process has no such marker, searches for the first registered marker of a
    /// process with a higher key.
    pub(super) fn next_marker_from(&self, key: u64, number: usize) -> LimitedSearch<Describe> {
        let registered = |process: &KBox<Process>| {
            let from = if process.key == key { number } else { 0 };
            let mut rest = process.markers.iter().zip(0usize..usize::MAX).skip(from);
            let (known, number) = rest
                .find(|(_, number)| process.nr_registrations(*number) != 0)
                .filter(|_| !process.has_ended())?;
            Some(Describe {
                key: process.key,
                number: number as u32,
                refs: process.nr_registrations(number),
                marker: known.abi_marker(number),
            })
        };
        self.search_processes(key, registered)
    }

    /// Searches the next [`MAX_VISITS_PER_LOCK_HOLD`] processes for the process with the lowest
    /// key, `from` or higher, that is in the trace of a slot.
    pub(super) fn find_process_in_slot_from(&self, from: u64, slot: usize) -> LimitedSearch<u64> {
        self.search_processes(from, |process| {
            process.is_in_slot(slot).then_some(process.key)
        })
    }

    /// Searches the next [`MAX_VISITS_PER_LOCK_HOLD`] processes from the key `from` on.
    pub(super) fn search_processes<R>(
        &self,
        from: u64,
        wanted: impl FnMut(&KBox<Process>) -> Option<R>,
    ) -> LimitedSearch<R> {
        let key_of = |process: &KBox<Process>| process.key;
        search_limited(
            &self.processes,
            from,
            MAX_VISITS_PER_LOCK_HOLD,
            key_of,
            wanted,
        )
    }

    /// Returns a new id for a trace or a file.
    pub(super) fn id(&mut self) -> u64 {
        self.last_id = self.last_id.wrapping_add(1);
        self.last_id
    }
}
