// SPDX-License-Identifier: GPL-2.0

//! The state of the screen of `pfc watch`: which rows are shown, their order, and the effect of
//! keys. The state is independent of the terminal; `view.rs` draws the state.

use std::time::Duration;

use crate::live::keys::Key;
use crate::watch::sampler::{Frame, Row};

/// The intervals between updates, in milliseconds, that the keys + and - select.
const INTERVALS: &[u64] = &[100, 200, 500, 1000, 2000, 5000, 10_000, 60_000];

/// The sort order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Rate,
    Name,
    Total,
}

/// The destination of typed characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// No text is typed: each key is a command.
    Keys,
    /// The filter: only instances whose names contain the typed text are shown.
    Filter,
    /// The search: the cursor moves to the next instance whose name contains the typed text.
    Find,
}

/// The state of the screen of `pfc watch`.
pub struct App {
    pub frame: Frame,
    /// The error message of the last attempt to take a frame, if that attempt failed.
    pub error: Option<String>,
    pub sort: Sort,
    pub reversed: bool,
    pub prompt: Prompt,
    pub filter: String,
    pub find: String,
    pub paused: bool,
    pub help: bool,
    /// True if a box shows all details of the selected instance.
    pub detail: bool,
    pub hide_zero: bool,
    pub hide_dormant: bool,
    pub interval: Duration,
    pub quit: bool,
    /// The number of the instance under the cursor. The cursor stays on the same instance when rows
    /// move.
    pub selected: Option<u32>,
    /// Index in `order` of the first row on the screen.
    pub top: usize,
    /// The number of rows that fit on the screen, set by [`App::scroll`].
    pub height: usize,
    /// The rows that match the filters, as indices into the rows of the frame. The indices are in
    /// the sort order of the rows.
    order: Vec<usize>,
}

impl App {
    pub fn new(interval: Duration) -> Self {
        Self {
            frame: Frame::default(),
            error: None,
            sort: Sort::Rate,
            reversed: false,
            prompt: Prompt::Keys,
            filter: String::new(),
            find: String::new(),
            paused: false,
            help: false,
            detail: false,
            hide_zero: false,
            hide_dormant: false,
            interval,
            quit: false,
            selected: None,
            top: 0,
            height: 1,
            order: Vec::new(),
        }
    }

    /// Replaces the shown frame by a new one.
    pub fn set_frame(&mut self, frame: Frame) {
        self.error = None;
        self.frame = frame;
        self.update_order();
    }

