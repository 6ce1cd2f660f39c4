// SPDX-License-Identifier: GPL-2.0

//! Computes scaled counts and error bars for events that were counted for a part of the time.
//!
//! The intervals in which an event set is loaded are its turns. Statistically, the turns of an
//! event set are a sample of the whole time. The count of a turn is assumed to be proportional to
//! the length of the turn, apart from an error that differs from turn to turn. The ratio estimator
//! of sampling theory (Cochran, Sampling Techniques, chapter 6) gives the total count and its
//! variance. Only the part of the time in which the set was not loaded contributes to the error.
//!
//! The turns of the event sets follow each other in a fixed order, not at random. If the behaviour
//! of the program changes slowly, the true error is smaller than the estimated error. If the
//! behaviour of the program changes with the same period as the turns, the estimate is wrong, even
//! after many turns.

use perfmon::Runs;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::short_counts::MissingCountCauses;

/// The confidence level of the error bars in percent. This share of all true values lies within the
/// error bars.
pub const CONFIDENCE_PERCENT: f64 = 99.0;

/// The count of an event, with sums over the turns of its event set. A turn is an interval in which
/// the event set is loaded. Two `CountSums` can be added and subtracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountSums {
    pub value: u64,
    /// The total length of all turns of the event set, in nanoseconds.
    pub total_turn_time_ns: u64,
    pub nr_turns: u64,
    sum_of_squared_times: u128,
    sum_of_squared_values: u128,
    sum_of_value_time_products: u128,
    /// The reasons why counts are missing in the value.
    pub missing_count_causes: MissingCountCauses,
}

impl CountSums {
    /// Makes the `CountSums` of an event that is counted all the time. The count is `value`. The
    /// sums over turns are 0, because an event that is counted all the time has no turns.
    pub const fn from_unmultiplexed_count(value: u64) -> Self {
        Self {
            value,
            total_turn_time_ns: 0,
            nr_turns: 0,
            sum_of_squared_times: 0,
            sum_of_squared_values: 0,
            sum_of_value_time_products: 0,
            missing_count_causes: MissingCountCauses::NONE,
        }
    }

    /// Returns a copy of `self` in which `causes` is added to the reasons why counts are missing.
    pub fn with_missing_count_causes(self, causes: MissingCountCauses) -> Self {
        Self {
            missing_count_causes: self.missing_count_causes.union_preferring_known(causes),
            ..self
        }
    }

    /// Returns the sums without [`MissingCountCauses::UNKNOWN_REASON`], the cause for counts that
    /// are missing for an unknown reason.
    pub fn without_unknown_reason(&self) -> Self {
        let causes = match self.missing_count_causes {
            MissingCountCauses::UNKNOWN_REASON => MissingCountCauses::NONE,
            causes => causes,
        };
        Self {
            missing_count_causes: causes,
            ..*self
        }
    }

    pub fn from_runs(runs: &Runs) -> Self {
        let to_u128 = |[low, high]: [u64; 2]| u128::from(low) | (u128::from(high) << 64);
        Self {
            value: runs.value,
            total_turn_time_ns: runs.time,
            nr_turns: runs.runs,
            sum_of_squared_times: to_u128(runs.time2),
            sum_of_squared_values: to_u128(runs.value2),
            sum_of_value_time_products: to_u128(runs.value_time),
            missing_count_causes: match runs.reg_flags & perfmon::REGFL_SHORT {
                0 => MissingCountCauses::NONE,
                _ => MissingCountCauses::UNKNOWN_REASON,
            },
        }
    }

    fn combine_each_sum_with(&self, other: &Self, op: fn(u128, u128) -> u128) -> Self {
        let to_u64 = |a: u64, b: u64| op(a.into(), b.into()) as u64;
        Self {
            value: to_u64(self.value, other.value),
            total_turn_time_ns: to_u64(self.total_turn_time_ns, other.total_turn_time_ns),
            nr_turns: to_u64(self.nr_turns, other.nr_turns),
            sum_of_squared_times: op(self.sum_of_squared_times, other.sum_of_squared_times),
            sum_of_squared_values: op(self.sum_of_squared_values, other.sum_of_squared_values),
            sum_of_value_time_products: op(
                self.sum_of_value_time_products,
                other.sum_of_value_time_products,
            ),
            missing_count_causes: self
                .missing_count_causes
                .union_preferring_known(other.missing_count_causes),
        }
    }

