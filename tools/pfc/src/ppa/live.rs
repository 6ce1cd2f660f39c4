// SPDX-License-Identifier: GPL-2.0

//! `pfc ppa --top`: shows periodically what tasks and CPUs have done since the last update, as a
//! live screen on a terminal or as lines in a pipe.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use ppa::{Device, Task};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::error::{Failure, TryingTo};
use crate::live::keys::Key;
use crate::live::{self, next_update_time, LiveScreen};
use crate::output::Out;
use crate::ppa::args::{PpaArgs, TaskSortKey};
use crate::ppa::change::{AccountingChange, AccountingSample, TASK_CHANGE_TABLE_TITLES};
use crate::ppa::cpus;
use crate::stat::event_loop::EventLoop;
use crate::stat::WAIT_FOR_SIGNALS_ACTION;

/// Default number of rows of a table in plain text, in a pipe or with `--plain`.
const DEFAULT_PLAIN_TABLE_ROWS: usize = 20;

/// Reads the values of tasks and CPUs, and keeps the last values to compute later changes.
struct AccountingChangeReader {
    device: Device,
    tick_khz: u32,
    /// The IDs of the tasks to show; empty for all tasks.
    pids: Vec<u32>,
    /// True if the values of each CPU are shown.
    shows_cpus: bool,
    last_sample: AccountingSample,
}

impl AccountingChangeReader {
    fn open(args: &PpaArgs) -> Result<Self, Failure> {
        let device = Device::open()?;
        let info = device.info()?;
        let mut reader = Self {
            device,
            tick_khz: info.khz,
            pids: args.selected_pids().collect(),
            shows_cpus: args.cpus,
            last_sample: AccountingSample::default(),
        };
        reader.last_sample = reader.read_sample()?;
        super::warn_of_incomplete_accounting(&info, reader.last_sample.tasks.len());
        Ok(reader)
    }

    fn read_sample(&mut self) -> Result<AccountingSample, Failure> {
        let now = self.device.info()?.now;
        if self.pids.is_empty() {
            return Ok(AccountingSample {
                read_at_ticks: now,
                tasks: self.device.read_tasks_and_take_ended()?,
                cpus: self.device.cpus()?,
            });
        }
        let mut tasks = Vec::new();
        for pid in &self.pids {
            match self.last_sample.tasks.is_empty() {
                true => tasks.push(self.device.task(*pid)?),
                false => {
                    let task = super::read_task_unless_exited(&self.device, *pid)?;
                    tasks.extend(task.filter(|task| self.is_in_last_sample(task)));
                }
            }
        }
        // The owner of a task may have no permission to read the values of CPUs.
        let cpus = match self.shows_cpus {
            true => self.device.cpus()?,
            false => self.device.cpus().unwrap_or_default(),
        };
        Ok(AccountingSample {
            read_at_ticks: now,
            tasks,
            cpus,
        })
    }

    /// Returns true if the last sample has this task. A different start time shows that the task of
    /// the last sample has exited and a later task has the same ID.
    fn is_in_last_sample(&self, task: &Task) -> bool {
        let key = |task: &Task| (task.pid, task.began);
        self.last_sample
            .tasks
            .iter()
            .any(|last| key(last) == key(task))
    }

    /// Returns the changes of tasks and CPUs since the last call. Returns `None` if the user
    /// selected tasks and all selected tasks have exited.
    fn read_next_change(&mut self) -> Result<Option<AccountingChange>, Failure> {
        let now = self.read_sample()?;
        if !self.pids.is_empty() && now.tasks.is_empty() {
            return Ok(None);
        }
        let change = AccountingChange::new(&now, &self.last_sample, self.tick_khz);
        self.last_sample = now;
        Ok(Some(change))
    }
}

pub fn run_top(args: &PpaArgs, out: &mut Out) -> Result<(), Failure> {
    let reader = AccountingChangeReader::open(args)?;
    if args.plain || args.json || !out.is_terminal() {
        return run_plain_top(reader, args, out);
    }
    let mut screen = PpaTopScreen {
        reader,
        delay: Duration::from_secs_f64(args.delay),
        max_rows: args.rows.unwrap_or(500),
        key_settings: KeySettings {
            sort: args.sort,
            is_paused: false,
        },
        last_change: None,
    };
    live::run_live_screen(&mut screen, args.times)
}

fn run_plain_top(
    mut reader: AccountingChangeReader,
    args: &PpaArgs,
    out: &mut Out,
) -> Result<(), Failure> {
    let delay = Duration::from_secs_f64(args.delay);
    let mut event_loop = EventLoop::new().trying_to("catch signals")?;
    let mut due = Instant::now();
    let mut nr_tables = 0;
    while args.times.is_none_or(|times| nr_tables < times) {
        due = next_update_time(due, delay, Instant::now());
        if !event_loop
            .sleep_until(due)
            .trying_to(WAIT_FOR_SIGNALS_ACTION)?
        {
            break;
        }
        let Some(mut change) = reader.read_next_change()? else {
            break;
        };
        let lines =
            change.format_task_lines(args.sort, args.rows.unwrap_or(DEFAULT_PLAIN_TABLE_ROWS));
        if args.json {
            out.write_json(&change.to_json(args.rows.unwrap_or(usize::MAX)))?;
        } else {
            writeln!(out, "# {}", change.format_title(args.sort))?;
            writeln!(
                out,
                "{}",
                out.paint(crate::output::TextStyle::Title, TASK_CHANGE_TABLE_TITLES)
            )?;
            for line in lines {
                writeln!(out, "{line}")?;
            }
            if args.cpus {
                writeln!(out)?;
                cpus::print_cpu_table(&change.cpus, change.tick_khz, true, out)?;
            }
            writeln!(out)?;
        }
        out.flush()?;
        nr_tables += 1;
    }
    Ok(())
}

