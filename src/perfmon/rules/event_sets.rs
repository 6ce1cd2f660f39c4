// SPDX-License-Identifier: GPL-2.0

//! Event sets: the conditions under which a monitoring context switches from one set of registers
//! to the next, and statistics about the time and the events while a set is active.
//!
//! A *run* of a set lasts from the switch to this set until the switch to the next set. The
//! duration of a run is the time that the context is loaded in a PMU during the run. A run
//! continues when the thread is switched out and in.

use crate::error::Error;
use crate::register_bitmap::PmdSet;

/// `PFM_SETFL_OVFL_SWITCH`: a run of the set ends after a user-defined number of overflows.
pub const OVFL_SWITCH: u32 = 0x01;
/// `PFM_SETFL_TIME_SWITCH`: a timeout ends a run of the set.
pub const TIME_SWITCH: u32 = 0x02;
/// `PFM_SETFL_EXPL_NEXT`: the user has specified the next set.
pub const EXPL_NEXT: u32 = 0x04;
/// Maximum number of event sets of a context.
pub const MAX_SETS: usize = 1024;
/// Minimum duration of a run in nanoseconds. With runs shorter than `MIN_RUN_NS` the CPU would
/// spend all its time on switching sets.
pub const MIN_RUN_NS: u64 = 10_000;

/// The conditions that end a run of an event set, and the number of the next event set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchPolicy {
    flags: u32,
    next_set: u16,
    timeout_ns: u64,
}

impl SwitchPolicy {
    /// Creates the switch policy of a set from the arguments of a system call. The timeout is
    /// rounded up to a multiple of `resolution`, the resolution of the timer in nanoseconds.
    /// Returns [`Error::Flags`] if the arguments are invalid.
    pub fn new(flags: u32, next_set: u16, timeout_ns: u64, resolution: u64) -> Result<Self, Error> {
        let timed = flags & TIME_SWITCH != 0;
        if flags & !(OVFL_SWITCH | TIME_SWITCH | EXPL_NEXT) != 0
            || (flags & EXPL_NEXT == 0 && next_set != 0)
            || timed == (timeout_ns == 0)
            || timeout_ns > i64::MAX as u64 / 2
        {
            return Err(Error::Flags);
        }
        let whole = timeout_ns
            .max(MIN_RUN_NS)
            .checked_next_multiple_of(resolution.max(1));
        Ok(Self {
            flags,
            next_set,
            timeout_ns: match timed {
                true => whole.unwrap_or(timeout_ns),
                false => 0,
            },
        })
    }

    /// Returns the flags of the set, `PFM_SETFL_*`.
    pub const fn flags(&self) -> u32 {
        self.flags
    }

    /// Returns the nanoseconds after which a run ends, rounded up to the resolution of the timer; 0
    /// if no timeout ends the run.
    pub const fn timeout_ns(&self) -> u64 {
        self.timeout_ns
    }

    /// Returns the number of the next set if the user has specified it; `None` if the next set is
    /// the one with the next higher number.
    pub fn next_set(&self) -> Option<u16> {
        (self.flags & EXPL_NEXT != 0).then_some(self.next_set)
    }

    /// Returns true if a timeout ends a run of the set.
    #[inline]
    pub const fn is_timed(&self) -> bool {
        self.flags & TIME_SWITCH != 0
    }

    /// Returns true if a run of the set ends after a user-defined number of overflows.
    #[inline]
    pub const fn switches_on_overflow(&self) -> bool {
        self.flags & OVFL_SWITCH != 0
    }
}

/// Returns the index of the set that follows the set at index `at`. The `nr` sets are sorted by
/// their numbers. `place` returns the index of the set with a given number. Returns
/// [`Error::NoSet`] if `terms` specifies a next set that does not exist.
pub fn next_index(
    terms: &SwitchPolicy,
    at: usize,
    nr: usize,
    place: impl FnOnce(u16) -> Option<usize>,
) -> Result<usize, Error> {
    match terms.next_set() {
        Some(next) => place(next).ok_or(Error::NoSet),
        None => Ok(at.wrapping_add(1).checked_rem(nr).unwrap_or(0)),
    }
}

/// Returns the full product of two numbers, in 128 bits.
const fn multiply_to_u128(a: u64, b: u64) -> u128 {
    (a as u128).wrapping_mul(b as u128)
}

/// The switch conditions of an event set, and statistics of its runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetRuns {
    /// The conditions that end a run.
    pub policy: SwitchPolicy,
    /// PMDs (data registers) whose overflows ended the last run.
    pub ended_by_pmds: PmdSet,
    nr_runs: u64,
    /// Sum of the durations of all finished runs, in nanoseconds.
    total_ns: u64,
    total_of_squares: u128,
    /// Duration of the present run in nanoseconds, without the time since `loaded_at_ns`.
    run_ns: u64,
    /// The time at which the context was loaded into a PMU, in nanoseconds; `None` if the context
    /// is in no PMU.
    loaded_at_ns: Option<u64>,
    /// True if a run of the set has begun and has not ended.
    run_begun: bool,
}

