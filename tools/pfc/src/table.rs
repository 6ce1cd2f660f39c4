// SPDX-License-Identifier: GPL-2.0

//! Prints text tables with aligned columns.

use std::borrow::Cow;

use crate::error::Failure;
use crate::output::{Out, TextStyle};

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnAlign {
    Left,
    Right,
}

/// A table with a title for each column. Each column is as wide as its widest cell.
pub struct Table {
    columns: Vec<(String, ColumnAlign)>,
    rows: Vec<TableRow>,
}

enum TableRow {
    Cells(Vec<String>, Option<TextStyle>),
    /// A line of text that is not divided into columns. Lines of text and rows of cells are printed
    /// in the order in which they were added to the table.
    Line(String),
}

impl Table {
    pub fn new() -> Self {
        Self {
            columns: Vec::new(),
            rows: Vec::new(),
        }
    }

    pub fn with_column(mut self, title: impl Into<String>, align: ColumnAlign) -> Self {
        self.columns.push((title.into(), align));
        self
    }

    /// Adds columns, whose titles are separated by `|`. A title with a leading `>` is the title of a
    /// column that is aligned to the right.
    pub fn with_columns(self, titles: &str) -> Self {
        let columns = titles.split('|');
        columns.fold(self, |table, title| match title.strip_prefix('>') {
            Some(title) => table.with_column(title, ColumnAlign::Right),
            None => table.with_column(title, ColumnAlign::Left),
        })
    }

    /// Adds a row. Control characters in the cells are made visible.
    pub fn add_row(&mut self, mut cells: Vec<String>, style: Option<TextStyle>) {
        for cell in &mut cells {
            if let Cow::Owned(shown) = visible::escape(cell) {
                *cell = shown;
            }
        }
        self.rows.push(TableRow::Cells(cells, style));
    }

    pub fn add_text_line(&mut self, line: String) {
        self.rows.push(TableRow::Line(line));
    }

    pub fn print(&self, out: &mut Out) -> Result<(), Failure> {
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(n, (title, _))| {
                let cells = self.rows.iter().filter_map(|row| match row {
                    TableRow::Cells(cells, _) => cells.get(n),
                    TableRow::Line(_) => None,
                });
                cells
                    .chain([title])
                    .map(|t| width_in_terminal_columns(t))
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let titles: Vec<String> = self.columns.iter().map(|(t, _)| t.clone()).collect();
        let line = self.format_row(&titles, &widths);
        writeln!(out, "{}", out.paint(TextStyle::Title, &line))?;
        for row in &self.rows {
            match row {
                TableRow::Cells(cells, None) => {
                    writeln!(out, "{}", self.format_row(cells, &widths))?
                }
                TableRow::Cells(cells, Some(style)) => {
                    let line = self.format_row(cells, &widths);
                    writeln!(out, "{}", out.paint(*style, &line))?;
                }
                TableRow::Line(line) => writeln!(out, "{line}")?,
            }
        }
        Ok(())
    }

    fn format_row(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, (_, align)), column_width) in cells.iter().zip(&self.columns).zip(widths) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let pad = column_width.saturating_sub(width_in_terminal_columns(cell));
            if *align == ColumnAlign::Right {
                line.extend(std::iter::repeat_n(' ', pad));
            }
            line.push_str(cell);
            if *align == ColumnAlign::Left {
                line.extend(std::iter::repeat_n(' ', pad));
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Returns the width of a text in terminal columns. Names are mostly ASCII, so one column for each
/// character is accurate enough.
fn width_in_terminal_columns(text: &str) -> usize {
    text.chars().count()
}
