// SPDX-License-Identifier: GPL-2.0

//! The calls `PERFMON_RESTART` and `PERFMON_PAUSE`, which control the sampling of a context.

use kernel::prelude::*;
use perfmon_rules::abi::action;
use perfmon_rules::error::Error;

use crate::contexts::context::Context;
use crate::contexts::phase::Target;
use crate::pmus::to_kernel_error;
use crate::stats::{self, PerfmonStatistic};

impl Context {
    /// Implements `PERFMON_RESTART`, which unmasks the context. Returns `EBUSY` if the context is
    /// detached, or attached to a CPU on which the caller does not run. Also returns `EBUSY` if the
    /// context is not masked, unless its sampling format restarts contexts that are not masked.
    /// Returns `ESRCH` if the target has ended.
    pub(crate) fn restart(&self) -> Result {
        let mut done = Ok(Target::Detached);
        self.with_state_unless_other_cpu(&mut |state| {
            let active = match &state.sampling.buffer {
                Some(buffer) => buffer.format().restarts_unmasked_contexts(),
                None => false,
            };
            done = match (state.phase.target(), state.sampling.masked) {
                (Target::Detached, _) => Err(Error::NotMasked),
                (_, false) if !active => Err(Error::NotMasked),
                (Target::Dead, _) => Err(Error::Ended),
                (target, _) => Ok(target),
            };
            state.allow_thread_to_resume();
            if done.is_err() {
                return;
            }
            stats::count(PerfmonStatistic::Restarts);
            let todo = match &mut state.sampling.buffer {
                Some(buffer) => buffer.restart(),
                None => 0,
            };
            if !state.sampling.masked {
                done = Ok(Target::Detached);
                return;
            }
            let ended = core::mem::take(&mut state.sampling.pmds_to_reset_at_restart);
            self.reset_pmds(state, ended, true);
            if todo & action::MASK == 0 {
                state.sampling.masked = false;
                if state.phase.is_started() {
                    self.start_thread_counters(state);
                }
                if state.sets.is_switch_due {
                    self.switch_set(state);
                }
                if let Target::Cpu(_) = state.phase.target() {
                    self.unthrottle_and_load_if_active(state);
                }
            }
        })
        .map_err(to_kernel_error)?;
        self.deferral.wake_blocked();
        if let Target::Thread(task) = done.map_err(to_kernel_error)? {
            self.load_on_cpu_of_thread(task);
        }
        Ok(())
    }

    /// Pauses or resumes writing to the ring of the sampling buffer. Returns `EINVAL` if the
    /// context has no ring.
    pub(crate) fn pause(&self, paused: bool) -> Result {
        let state = self.state.lock();
        state
            .sampling
            .buffer
            .as_ref()
            .ok_or(EINVAL)?
            .set_paused(paused)
    }
}
