// SPDX-License-Identifier: GPL-2.0

//! `pfc ppa --top`: shows periodically what tasks and CPUs have done since the last update, as a
//! live screen on a terminal or as lines in a pipe.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use ppa::{Device, Error};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::error::{Failure, TryingTo};
use crate::live::keys::Key;
use crate::live::{self, next_due, Screen};
use crate::output::Out;
use crate::ppa::args::{PpaArgs, Sort};
use crate::ppa::change::{Change, Frame, TITLES};
use crate::ppa::cpus;
use crate::stat::event_loop::EventLoop;
use crate::stat::WAIT;

/// Default number of rows of a table that is written to a pipe.
const DEFAULT_ROWS: usize = 20;

/// Reads the values of tasks and CPUs, and keeps the last values to compute later changes.
struct FrameReader {
    device: Device,
    khz: u32,
    /// The IDs of the tasks to show; empty for all tasks.
    pids: Vec<u32>,
    last_frame: Frame,
}

impl FrameReader {
    fn open(args: &PpaArgs) -> Result<Self, Failure> {
        let device = Device::open()?;
        let info = device.info()?;
        let mut reader = Self {
            device,
            khz: info.khz,
            pids: args.pids().collect(),
            last_frame: Frame::default(),
        };
        reader.last_frame = reader.read_frame()?;
        super::warn(&info, reader.last_frame.tasks.len());
        Ok(reader)
    }

    fn read_frame(&mut self) -> Result<Frame, Failure> {
        let now = self.device.info()?.now;
        if self.pids.is_empty() {
            return Ok(Frame {
                now,
                tasks: self.device.tasks()?,
                cpus: self.device.cpus()?,
            });
        }
        let mut tasks = Vec::new();
        for pid in &self.pids {
            match self.device.task(*pid) {
                Ok(task) => tasks.push(task),
                Err(Error::NoTask(_)) if !self.last_frame.tasks.is_empty() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Frame {
            now,
            tasks,
            cpus: self.device.cpus().unwrap_or_default(),
        })
    }

    /// Returns the changes of tasks and CPUs since the last call. Returns `None` if the user
    /// selected tasks and all selected tasks have exited.
    fn next_change(&mut self) -> Result<Option<Change>, Failure> {
        let now = self.read_frame()?;
        if !self.pids.is_empty() && now.tasks.is_empty() {
            return Ok(None);
        }
        let change = Change::new(&now, &self.last_frame, self.khz);
        self.last_frame = now;
        Ok(Some(change))
    }
}

pub fn run(args: &PpaArgs, out: &mut Out) -> Result<(), Failure> {
    let reader = FrameReader::open(args)?;
    if args.plain || args.json || !out.is_terminal() {
        return run_plain(reader, args, out);
    }
    let mut screen = PpaScreen {
        reader,
        delay: Duration::from_secs_f64(args.delay),
        nr_rows: args.rows.unwrap_or(500),
        keys: KeyState {
            sort: args.sort,
            paused: false,
        },
        change: None,
    };
    live::run(&mut screen, args.times)
}

fn run_plain(mut reader: FrameReader, args: &PpaArgs, out: &mut Out) -> Result<(), Failure> {
    let delay = Duration::from_secs_f64(args.delay);
    let mut event_loop = EventLoop::new().trying_to("catch signals")?;
    let mut due = Instant::now();
    let mut nr_tables = 0;
    while args.times.is_none_or(|times| nr_tables < times) {
        due = next_due(due, delay, Instant::now());
        if !event_loop.sleep_until(due).trying_to(WAIT)? {
            break;
        }
        let Some(mut change) = reader.next_change()? else {
            break;
        };
        let lines = change.format_lines(args.sort, args.rows.unwrap_or(DEFAULT_ROWS));
        if args.json {
            writeln!(out, "{}", change.to_json(args.rows.unwrap_or(usize::MAX)))?;
        } else {
            writeln!(out, "# {}", change.format_title(args.sort))?;
            writeln!(out, "{}", out.paint(crate::output::Style::Title, TITLES))?;
            for line in lines {
                writeln!(out, "{line}")?;
            }
            if args.cpus {
                writeln!(out)?;
                cpus::print_table(&change.cpus, change.khz, true, out)?;
            }
            writeln!(out)?;
        }
        out.flush()?;
        nr_tables += 1;
    }
    Ok(())
}

/// The settings of `--top` that keys change.
struct KeyState {
    sort: Sort,
    paused: bool,
}

impl KeyState {
    fn press(&mut self, key: Key) -> ControlFlow<()> {
        match key {
            Key::Char('q') | Key::Esc | Key::Ctrl('c') => return ControlFlow::Break(()),
            Key::Char(' ') => self.paused = !self.paused,
            Key::Char('t') => self.sort = Sort::Time,
            Key::Char('l') => self.sort = Sort::Latency,
            Key::Char('i') => self.sort = Sort::Involuntary,
            Key::Char('r') => self.sort = Sort::Irq,
            Key::Char('s') => self.sort = Sort::Syscalls,
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

struct PpaScreen {
    reader: FrameReader,
    delay: Duration,
    nr_rows: usize,
    keys: KeyState,
    change: Option<Change>,
}

impl Screen for PpaScreen {
    fn draw(&mut self, frame: &mut ratatui::Frame<'_>) {
        let (title, lines) = match &mut self.change {
            Some(change) => (
                change.format_title(self.keys.sort),
                change.format_lines(self.keys.sort, self.nr_rows),
            ),
            None => ("accounting ...".to_owned(), Vec::new()),
        };
        let paused = if self.keys.paused { "paused; " } else { "" };
        let help = format!("{paused}sort: t l i r s, space: pause, q: quit");
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut all = vec![
            Line::from(title),
            Line::from(help),
            Line::styled(TITLES, bold),
        ];
        let room = frame.area().height.into();
        all.extend(lines.into_iter().take(room).map(Line::from));
        frame.render_widget(Paragraph::new(all), frame.area());
    }

    fn handle_key(&mut self, key: Key) -> ControlFlow<()> {
        self.keys.press(key)
    }

    fn interval(&self) -> Option<Duration> {
        (!self.keys.paused).then_some(self.delay)
    }

    fn update(&mut self) -> Result<ControlFlow<()>, Failure> {
        Ok(match self.reader.next_change()? {
            Some(change) => {
                self.change = Some(change);
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r4_2_keys_sort_pause_and_quit() {
        let mut keys = KeyState {
            sort: Sort::Time,
            paused: false,
        };
        for (key, sort) in [
            ('l', Sort::Latency),
            ('i', Sort::Involuntary),
            ('r', Sort::Irq),
            ('s', Sort::Syscalls),
            ('x', Sort::Syscalls),
            ('t', Sort::Time),
        ] {
            assert!(keys.press(Key::Char(key)).is_continue());
            assert_eq!(keys.sort, sort);
        }
        assert!(keys.press(Key::Char(' ')).is_continue());
        assert!(keys.paused);
        assert!(keys.press(Key::Ctrl('c')).is_break());
    }
}
