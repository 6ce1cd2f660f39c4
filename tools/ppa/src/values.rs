// SPDX-License-Identifier: GPL-2.0

//! What values mean: sums, differences, times.

use std::collections::BTreeMap;

use crate::abi::{
    Task, AVGCTXT, INTACCUM, PRMPTCTXTCNT, PRMPTPRICNT, SCACCUM, SCHEDACCUM, SCHEDOUTCNT,
    SCHLATACCUM, TASK_LATENCIES,
};

/// Values of a CPU.
pub const NR_CPU_VALUES: usize = 18;

/// Microseconds of ticks, of which a millisecond has `khz`; none where that is 0.
pub fn micros(ticks: u64, khz: u32) -> f64 {
    match khz {
        0 => 0.0,
        khz => ticks as f64 * 1000.0 / f64::from(khz),
    }
}

/// The same, exactly and rounded down.
pub fn whole_micros(ticks: u64, khz: u32) -> u64 {
    let micros = u128::from(ticks) * 1000 / u128::from(khz.max(1));
    match khz {
        0 => 0,
        _ => u64::try_from(micros).unwrap_or(u64::MAX),
    }
}

/// What came from one look to another. A count may pass 2^64; what seems to have shrunk
/// was read while it changed.
pub fn grown(now: u64, before: u64) -> u64 {
    let more = now.wrapping_sub(before);
    match more > i64::MAX as u64 {
        true => 0,
        false => more,
    }
}

fn each<const N: usize>(now: &[u64; N], before: &[u64; N]) -> [u64; N] {
    std::array::from_fn(|n| grown(now[n], before[n]))
}

impl Task {
    /// Its name, with nothing in it that a terminal would obey.
    pub fn name(&self) -> String {
        let end = self.comm.iter().position(|b| *b == 0);
        let name = String::from_utf8_lossy(&self.comm[..end.unwrap_or(self.comm.len())]);
        let safe = |c: char| if c.is_control() { '?' } else { c };
        name.chars().map(safe).collect()
    }

    /// Is that so of it: `TASK_*`?
    pub fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Ticks on the CPU, without interrupts.
    pub fn total(&self) -> u64 {
        self.values[SCHEDACCUM]
    }

    /// Ticks in user mode; a kernel thread's are all here.
    pub fn user(&self) -> u64 {
        self.values[SCHEDACCUM].saturating_sub(self.values[SCACCUM])
    }

    /// Ticks in system calls.
    pub fn system(&self) -> u64 {
        self.values[SCACCUM].min(self.values[SCHEDACCUM])
    }

    /// Ticks in interrupts that came while it ran.
    pub fn interrupts(&self) -> u64 {
        self.values[INTACCUM]
    }

    /// How often it gave up a CPU, for whatever reason.
    pub fn switches(&self) -> u64 {
        self.values[SCHEDOUTCNT].saturating_add(self.involuntary())
    }

    /// How often it gave up a CPU and would have gone on.
    pub fn involuntary(&self) -> u64 {
        self.values[PRMPTCTXTCNT].saturating_add(self.values[PRMPTPRICNT])
    }

    /// Ticks in which it would have run, had there been a CPU.
    pub fn waiting(&self) -> u64 {
        self.values[SCHLATACCUM].saturating_add(self.runq)
    }

    /// How often it was woken up; near enough where latencies are not counted.
    pub fn wakeups(&self) -> u64 {
        match self.is(TASK_LATENCIES) {
            true => self
                .latencies
                .iter()
                .fold(0, |sum, n| sum.saturating_add(*n)),
            false => self.values[SCHEDOUTCNT],
        }
    }

    /// Ticks from wakeup to run, on average; a wait that is not over is one where no other is.
    pub fn latency(&self) -> f64 {
        average(self.values[SCHLATACCUM], self.wakeups().max(1))
    }

    /// Ticks of a switch to it, on average.
    pub fn switch(&self) -> f64 {
        average(self.values[AVGCTXT], self.switches())
    }

    /// Is it the same task, later, and counted on since?
    pub fn continues(&self, before: &Self) -> bool {
        (self.pid, self.began) == (before.pid, before.began) && self.counted >= before.counted
    }

    /// What came since then; everything, if it began anew.
    pub fn since(&self, before: Option<&Self>) -> Self {
        let Some(before) = before.filter(|b| self.continues(b)) else {
            return self.clone();
        };
        // Those that began to be counted between: all that there are.
        let latencies = match before.is(TASK_LATENCIES) {
            true => each(&self.latencies, &before.latencies),
            false => self.latencies,
        };
        let signals = |n: usize| self.signals[n].wrapping_sub(before.signals[n]);
        Self {
            counted: self.counted - before.counted,
            values: each(&self.values, &before.values),
            runq: grown(self.runq, before.runq),
            latencies,
            signals: std::array::from_fn(signals),
            ..self.clone()
        }
    }
}

fn average(sum: u64, count: u64) -> f64 {
    match count {
        0 => 0.0,
        count => sum as f64 / count as f64,
    }
}

/// Each task once: one that ends while the list is read comes twice.
pub(crate) fn latest(tasks: Vec<Task>) -> Vec<Task> {
    let mut all: BTreeMap<(u32, u64), Task> = BTreeMap::new();
    all.extend(tasks.into_iter().map(|t| ((t.pid, t.began), t)));
    all.into_values().collect()
}

/// Which value of a CPU: `enum ppa_cpu_value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "names say it; what is no count is ticks")]
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

/// A CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// By number: [`CpuValue`].
    pub values: [u64; NR_CPU_VALUES],
}

impl Cpu {
    /// A value.
    pub fn of(&self, value: CpuValue) -> u64 {
        self.values[value as usize]
    }

    /// Ticks in user mode, system, interrupts and idle: all of its time.
    pub fn total(&self) -> u64 {
        self.values[..4]
            .iter()
            .fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// What came since then.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            values: each(&self.values, &before.values),
        }
    }

    /// All of these together.
    pub fn sum(cpus: &[Self]) -> Self {
        cpus.iter().fold(Self::default(), |sum, cpu| Self {
            values: std::array::from_fn(|n| sum.values[n].saturating_add(cpu.values[n])),
        })
    }
}

#[cfg(test)]
mod tests;
