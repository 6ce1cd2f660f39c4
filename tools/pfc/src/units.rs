// SPDX-License-Identifier: GPL-2.0

//! Formats values with units, for human readers and for export.

use perfcounters::{Kind, Unit};

/// The unit of a value, with a power of ten as its scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaledUnit {
    pub unit: Unit,
    /// A raw value v stands for v * 10^exponent units.
    pub exponent: i8,
}

/// Formats a number of bytes with a unit such as KiB or MiB.
pub fn format_byte_size(bytes: u64) -> String {
    let unit = ScaledUnit {
        unit: Unit::Bytes,
        exponent: 0,
    };
    unit.format_scaled_amount(bytes as f64)
}

impl ScaledUnit {
    /// Returns the unit of an instance's value. The value of a histogram is the number of values
    /// that the histogram has counted, so its unit is events.
    pub fn of_instance_value(instance: &perfcounters::Instance) -> Self {
        match instance.effective_kind {
            Kind::Histogram => Self {
                unit: Unit::Events,
                exponent: 0,
            },
            _ => Self::of_instance_descriptor(instance),
        }
    }

    /// Returns the unit that the descriptor of an instance declares. For a histogram, the result is
    /// the unit of the bounds of its buckets.
    pub fn of_instance_descriptor(instance: &perfcounters::Instance) -> Self {
        Self {
            unit: instance.unit,
            exponent: instance.exponent,
        }
    }

    /// If the unit is bytes or seconds, or if the exponent is not 0, formats the value by
    /// [`Self::format_scaled_amount`]. Otherwise formats the value exactly.
    pub fn format_exact_or_scaled(self, value: i64) -> String {
        if self.exponent == 0 && !matches!(self.unit, Unit::Bytes | Unit::Seconds) {
            return value.to_string();
        }
        self.format_scaled_amount(value as f64)
    }

    /// Formats a fractional value with about three significant digits: `1.23 ms`, `12.3 KiB`,
    /// `4.56k`.
    pub fn format_scaled_amount(self, value: f64) -> String {
        let value = value * 10f64.powi(i32::from(self.exponent));
        match self.unit {
            Unit::Seconds => format_seconds_with_unit(value),
            Unit::Bytes => format_with_scaled_suffix(
                value,
                1024.0,
                &[" B", " KiB", " MiB", " GiB", " TiB", " PiB"],
            ),
            _ => format_with_scaled_suffix(value, 1000.0, &["", "k", "M", "G", "T", "P"]),
        }
    }

    /// Returns the factor by which amounts are multiplied when instances with different units are
    /// sorted. After the multiplication, amounts of different units are roughly comparable. If
    /// amounts were sorted without a factor, the instances with the smallest units would come first
    /// in a table.
    pub fn sort_weight(self) -> f64 {
        let unit_weight = match self.unit {
            // For sorting, 1,000 bytes equal one packet, because a packet has about 1,000 bytes.
            Unit::Bytes => 1e-3,
            Unit::Cycles => 1e-6,
            // A CPU that is always busy has a rate of one second per second. For sorting, a rate of
            // one second per second equals a rate of 10,000 events per second.
            Unit::Seconds => 1e4,
            _ => 1.0,
        };
        unit_weight * 10f64.powi(i32::from(self.exponent))
    }

    /// Returns the text for a column that shows units. The text is empty if the value is a plain
    /// number, or if the formatted value itself contains the unit.
    pub fn column_unit_text(self) -> String {
        match (self.unit, self.exponent) {
            (Unit::None, 0) => String::new(),
            // The formatted value of bytes and seconds contains the unit.
            (Unit::Bytes | Unit::Seconds, _) => String::new(),
            (unit, _) => unit.name().to_owned(),
        }
    }

    /// Returns the unit of values that were not multiplied by 10^`exponent`, for example `ns`,
    /// `bytes` or `10^3 pages`.
    pub fn raw_unit_name(self) -> String {
        let word = match (self.unit, self.exponent) {
            (Unit::None, 0) => "-",
            (Unit::Seconds, 0) => "s",
            (Unit::Seconds, -3) => "ms",
            (Unit::Seconds, -6) => "us",
            (Unit::Seconds, -9) => "ns",
            (Unit::Seconds, -12) => "ps",
            (Unit::Bytes, 3) => "kB",
            (Unit::Bytes, 6) => "MB",
            (unit, 0) => unit.name(),
            (Unit::None, e) => return format!("10^{e}"),
            (unit, e) => return format!("10^{e} {}", unit.name()),
        };
        word.to_owned()
    }
}

