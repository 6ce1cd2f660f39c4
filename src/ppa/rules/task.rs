// SPDX-License-Identifier: GPL-2.0

//! The process-accounting state of a task, in 64-bit words, and the functions that update it.

use core::array::from_fn;
use core::iter::once;
use core::num::NonZeroU32;
use core::ops::Deref;

use super::seqcount::SeqCount;
use super::values::{
    add, value, SwitchReason, KERNEL_UNTIL_USER_MODE, NR_LATENCIES, NR_SIGNALS, NR_VALUES, SYSTEM,
    USER,
};
use protocols::sync::Word;

/// Memory for values: [`NR_VALUES`] words for each group of CPUs.
pub trait ValueWords: Deref<Target = [Word]> {}
impl<T: Deref<Target = [Word]>> ValueWords for T {}

/// The upper bounds, in ticks, of the histogram classes of wakeup latencies. The last class has no
/// upper bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct LatencyBounds([u64; NR_LATENCIES - 1]);

impl LatencyBounds {
    /// Creates the bounds for a clock with this many ticks per millisecond.
    pub const fn new(khz: u64) -> Self {
        Self([
            khz / 100,
            khz / 10,
            khz,
            khz.wrapping_mul(10),
            khz.wrapping_mul(100),
            khz.wrapping_mul(1_000),
            khz.wrapping_mul(10_000),
        ])
    }

    /// Returns the histogram class of a latency.
    #[inline(always)]
    pub fn bucket(&self, ticks: u64) -> usize {
        let mut place = 0usize;
        for bound in &self.0 {
            if ticks < *bound {
                break;
            }
            place = place.wrapping_add(1);
        }
        place
    }
}

/// The accounting state of a task, in 64-bit words. The CPU that runs the task writes most of the
/// words. Other CPUs write `wait_start` when they wake the task, `mode` while it does not run, and
/// `latency_hist`.
#[repr(C)]
pub struct Task<V> {
    pub(super) seqcount: SeqCount,
    /// Number + 1 of the CPU that runs the task; 0 while no CPU runs it.
    pub(super) running_cpu_plus_1: Word,
    /// Number + 1 of the CPU that ran the task last.
    pub(super) last_cpu_plus_1: Word,
    /// The mode in which the task continues when it is switched in: `USER`, `SYSTEM` or
    /// `KERNEL_UNTIL_USER_MODE`.
    mode: Word,
    /// Time at which the task began to wait for a CPU, combined with the reason by [`stamp`]; 0 if
    /// the task does not wait.
    pub(super) wait_start: Word,
    /// Ticks that the task waited for a CPU after it was preempted or its time slice was over.
    pub(super) involuntary_wait_ticks: Word,
    /// Time at which the accounting of the task began.
    pub(super) accounting_start: Word,
    /// Time at which the accounting of the task ended; 0 while the task is accounted.
    pub(super) accounting_end: Word,
    /// Number of CPUs per group. A task has separate values for each group of CPUs.
    pub(super) cpus_per_group: NonZeroU32,
    /// The number of the task's present group of CPUs, multiplied by [`NR_VALUES`].
    pub(super) group_values_word_offset: Word,
    /// Nonzero while wakeup latencies are counted in the histogram.
    latency_hist: Word,
    pub(super) latencies: [Word; NR_LATENCIES],
    pub(super) signals: [Word; NR_SIGNALS],
    /// The values for the first group of CPUs. By default all CPUs are in the first group.
    first_group_values: [Word; NR_VALUES],
    /// The values for all groups of CPUs except the first.
    other_group_values: V,
}

/// Number of low bits of `wait_start` that contain the reason of the wait. A probe tests one bit to
/// distinguish [`WAIT_REASON_RUNNABLE`] from the other reasons.
const WAIT_REASON_BITS: u32 = 3;
/// Mask of the reason in `wait_start`.
pub(super) const WAIT_REASON_MASK: u64 = (1 << WAIT_REASON_BITS) - 1;
/// Reason of a wait for a CPU: the task was preempted, or its time slice was over.
pub(super) const WAIT_REASON_RUNNABLE: u64 = 4;
/// Reason of a wait: a wakeup came before the task was switched out. The task may still go to
/// sleep. The value is a bit that is also set in [`WAIT_REASON_WOKEN`].
const WAIT_REASON_MAYBE_WOKEN: u64 = WAIT_REASON_WOKEN - 1;
/// Reason of a wait: the task was woken.
pub(super) const WAIT_REASON_WOKEN: u64 = 3;

