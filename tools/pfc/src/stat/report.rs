// SPDX-License-Identifier: GPL-2.0

//! Prints the output of `pfc stat`: text with the columns of perf stat, CSV or JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::assign::{Placement, Plan};
use super::counting::{ContextConfig, CountSource};
use super::derived::{mean_and_error, RunCounts};
use super::estimate::{Estimate, Sums};
use super::events::{Event, EventSource};
use super::row::Row;
use super::short_counts::ShortCauses;
use super::Counts;
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
pub struct Report<'a> {
    format: OutputFormat,
    title: String,
    events: &'a [Event],
    plan: &'a Plan,
    clock_index: Option<usize>,
    sources: Vec<CountSource>,
    /// True if a count for a part of the time is scaled to the whole time.
    is_scaled: bool,
    /// The minimum fraction of the time for which an event must be counted so that its value is
    /// printed, from the option `--refuse-below`.
    min_share: f64,
    out: Out,
    /// The sums of all elements of `sources` at the end of the previous interval.
    last_sums: Vec<Sums>,
    last_time: Duration,
    has_begun: bool,
    prints_intervals: bool,
    prints_times: bool,
}

impl<'a> Report<'a> {
    pub fn new(
        args: &StatArgs,
        title: String,
        events: &'a [Event],
        plan: &'a Plan,
        config: &ContextConfig,
        out: Out,
    ) -> Self {
        let format = match &args.separator {
            Some(separator) => OutputFormat::Csv(separator.replace("\\t", "\t")),
            None if args.json => OutputFormat::Json,
            None => OutputFormat::Text,
        };
        Self {
            format,
            title,
            events,
            plan,
            // If the configuration has a clock PMD, it is the last element of `config.sources`.
            clock_index: config.clock_pmd.map(|_| config.sources.len() - 1),
            sources: config.sources.clone(),
            is_scaled: !args.no_scale,
            min_share: args.refuse_below.unwrap_or(0.0) / 100.0,
            out,
            last_sums: vec![Sums::default(); config.sources.len()],
            last_time: Duration::ZERO,
            has_begun: false,
            prints_intervals: args.interval.is_some(),
            prints_times: !args.command.is_empty(),
        }
    }

    /// Prints the counts of the interval since the previous call. `gaps` has the time for which
    /// each CPU was not counted in the interval. `elapsed` is the time since the beginning of the
    /// run.
    pub fn print_interval(
        &mut self,
        sums: Vec<Sums>,
        gaps: BTreeMap<u32, Duration>,
        elapsed: Duration,
    ) -> Result<(), Failure> {
        let since = |(now, before): (&Sums, &Sums)| now.since(before);
        let values: Vec<Sums> = sums.iter().zip(&self.last_sums).map(since).collect();
        let counts = Counts {
            values,
            gaps,
            elapsed: elapsed.saturating_sub(self.last_time),
            times: (0.0, 0.0),
        };
        (self.last_sums, self.last_time) = (sums, elapsed);
        if !self.has_begun && matches!(self.format, OutputFormat::Text) {
            writeln!(
                self.out,
                "# {:>13} {:>18} {:<4} events",
                "time", "counts", "unit"
            )?;
        }
        self.has_begun = true;
        self.print_rows(&[counts], Some(elapsed))?;
        self.out.flush()?;
        Ok(())
    }

    /// Prints the counts of all runs of `pfc stat`. With `-I`, the counts have been printed
    /// already, so nothing is printed.
    pub fn print_runs(&mut self, runs: &[Counts]) -> Result<(), Failure> {
        if self.prints_intervals {
            return self.out.finish();
        }
        let is_text = matches!(self.format, OutputFormat::Text);
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
            self.print_times(runs)?;
        }
        self.out.finish()
    }

    fn print_times(&mut self, runs: &[Counts]) -> Result<(), Failure> {
        let seconds: Vec<f64> = runs.iter().map(|r| r.elapsed.as_secs_f64()).collect();
        let (elapsed, noise) = mean_and_error(&seconds);
        if runs.len() > 1 {
            writeln!(
                self.out,
                "\n {elapsed:>17.9} +- {:.9} seconds time elapsed  ( +- {noise:5.2}% )\n",
                elapsed * noise / 100.0
            )?;
            return Ok(());
        }
        writeln!(self.out, "\n {elapsed:>17.9} seconds time elapsed\n")?;
        if let (true, [run]) = (self.prints_times, runs) {
            writeln!(self.out, " {:>17.9} seconds user", run.times.0)?;
            writeln!(self.out, " {:>17.9} seconds sys\n", run.times.1)?;
        }
        Ok(())
    }

    fn print_rows(&mut self, runs: &[Counts], elapsed: Option<Duration>) -> Result<(), Failure> {
        let rows = self.make_rows(runs);
        let mut nr_named = 0;
        for row in &rows {
            if let (Some(share), Err(_), None, true) =
                (row.refused_share, row.value, elapsed, nr_named < MAX_NAMED)
            {
                nr_named += 1;
                message!(
                    "pfc: {} was counted in {:.2}% of the time, which is 0 or below --refuse-below; no value is printed; use fewer events",
                    row.event.name,
                    100.0 * share
                );
            }
            writeln!(self.out, "{}", self.format_row(row, runs, elapsed))?;
        }
        for (event, ns) in gap_events(runs) {
            let row = Row::new(&event, ns, runs.len() > 1);
            writeln!(self.out, "{}", self.format_row(&row, runs, elapsed))?;
        }
        let refused = rows
            .iter()
            .filter(|row| row.refused_share.is_some())
            .count();
        if refused > MAX_NAMED && elapsed.is_none() {
            message!(
                "pfc: no value is printed for {} more events, for the same reason",
                refused - MAX_NAMED
            );
        }
        Ok(())
    }
}

