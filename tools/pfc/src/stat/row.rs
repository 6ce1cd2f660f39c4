// SPDX-License-Identifier: GPL-2.0

//! Formats one line of the output of `pfc stat`, as text, CSV or JSON.

use std::time::Duration;

use super::estimate::CONFIDENCE_PERCENT;
use super::events::Event;
use super::short_counts::MissingCountCauses;

/// The values of one event, for one line of the output.
pub struct ReportRow<'a> {
    pub event: &'a Event,
    /// The count, not multiplied by [`Event::scale`], or the text that is printed in its place.
    pub value: Result<f64, &'static str>,
    /// The time in which the event was counted, in nanoseconds.
    pub counted_time_ns: u64,
    /// The fraction of the time in which the event was counted, if there were several event sets.
    pub counted_time_share: Option<f64>,
    /// Half of the length of the error bar. `None` if the value was not scaled. `Some(None)` if the
    /// value was scaled, but the length of the error bar is not known.
    pub error_bar: Option<Option<f64>>,
    /// The fraction of the time in which the event was counted, if the value is not printed because
    /// this fraction is too small.
    pub too_small_counted_share: Option<f64>,
    /// Standard error over several runs, in percent of the mean.
    pub std_error_percent: Option<f64>,
    pub derived_metric: Option<(f64, String)>,
    /// The reasons why counts are missing in the value.
    pub missing_count_causes: MissingCountCauses,
}

impl<'a> ReportRow<'a> {
    /// Makes a row for a time of `ns` nanoseconds that pfc has measured itself. If `is_repeated` is
    /// true, the row gets the standard error 0, because every row of repeated runs shows a standard
    /// error.
    pub fn for_measured_time(event: &'a Event, ns: f64, is_repeated: bool) -> Self {
        Self {
            event,
            value: Ok(ns),
            counted_time_ns: ns as u64,
            counted_time_share: None,
            error_bar: None,
            too_small_counted_share: None,
            std_error_percent: is_repeated.then_some(0.0),
            derived_metric: None,
            missing_count_causes: MissingCountCauses::NONE,
        }
    }

    /// Formats a value in the event's unit, without thousands separators.
    fn format_in_unit(&self, value: f64) -> String {
        let value = value * self.event.scale;
        match self.event.scale == 1.0 {
            true => format!("{value:.0}"),
            false => format!("{value:.2}"),
        }
    }

    pub fn format_text(&self, elapsed: Option<Duration>, repeated: bool) -> String {
        let value = match self.value {
            Ok(value) => add_thousands_separators(&self.format_in_unit(value)),
            Err(word) => word.to_owned(),
        };
        let mut line = match elapsed {
            Some(elapsed) => format!("{:>15.9} ", elapsed.as_secs_f64()),
            None => String::new(),
        };
        let unit = &self.event.unit;
        let name = visible::escape(&self.event.name);
        line.push_str(&format!("{value:>18} {unit:<4} {name:<27}"));
        match &self.derived_metric {
            Some((value, unit)) if unit.starts_with("of all") => {
                line.push_str(&format!(" # {value:>7.2}% {unit:<16}"));
            }
            Some((value, unit)) => line.push_str(&format!(" # {value:>8.3} {unit:<16}")),
            None if repeated => line.push_str(&" ".repeat(28)),
            None => {}
        }
        if let Some(noise) = self.std_error_percent {
            line.push_str(&format!("( +- {noise:5.2}% )"));
        }
        if let Some(share) = self.counted_time_share {
            if self.derived_metric.is_none() && self.std_error_percent.is_none() {
                line.push_str(&" ".repeat(28));
            }
            line.push_str(&format!(
                "  ({:.2}%{})",
                100.0 * share,
                self.format_error_bar()
            ));
        }
        let line = line.trim_end();
        match self.missing_count_causes.is_empty() {
            true => line.to_owned(),
            false => format!("{line}  (short)"),
        }
    }

    /// Formats the error bar in percent of the value, or in counts if the value is 0.
    fn format_error_bar(&self) -> String {
        match (self.error_bar, self.value) {
            (Some(Some(error)), Ok(value)) if value > 0.0 => {
                format!(", +- {:.2}%", 100.0 * error / value)
            }
            (Some(Some(error)), Ok(_)) => format!(", +- {error:.0}"),
            (Some(None), Ok(_)) => ", +- ?".to_owned(),
            _ => String::new(),
        }
    }

    fn counted_time_percent(&self) -> f64 {
        100.0 * self.counted_time_share.unwrap_or(1.0)
    }

