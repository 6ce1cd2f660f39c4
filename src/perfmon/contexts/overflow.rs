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
//!
//! The callbacks of a context's timer and irq_work call [`Context::deferred_work`], which is also
//! in this file. `deferred_work` delivers the overflows of sampling clocks, ends the runs of event
//! sets, and does the work that an NMI cannot do.

use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;
use perfmon_rules::abi::{self, action, Message};
use perfmon_rules::error::Error;
use perfmon_rules::event_sets;
use perfmon_rules::period::{is_virtual, Attr};
use perfmon_rules::register_bitmap::PmdSet;
use protocols::ring::{THROTTLE, UNTHROTTLE};

use crate::contexts::context::{Context, ContextState};
use crate::contexts::event_set::Registers;
use crate::contexts::phase::Target;
use crate::contexts::sampling_state::Sampling;
use crate::description::{self, Overflow};
use crate::msr;
use crate::nmi::{self, IrqRegs};
use crate::pmus::to_kernel_error;
use crate::sample_buffer::Buffer;
use crate::stats::{self, SelfStat};
use base::{clock, preempt, task};

impl Context {
    /// Handles an NMI for this context. Returns the number of PMDs whose overflows were delivered,
    /// and the number of hardware counters that wrapped. If the context's lock is held, defers the
    /// NMI and returns 1 as the number of wrapped counters.
    #[inline]
    pub(crate) fn handle_overflow(&self, interrupted: IrqRegs) -> (u32, u32) {
        let Some(mut state) = self.state.try_lock() else {
            nmi::defer(interrupted);
            return (0, 1);
        };
        if !state.phase.is_in_this_cpu_pmu() {
            return (0, 0);
        }
        self.sync(&mut state);
        let turned = state.set.registers.take_wrapped();
        let told = self.deliver_overflows(&mut state, Some(interrupted));
        self.rearm(&mut state);
        (told, turned)
    }

    /// Called when the context's timer has expired (`timer` is true), or by the context's irq_work.
    /// The timer expires when a sampling clock overflows, when the run of an event set ends, and
    /// when throttling ends. The irq_work starts and cancels the timer, queues workers and ends
    /// broken contexts, all of which an NMI cannot do. Called with interrupts off.
    pub(crate) fn deferred_work(&self, timer: bool) {
        let _span = timer.then(|| stats::timer(SelfStat::Timers, SelfStat::TimerTime));
        let mut state = self.state.lock();
        if core::mem::take(&mut state.recheck_pending) {
            // Release the context's lock, because queueing work can take a run-queue lock. The
            // scheduler probes take the context's lock under a run-queue lock.
            drop(state);
            self.notifier.queue_permission_check();
            state = self.state.lock();
        }
        if state.broken {
            return self.end_broken(state);
        }
        // Cancel the timer if an NMI has removed the context from the PMU, or has made an event set
        // active that needs no timer.
        if !timer && (state.phase.cpu().is_none() || !state.needs_timer()) {
            self.notifier.cancel_timer();
        }
        if !state.phase.is_in_this_cpu_pmu() {
            return;
        }
        if !timer {
            return self.set_timer(&mut state);
        }
        let began = clock::read_tsc();
        self.sync(&mut state);
        self.unthrottle(&mut state);
        let ends = state.run_remaining(clock::monotonic_ns_in_any_context()) == Some(0);
        state.sets.due |= ends;
        let samples = state.set.registers.program.has_armed_clock;
        let told = self.deliver_overflows(&mut state, nmi::irq_regs());
        self.rearm(&mut state);
        drop(state);
        if told == 0 && !samples && !ends {
            return;
        }
        let pause = nmi::throttle_time(began, None);
        match pause {
            0 => {}
            // If no sample was taken, the timer callback has spent its time on a switch of event
            // sets. Throttling would not help, so delay the next set switch.
            _ if told == 0 && !samples => self.delay_set_switch(pause),
            _ => self.throttle(pause),
        }
    }

