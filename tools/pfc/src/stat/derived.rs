// SPDX-License-Identifier: GPL-2.0

//! Computes derived metrics, as `perf stat` prints them: instructions per cycle, rates,
//! percentages.

use super::events::Event;

/// The counts of a run, from which metrics are derived. Metrics find an event by its name without
/// modes such as `:u`.
pub struct MetricInputs<'a> {
    pub events: &'a [Event],
    /// The count of each event, not multiplied by [`Event::scale`]; `None` if the event was not
    /// counted.
    pub event_counts: &'a [Option<f64>],
    /// The elapsed time of the run of `pfc stat` in seconds.
    pub elapsed_seconds: f64,
}

impl MetricInputs<'_> {
    /// Returns the count of the first event that has one of the names `names` and was counted in
    /// the modes `modes`. Returns `None` if no event with one of these names was counted in these
    /// modes, or if the count is 0.
    fn find_event_count(&self, names: &[&str], modes: &str) -> Option<f64> {
        let pairs = self.events.iter().zip(self.event_counts);
        pairs
            .filter(|(event, _)| &event.name[event.name_without_modes().len()..] == modes)
            .find_map(|(event, value)| {
                value.filter(|_| names.contains(&event.name_without_modes()))
            })
            .filter(|value| *value > 0.0)
    }

    /// Returns the CPU time in seconds, from the first event that is `task-clock` or `cpu-clock`.
    fn cpu_seconds(&self) -> Option<f64> {
        let pairs = self.events.iter().zip(self.event_counts);
        let clock = |(event, value): (&Event, &Option<f64>)| {
            value.filter(|_| matches!(event.name_without_modes(), "task-clock" | "cpu-clock"))
        };
        Some(pairs.filter_map(clock).next()? * 1e-9).filter(|s| *s > 0.0)
    }

    /// Returns the derived metric for an event with the count `value`, and the unit of the metric.
    pub fn derive_metric(&self, event: &Event, value: f64) -> Option<(f64, String)> {
        let base = event.name_without_modes();
        let modes = &event.name[base.len()..];
        let percent = |whole: Option<f64>, of: &str| {
            let whole = whole?;
            Some((100.0 * value / whole, format!("of all {of}")))
        };
        match base {
            "task-clock" | "cpu-clock" => (self.elapsed_seconds > 0.0)
                .then(|| (value * 1e-9 / self.elapsed_seconds, "CPUs utilized".into())),
            "cycles" | "cpu-cycles" => Some((value * 1e-9 / self.cpu_seconds()?, "GHz".into())),
            "instructions" => {
                let cycles = self.find_event_count(&["cycles", "cpu-cycles"], modes)?;
                Some((value / cycles, "insn per cycle".into()))
            }
            "branch-misses" => percent(
                self.find_event_count(&["branches", "branch-instructions"], modes),
                "branches",
            ),
            "cache-misses" => percent(
                self.find_event_count(&["cache-references"], modes),
                "cache refs",
            ),
            _ if event.unit.is_empty() => {
                let rate = value / self.cpu_seconds()?;
                Some(match rate {
                    r if r >= 1e9 => (r * 1e-9, "G/sec".into()),
                    r if r >= 1e6 => (r * 1e-6, "M/sec".into()),
                    r if r >= 1e3 => (r * 1e-3, "K/sec".into()),
                    r => (r, "/sec".into()),
                })
            }
            _ => None,
        }
    }
}

/// Returns the mean, and its standard error in percent of the mean, as perf prints it.
pub fn mean_and_error_percent(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 || mean == 0.0 {
        return (mean, 0.0);
    }
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let error = (squares / (n - 1.0) / n).sqrt();
    (mean, 100.0 * error / mean.abs())
}

#[cfg(test)]
mod tests {
    use super::super::events::EventSource;
    use super::*;

    #[test]
    fn r1_16_standard_error_of_mean_is_computed() {
        assert_eq!(mean_and_error_percent(&[5.0]), (5.0, 0.0));
        assert_eq!(mean_and_error_percent(&[0.0, 0.0]), (0.0, 0.0));
        let (mean, error) = mean_and_error_percent(&[9.0, 10.0, 11.0]);
        assert_eq!(mean, 10.0);
        assert!((error - 5.7735).abs() < 1e-3, "{error}");
    }

    #[test]
    fn r1_16_metrics_use_counts_of_same_modes() {
        let event = |name: &str| Event {
            name: name.to_owned(),
            source: EventSource::Missing,
            unit: String::new(),
            scale: 1.0,
            missing_reason: None,
        };
        let events = ["task-clock", "cycles:u", "cycles:k", "instructions:u"].map(event);
        let counted = MetricInputs {
            events: &events,
            event_counts: &[Some(2e9), Some(4e9), Some(1e9), Some(1e9)],
            elapsed_seconds: 4.0,
        };
        let derive = |n: usize| {
            let (value, unit) = counted
                .derive_metric(&events[n], counted.event_counts[n].expect("counted"))
                .expect("derived");
            format!("{value} {unit}")
        };
        assert_eq!(derive(0), "0.5 CPUs utilized");
        assert_eq!(derive(1), "2 GHz");
        assert_eq!(derive(3), "0.25 insn per cycle");
    }
}
