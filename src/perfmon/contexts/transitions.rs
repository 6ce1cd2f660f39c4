// SPDX-License-Identifier: GPL-2.0

//! Transitions between the phases of a context ([`crate::contexts::phase`]): it is programmed into
//! the PMU of a CPU, removed from the PMU, started and stopped. The functions `sync*` update the
//! PMDs (data registers) in memory to their current values.

use kernel::prelude::*;
use perfmon_rules::error::Error;
use perfmon_rules::register_map::Scope;

use crate::contexts::context::{Context, ContextState};
use crate::contexts::phase::Target;
use crate::msr;
use crate::per_cpu::{self, counting_global_ctrl_bits};
use crate::pmus::to_kernel_error;
use crate::reservation;
use crate::stats::{self, PerfmonStatistic};
use base::{clock, preempt};

impl Context {
    /// Programs the active event set into this CPU's PMU. Called with interrupts off, while the
    /// context is not programmed into any PMU. The start values of counters are written first and
    /// the counters are enabled last, so that no counter counts from an old value. If a register
    /// cannot be written, this function removes the context from the PMU, and the deferral's
    /// irq_work ends the context.
    #[inline]
    pub(crate) fn load_pmu(&self, state: &mut ContextState) {
        let thread = state.thread.as_ref();
        state
            .active_set
            .record_load(clock::monotonic_ns_in_any_context());
        state
            .active_set
            .registers
            .start_virtual_counters(false, |g| self.read_virtual_counter(g, thread));
        let mut there = true;
        if !state.active_set.registers.program.controls().is_empty() {
            reservation::reset_pmu_once(&self.pmu_registers);
        }
        let held = state.sampling.is_throttled();
        state.active_set.registers.set_throttled(held);
        state
            .active_set
            .registers
            .start_hardware_counters(|c| there &= msr::write(c.address, c.start));
        state.phase.record_in_this_cpu_pmu();
        self.start_timer_if_needed(state);
        state.update_self_page(false);
        let program = &state.active_set.registers.program;
        per_cpu::set_loaded_or_attached_address(self.scope, self.address() as usize);
        for control in program.controls() {
            there &= msr::write(control.address, control.on);
        }
        per_cpu::set_global_ctrl_bits_of_scope(self.scope, program.global_ctrl_bits);
        // Do not write the global control for an event set without hardware counters, because perf
        // may be using the global control. In an NMI all counters are disabled; the NMI handler
        // enables them when it ends.
        if self.global_ctrl_address != 0 && program.global_ctrl_bits != 0 && !preempt::in_nmi() {
            there &= self.write_global_ctrl();
        }
        if !there {
            state.active_set.registers.mark_hardware_incomplete();
            self.save_pmu(state);
            self.stop_after_register_fault(state);
        }
    }

    /// Writes [`counting_global_ctrl_bits`] to the global control. Writes the global control again
    /// if an NMI changed [`counting_global_ctrl_bits`] between the read of the bits and the write.
    /// Returns false if the global control cannot be written.
    #[inline]
    fn write_global_ctrl(&self) -> bool {
        loop {
            let all = counting_global_ctrl_bits();
            let there = msr::write(self.global_ctrl_address, all);
            if counting_global_ctrl_bits() == all {
                return there;
            }
        }
    }

    /// Stops a context because a PMU register that it uses could not be accessed on this CPU, and
    /// queues the deferral's irq_work, which ends the context. May be called in an NMI.
    #[cold]
    fn stop_after_register_fault(&self, state: &mut ContextState) {
        state.phase.stop();
        state.has_register_fault = true;
        self.deferral.queue_work();
    }

    /// Programs the context into this CPU's PMU if this CPU has the context's registers and the
    /// context is started, not masked, and in no PMU. Called with interrupts off.
    #[inline]
    pub(crate) fn load_pmu_if_active(&self, state: &mut ContextState) {
        if state.phase.is_started_outside_pmu()
            && !state.sampling.masked
            && self.fits_cpu_or_mark_incomplete(state)
        {
            self.load_pmu(state);
        }
    }

