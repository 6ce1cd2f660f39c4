// SPDX-License-Identifier: GPL-2.0

//! Formats one line of the output of `pfc stat`, as text, CSV or JSON.

use std::time::Duration;

use super::estimate::CONFIDENCE;
use super::events::Event;
use super::short_counts::ShortCauses;

/// The values of one event, for one line of the output.
pub struct Row<'a> {
    pub event: &'a Event,
    /// The count, not multiplied by [`Event::scale`], or the text that is printed in its place.
    pub value: Result<f64, &'static str>,
    /// The time in which the event was counted, in nanoseconds.
    pub run_ns: u64,
    /// The fraction of the time in which the event was counted, if there were several event sets.
    pub share: Option<f64>,
    /// The half length of the error bar; `None` if the value was not scaled, `Some(None)` if the
    /// value was scaled and the length of the error bar is not known.
    pub error: Option<Option<f64>>,
    /// The fraction of the time in which the event was counted, if the fraction is too small for
    /// the value to be printed.
    pub refused_share: Option<f64>,
    /// Standard error over several runs, in percent of the mean.
    pub noise: Option<f64>,
    pub derived: Option<(f64, String)>,
    /// The reasons why counts are missing in the value.
    pub causes: ShortCauses,
}

impl<'a> Row<'a> {
    /// Makes a row for a time of `ns` nanoseconds that pfc has measured itself. If `is_repeated` is
    /// true, the row gets the standard error 0, because every row of repeated runs shows a standard
    /// error.
    pub fn new(event: &'a Event, ns: f64, is_repeated: bool) -> Self {
        Self {
            event,
            value: Ok(ns),
            run_ns: ns as u64,
            share: None,
            error: None,
            refused_share: None,
            noise: is_repeated.then_some(0.0),
            derived: None,
            causes: ShortCauses::NONE,
        }
    }

    /// Formats a value in the event's unit, without thousands separators.
    fn format_value(&self, value: f64) -> String {
        let value = value * self.event.scale;
        match self.event.scale == 1.0 {
            true => format!("{value:.0}"),
            false => format!("{value:.2}"),
        }
    }

    pub fn format_text(&self, elapsed: Option<Duration>, repeated: bool) -> String {
        let value = match self.value {
            Ok(value) => add_thousands_separators(&self.format_value(value)),
            Err(word) => word.to_owned(),
        };
        let mut line = match elapsed {
            Some(elapsed) => format!("{:>15.9} ", elapsed.as_secs_f64()),
            None => String::new(),
        };
        let unit = &self.event.unit;
        let name = visible::escape(&self.event.name);
        line.push_str(&format!("{value:>18} {unit:<4} {name:<27}"));
        match &self.derived {
            Some((value, unit)) if unit.starts_with("of all") => {
                line.push_str(&format!(" # {value:>7.2}% {unit:<16}"));
            }
            Some((value, unit)) => line.push_str(&format!(" # {value:>8.3} {unit:<16}")),
            None if repeated => line.push_str(&" ".repeat(28)),
            None => {}
        }
        if let Some(noise) = self.noise {
            line.push_str(&format!("( +- {noise:5.2}% )"));
        }
        if let Some(share) = self.share {
            if self.derived.is_none() && self.noise.is_none() {
                line.push_str(&" ".repeat(28));
            }
            line.push_str(&format!(
                "  ({:.2}%{})",
                100.0 * share,
                self.format_error_bar()
            ));
        }
        let line = line.trim_end();
        match self.causes.is_none() {
            true => line.to_owned(),
            false => format!("{line}  (short)"),
        }
    }

    /// Formats the error bar in percent of the value, or in counts if the value is 0.
    fn format_error_bar(&self) -> String {
        match (self.error, self.value) {
            (Some(Some(error)), Ok(value)) if value > 0.0 => {
                format!(", +- {:.2}%", 100.0 * error / value)
            }
            (Some(Some(error)), Ok(_)) => format!(", +- {error:.0}"),
            (Some(None), Ok(_)) => ", +- ?".to_owned(),
            _ => String::new(),
        }
    }