fn format_seconds_with_unit(value: f64) -> String {
    match value.abs() {
        0.0 => "0 s".to_owned(),
        v if v < 0.999_95e-6 => format!("{} ns", format_three_significant_digits(value * 1e9)),
        v if v < 0.999_95e-3 => format!("{} us", format_three_significant_digits(value * 1e6)),
        v if v < 0.999_95 => format!("{} ms", format_three_significant_digits(value * 1e3)),
        _ => format!("{} s", format_three_significant_digits(value)),
    }
}

fn format_with_scaled_suffix(mut value: f64, step: f64, suffixes: &[&str]) -> String {
    let mut at = 0;
    while value.abs() >= 999.95 && at + 1 < suffixes.len() {
        value /= step;
        at += 1;
    }
    format!("{}{}", format_three_significant_digits(value), suffixes[at])
}

/// Formats a number with three significant digits. An integer below one million is formatted
/// exactly.
fn format_three_significant_digits(value: f64) -> String {
    let text = match value.abs() {
        v if v == v.trunc() && v < 1e6 => return format!("{value:.0}"),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    // A value that rounds to -0.00 or 0.00 is printed as 0.
    if text.chars().all(|c| matches!(c, '-' | '0' | '.')) {
        "0".to_owned()
    } else {
        text
    }
}

/// Formats value * 10^exponent exactly: as a decimal number for exponents from -18 to 18, and in
/// the form `7e127` for other exponents.
pub fn format_exact_decimal(value: i128, exponent: i8) -> String {
    let digits = value.unsigned_abs().to_string();
    let sign = if value < 0 { "-" } else { "" };
    match exponent {
        _ if value == 0 => "0".to_owned(),
        0 => format!("{sign}{digits}"),
        1..=18 => format!("{sign}{digits}{}", "0".repeat(exponent as usize)),
        -18..=-1 => {
            let nr_decimals = usize::from(exponent.unsigned_abs());
            let digits = format!("{digits:0>width$}", width = nr_decimals + 1);
            let (whole, part) = digits.split_at(digits.len() - nr_decimals);
            let number = format!("{sign}{whole}.{part}");
            number
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_owned()
        }
        e => format!("{sign}{digits}e{e}"),
    }
}

/// Formats value * 10^exponent exactly, in the canonical form that OpenMetrics requires for the
/// bound of a bucket: `0.001`, `1.0`, `1e+06`, `1.023e-06`.
pub fn format_openmetrics_bound(value: u64, exponent: i8) -> String {
    if value == 0 {
        return "0.0".to_owned();
    }
    let digits = value.to_string();
    let point = digits.len() as i32 + i32::from(exponent);
    let digits = digits.trim_end_matches('0');
    match usize::try_from(point) {
        Ok(at @ 1..=6) if digits.len() > at => format!("{}.{}", &digits[..at], &digits[at..]),
        Ok(at @ 1..=6) => format!("{digits:0<at$}.0"),
        _ if (-3..=0).contains(&point) => {
            format!("0.{}{digits}", "0".repeat(point.unsigned_abs() as usize))
        }
        _ => {
            let (first, rest) = digits.split_at(1);
            let dot = if rest.is_empty() { "" } else { "." };
            let sign = if point > 0 { '+' } else { '-' };
            let exponent = (point - 1).unsigned_abs();
            format!("{first}{dot}{rest}e{sign}{exponent:02}")
        }
    }
}

/// Returns the bounds of bucket `b` of a histogram with `buckets` buckets. The lower bound is
/// inclusive and the upper bound is exclusive. If a bucket has no limit on one side, its bound on
/// that side is `None`.
pub fn histogram_bucket_bounds(b: usize, buckets: usize) -> (Option<i64>, Option<i64>) {
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

/// Returns the index of the bucket with the quantile `share`. The result is the first bucket for
/// which this bucket and all earlier buckets together contain at least the fraction `share` of all
/// values. Returns `None` for a histogram without values.
pub fn find_quantile_bucket(buckets: &[i64], share: f64) -> Option<usize> {
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

/// Formats the upper bound of a bucket as `< 1.05 ms`. The last bucket has only a lower bound,
/// which is formatted as `>= 8.59 s`.
pub fn format_bucket_bound(unit: ScaledUnit, b: usize, buckets: usize) -> String {
    match histogram_bucket_bounds(b, buckets) {
        (_, Some(to)) => format!("< {}", unit.format_scaled_amount(to as f64)),
        (Some(from), None) => format!(">= {}", unit.format_scaled_amount(from as f64)),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NANOSECONDS: ScaledUnit = ScaledUnit {
        unit: Unit::Seconds,
        exponent: -9,
    };
    const BYTES: ScaledUnit = ScaledUnit {
        unit: Unit::Bytes,
        exponent: 0,
    };
    const EVENTS: ScaledUnit = ScaledUnit {
        unit: Unit::Events,
        exponent: 0,
    };

    #[test]
    fn pfc_units_format_values_for_readers() {
        assert_eq!(NANOSECONDS.format_exact_or_scaled(0), "0 s");
        assert_eq!(NANOSECONDS.format_exact_or_scaled(1), "1 ns");
        assert_eq!(NANOSECONDS.format_exact_or_scaled(1_234), "1.23 us");
        assert_eq!(NANOSECONDS.format_exact_or_scaled(999_999), "1.00 ms");
        assert_eq!(NANOSECONDS.format_exact_or_scaled(12_345_678), "12.3 ms");
        assert_eq!(
            NANOSECONDS.format_exact_or_scaled(-1_500_000_000),
            "-1.50 s"
        );
        assert_eq!(BYTES.format_exact_or_scaled(1023), "1.00 KiB");
        assert_eq!(BYTES.format_exact_or_scaled(999), "999 B");
        assert_eq!(BYTES.format_exact_or_scaled(3 << 30), "3 GiB");
        assert_eq!(
            EVENTS.format_exact_or_scaled(i64::MAX),
            "9223372036854775807"
        );
        assert_eq!(EVENTS.format_scaled_amount(0.001), "0");
        assert_eq!(EVENTS.format_scaled_amount(12_345.0), "12.3k");
        assert_eq!(EVENTS.format_scaled_amount(0.25), "0.25");
    }

    #[test]
    fn pfc_units_have_raw_unit_names() {
        let raw_unit = |unit, exponent| ScaledUnit { unit, exponent }.raw_unit_name();
        assert_eq!(NANOSECONDS.raw_unit_name(), "ns");
        assert_eq!(BYTES.raw_unit_name(), "bytes");
        assert_eq!(raw_unit(Unit::None, 0), "-");
        assert_eq!(raw_unit(Unit::Pages, 3), "10^3 pages");
        assert_eq!(raw_unit(Unit::Seconds, -7), "10^-7 seconds");
        assert_eq!(raw_unit(Unit::None, -2), "10^-2");
    }

    #[test]
    fn pfc_units_format_exact_decimals() {
        for (value, exponent, text) in [
            (0, -9, "0"),
            (1, 0, "1"),
            (-5, 3, "-5000"),
            (1, -9, "0.000000001"),
            (1_500_000_000, -9, "1.5"),
            (-2_000_000_000, -9, "-2"),
            (120, -1, "12"),
            (i128::from(i64::MAX), -9, "9223372036.854775807"),
            (i128::from(i64::MIN), 0, "-9223372036854775808"),
            (7, 127, "7e127"),
            (-7, -128, "-7e-128"),
        ] {
            assert_eq!(
                format_exact_decimal(value, exponent),
                text,
                "{value} {exponent}"
            );
            let back: f64 = text.parse().expect("a number");
            let near = value as f64 * 10f64.powi(exponent.into());
            assert!((back - near).abs() <= near.abs() * 1e-12, "{text}");
        }
    }

    #[test]
    fn pfc_units_format_openmetrics_bounds() {
        for (value, exponent, text) in [
            (0, -9, "0.0"),
            (1, 0, "1.0"),
            (1, -3, "0.001"),
            (1, -4, "0.0001"),
            (1, -5, "1e-05"),
            (10, -6, "1e-05"),
            (1023, -9, "1.023e-06"),
            (1023, 0, "1023.0"),
            (1023, -3, "1.023"),
            (100_000, 0, "100000.0"),
            (1_000_000, 0, "1e+06"),
            (131_071, -6, "0.131071"),
            (1, 10, "1e+10"),
            (12, -1, "1.2"),
            (25, -2, "0.25"),
            ((1 << 62) - 1, 0, "4.611686018427387903e+18"),
            (1, -128, "1e-128"),
        ] {
            assert_eq!(
                format_openmetrics_bound(value, exponent),
                text,
                "{value} {exponent}"
            );
        }
    }

    #[test]
    fn pfc_bucket_bounds_are_powers_of_two() {
        assert_eq!(histogram_bucket_bounds(0, 64), (None, Some(1)));
        assert_eq!(histogram_bucket_bounds(1, 64), (Some(1), Some(2)));
        assert_eq!(histogram_bucket_bounds(4, 64), (Some(8), Some(16)));
        assert_eq!(histogram_bucket_bounds(63, 64), (Some(1 << 62), None));
        assert_eq!(histogram_bucket_bounds(7, 8), (Some(64), None));
        assert_eq!(find_quantile_bucket(&[0, 0], 0.5), None);
        assert_eq!(find_quantile_bucket(&[1, 1, 98], 0.5), Some(2));
        assert_eq!(find_quantile_bucket(&[99, 1], 0.99), Some(0));
    }
}
