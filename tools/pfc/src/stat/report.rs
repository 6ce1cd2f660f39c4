// SPDX-License-Identifier: GPL-2.0

//! What `pfc stat` prints: perf stat's columns for people, its CSV, its JSON.

use std::io::Write;
use std::time::Duration;

use super::counting::Recipe;
use super::derived::{mean, Counted};
use super::events::{Event, What};
use super::place::{Place, Plan};
use super::Counts;
use crate::cli::StatArgs;
use crate::failure::Failure;
use crate::out::Out;

/// How it is printed.
enum Form {
    People,
    Csv(String),
    Json,
}

/// Where the counts go.
pub struct Report<'a> {
    form: Form,
    title: String,
    events: &'a [Event],
    plan: &'a Plan,
    clock: Option<usize>,
    out: Out,
    /// What the last interval ended with.
    last: Vec<u64>,
    last_time: Duration,
    begun: bool,
    intervals: bool,
    times: bool,
}

/// A line.
struct Row<'a> {
    event: &'a Event,
    /// Unscaled; else the word for people.
    value: Result<f64, &'static str>,
    /// Nanoseconds that were counted.
    run_ns: u64,
    /// Percent.
    noise: Option<f64>,
    derived: Option<(f64, String)>,
}

impl<'a> Report<'a> {
    pub fn new(
        args: &StatArgs,
        title: String,
        events: &'a [Event],
        plan: &'a Plan,
        recipe: &Recipe,
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
            // It is the last one read.
            clock: recipe.clock.map(|_| recipe.pmds.len() - 1),
            out,
            last: vec![0; recipe.pmds.len()],
            last_time: Duration::ZERO,
            begun: false,
            intervals: args.interval.is_some(),
            times: !args.command.is_empty(),
        }
    }

    /// Sums so far, and when that was: what came since is printed.
    pub fn interval(&mut self, sums: Vec<u64>, at: Duration) -> Result<(), Failure> {
        let since = |(now, before): (&u64, &u64)| now.wrapping_sub(*before);
        let values: Vec<u64> = sums.iter().zip(&self.last).map(since).collect();
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

    /// All runs are over.
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
        let (elapsed, noise) = mean(&seconds);
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
        let rows = rows(self.events, self.plan, self.clock, runs);
        for row in &rows {
            let line = match &self.form {
                Form::People => row.people(at, runs.len() > 1),
                Form::Csv(separator) => row.csv(separator, at),
                Form::Json => row.json(at),
            };
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }
}

fn rows<'a>(
    events: &'a [Event],
    plan: &Plan,
    clock: Option<usize>,
    runs: &[Counts],
) -> Vec<Row<'a>> {
    let mut at = 0;
    let columns: Vec<Result<usize, &'static str>> = plan
        .places
        .iter()
        .map(|place| match place {
            Place::Pmd(_) => {
                at += 1;
                Ok(at - 1)
            }
            Place::NotCounted => Err("<not counted>"),
            Place::NotSupported => Err("<not supported>"),
        })
        .collect();
    // Of counter pages, a value may fall.
    let number = |event: &Event, value: u64| match event.what {
        What::Instance(_) => value as i64 as f64,
        _ => value as f64,
    };
    let means: Vec<Option<(f64, f64)>> = events
        .iter()
        .zip(&columns)
        .map(|(event, column)| {
            let column = column.ok()?;
            let values: Vec<f64> = runs
                .iter()
                .map(|r| number(event, r.values[column]))
                .collect();
            Some(mean(&values))
        })
        .collect();
    let values: Vec<Option<f64>> = means.iter().map(|m| m.map(|(mean, _)| mean)).collect();
    let elapsed = mean(
        &runs
            .iter()
            .map(|r| r.elapsed.as_secs_f64())
            .collect::<Vec<_>>(),
    )
    .0;
    let run_ns = match clock {
        Some(column) => {
            mean(
                &runs
                    .iter()
                    .map(|r| r.values[column] as f64)
                    .collect::<Vec<_>>(),
            )
            .0
        }
        // Nobody tells, so as if something had run all the time.
        None => elapsed * 1e9,
    };
    let counted = Counted {
        events,
        values: &values,
        elapsed,
    };
    let row = |(n, event): (usize, &'a Event)| Row {
        event,
        value: columns[n].map(|_| values[n].unwrap_or_default()),
        run_ns: columns[n].map_or(0, |_| run_ns as u64),
        noise: means[n].filter(|_| runs.len() > 1).map(|(_, noise)| noise),
        derived: values[n].and_then(|value| counted.derive(event, value)),
    };
    events.iter().enumerate().map(row).collect()
}

