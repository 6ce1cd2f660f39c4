// SPDX-License-Identifier: GPL-2.0

//! Prints the output of `pfc stat`: text with the columns of perf stat, CSV or JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::assign::{EventPlacement, RegisterPlan};
use super::counting::{CountSource, CountingContextConfig};
use super::derived::{mean_and_error_percent, MetricInputs};
use super::estimate::{CountEstimate, CountSums};
use super::events::{Event, EventSource};
use super::row::ReportRow;
use super::short_counts::MissingCountCauses;
use super::RunResult;
use crate::cli::StatArgs;
use crate::error::Failure;
use crate::output::Out;

/// The format of the output of `pfc stat`.
enum OutputFormat {
    Text,
    Csv(String),
    Json,
}

/// Prints the counts of the runs and intervals of `pfc stat`.
pub struct StatReport<'a> {
    output_format: OutputFormat,
    title: String,
    events: &'a [Event],
    plan: &'a RegisterPlan,
    clock_source_index: Option<usize>,
    count_sources: Vec<CountSource>,
    /// True if a count for a part of the time is scaled to the whole time.
    scales_counts: bool,
    /// The option `--refuse-below` as a fraction. The value of an event is not printed if the event
    /// was counted for less than this fraction of the time.
    min_counted_share: f64,
    out: Out,
    /// The sums of all elements of `count_sources` at the end of the previous interval.
    sums_at_last_interval: Vec<CountSums>,
    last_interval_end: Duration,
    has_printed_interval: bool,
    prints_intervals: bool,
    prints_cpu_times: bool,
}

impl<'a> StatReport<'a> {
    pub fn new(
        args: &StatArgs,
        title: String,
        events: &'a [Event],
        plan: &'a RegisterPlan,
        config: &CountingContextConfig,
        out: Out,
    ) -> Self {
        let format = match &args.separator {
            Some(separator) => OutputFormat::Csv(separator.replace("\\t", "\t")),
            None if args.json => OutputFormat::Json,
            None => OutputFormat::Text,
        };
        Self {
            output_format: format,
            title,
            events,
            plan,
            // If the configuration has a clock PMD, it is the last element of
            // `config.count_sources`.
            clock_source_index: config.clock_pmd.map(|_| config.count_sources.len() - 1),
            count_sources: config.count_sources.clone(),
            scales_counts: !args.no_scale,
            min_counted_share: args.refuse_below.unwrap_or(0.0) / 100.0,
            out,
            sums_at_last_interval: vec![CountSums::default(); config.count_sources.len()],
            last_interval_end: Duration::ZERO,
            has_printed_interval: false,
            prints_intervals: args.interval.is_some(),
            prints_cpu_times: !args.command.is_empty(),
        }
    }

    /// Prints the counts of the interval since the previous call. `gaps` has the time for which
    /// each CPU was not counted in the interval. `elapsed` is the time since the beginning of the
    /// run.
    pub fn print_interval(
        &mut self,
        sums: Vec<CountSums>,
        gaps: BTreeMap<u32, Duration>,
        elapsed: Duration,
    ) -> Result<(), Failure> {
        let since = |(now, before): (&CountSums, &CountSums)| now.since(before);
        let values: Vec<CountSums> = sums
            .iter()
            .zip(&self.sums_at_last_interval)
            .map(since)
            .collect();
        let counts = RunResult {
            event_sums: values,
            uncounted_time_by_cpu: gaps,
            elapsed: elapsed.saturating_sub(self.last_interval_end),
            cpu_seconds: (0.0, 0.0),
        };
        (self.sums_at_last_interval, self.last_interval_end) = (sums, elapsed);
        if !self.has_printed_interval && matches!(self.output_format, OutputFormat::Text) {
            writeln!(
                self.out,
                "# {:>13} {:>18} {:<4} events",
                "time", "counts", "unit"
            )?;
        }
        self.has_printed_interval = true;
        self.print_rows(&[counts], Some(elapsed))?;
        self.out.flush()?;
        Ok(())
    }

