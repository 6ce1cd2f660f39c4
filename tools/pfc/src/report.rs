// SPDX-License-Identifier: GPL-2.0

//! `pfc report`: prints the share of each command, file and function in the event count, largest
//! first. `pfc report` also converts a file of samples to other formats.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use serde_json::{json, Value};

use crate::cli::{ReportArgs, SortKey};
use crate::error::Failure;
use crate::output::Out;
use crate::profile::{export, Frame, Profile, Sample};

/// A node of the caller tree: a function in the call paths of samples.
struct CallerNode {
    name: Rc<str>,
    /// The sum of the periods of the samples whose call path contains this node.
    period_sum: u64,
    /// The functions that called this function, as indices in [`CallerTree::nodes`].
    callers: Vec<usize>,
}

/// The tree of the functions that called a function. The nodes of the tree are the elements of one
/// list, because a program can make its call stacks as deep as it likes. If the nodes were nested,
/// pfc would use a part of its stack for each level, even when it drops the tree.
struct CallerTree {
    /// The functions of the tree. A function comes later in the list than the function that it
    /// called. The first element of the list is the root.
    nodes: Vec<CallerNode>,
    /// The index of each function in `nodes`, by the index of the function that it called and by
    /// its own name.
    index_by_callee_and_name: HashMap<(usize, Rc<str>), usize>,
}

/// A row of the report: the samples that have equal values of all sort keys.
pub struct ReportRow {
    pub cells: Vec<String>,
    pub period_sum: u64,
    nr_samples: u64,
    callers: CallerTree,
}

impl SortKey {
    fn column_title(self) -> &'static str {
        match self {
            Self::Comm => "Command",
            Self::Dso => "Shared Object",
            Self::Sym => "Symbol",
            Self::Pid => "Pid",
            Self::Tid => "Tid",
            Self::Cpu => "CPU",
        }
    }

    /// Returns the name of the sort key in JSON.
    fn json_name(self) -> &'static str {
        match self {
            Self::Comm => "command",
            Self::Dso => "object",
            Self::Sym => "symbol",
            Self::Pid => "pid",
            Self::Tid => "tid",
            Self::Cpu => "cpu",
        }
    }

    fn format_cell(self, profile: &Profile, sample: &Sample) -> String {
        let frame = profile.leaf_frame(sample);
        match self {
            Self::Comm => sample.command.to_string(),
            Self::Dso => frame.object_file_name().to_owned(),
            Self::Sym => format_symbol_with_mode(frame),
            Self::Pid => sample.pid.to_string(),
            Self::Tid => sample.tid.to_string(),
            Self::Cpu => sample.cpu.map_or("-".to_owned(), |n| n.to_string()),
        }
    }
}

impl ReportRow {
    /// Returns the cells with control characters made visible.
    pub fn escaped_cells(&self) -> Vec<Cow<'_, str>> {
        self.cells
            .iter()
            .map(|cell| visible::escape(cell))
            .collect()
    }
}

/// Returns the symbol after a mark for the mode, as in perf: `[k]` for the kernel, `[.]` for user
/// mode.
fn format_symbol_with_mode(frame: &Frame) -> String {
    let mark = if frame.is_kernel { 'k' } else { '.' };
    format!("[{mark}] {}", frame.symbol)
}

fn format_caller_name(frame: &Frame) -> String {
    match frame.has_known_symbol() {
        true => frame.symbol_with_inlined_mark(),
        false => format!("{} ({})", frame.symbol, frame.object_file_name()),
    }
}

