// SPDX-License-Identifier: GPL-2.0

//! The time of interrupts: the beginnings and the ends of hard interrupts and softirqs on a CPU.

use super::cpu::{saturating_time_diff, Cpu, IrqTime};
use super::values::add;
use protocols::sync::fence_acquire;

impl IrqTime {
    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        self.0.load_relaxed() & 1 != 0
    }

    /// Returns the time of interrupts up to `now`, modulo 2^63.
    #[inline(always)]
    pub(super) fn total(&self, now: u64) -> u64 {
        let word = self.0.load_relaxed();
        let on = word & 1;
        (word >> 1).wrapping_add(now.wrapping_mul(on)) & (u64::MAX >> 1)
    }

    /// Returns the current time and the time of interrupts up to the current time. Called on the
    /// CPU that writes the word. Repeats the reads if an interrupt occurred between them.
    #[inline(always)]
    pub(super) fn now_and_total(&self, clock: &impl Fn() -> u64) -> (u64, u64) {
        loop {
            let before = self.0.load_relaxed();
            let now = clock();
            let total = self.total(now);
            if self.0.load_relaxed() == before {
                return (now, total);
            }
        }
    }

    /// Returns the new value of the word after an interrupt has begun or ended at the time `now`.
    #[inline(always)]
    pub(super) fn after_irq_enter_or_exit(word: u64, now: u64) -> u64 {
        match word & 1 {
            0 => (word >> 1).wrapping_sub(now).wrapping_shl(1) | 1,
            _ => (word >> 1).wrapping_add(now).wrapping_shl(1),
        }
    }
}

#[inline(always)]
fn toggle_irq_time(span: &IrqTime, now: u64) {
    let word = span.0.load_relaxed();
    span.0
        .store_relaxed(IrqTime::after_irq_enter_or_exit(word, now));
}

/// Returns the difference of two times of 63 bits, or 0 if the difference is negative.
#[inline(always)]
fn saturating_time_diff_63_bits(later: u64, earlier: u64) -> u64 {
    saturating_time_diff(later.wrapping_shl(1), earlier.wrapping_shl(1)) >> 1
}

impl Cpu {
    /// Accounts the beginning of a hard interrupt or, if `is_first_of_line` is false, of a further
    /// handler of a shared interrupt. Interrupts off.
    #[inline]
    pub fn irq_enter(&self, is_first_of_line: bool, clock: impl Fn() -> u64) {
        add(&self.nr_hardirqs, is_first_of_line.into());
        add(&self.irq_updates_in_progress, 1);
        let now = clock();
        match self.irq_time.is_active() {
            true => add(&self.nr_nested_irqs, 1),
            false => toggle_irq_time(&self.irq_time, now),
        }
        self.end_irq_update();
        match self.hardirq_time.is_active() {
            true => add(&self.nr_nested_hardirqs, 1),
            false => toggle_irq_time(&self.hardirq_time, now),
        }
    }

    /// Accounts the end of a hard interrupt, or of one handler of a shared interrupt. Interrupts
    /// off.
    #[inline]
    pub fn irq_exit(&self, clock: impl Fn() -> u64) {
        if !self.hardirq_time.is_active() {
            return;
        }
        add(&self.irq_updates_in_progress, 1);
        let now = clock();
        match self.nr_nested_hardirqs.load_relaxed() {
            0 => toggle_irq_time(&self.hardirq_time, now),
            nr => self.nr_nested_hardirqs.store_relaxed(nr.wrapping_sub(1)),
        }
        match self.nr_nested_irqs.load_relaxed() {
            0 => toggle_irq_time(&self.irq_time, now),
            nr => self.nr_nested_irqs.store_relaxed(nr.wrapping_sub(1)),
        }
        self.end_irq_update();
    }

    /// Records that a time stamp was added to `irq_time`.
    #[inline(always)]
    fn end_irq_update(&self) {
        // Release: pairs with the acquire in `stable_irq_time`, so that a reader that sees this
        // count sees the new `irq_time`.
        let turning = self.irq_updates_in_progress.load_relaxed().wrapping_sub(1);
        self.irq_updates_in_progress.store_release(turning);
    }

