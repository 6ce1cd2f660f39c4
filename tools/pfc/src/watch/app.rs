// SPDX-License-Identifier: GPL-2.0

//! The state of the screen of `pfc watch`: which rows are shown, their order, and the effect of
//! keys. The state is independent of the terminal; `view.rs` draws the state.

use std::time::Duration;

use crate::live::keys::Key;
use crate::watch::sampler::{InstanceRow, IntervalFrame};

/// The intervals between updates, in milliseconds, that the keys + and - select.
const INTERVAL_CHOICES_MS: &[u64] = &[100, 200, 500, 1000, 2000, 5000, 10_000, 60_000];

/// The sort order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortOrder {
    #[default]
    Rate,
    Name,
    Total,
}

/// The effect of typed characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InputMode {
    /// No text is typed: each key is a command.
    #[default]
    Commands,
    /// The filter: only instances whose names contain the typed text are shown.
    Filter,
    /// The search: the cursor moves to the next instance whose name contains the typed text.
    Find,
}

/// The state of the screen of `pfc watch`.
#[derive(Default)]
pub struct WatchApp {
    pub frame: IntervalFrame,
    /// The error message of the last attempt to read a new frame, if this attempt failed.
    pub frame_error: Option<String>,
    pub sort_order: SortOrder,
    pub is_reversed: bool,
    pub input_mode: InputMode,
    pub filter_text: String,
    pub search_text: String,
    pub is_paused: bool,
    pub shows_help: bool,
    /// True if a box shows all details of the selected instance.
    pub shows_detail: bool,
    pub hide_zero_total_and_rate: bool,
    pub hide_dormant: bool,
    pub interval: Duration,
    pub is_quitting: bool,
    /// The number of the instance under the cursor. The cursor stays on the same instance when rows
    /// move.
    pub selected_instance_number: Option<u32>,
    /// Index in `matching_row_indices` of the first row on the screen.
    pub first_row_index: usize,
    /// The number of rows that fit on the screen, set by [`WatchApp::scroll_to_cursor`].
    pub nr_visible_rows: usize,
    /// The rows that match the filters, as indices into the rows of the frame. The indices are in
    /// the sort order of the rows.
    matching_row_indices: Vec<usize>,
}