    /// Returns the rows that match the filters, in sort order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &Row> + '_ {
        self.order.iter().map(|n| &self.frame.rows[*n])
    }

    /// Returns the row under the cursor, if that row is shown.
    pub fn selected_row(&self) -> Option<&Row> {
        self.rows().find(|row| Some(row.number) == self.selected)
    }

    /// Scrolls so that the row under the cursor is among the `height` rows on the screen.
    pub fn scroll(&mut self, height: usize) {
        self.height = height.max(1);
        if let Some(at) = self.selected_index() {
            self.top = self.top.clamp(at.saturating_sub(self.height - 1), at);
        } else if self.selected.is_none() {
            self.top = 0;
        }
        self.top = self.top.min(self.order.len().saturating_sub(self.height));
    }

    /// Applies the effect of a pressed key to the state.
    pub fn handle_key(&mut self, key: Key) {
        if let Key::Ctrl(letter) = key {
            self.quit |= letter == 'c';
            return;
        }
        if self.prompt == Prompt::Keys {
            self.handle_command(key);
        } else {
            self.handle_text(key);
        }
        self.update_order();
    }

    fn handle_command(&mut self, key: Key) {
        if self.help {
            // Any key closes the help box.
            self.help = false;
            return;
        }
        match key {
            Key::Char('q') => self.quit = true,
            Key::Esc if self.detail => self.detail = false,
            Key::Esc => self.clear(),
            Key::Char('?' | 'h') | Key::F1 => self.help = true,
            Key::Char('r') => self.sort_by(Sort::Rate),
            Key::Char('n') => self.sort_by(Sort::Name),
            Key::Char('t') => self.sort_by(Sort::Total),
            Key::Char('/') => self.prompt = Prompt::Filter,
            Key::Char('f') => self.prompt = Prompt::Find,
            Key::Char('p' | ' ') => self.paused = !self.paused,
            Key::Char('z') => self.hide_zero = !self.hide_zero,
            Key::Char('d') => self.hide_dormant = !self.hide_dormant,
            Key::Char('+' | '=') => self.step_interval(true),
            Key::Char('-') => self.step_interval(false),
            Key::Enter => self.detail = !self.detail && self.select_any(),
            Key::Down | Key::Char('j') => self.move_cursor(1),
            Key::Up | Key::Char('k') => self.move_cursor(-1),
            Key::PageDown => self.move_cursor(self.height as isize),
            Key::PageUp => self.move_cursor(-(self.height as isize)),
            Key::Home | Key::Char('g') => self.select_index(0),
            Key::End | Key::Char('G') => self.select_index(usize::MAX),
            _ => {}
        }
    }

    /// Handles a key while a filter or a search text is typed.
    fn handle_text(&mut self, key: Key) {
        let text = match self.prompt {
            Prompt::Find => &mut self.find,
            _ => &mut self.filter,
        };
        match key {
            Key::Char(c) => text.push(c),
            Key::Backspace => drop(text.pop()),
            Key::Esc => {
                text.clear();
                self.prompt = Prompt::Keys;
            }
            Key::Enter if self.prompt == Prompt::Filter => self.prompt = Prompt::Keys,
            _ => {}
        }
        if self.prompt == Prompt::Find {
            match key {
                Key::Enter | Key::Down | Key::Tab => self.find_next(1),
                Key::Up => self.find_next(-1),
                Key::Char(_) => self.find_next(0),
                _ => {}
            }
        }
    }

    /// Sorts the rows. If the user selects the current sort order again, the order is reversed.
    fn sort_by(&mut self, sort: Sort) {
        self.reversed = self.sort == sort && !self.reversed;
        self.sort = sort;
    }

    fn clear(&mut self) {
        self.filter.clear();
        self.find.clear();
        self.selected = None;
    }

    fn step_interval(&mut self, longer: bool) {
        let now = self.interval.as_millis() as u64;
        let next = if longer {
            INTERVALS.iter().find(|ms| **ms > now)
        } else {
            INTERVALS.iter().rfind(|ms| **ms < now)
        };
        if let Some(ms) = next {
            self.interval = Duration::from_millis(*ms);
        }
    }

    fn selected_index(&self) -> Option<usize> {
        let selected = self.selected?;
        self.rows().position(|row| row.number == selected)
    }

    fn select_any(&mut self) -> bool {
        if self.selected_index().is_none() {
            self.select_index(self.top);
        }
        self.selected.is_some()
    }

    fn move_cursor(&mut self, delta: isize) {
        match self.selected_index() {
            Some(at) => self.select_index(at.saturating_add_signed(delta)),
            None => self.select_index(self.top),
        }
    }

    fn select_index(&mut self, index: usize) {
        let index = index.min(self.order.len().saturating_sub(1));
        let selected = self.rows().nth(index).map(|row| row.number);
        self.selected = selected;
    }

    /// Moves the cursor to the next row whose name contains the search text. `direction` is 1 for a
    /// row after the cursor, -1 for a row before the cursor, and 0 for a row at or after the
    /// cursor.
    fn find_next(&mut self, direction: isize) {
        let len = self.order.len();
        let from = self.selected_index().unwrap_or(0);
        let text = self.find.to_lowercase();
        let found = (0..len)
            .map(|step| match direction {
                -1 => (from + 2 * len - 1 - step) % len,
                0 => (from + step) % len,
                _ => (from + 1 + step) % len,
            })
            .find(|at| {
                let row = &self.frame.rows[self.order[*at]];
                row.name.to_lowercase().contains(&text)
            });
        if let Some(at) = found {
            self.select_index(at);
        }
    }

    /// Recomputes which rows match the filters, and sorts these rows.
    fn update_order(&mut self) {
        let rows = &self.frame.rows;
        let filter = self.filter.to_lowercase();
        self.order = (0..rows.len())
            .filter(|n| {
                let row = &rows[*n];
                let idle = row.total == 0 && row.rate.unwrap_or(0.0) == 0.0;
                let hidden = self.hide_zero && idle || self.hide_dormant && !row.live;
                !hidden && row.name.to_lowercase().contains(&filter)
            })
            .collect();
        let sort = self.sort;
        self.order.sort_by(|a, b| {
            let (a, b) = (&rows[*a], &rows[*b]);
            let by_name = a.name.cmp(&b.name);
            match sort {
                Sort::Rate => b.sort_rate().total_cmp(&a.sort_rate()).then(by_name),
                Sort::Name => by_name,
                Sort::Total => b.sort_total().total_cmp(&a.sort_total()).then(by_name),
            }
        });
        if self.reversed {
            self.order.reverse();
        }
    }
}