    /// Prints the counts of all runs of `pfc stat`, and finishes the output. With `-I`, the counts
    /// have been printed already, so the output is only finished.
    pub fn finish_with_runs(&mut self, runs: &[RunResult]) -> Result<(), Failure> {
        if self.prints_intervals {
            return self.out.finish();
        }
        let is_text = matches!(self.output_format, OutputFormat::Text);
        if is_text {
            let many = match runs.len() {
                1 => String::new(),
                n => format!(" ({n} runs)"),
            };
            writeln!(
                self.out,
                "\n Performance counter stats for {}{many}:\n",
                self.title
            )?;
        }
        self.print_rows(runs, None)?;
        if is_text {
            self.print_elapsed_time(runs)?;
        }
        self.out.finish()
    }

    fn print_elapsed_time(&mut self, runs: &[RunResult]) -> Result<(), Failure> {
        let seconds: Vec<f64> = runs.iter().map(|r| r.elapsed.as_secs_f64()).collect();
        let (elapsed, noise) = mean_and_error_percent(&seconds);
        if runs.len() > 1 {
            writeln!(
                self.out,
                "\n {elapsed:>17.9} +- {:.9} seconds time elapsed  ( +- {noise:5.2}% )\n",
                elapsed * noise / 100.0
            )?;
            return Ok(());
        }
        writeln!(self.out, "\n {elapsed:>17.9} seconds time elapsed\n")?;
        if let (true, [run]) = (self.prints_cpu_times, runs) {
            writeln!(self.out, " {:>17.9} seconds user", run.cpu_seconds.0)?;
            writeln!(self.out, " {:>17.9} seconds sys\n", run.cpu_seconds.1)?;
        }
        Ok(())
    }

    fn print_rows(&mut self, runs: &[RunResult], elapsed: Option<Duration>) -> Result<(), Failure> {
        let rows = self.make_rows(runs);
        let mut nr_named = 0;
        for row in &rows {
            if let (Some(share), Err(_), None, true) = (
                row.too_small_counted_share,
                row.value,
                elapsed,
                nr_named < MAX_NAMED_REFUSED_EVENTS,
            ) {
                nr_named += 1;
                message!(
                    "pfc: {} was counted in {:.2}% of the time, which is 0 or below --refuse-below; no value is printed; use fewer events",
                    row.event.name,
                    100.0 * share
                );
            }
            writeln!(self.out, "{}", self.format_row(row, runs, elapsed))?;
        }
        for (event, ns) in make_uncounted_cpu_time_events(runs) {
            let row = ReportRow::for_measured_time(&event, ns, runs.len() > 1);
            writeln!(self.out, "{}", self.format_row(&row, runs, elapsed))?;
        }
        let refused = rows
            .iter()
            .filter(|row| row.too_small_counted_share.is_some())
            .count();
        if refused > MAX_NAMED_REFUSED_EVENTS && elapsed.is_none() {
            message!(
                "pfc: no value is printed for {} more events, for the same reason",
                refused - MAX_NAMED_REFUSED_EVENTS
            );
        }
        Ok(())
    }
}

/// Returns an event `not-counted:cpuN` for each CPU that was not counted for some time. The value
/// of the event is the mean time per run in which the CPU was not counted, in nanoseconds.
fn make_uncounted_cpu_time_events(runs: &[RunResult]) -> Vec<(Event, f64)> {
    let cpus: BTreeSet<u32> = runs
        .iter()
        .flat_map(|r| r.uncounted_time_by_cpu.keys().copied())
        .collect();
    let gap_event = |cpu: u32| {
        let ns = |run: &RunResult| {
            run.uncounted_time_by_cpu
                .get(&cpu)
                .map_or(0.0, |t| t.as_nanos() as f64)
        };
        let event = Event {
            name: format!("not-counted:cpu{cpu}"),
            source: EventSource::Missing,
            unit: "msec".to_owned(),
            scale: 1e-6,
            missing_reason: None,
        };
        (event, mean_over_runs(runs, ns))
    };
    cpus.into_iter().map(gap_event).collect()
}

/// Maximum number of events for which a message says that the event was counted for too little of
/// the time.
const MAX_NAMED_REFUSED_EVENTS: usize = 10;

/// Returns the total time for which event sets were loaded, added up over the sets, in nanoseconds.
fn total_set_time_ns(sources: &[CountSource], sums: &[CountSums]) -> u64 {
    let mut set_times = std::collections::BTreeMap::new();
    for (source, sums) in sources.iter().zip(sums) {
        if let CountSource::OneSet(set, _) = source {
            set_times.entry(*set).or_insert(sums.total_turn_time_ns);
        }
    }
    set_times.values().sum()
}