/// Groups the samples by the sort keys. The rows of the report are ordered by the sum of periods,
/// largest first, and then by the texts of the cells.
pub fn group_samples_into_rows(
    profile: &Profile,
    samples: &[&Sample],
    keys: &[SortKey],
) -> Vec<ReportRow> {
    let mut rows_by_cells: HashMap<Vec<String>, ReportRow> = HashMap::new();
    let mut names: HashMap<(&str, &str, bool), Rc<str>> = HashMap::new();
    for sample in samples {
        let cells: Vec<String> = keys
            .iter()
            .map(|key| key.format_cell(profile, sample))
            .collect();
        let row = rows_by_cells
            .entry(cells)
            .or_insert_with_key(|cells| ReportRow {
                cells: cells.clone(),
                period_sum: 0,
                nr_samples: 0,
                callers: CallerTree::new(),
            });
        row.nr_samples += 1;
        row.period_sum = row.period_sum.saturating_add(sample.period);
        // The row of the report shows the innermost function that is not inlined. If this function
        // is the first frame of a sample, the callers begin after the first frame. If the first
        // frame is inlined, the callers begin with the inlined functions. The function of the row
        // comes after the inlined functions.
        let leaf = profile.frames_of_sample(sample).next();
        let nr_skipped = usize::from(leaf.is_some_and(|frame| !frame.is_inlined));
        let callers = profile
            .frames_of_sample(sample)
            .skip(nr_skipped)
            .map(|frame| {
                // A known function that is not inlined is named by its symbol, whose text is not
                // copied.
                if frame.has_known_symbol() && !frame.is_inlined {
                    return frame.symbol.clone();
                }
                let key = (&*frame.symbol, &*frame.object, frame.is_inlined);
                let name = names
                    .entry(key)
                    .or_insert_with(|| format_caller_name(frame).into());
                name.clone()
            });
        row.callers.add_period_to_call_path(callers, sample.period);
    }
    let mut rows: Vec<ReportRow> = rows_by_cells.into_values().collect();
    rows.sort_by(|a, b| {
        b.period_sum
            .cmp(&a.period_sum)
            .then_with(|| a.cells.cmp(&b.cells))
    });
    rows
}

impl CallerTree {
    fn new() -> Self {
        let root = CallerNode {
            name: "".into(),
            period_sum: 0,
            callers: Vec::new(),
        };
        Self {
            nodes: vec![root],
            index_by_callee_and_name: HashMap::new(),
        }
    }

    /// Adds a period to the root, and to each function of a call path.
    fn add_period_to_call_path(&mut self, path: impl Iterator<Item = Rc<str>>, period: u64) {
        let mut at = 0;
        let add = |all: &mut [CallerNode], at: usize| {
            let sum = &mut all[at].period_sum;
            *sum = sum.saturating_add(period);
        };
        add(&mut self.nodes, at);
        for name in path {
            let all = &mut self.nodes;
            at = *self
                .index_by_callee_and_name
                .entry((at, name))
                .or_insert_with_key(|(of, name)| {
                    let new = all.len();
                    all[*of].callers.push(new);
                    all.push(CallerNode {
                        name: name.clone(),
                        period_sum: 0,
                        callers: Vec::new(),
                    });
                    new
                });
            add(all, at);
        }
    }

    /// Returns the callers of a function, those with the largest periods first.
    fn callers_by_period(&self, of: usize) -> Vec<usize> {
        let mut callers = self.nodes[of].callers.clone();
        callers.sort_by(|a, b| {
            let (a, b) = (&self.nodes[*a], &self.nodes[*b]);
            b.period_sum
                .cmp(&a.period_sum)
                .then_with(|| a.name.cmp(&b.name))
        });
        callers
    }

    /// Prints one line for each caller of the root and, recursively, for the callers of each
    /// printed caller. Callers whose share is below `min_percent` percent are left out. If a caller
    /// has the same period as the function that it called, the caller is printed without a
    /// percentage.
    fn print_callers(&self, total: f64, min_percent: f64, out: &mut Out) -> Result<(), Failure> {
        // A stack of the callers that are still to be printed: the index of the called function,
        // the index of the caller, and the caller's indentation.
        let mut left = Vec::new();
        let add = |left: &mut Vec<(usize, usize, usize)>, of: usize, depth: usize| {
            let callers = self.callers_by_period(of).into_iter().rev();
            left.extend(callers.map(|caller| (of, caller, depth)));
        };
        add(&mut left, 0, 0);
        while let Some((of, at, depth)) = left.pop() {
            let caller = &self.nodes[at];
            let share = percent_of_total(caller.period_sum, total);
            if share < min_percent {
                continue;
            }
            let indent = "  ".repeat(depth);
            let name = visible::escape(&caller.name);
            match caller.period_sum == self.nodes[of].period_sum {
                true => writeln!(out, "            {indent}{name}")?,
                false => writeln!(out, "            {indent}{share:.2}% {name}")?,
            }
            // A single caller keeps the indentation of the called function, so that a chain of
            // calls is one column.
            add(&mut left, at, depth + usize::from(caller.callers.len() > 1));
        }
        Ok(())
    }

    /// Returns the callers of the root as JSON, each with its own callers.
    fn callers_json(&self) -> Value {
        let mut values: Vec<Value> = vec![Value::Null; self.nodes.len()];
        // In the list, the callers of a function come after that function, so the loop goes
        // backwards.
        for at in (0..self.nodes.len()).rev() {
            let callers = self.callers_by_period(at).into_iter();
            let callers: Value = callers.map(|caller| values[caller].take()).collect();
            let CallerNode {
                name, period_sum, ..
            } = &self.nodes[at];
            values[at] = match at {
                0 => return callers,
                _ => json!({ "symbol": &**name, "period": period_sum, "callers": callers }),
            };
        }
        Value::Null
    }
}