    /// Prevents the timer from ending the active set's run for `nanoseconds`. Called with
    /// interrupts off.
    fn delay_set_switch(&self, nanoseconds: u64) {
        let mut state = self.state.lock();
        if state.phase.is_in_this_cpu_pmu() {
            stats::count(SelfStat::SetSwitchLate);
            state.sets.earliest_switch =
                clock::monotonic_ns_in_any_context().wrapping_add(nanoseconds);
            self.set_timer(&mut state);
        }
    }

    /// Throttles the context for `nanoseconds`: during this time the context counts without
    /// overflow interrupts. Called in an NMI, or with interrupts off.
    pub(crate) fn throttle(&self, nanoseconds: u64) {
        let Some(mut state) = self.state.try_lock() else {
            return;
        };
        if !state.phase.is_in_this_cpu_pmu() || state.sampling.is_throttled() {
            return;
        }
        stats::count(SelfStat::Throttles);
        self.sync(&mut state);
        self.deliver_overflows(&mut state, None);
        let now = clock::monotonic_ns_in_any_context();
        state.sampling.throttled = Some((now, now.wrapping_add(nanoseconds)));
        state.sampling.throttle_stats.nr = state.sampling.throttle_stats.nr.wrapping_add(1);
        if state.phase.cpu().is_some() {
            state.set.registers.throttle(|c| {
                msr::write(c.address, 0);
            });
            state.update_self_page(true);
        }
        self.write_ring_record(&mut state, THROTTLE, now);
        // The irq_work starts the timer for the end of throttling, because an NMI cannot start a
        // timer.
        self.notifier.queue_work();
    }

    /// Unthrottles the context if its throttling time is over. The caller has updated the PMDs in
    /// memory. Called with interrupts off, but not in an NMI.
    pub(crate) fn unthrottle(&self, state: &mut ContextState) {
        let Some((since, until)) = state.sampling.throttled else {
            return;
        };
        let now = clock::monotonic_ns_in_any_context();
        if now < until {
            return;
        }
        state.sampling.throttled = None;
        // If the context is in no PMU, its throttling ended at the time `until`.
        let ended = match state.phase.cpu() {
            Some(_) => now,
            None => until,
        };
        let sampling = &mut state.sampling;
        for sum in [&mut sampling.throttle_stats, &mut sampling.unreported] {
            sum.time = sum.time.wrapping_add(ended.wrapping_sub(since));
        }
        state.set.registers.unthrottle();
        self.account_skipped_overflows(state);
        self.write_ring_record(state, UNTHROTTLE, ended);
        if state.sets.due && state.phase.cpu().is_none() {
            self.switch_set(state);
        }
    }

    /// Accounts for the overflows that occurred while the context was throttled. If the context has
    /// a sampling buffer, overflows during throttling are counted as lost samples, and each PMD
    /// (data register) that overflowed starts a new period. Without a sampling buffer, one overflow
    /// of each PMD stays pending, and the other overflows during throttling are counted as lost.
    #[cold]
    pub(crate) fn account_skipped_overflows(&self, state: &mut ContextState) {
        let skipped = state.set.registers.take_skipped();
        if skipped.is_empty() {
            return;
        }
        let set = &mut *state.set;
        let (mut lost, mut last) = (0u64, PmdSet::default());
        let delivered = u64::from(state.sampling.buffer.is_none());
        let skips = |attr: &&mut Attr| skipped.intersects(&attr.pmd_set);
        for attr in set.attrs.iter_mut().filter(skips) {
            let nr = attr.overflow_count(set.registers.value(attr.pmd));
            let nr = nr.saturating_sub(delivered);
            lost = lost.wrapping_add(nr);
            if attr.count_down(nr) {
                last.add(&attr.pmd_set);
            }
        }
        let total = &mut state.sampling.throttle_stats.lost;
        *total = total.wrapping_add(lost);
        if !last.is_empty() && set.runs.policy.switches_on_overflow() {
            set.runs.ended_by = last;
            state.sets.due = true;
        }
        let Some(buffer) = &mut state.sampling.buffer else {
            return set.registers.mark_overflowed(&skipped);
        };
        buffer.add_lost(lost);
        let unreported = &mut state.sampling.unreported.lost;
        *unreported = unreported.wrapping_add(lost);
        self.reset(state, skipped, false);
    }