impl Row<'_> {
    /// In the event's unit, without marks for thousands.
    fn number(&self, value: f64) -> String {
        let value = value * self.event.scale;
        match self.event.scale == 1.0 {
            true => format!("{value:.0}"),
            false => format!("{value:.2}"),
        }
    }

    fn people(&self, at: Option<Duration>, repeated: bool) -> String {
        let value = match self.value {
            Ok(value) => thousands(&self.number(value)),
            Err(word) => word.to_owned(),
        };
        let mut line = match at {
            Some(at) => format!("{:>15.9} ", at.as_secs_f64()),
            None => String::new(),
        };
        let unit = &self.event.unit;
        line.push_str(&format!("{value:>18} {unit:<4} {:<27}", self.event.name));
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
        line.trim_end().to_owned()
    }

    /// Value, unit, event, error, run time, percent of it, derived, its unit.
    fn csv(&self, separator: &str, at: Option<Duration>) -> String {
        let mut fields = Vec::new();
        fields.extend(at.map(|at| format!("{:.9}", at.as_secs_f64())));
        fields.push(self.value.map_or_else(str::to_owned, |v| self.number(v)));
        fields.push(self.event.unit.clone());
        fields.push(self.event.name.clone());
        fields.extend(self.noise.map(|noise| format!("{noise:.2}%")));
        fields.push(self.run_ns.to_string());
        fields.push("100.00".to_owned());
        match &self.derived {
            Some((value, unit)) => {
                fields.push(format!("{value:.3}"));
                fields.push(unit.clone());
            }
            None => fields.extend([String::new(), String::new()]),
        }
        fields.join(separator)
    }

    fn json(&self, at: Option<Duration>) -> String {
        let value = match self.value {
            Ok(value) => format!("{:.6}", value * self.event.scale),
            Err(word) => word.to_owned(),
        };
        let mut line = serde_json::json!({
            "counter-value": value,
            "unit": self.event.unit,
            "event": self.event.name,
            "event-runtime": self.run_ns,
            "pcnt-running": 100.0,
        });
        if let Some(at) = at {
            line["interval"] = at.as_secs_f64().into();
        }
        if let Some(noise) = self.noise {
            line["variance"] = noise.into();
        }
        if let Some((value, unit)) = &self.derived {
            line["metric-value"] = format!("{value:.6}").into();
            line["metric-unit"] = unit.clone().into();
        }
        line.to_string()
    }
}

/// 1234567.89 as 1,234,567.89.
fn thousands(number: &str) -> String {
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
    use super::*;

    fn event(name: &str, unit: &str, scale: f64) -> Event {
        Event {
            name: name.to_owned(),
            what: What::Soft(256),
            unit: unit.to_owned(),
            scale,
        }
    }

    #[test]
    fn r1_16_thousands_are_marked() {
        assert_eq!(thousands("1"), "1");
        assert_eq!(thousands("-123"), "-123");
        assert_eq!(thousands("1234567.89"), "1,234,567.89");
        assert_eq!(thousands("-1000"), "-1,000");
    }

    #[test]
    fn r1_16_csv_has_perfs_fields() {
        let events = [
            event("task-clock", "msec", 1e-6),
            event("cs", "", 1.0),
            event("x", "", 1.0),
        ];
        let plan = Plan {
            places: vec![Place::Pmd(257), Place::Pmd(258), Place::NotCounted],
            ..Plan::default()
        };
        let run = |clock, switches| Counts {
            values: vec![clock, switches, clock],
            elapsed: Duration::from_secs(2),
            times: (0.0, 0.0),
        };
        let lines = |runs: &[Counts], at| -> Vec<String> {
            let rows = rows(&events, &plan, Some(2), runs);
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
}