pub fn percent_of_total(part: u64, total: f64) -> f64 {
    match total > 0.0 {
        true => part as f64 * 100.0 / total,
        false => 0.0,
    }
}

pub fn run(args: &ReportArgs, out: &mut Out) -> Result<(), Failure> {
    let input = args.input.file.as_deref().map(Path::new);
    let profile =
        Profile::load(input, !args.input.no_inline)?.select_event(args.input.event.as_deref())?;
    if args.pprof && out.is_terminal() {
        return Err(Failure::Refused(
            "pprof's format is not written to a terminal; write it to a file: -o FILE".to_owned(),
        ));
    }
    write_report(&profile, args, out)
}

/// Writes the report of a profile, or the profile in the format of another program.
pub fn write_report(profile: &Profile, args: &ReportArgs, out: &mut Out) -> Result<(), Failure> {
    match (args.json, args.firefox, args.pprof) {
        (true, ..) => print_report_json(profile, args, out),
        (_, true, _) => {
            out.write_with_io_function(|out| export::write_firefox_profile(profile, out))
        }
        (_, _, true) => out.write_with_io_function(|out| export::write_pprof_profile(profile, out)),
        _ => {
            for (event, samples) in profile.samples_by_event() {
                print_report_table(profile, event, &samples, args, out)?;
            }
            Ok(())
        }
    }
}

fn print_report_table(
    profile: &Profile,
    event: usize,
    samples: &[&Sample],
    args: &ReportArgs,
    out: &mut Out,
) -> Result<(), Failure> {
    let rows = group_samples_into_rows(profile, samples, &args.sort);
    let count: u64 = rows.iter().fold(0, |n, r| n.saturating_add(r.period_sum));
    let total = count as f64;
    writeln!(out, "# Total Lost Samples: {}", profile.nr_lost_records)?;
    if profile.nr_throttles > 0 {
        writeln!(out, "# Throttled: {} times", profile.nr_throttles)?;
    }
    for (cpu, ns) in &profile.offline_ns_by_cpu {
        let seconds = *ns as f64 / 1e9;
        writeln!(
            out,
            "# Not Sampled: CPU {cpu} was offline for {seconds:.3} s"
        )?;
    }
    writeln!(
        out,
        "#\n# Samples: {} of event '{}'\n# Event count (approx.): {count}\n#",
        samples.len(),
        visible::escape(&profile.events[event])
    )?;
    let shown: Vec<(&ReportRow, Vec<Cow<'_, str>>)> = rows
        .iter()
        .filter(|r| percent_of_total(r.period_sum, total) >= args.limit)
        .map(|r| (r, r.escaped_cells()))
        .collect();
    let width = |n: usize| {
        let cells = shown.iter().map(|(_, cells)| cells[n].chars().count());
        cells
            .chain([args.sort[n].column_title().len()])
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..args.sort.len()).map(width).collect();
    let line = |cells: &[&str]| {
        let cells: Vec<String> = cells
            .iter()
            .zip(&widths)
            // The width may be larger than the largest width of a format string.
            .map(|(cell, width)| format!("{cell}{}", " ".repeat(width - cell.chars().count())))
            .collect();
        cells.join("  ").trim_end().to_owned()
    };
    let titles: Vec<&str> = args.sort.iter().map(|k| k.column_title()).collect();
    let dots: Vec<String> = widths.iter().map(|n| ".".repeat(*n)).collect();
    let dots: Vec<&str> = dots.iter().map(String::as_str).collect();
    writeln!(out, "# Overhead  {}", line(&titles))?;
    writeln!(out, "# ........  {}\n#", line(&dots))?;
    for (row, cells) in shown {
        let cells: Vec<&str> = cells.iter().map(|cell| &**cell).collect();
        let share = format!("{:.2}%", percent_of_total(row.period_sum, total));
        writeln!(out, "{share:>10}  {}", line(&cells))?;
        if args.stacks && row.callers.nodes.len() > 1 {
            let min_percent =
                args.min_caller_percent() * percent_of_total(row.period_sum, total) / 100.0;
            row.callers.print_callers(total, min_percent, out)?;
            writeln!(out)?;
        }
    }
    writeln!(out)?;
    Ok(())
}

fn print_report_json(profile: &Profile, args: &ReportArgs, out: &mut Out) -> Result<(), Failure> {
    let mut events = Vec::new();
    for (event, samples) in profile.samples_by_event() {
        let rows = group_samples_into_rows(profile, &samples, &args.sort);
        let total = rows
            .iter()
            .fold(0, |n: u64, r| n.saturating_add(r.period_sum));
        let row = |row: &ReportRow| {
            let mut line = json!({
                "overhead": percent_of_total(row.period_sum, total as f64),
                "period": row.period_sum,
                "samples": row.nr_samples,
            });
            for (key, cell) in args.sort.iter().zip(&row.cells) {
                line[key.json_name()] = cell.clone().into();
            }
            if args.stacks {
                line["callers"] = row.callers.callers_json();
            }
            line
        };
        events.push(json!({
            "event": profile.events[event],
            "samples": samples.len(),
            "period": total,
            "rows": rows.iter().map(row).collect::<Vec<_>>(),
        }));
    }
    let offline = |(cpu, ns): (&u32, &u64)| json!({"cpu": cpu, "ns": ns});
    let all = json!({
        "command": profile.command,
        "lost": profile.nr_lost_records,
        "throttled": profile.nr_throttles,
        "offline": profile.offline_ns_by_cpu.iter().map(offline).collect::<Vec<_>>(),
        "events": events,
    });
    out.write_json(&all)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "texts of the tests")]