#[inline(always)]
fn stamp(now: u64, why: u64) -> u64 {
    now.wrapping_shl(WAIT_REASON_BITS).wrapping_add(why)
}

/// Returns the ticks from the stamp `since` to the time `now`, or 0 if `now` is earlier.
#[inline(always)]
pub(super) fn ticks_since(now: u64, since: u64) -> u64 {
    match stamp(now, WAIT_REASON_MASK).wrapping_sub(since) {
        // The difference may be negative, because the clocks of two CPUs differ a little.
        ticks if (ticks as i64) < 0 => zero_for_negative_difference(),
        ticks => ticks >> WAIT_REASON_BITS,
    }
}

/// Returns 0, the result for a negative difference of two times. The attribute `cold` lets the
/// compiler place the code for this rare case outside of the fast path.
#[cold]
#[inline]
fn zero_for_negative_difference() -> u64 {
    0
}

impl<V: ValueWords> Task<V> {
    /// Creates the accounting state of a task. `other_group_values` has [`NR_VALUES`] zeros for
    /// each group of `scaling` CPUs except the first.
    pub fn new(other_group_values: V, scaling: u32) -> Self {
        Self {
            seqcount: SeqCount::default(),
            running_cpu_plus_1: Word::new(0),
            last_cpu_plus_1: Word::new(0),
            mode: Word::new(USER),
            wait_start: Word::new(0),
            involuntary_wait_ticks: Word::new(0),
            accounting_start: Word::new(0),
            accounting_end: Word::new(0),
            cpus_per_group: NonZeroU32::new(scaling).unwrap_or(NonZeroU32::MIN),
            group_values_word_offset: Word::new(0),
            latency_hist: Word::new(0),
            latencies: from_fn(|_| Word::new(0)),
            signals: from_fn(|_| Word::new(0)),
            first_group_values: from_fn(|_| Word::new(0)),
            other_group_values,
        }
    }

    /// Begins the accounting of the task. `calling` is true if the task first enters user mode by a
    /// return from a system call, as a new child does. `told_apart` is true if the histogram counts
    /// the task's wakeup latencies.
    pub fn begin(&self, calling: bool, told_apart: bool, now: u64) {
        self.mode.store_relaxed(if calling { SYSTEM } else { USER });
        self.latency_hist.store_relaxed(told_apart.into());
        self.accounting_start.store_relaxed(now);
    }

    /// Records that the task is in a system call, or in kernel work after the end of a system call.
    /// Does nothing if the task is running.
    pub fn mark_in_kernel_unless_running(&self) {
        if self.running_cpu_plus_1.load_relaxed() == 0 {
            // Store `KERNEL_UNTIL_USER_MODE`, not `SYSTEM`: the call may have ended before
            // accounting began.
            self.mode.store_relaxed(KERNEL_UNTIL_USER_MODE);
        }
    }

    /// Returns the values for the group of the CPU on which the task runs or ran last.
    #[inline(always)]
    pub(super) fn current_group_values(&self) -> Option<&[Word; NR_VALUES]> {
        match self.group_values_word_offset.load_relaxed() {
            0 => Some(&self.first_group_values),
            base => {
                let end = base as usize;
                let values = self
                    .other_group_values
                    .get(end.wrapping_sub(NR_VALUES)..end)?;
                values.first_chunk()
            }
        }
    }

    /// Returns the values of all groups of CPUs.
    pub(super) fn all_group_values(&self) -> impl Iterator<Item = &[Word]> {
        once(&self.first_group_values[..]).chain(self.other_group_values.chunks_exact(NR_VALUES))
    }

    /// Adds `more` to a value of a running task. Called between `write_begin()` and `write_end()`
    /// of the CPU's `seqcount`.
    #[inline(always)]
    pub(super) fn add(&self, index: usize, more: u64) {
        if let Some(word) = self
            .current_group_values()
            .and_then(|values| values.get(index))
        {
            self.seqcount.write_begin();
            add(word, more);
            self.seqcount.write_end();
        }
    }

