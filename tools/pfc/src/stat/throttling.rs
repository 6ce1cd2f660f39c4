// SPDX-License-Identifier: GPL-2.0

//! Throttling: counts how often contexts took too many samples, and for how long sampling was
//! therefore suspended.

use std::fmt;

use perfmon::Status;

/// The throttling of several contexts, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// The number of times that a context was throttled.
    pub nr_throttles: u64,
    /// The time for which sampling was suspended, in nanoseconds.
    pub suspended_ns: u64,
}

impl Throttling {
    pub fn add(&mut self, status: &Status) {
        self.nr_throttles += u64::from(status.nr_throttles);
        self.suspended_ns = self.suspended_ns.saturating_add(status.throttled);
    }

    pub fn is_zero(&self) -> bool {
        self.nr_throttles == 0
    }

    /// Returns the throttling since `before`, which is an earlier value for the same contexts.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            nr_throttles: self.nr_throttles.saturating_sub(before.nr_throttles),
            suspended_ns: self.suspended_ns.saturating_sub(before.suspended_ns),
        }
    }
}

impl fmt::Display for Throttling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = if self.nr_throttles == 1 {
            "time"
        } else {
            "times"
        };
        write!(
            f,
            "throttled {} {times}, for {:.3} ms",
            self.nr_throttles,
            self.suspended_ns as f64 / 1e6
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r9_6_throttled_time_is_the_sum_of_all_contexts() {
        let status = |nr, ns| Status {
            nr_throttles: nr,
            throttled: ns,
            ..Status::default()
        };
        let mut all = Throttling::default();
        assert!(all.is_zero());
        all.add(&status(1, 1_500_000));
        assert_eq!(all.to_string(), "throttled 1 time, for 1.500 ms");
        let before = all;
        all.add(&status(2, 40_000_000));
        assert_eq!(all.to_string(), "throttled 3 times, for 41.500 ms");
        assert_eq!(all.since(&before).suspended_ns, 40_000_000);
    }
}
