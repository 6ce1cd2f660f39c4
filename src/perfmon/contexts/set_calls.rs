// SPDX-License-Identifier: GPL-2.0

//! System calls on the event sets of a context: sets are created, deleted and described.
//!
//! Event sets are created and deleted only while the context is detached, with `SESSION` and the
//! context's `alloc_lock` held. The memory for new sets is allocated with only `alloc_lock` held,
//! before `SESSION` is taken.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KBox, KVec};
use kernel::prelude::*;
use perfmon_rules::abi::{Runs, SetInfo};
use perfmon_rules::error::Error;
use perfmon_rules::event_sets::{self, SwitchPolicy};

use crate::contexts::context::{Context, ContextState};
use crate::contexts::event_set::{EventSet, EventSetSlot};
use crate::contexts::phase::Target;
use crate::pmus::to_kernel_error;
use crate::session::SESSION;
use base::clock;

impl ContextState {
    /// Returns the error `Loaded` if the context is attached, is being attached, or has ended.
    fn check_detached(&self) -> Result<(), Error> {
        match self.phase.target() {
            Target::Detached if !self.is_clearing_perf_counters => Ok(()),
            _ => Err(Error::Loaded),
        }
    }
}

impl Context {
    /// Creates event sets, or changes the conditions under which existing event sets are switched.
    /// On failure, no event set is created or changed.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the context is not detached, `ENOSPC` if the context would have more than
    /// [`event_sets::MAX_SETS`] event sets, `EDQUOT`, `ENOMEM`.
    pub(crate) fn create_sets(&self, wanted: &[(u16, SwitchPolicy)]) -> Result {
        let _growing = self.alloc_lock.lock();
        let nr = {
            let state = self.state.lock();
            state.check_detached().map_err(to_kernel_error)?;
            state.sets.slots.len()
        };
        // Allocate all memory before the context's lock is taken.
        let room = nr.saturating_add(wanted.len());
        let mut slots = KVec::with_capacity(room, GFP_KERNEL_ACCOUNT)?;
        let mut fresh: KVec<KBox<EventSet>> =
            KVec::with_capacity(wanted.len(), GFP_KERNEL_ACCOUNT)?;
        for (id, _) in wanted {
            let known = self.state.lock().find_set(*id).is_some();
            if !known && fresh.iter().all(|set| set.id != *id) {
                fresh.push(EventSet::new(*id, &self.charge)?, GFP_KERNEL_ACCOUNT)?;
            }
        }
        if nr.saturating_add(fresh.len()) > event_sets::MAX_SETS {
            return Err(ENOSPC);
        }
        let _session = SESSION.lock();
        let mut state = self.state.lock();
        state.check_detached().map_err(to_kernel_error)?;
        for slot in state.sets.slots.drain_all() {
            let _ = slots.push_within_capacity(slot);
        }
        for set in fresh.drain_all() {
            let at = slots.partition_point(|slot: &EventSetSlot| slot.id < set.id);
            let slot = EventSetSlot {
                id: set.id,
                next_slot: 0,
                set: Some(set),
            };
            let _ = slots.insert_within_capacity(at, slot);
        }
        let active = state.active_set.id;
        let old = core::mem::replace(&mut state.sets.slots, slots);
        state.sets.active_slot = state.sets.index_of(active).unwrap_or(0);
        for (id, terms) in wanted {
            if let Some(set) = state.find_set_mut(*id) {
                set.runs.policy = *terms;
            }
        }
        // Free the old list of slots only after the context's lock was released.
        drop(state);
        drop(old);
        Ok(())
    }

