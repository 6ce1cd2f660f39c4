// SPDX-License-Identifier: GPL-2.0

//! `pfc ppa --top`: shows changes periodically, in a table on a terminal or as lines in a pipe.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ppa::{Device, Error};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use ratatui::DefaultTerminal;

use crate::error::Failure;
use crate::output::Out;
use crate::ppa::args::{PpaArgs, Sort};
use crate::ppa::change::{Change, Frame, TITLES};
use crate::ppa::cpus;
use crate::ppa::record::{register_stop_flag, sleep_until};

/// Maximum time until a pressed key is handled.
const MAX_KEY_DELAY: Duration = Duration::from_millis(100);
/// Default number of rows of a table that is written to a pipe.
const DEFAULT_ROWS: usize = 20;

/// Reads frames with the values of tasks and CPUs, and keeps the last frame.
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
    let stop = register_stop_flag()?;
    let mut reader = FrameReader::open(args)?;
    if args.plain || args.json || !out.is_terminal() {
        return run_plain(&mut reader, args, &stop, out);
    }
    // try_init() also installs a panic hook that restores the terminal.
    let mut terminal = ratatui::try_init().map_err(Failure::Terminal)?;
    let result = run_terminal(&mut terminal, &mut reader, args, &stop);
    ratatui::restore();
    result
}

fn run_plain(
    reader: &mut FrameReader,
    args: &PpaArgs,
    stop: &AtomicBool,
    out: &mut Out,
) -> Result<(), Failure> {
    let delay = Duration::from_secs_f64(args.delay);
    let mut due = Instant::now();
    let mut nr_tables = 0;
    while args.times.is_none_or(|times| nr_tables < times) {
        due = (due + delay).max(Instant::now());
        if !sleep_until(due, stop) {
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
    quit: bool,
}

impl KeyState {
    fn press(&mut self, key: KeyEvent) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            _ if key.kind == KeyEventKind::Release => {}
            KeyCode::Char('c') if control => self.quit = true,
            _ if control => {}
            KeyCode::Char('q') | KeyCode::Esc => self.quit = true,
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('t') => self.sort = Sort::Time,
            KeyCode::Char('l') => self.sort = Sort::Latency,
            KeyCode::Char('i') => self.sort = Sort::Involuntary,
            KeyCode::Char('r') => self.sort = Sort::Irq,
            KeyCode::Char('s') => self.sort = Sort::Syscalls,
            _ => {}
        }
    }
}

fn run_terminal(
    terminal: &mut DefaultTerminal,
    reader: &mut FrameReader,
    args: &PpaArgs,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let delay = Duration::from_secs_f64(args.delay);
    let (mut due, mut nr_tables) = (Instant::now() + delay.min(MAX_KEY_DELAY * 5), 0);
    let mut keys = KeyState {
        sort: args.sort,
        paused: false,
        quit: false,
    };
    let mut change: Option<Change> = None;
    while !stop.load(Ordering::Relaxed) && !keys.quit {
        let (title, lines) = match &mut change {
            Some(change) => (
                change.format_title(keys.sort),
                change.format_lines(keys.sort, args.rows.unwrap_or(500)),
            ),
            None => ("accounting ...".to_owned(), Vec::new()),
        };
        let paused = if keys.paused { "paused; " } else { "" };
        let help = format!("{paused}sort: t l i r s, space: pause, q: quit");
        terminal
            .draw(|screen| {
                let bold = Style::new().add_modifier(Modifier::BOLD);
                let mut all = vec![
                    Line::from(title),
                    Line::from(help),
                    Line::styled(TITLES, bold),
                ];
                let room = screen.area().height.into();
                all.extend(lines.iter().take(room).map(|l| Line::from(l.as_str())));
                screen.render_widget(Paragraph::new(all), screen.area());
            })
            .map_err(Failure::Terminal)?;
        if event::poll(MAX_KEY_DELAY).map_err(Failure::Terminal)? {
            if let Event::Key(key) = event::read().map_err(Failure::Terminal)? {
                keys.press(key);
            }
        }
        if Instant::now() < due || keys.paused {
            continue;
        }
        match reader.next_change()? {
            Some(next) => change = Some(next),
            None => break,
        }
        nr_tables += 1;
        if args.times.is_some_and(|times| nr_tables >= times) {
            break;
        }
        due = Instant::now() + delay;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r4_2_keys_sort_pause_and_quit() {
        let mut keys = KeyState {
            sort: Sort::Time,
            paused: false,
            quit: false,
        };
        for (key, sort) in [
            ('l', Sort::Latency),
            ('i', Sort::Involuntary),
            ('r', Sort::Irq),
            ('s', Sort::Syscalls),
            ('x', Sort::Syscalls),
            ('t', Sort::Time),
        ] {
            keys.press(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE));
            assert_eq!(keys.sort, sort);
        }
        keys.press(KeyEvent::new(KeyCode::Char(' '), KeyModifiers::NONE));
        assert!(keys.paused && !keys.quit);
        keys.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(keys.quit);
    }
}
