// SPDX-License-Identifier: GPL-2.0

//! Draws the screen of `pfc watch`.

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};
use ratatui::Frame as Screen;

use crate::time;
use crate::watch::app::{InputMode, SortOrder, WatchApp};
use crate::watch::bars::{draw_cpu_bars, fit_cpu_bars};
use crate::watch::detail;
use crate::watch::sampler::InstanceRow;

const RATE_COLUMN_CELLS: usize = 11;
const TOTAL_COLUMN_CELLS: usize = 13;
/// Minimum width of the column of names, in cells.
const MIN_NAME_COLUMN_CELLS: usize = 12;

/// The styles of the screen, with or without colours.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    pub has_colour: bool,
}

impl Theme {
    pub fn bar_style(self) -> Style {
        self.coloured_style(Color::Cyan)
    }

    fn notice_style(self) -> Style {
        self.coloured_style(Color::Yellow)
    }

    fn dim_style(self) -> Style {
        if self.has_colour {
            Style::new().fg(Color::DarkGray)
        } else {
            Style::new().add_modifier(Modifier::DIM)
        }
    }

    fn error_style(self) -> Style {
        self.coloured_style(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn coloured_style(self, colour: Color) -> Style {
        if self.has_colour {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }
}

/// Draws the whole screen of `pfc watch`.
pub fn draw_watch_screen(screen: &mut Screen<'_>, app: &mut WatchApp, theme: Theme) {
    let [head, titles, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(screen.area());
    app.scroll_to_cursor(body.height as usize);
    let columns = ColumnWidths::fit_to_width(app, body.width as usize);
    screen.render_widget(heading_line(app, head.width as usize, theme), head);
    screen.render_widget(column_titles_line(app, &columns), titles);
    screen.render_widget(table_widget(app, &columns, body, theme), body);
    screen.render_widget(footer_line(app, theme), foot);
    if app.shows_detail {
        if let Some(row) = app.selected_row() {
            let lines =
                detail::instance_detail_lines(row, &app.frame.cpus, body.width as usize, theme);
            draw_popup(screen, body, &row.name, lines);
        }
    }
    if app.shows_help {
        draw_popup(screen, screen.area(), "Keys", key_help_lines());
    }
}

/// Widths of the columns, in cells. The bars get the space that is left over by the other columns.
struct ColumnWidths {
    name_cells: usize,
    bar_cells: usize,
}

impl ColumnWidths {
    fn fit_to_width(app: &WatchApp, width: usize) -> Self {
        let longest = app
            .rows_matching_filters()
            .map(|r| r.name.chars().count())
            .max();
        let longest = longest.unwrap_or(0).max(MIN_NAME_COLUMN_CELLS);
        let rest = width.saturating_sub(RATE_COLUMN_CELLS + TOTAL_COLUMN_CELLS + 4);
        // The column of names gets at most two thirds of the space that the columns of numbers
        // leave.
        let name = longest
            .min((rest * 2 / 3).max(MIN_NAME_COLUMN_CELLS))
            .min(rest);
        Self {
            name_cells: name,
            bar_cells: rest.saturating_sub(name + 2),
        }
    }
}

fn heading_line(app: &WatchApp, width: usize, theme: Theme) -> Line<'static> {
    let frame = &app.frame;
    let online = frame.cpus.iter().filter(|(_, on)| *on).count();
    let cpus = match frame.cpus.len() {
        all if all == online => format!("{all} CPUs"),
        all => format!("{online} of {all} CPUs online"),
    };
    let shown = app.rows_matching_filters().len();
    let instances = match frame.rows.len() {
        all if all == shown => format!("{all} instances"),
        all => format!("{shown} of {all} instances"),
    };
    let mut parts = vec![
        format!("pfc {}", time::format_time_of_day(frame.realtime_ns)),
        format!("every {}", format_interval(app.interval.as_millis() as u64)),
        instances,
        cpus,
        format!("generation {}", frame.generation),
    ];
    let notice = if app.is_paused {
        "  PAUSED "
    } else if frame.was_reloaded {
        "  module reloaded "
    } else if !frame.is_consistent_per_cpu {
        "  not consistent "
    } else {
        ""
    };
    // If the terminal is too narrow, the last parts of the heading are left out, because the last
    // parts matter least.
    while parts.len() > 1 && parts.join("  ").len() + notice.len() > width {
        parts.pop();
    }
    let mut spans = vec![Span::styled(
        parts.join("  "),
        Style::new().add_modifier(Modifier::BOLD),
    )];
    if !notice.is_empty() {
        spans.push(Span::styled(
            notice,
            theme.notice_style().add_modifier(Modifier::BOLD),
        ));
    }
    Line::from(spans)
}

fn format_interval(ms: u64) -> String {
    match ms {
        ms if ms % 1000 == 0 => format!("{} s", ms / 1000),
        ms if ms > 1000 => format!("{:.1} s", ms as f64 / 1000.0),
        ms => format!("{ms} ms"),
    }
}

fn column_titles_line(app: &WatchApp, columns: &ColumnWidths) -> Line<'static> {
    let arrow = if app.is_reversed { '▲' } else { '▼' };
    let title = |text: &str, sort: SortOrder| match app.sort_order == sort {
        true => format!("{text} {arrow}"),
        false => text.to_owned(),
    };
    let cpus = match (app.frame.cpus.first(), app.frame.cpus.last()) {
        (Some((first, _)), Some((last, _))) if first != last => format!("CPU {first}-{last}"),
        _ => "CPU".to_owned(),
    };
    let cpus: String = cpus.chars().take(columns.bar_cells).collect();
    let text = format!(
        "{:<name$} {:>RATE_COLUMN_CELLS$} {:>TOTAL_COLUMN_CELLS$}  {cpus}",
        title("NAME", SortOrder::Name),
        title("/SECOND", SortOrder::Rate),
        title("TOTAL", SortOrder::Total),
        name = columns.name_cells,
    );
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let all = columns.name_cells + RATE_COLUMN_CELLS + TOTAL_COLUMN_CELLS + 4 + columns.bar_cells;
    Line::styled(format!("{text:<all$}"), style)
}

fn table_widget(
    app: &WatchApp,
    columns: &ColumnWidths,
    area: Rect,
    theme: Theme,
) -> Paragraph<'static> {
    if app.rows_matching_filters().len() == 0 {
        let message = if app.frame.rows.is_empty() {
            "There are no instances; load a provider, such as pfc_sched."
        } else {
            "Nothing matches; Esc clears the filter, z and d show zero and dormant instances."
        };
        return Paragraph::new(message).style(theme.dim_style());
    }
    let lines: Vec<Line<'static>> = app
        .rows_matching_filters()
        .skip(app.first_row_index)
        .take(area.height as usize)
        .map(|row| instance_row_line(row, app, columns, theme))
        .collect();
    Paragraph::new(lines)
}

fn instance_row_line(
    row: &InstanceRow,
    app: &WatchApp,
    columns: &ColumnWidths,
    theme: Theme,
) -> Line<'static> {
    let style = match (
        row.is_live,
        row.is_new() && app.frame.interval_seconds > 0.0,
    ) {
        (false, _) => theme.dim_style(),
        (true, true) => theme.notice_style(),
        (true, false) => Style::new(),
    };
    let rate = match (row.is_live, row.rate_per_second) {
        (false, _) => "dormant".to_owned(),
        (true, Some(rate)) => row.value_unit.format_scaled_amount(rate),
        (true, None) => "-".to_owned(),
    };
    let text = format!(
        "{:<name$} {:>RATE_COLUMN_CELLS$} {:>TOTAL_COLUMN_CELLS$}  ",
        shorten_name_in_middle(&row.name, columns.name_cells),
        rate,
        format_row_total(row),
        name = columns.name_cells,
    );
    let online: Vec<bool> = app.frame.cpus.iter().map(|(_, on)| *on).collect();
    let width = fit_cpu_bars(row.changes_or_levels_per_cpu.len(), columns.bar_cells);
    let bar_style = if row.is_live {
        theme.bar_style()
    } else {
        theme.dim_style()
    };
    let line = Line::from(vec![
        Span::styled(text, style),
        Span::styled(
            draw_cpu_bars(&row.changes_or_levels_per_cpu, &online, width),
            bar_style,
        ),
    ]);
    if Some(row.number) == app.selected_instance_number {
        let all =
            columns.name_cells + RATE_COLUMN_CELLS + TOTAL_COLUMN_CELLS + 4 + columns.bar_cells;
        let pad = all.saturating_sub(line.width());
        let mut spans = line.spans;
        spans.push(Span::raw(" ".repeat(pad)));
        // The colours of the columns are dropped in the row under the cursor, so that the cursor is
        // one unbroken bar.
        let spans = spans.into_iter().map(|s| Span::raw(s.content));
        Line::from_iter(spans).style(Style::new().add_modifier(Modifier::REVERSED))
    } else {
        line
    }
}