    pub fn plus(&self, other: &Self) -> Self {
        self.combine_each_sum_with(other, u128::wrapping_add)
    }

    /// Returns the difference between `self` and earlier sums of the same event. The difference has
    /// the causes for missing counts that `self` has. The counts of a context that has ended early
    /// are missing in every later interval. The counts of an offline CPU are missing until the CPU
    /// is counted again.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            missing_count_causes: self.missing_count_causes,
            ..self.combine_each_sum_with(before, u128::wrapping_sub)
        }
    }

    /// Estimates the count for the time `total`, in nanoseconds.
    pub fn estimate_for_time(&self, total: u64) -> CountEstimate {
        let (value, time, total) = (
            self.value as f64,
            self.total_turn_time_ns as f64,
            total as f64,
        );
        if self.total_turn_time_ns == 0 || total <= time {
            // The event was counted all the time or was never counted. If the event was never
            // counted, the true count is not known.
            let share = if self.total_turn_time_ns == 0 {
                0.0
            } else {
                1.0
            };
            return CountEstimate {
                value,
                counted_time_share: share,
                error_bar: (share == 1.0).then_some(0.0),
            };
        }
        let ratio = value / time;
        let share = time / total;
        let n = self.nr_turns as f64;
        // For each turn, the deviation is the count of the turn minus `ratio` times the length of
        // the turn. `squares` is the sum of the squared deviations of all turns.
        let squares = self.sum_of_squared_values as f64
            - 2.0 * ratio * self.sum_of_value_time_products as f64
            + ratio * ratio * self.sum_of_squared_times as f64;
        // If an interval begins or ends in the middle of a turn, its sums do not cover whole turns
        // only, and `squares` can be negative.
        let adds_up = squares >= -1e-6 * self.sum_of_squared_values as f64;
        let error = (self.nr_turns > 1 && adds_up).then(|| {
            let variance = squares.max(0.0) / (n - 1.0);
            let sigma = (total / time) * ((1.0 - share) * n * variance).sqrt();
            lengthen_error_bar_for_skew(sigma * student_t_quantile(n - 1.0), ratio * total)
        });
        CountEstimate {
            value: ratio * total,
            counted_time_share: share,
            error_bar: error,
        }
    }
}

/// Lengthens the error bar of a skewed count.
///
/// Counts are not negative, and bursts of events make the distribution of counts skewed. If no
/// burst happens while the event set is loaded, both the estimated value and the estimated error
/// are too small. The lengthened error is the second-order approximation of
/// value * (exp(error / value) - 1), the upper half of an error bar on a logarithmic scale.
fn lengthen_error_bar_for_skew(error: f64, value: f64) -> f64 {
    match value > 0.0 {
        true => error * (1.0 + error / value / 2.0),
        false => error,
    }
}

/// The minimum number of degrees of freedom for which the normal distribution replaces Student's
/// t-distribution. With this many degrees of freedom, the quantiles of the two distributions differ
/// by less than 0.02 %.
const MIN_NORMAL_DEGREES_OF_FREEDOM: f64 = 10_000.0;

/// Returns the half length of an error bar in standard deviations, from Student's t-distribution.
fn student_t_quantile(degrees_of_freedom: f64) -> f64 {
    let probability = 0.5 + CONFIDENCE_PERCENT / 200.0;
    // With 14 million degrees of freedom or more, `StudentsT::inverse_cdf` of statrs 0.18 does not
    // return.
    if degrees_of_freedom >= MIN_NORMAL_DEGREES_OF_FREEDOM {
        return Normal::standard().inverse_cdf(probability);
    }
    StudentsT::new(0.0, 1.0, degrees_of_freedom)
        .map_or(f64::INFINITY, |t| t.inverse_cdf(probability))
}

/// The estimated count of the event for the whole time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountEstimate {
    pub value: f64,
    /// The fraction of the time in which the event was counted; 1 means all of the time.
    pub counted_time_share: f64,
    /// Half length of the error bar. In [`CONFIDENCE_PERCENT`] percent of all cases, the distance
    /// between `value` and the true value is at most `error_bar`. If the error is not known,
    /// `error_bar` is `None`.
    pub error_bar: Option<f64>,
}

