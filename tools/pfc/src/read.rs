// SPDX-License-Identifier: GPL-2.0

//! `pfc read`: prints values once, as a table, CSV or JSON.

use std::io::{self, Write};
use std::path::Path;

use perfcounters::{Counters, Kind, Reading, Snapshot, State};

use crate::cli::ReadArgs;
use crate::error::Failure;
use crate::instances_json;
use crate::output::{Out, Style};
use crate::table::{Align, Table};
use crate::units::{bucket_bounds, format_bucket_bound, quantile_bucket, ScaledUnit};

pub fn run(device: &Path, args: &ReadArgs, out: &mut Out) -> Result<(), Failure> {
    let mut counters = Counters::open_path(device)?;
    let snapshot = counters.snapshot_any(&args.select.pattern())?;
    let wanted = |r: &Reading<'_>| !args.nonzero || !is_zero(r);
    if !snapshot.readings().any(|r| wanted(&r)) {
        return Err(Failure::no_match(&args.select.words()));
    }
    let readings = snapshot.readings().filter(wanted);
    if args.json {
        instances_json::write_values(&snapshot, readings, args.per_cpu, out)?;
    } else if args.csv {
        csv(readings, args.per_cpu, out)?;
    } else {
        text(&snapshot, readings, args.per_cpu, out)?;
    }
    warn_if_inconsistent(&snapshot);
    Ok(())
}

/// Prints a warning if the snapshot is not consistent because a CPU updated its counters all the
/// time.
pub fn warn_if_inconsistent(snapshot: &Snapshot) {
    if !snapshot.stamp().consistent {
        eprintln!(
            "pfc: no consistent snapshot, as a CPU was updating its counters at every attempt: each \
             value is right, but a group of updates may be seen in part; select fewer instances"
        );
    }
}

fn is_zero(reading: &Reading<'_>) -> bool {
    reading.per_cpu().all(|(_, s)| s.iter().all(|v| *v == 0))
}

/// Prints a table. The buckets of a histogram follow its row.
pub fn text<'a>(
    snapshot: &Snapshot,
    readings: impl Iterator<Item = Reading<'a>>,
    per_cpu: bool,
    out: &mut Out,
) -> io::Result<()> {
    let mut table = Table::new()
        .with_column("NAME", Align::Left)
        .with_column("TOTAL", Align::Right)
        .with_column("", Align::Left);
    if per_cpu {
        for cpu in snapshot.cpus() {
            let off = if snapshot.online().contains(cpu) {
                ""
            } else {
                "(off)"
            };
            table = table.with_column(format!("CPU{cpu}{off}"), Align::Right);
        }
    }
    for reading in readings {
        let instance = reading.instance();
        let measure = ScaledUnit::of_value(instance);
        let mut cells = vec![
            instance.name.clone(),
            measure.format_value(reading.total()),
            measure.column_unit(),
        ];
        if per_cpu {
            cells.extend(reading.per_cpu().map(|(_, slots)| {
                measure.format_value(slots.iter().fold(0, |a: i64, b| a.wrapping_add(*b)))
            }));
        }
        let dormant = instance.state == State::Dormant;
        table.add_row(cells, dormant.then_some(Style::Dim));
        if instance.is_histogram() {
            histogram(&reading, &mut table);
        }
    }
    table.print(out)
}

/// Prints a histogram's buckets, from the first to the last that is not zero, with bars, and below
/// which bounds half, 90 % and 99 % of the values lie.
fn histogram(reading: &Reading<'_>, table: &mut Table) {
    const BAR: i64 = 40;
    let measure = ScaledUnit::of_instance(reading.instance());
    let buckets = reading.combined();
    let used = |n: &i64| *n != 0;
    let (Some(first), Some(last)) = (
        buckets.iter().position(used),
        buckets.iter().rposition(used),
    ) else {
        return;
    };
    let marks: Vec<String> = [(0.5, "half"), (0.9, "90 %"), (0.99, "99 %")]
        .iter()
        .filter_map(|(share, word)| {
            let b = quantile_bucket(&buckets, *share)?;
            Some(format!(
                "{word} {}",
                format_bucket_bound(measure, b, buckets.len())
            ))
        })
        .collect();
    if !marks.is_empty() {
        table.add_line(format!("    {}", marks.join(", ")));
    }
    let most = buckets.iter().copied().max().unwrap_or(0).max(1);
    let digits = most.to_string().len();
    for (b, n) in buckets.iter().enumerate().take(last + 1).skip(first) {
        let (from, to) = bucket_bounds(b, buckets.len());
        let edge =
            |bound: Option<i64>| bound.map_or(String::new(), |v| measure.format_amount(v as f64));
        let range = match (from, to) {
            (None, _) => format!("{:>10}", "<= 0"),
            (Some(_), None) => format!("{:>10} ..", edge(from)),
            (Some(_), Some(_)) => format!("{:>10} .. {}", edge(from), edge(to)),
        };
        let bar = (*n as f64 / most as f64 * BAR as f64).ceil().max(0.0) as usize;
        let line = format!("    {range:<24}  {n:>digits$}  {}", "#".repeat(bar));
        table.add_line(line.trim_end().to_owned());
    }
}

/// Prints one line per value. Values are exact, and the order of the columns is fixed.
fn csv<'a>(
    readings: impl Iterator<Item = Reading<'a>>,
    per_cpu: bool,
    out: &mut Out,
) -> io::Result<()> {
    writeln!(
        out,
        "name,number,incarnation,kind,unit,exponent,cpu,bucket,value"
    )?;
    for reading in readings {
        let i = reading.instance();
        let head = format!(
            "{},{},{},{},{},{}",
            quoted(&i.name),
            i.number,
            i.incarnation,
            i.kind_name(),
            i.unit.name(),
            i.exponent
        );
        let histogram = i.kind == Kind::Histogram;
        let mut line = |cpu: &str, slots: &[i64]| -> io::Result<()> {
            for (b, value) in slots.iter().enumerate() {
                let bucket = if histogram {
                    b.to_string()
                } else {
                    String::new()
                };
                writeln!(out, "{head},{cpu},{bucket},{value}")?;
            }
            Ok(())
        };
        if per_cpu {
            for (cpu, slots) in reading.per_cpu() {
                line(&cpu.to_string(), slots)?;
            }
        } else {
            line("", &reading.combined())?;
        }
    }
    Ok(())
}

fn quoted(text: &str) -> String {
    if text.contains(['"', ',']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