mod tests {
    use super::*;
    use crate::profile::tests::synthetic_profile;

    #[test]
    fn r1_10_rows_are_sorted_by_period() {
        let profile = synthetic_profile();
        let samples = &profile.samples_by_event()[&0];
        let keys = [SortKey::Comm, SortKey::Dso, SortKey::Sym];
        let rows = group_samples_into_rows(&profile, samples, &keys);
        let cells: Vec<String> = rows.iter().map(|r| r.cells.join(" ")).collect();
        assert_eq!(
            cells,
            ["prog prog [.] f", "prog [kernel.kallsyms] [k] sys_read"]
        );
        assert_eq!((rows[0].period_sum, rows[0].nr_samples), (300, 3));
        let tree = &rows[0].callers;
        let callers: Vec<&CallerNode> = tree
            .callers_by_period(0)
            .into_iter()
            .map(|at| &tree.nodes[at])
            .collect();
        assert_eq!((&*callers[0].name, callers[0].period_sum), ("main", 200));
        assert_eq!(&*callers[1].name, "a;b");
        let by_cpu = super::group_samples_into_rows(&profile, samples, &[SortKey::Cpu]);
        assert_eq!(by_cpu.len(), 1);
    }

    #[test]
    fn r1_10_report_table_has_perfs_format() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path();
        let profile = synthetic_profile();
        let args = ReportArgs {
            input: crate::cli::SampleInputArgs {
                file: None,
                event: None,
                no_inline: false,
            },
            stdio: true,
            stacks: true,
            sort: vec![SortKey::Comm, SortKey::Dso, SortKey::Sym],
            limit: 30.0,
            json: false,
            firefox: false,
            pprof: false,
        };
        let mut out = Out::open_atomic(Some(path)).expect("a file");
        print_report_table(
            &profile,
            0,
            &profile.samples_by_event()[&0],
            &args,
            &mut out,
        )
        .expect("room");
        out.finish().expect("room");
        let text = std::fs::read_to_string(path).expect("a file");
        assert_eq!(
            text,
            "# Total Lost Samples: 2\n# Throttled: 3 times\n\
             # Not Sampled: CPU 1 was offline for 2.301 s\n#\n# Samples: 4 of event 'cycles'\n\
             # Event count (approx.): 400\n#\n\
             # Overhead  Command  Shared Object  Symbol\n\
             # ........  .......  .............  ......\n#\n    \
             75.00%  prog     prog           [.] f\n            \
             50.00% main\n            25.00% a;b\n\n\n"
        );
        let mut out = Out::open_atomic(Some(path)).expect("a file");
        print_report_json(&profile, &args, &mut out).expect("room");
        out.finish().expect("room");
        let text = std::fs::read_to_string(path).expect("a file");
        let all: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&all["lost"], &all["throttled"]), (&2.into(), &3.into()));
        assert_eq!(all["offline"][0]["ns"], 2_301_000_000_u64);
        assert_eq!(all["events"][0]["rows"][0]["overhead"], 75.0);
        assert_eq!(all["events"][0]["rows"][0]["callers"][0]["symbol"], "main");
        assert_eq!(all["events"][1]["rows"][0]["symbol"], "[.] [unknown]");
    }
}
