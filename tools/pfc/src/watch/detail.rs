// SPDX-License-Identifier: GPL-2.0

//! Formats the details of one instance: the value of each CPU, or of each bucket of a histogram.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use perfcounters::{DeltaStart, Kind};

use crate::units::{histogram_bucket_bounds, ScaledUnit};
use crate::watch::sampler::InstanceRow;
use crate::watch::view::Theme;

/// Length of the longest bar in cells of the terminal.
const MAX_BAR_CELLS: usize = 30;

/// Returns the lines of the box with the details of one instance.
pub fn instance_detail_lines(
    row: &InstanceRow,
    cpus: &[(u32, bool)],
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if !row.help.is_empty() {
        lines.push(Line::from(row.help.clone()));
    }
    let state = if row.is_live { "live" } else { "dormant" };
    lines.push(Line::from(format!(
        "number {}  {}  {}  {state}, incarnation {}",
        row.number,
        row.kind_name,
        row.descriptor_unit.raw_unit_name(),
        row.incarnation
    )));
    let rate = row.rate_per_second.map_or("-".to_owned(), |rate| {
        row.value_unit.format_scaled_amount(rate)
    });
    let since = match row.change_start {
        DeltaStart::Created => " (since it was added)",
        DeltaStart::EarlierSnapshot | DeltaStart::Unknown => "",
    };
    lines.push(Line::from(format!(
        "{rate} per second{since}, {} in total",
        row.value_unit.format_exact_or_scaled(row.total)
    )));
    lines.push(Line::default());
    if !row.bucket_changes.is_empty() {
        add_histogram_bucket_lines(row, &mut lines, theme);
    } else {
        add_cpu_lines(row, cpus, width, &mut lines, theme);
    }
    lines
}

fn add_cpu_lines(
    row: &InstanceRow,
    cpus: &[(u32, bool)],
    width: usize,
    lines: &mut Vec<Line<'static>>,
    theme: Theme,
) {
    let level = matches!(row.kind, Kind::Gauge | Kind::Peak);
    let heading = if level { "value" } else { "in this interval" };
    lines.push(bold_title_line(format!("{:>8}  {heading}", "CPU")));
    let cells: Vec<(String, String, i64)> = cpus
        .iter()
        .zip(&row.changes_or_levels_per_cpu)
        .map(|((cpu, on), value)| {
            let off = if *on { "" } else { " off" };
            (
                format!("{cpu}{off}"),
                row.value_unit.format_exact_or_scaled(*value),
                *value,
            )
        })
        .collect();
    // Maximum number of CPUs for which each CPU gets a line with a bar. If a machine has more than
    // `MAX_CPUS_WITH_BARS` CPUs, each line shows the values of several CPUs, without bars.
    const MAX_CPUS_WITH_BARS: usize = 16;
    if cells.len() <= MAX_CPUS_WITH_BARS {
        let max = row
            .changes_or_levels_per_cpu
            .iter()
            .map(|v| v.unsigned_abs())
            .max();
        for (cpu, text, value) in &cells {
            let head = format!("{cpu:>8}  {text:>12}  ");
            lines.push(bar_line(
                head,
                value.unsigned_abs(),
                max.unwrap_or(0),
                theme,
            ));
        }
        return;
    }
    let cell_width = cells.iter().map(|(c, t, _)| c.len() + t.len() + 4).max();
    let to_a_line = (width.saturating_sub(6) / cell_width.unwrap_or(1)).max(1);
    for part in cells.chunks(to_a_line) {
        let mut text = String::new();
        for (cpu, value, _) in part {
            let cell_width = cell_width.unwrap_or(1).saturating_sub(cpu.len() + 3);
            text.push_str(&format!("{cpu}: {value:<cell_width$} "));
        }
        lines.push(Line::from(text));
    }
}

fn add_histogram_bucket_lines(row: &InstanceRow, lines: &mut Vec<Line<'static>>, theme: Theme) {
    lines.push(bold_title_line(
        "      from    to           in this interval".to_owned(),
    ));
    let is_nonzero = |n: &i64| *n != 0;
    let first = row.bucket_changes.iter().position(is_nonzero);
    let last = row.bucket_changes.iter().rposition(is_nonzero);
    let (Some(first), Some(last)) = (first, last) else {
        lines.push(Line::from("nothing in this interval"));
        return;
    };
    let max = row.bucket_changes.iter().map(|n| n.unsigned_abs()).max();
    for b in first..=last {
        let n = row.bucket_changes[b];
        let (from, to) = histogram_bucket_bounds(b, row.bucket_changes.len());
        let head = format!(
            "{:>10} .. {:<10} {n:>8}  ",
            format_bound_or_blank(row.descriptor_unit, from),
            format_bound_or_blank(row.descriptor_unit, to)
        );
        lines.push(bar_line(head, n.unsigned_abs(), max.unwrap_or(0), theme));
    }
}

fn format_bound_or_blank(unit: ScaledUnit, bound: Option<i64>) -> String {
    bound.map_or(String::new(), |value| {
        unit.format_scaled_amount(value as f64)
    })
}

fn bar_line(head: String, value: u64, max: u64, theme: Theme) -> Line<'static> {
    let cells = match max {
        0 => 0,
        max => (value as f64 / max as f64 * MAX_BAR_CELLS as f64).ceil() as usize,
    };
    Line::from(vec![
        Span::raw(head),
        Span::styled("█".repeat(cells), theme.bar_style()),
    ])
}

fn bold_title_line(text: String) -> Line<'static> {
    Line::styled(text, Style::new().add_modifier(Modifier::BOLD))
}