    /// Formats the line as CSV with the fields of perf's CSV: the time with `-I`, value, unit,
    /// event, standard error with `-r`, run time, percentage of the time, derived metric and its
    /// unit.
    pub fn format_csv(&self, separator: &str, elapsed: Option<Duration>) -> String {
        let mut fields = Vec::new();
        fields.extend(elapsed.map(|elapsed| format!("{:.9}", elapsed.as_secs_f64())));
        fields.push(
            self.value
                .map_or_else(str::to_owned, |v| self.format_in_unit(v)),
        );
        fields.push(self.event.unit.clone());
        fields.push(visible::escape(&self.event.name).into_owned());
        fields.extend(self.std_error_percent.map(|noise| format!("{noise:.2}%")));
        fields.push(self.counted_time_ns.to_string());
        fields.push(format!("{:.2}", self.counted_time_percent()));
        match &self.derived_metric {
            Some((value, unit)) => {
                fields.push(format!("{value:.3}"));
                fields.push(unit.clone());
            }
            None => fields.extend([String::new(), String::new()]),
        }
        // pfc appends fields that perf does not have: the half length of the error bar, and the
        // causes for which counts are missing.
        if self.error_bar.is_some() || !self.missing_count_causes.is_empty() {
            let error = self.error_bar.flatten();
            fields.push(error.map_or_else(String::new, |e| self.format_in_unit(e)));
        }
        if !self.missing_count_causes.is_empty() {
            fields.push(self.missing_count_causes.names().join("+"));
        }
        fields.join(separator)
    }

    pub fn format_json(&self, elapsed: Option<Duration>) -> String {
        let value = match self.value {
            Ok(value) => format!("{:.6}", value * self.event.scale),
            Err(word) => word.to_owned(),
        };
        let mut line = serde_json::json!({
            "counter-value": value,
            "unit": self.event.unit,
            "event": self.event.name,
            "event-runtime": self.counted_time_ns,
            "pcnt-running": self.counted_time_percent(),
        });
        if let Some(elapsed) = elapsed {
            line["interval"] = elapsed.as_secs_f64().into();
        }
        if let Some(error) = self.error_bar {
            line["error-bar"] = error.map(|e| e * self.event.scale).into();
            line["confidence"] = CONFIDENCE_PERCENT.into();
        }
        if let Some(noise) = self.std_error_percent {
            line["variance"] = noise.into();
        }
        if let Some((value, unit)) = &self.derived_metric {
            line["metric-value"] = format!("{value:.6}").into();
            line["metric-unit"] = unit.clone().into();
        }
        if !self.missing_count_causes.is_empty() {
            line["short"] = self.missing_count_causes.names().into();
        }
        visible::escape_json(&line.to_string()).into_owned()
    }
}

/// Inserts thousands separators into a number: 1234567.89 becomes 1,234,567.89.
fn add_thousands_separators(number: &str) -> String {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", number),
    };
    let (whole, part) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut text = sign.to_owned();
    for (n, digit) in whole.chars().enumerate() {
        if n > 0 && (whole.len() - n) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text + part
}

#[cfg(test)]
mod tests {
    use super::super::events::EventSource;
    use super::*;

    #[test]
    fn r1_16_thousands_separators_are_inserted() {
        assert_eq!(add_thousands_separators("1"), "1");
        assert_eq!(add_thousands_separators("-123"), "-123");
        assert_eq!(add_thousands_separators("1234567.89"), "1,234,567.89");
        assert_eq!(add_thousands_separators("-1000"), "-1,000");
    }

    #[test]
    fn r9_6_short_count_is_marked_in_each_format() {
        let event = Event {
            name: "cycles".to_owned(),
            source: EventSource::Missing,
            unit: String::new(),
            scale: 1.0,
            missing_reason: None,
        };
        let row = |short| ReportRow {
            value: Ok(7.0),
            counted_time_ns: 5,
            missing_count_causes: short,
            ..ReportRow::for_measured_time(&event, 5.0, false)
        };
        let whole = row(MissingCountCauses::NONE);
        let short = row(MissingCountCauses::ENDED_BY_EVICTION
            .union_preferring_known(MissingCountCauses::ENDED_ON_UNSUITABLE_CPU));
        assert!(!whole.format_text(None, false).contains("short"));
        assert!(short.format_text(None, false).ends_with("cycles  (short)"));
        assert_eq!(whole.format_csv(",", None), "7,,cycles,5,100.00,,");
        let csv = short.format_csv(",", None);
        assert_eq!(csv, "7,,cycles,5,100.00,,,,fault+evicted");
        assert!(!whole.format_json(None).contains("short"));
        let json = short.format_json(None);
        assert!(json.contains(r#""short":["fault","evicted"]"#));
    }
}