/// Returns an event `not-counted:cpuN` for each CPU that was not counted for some time. The value
/// of the event is the mean time per run in which the CPU was not counted, in nanoseconds.
fn gap_events(runs: &[Counts]) -> Vec<(Event, f64)> {
    let cpus: BTreeSet<u32> = runs.iter().flat_map(|r| r.gaps.keys().copied()).collect();
    let gap_event = |cpu: u32| {
        let ns = |run: &Counts| run.gaps.get(&cpu).map_or(0.0, |t| t.as_nanos() as f64);
        let event = Event {
            name: format!("not-counted:cpu{cpu}"),
            source: EventSource::Missing,
            unit: "msec".to_owned(),
            scale: 1e-6,
            reason: None,
        };
        (event, mean_of(runs, ns))
    };
    cpus.into_iter().map(gap_event).collect()
}

/// Maximum number of events for which a message says that the event was counted for too little of
/// the time.
const MAX_NAMED: usize = 10;

/// Returns the total time for which event sets were loaded, added up over the sets, in nanoseconds.
fn total_set_time(sources: &[CountSource], sums: &[Sums]) -> u64 {
    let mut set_times = std::collections::BTreeMap::new();
    for (source, sums) in sources.iter().zip(sums) {
        if let CountSource::OneSet(set, _) = source {
            set_times.entry(*set).or_insert(sums.time);
        }
    }
    set_times.values().sum()
}

impl<'a> Report<'a> {
    fn format_row(&self, row: &Row<'_>, runs: &[Counts], elapsed: Option<Duration>) -> String {
        match &self.format {
            OutputFormat::Text => row.format_text(elapsed, runs.len() > 1),
            OutputFormat::Csv(separator) => row.format_csv(separator, elapsed),
            OutputFormat::Json => row.format_json(elapsed),
        }
    }