impl<'a> StatReport<'a> {
    fn format_row(
        &self,
        row: &ReportRow<'_>,
        runs: &[RunResult],
        elapsed: Option<Duration>,
    ) -> String {
        match &self.output_format {
            OutputFormat::Text => row.format_text(elapsed, runs.len() > 1),
            OutputFormat::Csv(separator) => row.format_csv(separator, elapsed),
            OutputFormat::Json => row.format_json(elapsed),
        }
    }

    fn make_rows(&self, runs: &[RunResult]) -> Vec<ReportRow<'a>> {
        let mut nr_sources = 0;
        let columns: Vec<Result<usize, &'static str>> = self
            .plan
            .placements
            .iter()
            .map(|placement| match placement {
                EventPlacement::Pmd(_) => {
                    nr_sources += 1;
                    Ok(nr_sources - 1)
                }
                EventPlacement::NotCounted => Err("<not counted>"),
                EventPlacement::NotSupported => Err("<not supported>"),
            })
            .collect();
        let mut cells: Vec<Option<CombinedCount>> = Vec::new();
        for (event, column) in self.events.iter().zip(&columns) {
            cells.push(
                column
                    .ok()
                    .map(|column| self.combine_event_runs(event, column, runs)),
            );
        }
        let values: Vec<Option<f64>> = cells
            .iter()
            .map(|cell| {
                cell.as_ref()
                    .filter(|c| !c.is_counted_too_briefly(self.min_counted_share))
                    .map(|c| c.value)
            })
            .collect();
        let elapsed = mean_over_runs(runs, |r| r.elapsed.as_secs_f64());
        let run_ns = match self.clock_source_index {
            Some(column) => mean_over_runs(runs, |r| r.event_sums[column].value as f64),
            // If no register measures for how long events are counted, they are assumed to be
            // counted for the whole elapsed time.
            None => elapsed * 1e9,
        };
        let counted = MetricInputs {
            events: self.events,
            event_counts: &values,
            elapsed_seconds: elapsed,
        };
        let row = |(n, event): (usize, &'a Event)| {
            let cell = cells[n].as_ref();
            let share = cell.map_or(0.0, |c| c.counted_time_share);
            let refused = cell
                .filter(|c| c.is_counted_too_briefly(self.min_counted_share))
                .map(|c| c.counted_time_share);
            ReportRow {
                event,
                value: match refused {
                    Some(_) => Err("<not counted>"),
                    None => columns[n].map(|_| values[n].unwrap_or_default()),
                },
                counted_time_ns: columns[n].map_or(0, |_| (run_ns * share) as u64),
                counted_time_share: cell
                    .filter(|c| c.is_multiplexed)
                    .map(|c| c.counted_time_share),
                error_bar: cell
                    .filter(|c| c.is_multiplexed && self.scales_counts)
                    .map(|c| c.error_bar),
                too_small_counted_share: refused,
                std_error_percent: cell.filter(|_| runs.len() > 1).map(|c| c.std_error_percent),
                // The counts of different event sets are from different parts of the time. They can
                // be compared only after they were scaled to the whole time.
                derived_metric: values[n]
                    .filter(|_| self.scales_counts || !cell.is_some_and(|c| c.is_multiplexed))
                    .and_then(|value| counted.derive_metric(event, value)),
                missing_count_causes: columns[n].map_or(MissingCountCauses::NONE, |column| {
                    let short = runs
                        .iter()
                        .map(|run| run.event_sums[column].missing_count_causes);
                    short.fold(
                        MissingCountCauses::NONE,
                        MissingCountCauses::union_preferring_known,
                    )
                }),
            }
        };
        self.events.iter().enumerate().map(row).collect()
    }

    /// Combines the values of one event in all runs.
    fn combine_event_runs(
        &self,
        event: &Event,
        column: usize,
        runs: &[RunResult],
    ) -> CombinedCount {
        let is_multiplexed = matches!(
            self.count_sources.get(column),
            Some(CountSource::OneSet(..))
        );
        let estimates: Vec<CountEstimate> = runs
            .iter()
            .map(|run| {
                let sums = &run.event_sums[column];
                let value = match event.source {
                    // The value of a counter page instance is signed, because it can become
                    // negative.
                    EventSource::Instance(_) => sums.value as i64 as f64,
                    _ => sums.value as f64,
                };
                let whole = CountEstimate {
                    value,
                    counted_time_share: 1.0,
                    error_bar: Some(0.0),
                };
                match is_multiplexed {
                    false => whole,
                    true => {
                        let scaled = sums.estimate_for_time(total_set_time_ns(
                            &self.count_sources,
                            &run.event_sums,
                        ));
                        match self.scales_counts {
                            true => scaled,
                            false => CountEstimate { value, ..scaled },
                        }
                    }
                }
            })
            .collect();
        // Runs in which the event set was never loaded are left out, because they have no counts of
        // the event.
        let counted = || estimates.iter().filter(|e| e.counted_time_share > 0.0);
        let (value, noise) = match counted().count() {
            0 => (0.0, 0.0),
            _ => mean_and_error_percent(&counted().map(|e| e.value).collect::<Vec<_>>()),
        };
        let errors: Option<Vec<f64>> = counted().map(|e| e.error_bar).collect();
        CombinedCount {
            value,
            std_error_percent: noise,
            counted_time_share: estimates.iter().map(|e| e.counted_time_share).sum::<f64>()
                / estimates.len() as f64,
            // The runs are independent, so the error of the mean over the runs is computed from the
            // sum of the squared errors.
            error_bar: errors
                .map(|all| all.iter().map(|e| e * e).sum::<f64>().sqrt() / all.len().max(1) as f64),
            is_multiplexed,
        }
    }
}