    /// Removes the context from this CPU's PMU: stops the counters, adds their increments to the
    /// PMDs in memory, and sets the counters to 0. Overflows are recorded as pending;
    /// [`save_deliver_and_switch_if_due`](Self::save_deliver_and_switch_if_due) delivers them.
    /// Called with interrupts off.
    #[inline]
    pub(crate) fn save_pmu(&self, state: &mut ContextState) {
        per_cpu::set_global_ctrl_bits_of_scope(self.scope, 0);
        if self.global_ctrl_address != 0 && state.active_set.registers.program.global_ctrl_bits != 0
        {
            // In an NMI all counters are disabled; the NMI handler enables them when it ends.
            if !preempt::in_nmi() {
                self.write_global_ctrl();
            }
        }
        // Disable each counter even if the PMU has a global control, because perf writes the global
        // control when perf uses PT or BTS.
        for control in state.active_set.registers.program.controls() {
            msr::write(control.address, control.off);
        }
        let there = state
            .active_set
            .registers
            .add_hardware_increments(|c| msr::read_counter(c.rdpmc));
        for counter in state.active_set.registers.program.counters() {
            msr::write(counter.address, 0);
        }
        let thread = state.thread.as_ref();
        state
            .active_set
            .registers
            .sync_virtual_counters(false, |g| self.read_virtual_counter(g, thread));
        state
            .active_set
            .runs
            .record_unload(clock::monotonic_ns_in_any_context());
        // Cancel the timer before the thread moves to another CPU. If the other CPU started the
        // timer while the timer's callback was running on this CPU, hrtimer_start() would leave the
        // timer on this CPU. An NMI cannot cancel the timer, so the irq_work does.
        match state.needs_timer() {
            true if preempt::in_nmi() => self.deferral.queue_work(),
            true => self.deferral.cancel_timer(),
            false => {}
        }
        state.phase.record_in_no_pmu();
        state.update_self_page(true);
        // For the context of a CPU, the per-CPU variable `loaded` stays set until the
        // context is detached.
        if self.scope == Scope::Thread {
            per_cpu::set_loaded_or_attached_address(self.scope, 0);
        }
        if !there {
            self.stop_after_register_fault(state);
        }
    }

    /// Removes the context from this CPU's PMU, delivers overflows, and switches to the next event
    /// set if a switch is due. Called with interrupts off, while the context is in this CPU's PMU.
    #[inline]
    pub(crate) fn save_deliver_and_switch_if_due(&self, state: &mut ContextState) {
        self.save_pmu(state);
        if state.active_set.registers.program.has_armed_thread_counter {
            self.sync_thread_counters(state);
        }
        self.deliver_overflows(state, None);
        // Switch sets if the timeout of the active set is over, even if the timer has not expired
        // yet.
        if state.sets.is_switch_due || state.active_set.runs.run_remaining_ns(0) == Some(0) {
            if !state.sets.is_switch_due {
                stats::count(PerfmonStatistic::SetSwitchLate);
            }
            self.switch_set(state);
        }
    }

    /// Updates the PMDs (data registers) in memory to their current values. Overflows are recorded
    /// as pending but not delivered.
    #[inline(never)]
    pub(crate) fn sync(&self, state: &mut ContextState) {
        self.sync_inlined(state);
    }

    /// Does the same as [`sync`](Self::sync), but is inlined. Used by the NMI handler.
    #[inline(always)]
    pub(crate) fn sync_inlined(&self, state: &mut ContextState) {
        if state.phase.pmu_cpu().is_some() {
            let there = state
                .active_set
                .registers
                .add_hardware_increments(|c| msr::read_counter(c.rdpmc));
            let thread = &state.thread;
            state
                .active_set
                .registers
                .sync_virtual_counters(false, move |g| {
                    self.read_virtual_counter(g, thread.as_ref())
                });
            if !there {
                self.save_pmu(state);
            }
        } else if state.cpu_fit.is_on_unfit_cpu() {
            self.sync_unfit_cpu_time(state);
        }
        self.sync_thread_counters(state);
    }

    /// Updates the PMDs (data registers) in memory to their current values. If the context is in a
    /// PMU, which must be this CPU's PMU, also delivers overflows and rearms the counters. Returns
    /// the number of PMDs whose overflows were delivered.
    pub(crate) fn sync_and_deliver(&self, state: &mut ContextState) -> u32 {
        self.sync(state);
        let mut told = 0;
        // If the context is in no PMU, leave overflows pending.
        if state.phase.pmu_cpu().is_some() {
            told = self.deliver_overflows(state, None);
            self.rearm_and_switch_if_due(state);
        }
        state.update_self_page(state.phase.pmu_cpu().is_some());
        told
    }