/// Adds the sums of each event.
pub fn add_sums(sums: &mut [CountSums], values: &[CountSums]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum = sum.plus(value);
    }
}

/// Returns the union of the causes for which counts are missing in `values`.
pub fn union_of_causes(values: &[CountSums]) -> MissingCountCauses {
    let all = values.iter().map(|sums| sums.missing_count_causes);
    all.fold(
        MissingCountCauses::NONE,
        MissingCountCauses::union_preferring_known,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums_of_turns(turns: &[(u64, u64)]) -> CountSums {
        let mut all = CountSums::default();
        for (time, value) in turns {
            let (t, v) = (u128::from(*time), u128::from(*value));
            all = all.plus(&CountSums {
                value: *value,
                total_turn_time_ns: *time,
                nr_turns: 1,
                sum_of_squared_times: t * t,
                sum_of_squared_values: v * v,
                sum_of_value_time_products: t * v,
                missing_count_causes: MissingCountCauses::NONE,
            });
        }
        all
    }

    #[test]
    fn r1_12_constant_rate_has_no_error() {
        let e = sums_of_turns(&[(10, 100), (30, 300), (20, 200)]).estimate_for_time(600);
        assert!((e.value - 6000.0).abs() < 1e-6 && e.error_bar.expect("known") < 1e-3);
        assert!((e.counted_time_share - 0.1).abs() < 1e-9);
        let all = sums_of_turns(&[(10, 3), (20, 100)]).estimate_for_time(30);
        let values = (all.value, all.counted_time_share, all.error_bar);
        assert_eq!(values, (103.0, 1.0, Some(0.0)));
        let one = sums_of_turns(&[(10, 3)]).estimate_for_time(30);
        assert_eq!(one.error_bar, None);
        let none = sums_of_turns(&[(10, 0), (20, 0), (10, 0)]).estimate_for_time(100);
        assert_eq!((none.value, none.error_bar), (0.0, Some(0.0)));
        let never = CountSums::default().estimate_for_time(30);
        assert_eq!(never.counted_time_share, 0.0);
    }

    #[test]
    fn r1_12_error_bar_of_many_turns_is_computed() {
        let below = student_t_quantile(MIN_NORMAL_DEGREES_OF_FREEDOM - 1.0);
        assert!((below - student_t_quantile(MIN_NORMAL_DEGREES_OF_FREEDOM)).abs() < 5e-4);
        assert!((student_t_quantile(2e7) - 2.575_829).abs() < 1e-6);
        let n = 20_000_000;
        let all = CountSums {
            value: 15 * n,
            total_turn_time_ns: n,
            nr_turns: n,
            sum_of_squared_times: n.into(),
            sum_of_squared_values: 250 * u128::from(n),
            sum_of_value_time_products: 15 * u128::from(n),
            missing_count_causes: MissingCountCauses::NONE,
        };
        let e = all.estimate_for_time(2 * n);
        assert!((e.value - 30.0 * n as f64).abs() < 1.0);
        // The deviation of a turn is 5. Half of the turns were counted, so the standard error of
        // the estimated count is 2 * sqrt(n / 2) * 5.
        let expected = 2.575_829 * 2.0 * (n as f64 / 2.0).sqrt() * 5.0;
        let error = e.error_bar.expect("known");
        assert!((error / expected - 1.0).abs() < 1e-3, "{error} {expected}");
    }

    #[test]
    fn r1_12_interval_sums_are_differences() {
        let a = sums_of_turns(&[(10, 5), (20, 7)]);
        let b = sums_of_turns(&[(10, 5), (20, 7), (5, 50), (6, 9)]);
        assert_eq!(b.since(&a), sums_of_turns(&[(5, 50), (6, 9)]));
    }

    /// The test counts events in one third of the turns, with random errors. The true sum must lie
    /// within the error bars as often as [`CONFIDENCE_PERCENT`] says.
    #[test]
    fn r1_12_error_bars_have_stated_confidence() {
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
            let e = sums_of_turns(&seen).estimate_for_time(total);
            inside += i32::from((e.value - truth as f64).abs() <= e.error_bar.expect("known"));
        }
        let share = 100.0 * f64::from(inside) / f64::from(tries);
        assert!((97.5..99.8).contains(&share), "{share}");
    }
}
