// SPDX-License-Identifier: GPL-2.0

//! Evaluates values of tasks and CPUs: sums, differences, and conversions to time.

use std::collections::BTreeMap;

use crate::abi::{
    Task, AVGCTXT, INTACCUM, PRMPTCTXTCNT, PRMPTPRICNT, SCACCUM, SCHEDACCUM, SCHEDOUTCNT,
    SCHLATACCUM, TASK_ENDED, TASK_LATENCIES,
};

/// Number of values of a CPU.
pub const NR_CPU_VALUES: usize = 18;

/// Converts ticks to microseconds; `khz` is the frequency of the ticks, in ticks per millisecond.
/// Returns 0 if `khz` is 0.
pub fn ticks_to_micros(ticks: u64, khz: u32) -> f64 {
    match khz {
        0 => 0.0,
        khz => ticks as f64 * 1000.0 / f64::from(khz),
    }
}

/// Converts ticks to microseconds like [`ticks_to_micros`], as an integer, rounded down.
pub fn ticks_to_whole_micros(ticks: u64, khz: u32) -> u64 {
    let micros = u128::from(ticks) * 1000 / u128::from(khz.max(1));
    match khz {
        0 => 0,
        _ => u64::try_from(micros).unwrap_or(u64::MAX),
    }
}

/// Returns the increment of a count between two reads. Counts wrap at 2^64. A value that seems to
/// have decreased was read while it changed; its increment is 0.
pub fn increment_of_count(now: u64, before: u64) -> u64 {
    let delta = now.wrapping_sub(before);
    match delta > i64::MAX as u64 {
        true => 0,
        false => delta,
    }
}

fn increments_of_counts<const N: usize>(now: &[u64; N], before: &[u64; N]) -> [u64; N] {
    std::array::from_fn(|n| increment_of_count(now[n], before[n]))
}

impl Task {
    /// Returns the name of the task, with an escape sequence for each byte that is not UTF-8. The
    /// name may contain control characters, which [`visible::escape`] makes visible.
    pub fn name(&self) -> String {
        let end = self.comm.iter().position(|b| *b == 0);
        visible::escape_invalid_utf8(&self.comm[..end.unwrap_or(self.comm.len())]).into_owned()
    }

    /// Returns true if the task has the flag `flag` (`TASK_*`).
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns the ticks that the task spent on a CPU, without interrupts.
    pub fn cpu_ticks_without_interrupts(&self) -> u64 {
        self.values[SCHEDACCUM]
    }

    /// Returns the ticks that the task spent in user mode. All ticks of a kernel thread count as
    /// user mode.
    pub fn user_ticks(&self) -> u64 {
        self.values[SCHEDACCUM].saturating_sub(self.values[SCACCUM])
    }

    /// Returns the ticks that the task spent in system calls.
    pub fn system_ticks(&self) -> u64 {
        self.values[SCACCUM].min(self.values[SCHEDACCUM])
    }

    /// Returns the ticks that interrupts took while the task was running.
    pub fn interrupt_ticks(&self) -> u64 {
        self.values[INTACCUM]
    }

    /// Returns the number of switches away from the task, for any reason.
    pub fn switches(&self) -> u64 {
        self.values[SCHEDOUTCNT].saturating_add(self.involuntary_switches())
    }

    /// Returns the number of involuntary switches: switches away from the task while the task was
    /// able to continue.
    pub fn involuntary_switches(&self) -> u64 {
        self.values[PRMPTCTXTCNT].saturating_add(self.values[PRMPTPRICNT])
    }

    /// Returns the ticks that the task waited for a CPU.
    pub fn wait_ticks(&self) -> u64 {
        self.values[SCHLATACCUM].saturating_add(self.runq)
    }