impl SetRuns {
    /// Records that the context was loaded into a PMU at the time `now`. Returns true if this load
    /// begins a new run of the event set.
    #[inline]
    pub fn record_load(&mut self, now: u64) -> bool {
        self.loaded_at_ns = Some(now);
        let begins = !self.run_begun;
        if begins {
            self.run_begun = true;
            self.nr_runs = self.nr_runs.wrapping_add(1);
        }
        begins
    }

    /// Records that the context was removed from the PMU at the time `now`.
    #[inline]
    pub fn record_unload(&mut self, now: u64) {
        self.run_ns = self.run_elapsed_ns(now);
        self.loaded_at_ns = None;
    }

    /// Ends the present run, if one has begun, and returns its duration in nanoseconds. The context
    /// is in no PMU.
    pub fn end_run(&mut self) -> u64 {
        let spent = core::mem::take(&mut self.run_ns);
        self.total_ns = self.total_ns.wrapping_add(spent);
        self.total_of_squares = self
            .total_of_squares
            .wrapping_add(multiply_to_u128(spent, spent));
        self.run_begun = false;
        spent
    }

    /// Returns the duration of the present run up to `now`, in nanoseconds.
    #[inline]
    pub fn run_elapsed_ns(&self, now: u64) -> u64 {
        let more = self
            .loaded_at_ns
            .map_or(0, |since| now.saturating_sub(since));
        self.run_ns.wrapping_add(more)
    }

    /// Returns the nanoseconds until the timeout ends the present run; `None` if the set has no
    /// timeout.
    #[inline]
    pub fn run_remaining_ns(&self, now: u64) -> Option<u64> {
        let timeout = self.policy.timeout_ns();
        (timeout != 0).then(|| timeout.saturating_sub(self.run_elapsed_ns(now)))
    }

    /// Returns the number of runs that have begun.
    pub const fn nr_runs(&self) -> u64 {
        self.nr_runs
    }

    /// Returns the sum of the durations of all runs in nanoseconds, and the sum of the squares of
    /// these durations. Both the sum and the sum of squares include the present run up to `now`.
    pub fn duration_totals(&self, now: u64) -> (u64, u128) {
        let spent = self.run_elapsed_ns(now);
        let squares = self
            .total_of_squares
            .wrapping_add(multiply_to_u128(spent, spent));
        (self.total_ns.wrapping_add(spent), squares)
    }
}

/// Sums of a PMD's increments over the runs of its event set. The variance of the increments can be
/// computed from their sum and the sum of their squares.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunningMoments {
    /// Number of the PMD.
    pub pmd: u16,
    /// Value of the PMD when the present run began, or when the PMD was last set or reset in this
    /// run.
    delta_start_value: u64,
    /// Increment of the PMD in the present run, up to the last time that an overflow reset the PMD.
    /// 0 if no overflow has reset the PMD since the run began or since software set the PMD.
    delta_before_reset: u64,
    total_delta: u64,
    total_of_squares: u128,
    /// Sum, over all finished runs, of the product increment * duration in nanoseconds.
    total_products: u128,
}

impl RunningMoments {
    /// Creates the sums of the PMD `pmd`, which are 0 at first. The PMD has just been set to
    /// `value`.
    pub fn new(pmd: u16, value: u64) -> Self {
        Self {
            pmd,
            delta_start_value: value,
            ..Self::default()
        }
    }

    /// Makes the increment of the present run start at `value`, and discards the increment before.
    /// Called when `value` was written to the PMD, and when a run has ended with `value`.
    pub fn restart_run_delta(&mut self, value: u64) {
        self.delta_start_value = value;
        self.delta_before_reset = 0;
    }

    /// Records that an overflow reset the PMD from `before` to `value`. Keeps the increment that
    /// the PMD had in the present run before the reset.
    pub fn record_reset(&mut self, before: u64, value: u64) {
        self.delta_before_reset = self.run_delta(before);
        self.delta_start_value = value;
    }

    /// Returns the increment of the PMD in the present run. The PMD has the value `value` now.
    fn run_delta(&self, value: u64) -> u64 {
        self.delta_before_reset
            .wrapping_add(value.wrapping_sub(self.delta_start_value))
    }

    /// Ends a run that lasted `time` nanoseconds. The PMD has the value `value` at the end of the
    /// run.
    pub fn end_run(&mut self, value: u64, time: u64) {
        (self.total_delta, self.total_of_squares, self.total_products) = self.totals(value, time);
        self.restart_run_delta(value);
    }

    /// Returns three sums over all runs: of the increments, of their squares, and of their products
    /// with the duration of the run. The present run is included with a duration of `time`
    /// nanoseconds.
    pub fn totals(&self, value: u64, time: u64) -> (u64, u128, u128) {
        let counted = self.run_delta(value);
        (
            self.total_delta.wrapping_add(counted),
            self.total_of_squares
                .wrapping_add(multiply_to_u128(counted, counted)),
            self.total_products
                .wrapping_add(multiply_to_u128(counted, time)),
        )
    }
}
