// SPDX-License-Identifier: GPL-2.0

//! Consistent reads of the accounting words of a task, and of the CPU that runs it.

use core::array::from_fn;

use super::cpu::Cpu;
use super::seqcount::retry_read;
use super::task::{
    ticks_since, Task, ValueWords, WAIT_REASON_MASK, WAIT_REASON_RUNNABLE, WAIT_REASON_WOKEN,
};
use super::values::{is_system_time_mode, value, NR_LATENCIES, NR_VALUES};
use protocols::sync::{fence_acquire, Word};

pub(super) fn add_all(sums: &mut [u64; NR_VALUES], more: &[u64; NR_VALUES]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum = sum.wrapping_add(*more);
    }
}

/// The values of a task at one moment.
#[derive(Clone, Copy, Debug)]
pub struct TaskSnapshot {
    /// The values of the task. Each value is the sum over all groups of CPUs.
    pub values: [u64; NR_VALUES],
    /// Ticks that the task waited for a CPU after it was preempted or its time slice was over.
    pub involuntary_wait_ticks: u64,
    /// Ticks from the beginning to the end of the task's accounting, or until now if the accounting
    /// has not ended.
    pub counted_ticks: u64,
    /// Number of wakeups for each histogram class of wakeup latency.
    pub latencies: [u64; NR_LATENCIES],
    /// The CPU that ran the task last.
    pub cpu: u32,
    /// True if the task is running.
    pub running: bool,
}

impl TaskSnapshot {
    /// Returns the number of wakeups of the task. If the histogram of latencies was off for some of
    /// the wakeups, the result is an approximation: the number of switches at which the task
    /// blocked.
    pub fn wakeups(&self) -> u64 {
        let blocked = self.values[value::BLOCKED];
        let counted = self.latencies.iter().fold(0u64, |n, m| n.wrapping_add(*m));
        // The histogram counts a wait when the wait is over, so it may lack the last wakeup. If
        // more wakeups are missing, the histogram was off for some time.
        match counted >= blocked.saturating_sub(1) {
            true => counted,
            false => blocked,
        }
    }
}

impl<V: ValueWords> Task<V> {
    /// Returns the values of the task up to now. Runs on any CPU. `cpu` returns the [`Cpu`] with a
    /// given number. Returns `None` if a writer is changing the values.
    pub fn read<'a>(
        &self,
        clock: impl Fn() -> u64,
        cpu: impl Fn(u32) -> Option<&'a Cpu>,
    ) -> Option<TaskSnapshot> {
        self.read_groups(clock, cpu, &mut [])
    }

    /// Returns the values of the task like [`read`](Self::read), and stores the values for each
    /// group of CPUs in `groups`.
    pub fn read_groups<'a>(
        &self,
        clock: impl Fn() -> u64,
        cpu: impl Fn(u32) -> Option<&'a Cpu>,
        groups: &mut [[u64; NR_VALUES]],
    ) -> Option<TaskSnapshot> {
        retry_read(|| {
            let start = self.seqcount.read_begin();
            let live = match self.running_cpu_plus_1.load_relaxed() {
                0 => None,
                on => cpu(on.wrapping_sub(1) as u32),
            };
            let start_there = live.map_or(0, |cpu| cpu.seqcount.read_begin());
            let read = self.try_read(&clock, live, groups)?;
            // Pairs with the release fence in `SeqCount::write_begin`.
            fence_acquire();
            let whole = self.seqcount.is_consistent(start)
                && live.is_none_or(|cpu| cpu.seqcount.is_consistent(start_there));
            whole.then_some(read)
        })
    }

    /// Adds `more`, the values of the run or wait in progress, to the values in `read`. `apart` has
    /// the values of each group of CPUs, or is empty. If it is not empty, `more` is also added to
    /// the values of the task's present group.
    fn add_run_or_wait_in_progress(
        &self,
        read: &mut TaskSnapshot,
        apart: &mut [[u64; NR_VALUES]],
        more: &[u64; NR_VALUES],
    ) {
        add_all(&mut read.values, more);
        let group = self.group_values_word_offset.load_relaxed() as usize / NR_VALUES;
        if let Some(values) = apart.get_mut(group) {
            add_all(values, more);
        }
    }

    fn try_read(
        &self,
        clock: &impl Fn() -> u64,
        live: Option<&Cpu>,
        apart: &mut [[u64; NR_VALUES]],
    ) -> Option<TaskSnapshot> {
        let on = self.running_cpu_plus_1.load_relaxed();
        let (now, total) = match live {
            Some(cpu) => cpu.stable_irq_time(clock)?,
            None => (clock(), 0),
        };
        let mut read = TaskSnapshot {
            values: [0; NR_VALUES],
            involuntary_wait_ticks: self.involuntary_wait_ticks.load_relaxed(),
            counted_ticks: 0,
            latencies: [0; NR_LATENCIES],
            cpu: (self.last_cpu_plus_1.load_relaxed() as u32).saturating_sub(1),
            running: on != 0,
        };
        read.counted_ticks = self.counted_ticks(now);
        for (to, word) in read.latencies.iter_mut().zip(&self.latencies) {
            *to = word.load_relaxed();
        }
        let mut to = apart.iter_mut();
        for words in self.all_group_values() {
            let values = from_fn(|n| words.get(n).map_or(0, Word::load_relaxed));
            if let Some(to) = to.next() {
                *to = values;
            }
            add_all(&mut read.values, &values);
        }
        if let Some(cpu) = live {
            let mut more = [0u64; NR_VALUES];
            let turn = cpu.run_time(now, total);
            more[value::SCHED] = turn.own_ticks;
            if is_system_time_mode(cpu.stable_mode()?) {
                more[value::SYSTEM] = turn
                    .own_ticks
                    .saturating_sub(cpu.own_ticks_at_system_time_start.load_relaxed());
            }
            more[value::INTERRUPTS] = turn.irq_ticks;
            let count = cpu.nr_hardirqs.load_relaxed();
            more[value::INTERRUPT_COUNT] =
                count.wrapping_sub(cpu.nr_hardirqs_at_run_start.load_relaxed());
            self.add_run_or_wait_in_progress(&mut read, apart, &more);
        }
        // A task that does not run and has not ended may be waiting for a CPU.
        if on == 0 && self.accounting_end.load_relaxed() == 0 {
            let since = self.wait_start.load_relaxed();
            let waits = ticks_since(now, since);
            match since & WAIT_REASON_MASK {
                WAIT_REASON_WOKEN => {
                    let mut more = [0u64; NR_VALUES];
                    more[value::LATENCY] = waits;
                    self.add_run_or_wait_in_progress(&mut read, apart, &more);
                }
                WAIT_REASON_RUNNABLE => {
                    read.involuntary_wait_ticks = read.involuntary_wait_ticks.wrapping_add(waits)
                }
                _ => {}
            }
        }
        Some(read)
    }
}