    /// Returns the current time and the interrupt time up to the current time. Runs on any CPU.
    /// Returns `None` if an interrupt is just beginning or ending: its time stamp is not in
    /// `irq_time` yet, and may be earlier than the current time.
    pub(super) fn stable_irq_time(&self, clock: &impl Fn() -> u64) -> Option<(u64, u64)> {
        // Acquire: pairs with the release in `end_irq_update`.
        let turning = self.irq_updates_in_progress.load_acquire();
        let before = self.irq_time.0.load_relaxed();
        let now = clock();
        let total = self.irq_time.total(now);
        // The fence orders `clock()` before the second loads of `irq_updates_in_progress` and
        // `irq_time`.
        fence_acquire();
        let turning = turning | self.irq_updates_in_progress.load_relaxed();
        (turning == 0 && self.irq_time.0.load_relaxed() == before).then_some((now, total))
    }

    /// Accounts the beginning of a softirq. `own` is true if the thread ksoftirqd runs the softirq:
    /// softirqs of ksoftirqd count as time of the thread, not as interrupt time.
    #[inline]
    pub fn softirq_enter(&self, number: usize, own: bool, clock: impl Fn() -> u64) {
        if !own {
            self.toggle_irq_time_for_softirq(&clock, 0);
        }
        // Bit 32 keeps `!own` for `softirq_exit()`, where `own` could differ: `own` depends on the
        // record of the current task, which may be replaced before the softirq ends.
        let ours = u64::from(!own).wrapping_shl(32);
        self.running_softirq
            .store_relaxed(number.wrapping_add(1) as u64 | ours);
        let (now, hard) = self.hardirq_time.now_and_total(&clock);
        self.softirq_start.store_relaxed(now);
        self.hardirq_time_at_softirq_start.store_relaxed(hard);
    }

    /// Accounts the end of a softirq.
    #[inline]
    pub fn softirq_exit(&self, clock: impl Fn() -> u64) {
        let on = self.running_softirq.load_relaxed();
        let number = (on as u32 as usize).wrapping_sub(1);
        let words = (
            self.softirq_time.get(number),
            self.softirq_count.get(number),
        );
        if let (Some(time), Some(count)) = words {
            let (now, hard) = self.hardirq_time.now_and_total(&clock);
            let inside = saturating_time_diff_63_bits(
                hard,
                self.hardirq_time_at_softirq_start.load_relaxed(),
            );
            add(
                time,
                saturating_time_diff(now, self.softirq_start.load_relaxed().wrapping_add(inside)),
            );
            add(count, 1);
            self.running_softirq.store_relaxed(0);
        }
        if on >> 32 != 0 {
            self.toggle_irq_time_for_softirq(&clock, 1);
        }
    }

    /// Begins or ends the interrupt time of a softirq. `on` is the value of bit 0 of `irq_time`
    /// before the change: 0 at the beginning of the interrupt time, 1 at its end. If a hard
    /// interrupt changes `irq_time` during the call, this function does not overwrite the change.
    #[inline(always)]
    fn toggle_irq_time_for_softirq(&self, clock: &impl Fn() -> u64, on: u64) {
        add(&self.irq_updates_in_progress, 1);
        loop {
            let word = self.irq_time.0.load_relaxed();
            let nr = self.nr_nested_irqs.load_relaxed();
            if on == 0 && word & 1 != 0 {
                add(&self.nr_nested_irqs, 1);
            } else if on == 1 && nr != 0 {
                self.nr_nested_irqs.store_relaxed(nr.wrapping_sub(1));
            } else if word & 1 == on
                && !self
                    .irq_time
                    .0
                    .try_cmpxchg_release(word, IrqTime::after_irq_enter_or_exit(word, clock()))
            {
                continue;
            }
            break;
        }
        self.end_irq_update();
    }
}