/// The settings of `--top` that keys change.
struct KeySettings {
    sort: TaskSortKey,
    is_paused: bool,
}

impl KeySettings {
    fn apply_key(&mut self, key: Key) -> ControlFlow<()> {
        match key {
            Key::Char('q') | Key::Esc | Key::Ctrl('c') => return ControlFlow::Break(()),
            Key::Char(' ') => self.is_paused = !self.is_paused,
            Key::Char('t') => self.sort = TaskSortKey::Time,
            Key::Char('l') => self.sort = TaskSortKey::Latency,
            Key::Char('i') => self.sort = TaskSortKey::Involuntary,
            Key::Char('r') => self.sort = TaskSortKey::Irq,
            Key::Char('s') => self.sort = TaskSortKey::Syscalls,
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

struct PpaTopScreen {
    reader: AccountingChangeReader,
    delay: Duration,
    max_rows: usize,
    key_settings: KeySettings,
    last_change: Option<AccountingChange>,
}

/// Formats the screen. `change` is `None` before the first update.
fn format_screen_lines(
    change: Option<&mut AccountingChange>,
    settings: &KeySettings,
    max_rows: usize,
    shows_cpus: bool,
) -> Vec<Line<'static>> {
    let mut title = "accounting ...".to_owned();
    let (mut cpus, mut tasks) = (Vec::new(), Vec::new());
    if let Some(change) = change {
        title = change.format_title(settings.sort);
        if shows_cpus {
            cpus = change.format_cpu_lines();
        }
        tasks = change.format_task_lines(settings.sort, max_rows);
    }
    let paused = if settings.is_paused { "paused; " } else { "" };
    let help = format!("{paused}sort: t l i r s, space: pause, q: quit");
    let mut lines = vec![Line::from(title), Line::from(help)];
    lines.extend(cpus.into_iter().map(Line::from));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    lines.push(Line::styled(TASK_CHANGE_TABLE_TITLES, bold));
    lines.extend(tasks.into_iter().map(Line::from));
    lines
}

impl LiveScreen for PpaTopScreen {
    fn draw(&mut self, frame: &mut ratatui::Frame<'_>) {
        let change = self.last_change.as_mut();
        let mut lines = format_screen_lines(
            change,
            &self.key_settings,
            self.max_rows,
            self.reader.shows_cpus,
        );
        lines.truncate(frame.area().height.into());
        frame.render_widget(Paragraph::new(lines), frame.area());
    }

    fn handle_key(&mut self, key: Key) -> ControlFlow<()> {
        self.key_settings.apply_key(key)
    }

    fn update_interval(&self) -> Option<Duration> {
        (!self.key_settings.is_paused).then_some(self.delay)
    }

    fn update_values(&mut self) -> Result<ControlFlow<()>, Failure> {
        Ok(match self.reader.read_next_change()? {
            Some(change) => {
                self.last_change = Some(change);
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ppa::Cpu;

    #[test]
    fn r4_9_screen_shows_cpus_that_were_online() {
        let mut busy = Cpu::default();
        busy.values[..4].copy_from_slice(&[500, 250, 0, 250]);
        let mut change = AccountingChange {
            tick_khz: 1000,
            elapsed_ticks: 1000,
            tasks: Vec::new(),
            cpus: vec![Cpu::default(), busy],
        };
        let settings = KeySettings {
            sort: TaskSortKey::Time,
            is_paused: false,
        };
        let mut screen = |shows_cpus| {
            let lines = format_screen_lines(Some(&mut change), &settings, 10, shows_cpus);
            lines.iter().map(Line::to_string).collect::<Vec<_>>()
        };
        let cpu = "CPU 1: 50.0% user, 25.0% system, 0.0% interrupts, 25.0% idle";
        assert_eq!(screen(true)[2..], [cpu, TASK_CHANGE_TABLE_TITLES]);
        assert_eq!(screen(false)[2..], [TASK_CHANGE_TABLE_TITLES]);
    }

    #[test]
    fn r4_2_keys_sort_pause_and_quit() {
        let mut keys = KeySettings {
            sort: TaskSortKey::Time,
            is_paused: false,
        };
        for (key, sort) in [
            ('l', TaskSortKey::Latency),
            ('i', TaskSortKey::Involuntary),
            ('r', TaskSortKey::Irq),
            ('s', TaskSortKey::Syscalls),
            ('x', TaskSortKey::Syscalls),
            ('t', TaskSortKey::Time),
        ] {
            assert!(keys.apply_key(Key::Char(key)).is_continue());
            assert_eq!(keys.sort, sort);
        }
        assert!(keys.apply_key(Key::Char(' ')).is_continue());
        assert!(keys.is_paused);
        assert!(keys.apply_key(Key::Ctrl('c')).is_break());
    }
}
