// SPDX-License-Identifier: GPL-2.0

//! The report: a text with tables in Markdown, and a JSON file from which the same text can be
//! made.

use std::fmt::Write;

use serde_derive::{Deserialize, Serialize};
use serde_json::{json, Value};

use crate::bars::{exit_status, CheckedBar, Verdict};
use crate::operations::{reported_operations, ResultUnit};
use crate::record::{Failure, InstructionCount, MachineCodeTest, PerfAddTimes, TimeRatio};
use crate::results::{format_cpus, Results, BOOTED_ONCE};

/// The content of the JSON file. The file also has fields that are computed from other fields;
/// these fields are written but not read back.
#[derive(Serialize, Deserialize)]
struct JsonReport {
    schema: u32,
    places: Vec<(String, String)>,
    counts: Vec<Value>,
    adds: Vec<Value>,
    ratios: Vec<Value>,
    code: Vec<MachineCodeTest>,
    failures: Vec<Failure>,
    bars: Vec<CheckedBar>,
    status: u8,
}

const JSON_SCHEMA_VERSION: u32 = 2;
/// The text of the field `why_not` of each ratio of times in the JSON file.
const WHY_TIMES_DO_NOT_COUNT: &str =
    "times differ from run to run; bars use the median of the runs";

/// Returns a record as JSON, to which the fields of `derived` are added.
fn add_json_fields(record: impl serde::Serialize, derived: Value) -> Value {
    let mut value = json!(record);
    if let (Value::Object(value), Value::Object(derived)) = (&mut value, derived) {
        value.extend(derived);
    }
    value
}

