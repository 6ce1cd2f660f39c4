// SPDX-License-Identifier: GPL-2.0

//! The timer of a context, which ends the runs of event sets and the throttling of the context, and
//! finds the overflows of sampling clocks. The callbacks of the timer and of the context's irq_work
//! call [`Context::handle_timer_or_irq_work`].

use perfmon_rules::event_sets;

use crate::contexts::context::{Context, ContextState};
use crate::nmi;
use crate::stats::{self, PerfmonStatistic};
use base::{clock, preempt};

impl ContextState {
    /// Returns whether the context needs its timer: for a sampling clock, for the end of the active
    /// set's run, or for the end of throttling.
    #[inline]
    pub(crate) fn needs_timer(&self) -> bool {
        self.active_set.registers.program.has_armed_clock
            || self.active_set.runs.policy.is_timed()
            || self.sampling.is_throttled()
    }

    /// Returns the nanoseconds until the timer ends the active set's run, or `None` if the set has
    /// no timeout.
    fn run_time_left_ns(&self, now: u64) -> Option<u64> {
        let left = self.active_set.runs.run_remaining_ns(now)?;
        Some(left.max(self.sets.earliest_timed_switch_ns.saturating_sub(now)))
    }
}

impl Context {
    /// Called when the context's timer has expired (`timer` is true), or by the context's irq_work.
    /// The timer expires when a sampling clock overflows, when the run of an event set ends, and
    /// when throttling ends. The irq_work starts and cancels the timer, queues workers and ends
    /// contexts with a register fault, all of which an NMI cannot do. Called with interrupts off.
    pub(crate) fn handle_timer_or_irq_work(&self, timer: bool) {
        let _span = timer
            .then(|| stats::count_and_time(PerfmonStatistic::Timers, PerfmonStatistic::TimerTime));
        let mut state = self.queue_pending_recheck(self.state.lock());
        if state.has_register_fault {
            return self.end_after_register_fault(state);
        }
        // Cancel the timer if an NMI has removed the context from the PMU, or has made an event set
        // active that needs no timer.
        if !timer && (state.phase.pmu_cpu().is_none() || !state.needs_timer()) {
            self.deferral.cancel_timer();
        }
        if !state.phase.is_in_this_cpu_pmu() {
            return;
        }
        if !timer {
            return self.start_timer_if_needed(&mut state);
        }
        let began = clock::read_tsc();
        self.sync(&mut state);
        self.unthrottle_if_over(&mut state);
        let ends = state.run_time_left_ns(clock::monotonic_ns_in_any_context()) == Some(0);
        state.sets.is_switch_due |= ends;
        let samples = state.active_set.registers.program.has_armed_clock;
        let told = self.deliver_overflows(&mut state, nmi::irq_regs());
        self.rearm_and_switch_if_due(&mut state);
        drop(state);
        if told == 0 && !samples && !ends {
            return;
        }
        let pause = nmi::account_sampling_time(began, None);
        match pause {
            0 => {}
            // If no sample was taken, the timer callback has spent its time on a switch of event
            // sets. Throttling would not help, so delay the next set switch.
            _ if told == 0 && !samples => self.delay_set_switch_by_ns(pause),
            _ => self.throttle(pause),
        }
    }

    /// Prevents the timer from ending the active set's run for `nanoseconds`. Called with
    /// interrupts off.
    fn delay_set_switch_by_ns(&self, nanoseconds: u64) {
        let mut state = self.state.lock();
        if state.phase.is_in_this_cpu_pmu() {
            stats::count(PerfmonStatistic::SetSwitchLate);
            state.sets.earliest_timed_switch_ns =
                clock::monotonic_ns_in_any_context().wrapping_add(nanoseconds);
            self.start_timer_if_needed(&mut state);
        }
    }

    /// Starts the timer if the context needs it. Called with interrupts off, while the context is
    /// in this CPU's PMU. Does nothing in an NMI: the timer is running already, or the irq_work
    /// will start it.
    #[inline]
    pub(crate) fn start_timer_if_needed(&self, state: &mut ContextState) {
        if state.needs_timer() && !preempt::in_nmi() {
            self.start_timer(state);
        }
    }

    /// Starts the timer for the first of these events: the next overflow of a sampling clock, the
    /// end of the event set's run, or the end of throttling.
    fn start_timer(&self, state: &mut ContextState) {
        let clock = state.active_set.registers.ns_until_clock_overflow();
        let now = clock::monotonic_ns_in_any_context();
        let (turn, storm) = (
            state.run_time_left_ns(now),
            state.sampling.throttle_start_end_ns,
        );
        let calm = storm.map(|(_, until)| until.saturating_sub(now));
        if let Some(left) = [clock, turn, calm].into_iter().flatten().min() {
            // Limit the rate of the timer: with a shorter period the CPU would only handle the
            // timer.
            self.deferral.start_timer(left.max(event_sets::MIN_RUN_NS));
        }
    }
}