    /// Calls [`sync_and_deliver`](Self::sync_and_deliver) if the context is in this CPU's PMU.
    /// Called with interrupts off.
    pub(crate) fn sync_and_deliver_if_local(&self) -> u32 {
        let mut state = self.state.lock();
        match state.phase.is_in_this_cpu_pmu() {
            true => self.sync_and_deliver(&mut state),
            false => 0,
        }
    }

    /// Stops the context: it does not count until it is started again. If the context is programmed
    /// into the PMU of a CPU, only code on that CPU may call this function.
    pub(crate) fn stop_counting(&self, state: &mut ContextState) {
        if state.phase.pmu_cpu().is_some() {
            self.save_deliver_and_switch_if_due(state);
        }
        self.sync_unfit_cpu_time(state);
        self.sync_thread_counters(state);
        state.phase.stop();
    }

    /// Programs the context into this CPU's PMU if the context is started and still attached to
    /// `target`, which is this CPU or the thread that runs on it. Called with interrupts off.
    #[inline]
    pub(crate) fn sched_in(&self, target: Target) {
        let mut state = self.state.lock();
        if state.phase.target() == target {
            self.unthrottle_and_load_if_active(&mut state);
        }
    }

    /// If the context is started and in no PMU, calls
    /// [`load_pmu_if_active`](Self::load_pmu_if_active). Calls `unthrottle_if_over()` before the
    /// context is programmed: if the throttling time ended while the context was in no PMU, only
    /// the time up to the planned end counts as throttled.
    #[inline]
    pub(crate) fn unthrottle_and_load_if_active(&self, state: &mut ContextState) {
        if state.phase.is_started_outside_pmu() {
            self.request_recheck_if_stale(state);
            self.unthrottle_if_over(state);
            self.load_pmu_if_active(state);
        }
    }

    /// Removes the context from this CPU's PMU before a switch to another thread or before suspend.
    #[inline]
    pub(crate) fn sched_out(&self) {
        let mut state = self.state.lock();
        if state.phase.is_in_this_cpu_pmu() {
            self.save_deliver_and_switch_if_due(&mut state);
        }
    }

    /// Starts the context: from now on it counts whenever its target runs.
    pub(crate) fn start_counting(&self, state: &mut ContextState) {
        self.start_thread_counters(state);
        state.phase.start();
        // The context may have been stopped only for a write of registers, while its thread is on a
        // CPU that lacks registers of the context. The written values are not marked as incomplete,
        // so mark them.
        self.sync_unfit_cpu_time(state);
    }

    /// Implements `PERFMON_START`: starts the context with the event set `set`, or with the active
    /// event set if `set` is `None`. Returns `EINVAL` if the context is detached or has no such
    /// event set, and `ESRCH` if its target has ended. Returns `EBUSY` if the context is attached
    /// to a CPU on which the caller does not run, or if the context is masked and `set` is not its
    /// active set.
    pub(crate) fn start(&self, set: Option<u16>) -> Result {
        let mut done = Ok(Target::Detached);
        self.with_state_unless_other_cpu(&mut |state| {
            done = match state.phase.target() {
                Target::Detached => Err(Error::NotLoaded),
                Target::Dead => Err(Error::Ended),
                // The irq_work that ends the context is queued.
                _ if state.has_register_fault => Err(Error::Ended),
                target => Ok(target),
            };
            if let (Ok(_), Some(set)) = (done, set) {
                if let Err(error) = self.activate_set(state, set) {
                    done = Err(error);
                }
            }
            if done.is_ok() && !state.phase.is_started() {
                self.start_counting(state);
            }
            if let Ok(Target::Cpu(_)) = done {
                self.unthrottle_and_load_if_active(state);
            }
        })
        .map_err(to_kernel_error)?;
        if let Target::Thread(task) = done.map_err(to_kernel_error)? {
            self.load_on_cpu_of_thread(task);
        }
        Ok(())
    }

    /// Implements `PERFMON_STOP`. Returns `EINVAL` if the context is detached, `EBUSY` if it is
    /// attached to a CPU on which the caller does not run.
    pub(crate) fn stop(&self) -> Result {
        let mut done = Ok(());
        self.with_state_unless_other_cpu(&mut |state| {
            if state.phase.target() == Target::Detached {
                done = Err(Error::NotLoaded);
            }
            self.stop_counting(state);
            state.cpu_fit.stop_measuring();
        })
        .and(done)
        .map_err(to_kernel_error)
    }
}