fn mean_over_runs(runs: &[RunResult], of: impl Fn(&RunResult) -> f64) -> f64 {
    mean_and_error_percent(&runs.iter().map(of).collect::<Vec<_>>()).0
}

/// The values of one event, combined over all runs of `pfc stat -r`.
struct CombinedCount {
    value: f64,
    /// Standard error of the mean over several runs, in percent of the mean.
    std_error_percent: f64,
    counted_time_share: f64,
    error_bar: Option<f64>,
    is_multiplexed: bool,
}

impl CombinedCount {
    /// Returns true if the value of the event is not printed, because the event was counted for too
    /// little of the time.
    fn is_counted_too_briefly(&self, min_share: f64) -> bool {
        self.is_multiplexed
            && (self.counted_time_share < min_share || self.counted_time_share == 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_event(name: &str, unit: &str, scale: f64) -> Event {
        Event {
            name: name.to_owned(),
            source: EventSource::Soft(256),
            unit: unit.to_owned(),
            scale,
            missing_reason: None,
        }
    }

    fn make_report<'a>(
        events: &'a [Event],
        plan: &'a RegisterPlan,
        sources: &[CountSource],
    ) -> StatReport<'a> {
        StatReport {
            output_format: OutputFormat::Text,
            title: String::new(),
            events,
            plan,
            clock_source_index: sources.len().checked_sub(1),
            count_sources: sources.to_vec(),
            scales_counts: true,
            min_counted_share: 0.0,
            out: Out::stderr(),
            sums_at_last_interval: Vec::new(),
            last_interval_end: Duration::ZERO,
            has_printed_interval: false,
            prints_intervals: false,
            prints_cpu_times: false,
        }
    }

    #[test]
    fn r1_16_csv_has_fields_of_perf() {
        let names = [
            ("task-clock", "msec", 1e-6),
            ("cs", "", 1.0),
            ("x", "", 1.0),
        ];
        let events = names.map(|(name, unit, scale)| make_event(name, unit, scale));
        let plan = RegisterPlan {
            placements: vec![
                EventPlacement::Pmd(257),
                EventPlacement::Pmd(258),
                EventPlacement::NotCounted,
            ],
            ..RegisterPlan::default()
        };
        let run = |clock, switches| RunResult {
            event_sums: [clock, switches, clock]
                .map(CountSums::from_unmultiplexed_count)
                .to_vec(),
            elapsed: Duration::from_secs(2),
            ..RunResult::default()
        };
        let sources = [257, 258, 257].map(CountSource::AllSets);
        let report = make_report(&events, &plan, &sources);
        let lines = |runs: &[RunResult], at| -> Vec<String> {
            let rows = report.make_rows(runs);
            rows.iter().map(|r| r.format_csv(",", at)).collect()
        };
        let expected = [
            "1000.00,msec,task-clock,1000000000,100.00,0.500,CPUs utilized",
            "7,,cs,1000000000,100.00,7.000,/sec",
            "<not counted>,,x,0,100.00,,",
        ];
        assert_eq!(lines(&[run(1_000_000_000, 7)], None), expected);
        let runs = [9, 11].map(|switches| run(1_000_000_000, switches));
        let lines = lines(&runs, Some(Duration::from_millis(1500)));
        let expected = "1.500000000,10,,cs,10.00%,1000000000,100.00,10.000,/sec";
        assert_eq!(lines[1], expected);
    }

