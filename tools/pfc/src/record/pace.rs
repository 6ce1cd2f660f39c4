// SPDX-License-Identifier: GPL-2.0

//! Periods for a frequency: of clocks they are known, of other events they follow what
//! samples come.

/// Samples that are looked at together.
const ENOUGH: usize = 16;
/// A period changes by no more than that at a time, and is left alone if it is nearer
/// to what it should be than a quarter.
const MOST: u64 = 8;

/// One event of one context.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Nanoseconds between two samples.
    wanted: u64,
    pub period: u64,
    last: Option<u64>,
    gaps: Vec<u64>,
}

impl Pace {
    /// Samples per second, and a period to begin with.
    pub fn new(frequency: u64, period: u64) -> Self {
        Self {
            wanted: 1_000_000_000 / frequency.max(1),
            period: period.max(1),
            last: None,
            gaps: Vec::new(),
        }
    }

    /// A sample came at this time.
    pub fn sample(&mut self, time: u64) {
        if let Some(last) = self.last.replace(time) {
            self.gaps.push(time.saturating_sub(last));
        }
    }

    /// A better period, if there is one. The middle gap counts: a thread that sleeps
    /// makes a few long ones.
    pub fn adjust(&mut self) -> Option<u64> {
        if self.gaps.len() < ENOUGH {
            return None;
        }
        self.gaps.sort_unstable();
        let gap = self.gaps[self.gaps.len() / 2].max(1);
        self.gaps.clear();
        let better = u128::from(self.period) * u128::from(self.wanted) / u128::from(gap);
        let better = u64::try_from(better)
            .unwrap_or(u64::MAX)
            .clamp(self.period / MOST, self.period.saturating_mul(MOST))
            .clamp(1, i64::MAX as u64);
        if better.abs_diff(self.period) <= self.period / 4 {
            return None;
        }
        self.period = better;
        self.last = None;
        Some(better)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_7_the_period_follows_the_samples() {
        let mut pace = Pace::new(1000, 1000);
        assert_eq!(pace.adjust(), None);
        let feed = |pace: &mut Pace, gap: u64| (0..20).for_each(|n| pace.sample(n * gap));
        // Three times too many.
        feed(&mut pace, 333_333);
        assert_eq!(pace.adjust(), Some(3000));
        // A hundred times too few, and once asleep.
        feed(&mut pace, 100_000_000);
        assert_eq!(pace.adjust(), Some(375));
        feed(&mut pace, 1_100_000);
        pace.sample(10_000_000_000);
        assert_eq!(pace.adjust(), None);
        assert_eq!(pace.period, 375);
        let mut one = Pace::new(1, 1);
        feed(&mut one, u64::MAX / 40);
        assert_eq!(one.adjust(), None);
    }
}
