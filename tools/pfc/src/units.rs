// SPDX-License-Identifier: GPL-2.0

//! Values as people read them.

use perfcounters::{Kind, Unit};

/// What a value measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    pub unit: Unit,
    /// A value is value * 10^exponent units.
    pub exponent: i8,
}

impl Measure {
    /// What the value of an instance measures: a histogram's is how many
    /// values it has counted.
    pub fn of(instance: &perfcounters::Instance) -> Self {
        match instance.kind {
            Kind::Histogram => Self {
                unit: Unit::Events,
                exponent: 0,
            },
            _ => Self::inside(instance),
        }
    }

    /// What is measured; by a histogram: in its buckets.
    pub fn inside(instance: &perfcounters::Instance) -> Self {
        Self {
            unit: instance.unit,
            exponent: instance.exponent,
        }
    }

    /// A value: exact if it is a bare count, else four digits with a unit.
    pub fn value(self, value: i64) -> String {
        if self.exponent == 0 && !matches!(self.unit, Unit::Bytes | Unit::Seconds) {
            return value.to_string();
        }
        self.amount(value as f64)
    }

    /// A fractional value, four digits: `1.234 ms`, `12.3 KiB`, `4.56k`.
    pub fn amount(self, value: f64) -> String {
        let value = value * 10f64.powi(i32::from(self.exponent));
        match self.unit {
            Unit::Seconds => seconds(value),
            Unit::Bytes => scaled(
                value,
                1024.0,
                &[" B", " KiB", " MiB", " GiB", " TiB", " PiB"],
            ),
            _ => scaled(value, 1000.0, &["", "k", "M", "G", "T", "P"]),
        }
    }

    /// A rate: an amount per second, without saying so.
    pub fn rate(self, per_second: f64) -> String {
        self.amount(per_second)
    }

    /// What makes amounts of different units comparable, roughly, so that the
    /// busiest instances are not always those that count in small coin.
    pub fn weight(self) -> f64 {
        let coin = match self.unit {
            // A packet's worth.
            Unit::Bytes => 1e-3,
            Unit::Cycles => 1e-6,
            // A second per second is a busy CPU.
            Unit::Seconds => 1e4,
            _ => 1.0,
        };
        coin * 10f64.powi(i32::from(self.exponent))
    }

    /// The word for a column of units; none for a bare number.
    pub fn word(self) -> String {
        match (self.unit, self.exponent) {
            (Unit::None, 0) => String::new(),
            // The value says it itself.
            (Unit::Bytes | Unit::Seconds, _) => String::new(),
            (unit, _) => unit.name().to_owned(),
        }
    }

    /// The unit as the kernel counts it: `seconds*10^-9`.
    pub fn exact(self) -> String {
        match self.exponent {
            0 => self.unit.name().to_owned(),
            e => format!("{}*10^{e}", self.unit.name()),
        }
    }
}

fn seconds(value: f64) -> String {
    match value.abs() {
        0.0 => "0 s".to_owned(),
        v if v < 0.999_95e-6 => format!("{} ns", digits(value * 1e9)),
        v if v < 0.999_95e-3 => format!("{} us", digits(value * 1e6)),
        v if v < 0.999_95 => format!("{} ms", digits(value * 1e3)),
        _ => format!("{} s", digits(value)),
    }
}

fn scaled(mut value: f64, step: f64, suffixes: &[&str]) -> String {
    let mut at = 0;
    while value.abs() >= 999.95 && at + 1 < suffixes.len() {
        value /= step;
        at += 1;
    }
    format!("{}{}", digits(value), suffixes[at])
}

/// About four digits, no more than one needs.
fn digits(value: f64) -> String {
    let text = match value.abs() {
        v if v == v.trunc() && v < 1e6 => return format!("{value:.0}"),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    // -0.00 is nothing.
    if text.chars().all(|c| matches!(c, '-' | '0' | '.')) {
        "0".to_owned()
    } else {
        text
    }
}

/// The values that bucket `b` of `buckets` counts: below, and from where.
/// `None` for no bound.
pub fn bucket_bounds(b: usize, buckets: usize) -> (Option<i64>, Option<i64>) {
    let from = match b {
        0 => None,
        b => 1i64.checked_shl(b as u32 - 1).or(Some(i64::MAX)),
    };
    let to = match b {
        0 => Some(1),
        b if b + 1 >= buckets || b >= 63 => None,
        b => Some(1i64 << b),
    };
    (from, to)
}

/// The bucket below whose upper bound a share of all values lies.
pub fn quantile(buckets: &[i64], share: f64) -> Option<usize> {
    let all: i64 = buckets.iter().fold(0, |a, b| a.wrapping_add(*b));
    if all <= 0 {
        return None;
    }
    let wanted = all as f64 * share;
    let mut seen = 0.0;
    buckets.iter().position(|n| {
        seen += *n as f64;
        seen >= wanted
    })
}

/// `< 1.05 ms`, or `>= 8.59 s` for the last bucket.
pub fn bucket_edge(measure: Measure, b: usize, buckets: usize) -> String {
    match bucket_bounds(b, buckets) {
        (_, Some(to)) => format!("< {}", measure.amount(to as f64)),
        (Some(from), None) => format!(">= {}", measure.amount(from as f64)),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NS: Measure = Measure {
        unit: Unit::Seconds,
        exponent: -9,
    };
    const BYTES: Measure = Measure {
        unit: Unit::Bytes,
        exponent: 0,
    };
    const EVENTS: Measure = Measure {
        unit: Unit::Events,
        exponent: 0,
    };

    #[test]
    fn pfc_units_are_humanised() {
        assert_eq!(NS.value(0), "0 s");
        assert_eq!(NS.value(1), "1 ns");
        assert_eq!(NS.value(1_234), "1.23 us");
        assert_eq!(NS.value(999_999), "1.00 ms");
        assert_eq!(NS.value(12_345_678), "12.3 ms");
        assert_eq!(NS.value(-1_500_000_000), "-1.50 s");
        assert_eq!(BYTES.value(1023), "1.00 KiB");
        assert_eq!(BYTES.value(999), "999 B");
        assert_eq!(BYTES.value(3 << 30), "3 GiB");
        assert_eq!(EVENTS.value(i64::MAX), "9223372036854775807");
        assert_eq!(EVENTS.amount(0.001), "0");
        assert_eq!(EVENTS.amount(12_345.0), "12.3k");
        assert_eq!(EVENTS.amount(0.25), "0.25");
    }

    #[test]
    fn pfc_buckets_are_powers_of_two() {
        assert_eq!(bucket_bounds(0, 64), (None, Some(1)));
        assert_eq!(bucket_bounds(1, 64), (Some(1), Some(2)));
        assert_eq!(bucket_bounds(4, 64), (Some(8), Some(16)));
        assert_eq!(bucket_bounds(63, 64), (Some(1 << 62), None));
        assert_eq!(bucket_bounds(7, 8), (Some(64), None));
        assert_eq!(quantile(&[0, 0], 0.5), None);
        assert_eq!(quantile(&[1, 1, 98], 0.5), Some(2));
        assert_eq!(quantile(&[99, 1], 0.99), Some(0));
    }
}