    /// The time for which a CPU was not counted is a row in each format.
    #[test]
    fn r9_6_uncounted_cpu_time_has_a_row() {
        let run = |ms| RunResult {
            uncounted_time_by_cpu: BTreeMap::from([(1, Duration::from_millis(ms))]),
            elapsed: Duration::from_secs(9),
            ..RunResult::default()
        };
        let events = make_uncounted_cpu_time_events(&[run(2301)]);
        let [(event, ns)] = &events[..] else {
            panic!("{} rows", events.len());
        };
        let row = ReportRow::for_measured_time(event, *ns, false);
        let text = row.format_text(None, false);
        assert_eq!(text.trim(), "2,301.00 msec not-counted:cpu1");
        let csv = row.format_csv(",", Some(Duration::from_millis(1500)));
        let expected = "1.500000000,2301.00,msec,not-counted:cpu1,2301000000,100.00,,";
        assert_eq!(csv, expected);
        let json = row.format_json(None);
        assert!(json.contains(r#""event":"not-counted:cpu1""#));
        assert_eq!(make_uncounted_cpu_time_events(&[run(2), run(4)])[0].1, 3e6);
        assert!(make_uncounted_cpu_time_events(&[]).is_empty());
    }

    #[test]
    fn r1_12_multiplexed_count_shows_time_share() {
        let events = ["a", "b", "c"].map(|name| make_event(name, "", 1.0));
        let plan = RegisterPlan {
            placements: [0, 0, 1].map(EventPlacement::Pmd).to_vec(),
            event_set_of_each_event: vec![0, 1, 1],
            nr_multiplexed_sets: 2,
            ..RegisterPlan::default()
        };
        let set_run = |value: u64, time: u64| {
            CountSums::from_runs(&perfmon::Runs {
                runs: 1,
                time,
                time2: [time * time, 0],
                value,
                value2: [value * value, 0],
                value_time: [value * time, 0],
                ..perfmon::Runs::default()
            })
        };
        let run = RunResult {
            event_sums: vec![
                set_run(1000, 100).plus(&set_run(1000, 100)),
                set_run(30, 300).plus(&set_run(36, 300)),
                set_run(7, 600),
                CountSums::from_unmultiplexed_count(800),
            ],
            elapsed: Duration::from_secs(1),
            ..RunResult::default()
        };
        let sources = [
            CountSource::OneSet(0, 0),
            CountSource::OneSet(1, 0),
            CountSource::OneSet(1, 1),
            CountSource::AllSets(257),
        ];
        let mut report = make_report(&events, &plan, &sources);
        let text_lines = |report: &StatReport<'_>| -> Vec<String> {
            let rows = report.make_rows(std::slice::from_ref(&run));
            let lines = rows.iter().map(|row| row.format_text(None, false));
            lines
                .map(|l| Vec::from_iter(l.split_whitespace()).join(" "))
                .collect()
        };
        let lines = text_lines(&report);
        assert_eq!(lines[0], "8,000 a (25.00%, +- 0.00%)");
        assert!(lines[1].starts_with("88 b (75.00%, +- "), "{}", lines[1]);
        assert_eq!(lines[2], "9 c (75.00%, +- ?)");
        report.min_counted_share = 0.3;
        assert_eq!(text_lines(&report)[0], "<not counted> a (25.00%)");
        report.scales_counts = false;
        assert_eq!(text_lines(&report)[1], "66 b (75.00%)");
    }
}
