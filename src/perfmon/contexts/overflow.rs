// SPDX-License-Identifier: GPL-2.0

//! Sampling: detection and delivery of counter overflows.
//!
//! An overflow is detected from the value of the counter, by whichever code reads the counter first
//! after the overflow. The overflow of a hardware counter is usually detected by the NMI handler.
//! If the NMI handler finds the context's lock held, it queues an irq_work on its CPU, which reads
//! the counters as soon as interrupts are enabled. The overflow of a sampling clock is usually
//! detected by the timer. Counters are also read by system calls, by the periodic worker, and by
//! the code that removes the context from the PMU. Every overflow is therefore detected exactly
//! once, even if its NMI arrives late.

use kernel::sync::aref::ARef;
use kernel::task::Task;
use perfmon_rules::abi::{self, action};
use perfmon_rules::period::{is_virtual_non_counter, SamplingAttributes};
use perfmon_rules::register_bitmap::PmdSet;

use crate::contexts::context::{Context, ContextState};
use crate::contexts::event_set::Registers;
use crate::contexts::phase::Target;
use crate::contexts::sampling_state::Sampling;
use crate::description::{self, Overflow};
use crate::msr;
use crate::nmi::{self, IrqRegs};
use crate::sample_buffer::SampleBuffer;
use crate::stats::{self, PerfmonStatistic};
use base::{clock, task};

impl Context {
    /// Handles an NMI for this context. Returns the number of PMDs whose overflows were delivered,
    /// and the number of hardware counters that wrapped. If the context's lock is held, defers the
    /// NMI and returns 1 as the number of wrapped counters.
    #[inline(always)]
    pub(crate) fn handle_overflow(&self, interrupted: IrqRegs) -> (u32, u32) {
        let Some(mut state) = self.state.try_lock() else {
            nmi::defer(interrupted);
            return (0, 1);
        };
        if !state.phase.is_in_this_cpu_pmu() {
            return (0, 0);
        }
        self.sync_inlined(&mut state);
        let turned = state.active_set.registers.take_nr_armed_wrapped();
        let told = self.deliver_found_overflows_inlined(&mut state, Some(interrupted));
        self.rearm_and_switch_inlined(&mut state, true);
        (told, turned)
    }

    /// Writes a record other than a sample, for example about throttling, into the ring of the
    /// sampling buffer. Does nothing if the context has no ring. Wakes the readers if the ring
    /// requests a wakeup.
    pub(crate) fn write_non_sample_record(&self, state: &mut ContextState, kind: u16, word: u64) {
        let Some(buffer) = &mut state.sampling.buffer else {
            return;
        };
        if buffer.write_record_and_check_wakeup(kind, word)
            && state.sampling.message_queue.is_empty()
        {
            let mut overflow = Overflow::default();
            nmi::fill_overflow_take_deferred_ip(
                &mut overflow,
                None,
                self.may_monitor_kernel,
                &self.ns,
            );
            self.notify_overflow(state, &overflow, PmdSet::default());
        }
    }

    /// Delivers the pending overflows: takes samples, queues messages, and then masks the context
    /// or resets the PMDs that overflowed. Returns the number of PMDs that overflowed. The caller
    /// has updated the PMDs in memory.
    #[inline]
    pub(crate) fn deliver_overflows(
        &self,
        state: &mut ContextState,
        interrupted: Option<IrqRegs>,
    ) -> u32 {
        // The NMI of a counter that has just wrapped may arrive after this function has handled the
        // overflow. If the PMU has no global status register, the NMI handler cannot recognize such
        // a late NMI unless expect_stale_nmi() has announced it.
        if state.active_set.registers.take_nr_armed_wrapped() != 0
            && self.pmu_registers.as_map().global_status == 0
        {
            nmi::expect_stale_nmi(clock::read_tsc());
        }
        match state.active_set.registers.has_skipped_pmds()
            || state.active_set.registers.has_pending_pmds()
        {
            true => self.deliver_found_overflows(state, interrupted),
            false => 0,
        }
    }

    /// Does the same as [`deliver_overflows`](Self::deliver_overflows), but does not announce the
    /// late NMIs of counters that have wrapped.
    #[inline(never)]
    fn deliver_found_overflows(
        &self,
        state: &mut ContextState,
        interrupted: Option<IrqRegs>,
    ) -> u32 {
        self.deliver_found_overflows_inlined(state, interrupted)
    }

