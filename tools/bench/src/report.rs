// SPDX-License-Identifier: GPL-2.0

//! The report: a text with tables in Markdown, and a JSON file from which the same text can be
//! made.

use std::fmt::Write;

use serde_derive::{Deserialize, Serialize};
use serde_json::{json, Value};

use crate::bars::{exit_status, CheckedBar, Verdict};
use crate::operations::{reported_operations, ResultUnit};
use crate::record::{Failure, InstructionCount, MachineCodeTestResult};
use crate::results::{format_cpus, Results, REASON_BOOTED_ONCE};

/// The content of the JSON file. The entries of `counts`, `adds` and `ratios` also have fields that
/// are computed from other fields; these fields are written but not read back.
#[derive(Serialize)]
struct JsonReport<'a> {
    schema: u32,
    places: &'a [(String, String)],
    counts: Vec<Value>,
    adds: Vec<Value>,
    ratios: Vec<Value>,
    code: &'a [MachineCodeTestResult],
    failures: &'a [Failure],
    bars: &'a [CheckedBar],
    status: u8,
}

/// The part of the JSON file that [`Results`] does not have.
#[derive(Deserialize)]
struct BarsOfJsonReport {
    bars: Vec<CheckedBar>,
}

const JSON_SCHEMA_VERSION: u32 = 2;
/// The text of the field `why_not` of each ratio of times in the JSON file.
const REASON_TIMES_DO_NOT_COUNT: &str =
    "times differ from run to run; bars use the median of the runs";

/// Returns records as JSON, each with the fields that `derived` computes.
fn to_json_with_derived_fields<T: serde::Serialize>(
    records: &[T],
    derived: fn(&T) -> Value,
) -> Vec<Value> {
    let add_fields = |record: &T| {
        let mut value = json!(record);
        if let (Value::Object(value), Value::Object(derived)) = (&mut value, derived(record)) {
            value.extend(derived);
        }
        value
    };
    records.iter().map(add_fields).collect()
}

