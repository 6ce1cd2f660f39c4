// SPDX-License-Identifier: GPL-2.0

//! Checks whether a CPU has all PMU registers that a context uses, and measures how long the
//! context's thread runs on CPUs that lack some of them. [`crate::cpu_kinds`] describes the kinds
//! of CPUs.

#![expect(unsafe_code, reason = "a call of C")]

use perfmon_rules::claims::RegisterMask;
use perfmon_rules::register_map::RegisterMap;

use crate::contexts::context::{Context, ContextState};
use crate::cpu_kinds;
use crate::helpers;
use crate::per_cpu;
use base::{cpu, task};

/// Returns whether a context that uses the registers `uses` and counts only on cores of the type
/// `core` (0: any type) can count on `cpu`. For the context of a thread `cpu` is `None`; the result
/// is then true if the context can count on at least one CPU.
pub(crate) fn can_count(uses: &RegisterMask, core: u32, cpu: Option<u32>) -> bool {
    match cpu {
        Some(cpu) => per_cpu::cpu_kind(cpu).fits(uses, core),
        // Without a description of the hardware PMU, cpu_kinds::each_cpu_ever_online() returns no
        // CPU.
        None => {
            (uses.is_none() && core == 0)
                || cpu_kinds::each_cpu_ever_online().any(|(_, kind)| kind.fits(uses, core))
        }
    }
}

/// Logs that CPU `cpu` lacks registers that a context uses. If `cpu` is `None`, logs that every CPU
/// lacks some of them. Called in process context.
pub(crate) fn log_missing_registers(cpu: Option<u32>) {
    let cpu = cpu.and_then(|cpu| i32::try_from(cpu).ok());
    // SAFETY: `pfm_log_missing_registers()` only prints, which is allowed in process context.
    unsafe { helpers::pfm_log_missing_registers(cpu.unwrap_or(-1)) }
}

impl ContextState {
    /// Returns the hardware registers that a CPU needs to count with every event set of the
    /// context.
    pub(crate) fn required_registers_of_all_sets(&self, map: &RegisterMap<'_>) -> RegisterMask {
        self.each_set().fold(RegisterMask::NONE, |all, set| {
            all.union(&set.registers.required_registers(map, RegisterMask::NONE))
        })
    }
}

impl Context {
    /// Returns whether this CPU has the core type and all hardware registers that the context
    /// needs. If it has not, measures from now on how long the thread runs, and marks values of the
    /// context as short (incomplete). Called with interrupts off.
    #[inline]
    pub(crate) fn fits_cpu_or_mark_incomplete(&self, state: &mut ContextState) -> bool {
        state.cpu_fit.fitting_kind_id == Some(per_cpu::cpu_kind_id()) || self.update_cpu_fit(state)
    }

    /// Compares the registers that the context needs with the registers of this CPU, and returns
    /// whether this CPU has them. Called after the thread has moved to a CPU of another kind, and
    /// after registers were written. If this CPU lacks registers of the context, the run time of
    /// the thread is added to [`ContextState::cpu_fit`] from now on.
    #[cold]
    fn update_cpu_fit(&self, state: &mut ContextState) -> bool {
        let kind = per_cpu::cpu_kind(cpu::this_cpu());
        let fits = kind.fits(&state.cpu_fit.required_registers, state.cpu_fit.core_type);
        self.add_unfit_cpu_time(state, !fits);
        if fits {
            state.cpu_fit.fitting_kind_id = Some(kind.id);
            state.cpu_fit.stop_measuring();
            return true;
        }
        state.cpu_fit.fitting_kind_id = None;
        // If `last_run_time_ns` is set, an earlier call has marked the values of the context as
        // incomplete. If user space writes a PMD, the PMD is no longer marked as incomplete.
        let is_new = state.cpu_fit.last_run_time_ns.is_none();
        if is_new {
            state.cpu_fit.last_run_time_ns = Some(Self::cpu_time_ns(state));
        }
        if is_new || !state.active_set.registers.is_any_incomplete() {
            self.mark_pmu_bound_incomplete(state);
        }
        false
    }

    /// Returns the run time of the context's thread in nanoseconds, as of the last timer tick.
    fn cpu_time_ns(state: &ContextState) -> u64 {
        state
            .thread
            .as_ref()
            .map_or(0, |task| task::cpu_time_ns(task))
    }

    /// Marks as short (incomplete) those PMDs of all event sets that count only while the context
    /// is in a PMU, and updates the self page.
    fn mark_pmu_bound_incomplete(&self, state: &mut ContextState) {
        for set in state.each_set_mut() {
            set.registers.mark_pmu_bound_incomplete();
        }
        state.update_self_page(false);
    }

    /// Updates [`ContextState::cpu_fit`] while the thread is on a CPU that lacks registers of the
    /// context. If the context is started and not masked, adds the time that the thread has run
    /// since the last update, and marks the values of the context as short (incomplete).
    #[cold]
    pub(crate) fn sync_unfit_cpu_time(&self, state: &mut ContextState) {
        if state.cpu_fit.is_on_unfit_cpu() {
            let cpu = state.thread.as_ref().map(|t| task::running_cpu(t));
            self.add_unfit_cpu_time(state, cpu.flatten().is_some());
        }
    }

    /// Implements [`sync_unfit_cpu_time`](Self::sync_unfit_cpu_time). `runs` is true if the thread
    /// is running on a CPU that lacks registers of the context. Such a thread has events that the
    /// context does not count, even if its run time has not changed: the kernel updates the run
    /// time at timer ticks.
    fn add_unfit_cpu_time(&self, state: &mut ContextState, runs: bool) {
        let Some(since) = state.cpu_fit.last_run_time_ns else {
            return;
        };
        let now = Self::cpu_time_ns(state);
        state.cpu_fit.last_run_time_ns = Some(now);
        let ran = now.wrapping_sub(since);
        if state.phase.is_started() && !state.sampling.masked && (ran != 0 || runs) {
            state.cpu_fit.unfit_time_ns = state.cpu_fit.unfit_time_ns.wrapping_add(ran);
            self.mark_pmu_bound_incomplete(state);
        }
    }
}