    #[inline(always)]
    fn set_cpu(&self, cpu: &Word) {
        let number = cpu.load_relaxed();
        self.running_cpu_plus_1.store_relaxed(number);
        if self.last_cpu_plus_1.load_relaxed() != number {
            self.set_last_cpu(number);
        }
    }

    /// Stores which CPU last ran the task, and the group of that CPU. `number` is the number of the
    /// CPU, plus 1.
    #[inline(always)]
    fn set_last_cpu(&self, number: u64) {
        self.last_cpu_plus_1.store_relaxed(number);
        let group = (number as u32).wrapping_sub(1) / self.cpus_per_group;
        let base = group.wrapping_mul(NR_VALUES as u32);
        self.group_values_word_offset.store_relaxed(base.into());
    }

    /// Returns the time at which the accounting of the task began.
    pub fn began(&self) -> u64 {
        self.accounting_start.load_relaxed()
    }

    /// Returns the ticks from the beginning of the task's accounting to its end, or to `now` if it
    /// has not ended.
    pub(super) fn counted_ticks(&self, now: u64) -> u64 {
        let end = match self.accounting_end.load_relaxed() {
            0 => now,
            ended => ended,
        };
        end.saturating_sub(self.accounting_start.load_relaxed())
    }

    /// Copies the last CPU, the mode and `wait_start` from `old`, the record that `self` will
    /// replace. Returns the new `wait_start` for [`recopy_wait_start`](Self::recopy_wait_start).
    pub fn copy_cpu_mode_and_wait_start(&self, old: &Self) -> u64 {
        match old.last_cpu_plus_1.load_relaxed() {
            0 => {}
            number => self.set_last_cpu(number),
        }
        let since = match old.running_cpu_plus_1.load_relaxed() {
            0 => {
                self.mode.store_relaxed(old.mode.load_relaxed());
                old.wait_start.load_relaxed()
            }
            _ => 0,
        };
        self.wait_start.store_relaxed(since);
        since
    }

    /// Copies `wait_start` from `old` again if it has changed since
    /// [`copy_cpu_mode_and_wait_start`](Self::copy_cpu_mode_and_wait_start) returned `copied`. No
    /// CPU uses `old` any more. If the task was switched in with the new record, its wait is over,
    /// and `wait_start` is not copied.
    pub fn recopy_wait_start(&self, copied: u64, old: &Self) {
        let since = old.wait_start.load_relaxed();
        if since == copied || !self.seqcount.was_never_written() {
            return;
        }
        // The task may be switched in at the same time, which ends its wait.
        if self.wait_start.try_cmpxchg_release(copied, since) && !self.seqcount.was_never_written()
        {
            self.wait_start.try_cmpxchg_release(since, 0);
        }
    }

    /// Records that the task is already running on this CPU, whose number plus 1 is in `cpu`.
    /// Called with interrupts off.
    pub(super) fn attach_running(&self, cpu: &Word, now: u64) {
        self.seqcount.write_begin();
        self.set_cpu(cpu);
        self.wait_start.store_relaxed(0);
        self.accounting_start.store_relaxed(now);
        self.seqcount.write_end();
    }

    /// Records that the task is running with this record, which has replaced `old`. The task runs
    /// on this CPU, whose number plus 1 is in `cpu`. Called with interrupts off.
    pub(super) fn continue_running(&self, cpu: &Word, old: &Self) {
        self.seqcount.write_begin();
        self.set_cpu(cpu);
        self.wait_start.store_relaxed(old.wait_start.load_relaxed());
        self.seqcount.write_end();
    }

    /// Ends the use of this record by the CPU on which the task keeps running. `own` is the time of
    /// the run minus the time of interrupts. `system` is the system time that was not yet added to
    /// the task's values.
    pub(super) fn detach_running(&self, own: u64, system: u64) {
        self.seqcount.write_begin();
        self.running_cpu_plus_1.store_relaxed(0);
        if let Some(values) = self.current_group_values() {
            add(&values[value::SCHED], own);
            add(&values[value::SYSTEM], system);
        }
        self.seqcount.write_end();
    }