    /// Deletes event sets. On failure, no event set is deleted.
    ///
    /// # Errors
    ///
    /// `EINVAL` for event set 0 and for event sets that do not exist, `EBUSY` if the context is not
    /// detached, `ENOMEM`.
    pub(crate) fn delete_sets(&self, ids: &[u16]) -> Result {
        let _growing = self.alloc_lock.lock();
        let mut gone = KVec::with_capacity(ids.len(), GFP_KERNEL_ACCOUNT)?;
        let _session = SESSION.lock();
        let mut state = self.state.lock();
        state.check_detached().map_err(to_kernel_error)?;
        if ids
            .iter()
            .any(|id| *id == 0 || state.find_set(*id).is_none())
        {
            return Err(to_kernel_error(Error::NoSet));
        }
        if ids.contains(&state.active_set.id) {
            self.activate_slot_outside_pmu(&mut state, 0);
        }
        for id in ids {
            if let Some(place) = state.sets.index_of(*id) {
                if let Ok(slot) = state.sets.slots.remove(place) {
                    let _ = gone.push_within_capacity(slot);
                }
            }
        }
        state.sets.active_slot = state.sets.index_of(state.active_set.id).unwrap_or(0);
        // Free the deleted event sets only after the context's lock was released.
        drop(state);
        drop(gone);
        Ok(())
    }

    /// Fills in the results of `PERFMON_GETINFO_EVTSETS`: the switch conditions and the run
    /// statistics of event sets, and the registers that contexts can claim. Returns `EINVAL` if an
    /// event set does not exist.
    pub(crate) fn fill_set_infos(&self, infos: &mut [SetInfo]) -> Result {
        let free = SESSION.lock().available_registers(self.scope);
        let (pmcs, pmds) = self.pmu_registers.available_registers(self.scope, &free);
        self.fill_each_from_state(infos, |state, now, info| {
            let set = state.find_set(info.set_id).ok_or(Error::NoSet)?;
            let terms = set.runs.policy;
            *info = SetInfo {
                set_id: info.set_id,
                set_id_next: terms.next_set().unwrap_or(0),
                set_flags: terms.flags(),
                set_ovfl_pmds: set.runs.ended_by_pmds.to_bitmap(),
                set_runs: set.runs.nr_runs(),
                set_timeout: set.runs.run_remaining_ns(now).unwrap_or(0),
                set_act_duration: set.runs.duration_totals(now).0,
                set_avail_pmcs: pmcs,
                set_avail_pmds: pmds,
                reserved: [0; 6],
            };
            Ok(())
        })
    }

    /// Fills in the results of `PERFMON_READ_RUNS` for each PMD in `all`: the sums that `struct
    /// perfmon_runs` describes, over all runs of the PMD's event set. Returns `EINVAL` if the event
    /// set does not exist or the PMD does not count in it.
    pub(crate) fn read_runs(&self, all: &mut [Runs]) -> Result {
        self.fill_each_from_state(all, |state, now, runs| {
            let set = state.find_set(runs.reg_set).ok_or(Error::NoSet)?;
            let moments = set.run_moments.iter().find(|m| m.pmd == runs.reg_num);
            let moments = moments.ok_or(Error::NoRegister)?;
            let halves = |sum: u128| [sum as u64, (sum >> 64) as u64];
            let (time, time2) = set.runs.duration_totals(now);
            let value = set.registers.pmd_value(runs.reg_num);
            let (value, value2, products) = moments.totals(value, set.runs.run_elapsed_ns(now));
            (runs.runs, runs.time, runs.time2) = (set.runs.nr_runs(), time, halves(time2));
            (runs.value, runs.value2) = (value, halves(value2));
            runs.value_time = halves(products);
            runs.reg_flags = set.registers.short_flag_if_incomplete(runs.reg_num);
            Ok(())
        })
    }

    /// Updates the values of the context and calls `answer` for each element of `all`. All calls of
    /// `answer` get the same state of the context and the same time.
    fn fill_each_from_state<T>(
        &self,
        all: &mut [T],
        answer: impl Fn(&ContextState, u64, &mut T) -> Result<(), Error>,
    ) -> Result {
        let mut done = Ok(());
        self.with_state_unless_other_cpu(&mut |state| {
            self.sync_and_deliver(state);
            let now = clock::monotonic_ns_in_any_context();
            done = all.iter_mut().try_for_each(|one| answer(state, now, one));
        })
        .and(done)
        .map_err(to_kernel_error)
    }
}
