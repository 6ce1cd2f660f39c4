// SPDX-License-Identifier: GPL-2.0

//! Parses the records of a ring.

use protocols::ring::{
    RECORD_EXEC, RECORD_LOST, RECORD_SAMPLE, RECORD_THROTTLE, RECORD_UNTHROTTLE,
};

/// Marker before the frames of the kernel stack.
pub const KERNEL_STACK_MARKER: u64 = -128_i64 as u64;
/// Marker before the frames of the user stack.
pub const USER_STACK_MARKER: u64 = -512_i64 as u64;

/// Instruction address of a sample that was taken while the CPU ran a KVM guest, whose registers
/// are not known.
pub const GUEST_SAMPLE_ADDRESS: u64 = -2048_i64 as u64;

/// A parsed record of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A sample, taken at the overflow of a counter.
    Sample(Sample),
    /// A report of lost records: the number of records that the kernel dropped before the next
    /// record.
    Lost(u64),
    /// The kernel has paused sampling, because sampling took too much time. `Throttle` holds the
    /// `CLOCK_MONOTONIC` time in nanoseconds at which sampling was paused.
    Throttle(u64),
    /// The kernel has resumed sampling. `Unthrottle` holds the `CLOCK_MONOTONIC` time in
    /// nanoseconds at which sampling was resumed.
    Unthrottle(u64),
    /// The thread has called execve(). `Exec` holds the `CLOCK_MONOTONIC` time in nanoseconds at
    /// which the thread called execve().
    Exec(u64),
    /// A record of an unknown type, or a record whose words do not match its type.
    Other {
        /// Type of the record, `PERFMON_RECORD_*`.
        kind: u16,
        /// The words after the record's header.
        words: Vec<u64>,
    },
}

/// A sample (`struct perfmon_sample` in C).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Address of the interrupted instruction, or [`GUEST_SAMPLE_ADDRESS`].
    pub ip: u64,
    /// Process id, in the pid namespace of the context's creator.
    pub pid: u32,
    /// Thread id, in the pid namespace of the context's creator.
    pub tid: u32,
    /// Time of the sample by `CLOCK_MONOTONIC` in nanoseconds.
    pub time: u64,
    /// Number of the PMD that overflowed.
    pub pmd: u16,
    /// Id of the active event set.
    pub set: u16,
    /// CPU on which the counter overflowed.
    pub cpu: u32,
    /// Value of the PMD at the start of the sampling period.
    pub last_reset: u64,
    /// `pfarg_pmd.reg_smpl_eventid` of the PMD.
    pub eventid: u64,
    /// Values of the PMDs that were recorded, in ascending order of their numbers.
    pub values: Vec<u64>,
    /// Frames of the call stacks, the innermost first. [`KERNEL_STACK_MARKER`] and
    /// [`USER_STACK_MARKER`] precede the frames of the respective stack.
    pub frames: Vec<u64>,
}

impl Sample {
    /// Returns the length of the sampling period, which is the number of events that the sample
    /// represents.
    pub fn period(&self) -> u64 {
        self.last_reset.wrapping_neg()
    }

    /// Parses the words after the header of a record. Returns `None` if there are fewer words than
    /// a sample needs.
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
    /// Parses the words after the header of a record of type `kind`. Returns [`Record::Other`] if
    /// the type is unknown or the words do not match the type.
    pub fn parse(kind: u16, words: &[u64]) -> Self {
        let first = words.first().copied();
        match (kind, first) {
            (RECORD_LOST, Some(lost)) => Self::Lost(lost),
            (RECORD_THROTTLE, Some(time)) => Self::Throttle(time),
            (RECORD_UNTHROTTLE, Some(time)) => Self::Unthrottle(time),
            (RECORD_EXEC, Some(time)) => Self::Exec(time),
            (RECORD_SAMPLE, _) => match Sample::parse(words) {
                Some(sample) => Self::Sample(sample),
                None => Self::new_other_record(kind, words),
            },
            _ => Self::new_other_record(kind, words),
        }
    }

    fn new_other_record(kind: u16, words: &[u64]) -> Self {
        Self::Other {
            kind,
            words: words.to_vec(),
        }
    }
}