/// Formats the total of a row. The total of a row is exact if the exact number fits into the
/// column, and otherwise rounded.
fn format_row_total(row: &InstanceRow) -> String {
    let exact = row.value_unit.format_exact_or_scaled(row.total);
    if exact.len() <= TOTAL_COLUMN_CELLS {
        exact
    } else {
        row.value_unit.format_scaled_amount(row.total as f64)
    }
}

/// Shortens a name to at most `width` characters by replacing its middle with an ellipsis.
fn shorten_name_in_middle(name: &str, width: usize) -> String {
    let len = name.chars().count();
    if len <= width {
        return name.to_owned();
    }
    let tail = width.saturating_sub(1) / 2;
    let head = width.saturating_sub(1 + tail);
    let begin: String = name.chars().take(head).collect();
    let end: String = name.chars().skip(len - tail).collect();
    format!("{begin}…{end}")
}

fn footer_line(app: &WatchApp, theme: Theme) -> Line<'static> {
    if let Some(error) = &app.frame_error {
        return Line::styled(visible::escape(error).into_owned(), theme.error_style());
    }
    match app.input_mode {
        InputMode::Filter => {
            prompt_line("show only: ", &app.filter_text, "  Enter keeps, Esc clears")
        }
        InputMode::Find => prompt_line("find: ", &app.search_text, "  Enter next, Esc ends"),
        InputMode::Commands => match app.selected_row() {
            Some(row) if !row.help.is_empty() => Line::from(format!("{}: {}", row.name, row.help)),
            _ if !app.filter_text.is_empty() => Line::from(format!(
                "showing names with '{}'; Esc clears",
                visible::escape(&app.filter_text)
            )),
            _ => Line::styled(
                "q quit  ? help  / filter  f find  r n t sort  z zeroes  space pause  Enter more",
                theme.dim_style(),
            ),
        },
    }
}