impl WatchApp {
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            nr_visible_rows: 1,
            ..Self::default()
        }
    }

    /// Replaces the shown frame by a new one.
    pub fn set_frame(&mut self, frame: IntervalFrame) {
        self.frame_error = None;
        self.frame = frame;
        self.update_matching_rows();
    }

    /// Returns the rows that match the filters, in sort order.
    pub fn rows_matching_filters(&self) -> impl ExactSizeIterator<Item = &InstanceRow> + '_ {
        self.matching_row_indices
            .iter()
            .map(|n| &self.frame.rows[*n])
    }

    /// Returns the row under the cursor, if that row is shown.
    pub fn selected_row(&self) -> Option<&InstanceRow> {
        self.rows_matching_filters()
            .find(|row| Some(row.number) == self.selected_instance_number)
    }

    /// Scrolls so that the row under the cursor is among the `height` rows on the screen.
    pub fn scroll_to_cursor(&mut self, height: usize) {
        self.nr_visible_rows = height.max(1);
        if let Some(at) = self.selected_row_index() {
            self.first_row_index = self
                .first_row_index
                .clamp(at.saturating_sub(self.nr_visible_rows - 1), at);
        } else if self.selected_instance_number.is_none() {
            self.first_row_index = 0;
        }
        self.first_row_index = self.first_row_index.min(
            self.matching_row_indices
                .len()
                .saturating_sub(self.nr_visible_rows),
        );
    }

    /// Applies the effect of a pressed key to the state.
    pub fn handle_key(&mut self, key: Key) {
        if let Key::Ctrl(letter) = key {
            self.is_quitting |= letter == 'c';
            return;
        }
        if self.input_mode == InputMode::Commands {
            self.handle_command_key(key);
        } else {
            self.handle_text_key(key);
        }
        self.update_matching_rows();
    }

    fn handle_command_key(&mut self, key: Key) {
        if self.shows_help {
            // Any key closes the help box.
            self.shows_help = false;
            return;
        }
        match key {
            Key::Char('q') => self.is_quitting = true,
            Key::Esc if self.shows_detail => self.shows_detail = false,
            Key::Esc => self.clear_texts_and_cursor(),
            Key::Char('?' | 'h') | Key::F1 => self.shows_help = true,
            Key::Char('r') => self.select_sort_order(SortOrder::Rate),
            Key::Char('n') => self.select_sort_order(SortOrder::Name),
            Key::Char('t') => self.select_sort_order(SortOrder::Total),
            Key::Char('/') => self.input_mode = InputMode::Filter,
            Key::Char('f') => self.input_mode = InputMode::Find,
            Key::Char('p' | ' ') => self.is_paused = !self.is_paused,
            Key::Char('z') => self.hide_zero_total_and_rate = !self.hide_zero_total_and_rate,
            Key::Char('d') => self.hide_dormant = !self.hide_dormant,
            Key::Char('+' | '=') => self.step_interval(true),
            Key::Char('-') => self.step_interval(false),
            Key::Enter => self.shows_detail = !self.shows_detail && self.ensure_row_is_selected(),
            Key::Down | Key::Char('j') => self.move_cursor(1),
            Key::Up | Key::Char('k') => self.move_cursor(-1),
            Key::PageDown => self.move_cursor(self.nr_visible_rows as isize),
            Key::PageUp => self.move_cursor(-(self.nr_visible_rows as isize)),
            Key::Home | Key::Char('g') => self.select_row_at(0),
            Key::End | Key::Char('G') => self.select_row_at(usize::MAX),
            _ => {}
        }
    }

    /// Handles a key while a filter or a search text is typed.
    fn handle_text_key(&mut self, key: Key) {
        let text = match self.input_mode {
            InputMode::Find => &mut self.search_text,
            _ => &mut self.filter_text,
        };
        match key {
            Key::Char(c) => text.push(c),
            Key::Backspace => drop(text.pop()),
            Key::Esc => {
                text.clear();
                self.input_mode = InputMode::Commands;
            }
            Key::Enter if self.input_mode == InputMode::Filter => {
                self.input_mode = InputMode::Commands
            }
            _ => {}
        }
        if self.input_mode == InputMode::Find {
            match key {
                Key::Enter | Key::Down | Key::Tab => self.move_to_search_match(1),
                Key::Up => self.move_to_search_match(-1),
                Key::Char(_) => self.move_to_search_match(0),
                _ => {}
            }
        }
    }

    /// Sorts the rows. If the user selects the current sort order again, the order is reversed.
    fn select_sort_order(&mut self, sort: SortOrder) {
        self.is_reversed = self.sort_order == sort && !self.is_reversed;
        self.sort_order = sort;
    }

    fn clear_texts_and_cursor(&mut self) {
        self.filter_text.clear();
        self.search_text.clear();
        self.selected_instance_number = None;
    }

    fn step_interval(&mut self, longer: bool) {
        let now = self.interval.as_millis() as u64;
        let next = if longer {
            INTERVAL_CHOICES_MS.iter().find(|ms| **ms > now)
        } else {
            INTERVAL_CHOICES_MS.iter().rfind(|ms| **ms < now)
        };
        if let Some(ms) = next {
            self.interval = Duration::from_millis(*ms);
        }
    }

    fn selected_row_index(&self) -> Option<usize> {
        let selected = self.selected_instance_number?;
        self.rows_matching_filters()
            .position(|row| row.number == selected)
    }

    fn ensure_row_is_selected(&mut self) -> bool {
        if self.selected_row_index().is_none() {
            self.select_row_at(self.first_row_index);
        }
        self.selected_instance_number.is_some()
    }

    fn move_cursor(&mut self, delta: isize) {
        match self.selected_row_index() {
            Some(at) => self.select_row_at(at.saturating_add_signed(delta)),
            None => self.select_row_at(self.first_row_index),
        }
    }

    fn select_row_at(&mut self, index: usize) {
        let index = index.min(self.matching_row_indices.len().saturating_sub(1));
        let selected = self
            .rows_matching_filters()
            .nth(index)
            .map(|row| row.number);
        self.selected_instance_number = selected;
    }

    /// Moves the cursor to the next row whose name contains the search text. `direction` is 1 for a
    /// row after the cursor, -1 for a row before the cursor, and 0 for a row at or after the
    /// cursor.
    fn move_to_search_match(&mut self, direction: isize) {
        let len = self.matching_row_indices.len();
        let from = self.selected_row_index().unwrap_or(0);
        let text = self.search_text.to_lowercase();
        let found = (0..len)
            .map(|step| match direction {
                -1 => (from + 2 * len - 1 - step) % len,
                0 => (from + step) % len,
                _ => (from + 1 + step) % len,
            })
            .find(|at| {
                let row = &self.frame.rows[self.matching_row_indices[*at]];
                row.name.to_lowercase().contains(&text)
            });
        if let Some(at) = found {
            self.select_row_at(at);
        }
    }

    /// Recomputes which rows match the filters, and sorts these rows.
    fn update_matching_rows(&mut self) {
        let rows = &self.frame.rows;
        let filter = self.filter_text.to_lowercase();
        self.matching_row_indices = (0..rows.len())
            .filter(|n| {
                let row = &rows[*n];
                let idle = row.total == 0 && row.rate_per_second.unwrap_or(0.0) == 0.0;
                let hidden =
                    self.hide_zero_total_and_rate && idle || self.hide_dormant && !row.is_live;
                !hidden && row.name.to_lowercase().contains(&filter)
            })
            .collect();
        let sort = self.sort_order;
        self.matching_row_indices.sort_by(|a, b| {
            let (a, b) = (&rows[*a], &rows[*b]);
            let by_name = a.name.cmp(&b.name);
            match sort {
                SortOrder::Rate => b
                    .rate_sort_key()
                    .total_cmp(&a.rate_sort_key())
                    .then(by_name),
                SortOrder::Name => by_name,
                SortOrder::Total => b
                    .total_sort_key()
                    .total_cmp(&a.total_sort_key())
                    .then(by_name),
            }
        });
        if self.is_reversed {
            self.matching_row_indices.reverse();
        }
    }
}
