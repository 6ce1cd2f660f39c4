// SPDX-License-Identifier: GPL-2.0

//! `pfc top`: shows continuously in which functions samples are taken, as a table on a terminal or
//! as lines in a pipe.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use ratatui::Frame;

use crate::cli::{RecordArgs, SortKey, TopArgs};
use crate::data::{encode_perf_data, take_records_until, EventAttribute};
use crate::error::{Failure, TryingTo};
use crate::hotplug::MonitoredCpus;
use crate::live::keys::Key;
use crate::live::{self, next_update_time, LiveScreen};
use crate::output::Out;
use crate::profile::{ProfileReader, MISSING_PROCESS_RECORDS_CONSEQUENCE};
use crate::record::{attach_to_targets, monotonic_now_ns, prepare_sampling, SamplingContexts};
use crate::report::{group_samples_into_rows, percent_of_total, ReportRow};
use crate::stat::event_loop::EventLoop;
use crate::stat::{exit_code_of_run, select_target, syscall_failure, WAIT_FOR_SIGNALS_ACTION};

/// Maximum time between two reads of the ring buffers of samples.
const RING_BUFFER_READ_INTERVAL: Duration = Duration::from_millis(100);
const TABLE_SORT_KEYS: [SortKey; 3] = [SortKey::Comm, SortKey::Dso, SortKey::Sym];

/// The samples between two reads of the ring buffers, added up by thread name, object and function.
struct SampleTable {
    rows: Vec<ReportRow>,
    nr_samples: usize,
    nr_lost: u64,
    /// The length of the period in which the samples were taken. For the first table, it is shorter
    /// than the interval between updates. For a table after a skipped update, it is longer.
    duration: Duration,
    /// The time in nanoseconds for which each CPU was not sampled because it was offline.
    offline_ns_by_cpu: BTreeMap<u32, u64>,
    /// Sentences about what is missing in the table, with control characters made visible.
    problems: Vec<String>,
}

struct LiveProfile {
    contexts: SamplingContexts,
    attributes: Vec<EventAttribute>,
    reader: ProfileReader,
    /// Records that were read from the ring buffers and are newer than the last table.
    records_after_last_table: Vec<u8>,
    /// The end of the period that the last table covers, on the clock of [`monotonic_now_ns`]. For
    /// the first table, the time at which sampling started.
    last_table_end_ns: u64,
}

impl LiveProfile {
    fn collect_table(&mut self) -> Result<SampleTable, Failure> {
        // pfc reads the ring buffers one after the other. After all reads,
        // `records_after_last_table` is certain to have each record whose time is not after
        // `until`, the start of the first read. Records after `until` are kept for the next table,
        // because a record that precedes one of them, such as that of an exec, might still be in a
        // ring buffer.
        let until = monotonic_now_ns();
        self.contexts.read_rings_and_update_contexts();
        self.contexts.record_cpu_gaps(MonitoredCpus::take_gaps);
        self.records_after_last_table
            .append(&mut self.contexts.process_recorder.take_new_records());
        self.records_after_last_table
            .append(&mut self.contexts.drained_records.records.bytes);
        let records = take_records_until(&mut self.records_after_last_table, until);
        let file = encode_perf_data(&self.attributes, false, &[&records]);
        self.reader
            .add_file(file)
            .map_err(|why| Failure::Refused(format!("invalid records: {why}")))?;
        let mut problems = self.contexts.refresh_problems();
        // The contexts report lost records of processes already.
        let of_names = self.reader.find_problems().into_iter();
        problems.extend(of_names.filter(|p| !p.ends_with(MISSING_PROCESS_RECORDS_CONSEQUENCE)));
        let profile = &mut self.reader.profile;
        let table = SampleTable {
            rows: group_samples_into_rows(
                profile,
                &profile.samples.iter().collect::<Vec<_>>(),
                &TABLE_SORT_KEYS,
            ),
            nr_samples: profile.samples.len(),
            nr_lost: std::mem::take(&mut self.contexts.drained_records.nr_lost_records_since_reset),
            duration: Duration::from_nanos(until.saturating_sub(self.last_table_end_ns)),
            offline_ns_by_cpu: std::mem::take(&mut profile.offline_ns_by_cpu),
            problems: problems
                .iter()
                .map(|problem| visible::escape(problem).into_owned())
                .collect(),
        };
        self.last_table_end_ns = until;
        self.reader.drop_shown_and_outdated_data();
        Ok(table)
    }

    fn format_table_title(&self, table: &SampleTable) -> String {
        let names = self.attributes.iter().map(|a| visible::escape(&a.name));
        format_table_title(&names.collect::<Vec<_>>(), table)
    }
}

