// SPDX-License-Identifier: GPL-2.0

//! Throttling: a context that takes too many samples counts without taking samples for a while.

use perfmon_rules::period::SamplingAttributes;
use perfmon_rules::register_bitmap::PmdSet;
use protocols::ring::{RECORD_THROTTLE, RECORD_UNTHROTTLE};

use crate::contexts::context::{Context, ContextState};
use crate::msr;
use crate::stats::{self, PerfmonStatistic};
use base::clock;

impl Context {
    /// Throttles the context for `nanoseconds`: during this time the context counts without
    /// overflow interrupts. Called in an NMI, or with interrupts off.
    pub(crate) fn throttle(&self, nanoseconds: u64) {
        let Some(mut state) = self.state.try_lock() else {
            return;
        };
        if !state.phase.is_in_this_cpu_pmu() || state.sampling.is_throttled() {
            return;
        }
        stats::count(PerfmonStatistic::Throttles);
        self.sync(&mut state);
        self.deliver_overflows(&mut state, None);
        let now = clock::monotonic_ns_in_any_context();
        state.sampling.throttle_start_end_ns = Some((now, now.wrapping_add(nanoseconds)));
        state.sampling.throttle_stats.nr = state.sampling.throttle_stats.nr.wrapping_add(1);
        if state.phase.pmu_cpu().is_some() {
            state.active_set.registers.throttle(|c| {
                msr::write(c.address, 0);
            });
            state.update_self_page(true);
        }
        self.write_non_sample_record(&mut state, RECORD_THROTTLE, now);
        // The irq_work starts the timer for the end of throttling, because an NMI cannot start a
        // timer.
        self.deferral.queue_work();
    }

    /// Unthrottles the context if its throttling time is over. The caller has updated the PMDs in
    /// memory. Called with interrupts off, but not in an NMI.
    pub(crate) fn unthrottle_if_over(&self, state: &mut ContextState) {
        let Some((since, until)) = state.sampling.throttle_start_end_ns else {
            return;
        };
        let now = clock::monotonic_ns_in_any_context();
        if now < until {
            return;
        }
        state.sampling.throttle_start_end_ns = None;
        // If the context is in no PMU, its throttling ended at the time `until`.
        let ended = match state.phase.pmu_cpu() {
            Some(_) => now,
            None => until,
        };
        let sampling = &mut state.sampling;
        for sum in [
            &mut sampling.throttle_stats,
            &mut sampling.unreported_throttling,
        ] {
            sum.throttled_ns = sum.throttled_ns.wrapping_add(ended.wrapping_sub(since));
        }
        state.active_set.registers.unthrottle();
        self.account_skipped_overflows(state);
        self.write_non_sample_record(state, RECORD_UNTHROTTLE, ended);
        if state.sets.is_switch_due && state.phase.pmu_cpu().is_none() {
            self.switch_set(state);
        }
    }

    /// Accounts for the overflows that occurred while the context was throttled. If the context has
    /// a sampling buffer, overflows during throttling are counted as lost samples, and each PMD
    /// (data register) that overflowed starts a new period. Without a sampling buffer, one overflow
    /// of each PMD stays pending, and the other overflows during throttling are counted as lost.
    #[cold]
    pub(crate) fn account_skipped_overflows(&self, state: &mut ContextState) {
        let skipped = state.active_set.registers.take_skipped_pmds();
        if skipped.is_empty() {
            return;
        }
        let map = self.pmu_registers.as_map();
        let set = &mut *state.active_set;
        let (mut lost, mut last) = (0u64, PmdSet::default());
        let delivered = u64::from(state.sampling.buffer.is_none());
        let skips = |attr: &&mut SamplingAttributes| skipped.intersects(&attr.pmd_set);
        for attr in set.attrs.iter_mut().filter(skips) {
            let mask = set.registers.pmd_mask(&map, attr.pmd);
            let nr = attr.overflow_count(set.registers.pmd_value(attr.pmd), mask);
            let nr = nr.saturating_sub(delivered);
            lost = lost.wrapping_add(nr);
            if attr.count_down_to_switch(nr) {
                last.add(&attr.pmd_set);
            }
        }
        let total = &mut state.sampling.throttle_stats.lost_samples;
        *total = total.wrapping_add(lost);
        if !last.is_empty() && set.runs.policy.switches_on_overflow() {
            set.runs.ended_by_pmds = last;
            state.sets.is_switch_due = true;
        }
        let Some(buffer) = &mut state.sampling.buffer else {
            return set.registers.mark_overflowed(&skipped);
        };
        buffer.count_lost_samples(lost);
        let unreported = &mut state.sampling.unreported_throttling.lost_samples;
        *unreported = unreported.wrapping_add(lost);
        self.reset_pmds(state, skipped, false);
    }
}
