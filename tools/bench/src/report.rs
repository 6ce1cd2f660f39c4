// SPDX-License-Identifier: GPL-2.0

//! The report: a text with tables in Markdown, and a JSON file from which the same text can be
//! made.

use std::fmt::Write;

use serde_derive::{Deserialize, Serialize};
use serde_json::{json, Value};

use crate::bars::{status, Bar, Verdict};
use crate::operations::{rows, Unit};
use crate::record::{Adds, Code, Count, Failure, Ratio};
use crate::results::{cpus_of, Results, ONCE};

/// The content of the JSON file. The file also has fields that are computed from other fields;
/// these fields are written but not read back.
#[derive(Serialize, Deserialize)]
struct Document {
    schema: u32,
    places: Vec<(String, String)>,
    counts: Vec<Value>,
    adds: Vec<Value>,
    ratios: Vec<Value>,
    code: Vec<Code>,
    failures: Vec<Failure>,
    bars: Vec<Bar>,
    status: u8,
}

const SCHEMA: u32 = 2;
/// The text of the field `why_not` of each ratio of times in the JSON file.
const TIMES: &str = "times differ from run to run; bars use the median of the runs";

/// Returns a record as JSON, to which the fields of `derived` are added.
fn with(record: impl serde::Serialize, derived: Value) -> Value {
    let mut value = json!(record);
    if let (Value::Object(value), Value::Object(derived)) = (&mut value, derived) {
        value.extend(derived);
    }
    value
}

