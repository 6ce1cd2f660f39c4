// SPDX-License-Identifier: GPL-2.0

//! What an event would have counted, had its set been in the hardware all the time, and
//! how far that may be off.
//!
//! A set's turns are a sample of all the time. What is counted in a turn is taken to be in
//! proportion to its length, but for an error of its own; the ratio estimator of sampling
//! theory (Cochran, Sampling Techniques, chapter 6) gives the whole and its variance, and
//! what was counted itself has no error. Turns come one after the other, not at random:
//! where the program changes slowly, the true error is smaller than this; where it changes
//! in step with the turns, no number of them tells.

use perfmon::Runs;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::short::Causes;

/// Of 100 true values, so many are within the error bars.
pub const CONFIDENCE: f64 = 99.0;

/// What was counted, and in which turns; can be added and taken off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub value: u64,
    /// Nanoseconds of all turns.
    pub time: u64,
    pub runs: u64,
    time2: u128,
    value2: u128,
    value_time: u128,
    /// Why counts are missing.
    pub short: Causes,
}

impl Sums {
    /// Of what counts all the time.
    pub const fn whole(value: u64) -> Self {
        Self {
            value,
            time: 0,
            runs: 0,
            time2: 0,
            value2: 0,
            value_time: 0,
            short: Causes::NONE,
        }
    }

    /// This, of which counts are missing.
    pub fn short(self, causes: Causes) -> Self {
        Self {
            short: self.short.and(causes),
            ..self
        }
    }

    pub fn of_runs(runs: &Runs) -> Self {
        let wide = |[low, high]: [u64; 2]| u128::from(low) | (u128::from(high) << 64);
        Self {
            value: runs.value,
            time: runs.time,
            runs: runs.runs,
            time2: wide(runs.time2),
            value2: wide(runs.value2),
            value_time: wide(runs.value_time),
            short: match runs.reg_flags & perfmon::SHORT {
                0 => Causes::NONE,
                _ => Causes::SHORT,
            },
        }
    }

    fn with(&self, other: &Self, add: fn(u128, u128) -> u128) -> Self {
        let short = |a: u64, b: u64| add(a.into(), b.into()) as u64;
        Self {
            value: short(self.value, other.value),
            time: short(self.time, other.time),
            runs: short(self.runs, other.runs),
            time2: add(self.time2, other.time2),
            value2: add(self.value2, other.value2),
            value_time: add(self.value_time, other.value_time),
            // Once a context has ended early, every later interval lacks it as well.
            short: self.short.and(other.short),
        }
    }

    pub fn plus(&self, other: &Self) -> Self {
        self.with(other, u128::wrapping_add)
    }

    /// What came since.
    pub fn since(&self, before: &Self) -> Self {
        self.with(before, u128::wrapping_sub)
    }

    /// The whole, of so many nanoseconds.
    pub fn estimate(&self, total: u64) -> Estimate {
        let (value, time, total) = (self.value as f64, self.time as f64, total as f64);
        if self.time == 0 || total <= time {
            // All of it was seen; or nothing, of which nothing is known.
            let share = if self.time == 0 { 0.0 } else { 1.0 };
            return Estimate {
                value,
                share,
                error: (share == 1.0).then_some(0.0),
            };
        }
        let ratio = value / time;
        let share = time / total;
        let n = self.runs as f64;
        // Of the errors of all turns.
        let squares = self.value2 as f64 - 2.0 * ratio * self.value_time as f64
            + ratio * ratio * self.time2 as f64;
        // Less than nothing: of an interval with a part of a turn, whose squares do not
        // add up.
        let adds_up = squares >= -1e-6 * self.value2 as f64;
        let error = (self.runs > 1 && adds_up).then(|| {
            let variance = squares.max(0.0) / (n - 1.0);
            let sigma = (total / time) * ((1.0 - share) * n * variance).sqrt();
            skewed(sigma * quantile(n - 1.0), ratio * total)
        });
        Estimate {
            value: ratio * total,
            share,
            error,
        }
    }
}

/// The bar of a count that is not negative: bursts make it skewed, and a sample without
/// them has both a small value and small errors. As long as the upper half is on a
/// logarithmic scale, to the second order.
fn skewed(error: f64, value: f64) -> f64 {
    match value > 0.0 {
        true => error * (1.0 + error / value / 2.0),
        false => error,
    }
}

/// How many standard deviations the bars are long.
fn quantile(freedom: f64) -> f64 {
    let both = 0.5 + CONFIDENCE / 200.0;
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(both))
}

/// What it would have been.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    /// Of the time, in which it was counted; 1 is all.
    pub share: f64,
    /// The true value is not farther away, in [`CONFIDENCE`] of 100 cases; `None`: nobody
    /// knows.
    pub error: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(turns: &[(u64, u64)]) -> Sums {
        let mut all = Sums::default();
        for (time, value) in turns {
            let (t, v) = (u128::from(*time), u128::from(*value));
            all = all.plus(&Sums {
                value: *value,
                time: *time,
                runs: 1,
                time2: t * t,
                value2: v * v,
                value_time: t * v,
                short: Causes::NONE,
            });
        }
        all
    }

    #[test]
    fn r1_12_what_is_even_has_no_error() {
        let e = sums(&[(10, 100), (30, 300), (20, 200)]).estimate(600);
        assert!((e.value - 6000.0).abs() < 1e-6 && e.error.expect("known") < 1e-3);
        assert!((e.share - 0.1).abs() < 1e-9);
        let all = sums(&[(10, 3), (20, 100)]).estimate(30);
        assert_eq!((all.value, all.share, all.error), (103.0, 1.0, Some(0.0)));
        assert_eq!(sums(&[(10, 3)]).estimate(30).error, None);
        let none = sums(&[(10, 0), (20, 0), (10, 0)]).estimate(100);
        assert_eq!((none.value, none.error), (0.0, Some(0.0)));
        assert_eq!(Sums::default().estimate(30).share, 0.0);
    }

    #[test]
    fn r1_12_intervals_are_differences() {
        let (a, b) = (
            sums(&[(10, 5), (20, 7)]),
            sums(&[(10, 5), (20, 7), (5, 50), (6, 9)]),
        );
        assert_eq!(b.since(&a), sums(&[(5, 50), (6, 9)]));
    }

    /// Turns with errors of their own, some of which are seen: the true sum is within the
    /// bars as often as they say.
    #[test]
    fn r1_12_the_bars_are_as_long_as_they_say() {
        let mut state = 1u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state >> 40
        };
        let (mut inside, tries) = (0, 2000);
        for _ in 0..tries {
            let turns: Vec<(u64, u64)> = (0..60)
                .map(|_| {
                    let time = 900_000 + random() % 200_000;
                    (time, time * (50 + random() % 100) / 100)
                })
                .collect();
            let total: u64 = turns.iter().map(|t| t.0).sum();
            let truth: u64 = turns.iter().map(|t| t.1).sum();
            let seen: Vec<(u64, u64)> = turns.iter().copied().step_by(3).collect();
            let e = sums(&seen).estimate(total);
            inside += i32::from((e.value - truth as f64).abs() <= e.error.expect("known"));
        }
        let share = 100.0 * f64::from(inside) / f64::from(tries);
        assert!((97.5..99.8).contains(&share), "{share}");
    }
}
