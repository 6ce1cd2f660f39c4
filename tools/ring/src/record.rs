// SPDX-License-Identifier: GPL-2.0

//! What records say.

use engine::ring::{EXEC, LOST, SAMPLE, THROTTLE, UNTHROTTLE};

/// Before the frames of the kernel's stack.
pub const STACK_KERNEL: u64 = -128_i64 as u64;
/// Before those of user space.
pub const STACK_USER: u64 = -512_i64 as u64;

/// Instead of an instruction: it was in a guest of KVM, whose registers are not known.
pub const IN_GUEST: u64 = -2048_i64 as u64;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A counter overflowed.
    Sample(Sample),
    /// So many records before the next one are missing.
    Lost(u64),
    /// There were too many overflows: sampling stopped. Nanoseconds.
    Throttle(u64),
    /// It went on. Nanoseconds.
    Unthrottle(u64),
    /// The thread has executed a program at this time, in nanoseconds.
    Exec(u64),
    /// Of a kind that is not known here.
    Other {
        /// `PERFMON_RECORD_*`.
        kind: u16,
        /// What comes after its header.
        words: Vec<u64>,
    },
}

/// `struct perfmon_sample`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The instruction, or [`IN_GUEST`].
    pub ip: u64,
    /// The process, by its number in the name space of the context's creator.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// The counter that overflowed.
    pub pmd: u16,
    /// The event set.
    pub set: u16,
    /// Where it was.
    pub cpu: u32,
    /// What the counter held at the beginning of the period.
    pub last_reset: u64,
    /// As the PMD was written.
    pub eventid: u64,
    /// PMDs that were recorded with it, ascending.
    pub values: Vec<u64>,
    /// The stack, the innermost frame first; [`STACK_KERNEL`] and [`STACK_USER`]
    /// before each part.
    pub frames: Vec<u64>,
}

impl Sample {
    /// How many events this sample stands for.
    pub fn period(&self) -> u64 {
        self.last_reset.wrapping_neg()
    }

    /// What comes after the header.
    fn parse(words: &[u64]) -> Option<Self> {
        let (fixed, more) = words.split_at_checked(7)?;
        let (values, frames) = (fixed[6] as u32, fixed[6] >> 32);
        let (values, more) = more.split_at_checked(values as usize)?;
        let frames = more.get(..frames as usize)?;
        Some(Self {
            ip: fixed[0],
            pid: fixed[1] as u32,
            tid: (fixed[1] >> 32) as u32,
            time: fixed[2],
            pmd: fixed[3] as u16,
            set: (fixed[3] >> 16) as u16,
            cpu: (fixed[3] >> 32) as u32,
            last_reset: fixed[4],
            eventid: fixed[5],
            values: values.to_vec(),
            frames: frames.to_vec(),
        })
    }
}

impl Record {
    /// Of what comes after a record's header. What does not fit its kind is
    /// [`Record::Other`].
    pub fn parse(kind: u16, words: &[u64]) -> Self {
        let first = words.first().copied();
        match (kind, first) {
            (LOST, Some(lost)) => Self::Lost(lost),
            (THROTTLE, Some(time)) => Self::Throttle(time),
            (UNTHROTTLE, Some(time)) => Self::Unthrottle(time),
            (EXEC, Some(time)) => Self::Exec(time),
            (SAMPLE, _) => match Sample::parse(words) {
                Some(sample) => Self::Sample(sample),
                None => Self::other(kind, words),
            },
            _ => Self::other(kind, words),
        }
    }

    fn other(kind: u16, words: &[u64]) -> Self {
        Self::Other {
            kind,
            words: words.to_vec(),
        }
    }
}