/// Formats the results, the bars (limits with results and verdicts) and the exit status as JSON.
pub fn to_json(results: &Results, bars: &[Bar]) -> Result<String, serde_json::Error> {
    let count = |c: &Count| {
        with(
            c,
            json!({
                "instructions": c.instructions(),
                "per_value": c.per_value(),
                "counts": c.why_not.is_none(),
            }),
        )
    };
    let ratio = |r: &Ratio| {
        let (least, greatest) = r.range();
        with(
            r,
            json!({
                "median": r.median(),
                "least": least,
                "greatest": greatest,
                "counts": false,
                "why_not": TIMES,
            }),
        )
    };
    let document = Document {
        schema: SCHEMA,
        places: results.places.clone(),
        counts: results.counts.iter().map(count).collect(),
        adds: results
            .adds
            .iter()
            .map(|a| {
                with(
                    a,
                    json!({"median": a.median(), "counts": a.why_not.is_none()}),
                )
            })
            .collect(),
        ratios: results.ratios.iter().map(ratio).collect(),
        code: results.code.clone(),
        failures: results.failures.clone(),
        bars: bars.to_vec(),
        status: status(bars, &results.failures),
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// Parses a JSON file that [`to_json`] wrote.
pub fn from_json(text: &str) -> Result<(Results, Vec<Bar>), serde_json::Error> {
    fn all<T: for<'de> serde::Deserialize<'de>>(
        values: Vec<Value>,
    ) -> Result<Vec<T>, serde_json::Error> {
        values.into_iter().map(serde_json::from_value).collect()
    }
    let document: Document = serde_json::from_str(text)?;
    let results = Results {
        counts: all::<Count>(document.counts)?,
        adds: all::<Adds>(document.adds)?,
        ratios: all::<Ratio>(document.ratios)?,
        code: document.code,
        failures: document.failures,
        places: document.places,
    };
    Ok((results, document.bars))
}

/// A table with aligned columns. Numbers are aligned to the right.
struct Table(Vec<Vec<String>>);

impl Table {
    fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Self {
        Self(vec![head.into_iter().map(Into::into).collect()])
    }

    fn row(&mut self, cells: Vec<String>) {
        self.0.push(cells);
    }

    /// Writes the table. The first `left` columns are text, aligned to the left.
    fn write(&self, out: &mut String, left: usize) {
        let columns = self.0.first().map_or(0, Vec::len);
        let width = |n: usize| {
            self.0
                .iter()
                .filter_map(|r| r.get(n))
                .map(String::len)
                .max()
                .unwrap_or(0)
        };
        for (at, row) in self.0.iter().enumerate() {
            for n in 0..columns {
                let (cell, width) = (row.get(n).map_or("", String::as_str), width(n));
                let _ = if n < left {
                    write!(out, "| {cell:width$} ")
                } else {
                    write!(out, "| {cell:>width$} ")
                };
            }
            out.push_str("|\n");
            if at == 0 {
                for n in 0..columns {
                    let dashes = "-".repeat(width(n) + 1);
                    out.push_str(if n < left { "|-" } else { "|" });
                    out.push_str(&dashes);
                    out.push_str(if n < left { "" } else { ":" });
                }
                out.push_str("|\n");
            }
        }
    }
}

/// Formats a number with as many digits as are significant.
fn number(n: f64) -> String {
    match n {
        _ if n == n.trunc() => format!("{n}"),
        _ if n < 100.0 => format!("{n:.2}"),
        _ => format!("{n:.0}"),
    }
}

/// Puts a number in parentheses if the number is not valid.
fn if_counts(number: String, why_not: Option<&String>) -> String {
    match why_not {
        None => number,
        Some(_) => format!("({number})"),
    }
}

/// Writes a list of the rows whose results are not valid, with the reason for each row.
fn uncounted(out: &mut String, results: &Results) {
    let counts = results.counts.iter().map(|count| {
        let what = format!("{} at {}", count.operation, cpus_of(count.cpus));
        (what, count.why_not.as_deref())
    });
    let adds = results.adds.iter().map(|adds| {
        let what = format!("perf_add() from {} at {}", adds.from, cpus_of(adds.cpus));
        (what, adds.why_not.as_deref())
    });
    let rows: Vec<(String, &str)> = counts
        .chain(adds)
        .filter_map(|(what, why)| Some((what, why?)))
        .collect();
    if rows.is_empty() {
        return;
    }
    out.push_str("\nNot the same in two boots, and in parentheses above:\n\n");
    if rows.iter().all(|(_, why)| *why == ONCE) {
        let _ = writeln!(out, "- all numbers of instructions: each guest was {ONCE}");
        return;
    }
    for (what, why) in rows {
        let _ = writeln!(out, "- {what}: {why}");
    }
}

/// Writes a table of instructions by the number of CPUs.
fn counts(out: &mut String, results: &Results, unit: Unit, per_value: bool) {
    let cpus = results.cpus();
    let head = cpus.iter().map(|n| cpus_of(*n));
    let mut table = Table::new(std::iter::once(String::new()).chain(head));
    for operation in rows(unit) {
        let cells = cpus
            .iter()
            .map(|n| match results.count(operation.name, *n) {
                Some(count) => {
                    let each = if per_value {
                        count.per_value()
                    } else {
                        count.instructions()
                    };
                    if_counts(number(each), count.why_not.as_ref())
                }
                None => "-".into(),
            });
        let row: Vec<String> = std::iter::once(operation.label.into())
            .chain(cells)
            .collect();
        if row.iter().skip(1).any(|cell| cell != "-") {
            table.row(row);
        }
    }
    table.write(out, 1);
}

/// Formats the whole report as text.
pub fn text(results: &Results, bars: &[Bar]) -> String {
    let mut out = String::new();
    for (what, name) in &results.places {
        let _ = writeln!(out, "{what}: {name}  ");
    }
    if !results.counts.is_empty() {
        out.push_str("\nInstructions to write, by CPUs of the guest:\n\n");
        counts(&mut out, results, Unit::Write, false);
        out.push_str(
            "\nInstructions to read one value (one CPU's number), by CPUs of the guest:\n\n",
        );
        counts(&mut out, results, Unit::Read, true);
        out.push_str("\nInstructions of a complete read:\n\n");
        counts(&mut out, results, Unit::Read, false);
    }
    if !results.adds.is_empty() {
        out.push_str("\nInstructions of one perf_add(), median and least of 41:\n\n");
        let mut table = Table::new(["from instance", "CPUs", "median", "least"]);
        for adds in &results.adds {
            let cell = |n: u64| if_counts(n.to_string(), adds.why_not.as_ref());
            table.row(vec![
                adds.from.to_string(),
                adds.cpus.to_string(),
                cell(adds.median()),
                cell(adds.least()),
            ]);
        }
        table.write(&mut out, 0);
    }
    uncounted(&mut out, results);
    if !results.ratios.is_empty() {
        out.push_str("\nTimes on this machine, as ratios (each the median of 15 runs, which changes from run to run; ns are for scale only):\n\n");
        let mut table = Table::new([
            "a value from the pages against",
            "ratio",
            "least",
            "most",
            "own ns",
            "other ns",
        ]);
        for pair in rows(Unit::Ratio) {
            if let Some(ratio) = results.ratio(pair.name) {
                let (least, most) = ratio.range();
                let mut cells = vec![pair.label.to_owned()];
                cells.extend(
                    [ratio.median(), least, most, ratio.ours_ns, ratio.theirs_ns]
                        .map(|n| format!("{n:.2}")),
                );
                table.row(cells);
            }
        }
        table.write(&mut out, 1);
    }
    out.push_str("\nBars:\n\n");
    let mut table = Table::new(["what", "must be", "was", ""]);
    for bar in bars {
        let verdict = match bar.verdict {
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::DoesNotCount => "DOES NOT COUNT",
            Verdict::NotMeasured => "not measured",
        };
        table.row(vec![
            bar.what.clone(),
            bar.must.clone(),
            bar.was.clone(),
            verdict.into(),
        ]);
    }
    table.write(&mut out, 4);
    if !results.failures.is_empty() {
        out.push_str("\nNot measured:\n\n");
        for failure in &results.failures {
            let place = match failure.cpus {
                0 => "on this machine".into(),
                n => format!("in the guest with {n} CPUs"),
            };
            let _ = writeln!(out, "- {} {place}: {}", failure.what, failure.why);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use crate::sys::NOPS;

    fn guest(turn: u64) -> Vec<Record> {
        let rows = [
            ("self_check", NOPS - 2),
            ("self_check_user", NOPS),
            ("turns_context", turn),
            ("turns_perf", 9000),
        ];
        rows.map(|(operation, ticks)| {
            Record::Count(Count {
                operation: operation.into(),
                cpus: 2,
                values: 1,
                operations: [0, 1],
                ticks: [0, ticks],
                agree: [41, 41],
                why_not: None,
            })
        })
        .to_vec()
    }

    /// Returns the report of two boots, as text and as JSON.
    fn report(first: u64, second: Option<u64>) -> (String, Value) {
        let mut results = Results::new(guest(first));
        let second = second.map(|turn| Results::new(guest(turn)));
        results.compare(second.as_ref());
        let json = to_json(&results, &[]).expect("a document");
        let (read, bars) = from_json(&json).expect("our own document");
        let text = text(&results, &[]);
        // The JSON file contains everything that the text needs.
        assert_eq!(text, super::text(&read, &bars));
        (text, serde_json::from_str(&json).expect("JSON"))
    }

    fn turn(json: &Value) -> &Value {
        let rows = json["counts"].as_array().expect("rows");
        let turn = rows.iter().find(|row| row["operation"] == "turns_context");
        turn.expect("the row")
    }

    #[test]
    fn a_row_that_counts_says_so() {
        let (text, json) = report(812, Some(812));
        assert_eq!(turn(&json)["counts"], true);
        assert_eq!(turn(&json)["why_not"], Value::Null);
        assert!(text.contains(" 812 |"), "{text}");
        assert!(!text.contains("Not the same in two boots"), "{text}");
    }

    #[test]
    fn a_row_that_does_not_count_has_both_numbers() {
        let (text, json) = report(812, Some(2436));
        assert_eq!(turn(&json)["counts"], false);
        assert_eq!(turn(&json)["why_not"], "812 and 2436 in two boots");
        assert!(text.contains(" (812) |"), "{text}");
        let line = "\n- turns_context at 2 CPUs: 812 and 2436 in two boots\n";
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("(9000)"), "{text}");
    }

    #[test]
    fn after_one_boot_no_row_counts() {
        let (text, json) = report(812, None);
        assert_eq!(turn(&json)["counts"], false);
        assert_eq!(turn(&json)["why_not"], ONCE);
        assert!(text.contains("(9000)"), "{text}");
        assert!(text.contains("each guest was booted once"), "{text}");
    }
}