    fn make_rows(&self, runs: &[Counts]) -> Vec<Row<'a>> {
        let mut nr_sources = 0;
        let columns: Vec<Result<usize, &'static str>> = self
            .plan
            .placements
            .iter()
            .map(|placement| match placement {
                Placement::Pmd(_) => {
                    nr_sources += 1;
                    Ok(nr_sources - 1)
                }
                Placement::NotCounted => Err("<not counted>"),
                Placement::NotSupported => Err("<not supported>"),
            })
            .collect();
        let mut cells: Vec<Option<CombinedCount>> = Vec::new();
        for (event, column) in self.events.iter().zip(&columns) {
            cells.push(
                column
                    .ok()
                    .map(|column| self.combine_runs(event, column, runs)),
            );
        }
        let values: Vec<Option<f64>> = cells
            .iter()
            .map(|cell| {
                cell.as_ref()
                    .filter(|c| !c.is_refused(self.min_share))
                    .map(|c| c.value)
            })
            .collect();
        let elapsed = mean_of(runs, |r| r.elapsed.as_secs_f64());
        let run_ns = match self.clock_index {
            Some(column) => mean_of(runs, |r| r.values[column].value as f64),
            // If no register measures for how long events are counted, they are assumed to be
            // counted for the whole elapsed time.
            None => elapsed * 1e9,
        };
        let counted = RunCounts {
            events: self.events,
            values: &values,
            elapsed,
        };
        let row = |(n, event): (usize, &'a Event)| {
            let cell = cells[n].as_ref();
            let share = cell.map_or(0.0, |c| c.share);
            let refused = cell
                .filter(|c| c.is_refused(self.min_share))
                .map(|c| c.share);
            Row {
                event,
                value: match refused {
                    Some(_) => Err("<not counted>"),
                    None => columns[n].map(|_| values[n].unwrap_or_default()),
                },
                run_ns: columns[n].map_or(0, |_| (run_ns * share) as u64),
                share: cell.filter(|c| c.is_multiplexed).map(|c| c.share),
                error: cell
                    .filter(|c| c.is_multiplexed && self.is_scaled)
                    .map(|c| c.error),
                refused_share: refused,
                noise: cell.filter(|_| runs.len() > 1).map(|c| c.noise),
                // Counts of different event sets are of different times, so they can be compared
                // only after they were scaled to the whole time.
                derived: values[n]
                    .filter(|_| self.is_scaled || !cell.is_some_and(|c| c.is_multiplexed))
                    .and_then(|value| counted.derive(event, value)),
                causes: columns[n].map_or(ShortCauses::NONE, |column| {
                    let short = runs.iter().map(|run| run.values[column].causes);
                    short.fold(ShortCauses::NONE, ShortCauses::union)
                }),
            }
        };
        self.events.iter().enumerate().map(row).collect()
    }

    /// Combines the values of one event in all runs.
    fn combine_runs(&self, event: &Event, column: usize, runs: &[Counts]) -> CombinedCount {
        let is_multiplexed = matches!(self.sources.get(column), Some(CountSource::OneSet(..)));
        let estimates: Vec<Estimate> = runs
            .iter()
            .map(|run| {
                let sums = &run.values[column];
                let value = match event.source {
                    // The value of a counter page instance is signed, because it can become
                    // negative.
                    EventSource::Instance(_) => sums.value as i64 as f64,
                    _ => sums.value as f64,
                };
                let whole = Estimate {
                    value,
                    share: 1.0,
                    error: Some(0.0),
                };
                match is_multiplexed {
                    false => whole,
                    true => {
                        let scaled = sums.estimate(total_set_time(&self.sources, &run.values));
                        match self.is_scaled {
                            true => scaled,
                            false => Estimate { value, ..scaled },
                        }
                    }
                }
            })
            .collect();
        // A run in which the event set was never loaded says nothing about the event.
        let counted = || estimates.iter().filter(|e| e.share > 0.0);
        let (value, noise) = match counted().count() {
            0 => (0.0, 0.0),
            _ => mean_and_error(&counted().map(|e| e.value).collect::<Vec<_>>()),
        };
        let errors: Option<Vec<f64>> = counted().map(|e| e.error).collect();
        CombinedCount {
            value,
            noise,
            share: estimates.iter().map(|e| e.share).sum::<f64>() / estimates.len() as f64,
            // The runs are independent, so the error of the mean over the runs is computed from the
            // sum of the squared errors.
            error: errors
                .map(|all| all.iter().map(|e| e * e).sum::<f64>().sqrt() / all.len().max(1) as f64),
            is_multiplexed,
        }
    }
}

fn mean_of(runs: &[Counts], of: impl Fn(&Counts) -> f64) -> f64 {
    mean_and_error(&runs.iter().map(of).collect::<Vec<_>>()).0
}

/// The values of one event, combined over all runs of `pfc stat -r`.
struct CombinedCount {
    value: f64,
    /// Standard error of the mean over several runs, in percent of the mean.
    noise: f64,
    share: f64,
    error: Option<f64>,
    is_multiplexed: bool,
}

