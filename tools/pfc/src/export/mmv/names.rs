// SPDX-License-Identifier: GPL-2.0

//! Converts instance names and units to the metric names and units of Performance Co-Pilot (PCP).
//!
//! A metric's name in PCP consists of words that are joined by dots. Each word matches
//! `[A-Za-z][A-Za-z0-9_]*`. The name of an instance of the counter pages can be any text.
//! Characters that PCP does not allow are encoded by the rules below. The encoding is unambiguous:
//! different instances have different metric names, and an instance's name can be decoded from its
//! metric's name, unless the encoded name is too long.
//!
//! - `/` becomes a dot, and each part between slashes becomes a word.
//! - A byte that is not an ASCII letter, digit or `_` is encoded by its hexadecimal value, for
//!   example as `_x2d_`. A `_` before an `x` is also encoded by its hexadecimal value, because `_x`
//!   is the beginning of an encoded byte.
//! - A word that does not begin with a letter, or begins with `x_`, gets the prefix `x_`.

use std::collections::HashSet;

use perfcounters::{Instance, Unit};

/// Size of each string in an MMV file in bytes, including its NUL.
pub const MMV_STRING_BYTES: usize = 256;

/// Encodes `part`, the text between two slashes of an instance's name, as a word of a metric's
/// name. Appends the word to `to`.
fn encode_pcp_word(part: &str, to: &mut String) {
    let mut body = String::with_capacity(part.len());
    let bytes = part.as_bytes();
    for (n, &byte) in bytes.iter().enumerate() {
        let plain = match byte {
            b'_' => bytes.get(n + 1) != Some(&b'x'),
            other => other.is_ascii_alphanumeric(),
        };
        match plain {
            true => body.push(char::from(byte)),
            false => body.push_str(&format!("_x{byte:02x}_")),
        }
    }
    if body.starts_with("x_") || !body.starts_with(|c: char| c.is_ascii_alphabetic()) {
        to.push_str("x_");
    }
    to.push_str(&body);
}

/// Returns true if the text is a word of a PCP name that needs no encoding.
pub fn is_pcp_word(text: &str) -> bool {
    let mut encoded = String::new();
    encode_pcp_word(text, &mut encoded);
    encoded == text
}

/// Makes metric names from instance names. The metric names lack the prefix `mmv.`, which PCP adds.
pub struct MetricNamer {
    /// Path prefixes of the names of all instances. If the name of an instance is a path prefix of
    /// other names, the metric of the instance gets the additional word `x_self`, because a metric
    /// with a value cannot have metrics below it in PCP's tree of names.
    path_prefixes: HashSet<String>,
}

impl MetricNamer {
    /// Collects the path prefixes of the names of `instances`.
    pub fn new<'a>(instances: impl Iterator<Item = &'a Instance>) -> Self {
        let mut prefixes = HashSet::new();
        for instance in instances {
            let name = instance.name.as_str();
            for (slash, _) in name.match_indices('/').rev() {
                // A prefix is added to `prefixes` together with all shorter prefixes.
                if !prefixes.insert(name[..slash].to_owned()) {
                    break;
                }
            }
        }
        Self {
            path_prefixes: prefixes,
        }
    }

    /// Returns the name of the metric for an instance: `prefix` and the encoded name of the
    /// instance. If the metric's name would be too long for an MMV file, `x_long` and the
    /// instance's number replace the encoded name of the instance. The words `x_self` and `x_long`
    /// are unambiguous: no part of an instance's name is encoded as one of them.
    pub fn metric_name(&self, prefix: &str, instance: &Instance) -> String {
        let mut name = prefix.to_owned();
        for part in instance.name.split('/') {
            name.push('.');
            encode_pcp_word(part, &mut name);
        }
        if self.path_prefixes.contains(&instance.name) {
            name.push_str(".x_self");
        }
        if name.len() >= MMV_STRING_BYTES {
            name = format!("{prefix}.x_long.n{}", instance.number);
        }
        name
    }
}

/// Returns the unit in PCP's packed form, and the factor that converts values to that unit. The
/// conversion factor is above 1 if PCP has no unit for the power of ten 10^`exponent`. Returns
/// `None` if PCP cannot represent the unit; the metric then has no dimension, and its help text
/// names the unit.
pub fn convert_to_pcp_units(unit: Unit, exponent: i8) -> Option<(u32, i64)> {
    let up = |by: i8| u32::try_from(by).ok().and_then(|n| 10i64.checked_pow(n));
    match unit {
        Unit::None => (exponent == 0).then_some((0, 1)),
        Unit::Bytes => Some((PCP_UNITS_SPACE, up(exponent)?)),
        Unit::Seconds => {
            // PCP has nanoseconds, microseconds, milliseconds and seconds. Times in another unit of
            // more than 1 ns, for example 10^-7 s, are converted to the next finer unit of PCP.
            let scale = i8::min((exponent.checked_add(9)?).div_euclid(3), 3);
            let scale_at = u32::try_from(scale).ok()?;
            Some((
                PCP_UNITS_TIME | (scale_at << 12),
                up(exponent - (scale * 3 - 9))?,
            ))
        }
        // PCP has a single dimension for all kinds of counts.
        _ => (-8..8)
            .contains(&exponent)
            .then_some((PCP_UNITS_COUNT | ((u32::from(exponent as u8) & 15) << 8), 1)),
    }
}