/// Formats the results, the bars (limits with results and verdicts) and the exit status as JSON.
pub fn to_json(results: &Results, bars: &[CheckedBar]) -> Result<String, serde_json::Error> {
    let document = JsonReport {
        schema: JSON_SCHEMA_VERSION,
        places: &results.machine_properties,
        counts: to_json_with_derived_fields(&results.counts, |c| {
            json!({
                "instructions": c.instructions(),
                "per_value": c.instructions_per_value(),
                "counts": c.why_not.is_none(),
            })
        }),
        adds: to_json_with_derived_fields(
            &results.instance_add_ticks,
            |a| json!({"median": a.median_ticks(), "counts": a.why_not.is_none()}),
        ),
        ratios: to_json_with_derived_fields(&results.ratios, |r| {
            let (least, greatest) = r.least_and_greatest_ratio();
            json!({
                "median": r.median_ratio(),
                "least": least,
                "greatest": greatest,
                "counts": false,
                "why_not": REASON_TIMES_DO_NOT_COUNT,
            })
        }),
        code: &results.machine_code_tests,
        failures: &results.failures,
        bars,
        status: exit_status(bars, &results.failures),
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// Parses a JSON file that [`to_json`] wrote.
pub fn from_json(text: &str) -> Result<(Results, Vec<CheckedBar>), serde_json::Error> {
    let BarsOfJsonReport { bars } = serde_json::from_str(text)?;
    Ok((serde_json::from_str(text)?, bars))
}

/// Writes a table with aligned columns. All rows have the same length, and the first row is the
/// head. The first `left` columns are text, aligned to the left; the others are numbers, aligned to
/// the right.
fn write_table(out: &mut String, left: usize, rows: &[Vec<String>]) {
    let width = |n: usize| rows.iter().map(|row| row[n].len()).max().unwrap_or(0);
    for (at, row) in rows.iter().enumerate() {
        for (n, cell) in row.iter().enumerate() {
            let width = width(n);
            let _ = if n < left {
                write!(out, "| {cell:width$} ")
            } else {
                write!(out, "| {cell:>width$} ")
            };
        }
        out.push_str("|\n");
        if at == 0 {
            for n in 0..row.len() {
                let dashes = "-".repeat(width(n) + 1);
                let _ = if n < left {
                    write!(out, "|-{dashes}")
                } else {
                    write!(out, "|{dashes}:")
                };
            }
            out.push_str("|\n");
        }
    }
}

/// Returns the cells of a row of a table.
fn make_table_row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(ToString::to_string).collect()
}

/// Formats a number without decimals if it is an integer or at least 100, and otherwise with two
/// decimals.
fn format_at_most_two_decimals(n: f64) -> String {
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
    let adds = results.instance_add_ticks.iter().map(|adds| {
        let cpus = format_cpus(adds.cpus);
        let what = format!("perf_add() from {} at {cpus}", adds.from);
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
    if rows.iter().all(|(_, why)| *why == REASON_BOOTED_ONCE) {
        let _ = writeln!(
            out,
            "- all numbers of instructions: each guest was {REASON_BOOTED_ONCE}"
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
    let mut rows = vec![make_table_row(&[""])];
    rows[0].extend(cpus.iter().map(|n| format_cpus(*n)));
    for operation in reported_operations(unit) {
        let counts: Vec<_> = cpus
            .iter()
            .map(|n| results.find_count(operation.name, *n))
            .collect();
        let cell = |count: &Option<&InstructionCount>| match count {
            Some(count) => {
                let each = if per_value {
                    count.instructions_per_value()
                } else {
                    count.instructions()
                };
                parenthesize_if_invalid(format_at_most_two_decimals(each), count.why_not.as_ref())
            }
            None => "-".into(),
        };
        if counts.iter().any(Option::is_some) {
            let mut cells = make_table_row(&[operation.label]);
            cells.extend(counts.iter().map(cell));
            rows.push(cells);
        }
    }
    write_table(out, 1, &rows);
}

/// Formats the whole report as text.
pub fn format_report(results: &Results, bars: &[CheckedBar]) -> String {
    let mut out = String::new();
    for (what, name) in &results.machine_properties {
        let _ = writeln!(out, "{what}: {name}  ");
    }
    if !results.counts.is_empty() {
        for (title, unit, per_value) in [
            (
                "Instructions to write, by CPUs of the guest",
                ResultUnit::Write,
                false,
            ),
            (
                "Instructions to read one value (one CPU's number), by CPUs of the guest",
                ResultUnit::Read,
                true,
            ),
            ("Instructions of a complete read", ResultUnit::Read, false),
        ] {
            let _ = write!(out, "\n{title}:\n\n");
            write_instruction_table(&mut out, results, unit, per_value);
        }
    }
    if !results.instance_add_ticks.is_empty() {
        out.push_str("\nInstructions of one perf_add(), median and least of 41:\n\n");
        let mut rows = vec![make_table_row(&[
            "from instance",
            "CPUs",
            "median",
            "least",
        ])];
        for adds in &results.instance_add_ticks {
            let cell = |n: u64| parenthesize_if_invalid(n.to_string(), adds.why_not.as_ref());
            rows.push(make_table_row(&[
                &adds.from.to_string(),
                &adds.cpus.to_string(),
                &cell(adds.median_ticks()),
                &cell(adds.least_ticks()),
            ]));
        }
        write_table(&mut out, 0, &rows);
    }
    write_invalid_rows(&mut out, results);
    if !results.ratios.is_empty() {
        out.push_str("\nTimes on this machine, as ratios (each the median of 15 runs, which changes from run to run; ns are for scale only):\n\n");
        let what = "a value from the pages against";
        let mut rows = vec![make_table_row(&[
            what, "ratio", "least", "most", "own ns", "other ns",
        ])];
        for pair in reported_operations(ResultUnit::Ratio) {
            if let Some(ratio) = results.find_ratio(pair.name) {
                let (least, most) = ratio.least_and_greatest_ratio();
                let (ours, theirs) = (ratio.ours_ns, ratio.theirs_ns);
                let numbers = [ratio.median_ratio(), least, most, ours, theirs];
                let mut cells = make_table_row(&[pair.label]);
                cells.extend(numbers.map(|n| format!("{n:.2}")));
                rows.push(cells);
            }
        }
        write_table(&mut out, 1, &rows);
    }
    out.push_str("\nBars:\n\n");
    let mut rows = vec![make_table_row(&["what", "must be", "was", ""])];
    for bar in bars {
        let verdict = match bar.verdict {
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::DoesNotCount => "DOES NOT COUNT",
            Verdict::NotMeasured => "not measured",
        };
        rows.push(make_table_row(&[
            &bar.description,
            &bar.limit_text,
            &bar.result_text,
            verdict,
        ]));
    }
    write_table(&mut out, 4, &rows);
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