    /// Accounts that the task is switched out. The task will continue in the mode `mode`. `own` is
    /// the time of the run minus the time of interrupts. `system` is the system time that was not
    /// yet added to the task's values. Called between `write_begin()` and `write_end()` of the
    /// task's `seqcount`.
    #[inline(always)]
    pub(super) fn switch_out(
        &self,
        mode: u64,
        (own, system): (u64, u64),
        leave: SwitchReason,
        now: u64,
    ) {
        self.mode.store_relaxed(mode);
        self.running_cpu_plus_1.store_relaxed(0);
        if let Some(values) = self.current_group_values() {
            add(&values[value::SCHED], own);
            add(&values[value::SYSTEM], system);
            let why = match leave {
                SwitchReason::Blocked => value::BLOCKED,
                SwitchReason::Expired => value::EXPIRED,
                SwitchReason::Preempted => value::PREEMPTED,
            };
            add(&values[why], 1);
        }
        if leave != SwitchReason::Blocked {
            self.wait_start
                .store_relaxed(stamp(now, WAIT_REASON_RUNNABLE));
        }
    }

    /// Increments the count by which readers detect a switch to the task. Called before the switch
    /// reads the clock, so that no reader reports more waiting time than the switch will add.
    #[inline(always)]
    pub fn begin_switch_in(&self) {
        self.seqcount.write_begin();
    }

    /// Accounts the switch to the task, on the CPU whose number plus 1 is in `cpu`. The word `cpu`
    /// is read late, so that its value occupies no register until it is needed. Returns the mode in
    /// which the task continues: `USER`, `SYSTEM` or `KERNEL_UNTIL_USER_MODE`. Called after
    /// [`begin_switch_in`](Self::begin_switch_in).
    #[inline(always)]
    pub(super) fn switch_in(&self, cpu: &Word, bounds: &LatencyBounds, now: u64) -> u64 {
        // Add the wait to the values of the old group of CPUs: while the task waited, readers have
        // reported the wait in these values.
        let since = self.wait_start.load_relaxed();
        if since & WAIT_REASON_MAYBE_WOKEN != 0 {
            let latency = ticks_since(now, since);
            if let Some(values) = self.current_group_values() {
                add(&values[value::LATENCY], latency);
            }
            if self.latency_hist.load_relaxed() != 0 {
                if let Some(word) = self.latencies.get(bounds.bucket(latency)) {
                    add(word, 1);
                }
            }
        } else if since != 0 {
            add(&self.involuntary_wait_ticks, ticks_since(now, since));
        }
        self.wait_start.store_relaxed(0);
        self.set_cpu(cpu);
        self.seqcount.write_end();
        self.mode.load_relaxed()
    }

    /// Accounts a wakeup. Called before the task is woken, on any CPU.
    ///
    /// A preempted task is waiting for a CPU already, even if it was about to sleep, so its
    /// `wait_start` stays unchanged. If a running task is woken and then switched out to sleep, its
    /// wait begins at the last wakeup, which has set `wait_start`.
    #[inline(always)]
    pub fn wake(&self, now: u64) {
        if self.wait_start.load_relaxed() & WAIT_REASON_RUNNABLE == 0 {
            // A subtraction takes an instruction less than the choice of one of two reasons.
            let runs = u64::from(self.running_cpu_plus_1.load_relaxed() != 0);
            let woken = stamp(now, WAIT_REASON_WOKEN);
            self.wait_start.store_relaxed(woken.wrapping_sub(runs));
        }
    }

    /// Counts a signal that was delivered to the task.
    #[inline]
    pub fn count_signal(&self, number: usize) {
        if let Some(word) = self.signals.get(number) {
            add(word, 1);
        }
    }

    /// Ends the accounting of the task.
    #[inline]
    pub fn end(&self, now: u64) {
        self.accounting_end.store_relaxed(now);
    }

    /// Returns how often a signal was delivered to the task.
    pub fn signals(&self, number: usize) -> u32 {
        self.signals
            .get(number)
            .map_or(0, |word| word.load_relaxed() as u32)
    }

    /// Returns true if wakeup latencies are counted in the histogram.
    pub fn has_latency_hist(&self) -> bool {
        self.latency_hist.load_relaxed() != 0
    }

    /// Starts or stops counting wakeup latencies in the histogram.
    pub fn set_latency_hist(&self, on: bool) {
        self.latency_hist.store_relaxed(on.into());
    }

    /// Returns the number of groups of CPUs.
    pub fn nr_groups(&self) -> usize {
        (self.other_group_values.len() / NR_VALUES).wrapping_add(1)
    }
}
