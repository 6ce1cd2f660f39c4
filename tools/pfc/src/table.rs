// SPDX-License-Identifier: GPL-2.0

//! Text tables with aligned columns.

use std::io::{self, Write};

use crate::output::{Out, Style};

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lean {
    Left,
    Right,
}

/// A table with titles. Each column is as wide as its widest cell.
pub struct Table {
    columns: Vec<(String, Lean)>,
    rows: Vec<Row>,
}

enum Row {
    Cells(Vec<String>, Option<Style>),
    /// A line that is not divided into columns, printed after the row before it.
    Below(String),
}

impl Table {
    pub fn new() -> Self {
        Self {
            columns: Vec::new(),
            rows: Vec::new(),
        }
    }

    pub fn column(mut self, title: impl Into<String>, lean: Lean) -> Self {
        self.columns.push((title.into(), lean));
        self
    }

    pub fn row(&mut self, cells: Vec<String>, style: Option<Style>) {
        self.rows.push(Row::Cells(cells, style));
    }

    pub fn below(&mut self, line: String) {
        self.rows.push(Row::Below(line));
    }

    pub fn print(&self, out: &mut Out) -> io::Result<()> {
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(n, (title, _))| {
                let cells = self.rows.iter().filter_map(|row| match row {
                    Row::Cells(cells, _) => cells.get(n),
                    Row::Below(_) => None,
                });
                cells.chain([title]).map(|t| width(t)).max().unwrap_or(0)
            })
            .collect();
        let titles: Vec<String> = self.columns.iter().map(|(t, _)| t.clone()).collect();
        let line = self.line(&titles, &widths);
        writeln!(out, "{}", out.paint(Style::Title, &line))?;
        for row in &self.rows {
            match row {
                Row::Cells(cells, None) => writeln!(out, "{}", self.line(cells, &widths))?,
                Row::Cells(cells, Some(style)) => {
                    let line = self.line(cells, &widths);
                    writeln!(out, "{}", out.paint(*style, &line))?;
                }
                Row::Below(line) => writeln!(out, "{line}")?,
            }
        }
        Ok(())
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, (_, lean)), full) in cells.iter().zip(&self.columns).zip(widths) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let pad = full.saturating_sub(width(cell));
            if *lean == Lean::Right {
                line.extend(std::iter::repeat_n(' ', pad));
            }
            line.push_str(cell);
            if *lean == Lean::Left {
                line.extend(std::iter::repeat_n(' ', pad));
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Returns the number of terminal columns of a text. One per character is close enough, as names
/// are mostly ASCII.
fn width(text: &str) -> usize {
    text.chars().count()
}
