// SPDX-License-Identifier: GPL-2.0

//! Converts ticks of the clock of a trace to times.

use crate::source::TraceInfo;

const NS_PER_SECOND: i128 = 1_000_000_000;

/// The clock of a trace: the frequency of its ticks, and a reference point, which is one moment in
/// ticks and in real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Number of ticks per millisecond, which is not 0.
    khz: u32,
    reference_ticks: u64,
    reference_realtime_ns: u64,
}

impl Clock {
    /// Returns the clock of a trace.
    pub fn new(info: &TraceInfo) -> Self {
        Self {
            khz: info.khz.max(1),
            reference_ticks: info.now_ticks,
            reference_realtime_ns: info.now_realtime_ns,
        }
    }

    /// Returns the frequency of the clock in ticks per second.
    pub fn frequency(&self) -> u64 {
        u64::from(self.khz) * 1000
    }

    /// Converts ticks to nanoseconds since 1970. A time before 1970 becomes 0.
    pub fn realtime_ns(&self, time: u64) -> u64 {
        let since = i128::from(time) - i128::from(self.reference_ticks);
        let ns = i128::from(self.reference_realtime_ns) + since * 1_000_000 / i128::from(self.khz);
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
    }

    /// Returns the nanoseconds from one time in ticks to a later time.
    pub(crate) fn ns_between(&self, from: u64, to: u64) -> u64 {
        let ns = u128::from(to.saturating_sub(from)) * 1_000_000 / u128::from(self.khz);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Returns the time of tick 0: seconds since 1970, and the remaining fraction of a second in
    /// ticks.
    pub fn offset_from_unix_epoch(&self) -> (i64, u64) {
        let frequency = i128::from(self.frequency());
        let ticks = i128::from(self.reference_realtime_ns) * frequency / NS_PER_SECOND
            - i128::from(self.reference_ticks);
        let seconds = ticks.div_euclid(frequency);
        let rest = ticks.rem_euclid(frequency);
        // The seconds and the remaining ticks fit into 64 bits, because times in ticks have 64 bits
        // and the frequency is at least 1000.
        (
            i64::try_from(seconds).unwrap_or_default(),
            u64::try_from(rest).unwrap_or_default(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock_at(khz: u32, now_ticks: u64, now_realtime_ns: u64) -> Clock {
        Clock::new(&TraceInfo {
            khz,
            now_ticks,
            now_realtime_ns,
            ..TraceInfo::default()
        })
    }

    #[test]
    fn r3_6_ticks_are_converted_to_nanoseconds() {
        let c = clock_at(2_000_000, 4_000_000_000, 1_000_000_000_500_000_000);
        assert_eq!(c.realtime_ns(4_000_000_000), 1_000_000_000_500_000_000);
        assert_eq!(c.realtime_ns(4_000_000_002), 1_000_000_000_500_000_001);
        assert_eq!(c.realtime_ns(0), 999_999_998_500_000_000);
        assert_eq!(c.ns_between(10, 30), 10);
        assert_eq!(c.ns_between(30, 10), 0);
        assert_eq!(c.offset_from_unix_epoch(), (999_999_998, 1_000_000_000));
        assert_eq!(clock_at(1, u64::MAX, 0).realtime_ns(0), 0);
        assert_eq!(clock_at(0, 0, 0).realtime_ns(u64::MAX), u64::MAX);
    }

    #[test]
    fn r3_6_tick_zero_may_lie_before_1970() {
        let c = clock_at(1000, 5_000_001, 0);
        assert_eq!(c.offset_from_unix_epoch(), (-6, 999_999));
    }
}
