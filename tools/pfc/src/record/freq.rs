// SPDX-License-Identifier: GPL-2.0

//! Computes sampling periods for a requested frequency. Clock events have a fixed period. The
//! period of every other event is computed from the times between the samples of that event.

/// The minimum number of gaps (times between two samples) from which a new period is computed.
const MIN_GAPS: usize = 16;
/// The largest factor by which one adjustment changes a period. A period is not changed if the new
/// period differs by a quarter or less.
const MAX_CHANGE: u64 = 8;

/// The frequency controller of one event of one context.
#[derive(Clone, Debug)]
pub struct FreqController {
    /// The requested time between two samples, in nanoseconds.
    target_gap: u64,
    pub period: u64,
    last_time: Option<u64>,
    gaps: Vec<u64>,
}

impl FreqController {
    /// Makes a controller from a number of samples per second and an initial period.
    pub fn new(frequency: u64, period: u64) -> Self {
        Self {
            target_gap: 1_000_000_000 / frequency.max(1),
            period: period.max(1),
            last_time: None,
            gaps: Vec::new(),
        }
    }

    /// Records the time of a sample, in nanoseconds.
    pub fn add_sample(&mut self, time: u64) {
        if let Some(previous) = self.last_time.replace(time) {
            self.gaps.push(time.saturating_sub(previous));
        }
    }

    /// Returns a new period if the period should change. The new period is computed from the median
    /// gap, so that a few long gaps, in which the thread slept, have no effect. After the new
    /// period is computed, all recorded gaps between samples are dropped.
    pub fn adjust(&mut self) -> Option<u64> {
        if self.gaps.len() < MIN_GAPS {
            return None;
        }
        self.gaps.sort_unstable();
        let median_gap = self.gaps[self.gaps.len() / 2].max(1);
        self.gaps.clear();
        let new_period =
            u128::from(self.period) * u128::from(self.target_gap) / u128::from(median_gap);
        let new_period = u64::try_from(new_period)
            .unwrap_or(u64::MAX)
            .clamp(
                self.period / MAX_CHANGE,
                self.period.saturating_mul(MAX_CHANGE),
            )
            .clamp(1, i64::MAX as u64);
        if new_period.abs_diff(self.period) <= self.period / 4 {
            return None;
        }
        self.period = new_period;
        self.last_time = None;
        Some(new_period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_7_the_period_follows_the_samples() {
        let mut controller = FreqController::new(1000, 1000);
        assert_eq!(controller.adjust(), None);
        let feed = |controller: &mut FreqController, gap: u64| {
            (0..20).for_each(|n| controller.add_sample(n * gap))
        };
        // The samples are three times as frequent as requested.
        feed(&mut controller, 333_333);
        assert_eq!(controller.adjust(), Some(3000));
        // The gaps between the samples are a hundred times as long as requested. One adjustment
        // changes the period by a factor of 8.
        feed(&mut controller, 100_000_000);
        assert_eq!(controller.adjust(), Some(375));
        feed(&mut controller, 1_100_000);
        controller.add_sample(10_000_000_000);
        assert_eq!(controller.adjust(), None);
        assert_eq!(controller.period, 375);
        let mut one = FreqController::new(1, 1);
        feed(&mut one, u64::MAX / 40);
        assert_eq!(one.adjust(), None);
    }
}