impl CombinedCount {
    /// Returns true if the value of the event is not printed, because the event was counted for too
    /// little of the time.
    fn is_refused(&self, min_share: f64) -> bool {
        self.is_multiplexed && (self.share < min_share || self.share == 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, unit: &str, scale: f64) -> Event {
        Event {
            name: name.to_owned(),
            source: EventSource::Soft(256),
            unit: unit.to_owned(),
            scale,
            reason: None,
        }
    }

    fn report<'a>(events: &'a [Event], plan: &'a Plan, sources: &[CountSource]) -> Report<'a> {
        Report {
            format: OutputFormat::Text,
            title: String::new(),
            events,
            plan,
            clock_index: sources.len().checked_sub(1),
            sources: sources.to_vec(),
            is_scaled: true,
            min_share: 0.0,
            out: Out::stderr(),
            last_sums: Vec::new(),
            last_time: Duration::ZERO,
            has_begun: false,
            prints_intervals: false,
            prints_times: false,
        }
    }

    #[test]
    fn r1_16_csv_has_perfs_fields() {
        let events = [
            event("task-clock", "msec", 1e-6),
            event("cs", "", 1.0),
            event("x", "", 1.0),
        ];
        let plan = Plan {
            placements: vec![
                Placement::Pmd(257),
                Placement::Pmd(258),
                Placement::NotCounted,
            ],
            ..Plan::default()
        };
        let run = |clock, switches| Counts {
            values: [clock, switches, clock].map(Sums::from_value).to_vec(),
            gaps: BTreeMap::new(),
            elapsed: Duration::from_secs(2),
            times: (0.0, 0.0),
        };
        let sources = [257, 258, 257].map(CountSource::AllSets);
        let report = report(&events, &plan, &sources);
        let lines = |runs: &[Counts], at| -> Vec<String> {
            let rows = report.make_rows(runs);
            rows.iter().map(|r| r.format_csv(",", at)).collect()
        };
        assert_eq!(
            lines(&[run(1_000_000_000, 7)], None),
            [
                "1000.00,msec,task-clock,1000000000,100.00,0.500,CPUs utilized",
                "7,,cs,1000000000,100.00,7.000,/sec",
                "<not counted>,,x,0,100.00,,",
            ]
        );
        let lines = lines(
            &[run(1_000_000_000, 9), run(1_000_000_000, 11)],
            Some(Duration::from_millis(1500)),
        );
        assert_eq!(
            lines[1],
            "1.500000000,10,,cs,10.00%,1000000000,100.00,10.000,/sec"
        );
    }

    /// The time for which a CPU was not counted is a row in each format.
    #[test]
    fn r9_6_time_without_counts_is_a_row() {
        let run = |ms| Counts {
            values: Vec::new(),
            gaps: BTreeMap::from([(1, Duration::from_millis(ms))]),
            elapsed: Duration::from_secs(9),
            times: (0.0, 0.0),
        };
        let events = gap_events(&[run(2301)]);
        let [(event, ns)] = &events[..] else {
            panic!("{} rows", events.len());
        };
        let row = Row::new(event, *ns, false);
        assert_eq!(
            row.format_text(None, false).trim(),
            "2,301.00 msec not-counted:cpu1"
        );
        assert_eq!(
            row.format_csv(",", Some(Duration::from_millis(1500))),
            "1.500000000,2301.00,msec,not-counted:cpu1,2301000000,100.00,,"
        );
        assert!(row
            .format_json(None)
            .contains(r#""event":"not-counted:cpu1""#));
        assert_eq!(gap_events(&[run(2), run(4)])[0].1, 3e6);
        assert!(gap_events(&[]).is_empty());
    }

    #[test]
    fn r1_12_what_took_turns_says_so() {
        let events = [
            event("a", "", 1.0),
            event("b", "", 1.0),
            event("c", "", 1.0),
        ];
        let plan = Plan {
            placements: vec![Placement::Pmd(0), Placement::Pmd(0), Placement::Pmd(1)],
            sets: vec![0, 1, 1],
            nr_sets: 2,
            ..Plan::default()
        };
        let set_run = |value: u64, time: u64| {
            Sums::from_runs(&perfmon::Runs {
                runs: 1,
                time,
                time2: [time * time, 0],
                value,
                value2: [value * value, 0],
                value_time: [value * time, 0],
                ..perfmon::Runs::default()
            })
        };
        let run = Counts {
            values: vec![
                set_run(1000, 100).plus(&set_run(1000, 100)),
                set_run(30, 300).plus(&set_run(36, 300)),
                set_run(7, 600),
                Sums::from_value(800),
            ],
            gaps: BTreeMap::new(),
            elapsed: Duration::from_secs(1),
            times: (0.0, 0.0),
        };
        let sources = [
            CountSource::OneSet(0, 0),
            CountSource::OneSet(1, 0),
            CountSource::OneSet(1, 1),
            CountSource::AllSets(257),
        ];
        let mut report = report(&events, &plan, &sources);
        let text_lines = |report: &Report<'_>| -> Vec<String> {
            let lines = report.make_rows(std::slice::from_ref(&run));
            lines
                .iter()
                .map(|r| {
                    r.format_text(None, false)
                        .split_whitespace()
                        .collect::<Vec<_>>()
                        .join(" ")
                })
                .collect()
        };
        let lines = text_lines(&report);
        assert_eq!(lines[0], "8,000 a (25.00%, +- 0.00%)");
        assert!(lines[1].starts_with("88 b (75.00%, +- "), "{}", lines[1]);
        assert_eq!(lines[2], "9 c (75.00%, +- ?)");
        report.min_share = 0.3;
        assert_eq!(text_lines(&report)[0], "<not counted> a (25.00%)");
        report.is_scaled = false;
        assert_eq!(text_lines(&report)[1], "66 b (75.00%)");
    }
}