/// Values of PCP's packed `pmUnits` in which one dimension (space, time or count) has exponent 1.
const PCP_UNITS_SPACE: u32 = 1 << 28;
const PCP_UNITS_TIME: u32 = 1 << 24;
const PCP_UNITS_COUNT: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use perfcounters::{InstanceState, Kind};

    fn make_instance(name: &str) -> Instance {
        Instance {
            number: 7,
            name: name.to_owned(),
            help: String::new(),
            effective_kind: Kind::Counter,
            unknown_kind: None,
            unit: Unit::Events,
            exponent: 0,
            nr_slots: 1,
            incarnation: 1,
            state: InstanceState::Live,
            created_ns: 0,
            ended_ns: 0,
        }
    }

    /// Decodes a metric's name by the encoding rules of the module `names`.
    fn decode_metric_name(metric: &str) -> Option<String> {
        let mut parts = Vec::new();
        for word in metric.split('.') {
            let mut rest = word.strip_prefix("x_").unwrap_or(word);
            let mut part = Vec::new();
            while let Some(&byte) = rest.as_bytes().first() {
                if let Some(hex) = rest.strip_prefix("_x") {
                    part.push(u8::from_str_radix(hex.get(..2)?, 16).ok()?);
                    rest = hex.get(2..)?.strip_prefix('_')?;
                } else {
                    part.push(byte);
                    rest = &rest[1..];
                }
            }
            parts.push(String::from_utf8(part).ok()?);
        }
        Some(parts.join("/"))
    }

    fn is_valid_metric_name(metric: &str) -> bool {
        metric.split('.').all(|w| {
            w.starts_with(|c: char| c.is_ascii_alphabetic())
                && w.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
    }

    #[test]
    fn pfc_mmv_names_follow_encoding_rules() {
        let names = MetricNamer::new(std::iter::empty());
        for (name, metric) in [
            ("sched/context_switches", "p.sched.context_switches"),
            ("block/sda1/read_bytes", "p.block.sda1.read_bytes"),
            ("irq/4/ttyS0", "p.irq.x_4.ttyS0"),
            ("net/br-lan.7/rx_x", "p.net.br_x2d_lan_x2e_7.rx_x5f_x"),
            ("xx", "p.xx"),
        ] {
            assert_eq!(names.metric_name("p", &make_instance(name)), metric);
        }
    }

    #[test]
    fn pfc_mmv_metric_names_are_valid_and_decodable() {
        // The test encodes all names of up to five elements of `letters`. `letters` has all
        // characters that the encoding rules treat specially.
        let letters = ["x", "_", "/", "-", "5", "f", "x_", "_x2d_", "é"];
        let names = MetricNamer::new(std::iter::empty());
        let mut seen = HashSet::new();
        for mut n in 0..10usize.pow(5) {
            let mut name = String::new();
            while n > 0 {
                name.extend(letters.get((n % 10).wrapping_sub(1)).copied());
                n /= 10;
            }
            let metric = names.metric_name("p", &make_instance(&name));
            assert!(is_valid_metric_name(&metric), "{name}: {metric}");
            let inside = metric.strip_prefix("p.").expect("the prefix");
            assert_eq!(
                decode_metric_name(inside).as_deref(),
                Some(name.as_str()),
                "{metric}"
            );
            seen.insert((metric, name));
        }
        let metrics: HashSet<_> = seen.iter().map(|(metric, _)| metric).collect();
        assert_eq!(metrics.len(), seen.len());
    }

    #[test]
    fn pfc_mmv_parent_and_overlong_names_are_marked() {
        let all = ["disk", "disk/a/b", "disk/", "other"].map(make_instance);
        let names = MetricNamer::new(all.iter());
        let metrics: Vec<_> = all.iter().map(|i| names.metric_name("p", i)).collect();
        assert_eq!(
            metrics,
            ["p.disk.x_self", "p.disk.a.b", "p.disk.x_", "p.other"]
        );
        let long = make_instance(&"-".repeat(127));
        assert_eq!(names.metric_name("p", &long), "p.x_long.n7");
    }

    #[test]
    fn pfc_mmv_unit_conversion_is_exact_or_none() {
        for (unit, exponent, want) in [
            (Unit::Seconds, -9, Some((0x0100_0000, 1))),
            (Unit::Seconds, -6, Some((0x0100_1000, 1))),
            (Unit::Seconds, -3, Some((0x0100_2000, 1))),
            (Unit::Seconds, 0, Some((0x0100_3000, 1))),
            (Unit::Seconds, -7, Some((0x0100_0000, 100))),
            (Unit::Seconds, -1, Some((0x0100_2000, 100))),
            (Unit::Seconds, 2, Some((0x0100_3000, 100))),
            (Unit::Seconds, -10, None),
            (Unit::Seconds, i8::MAX, None),
            (Unit::Bytes, 0, Some((0x1000_0000, 1))),
            (Unit::Bytes, 3, Some((0x1000_0000, 1000))),
            (Unit::Bytes, -1, None),
            (Unit::Events, 0, Some((0x0010_0000, 1))),
            (Unit::Packets, 3, Some((0x0010_0300, 1))),
            (Unit::Cycles, -8, Some((0x0010_0800, 1))),
            (Unit::Cycles, -9, None),
            (Unit::None, 0, Some((0, 1))),
            (Unit::None, 1, None),
        ] {
            assert_eq!(
                convert_to_pcp_units(unit, exponent),
                want,
                "{unit:?} {exponent}"
            );
        }
    }
}
