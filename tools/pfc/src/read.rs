// SPDX-License-Identifier: GPL-2.0

//! `pfc read`: prints values once, as a table, CSV or JSON.

use std::path::Path;

use perfcounters::{Counters, InstanceState, Kind, Reading, Snapshot};

use crate::cli::ReadArgs;
use crate::error::Failure;
use crate::instances_json;
use crate::output::{Out, TextStyle};
use crate::table::{ColumnAlign, Table};
use crate::units::{
    find_quantile_bucket, format_bucket_bound, histogram_bucket_bounds, ScaledUnit,
};

pub fn run(device: &Path, args: &ReadArgs, out: &mut Out) -> Result<(), Failure> {
    let mut counters = Counters::open_path(device)?;
    let snapshot = counters.snapshot_even_if_busy(&args.select.pattern())?;
    let is_selected = |r: &Reading<'_>| !args.nonzero || !is_every_value_zero(r);
    if !snapshot.readings().any(|r| is_selected(&r)) {
        return Err(match snapshot.selection().is_empty() {
            true => Failure::no_matching_instance(&args.select.joined_patterns()),
            false => Failure::NoMatch(": all selected values are zero; omit -z".into()),
        });
    }
    let readings = snapshot.readings().filter(is_selected);
    if args.json {
        out.write_with_io_function(|out| {
            instances_json::write_values_document(&snapshot, readings, args.per_cpu, out)
        })?;
    } else if args.csv {
        print_values_as_csv(readings, args.per_cpu, out)?;
    } else {
        print_instance_table(&snapshot, readings, args.per_cpu, out)?;
    }
    warn_if_snapshot_inconsistent(&snapshot);
    Ok(())
}

/// Prints a warning if the snapshot is not consistent, because a CPU was updating its counters at
/// every attempt to read them.
pub fn warn_if_snapshot_inconsistent(snapshot: &Snapshot) {
    if !snapshot.stamp().consistent {
        message!(
            "pfc: no consistent snapshot, as a CPU was updating its counters at every attempt: each \
             value is right, but a group of updates may be seen in part; select fewer instances"
        );
    }
}

fn is_every_value_zero(reading: &Reading<'_>) -> bool {
    reading.per_cpu().all(|(_, s)| s.iter().all(|v| *v == 0))
}

/// Prints the instances of a snapshot as a table. In the table, the buckets of a histogram follow
/// the row of the histogram.
pub fn print_instance_table<'a>(
    snapshot: &Snapshot,
    readings: impl Iterator<Item = Reading<'a>>,
    per_cpu: bool,
    out: &mut Out,
) -> Result<(), Failure> {
    let mut table = Table::new().with_columns("NAME|>TOTAL|");
    if per_cpu {
        for cpu in snapshot.cpus() {
            let suffix = if snapshot.online_cpus().contains(cpu) {
                ""
            } else {
                "(off)"
            };
            table = table.with_column(format!("CPU{cpu}{suffix}"), ColumnAlign::Right);
        }
    }
    for reading in readings {
        let instance = reading.instance();
        let unit = ScaledUnit::of_instance_value(instance);
        let mut cells = vec![
            instance.name.clone(),
            unit.format_exact_or_scaled(reading.total()),
            unit.column_unit_text(),
        ];
        if per_cpu {
            cells.extend(reading.per_cpu().map(|(_, slots)| {
                unit.format_exact_or_scaled(slots.iter().fold(0, |a: i64, b| a.wrapping_add(*b)))
            }));
        }
        let dormant = instance.state == InstanceState::Dormant;
        table.add_row(cells, dormant.then_some(TextStyle::Dim));
        if instance.has_log2_buckets() {
            add_histogram_lines(&reading, &mut table);
        }
    }
    table.print(out)
}

/// Adds the buckets of a histogram to a table, with bars, from the first to the last bucket that is
/// not zero. A line above the buckets has three bounds. Half of the values lie below the first
/// bound, 90 % of the values below the second, and 99 % below the third.
fn add_histogram_lines(reading: &Reading<'_>, table: &mut Table) {
    const MAX_BAR_CHARS: i64 = 40;
    let unit = ScaledUnit::of_instance_descriptor(reading.instance());
    let buckets = reading.combined_values();
    let is_nonzero = |n: &i64| *n != 0;
    let (Some(first), Some(last)) = (
        buckets.iter().position(is_nonzero),
        buckets.iter().rposition(is_nonzero),
    ) else {
        return;
    };
    let quantiles: Vec<String> = [(0.5, "half"), (0.9, "90 %"), (0.99, "99 %")]
        .iter()
        .filter_map(|(share, word)| {
            let b = find_quantile_bucket(&buckets, *share)?;
            Some(format!(
                "{word} {}",
                format_bucket_bound(unit, b, buckets.len())
            ))
        })
        .collect();
    if !quantiles.is_empty() {
        table.add_text_line(format!("    {}", quantiles.join(", ")));
    }
    let max = buckets.iter().copied().max().unwrap_or(0).max(1);
    let digits = max.to_string().len();
    for (b, n) in buckets.iter().enumerate().take(last + 1).skip(first) {
        let (from, to) = histogram_bucket_bounds(b, buckets.len());
        let format_bound = |bound: Option<i64>| {
            bound.map_or(String::new(), |v| unit.format_scaled_amount(v as f64))
        };
        let range = match (from, to) {
            (None, _) => format!("{:>10}", "<= 0"),
            (Some(_), None) => format!("{:>10} ..", format_bound(from)),
            (Some(_), Some(_)) => format!("{:>10} .. {}", format_bound(from), format_bound(to)),
        };
        let bar = (*n as f64 / max as f64 * MAX_BAR_CHARS as f64)
            .ceil()
            .max(0.0) as usize;
        let line = format!("    {range:<24}  {n:>digits$}  {}", "#".repeat(bar));
        table.add_text_line(line.trim_end().to_owned());
    }
}

/// Prints one line of CSV per value. The values in CSV are exact, and the order of the columns is
/// fixed.
fn print_values_as_csv<'a>(
    readings: impl Iterator<Item = Reading<'a>>,
    per_cpu: bool,
    out: &mut Out,
) -> Result<(), Failure> {
    writeln!(
        out,
        "name,number,incarnation,kind,unit,exponent,cpu,bucket,value"
    )?;
    for reading in readings {
        let instance = reading.instance();
        let head = format!(
            "{},{},{},{},{},{}",
            quote_csv_field(&instance.name),
            instance.number,
            instance.incarnation,
            instance.kind_name(),
            instance.unit.name(),
            instance.exponent
        );
        let histogram = instance.effective_kind == Kind::Histogram;
        let mut line = |cpu: &str, slots: &[i64]| -> Result<(), Failure> {
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
            line("", &reading.combined_values())?;
        }
    }
    Ok(())
}

fn quote_csv_field(text: &str) -> String {
    if text.contains(['"', ',']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