    /// Does the same as [`deliver_found_overflows`](Self::deliver_found_overflows), but is inlined.
    /// Used by the NMI handler, which itself accounts for the counters that have wrapped.
    #[inline(always)]
    fn deliver_found_overflows_inlined(
        &self,
        state: &mut ContextState,
        interrupted: Option<IrqRegs>,
    ) -> u32 {
        if state.active_set.registers.has_skipped_pmds() {
            self.account_skipped_overflows(state);
        }
        if !state.active_set.registers.has_pending_pmds() {
            return 0;
        }
        let pending = state.active_set.registers.take_pending_pmds();
        let (mut nr, mut todo, mut told) = (0u32, 0, PmdSet::default());
        let (set, sampling) = (&mut *state.active_set, &mut state.sampling);
        // The first sample after throttling also reports the number of lost samples and the
        // throttled time.
        let unreported = core::mem::take(&mut sampling.unreported_throttling);
        let mut overflow = Overflow {
            set: set.id,
            lost: unreported.lost_samples,
            throttled: unreported.throttled_ns,
            ..Overflow::default()
        };
        nmi::fill_overflow_take_deferred_ip(
            &mut overflow,
            interrupted,
            self.may_monitor_kernel,
            &self.ns,
        );
        let Sampling {
            sample_values,
            buffer,
            ..
        } = sampling;
        let mut last = PmdSet::default();
        let pend = |attr: &&mut SamplingAttributes| pending.intersects(&attr.pmd_set);
        for attr in set.attrs.iter_mut().filter(pend) {
            if attr.count_down_to_switch(1) {
                last.add(&attr.pmd_set);
            }
            let buffer = buffer.as_deref_mut();
            let wants = self.take_sample(
                attr,
                &set.registers,
                &state.thread,
                &mut **sample_values,
                buffer,
                &mut overflow,
            );
            (overflow.lost, overflow.throttled) = (0, 0);
            if wants & action::NOTIFY != 0 {
                told.add(&attr.pmd_set);
            }
            todo |= wants;
            nr = nr.wrapping_add(1);
        }
        if !last.is_empty() && set.runs.policy.switches_on_overflow() {
            set.runs.ended_by_pmds = last;
            state.sets.is_switch_due = true;
        }
        if !told.is_empty() {
            todo |= self.notify_overflow(state, &overflow, told);
        } else if todo & action::WAKE != 0 && state.sampling.message_queue.is_empty() {
            todo |= self.notify_overflow(state, &overflow, pending);
        }
        if todo & action::MASK != 0 {
            state.sampling.pmds_to_reset_at_restart.add(&pending);
            self.mask_and_block_if_notified(state, todo & action::NOTIFY != 0);
        } else {
            self.reset_pmds(state, pending, false);
        }
        nr
    }

    /// Takes a sample for a PMD that overflowed. Returns the actions (`action::*`) that the caller
    /// must take. The actions include `action::NOTIFY` only if the PMD has the flag
    /// `REGFL_OVFL_NOTIFY`.
    #[inline(always)]
    fn take_sample(
        &self,
        attr: &SamplingAttributes,
        registers: &Registers,
        thread: &Option<ARef<Task>>,
        values: &mut [u64],
        buffer: Option<&mut SampleBuffer>,
        overflow: &mut Overflow,
    ) -> u32 {
        let notify = attr.flags & abi::REGFL_OVFL_NOTIFY != 0;
        let Some(buffer) = buffer else {
            return match notify {
                true => action::NOTIFY | action::MASK,
                false => action::RESET,
            };
        };
        let numbers = attr.sample_pmds();
        let values = values.get_mut(..numbers.len()).unwrap_or(&mut []);
        let plain = !attr.reads_virtual && registers.has_only_64bit_pmds();
        for (value, number) in values.iter_mut().zip(numbers) {
            *value = match plain {
                true => registers.pmd_value(*number),
                false => self.read_pmd_for_sample(registers, *number, thread.as_ref()),
            };
        }
        overflow.pmd = attr.pmd;
        overflow.last_reset = attr.last_reset;
        overflow.eventid = attr.eventid;
        overflow.flags = match notify {
            true => description::OVERFLOW_NOTIFY,
            false => 0,
        };
        if self.may_monitor_kernel {
            overflow.flags |= description::OVERFLOW_KERNEL;
        }
        stats::count(PerfmonStatistic::Samples);
        let began = clock::read_tsc_low_bits();
        let wants = buffer.overflow(overflow, values);
        stats::add_elapsed(PerfmonStatistic::SampleTime, began);
        match notify {
            true => wants,
            false => wants & !action::NOTIFY,
        }
    }