    /// Returns the number of wakeups that the histogram of latencies counts.
    pub fn histogram_wakeups(&self) -> u64 {
        self.latencies
            .iter()
            .fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Returns the number of wakeups of the task. If the histogram of latencies is off, or was off
    /// for some of the wakeups, the result is an approximation: the number of times that the task
    /// blocked.
    pub fn wakeups(&self) -> u64 {
        let (counted, blocked) = (self.histogram_wakeups(), self.values[SCHEDOUTCNT]);
        // The histogram counts a wait when the wait is over, so it may lack the last wakeup. It
        // lacks more wakeups only if it was off for some time.
        match self.has_flag(TASK_LATENCIES) && counted >= blocked.saturating_sub(1) {
            true => counted,
            false => blocked,
        }
    }

    /// Returns the average wakeup latency of the task in ticks. If [`Self::wakeups`] is 0, divides
    /// by 1, because the first wakeup may not be counted yet.
    pub fn average_latency_ticks(&self) -> f64 {
        divide_or_0(self.values[SCHLATACCUM], self.wakeups().max(1))
    }

    /// Returns how many ticks a switch to the task takes on average.
    pub fn average_switch_ticks(&self) -> f64 {
        divide_or_0(self.values[AVGCTXT], self.switches())
    }

    /// Returns true if the accounting of the task began after the time `time`, which shows that
    /// accounting was restarted. `now` is the time at which `self` was read, or a little earlier.
    /// Both times are in ticks, as in [`Info::now`](crate::Info::now).
    ///
    /// Returns false if the task has ended, because it is not known when it ended.
    pub fn has_accounting_begun_after(&self, time: u64, now: u64) -> bool {
        !self.has_flag(TASK_ENDED) && now.saturating_sub(self.counted) > time
    }

    /// Returns true if `self` can be a later state of the same task as `before`: the task was
    /// accounted for at least as long.
    ///
    /// A restart of accounting between the two states is not noticed if the task was then accounted
    /// for longer than before the restart. If the times of the states are known,
    /// [`has_accounting_begun_after`](Self::has_accounting_begun_after) notices each restart.
    pub fn is_later_state_of(&self, before: &Self) -> bool {
        (self.tgid, self.began) == (before.tgid, before.began) && self.counted >= before.counted
    }

    /// Returns the increments of the values since the earlier state `before`. If `before` is
    /// `None`, or if `self` is not [a later state](Self::is_later_state_of) of `before`, the
    /// increments are the values themselves.
    pub fn increments_since(&self, before: Option<&Self>) -> Self {
        let Some(before) = before.filter(|b| self.is_later_state_of(b)) else {
            return self.clone();
        };
        let signals = |n: usize| self.signals[n].wrapping_sub(before.signals[n]);
        Self {
            counted: self.counted - before.counted,
            values: increments_of_counts(&self.values, &before.values),
            runq: increment_of_count(self.runq, before.runq),
            // The counts of the histogram are kept while the histogram is off.
            latencies: increments_of_counts(&self.latencies, &before.latencies),
            signals: std::array::from_fn(signals),
            ..self.clone()
        }
    }
}

fn divide_or_0(sum: u64, count: u64) -> f64 {
    match count {
        0 => 0.0,
        count => sum as f64 / count as f64,
    }
}

/// Keeps only the last entry of each task: a task that ends while the list is read is listed twice.
pub(crate) fn keep_latest_entry_per_task(tasks: Vec<Task>) -> Vec<Task> {
    let mut all: BTreeMap<(u32, u64), Task> = BTreeMap::new();
    all.extend(tasks.into_iter().map(|t| ((t.tgid, t.began), t)));
    all.into_values().collect()
}

/// Index of a value of a CPU, `enum ppa_cpu_value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "see the names; values other than counts are in ticks"
)]
pub enum CpuValue {
    User,
    System,
    Interrupts,
    Idle,
    Syscalls,
    InterruptCount,
    Softirq,
    SoftirqCount,
    Hi,
    HiCount,
    Tasklet,
    TaskletCount,
    Timer,
    TimerCount,
    NetTx,
    NetTxCount,
    NetRx,
    NetRxCount,
}

/// The values of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// The values of the CPU, indexed by [`CpuValue`].
    pub values: [u64; NR_CPU_VALUES],
}

impl Cpu {
    /// Returns one value of the CPU.
    pub fn get(&self, value: CpuValue) -> u64 {
        self.values[value as usize]
    }

    /// Returns the sum of the ticks in user mode, system calls, interrupts and idle, which is the
    /// whole time of the CPU.
    pub fn total_ticks(&self) -> u64 {
        self.values[..4]
            .iter()
            .fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Returns the increments of the CPU's values since the earlier state `before`.
    ///
    /// The increments are wrong if accounting was restarted after the state `before`. The values of
    /// a CPU begin at 0 when accounting is restarted, and they do not contain the time of the
    /// restart.
    pub fn increments_since(&self, before: &Self) -> Self {
        Self {
            values: increments_of_counts(&self.values, &before.values),
        }
    }

    /// Returns the sum of each value over several CPUs.
    pub fn sum(cpus: &[Self]) -> Self {
        cpus.iter().fold(Self::default(), |sum, cpu| Self {
            values: std::array::from_fn(|n| sum.values[n].saturating_add(cpu.values[n])),
        })
    }
}

#[cfg(test)]
mod tests;
