// SPDX-License-Identifier: GPL-2.0

//! The plain output of `pfc watch`: prints a table of the busiest instances for each interval.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::cli::WatchArgs;
use crate::error::Failure;
use crate::live::next_update_time;
use crate::output::{Out, TextStyle};
use crate::table::Table;
use crate::time;
use crate::watch::sampler::{CounterSampler, InstanceRow, IntervalFrame};

pub fn run(device: &Path, args: &WatchArgs, out: &mut Out) -> Result<(), Failure> {
    let mut sampler = CounterSampler::open(device, args.select.pattern())?;
    if sampler.is_empty() {
        return Err(Failure::no_matching_instance(
            &args.select.joined_patterns(),
        ));
    }
    let interval = Duration::from_millis(args.interval);
    let mut due = Instant::now();
    let mut nr_tables = 0;
    while args.count.is_none_or(|count| nr_tables < count) {
        due = next_update_time(due, interval, Instant::now());
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let frame = sampler.take_frame()?;
        if nr_tables > 0 {
            writeln!(out)?;
        }
        print_frame_table(&frame, args.lines, out)?;
        out.flush()?;
        nr_tables += 1;
    }
    Ok(())
}

/// Prints the table of one frame, below a line about the interval.
fn print_frame_table(frame: &IntervalFrame, lines: usize, out: &mut Out) -> Result<(), Failure> {
    let mut rows: Vec<&InstanceRow> = frame.rows.iter().collect();
    rows.sort_by(|a, b| {
        let busy = b.rate_sort_key().total_cmp(&a.rate_sort_key());
        busy.then_with(|| a.name.cmp(&b.name))
    });
    let shown = rows.len().min(lines);
    let mut head = format!(
        "{}  {:.3} s  generation {}  {shown} of {} instances",
        time::format_time_of_day(frame.realtime_ns),
        frame.interval_seconds,
        frame.generation,
        rows.len(),
    );
    if frame.was_reloaded {
        head.push_str("  module reloaded");
    }
    if !frame.is_consistent_per_cpu {
        head.push_str("  not consistent: a CPU was always updating");
    }
    writeln!(out, "{}", out.paint(TextStyle::Dim, &head))?;

    let mut table = Table::new().with_columns("NAME|>PER SECOND|>TOTAL|");
    for row in rows.into_iter().take(lines) {
        let note = match (row.is_live, row.is_new()) {
            (false, _) => "dormant",
            (true, true) => "new",
            (true, false) => "",
        };
        let style = match (row.is_live, row.is_new()) {
            (false, _) => Some(TextStyle::Dim),
            (true, true) => Some(TextStyle::Notice),
            (true, false) => None,
        };
        let cells = vec![
            row.name.clone(),
            row.rate_per_second
                .map_or("-".into(), |rate| row.value_unit.format_scaled_amount(rate)),
            row.value_unit.format_exact_or_scaled(row.total),
            note.to_owned(),
        ];
        table.add_row(cells, style);
    }
    table.print(out)
}