    fn percent(&self) -> f64 {
        100.0 * self.share.unwrap_or(1.0)
    }

    /// Formats the line as CSV with the fields of perf's CSV: the time with `-I`, value, unit,
    /// event, standard error with `-r`, run time, percentage of the time, derived metric and its
    /// unit.
    pub fn format_csv(&self, separator: &str, elapsed: Option<Duration>) -> String {
        let mut fields = Vec::new();
        fields.extend(elapsed.map(|elapsed| format!("{:.9}", elapsed.as_secs_f64())));
        fields.push(
            self.value
                .map_or_else(str::to_owned, |v| self.format_value(v)),
        );
        fields.push(self.event.unit.clone());
        fields.push(visible::escape(&self.event.name).into_owned());
        fields.extend(self.noise.map(|noise| format!("{noise:.2}%")));
        fields.push(self.run_ns.to_string());
        fields.push(format!("{:.2}", self.percent()));
        match &self.derived {
            Some((value, unit)) => {
                fields.push(format!("{value:.3}"));
                fields.push(unit.clone());
            }
            None => fields.extend([String::new(), String::new()]),
        }
        // pfc appends fields that perf does not have: the half length of the error bar, and the
        // causes for which counts are missing.
        if self.error.is_some() || !self.causes.is_none() {
            let error = self.error.flatten();
            fields.push(error.map_or_else(String::new, |e| self.format_value(e)));
        }
        if !self.causes.is_none() {
            fields.push(self.causes.names().join("+"));
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
            "event-runtime": self.run_ns,
            "pcnt-running": self.percent(),
        });
        if let Some(elapsed) = elapsed {
            line["interval"] = elapsed.as_secs_f64().into();
        }
        if let Some(error) = self.error {
            line["error-bar"] = error.map(|e| e * self.event.scale).into();
            line["confidence"] = CONFIDENCE.into();
        }
        if let Some(noise) = self.noise {
            line["variance"] = noise.into();
        }
        if let Some((value, unit)) = &self.derived {
            line["metric-value"] = format!("{value:.6}").into();
            line["metric-unit"] = unit.clone().into();
        }
        if !self.causes.is_none() {
            line["short"] = self.causes.names().into();
        }
        line.to_string()
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
    fn r1_16_thousands_are_marked() {
        assert_eq!(add_thousands_separators("1"), "1");
        assert_eq!(add_thousands_separators("-123"), "-123");
        assert_eq!(add_thousands_separators("1234567.89"), "1,234,567.89");
        assert_eq!(add_thousands_separators("-1000"), "-1,000");
    }

    #[test]
    fn r9_6_a_short_count_is_marked_in_each_form() {
        let event = Event {
            name: "cycles".to_owned(),
            source: EventSource::Missing,
            unit: String::new(),
            scale: 1.0,
            reason: None,
        };
        let row = |short| Row {
            event: &event,
            value: Ok(7.0),
            run_ns: 5,
            share: None,
            error: None,
            refused_share: None,
            noise: None,
            derived: None,
            causes: short,
        };
        let whole = row(ShortCauses::NONE);
        let short = row(ShortCauses::EVICTED.union(ShortCauses::FAULT));
        assert!(!whole.format_text(None, false).contains("short"));
        assert!(short.format_text(None, false).ends_with("cycles  (short)"));
        assert_eq!(whole.format_csv(",", None), "7,,cycles,5,100.00,,");
        assert_eq!(
            short.format_csv(",", None),
            "7,,cycles,5,100.00,,,,fault+evicted"
        );
        assert!(!whole.format_json(None).contains("short"));
        assert!(short
            .format_json(None)
            .contains(r#""short":["fault","evicted"]"#));
    }
}
