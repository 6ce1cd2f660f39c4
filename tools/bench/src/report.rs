// SPDX-License-Identifier: GPL-2.0

//! The report: a text with tables in Markdown, and a JSON file from which the same text can be
//! made.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::{json, Value};

use crate::bars::{status, Bar, Verdict};
use crate::record::{Adds, Code, Count, Failure, Ratio};
use crate::results::{cpus_of, Results, ONCE};

/// The JSON file. Fields that follow from others are written, but not read.
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
/// The reason why a ratio of times does not count as an exact number.
const TIMES: &str = "times differ from run to run; a bar looks at the median of the runs";

/// Returns a record as JSON, extended by derived fields.
fn with(record: impl Serialize, derived: Value) -> Value {
    let mut value = json!(record);
    if let (Value::Object(value), Value::Object(derived)) = (&mut value, derived) {
        value.extend(derived);
    }
    value
}

/// Formats the results, their bars and the exit status as JSON.
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
    fn all<T: for<'de> Deserialize<'de>>(values: Vec<Value>) -> Result<Vec<T>, serde_json::Error> {
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

/// Operations in the order of the table: name and label.
pub const OPERATIONS: &[(&str, &str)] = &[
    (
        "snapshot",
        "**snapshot** of 1,000 counters on all CPUs, checked",
    ),
    ("snapshot_unchecked", "the same without the seqflag check"),
    ("bpf_batch", "BPF per-CPU array, batch lookup"),
    ("bpf_lookup", "BPF per-CPU array, one lookup"),
    ("perf_read_16", "perf_event read(), own CPU, a group of 16"),
    ("perf_read_8", "perf_event read(), own CPU, a group of 8"),
    ("perf_read_1", "perf_event read(), own CPU, one counter"),
    ("perf_pmu_4", "the same, a group of 4 of the PMU's"),
    ("perf_pmu_1", "the same, one of the PMU's"),
    (
        "perf_rdpmc",
        "perf_event by RDPMC, own thread, one of the PMU's",
    ),
    (
        "context_read_4",
        "a context of /dev/perfmon, four PMDs in a call",
    ),
    ("context_read_1", "the same, one PMD"),
    ("self_read", "the same by its self page and RDPMC"),
    (
        "switch",
        "a byte to another thread and back: two switches of threads",
    ),
    (
        "switch_context_4",
        "the same, each with a context of 4 counters",
    ),
    (
        "switch_perf_4",
        "the same, each with a group of 4 perf events",
    ),
    (
        "sample_forward",
        "20,040 instructions and a sample, into a ring",
    ),
    ("sample_backward", "the same, backward"),
    ("sample_perf", "the same, by perf"),
    (
        "sample_forward_handler",
        "of that the handler of the interrupt, into a ring",
    ),
    ("sample_backward_handler", "the same, backward"),
    ("sample_perf_handler", "the same, by perf"),
    (
        "turns_context",
        "a turn of two sets of 4 counters: the callback of its timer",
    ),
    ("turns_perf", "perf's rotation of two groups of 4: the same"),
    (
        "close_forward",
        "close(-1), sampled each 20,000 instructions, into a ring",
    ),
    ("close_backward", "the same, backward"),
    ("close", "the same, not sampled"),
    (
        "event",
        "**an event** of a program, u32 + u64 and the time, with its loop",
    ),
    ("event_three", "the same, three u64"),
    ("event_text", "the same, u32 and a text of 24 characters"),
    ("event_flight", "u32 + u64 into a flight recorder"),
    ("event_off", "an event that no trace wants, with its loop"),
    ("event_off_2", "two of these"),
    ("proc_stat", "/proc/stat, read only"),
    ("proc_stat_parsed", "/proc/stat, read and parsed"),
    ("proc_interrupts", "/proc/interrupts, read only"),
    (
        "proc_interrupts_parsed",
        "/proc/interrupts, read and parsed",
    ),
    ("proc_softirqs", "/proc/softirqs, read only"),
    ("proc_softirqs_parsed", "/proc/softirqs, read and parsed"),
    ("proc_vmstat", "/proc/vmstat, read only"),
    ("proc_vmstat_parsed", "/proc/vmstat, read and parsed"),
    (
        "clock_gettime",
        "clock_gettime(), of which a snapshot makes two",
    ),
    ("getppid", "getppid(), to compare"),
    (
        "getppid_sched",
        "getppid(), with accounting of the scheduler",
    ),
    (
        "getppid_irq",
        "getppid(), with accounting of interrupts too",
    ),
    (
        "getppid_calls",
        "getppid(), with accounting of system calls too",
    ),
    ("getppid_all", "getppid(), with all accounting"),
    (
        "switch_sched",
        "a switch of threads, with accounting of the scheduler",
    ),
    ("switch_irq", "the same, with interrupts"),
    ("switch_calls", "the same, with system calls"),
    ("switch_all", "the same, with how long the switch takes"),
    (
        "interrupt",
        "an interrupt that a CPU sends to itself, to compare",
    ),
    (
        "interrupt_sched",
        "the same, with accounting of the scheduler",
    ),
    ("interrupt_irq", "the same, with interrupts"),
    ("interrupt_calls", "the same, with system calls"),
    ("interrupt_all", "the same, with all there is"),
    (
        "getppid_empty",
        "getppid(), with probes of its begin and end that do nothing",
    ),
    ("getppid_ftrace", "getppid(), traced by ftrace"),
    ("getppid_perf", "getppid(), traced by perf"),
    ("getppid_bpf", "getppid(), timed by BPF"),
    (
        "switch_empty",
        "a switch of threads, with probes that do nothing",
    ),
    ("switch_ftrace", "the same, traced by ftrace"),
    ("switch_perf", "the same, traced by perf"),
    ("switch_bpf", "the same, timed by BPF"),
    (
        "interrupt_empty",
        "an interrupt, with probes of its begin and end that do nothing",
    ),
    ("interrupt_ftrace", "the same, traced by ftrace"),
    ("interrupt_perf", "the same, traced by perf"),
    ("interrupt_bpf", "the same, timed by BPF"),
];

const WRITERS: &[(&str, &str)] = &[
    ("inline_add", "**perf_counter_add**, inline, C"),
    ("rust_add", "**Counter::add**, inline, Rust"),
    (
        "perf_adjust",
        "**perf_adjust**, by number, call and return included",
    ),
    ("group_1", "**a group** of 1"),
    ("group_2", "a group of 2"),
    ("rust_group_2", "a group of 2, Rust"),
    ("group_4", "a group of 4"),
    ("group_8", "a group of 8"),
    ("perf_counter_handle", "perf_counter_handle"),
    (
        "ring_forward",
        "a record of 64 bytes into a ring, forward, overwritten",
    ),
    ("ring_backward", "the same, backward"),
    ("percpu_counter_add", "the kernel's percpu_counter_add"),
    (
        "atomic64_add",
        "the kernel's atomic64_add (its lock is not seen)",
    ),
];

const PAIRS: &[(&str, &str)] = &[
    ("perf_read_16", "perf_event, a group of 16, per counter"),
    ("perf_read_1", "perf_event, one counter"),
    (
        "loads_perf_read_16",
        "the group of 16 against bare loads, added up, not copied",
    ),
    (
        "bpf_batch_key",
        "BPF per-CPU array, batch of 1,000, per key (all CPUs of it)",
    ),
    ("bpf_batch_value", "the same, per value (one CPU of a key)"),
    ("bpf_lookup_key", "BPF per-CPU array, one lookup, per key"),
    (
        "proc_vmstat_token",
        "/proc/vmstat, read and parsed, per number",
    ),
    (
        "lttng_event",
        "an event of a program, u32 + u64, by LTTng-UST into a snapshot session",
    ),
    (
        "lttng_flight",
        "the same, against ours into a flight recorder",
    ),
    (
        "flag_check_1",
        "snapshot of 1 CPU: with the check, against plain loads",
    ),
    ("flag_check_2", "the same, 2 CPUs"),
    ("flag_check_64", "the same, 64 CPUs"),
    (
        "write_flagged",
        "writing: flag, add, flag (as perf_adjust), against one add",
    ),
    (
        "write_locked",
        "writing: lock add (a shared counter), against one add",
    ),
];

/// A table with aligned columns, numbers to the right.
struct Table(Vec<Vec<String>>);

impl Table {
    fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Self {
        Self(vec![head.into_iter().map(Into::into).collect()])
    }

    fn row(&mut self, cells: Vec<String>) {
        self.0.push(cells);
    }

    /// Writes the table. The first `left` columns are text.
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

/// Puts a number in parentheses if it does not count.
fn if_counts(number: String, why_not: Option<&String>) -> String {
    match why_not {
        None => number,
        Some(_) => format!("({number})"),
    }
}

/// Lists the rows that do not count, each with its reason.
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
    out.push_str("\nDoes not count, and is in parentheses above:\n\n");
    if rows.iter().all(|(_, why)| *why == ONCE) {
        let _ = writeln!(out, "- any number of instructions: each guest was {ONCE}");
        return;
    }
    for (what, why) in rows {
        let _ = writeln!(out, "- {what}: {why}");
    }
}

/// Writes a table of instructions by the number of CPUs.
fn counts(out: &mut String, results: &Results, rows: &[(&str, &str)], per_value: bool) {
    let cpus = results.cpus();
    let head = cpus.iter().map(|n| cpus_of(*n));
    let mut table = Table::new(std::iter::once(String::new()).chain(head));
    for (operation, label) in rows {
        let cells = cpus.iter().map(|n| match results.count(operation, *n) {
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
        let row: Vec<String> = std::iter::once((*label).into()).chain(cells).collect();
        if row.iter().skip(1).any(|cell| cell != "-") {
            table.row(row);
        }
    }
    table.write(out, 1);
}

/// Formats the whole report.
pub fn text(results: &Results, bars: &[Bar]) -> String {
    let mut out = String::new();
    for (what, name) in &results.places {
        let _ = writeln!(out, "{what}: {name}  ");
    }
    if !results.counts.is_empty() {
        out.push_str("\nInstructions to write, by CPUs of the guest:\n\n");
        counts(&mut out, results, WRITERS, false);
        out.push_str(
            "\nInstructions to read one value (one CPU's number), by CPUs of the guest:\n\n",
        );
        counts(&mut out, results, OPERATIONS, true);
        out.push_str("\nInstructions of the whole reading:\n\n");
        counts(&mut out, results, OPERATIONS, false);
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
        out.push_str("\nTimes on this machine, as ratios (each the median of 15 runs, and another number in the next; ns are only for scale):\n\n");
        let mut table = Table::new([
            "a value from the pages against",
            "ratio",
            "least",
            "most",
            "ours ns",
            "theirs ns",
        ]);
        for (name, label) in PAIRS {
            if let Some(ratio) = results.ratio(name) {
                let (least, most) = ratio.range();
                let mut cells = vec![(*label).to_owned()];
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
        // The file has everything that the text has.
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
        assert!(!text.contains("Does not count"), "{text}");
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
