// SPDX-License-Identifier: GPL-2.0

//! `pfc ppa report`: shows a recording as a table, a picture or JSON.

use std::io::ErrorKind;

use serde_json::{json, Value};

use crate::error::Failure;
use crate::input_file;
use crate::output::{Out, TextStyle};
use crate::ppa::args::ReportArgs;
use crate::ppa::svg;
use crate::ppa::timeline::{Timeline, TimelineInterval, TIME_PART_NAMES};
use crate::table::{ColumnAlign, Table};

pub fn run(args: &ReportArgs, to_file: bool, out: &mut Out) -> Result<(), Failure> {
    let path = visible::escape_path(&args.file);
    // A recording begins with a JSON object, so its first byte is `{`.
    let bytes =
        input_file::read_file_or_differing_head(&args.file, b"{").map_err(|e| match e.kind() {
            ErrorKind::NotFound => Failure::Refused(format!(
                "{path}: no such file; create it with pfc ppa record PID -o FILE"
            )),
            _ => Failure::Refused(format!("cannot read {path}: {e}")),
        })?;
    let timeline = Timeline::parse(&bytes)
        .map_err(|why| Failure::Refused(format!("cannot show {path}: {why}")))?;
    if args.json {
        out.write_json(&timeline_json(&timeline))?;
    } else if to_file {
        write!(out, "{}", svg::render_timeline_svg(&timeline))?;
    } else {
        print_timeline_table(&timeline, out)?;
    }
    Ok(())
}

pub(super) fn print_timeline_table(timeline: &Timeline, out: &mut Out) -> Result<(), Failure> {
    let title = format!("{} {}", timeline.pid, visible::escape(&timeline.task_name));
    writeln!(out, "{}", out.paint(TextStyle::Dim, &title))?;
    let mut table = Table::new().with_columns(">FROM s|>TO s");
    for part in TIME_PART_NAMES {
        table = table.with_column(format!("{} %", part.to_uppercase()), ColumnAlign::Right);
    }
    for interval in &timeline.intervals {
        table.add_row(format_interval_cells(timeline, interval), None);
    }
    table.add_row(
        format_interval_cells(timeline, &timeline.sum_of_intervals()),
        Some(TextStyle::Title),
    );
    table.print(out)
}

fn format_interval_cells(timeline: &Timeline, interval: &TimelineInterval) -> Vec<String> {
    let to = interval.start_ticks.saturating_add(interval.span_ticks());
    let mut cells = vec![
        format!("{:.3}", timeline.ticks_to_seconds(interval.start_ticks)),
        format!("{:.3}", timeline.ticks_to_seconds(to)),
    ];
    cells.extend((0..TIME_PART_NAMES.len()).map(|n| format!("{:.2}", interval.percent_of_part(n))));
    cells
}

pub(super) fn timeline_json(timeline: &Timeline) -> Value {
    let interval_json = |interval: &TimelineInterval| {
        let mut value = json!({"from": interval.start_ticks, "span": interval.span_ticks()});
        for (name, ticks) in TIME_PART_NAMES.iter().zip(interval.part_ticks) {
            value[*name] = json!(ticks);
        }
        value
    };
    json!({
        "pid": timeline.pid,
        "name": timeline.task_name,
        "khz": timeline.tick_khz,
        "intervals": timeline.intervals.iter().map(interval_json).collect::<Vec<_>>(),
        "total": interval_json(&timeline.sum_of_intervals()),
    })
}
