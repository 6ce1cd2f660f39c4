// SPDX-License-Identifier: GPL-2.0

//! Transitions between the phases of a context ([`crate::contexts::phase`]): it is programmed into
//! the PMU of a CPU, removed from the PMU, started and stopped.

use kernel::prelude::*;
use perfmon_rules::error::Error;
use perfmon_rules::register_map::Scope;

use crate::contexts::context::{Context, ContextState};
use crate::contexts::phase::Target;
use crate::pmus::to_kernel_error;
use crate::self_page::Page;
use crate::stats::{self, SelfStat};
use base::clock;

impl Context {
    /// Removes the context from this CPU's PMU, delivers overflows, and switches to the next event
    /// set if a switch is due. Called with interrupts off, while the context is in this CPU's PMU.
    #[inline]
    pub(crate) fn unload_pmu(&self, state: &mut ContextState) {
        self.save_pmu(state);
        if state.set.registers.program.has_armed_thread_counter {
            self.sync_virtual(state);
        }
        self.deliver_overflows(state, None);
        // Switch sets if the timeout of the active set is over, even if the timer has not expired
        // yet.
        if state.sets.due || state.set.runs.remaining(0) == Some(0) {
            if !state.sets.due {
                stats::count(SelfStat::SetSwitchLate);
            }
            self.switch_set(state);
        }
    }

    /// Updates the PMDs (data registers) in memory to their current values. If the context is in a
    /// PMU, which must be this CPU's PMU, also delivers overflows and rearms the counters. Returns
    /// the number of PMDs whose overflows were delivered.
    pub(crate) fn sync_and_deliver(&self, state: &mut ContextState) -> u32 {
        self.sync(state);
        let mut told = 0;
        // If the context is in no PMU, leave overflows pending.
        if state.phase.cpu().is_some() {
            told = self.deliver_overflows(state, None);
            self.rearm(state);
        }
        state.update_self_page(state.phase.cpu().is_some());
        told
    }

    /// Calls [`sync_and_deliver`](Self::sync_and_deliver) if the context is in this CPU's PMU.
    /// Called with interrupts off.
    pub(crate) fn sync_if_local(&self) -> u32 {
        let mut state = self.state.lock();
        match state.phase.is_in_this_cpu_pmu() {
            true => self.sync_and_deliver(&mut state),
            false => 0,
        }
    }

    /// Stops the context: it does not count until it is started again. If the context is programmed
    /// into the PMU of a CPU, only code on that CPU may call this function.
    pub(crate) fn stop_counting(&self, state: &mut ContextState) {
        if state.phase.cpu().is_some() {
            self.unload_pmu(state);
        }
        self.sync_elsewhere(state);
        self.sync_virtual(state);
        state.phase.stop();
    }

    /// Programs the context into this CPU's PMU if the context is started and still attached to
    /// `target`, which is this CPU or the thread that runs on it. Called with interrupts off.
    #[inline]
    pub(crate) fn sched_in(&self, target: Target) {
        let mut state = self.state.lock();
        if state.phase.target() == target {
            self.load_if_waiting(&mut state);
        }
    }

    /// Programs the context into this CPU's PMU if it is started and in no PMU. Calls
    /// `unthrottle()` before the context is programmed: if the throttling time ended while the
    /// context was in no PMU, only the time up to the planned end counts as throttled.
    #[inline]
    pub(crate) fn load_if_waiting(&self, state: &mut ContextState) {
        if state.phase.is_waiting() {
            self.recheck_if_changed(state);
            self.unthrottle(state);
            self.load_pmu_if_active(state);
        }
    }

    /// Removes the context from this CPU's PMU before a switch to another thread or before suspend.
    #[inline]
    pub(crate) fn sched_out(&self) {
        let mut state = self.state.lock();
        if state.phase.is_in_this_cpu_pmu() {
            self.unload_pmu(&mut state);
        }
    }

    /// Starts the context: from now on it counts whenever its target runs.
    pub(crate) fn start_counting(&self, state: &mut ContextState) {
        self.start_virtual(state);
        state.phase.start();
        // If the context was stopped only for a write of registers, and its thread runs on a CPU
        // that lacks registers of the context, mark the values that were written.
        self.sync_elsewhere(state);
    }

    /// Implements `PERFMON_START`: starts the context with the event set `set`, or with the active
    /// event set if `set` is `None`. Returns `EINVAL` if the context is detached or has no such
    /// event set, and `ESRCH` if its target has ended. Returns `EBUSY` if the context is attached
    /// to another CPU than that of the caller, or if the context is masked and `set` is not its
    /// active set.
    pub(crate) fn start(&self, set: Option<u16>) -> Result {
        let mut done = Ok(Target::Detached);
        self.try_with_state(&mut |state| {
            done = match state.phase.target() {
                Target::Detached => Err(Error::NotLoaded),
                Target::Dead => Err(Error::Ended),
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
                self.load_if_waiting(state);
            }
        })
        .map_err(to_kernel_error)?;
        if let Target::Thread(task) = done.map_err(to_kernel_error)? {
            self.load_where_running(task);
        }
        Ok(())
    }

    /// Implements `PERFMON_STOP`. Returns `EINVAL` if the context is detached, `EBUSY` if it is
    /// attached to another CPU than that of the caller.
    pub(crate) fn stop(&self) -> Result {
        let mut done = Ok(());
        self.try_with_state(&mut |state| {
            if state.phase.target() == Target::Detached {
                done = Err(Error::NotLoaded);
            }
            self.stop_counting(state);
            state.elsewhere.stop();
        })
        .and(done)
        .map_err(to_kernel_error)
    }

    /// Returns the page frame number of the self page, which is allocated at the first call.
    /// Returns `EINVAL` for the context of a CPU, `EDQUOT` or `ENOMEM`.
    pub(crate) fn self_page(&self) -> Result<usize> {
        if self.scope() != Scope::Thread {
            return Err(EINVAL);
        }
        // Look for an existing page before allocating memory, because each page fault calls this
        // function.
        if let Some(page) = &self.state.lock().page {
            return Ok(page.page_frame_number());
        }
        let mut new = Some(Page::new(&self.charge)?);
        let mut frame = 0;
        self.with_state(&mut |state| {
            if state.page.is_none() {
                state.page = new.take();
                state.tsc = clock::read_tsc();
                self.sync_and_deliver(state);
            }
            frame = state.page.as_ref().map_or(0, Page::page_frame_number);
        });
        Ok(frame)
    }

    /// Sets whether the threads of the process that maps the self page are allowed to execute
    /// RDPMC, and updates the self page.
    pub(crate) fn set_rdpmc(&self, may: bool) {
        self.with_state(&mut |state| {
            state.mapped.rdpmc = may;
            self.sync_and_deliver(state);
        });
    }
}
