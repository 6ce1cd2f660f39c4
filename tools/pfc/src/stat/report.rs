// SPDX-License-Identifier: GPL-2.0

//! The output of `pfc stat`: perf stat's columns, CSV and JSON.

use std::io::Write;
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

/// The format of the output.
enum Form {
    People,
    Csv(String),
    Json,
}

/// Prints the counts of runs and intervals.
pub struct Report<'a> {
    form: Form,
    title: String,
    events: &'a [Event],
    plan: &'a Plan,
    clock: Option<usize>,
    sources: Vec<CountSource>,
    /// Counts of events with turns are scaled to the whole time.
    scaled: bool,
    /// The smallest fraction of the time for which a value is printed, `--refuse-below`.
    least: f64,
    out: Out,
    /// The sums at the end of the previous interval.
    last: Vec<Sums>,
    last_time: Duration,
    begun: bool,
    intervals: bool,
    times: bool,
}

impl<'a> Report<'a> {
    pub fn new(
        args: &StatArgs,
        title: String,
        events: &'a [Event],
        plan: &'a Plan,
        recipe: &ContextConfig,
        out: Out,
    ) -> Self {
        let form = match &args.separator {
            Some(separator) => Form::Csv(separator.replace("\\t", "\t")),
            None if args.json => Form::Json,
            None => Form::People,
        };
        Self {
            form,
            title,
            events,
            plan,
            // The clock is the last source.
            clock: recipe.clock_pmd.map(|_| recipe.sources.len() - 1),
            sources: recipe.sources.clone(),
            scaled: !args.no_scale,
            least: args.refuse_below.unwrap_or(0.0) / 100.0,
            out,
            last: vec![Sums::default(); recipe.sources.len()],
            last_time: Duration::ZERO,
            begun: false,
            intervals: args.interval.is_some(),
            times: !args.command.is_empty(),
        }
    }

    /// Prints the counts since the previous call. `at` is the time since the beginning.
    pub fn interval(&mut self, sums: Vec<Sums>, at: Duration) -> Result<(), Failure> {
        let since = |(now, before): (&Sums, &Sums)| now.since(before);
        let values: Vec<Sums> = sums.iter().zip(&self.last).map(since).collect();
        let counts = Counts {
            values,
            elapsed: at.saturating_sub(self.last_time),
            times: (0.0, 0.0),
        };
        (self.last, self.last_time) = (sums, at);
        if !self.begun && matches!(self.form, Form::People) {
            writeln!(
                self.out,
                "# {:>13} {:>18} {:<4} events",
                "time", "counts", "unit"
            )?;
        }
        self.begun = true;
        self.lines(&[counts], Some(at))?;
        self.out.flush()?;
        Ok(())
    }

    /// Prints the counts of all runs. With `-I` they have been printed already.
    pub fn end(&mut self, runs: &[Counts]) -> Result<(), Failure> {
        if self.intervals {
            return self.out.finish();
        }
        let people = matches!(self.form, Form::People);
        if people {
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
        self.lines(runs, None)?;
        if people {
            self.times(runs)?;
        }
        self.out.finish()
    }

    fn times(&mut self, runs: &[Counts]) -> Result<(), Failure> {
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
        if let (true, [run]) = (self.times, runs) {
            writeln!(self.out, " {:>17.9} seconds user", run.times.0)?;
            writeln!(self.out, " {:>17.9} seconds sys\n", run.times.1)?;
        }
        Ok(())
    }

    fn lines(&mut self, runs: &[Counts], at: Option<Duration>) -> Result<(), Failure> {
        let rows = self.rows(runs);
        let mut named = 0;
        for row in &rows {
            if let (Some(share), Err(_), None, true) = (row.refused, row.value, at, named < NAMED) {
                named += 1;
                eprintln!(
                    "pfc: {} was counted in {:.2}% of the time, which is 0 or below --refuse-below; no value is printed; use fewer events",
                    row.event.name,
                    100.0 * share
                );
            }
            let line = match &self.form {
                Form::People => row.people(at, runs.len() > 1),
                Form::Csv(separator) => row.csv(separator, at),
                Form::Json => row.json(at),
            };
            writeln!(self.out, "{line}")?;
        }
        let refused = rows.iter().filter(|row| row.refused.is_some()).count();
        if refused > NAMED && at.is_none() {
            eprintln!(
                "pfc: no value is printed for {} more events, for the same reason",
                refused - NAMED
            );
        }
        Ok(())
    }
}

/// The number of events up to which a message names each event that was counted too little.
const NAMED: usize = 10;

/// Returns the length of the turns of all event sets, in nanoseconds.
fn all_turns(sources: &[CountSource], sums: &[Sums]) -> u64 {
    let mut seen = std::collections::BTreeMap::new();
    for (source, sums) in sources.iter().zip(sums) {
        if let CountSource::OneSet(set, _) = source {
            seen.entry(*set).or_insert(sums.time);
        }
    }
    seen.values().sum()
}

impl<'a> Report<'a> {
    fn rows(&self, runs: &[Counts]) -> Vec<Row<'a>> {
        let mut at = 0;
        let columns: Vec<Result<usize, &'static str>> = self
            .plan
            .placements
            .iter()
            .map(|place| match place {
                Placement::Pmd(_) => {
                    at += 1;
                    Ok(at - 1)
                }
                Placement::NotCounted => Err("<not counted>"),
                Placement::NotSupported => Err("<not supported>"),
            })
            .collect();
        let mut cells: Vec<Option<Cell>> = Vec::new();
        for (event, column) in self.events.iter().zip(&columns) {
            cells.push(column.ok().map(|column| self.cell(event, column, runs)));
        }
        let values: Vec<Option<f64>> = cells
            .iter()
            .map(|cell| {
                cell.as_ref()
                    .filter(|c| !c.refused(self.least))
                    .map(|c| c.value)
            })
            .collect();
        let elapsed = average(runs, |r| r.elapsed.as_secs_f64());
        let run_ns = match self.clock {
            Some(column) => average(runs, |r| r.values[column].value as f64),
            // No register measures the time, so the whole elapsed time is assumed.
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
            let refused = cell.filter(|c| c.refused(self.least)).map(|c| c.share);
            Row {
                event,
                value: match refused {
                    Some(_) => Err("<not counted>"),
                    None => columns[n].map(|_| values[n].unwrap_or_default()),
                },
                run_ns: columns[n].map_or(0, |_| (run_ns * share) as u64),
                share: cell.filter(|c| c.in_turns).map(|c| c.share),
                error: cell.filter(|c| c.in_turns && self.scaled).map(|c| c.error),
                refused,
                noise: cell.filter(|_| runs.len() > 1).map(|c| c.noise),
                // Counts of different turns are of different times. They can be compared only if
                // they are scaled.
                derived: values[n]
                    .filter(|_| self.scaled || !cell.is_some_and(|c| c.in_turns))
                    .and_then(|value| counted.derive(event, value)),
                short: columns[n].map_or(ShortCauses::NONE, |column| {
                    let of = runs.iter().map(|run| run.values[column].causes);
                    of.fold(ShortCauses::NONE, ShortCauses::union)
                }),
            }
        };
        self.events.iter().enumerate().map(row).collect()
    }