fn format_table_title(events: &[Cow<'_, str>], table: &SampleTable) -> String {
    let mut title = format!(
        "{} samples of {} in {:.1} s, {} lost",
        table.nr_samples,
        events.join(", "),
        table.duration.as_secs_f64(),
        table.nr_lost
    );
    for (cpu, ns) in &table.offline_ns_by_cpu {
        let seconds = *ns as f64 / 1e9;
        title.push_str(&format!(", CPU {cpu} offline for {seconds:.1} s"));
    }
    title
}

fn format_table_lines(table: &SampleTable, max_lines: usize) -> Vec<String> {
    let total = table
        .rows
        .iter()
        .fold(0_u64, |n, r| n.saturating_add(r.period_sum));
    let line = |row: &ReportRow| {
        let [command, object, symbol] = &row.escaped_cells()[..] else {
            return String::new();
        };
        let share = percent_of_total(row.period_sum, total as f64);
        format!("{share:>7.2}%  {command:<15}  {object:<24}  {symbol}")
    };
    table.rows.iter().take(max_lines).map(line).collect()
}

pub fn run(device: &Path, args: &TopArgs, out: &mut Out) -> Result<ExitCode, Failure> {
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
    let scope = target.scope();
    let (attributes, mut contexts) = prepare_sampling(device, &record, scope, &target)?;
    attach_to_targets(&mut contexts, &target, targets)?;
    contexts
        .start()
        .map_err(|e| syscall_failure("sample", &e))?;
    let mut profile = LiveProfile {
        contexts,
        attributes,
        reader: ProfileReader::default(),
        records_after_last_table: Vec::new(),
        last_table_end_ns: monotonic_now_ns(),
    };
    if args.plain || !out.is_terminal() {
        print_plain_tables(&mut profile, args, out)?;
    } else {
        let mut screen = TopScreen {
            live: &mut profile,
            interval: Duration::from_millis(args.interval),
            is_coloured: out.is_coloured(),
            is_paused: false,
            title_lines: vec!["sampling ...".to_owned()],
            table_lines: Vec::new(),
        };
        live::run_live_screen(&mut screen, args.count)?;
    }
    let contexts = &mut profile.contexts;
    contexts.read_rings_and_update_contexts();
    // Finds the contexts that have ended early since the last table. Only tables show the problems
    // themselves.
    contexts.refresh_problems();
    let is_complete =
        target.report_unless_monitored_to_end(|thread| contexts.has_thread_exited(thread));
    Ok(exit_code_of_run(None, is_complete))
}

fn print_plain_tables(
    live: &mut LiveProfile,
    args: &TopArgs,
    out: &mut Out,
) -> Result<(), Failure> {
    let interval = Duration::from_millis(args.interval);
    let mut event_loop = EventLoop::new().trying_to("catch signals")?;
    let mut due = Instant::now();
    let mut nr_tables = 0;
    let mut last_problems = Vec::new();
    while args.count.is_none_or(|count| nr_tables < count) {
        due = next_update_time(due, interval, Instant::now());
        while Instant::now() < due {
            live.contexts.read_rings_and_update_contexts();
            let until = due.min(Instant::now() + RING_BUFFER_READ_INTERVAL);
            if !event_loop
                .sleep_until(until)
                .trying_to(WAIT_FOR_SIGNALS_ACTION)?
            {
                return Ok(());
            }
        }
        let table = live.collect_table()?;
        writeln!(out, "# {}", live.format_table_title(&table))?;
        for problem in &table.problems {
            // A problem that lasts is printed once.
            if !last_problems.contains(problem) {
                writeln!(out, "# {problem}")?;
            }
        }
        for line in format_table_lines(&table, args.lines) {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
        out.flush()?;
        last_problems = table.problems;
        nr_tables += 1;
    }
    Ok(())
}

struct TopScreen<'a> {
    live: &'a mut LiveProfile,
    interval: Duration,
    is_coloured: bool,
    is_paused: bool,
    /// The title of the last table, and a line for each of its problems.
    title_lines: Vec<String>,
    /// The lines of the last table.
    table_lines: Vec<String>,
}

impl LiveScreen for TopScreen<'_> {
    const POLL_INTERVAL: Option<Duration> = Some(RING_BUFFER_READ_INTERVAL);

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let keys = if self.is_paused { "paused; " } else { "" };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let titles = self.title_lines.iter().map(|line| Line::styled(line, bold));
        let mut all: Vec<Line<'_>> = titles.collect();
        if let Some(title) = all.first_mut() {
            title.push_span(format!("   {keys}space: pause, q: quit"));
        }
        for line in self.table_lines.iter().take(frame.area().height.into()) {
            all.push(colour_if_kernel_line(line, self.is_coloured));
        }
        frame.render_widget(Paragraph::new(all), frame.area());
    }

    fn handle_key(&mut self, key: Key) -> ControlFlow<()> {
        match key {
            Key::Char('q') | Key::Esc | Key::Ctrl('c') => return ControlFlow::Break(()),
            Key::Char(' ') => self.is_paused = !self.is_paused,
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn update_interval(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn update_values(&mut self) -> Result<ControlFlow<()>, Failure> {
        // Samples are also read while the screen is paused, so that the ring buffers do not
        // overflow.
        let table = self.live.collect_table()?;
        if !self.is_paused {
            self.table_lines = format_table_lines(&table, 200);
            self.title_lines = vec![self.live.format_table_title(&table)];
            self.title_lines.extend(table.problems);
        }
        Ok(ControlFlow::Continue(()))
    }

    fn poll_between_updates(&mut self) -> Result<(), Failure> {
        self.live.contexts.read_rings_and_update_contexts();
        Ok(())
    }
}

/// Returns a line of the table with its style for the terminal. Lines of kernel functions are
/// yellow if `is_coloured` is true.
fn colour_if_kernel_line(line: &str, is_coloured: bool) -> Line<'_> {
    match is_coloured && line.contains("[k] ") {
        true => Line::from(Span::styled(line, Style::new().fg(Color::Yellow))),
        false => Line::from(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_10_a_title_has_the_time_of_the_samples() {
        let table = SampleTable {
            rows: Vec::new(),
            nr_samples: 7,
            nr_lost: 1,
            duration: Duration::from_millis(500),
            offline_ns_by_cpu: BTreeMap::from([(3, 200_000_000)]),
            problems: Vec::new(),
        };
        assert_eq!(
            format_table_title(&["cycles".into(), "faults".into()], &table),
            "7 samples of cycles, faults in 0.5 s, 1 lost, CPU 3 offline for 0.2 s"
        );
    }
}
