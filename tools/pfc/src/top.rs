// SPDX-License-Identifier: GPL-2.0

//! `pfc top`: where samples are, live: a table on a terminal, lines in a pipe.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use perfmon::Scope;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use ratatui::DefaultTerminal;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::cli::{RecordArgs, SortKey, TopArgs};
use crate::data::{in_memory, take_until, Attribute};
use crate::error::Failure;
use crate::output::Out;
use crate::profile::Reader;
use crate::record::{attach, now, prepare, Contexts};
use crate::report::{group_rows, percent, Row};
use crate::stat::{select_target, syscall_failure, Target};

/// Rings are read, and keys are, at least so often.
const PATIENCE: Duration = Duration::from_millis(100);
const KEYS: [SortKey; 3] = [SortKey::Comm, SortKey::Dso, SortKey::Sym];

/// What came in an interval.
struct Shown {
    rows: Vec<Row>,
    samples: usize,
    lost: u64,
}

struct Live {
    contexts: Contexts,
    attributes: Vec<Attribute>,
    reader: Reader,
    /// Records that were read, of later than the last table.
    records: Vec<u8>,
}

impl Live {
    fn look(&mut self) -> Result<Shown, Failure> {
        // The rings are read one after the other. Up to this time all of them are complete then: a
        // sample that is newer may come before the exec that it follows.
        let until = now();
        self.contexts.turn()?;
        self.records.append(&mut self.contexts.tasks.take());
        self.records
            .append(&mut self.contexts.harvest.records.bytes);
        let records = take_until(&mut self.records, until);
        let file = in_memory(&self.attributes, false, &[&records]);
        self.reader
            .feed(file)
            .map_err(|why| Failure::Refused(format!("what was sampled makes no sense: {why}")))?;
        let profile = &mut self.reader.profile;
        let shown = Shown {
            rows: group_rows(profile, &profile.samples.iter().collect::<Vec<_>>(), &KEYS),
            samples: profile.samples.len(),
            lost: std::mem::take(&mut self.contexts.harvest.lost),
        };
        profile.samples.clear();
        Ok(shown)
    }

    fn title(&self, shown: &Shown, interval: Duration) -> String {
        let names: Vec<&str> = self.attributes.iter().map(|a| a.name.as_str()).collect();
        format!(
            "{} samples of {} in {:.1} s, {} lost",
            shown.samples,
            names.join(", "),
            interval.as_secs_f64(),
            shown.lost
        )
    }
}

fn lines(shown: &Shown, most: usize) -> Vec<String> {
    let total = shown
        .rows
        .iter()
        .fold(0_u64, |n, r| n.saturating_add(r.period));
    let line = |row: &Row| {
        let [command, object, symbol] = &row.cells[..] else {
            return String::new();
        };
        let share = percent(row.period, total as f64);
        format!("{share:>7.2}%  {command:<15}  {object:<24}  {symbol}")
    };
    shown.rows.iter().take(most).map(line).collect()
}

pub fn run(device: &Path, args: &TopArgs, out: &mut Out) -> Result<(), Failure> {
    let whom = &args.targets;
    let is_all = whom.processes.is_empty() && whom.threads.is_empty() && whom.cpus.is_none()
        || whom.all_cpus;
    let record = RecordArgs {
        events: args.event.iter().cloned().collect(),
        frequency: Some(args.frequency),
        period: None,
        stacks: false,
        targets: crate::cli::TargetArgs {
            processes: whom.processes.clone(),
            threads: whom.threads.clone(),
            cpus: whom.cpus.clone(),
            all_cpus: is_all,
        },
        pages: None,
        overwrite: false,
        switch_output: false,
        no_inherit: false,
        command: Vec::new(),
    };
    let target = select_target(&record.targets, "sample", false)?;
    let scope = match target {
        Target::Cpus(_) => Scope::System,
        _ => Scope::Thread,
    };
    let (attributes, mut contexts) = prepare(device, &record, scope, &target)?;
    attach(&mut contexts, &target, whom)?;
    contexts
        .start()
        .map_err(|e| syscall_failure("sample", &e))?;
    let mut live = Live {
        contexts,
        attributes,
        reader: Reader::default(),
        records: Vec::new(),
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(Failure::Terminal)?;
    }
    if args.plain || !out.is_terminal() {
        return plain(&mut live, args, &stop, out);
    }
    let coloured = out.is_coloured();
    // Also restores the terminal when something panics.
    let mut terminal = ratatui::try_init().map_err(Failure::Terminal)?;
    let result = watch(&mut terminal, &mut live, args, &stop, coloured);
    ratatui::restore();
    result
}

fn plain(live: &mut Live, args: &TopArgs, stop: &AtomicBool, out: &mut Out) -> Result<(), Failure> {
    let interval = Duration::from_millis(args.interval);
    let mut seen = 0;
    while !stop.load(Ordering::Relaxed) && args.count.is_none_or(|count| seen < count) {
        let due = Instant::now() + interval;
        while Instant::now() < due && !stop.load(Ordering::Relaxed) {
            live.contexts.turn()?;
            std::thread::sleep(PATIENCE.min(due.saturating_duration_since(Instant::now())));
        }
        let shown = live.look()?;
        writeln!(out, "# {}", live.title(&shown, interval))?;
        for line in lines(&shown, args.lines) {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
        out.flush()?;
        seen += 1;
    }
    Ok(())
}

fn watch(
    terminal: &mut DefaultTerminal,
    live: &mut Live,
    args: &TopArgs,
    stop: &AtomicBool,
    coloured: bool,
) -> Result<(), Failure> {
    let interval = Duration::from_millis(args.interval);
    let (mut due, mut seen) = (Instant::now() + interval.min(PATIENCE * 5), 0);
    let mut paused = false;
    let mut text = vec!["sampling ...".to_owned()];
    while !stop.load(Ordering::Relaxed) && args.count.is_none_or(|count| seen < count) {
        terminal
            .draw(|screen| {
                let keys = if paused { "paused; " } else { "" };
                let title = format!("{}   {keys}space: pause, q: quit", text[0]);
                let bold = Style::new().add_modifier(Modifier::BOLD);
                let mut all = vec![Line::styled(title, bold)];
                for line in text.iter().skip(1).take(screen.area().height.into()) {
                    all.push(painted(line, coloured));
                }
                screen.render_widget(Paragraph::new(all), screen.area());
            })
            .map_err(Failure::Terminal)?;
        if event::poll(PATIENCE).map_err(Failure::Terminal)? {
            if let Event::Key(key) = event::read().map_err(Failure::Terminal)? {
                let control = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    _ if key.kind == KeyEventKind::Release => {}
                    KeyCode::Char('q') | KeyCode::Esc => break,
                    KeyCode::Char('c') if control => break,
                    KeyCode::Char(' ') => paused = !paused,
                    _ => {}
                }
            }
        }
        live.contexts.turn()?;
        if Instant::now() >= due {
            let shown = live.look()?;
            if !paused {
                text = vec![live.title(&shown, interval)];
                text.extend(lines(&shown, 200));
            }
            seen += 1;
            due = Instant::now() + interval;
        }
    }
    Ok(())
}

/// The kernel's functions stand out.
fn painted(line: &str, coloured: bool) -> Line<'_> {
    match coloured && line.contains("[k] ") {
        true => Line::from(Span::styled(line, Style::new().fg(Color::Yellow))),
        false => Line::from(line),
    }
}