    /// Writes a record other than a sample, for example about throttling, into the ring of the
    /// sampling buffer. Does nothing if the context has no ring. Wakes the readers if the ring
    /// requests a wakeup.
    pub(crate) fn write_ring_record(&self, state: &mut ContextState, kind: u16, word: u64) {
        let Some(buffer) = &mut state.sampling.buffer else {
            return;
        };
        if buffer.write_record(kind, word) && state.sampling.queue.is_empty() {
            let mut overflow = Overflow::default();
            nmi::fill_overflow(&mut overflow, None, self.privileged, &self.ns);
            self.notify(state, &overflow, PmdSet::default());
        }
    }

    /// Delivers the pending overflows: takes samples, queues messages, and then masks the context
    /// or resets the PMDs that overflowed. Returns the number of PMDs that overflowed. The caller
    /// has updated the PMDs in memory.
    pub(crate) fn deliver_overflows(
        &self,
        state: &mut ContextState,
        interrupted: Option<IrqRegs>,
    ) -> u32 {
        // The NMI of a counter that has just wrapped may arrive after this function has handled the
        // overflow. If the PMU has no global status register, the NMI handler cannot recognize such
        // a late NMI unless expect_stale_nmi() has announced it.
        if state.set.registers.take_wrapped() != 0 && self.registers.map().global_status == 0 {
            nmi::expect_stale_nmi(clock::read_tsc());
        }
        if state.set.registers.has_skipped() {
            self.account_skipped_overflows(state);
        }
        if !state.set.registers.has_pending() {
            return 0;
        }
        let pending = state.set.registers.take_pending();
        let mut overflow = Overflow::default();
        nmi::fill_overflow(&mut overflow, interrupted, self.privileged, &self.ns);
        let (mut nr, mut todo, mut told) = (0u32, 0, PmdSet::default());
        let (set, sampling) = (&mut *state.set, &mut state.sampling);
        overflow.set = set.id;
        // The first sample after throttling also reports the number of lost samples and the
        // throttled time.
        let unreported = core::mem::take(&mut sampling.unreported);
        (overflow.lost, overflow.throttled) = (unreported.lost, unreported.time);
        let Sampling { values, buffer, .. } = sampling;
        let mut last = PmdSet::default();
        let pend = |attr: &&mut Attr| pending.intersects(&attr.pmd_set);
        for attr in set.attrs.iter_mut().filter(pend) {
            if attr.count_down(1) {
                last.add(&attr.pmd_set);
            }
            let buffer = buffer.as_deref_mut();
            let wants = self.take_sample(
                attr,
                &set.registers,
                &state.thread,
                &mut **values,
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
            set.runs.ended_by = last;
            state.sets.due = true;
        }
        if !told.is_empty() {
            todo |= self.notify(state, &overflow, told);
        } else if todo & action::WAKE != 0 && state.sampling.queue.is_empty() {
            todo |= self.notify(state, &overflow, pending);
        }
        if todo & action::MASK != 0 {
            state.sampling.reset_pending.add(&pending);
            self.mask(state);
            let own = state.phase.target() == Target::Thread(task::current_task_address());
            let blocks = own && todo & action::NOTIFY != 0;
            if let Some(blocker) = state.blocker.as_ref().filter(|_| blocks) {
                stats::count(SelfStat::Waits);
                blocker.block_thread();
            }
        } else {
            self.reset(state, pending, false);
        }
        nr
    }

    /// Takes a sample for a PMD that overflowed. Returns the actions (`action::*`) that the caller
    /// must take. The actions include `NOTIFY` only if the PMD has the flag `NOTIFY`.
    #[inline]
    fn take_sample(
        &self,
        attr: &Attr,
        registers: &Registers,
        thread: &Option<ARef<Task>>,
        values: &mut [u64],
        buffer: Option<&mut Buffer>,
        overflow: &mut Overflow,
    ) -> u32 {
        let notify = attr.flags & abi::NOTIFY != 0;
        let Some(buffer) = buffer else {
            return match notify {
                true => action::NOTIFY | action::MASK,
                false => action::RESET,
            };
        };
        let numbers = attr.values();
        let values = values.get_mut(..numbers.len()).unwrap_or(&mut []);
        let plain = !attr.reads_virtual && registers.is_64bit();
        for (value, number) in values.iter_mut().zip(numbers) {
            *value = match plain {
                true => registers.value(*number),
                false => self.sample_value(registers, *number, thread.as_ref()),
            };
        }
        overflow.pmd = attr.pmd;
        overflow.last_reset = attr.last_reset;
        overflow.eventid = attr.eventid;
        overflow.flags = match notify {
            true => description::OVERFLOW_NOTIFY,
            false => 0,
        };
        if self.privileged {
            overflow.flags |= description::OVERFLOW_KERNEL;
        }
        stats::count(SelfStat::Samples);
        let began = clock::read_tsc_low_bits();
        let wants = buffer.overflow(overflow, values);
        stats::add_elapsed(SelfStat::SampleTime, began);
        match notify {
            true => wants,
            false => wants & !action::NOTIFY,
        }
    }

    /// Returns the current value of a PMD for a sample. The PMD can be virtual or narrower than 64
    /// bits.
    #[cold]
    fn sample_value(&self, registers: &Registers, pmd: u16, thread: Option<&ARef<Task>>) -> u64 {
        let map = self.descriptions().map();
        match map.pmd(pmd) {
            Some(row) if is_virtual(row) => {
                let control = registers.control_of(&map, row);
                self.read_virtual(pmd, row.address, control, thread)
            }
            _ => registers.pmd(&map, pmd),
        }
    }

    /// Queues a message about the overflow of the PMDs `pmds` and wakes the readers. Returns `MASK`
    /// if the message queue is full, otherwise 0.
    #[cold]
    pub(crate) fn notify(
        &self,
        state: &mut ContextState,
        overflow: &Overflow,
        pmds: PmdSet,
    ) -> u32 {
        let message = Message {
            msg_type: abi::OVFL,
            msg_ovfl_pid: overflow.pid,
            msg_active_set: overflow.set,
            msg_ovfl_cpu: overflow.cpu as u16,
            msg_ovfl_tid: overflow.tid,
            msg_ovfl_ip: overflow.ip,
            msg_ovfl_pmds: pmds.to_bitmap(),
        };
        let kept = self.no_messages || state.sampling.queue.push(&message);
        self.notifier.wake_readers();
        if kept {
            stats::count(SelfStat::Messages);
            return 0;
        }
        stats::count(SelfStat::MessagesLost);
        action::MASK
    }

    /// Masks the context: the context does not count until `PERFMON_RESTART`.
    #[cold]
    fn mask(&self, state: &mut ContextState) {
        if state.phase.cpu().is_some() {
            self.save_pmu(state);
        }
        self.sync_virtual(state);
        // Overflows that save_pmu() and sync_virtual() have just found are not delivered. Add the
        // PMDs that have overflowed to `reset_pending`, so that `PERFMON_RESTART` resets them.
        let more = state.set.registers.take_pending();
        state.sampling.reset_pending.add(&more);
        state.sampling.masked = true;
    }

    /// Starts the next period of the PMDs `pmds`, and resets the PMDs in their `reg_reset_pmds`.
    #[inline(always)]
    fn reset(&self, state: &mut ContextState, pmds: PmdSet, long: bool) {
        stats::count(SelfStat::Resets);
        let set = &mut *state.set;
        let registers = &mut set.registers;
        let mut others = PmdSet::default();
        let ended = |attr: &&mut Attr| pmds.intersects(&attr.pmd_set);
        for attr in set.attrs.iter_mut().filter(ended) {
            let value = attr.next_value(long);
            others.add(&attr.reset_pmds);
            match (long, registers.is_64bit()) {
                (true, _) => registers.set_value(attr.pmd, value),
                (false, true) => registers.reset_64bit(attr.pmd, value),
                (false, false) => {
                    let beyond = self.sample_value(registers, attr.pmd, None);
                    registers.reset(attr.pmd, value, beyond);
                }
            }
        }
        if others.is_empty() {
            return;
        }
        while let Some(pmd) = others.pop() {
            if !pmds.has(pmd) {
                state.set.reset_linked_pmd(pmd, long);
            }
        }
    }

    /// If the context is in this CPU's PMU, programs the next start values of the counters and
    /// starts the timer. Switches to the next event set if a switch is due.
    #[inline(always)]
    pub(crate) fn rearm(&self, state: &mut ContextState) {
        if state.phase.cpu().is_some() {
            state.set.registers.rearm(|c| {
                msr::write(c.address, c.start);
            });
            self.set_timer(state);
            state.update_self_page(true);
        }
        if state.sets.due {
            self.switch_set_now(state);
        }
    }

    /// Switches to the next event set. May be called in an NMI.
    #[inline(never)]
    pub(crate) fn switch_set_now(&self, state: &mut ContextState) {
        self.switch_set(state);
        // The irq_work starts the timer, which an NMI cannot do.
        if state.needs_timer() && preempt::in_nmi() {
            self.notifier.queue_work();
        }
    }

    /// Starts the timer if the context needs it. Called with interrupts off, while the context is
    /// in this CPU's PMU. Does nothing in an NMI: the timer is running already, or the irq_work
    /// will start it.
    #[inline]
    pub(crate) fn set_timer(&self, state: &mut ContextState) {
        if state.needs_timer() && !preempt::in_nmi() {
            self.start_timer(state);
        }
    }

    /// Starts the timer for the first of these events: the next overflow of a sampling clock, the
    /// end of the event set's run, or the end of throttling.
    pub(crate) fn start_timer(&self, state: &mut ContextState) {
        let clock = state.set.registers.clock_left();
        let now = clock::monotonic_ns_in_any_context();
        let (turn, storm) = (state.run_remaining(now), state.sampling.throttled);
        let calm = storm.map(|(_, until)| until.saturating_sub(now));
        if let Some(left) = [clock, turn, calm].into_iter().flatten().min() {
            // Limit the rate of the timer: with a shorter period the CPU would only handle the
            // timer.
            self.notifier.start_timer(left.max(event_sets::MIN_RUN_NS));
        }
    }

    /// Implements `PERFMON_RESTART`, which unmasks the context. Returns `EBUSY` if the context is
    /// detached, or attached to a CPU on which the caller does not run. Also returns `EBUSY` if the
    /// context is not masked, unless its sampling format restarts contexts that are not masked.
    /// Returns `ESRCH` if the target has ended.
    pub(crate) fn restart(&self) -> Result {
        let mut done = Ok(Target::Detached);
        self.try_with_state(&mut |state| {
            let active = match &state.sampling.buffer {
                Some(buffer) => buffer.format().restarts_active(),
                None => false,
            };
            done = match (state.phase.target(), state.sampling.masked) {
                (Target::Detached, _) => Err(Error::NotMasked),
                (_, false) if !active => Err(Error::NotMasked),
                (Target::Dead, _) => Err(Error::Ended),
                (target, _) => Ok(target),
            };
            state.resume_thread();
            if done.is_err() {
                return;
            }
            stats::count(SelfStat::Restarts);
            let todo = match &mut state.sampling.buffer {
                Some(buffer) => buffer.restart(),
                None => 0,
            };
            if !state.sampling.masked {
                done = Ok(Target::Detached);
                return;
            }
            let ended = core::mem::take(&mut state.sampling.reset_pending);
            self.reset(state, ended, true);
            if todo & action::MASK == 0 {
                state.sampling.masked = false;
                if state.phase.is_started() {
                    self.start_virtual(state);
                }
                if state.sets.due {
                    self.switch_set(state);
                }
                if let Target::Cpu(_) = state.phase.target() {
                    self.load_if_waiting(state);
                }
            }
        })
        .map_err(to_kernel_error)?;
        self.notifier.wake_blocked();
        if let Target::Thread(task) = done.map_err(to_kernel_error)? {
            self.load_where_running(task);
        }
        Ok(())
    }

    /// Pauses or resumes writing to the ring of the sampling buffer. Returns `EINVAL` if the
    /// context has no ring.
    pub(crate) fn pause(&self, paused: bool) -> Result {
        let state = self.state.lock();
        state.sampling.buffer.as_ref().ok_or(EINVAL)?.pause(paused)
    }
}
