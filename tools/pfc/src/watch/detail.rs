// SPDX-License-Identifier: GPL-2.0

//! The details of one instance: the value of each CPU, or of each bucket of a histogram.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use perfcounters::{Kind, Since};

use crate::units::{bucket_bounds, ScaledUnit};
use crate::watch::sampler::Row;
use crate::watch::view::Look;

/// Length of the longest bar in cells.
const BAR: usize = 30;

/// Returns the lines of the box.
pub fn lines(row: &Row, cpus: &[(u32, bool)], width: usize, look: Look) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if !row.help.is_empty() {
        lines.push(Line::from(row.help.clone()));
    }
    let state = if row.live { "live" } else { "dormant" };
    lines.push(Line::from(format!(
        "number {}  {}  {}  {state}, incarnation {}",
        row.number,
        row.kind_name,
        row.inside.raw_unit(),
        row.incarnation
    )));
    let rate = row
        .rate
        .map_or("-".to_owned(), |rate| row.measure.format_rate(rate));
    let since = match row.since {
        Since::Birth => " (since it was added)",
        Since::Before | Since::Unknown => "",
    };
    lines.push(Line::from(format!(
        "{rate} per second{since}, {} in total",
        row.measure.format_value(row.total)
    )));
    lines.push(Line::default());
    if !row.buckets.is_empty() {
        buckets(row, &mut lines, look);
    } else {
        per_cpu(row, cpus, width, &mut lines, look);
    }
    lines
}

fn per_cpu(
    row: &Row,
    cpus: &[(u32, bool)],
    width: usize,
    lines: &mut Vec<Line<'static>>,
    look: Look,
) {
    let level = matches!(row.kind, Kind::Gauge | Kind::Peak);
    let what = if level { "value" } else { "in this interval" };
    lines.push(title(format!("{:>8}  {what}", "CPU")));
    let cells: Vec<(String, String, i64)> = cpus
        .iter()
        .zip(&row.per_cpu)
        .map(|((cpu, on), value)| {
            let off = if *on { "" } else { " off" };
            (
                format!("{cpu}{off}"),
                row.measure.format_value(*value),
                *value,
            )
        })
        .collect();
    // With more CPUs than this, several share a line and have no bars.
    const MANY: usize = 16;
    if cells.len() <= MANY {
        let most = row.per_cpu.iter().map(|v| v.unsigned_abs()).max();
        for (cpu, text, value) in &cells {
            let head = format!("{cpu:>8}  {text:>12}  ");
            lines.push(bar(head, value.unsigned_abs(), most.unwrap_or(0), look));
        }
        return;
    }
    let each = cells.iter().map(|(c, t, _)| c.len() + t.len() + 4).max();
    let to_a_line = (width.saturating_sub(6) / each.unwrap_or(1)).max(1);
    for part in cells.chunks(to_a_line) {
        let mut text = String::new();
        for (cpu, value, _) in part {
            let each = each.unwrap_or(1).saturating_sub(cpu.len() + 3);
            text.push_str(&format!("{cpu}: {value:<each$} "));
        }
        lines.push(Line::from(text));
    }
}

fn buckets(row: &Row, lines: &mut Vec<Line<'static>>, look: Look) {
    lines.push(title(
        "      from    to           in this interval".to_owned(),
    ));
    let used = |n: &i64| *n != 0;
    let first = row.buckets.iter().position(used);
    let last = row.buckets.iter().rposition(used);
    let (Some(first), Some(last)) = (first, last) else {
        lines.push(Line::from("nothing in this interval"));
        return;
    };
    let most = row.buckets.iter().map(|n| n.unsigned_abs()).max();
    for b in first..=last {
        let n = row.buckets[b];
        let (from, to) = bucket_bounds(b, row.buckets.len());
        let head = format!(
            "{:>10} .. {:<10} {n:>8}  ",
            edge(row.inside, from),
            edge(row.inside, to)
        );
        lines.push(bar(head, n.unsigned_abs(), most.unwrap_or(0), look));
    }
}

fn edge(measure: ScaledUnit, bound: Option<i64>) -> String {
    bound.map_or(String::new(), |value| measure.format_amount(value as f64))
}

fn bar(head: String, value: u64, most: u64, look: Look) -> Line<'static> {
    let cells = match most {
        0 => 0,
        most => (value as f64 / most as f64 * BAR as f64).ceil() as usize,
    };
    Line::from(vec![
        Span::raw(head),
        Span::styled("█".repeat(cells), look.bar()),
    ])
}

fn title(text: String) -> Line<'static> {
    Line::styled(text, Style::new().add_modifier(Modifier::BOLD))
}