    /// Combines the values of one event in all runs.
    fn cell(&self, event: &Event, column: usize, runs: &[Counts]) -> Cell {
        let in_turns = matches!(self.sources.get(column), Some(CountSource::OneSet(..)));
        let estimates: Vec<Estimate> = runs
            .iter()
            .map(|run| {
                let sums = &run.values[column];
                let value = match event.source {
                    // The value of a counter page instance is signed; it may fall.
                    EventSource::Instance(_) => sums.value as i64 as f64,
                    _ => sums.value as f64,
                };
                let whole = Estimate {
                    value,
                    share: 1.0,
                    error: Some(0.0),
                };
                match in_turns {
                    false => whole,
                    true => {
                        let scaled = sums.estimate(all_turns(&self.sources, &run.values));
                        match self.scaled {
                            true => scaled,
                            false => Estimate { value, ..scaled },
                        }
                    }
                }
            })
            .collect();
        // A run in which the event set had no turn says nothing about the event.
        let known = || estimates.iter().filter(|e| e.share > 0.0);
        let (value, noise) = match known().count() {
            0 => (0.0, 0.0),
            _ => mean_and_error(&known().map(|e| e.value).collect::<Vec<_>>()),
        };
        let errors: Option<Vec<f64>> = known().map(|e| e.error).collect();
        Cell {
            value,
            noise,
            share: estimates.iter().map(|e| e.share).sum::<f64>() / estimates.len() as f64,
            // The error of the mean of independent runs.
            error: errors
                .map(|all| all.iter().map(|e| e * e).sum::<f64>().sqrt() / all.len().max(1) as f64),
            in_turns,
        }
    }
}

fn average(runs: &[Counts], of: impl Fn(&Counts) -> f64) -> f64 {
    mean_and_error(&runs.iter().map(of).collect::<Vec<_>>()).0
}

/// The numbers of an event.
struct Cell {
    value: f64,
    /// Standard error in percent of the mean.
    noise: f64,
    share: f64,
    error: Option<f64>,
    in_turns: bool,
}

impl Cell {
    /// Returns true if the event was counted in too little of the time.
    fn refused(&self, least: f64) -> bool {
        self.in_turns && (self.share < least || self.share == 0.0)
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
            form: Form::People,
            title: String::new(),
            events,
            plan,
            clock: sources.len().checked_sub(1),
            sources: sources.to_vec(),
            scaled: true,
            least: 0.0,
            out: Out::stderr(),
            last: Vec::new(),
            last_time: Duration::ZERO,
            begun: false,
            intervals: false,
            times: false,
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
            elapsed: Duration::from_secs(2),
            times: (0.0, 0.0),
        };
        let sources = [257, 258, 257].map(CountSource::AllSets);
        let report = report(&events, &plan, &sources);
        let lines = |runs: &[Counts], at| -> Vec<String> {
            let rows = report.rows(runs);
            rows.iter().map(|r| r.csv(",", at)).collect()
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
        let turn = |value: u64, time: u64| {
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
                turn(1000, 100).plus(&turn(1000, 100)),
                turn(30, 300).plus(&turn(36, 300)),
                turn(7, 600),
                Sums::from_value(800),
            ],
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
        let people = |report: &Report<'_>| -> Vec<String> {
            let lines = report.rows(std::slice::from_ref(&run));
            lines
                .iter()
                .map(|r| {
                    r.people(None, false)
                        .split_whitespace()
                        .collect::<Vec<_>>()
                        .join(" ")
                })
                .collect()
        };
        let lines = people(&report);
        assert_eq!(lines[0], "8,000 a (25.00%, +- 0.00%)");
        assert!(lines[1].starts_with("88 b (75.00%, +- "), "{}", lines[1]);
        assert_eq!(lines[2], "9 c (75.00%, +- ?)");
        report.least = 0.3;
        assert_eq!(people(&report)[0], "<not counted> a (25.00%)");
        report.scaled = false;
        assert_eq!(people(&report)[1], "66 b (75.00%)");
    }
}