/// Formats the results, the bars (limits with results and verdicts) and the exit status as JSON.
pub fn to_json(results: &Results, bars: &[CheckedBar]) -> Result<String, serde_json::Error> {
    let count = |c: &InstructionCount| {
        add_json_fields(
            c,
            json!({
                "instructions": c.instructions(),
                "per_value": c.instructions_per_value(),
                "counts": c.why_not.is_none(),
            }),
        )
    };
    let ratio = |r: &TimeRatio| {
        let (least, greatest) = r.least_and_greatest_ratio();
        add_json_fields(
            r,
            json!({
                "median": r.median_ratio(),
                "least": least,
                "greatest": greatest,
                "counts": false,
                "why_not": WHY_TIMES_DO_NOT_COUNT,
            }),
        )
    };
    let document = JsonReport {
        schema: JSON_SCHEMA_VERSION,
        places: results.machine_properties.clone(),
        counts: results.counts.iter().map(count).collect(),
        adds: results
            .perf_add_times
            .iter()
            .map(|a| {
                add_json_fields(
                    a,
                    json!({"median": a.median_ticks(), "counts": a.why_not.is_none()}),
                )
            })
            .collect(),
        ratios: results.ratios.iter().map(ratio).collect(),
        code: results.code_tests.clone(),
        failures: results.failures.clone(),
        bars: bars.to_vec(),
        status: exit_status(bars, &results.failures),
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// Parses a JSON file that [`to_json`] wrote.
pub fn from_json(text: &str) -> Result<(Results, Vec<CheckedBar>), serde_json::Error> {
    fn parse_all_values<T: for<'de> serde::Deserialize<'de>>(
        values: Vec<Value>,
    ) -> Result<Vec<T>, serde_json::Error> {
        values.into_iter().map(serde_json::from_value).collect()
    }
    let document: JsonReport = serde_json::from_str(text)?;
    let results = Results {
        counts: parse_all_values::<InstructionCount>(document.counts)?,
        perf_add_times: parse_all_values::<PerfAddTimes>(document.adds)?,
        ratios: parse_all_values::<TimeRatio>(document.ratios)?,
        code_tests: document.code,
        failures: document.failures,
        machine_properties: document.places,
    };
    Ok((results, document.bars))
}

/// A table with aligned columns. Numbers are aligned to the right.
struct MarkdownTable(Vec<Vec<String>>);

impl MarkdownTable {
    fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Self {
        Self(vec![head.into_iter().map(Into::into).collect()])
    }

    fn add_row(&mut self, cells: Vec<String>) {
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

/// Formats a number without decimals if it is an integer or at least 100, and otherwise with two
/// decimals.
fn format_significant_digits(n: f64) -> String {
    match n {
        _ if n == n.trunc() => format!("{n}"),
        _ if n < 100.0 => format!("{n:.2}"),
        _ => format!("{n:.0}"),
    }
}

/// Puts a number in parentheses if the number is not valid.
fn parenthesize_if_invalid(number: String, why_not: Option<&String>) -> String {
    match why_not {
        None => number,
        Some(_) => format!("({number})"),
    }
}

/// Writes a list of the rows whose results are not valid, with the reason for each row.
fn write_invalid_rows(out: &mut String, results: &Results) {
    let counts = results.counts.iter().map(|count| {
        let what = format!("{} at {}", count.operation, format_cpus(count.cpus));
        (what, count.why_not.as_deref())
    });
    let adds = results.perf_add_times.iter().map(|adds| {
        let what = format!(
            "perf_add() from {} at {}",
            adds.from,
            format_cpus(adds.cpus)
        );
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
    if rows.iter().all(|(_, why)| *why == BOOTED_ONCE) {
        let _ = writeln!(
            out,
            "- all numbers of instructions: each guest was {BOOTED_ONCE}"
        );
        return;
    }
    for (what, why) in rows {
        let _ = writeln!(out, "- {what}: {why}");
    }
}

/// Writes a table of instructions, with a row for each operation and a column for each number of
/// CPUs.
fn write_instruction_table(out: &mut String, results: &Results, unit: ResultUnit, per_value: bool) {
    let cpus = results.guest_cpu_counts();
    let head = cpus.iter().map(|n| format_cpus(*n));
    let mut table = MarkdownTable::new(std::iter::once(String::new()).chain(head));
    for operation in reported_operations(unit) {
        let cells = cpus
            .iter()
            .map(|n| match results.find_count(operation.name, *n) {
                Some(count) => {
                    let each = if per_value {
                        count.instructions_per_value()
                    } else {
                        count.instructions()
                    };
                    parenthesize_if_invalid(format_significant_digits(each), count.why_not.as_ref())
                }
                None => "-".into(),
            });
        let row: Vec<String> = std::iter::once(operation.label.into())
            .chain(cells)
            .collect();
        if row.iter().skip(1).any(|cell| cell != "-") {
            table.add_row(row);
        }
    }
    table.write(out, 1);
}

/// Formats the whole report as text.
pub fn format_report(results: &Results, bars: &[CheckedBar]) -> String {
    let mut out = String::new();
    for (what, name) in &results.machine_properties {
        let _ = writeln!(out, "{what}: {name}  ");
    }
    if !results.counts.is_empty() {
        out.push_str("\nInstructions to write, by CPUs of the guest:\n\n");
        write_instruction_table(&mut out, results, ResultUnit::Write, false);
        out.push_str(
            "\nInstructions to read one value (one CPU's number), by CPUs of the guest:\n\n",
        );
        write_instruction_table(&mut out, results, ResultUnit::Read, true);
        out.push_str("\nInstructions of a complete read:\n\n");
        write_instruction_table(&mut out, results, ResultUnit::Read, false);
    }
    if !results.perf_add_times.is_empty() {
        out.push_str("\nInstructions of one perf_add(), median and least of 41:\n\n");
        let mut table = MarkdownTable::new(["from instance", "CPUs", "median", "least"]);
        for adds in &results.perf_add_times {
            let cell = |n: u64| parenthesize_if_invalid(n.to_string(), adds.why_not.as_ref());
            table.add_row(vec![
                adds.from.to_string(),
                adds.cpus.to_string(),
                cell(adds.median_ticks()),
                cell(adds.least_ticks()),
            ]);
        }
        table.write(&mut out, 0);
    }
    write_invalid_rows(&mut out, results);
    if !results.ratios.is_empty() {
        out.push_str("\nTimes on this machine, as ratios (each the median of 15 runs, which changes from run to run; ns are for scale only):\n\n");
        let mut table = MarkdownTable::new([
            "a value from the pages against",
            "ratio",
            "least",
            "most",
            "own ns",
            "other ns",
        ]);
        for pair in reported_operations(ResultUnit::Ratio) {
            if let Some(ratio) = results.find_ratio(pair.name) {
                let (least, most) = ratio.least_and_greatest_ratio();
                let mut cells = vec![pair.label.to_owned()];
                cells.extend(
                    [
                        ratio.median_ratio(),
                        least,
                        most,
                        ratio.ours_ns,
                        ratio.theirs_ns,
                    ]
                    .map(|n| format!("{n:.2}")),
                );
                table.add_row(cells);
            }
        }
        table.write(&mut out, 1);
    }
    out.push_str("\nBars:\n\n");
    let mut table = MarkdownTable::new(["what", "must be", "was", ""]);
    for bar in bars {
        let verdict = match bar.verdict {
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::DoesNotCount => "DOES NOT COUNT",
            Verdict::NotMeasured => "not measured",
        };
        table.add_row(vec![
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
    use crate::sys::INSTRUCTIONS_PER_NOP_ROUND;

    fn guest_records(turn: u64) -> Vec<Record> {
        let rows = [
            ("self_check", INSTRUCTIONS_PER_NOP_ROUND - 2),
            ("self_check_user", INSTRUCTIONS_PER_NOP_ROUND),
            ("turns_context", turn),
            ("turns_perf", 9000),
        ];
        rows.map(|(operation, ticks)| {
            Record::Count(InstructionCount {
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
    fn report_of_two_boots(first: u64, second: Option<u64>) -> (String, Value) {
        let mut results = Results::new(guest_records(first));
        let second = second.map(|turn| Results::new(guest_records(turn)));
        results.compare_with_second_boot(second.as_ref());
        let json = to_json(&results, &[]).expect("a document");
        let (read, bars) = from_json(&json).expect("our own document");
        let text = format_report(&results, &[]);
        // The JSON file contains everything that the text needs.
        assert_eq!(text, super::format_report(&read, &bars));
        (text, serde_json::from_str(&json).expect("JSON"))
    }

    fn turns_context_row(json: &Value) -> &Value {
        let rows = json["counts"].as_array().expect("rows");
        let turn = rows.iter().find(|row| row["operation"] == "turns_context");
        turn.expect("the row")
    }

    #[test]
    fn valid_row_has_no_reason_or_parentheses() {
        let (text, json) = report_of_two_boots(812, Some(812));
        assert_eq!(turns_context_row(&json)["counts"], true);
        assert_eq!(turns_context_row(&json)["why_not"], Value::Null);
        assert!(text.contains(" 812 |"), "{text}");
        assert!(!text.contains("Not the same in two boots"), "{text}");
    }

    #[test]
    fn invalid_row_shows_both_numbers() {
        let (text, json) = report_of_two_boots(812, Some(2436));
        assert_eq!(turns_context_row(&json)["counts"], false);
        assert_eq!(
            turns_context_row(&json)["why_not"],
            "812 and 2436 in two boots"
        );
        assert!(text.contains(" (812) |"), "{text}");
        let line = "\n- turns_context at 2 CPUs: 812 and 2436 in two boots\n";
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("(9000)"), "{text}");
    }

    #[test]
    fn no_row_is_valid_after_one_boot() {
        let (text, json) = report_of_two_boots(812, None);
        assert_eq!(turns_context_row(&json)["counts"], false);
        assert_eq!(turns_context_row(&json)["why_not"], BOOTED_ONCE);
        assert!(text.contains("(9000)"), "{text}");
        assert!(text.contains("each guest was booted once"), "{text}");
    }
}
