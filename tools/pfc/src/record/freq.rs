// SPDX-License-Identifier: GPL-2.0

//! Computes sampling periods for a requested frequency. Clock events have a fixed period. The
//! period of every other event is computed from the times between the samples of that event.

/// The minimum number of gaps (times between two samples) from which a new period is computed.
const MIN_SAMPLE_GAPS_TO_ADJUST: usize = 16;
/// The largest factor by which one adjustment changes a period. A period is not changed if the new
/// period differs by a quarter or less.
const MAX_PERIOD_CHANGE_FACTOR: u64 = 8;

/// The frequency controller of one event of one context.
#[derive(Clone, Debug)]
pub struct FreqController {
    /// The requested time between two samples, in nanoseconds.
    target_gap_ns: u64,
    pub period: u64,
    last_sample_time_ns: Option<u64>,
    sample_gaps_ns: Vec<u64>,
}

impl FreqController {
    /// Makes a controller from a number of samples per second and an initial period.
    pub fn new(frequency: u64, period: u64) -> Self {
        Self {
            target_gap_ns: 1_000_000_000 / frequency.max(1),
            period: period.max(1),
            last_sample_time_ns: None,
            sample_gaps_ns: Vec::new(),
        }
    }

    /// Records the time of a sample, in nanoseconds.
    pub fn add_sample_time(&mut self, time: u64) {
        if let Some(previous) = self.last_sample_time_ns.replace(time) {
            self.sample_gaps_ns.push(time.saturating_sub(previous));
        }
    }

    /// Returns a new period if the period should change. The new period is computed from the median
    /// gap, so that a few long gaps, in which the thread slept, have no effect. After the new
    /// period is computed, all recorded gaps between samples are dropped.
    pub fn adjust_period(&mut self) -> Option<u64> {
        if self.sample_gaps_ns.len() < MIN_SAMPLE_GAPS_TO_ADJUST {
            return None;
        }
        self.sample_gaps_ns.sort_unstable();
        let median_gap = self.sample_gaps_ns[self.sample_gaps_ns.len() / 2].max(1);
        self.sample_gaps_ns.clear();
        let new_period =
            u128::from(self.period) * u128::from(self.target_gap_ns) / u128::from(median_gap);
        let new_period = u64::try_from(new_period)
            .unwrap_or(u64::MAX)
            .clamp(
                self.period / MAX_PERIOD_CHANGE_FACTOR,
                self.period.saturating_mul(MAX_PERIOD_CHANGE_FACTOR),
            )
            .clamp(1, i64::MAX as u64);
        if new_period.abs_diff(self.period) <= self.period / 4 {
            return None;
        }
        self.period = new_period;
        self.last_sample_time_ns = None;
        Some(new_period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_7_period_adapts_to_requested_frequency() {
        let mut controller = FreqController::new(1000, 1000);
        assert_eq!(controller.adjust_period(), None);
        let feed = |controller: &mut FreqController, gap: u64| {
            (0..20).for_each(|n| controller.add_sample_time(n * gap))
        };
        // The samples are three times as frequent as requested.
        feed(&mut controller, 333_333);
        assert_eq!(controller.adjust_period(), Some(3000));
        // The gaps between the samples are a hundred times as long as requested. One adjustment
        // changes the period by a factor of 8.
        feed(&mut controller, 100_000_000);
        assert_eq!(controller.adjust_period(), Some(375));
        feed(&mut controller, 1_100_000);
        controller.add_sample_time(10_000_000_000);
        assert_eq!(controller.adjust_period(), None);
        assert_eq!(controller.period, 375);
        let mut one = FreqController::new(1, 1);
        feed(&mut one, u64::MAX / 40);
        assert_eq!(one.adjust_period(), None);
    }
}