    /// Returns the current value of a PMD for a sample. The PMD can be virtual or narrower than 64
    /// bits.
    #[cold]
    fn read_pmd_for_sample(
        &self,
        registers: &Registers,
        pmd: u16,
        thread: Option<&ARef<Task>>,
    ) -> u64 {
        let map = self.pmu_registers.as_map();
        match map.pmd(pmd) {
            Some(row) if is_virtual_non_counter(row) => {
                let control = registers.soft_control_value(&map, row);
                self.read_virtual_register(pmd, row.address, control, thread)
            }
            _ => registers.pmd_user_value(&map, pmd),
        }
    }

    /// Masks the context: the context does not count until `PERFMON_RESTART`. If `notify` is set
    /// and the context has a blocker, also blocks the current thread if the context monitors it.
    #[cold]
    fn mask_and_block_if_notified(&self, state: &mut ContextState, notify: bool) {
        if state.phase.pmu_cpu().is_some() {
            self.save_pmu(state);
        }
        self.sync_thread_counters(state);
        // Overflows that save_pmu() and sync_thread_counters() have just found are not delivered.
        // Add the PMDs that have overflowed to `pmds_to_reset_at_restart`, so that
        // `PERFMON_RESTART` resets them.
        let more = state.active_set.registers.take_pending_pmds();
        state.sampling.pmds_to_reset_at_restart.add(&more);
        state.sampling.masked = true;
        let own = state.phase.target() == Target::Thread(task::current_task_address());
        if let Some(blocker) = state.blocker.as_ref().filter(|_| own && notify) {
            stats::count(PerfmonStatistic::Waits);
            blocker.block_current_thread();
        }
    }

    /// Starts the next period of the PMDs `pmds`, and resets the PMDs in their `reg_reset_pmds`.
    #[inline(always)]
    pub(crate) fn reset_pmds(&self, state: &mut ContextState, pmds: PmdSet, long: bool) {
        stats::count(PerfmonStatistic::Resets);
        let set = &mut *state.active_set;
        let registers = &mut set.registers;
        let mut others = PmdSet::default();
        let ended = |attr: &&mut SamplingAttributes| pmds.intersects(&attr.pmd_set);
        for attr in set.attrs.iter_mut().filter(ended) {
            let value = attr.next_reset_value(long);
            others.add(&attr.reset_pmds);
            match (long, registers.has_only_64bit_pmds()) {
                (true, _) => registers.restart_pmd_at(attr.pmd, value),
                (false, true) => registers.reset_pmd(attr.pmd, value, u64::MAX),
                (false, false) => {
                    let mask = registers.pmd_mask(&self.pmu_registers.as_map(), attr.pmd);
                    registers.reset_pmd(attr.pmd, value, mask);
                }
            }
        }
        if others.is_empty() {
            return;
        }
        while let Some(pmd) = others.pop() {
            if !pmds.has(pmd) {
                state.active_set.reset_linked_pmd(pmd, long);
            }
        }
    }

    /// If the context is in this CPU's PMU, programs the next start values of the counters and
    /// starts the timer. Switches to the next event set if a switch is due.
    #[inline(never)]
    pub(crate) fn rearm_and_switch_if_due(&self, state: &mut ContextState) {
        self.rearm_and_switch_inlined(state, false);
    }

    /// Does the work of [`rearm_and_switch_if_due`](Self::rearm_and_switch_if_due). `in_nmi` is
    /// true if the caller is the NMI handler, in which
    /// [`start_timer_if_needed`](Self::start_timer_if_needed) would do nothing.
    #[inline(always)]
    fn rearm_and_switch_inlined(&self, state: &mut ContextState, in_nmi: bool) {
        if state.phase.pmu_cpu().is_some() {
            state.active_set.registers.rearm_hardware_counters(|c| {
                msr::write(c.address, c.start);
            });
            if !in_nmi {
                self.start_timer_if_needed(state);
            }
            state.update_self_page(true);
        }
        if state.sets.is_switch_due {
            self.switch_set_even_in_nmi(state);
        }
    }
}
