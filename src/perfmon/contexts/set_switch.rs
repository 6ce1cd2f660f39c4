// SPDX-License-Identifier: GPL-2.0

//! Switches of event sets: the order of a context's sets, and the switch to another active set. The
//! registers of the active set are programmed into a PMU while the context counts. A *run* of a set
//! lasts from the switch to the set until the switch to the next set.

use kernel::prelude::*;
use perfmon_rules::error::Error;
use perfmon_rules::event_sets::{self, SwitchPolicy};

use crate::contexts::context::{Context, ContextState};
use crate::stats::{self, PerfmonStatistic};
use base::preempt;

impl ContextState {
    /// Computes the order of the event sets: the set that follows each set. Returns `NoSet` if user
    /// space has specified a next set that does not exist.
    pub(crate) fn compute_set_order(&mut self) -> Result<(), Error> {
        let nr = self.sets.slots.len();
        for at in 0..nr {
            let id = self.sets.slots.get(at).map_or(0, |slot| slot.id);
            let terms = self
                .find_set(id)
                .map_or(SwitchPolicy::default(), |s| s.runs.policy);
            let after = event_sets::next_index(&terms, at, nr, |id| self.sets.index_of(id))?;
            if let Some(slot) = self.sets.slots.get_mut(at) {
                slot.next_slot = after;
            }
        }
        Ok(())
    }
}

impl Context {
    /// Ends the run of the active event set and makes the next set active. Does nothing while the
    /// context is masked: if a switch is due, `PERFMON_RESTART` makes the next set active.
    #[cold]
    pub(crate) fn switch_set(&self, state: &mut ContextState) {
        if state.sampling.masked {
            return;
        }
        let _span = stats::count_and_time(
            PerfmonStatistic::SetSwitches,
            PerfmonStatistic::SetSwitchTime,
        );
        let inside = state.phase.pmu_cpu().is_some();
        if inside {
            self.save_pmu(state);
        }
        self.sync_thread_counters(state);
        // Deliver the overflows of the active set before the switch. The delivery of an overflow
        // can mask the context.
        self.deliver_overflows(state, None);
        if state.sampling.masked {
            state.sets.is_switch_due = true;
            return;
        }
        let next = state
            .sets
            .slots
            .get(state.sets.active_slot)
            .map_or(0, |s| s.next_slot);
        self.activate_slot_outside_pmu(state, next);
        if inside {
            self.load_pmu_if_active(state);
        }
    }

    /// Switches to the next event set. May be called in an NMI.
    #[inline(never)]
    pub(crate) fn switch_set_even_in_nmi(&self, state: &mut ContextState) {
        self.switch_set(state);
        // The irq_work starts the timer, which an NMI cannot do.
        if state.needs_timer() && preempt::in_nmi() {
            self.deferral.queue_work();
        }
    }

    /// Ends the run of the active event set and makes the set in the slot `place` active. Called
    /// while the context is not programmed into any PMU.
    pub(crate) fn activate_slot_outside_pmu(&self, state: &mut ContextState, place: usize) {
        state.active_set.end_run();
        state.sets.is_switch_due = false;
        let ContextState {
            active_set, sets, ..
        } = &mut *state;
        sets.swap_active_set(active_set, place);
        if state.phase.is_started() {
            self.start_thread_counters(state);
        }
    }

    /// Makes the event set with the number `id` active. If the context is programmed into the PMU
    /// of a CPU, only code on that CPU may call this function.
    ///
    /// # Errors
    ///
    /// `NoSet` if the event set does not exist, `Masked` if the context is masked until
    /// `PERFMON_RESTART`.
    pub(crate) fn activate_set(&self, state: &mut ContextState, id: u16) -> Result<(), Error> {
        let place = state.sets.index_of(id).ok_or(Error::NoSet)?;
        if place == state.sets.active_slot {
            return Ok(());
        }
        // `PERFMON_RESTART` resets PMDs of the active event set, so the set must stay active until
        // `PERFMON_RESTART`.
        if state.sampling.masked {
            return Err(Error::Masked);
        }
        let started = state.phase.is_started();
        self.stop_counting(state);
        // stop_counting() has delivered pending overflows, which can have masked the context.
        if state.sampling.masked {
            if started {
                state.phase.start();
            }
            return Err(Error::Masked);
        }
        self.activate_slot_outside_pmu(state, place);
        if started {
            self.start_counting(state);
        }
        Ok(())
    }
}