fn prompt_line(what: &'static str, text: &str, hint: &'static str) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Line::from(vec![
        Span::styled(what, bold),
        Span::raw(visible::escape(text).into_owned()),
        Span::styled("_", Style::new().add_modifier(Modifier::SLOW_BLINK)),
        Span::raw(hint),
    ])
}

/// Draws a box in the middle of an area. The box is as large as its text, if the area is large
/// enough.
fn draw_popup(screen: &mut Screen<'_>, outer: Rect, title: &str, lines: Vec<Line<'static>>) {
    let widest = lines.iter().map(Line::width).max().unwrap_or(0);
    let width = (widest.max(title.chars().count() + 2) as u16 + 4).min(outer.width);
    let height = (lines.len() as u16 + 2).min(outer.height);
    let area = Rect {
        x: outer.x + (outer.width - width) / 2,
        y: outer.y + (outer.height - height) / 2,
        width,
        height,
    };
    let block = Block::bordered()
        .title(format!(" {title} "))
        .padding(ratatui::widgets::Padding::horizontal(1));
    screen.render_widget(Clear, area);
    screen.render_widget(Paragraph::new(lines).block(block), area);
}

fn key_help_lines() -> Vec<Line<'static>> {
    [
        "r  n  t     sort by rate, name, total; again: in reverse",
        "/           show only names with this text; Enter keeps, Esc clears",
        "f           find a name; Enter: the next one",
        "Up Down     move the cursor; also j k, PgUp PgDn, Home End",
        "Enter       show details of the selected instance",
        "z  d        hide zero values, dormant instances; again: show",
        "+  -        lengthen, shorten the interval",
        "space  p    pause",
        "Esc         remove the cursor and the filter",
        "q  Ctrl-C   quit",
        "",
        "A grey row is dormant: its driver has deleted it, its last value is kept.",
        "A yellow row was added again in this interval and counts from zero.",
        "The bars show the CPUs, relative to the busiest one of the row; x: offline.",
        "Several CPUs share a bar if there is not enough room.",
    ]
    .into_iter()
    .map(Line::from)
    .collect()
}
