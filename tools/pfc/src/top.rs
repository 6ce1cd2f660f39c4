// SPDX-License-Identifier: GPL-2.0

//! `pfc top`: shows continuously in which functions samples are taken, as a table on a terminal or
//! as lines in a pipe.

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
use crate::data::{encode_file, take_until, Attribute};
use crate::error::Failure;
use crate::output::Out;
use crate::profile::Reader;
use crate::record::{attach, now, prepare, Contexts};
use crate::report::{group_rows, percent, Row};
use crate::stat::{select_target, syscall_failure, Target};

/// The maximum time between two reads of the rings, and between two checks for keys.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const KEYS: [SortKey; 3] = [SortKey::Comm, SortKey::Dso, SortKey::Sym];

/// The samples of one interval, added up by thread name, object and function.
struct Table {
    rows: Vec<Row>,
    samples: usize,
    lost: u64,
}

struct LiveProfile {
    contexts: Contexts,
    attributes: Vec<Attribute>,
    reader: Reader,
    /// Records that were read from the rings and are newer than the last table.
    records: Vec<u8>,
}

impl LiveProfile {
    fn collect_table(&mut self) -> Result<Table, Failure> {
        // pfc reads the rings one after the other. After all rings have been read, the records up
        // to the time `until` are complete. A sample that is newer may have been read before the
        // record of an exec that precedes the sample.
        let until = now();
        self.contexts.poll();
        self.records.append(&mut self.contexts.tasks.take_records());
        self.records
            .append(&mut self.contexts.drained.records.bytes);
        let records = take_until(&mut self.records, until);
        let file = encode_file(&self.attributes, false, &[&records]);
        self.reader
            .add_file(file)
            .map_err(|why| Failure::Refused(format!("invalid records: {why}")))?;
        let profile = &mut self.reader.profile;
        let table = Table {
            rows: group_rows(profile, &profile.samples.iter().collect::<Vec<_>>(), &KEYS),
            samples: profile.samples.len(),
            lost: std::mem::take(&mut self.contexts.drained.lost),
        };
        profile.samples.clear();
        Ok(table)
    }

    fn title(&self, table: &Table, interval: Duration) -> String {
        let names: Vec<&str> = self.attributes.iter().map(|a| a.name.as_str()).collect();
        format!(
            "{} samples of {} in {:.1} s, {} lost",
            table.samples,
            names.join(", "),
            interval.as_secs_f64(),
            table.lost
        )
    }
}

fn format_lines(table: &Table, max_lines: usize) -> Vec<String> {
    let total = table
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
    table.rows.iter().take(max_lines).map(line).collect()
}

pub fn run(device: &Path, args: &TopArgs, out: &mut Out) -> Result<(), Failure> {
    let targets = &args.targets;
    let is_all =
        targets.processes.is_empty() && targets.threads.is_empty() && targets.cpus.is_none()
            || targets.all_cpus;
    let record = RecordArgs {
        events: args.event.iter().cloned().collect(),
        frequency: Some(args.frequency),
        period: None,
        stacks: false,
        targets: crate::cli::TargetArgs {
            processes: targets.processes.clone(),
            threads: targets.threads.clone(),
            cpus: targets.cpus.clone(),
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
    attach(&mut contexts, &target, targets)?;
    contexts
        .start()
        .map_err(|e| syscall_failure("sample", &e))?;
    let mut live = LiveProfile {
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
        return run_plain(&mut live, args, &stop, out);
    }
    let is_coloured = out.is_coloured();
    // try_init() also installs a panic hook that restores the terminal.
    let mut terminal = ratatui::try_init().map_err(Failure::Terminal)?;
    let result = run_terminal(&mut terminal, &mut live, args, &stop, is_coloured);
    ratatui::restore();
    result
}

fn run_plain(
    live: &mut LiveProfile,
    args: &TopArgs,
    stop: &AtomicBool,
    out: &mut Out,
) -> Result<(), Failure> {
    let interval = Duration::from_millis(args.interval);
    let mut nr_tables = 0;
    while !stop.load(Ordering::Relaxed) && args.count.is_none_or(|count| nr_tables < count) {
        let due = Instant::now() + interval;
        while Instant::now() < due && !stop.load(Ordering::Relaxed) {
            live.contexts.poll();
            std::thread::sleep(POLL_INTERVAL.min(due.saturating_duration_since(Instant::now())));
        }
        let table = live.collect_table()?;
        writeln!(out, "# {}", live.title(&table, interval))?;
        for line in format_lines(&table, args.lines) {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
        out.flush()?;
        nr_tables += 1;
    }
    Ok(())
}

fn run_terminal(
    terminal: &mut DefaultTerminal,
    live: &mut LiveProfile,
    args: &TopArgs,
    stop: &AtomicBool,
    is_coloured: bool,
) -> Result<(), Failure> {
    let interval = Duration::from_millis(args.interval);
    let (mut due, mut nr_tables) = (Instant::now() + interval.min(POLL_INTERVAL * 5), 0);
    let mut is_paused = false;
    let mut text = vec!["sampling ...".to_owned()];
    while !stop.load(Ordering::Relaxed) && args.count.is_none_or(|count| nr_tables < count) {
        terminal
            .draw(|screen| {
                let keys = if is_paused { "paused; " } else { "" };
                let title = format!("{}   {keys}space: pause, q: quit", text[0]);
                let bold = Style::new().add_modifier(Modifier::BOLD);
                let mut all = vec![Line::styled(title, bold)];
                for line in text.iter().skip(1).take(screen.area().height.into()) {
                    all.push(style_line(line, is_coloured));
                }
                screen.render_widget(Paragraph::new(all), screen.area());
            })
            .map_err(Failure::Terminal)?;
        if event::poll(POLL_INTERVAL).map_err(Failure::Terminal)? {
            if let Event::Key(key) = event::read().map_err(Failure::Terminal)? {
                let control = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    _ if key.kind == KeyEventKind::Release => {}
                    KeyCode::Char('q') | KeyCode::Esc => break,
                    KeyCode::Char('c') if control => break,
                    KeyCode::Char(' ') => is_paused = !is_paused,
                    _ => {}
                }
            }
        }
        live.contexts.poll();
        if Instant::now() >= due {
            let table = live.collect_table()?;
            if !is_paused {
                text = vec![live.title(&table, interval)];
                text.extend(format_lines(&table, 200));
            }
            nr_tables += 1;
            due = Instant::now() + interval;
        }
    }
    Ok(())
}

/// Returns a line of the table for the terminal. Functions of the kernel are yellow.
fn style_line(line: &str, is_coloured: bool) -> Line<'_> {
    match is_coloured && line.contains("[k] ") {
        true => Line::from(Span::styled(line, Style::new().fg(Color::Yellow))),
        false => Line::from(line),
    }
}
