// SPDX-License-Identifier: GPL-2.0

//! The command line of `pfc ppa`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::JsonArgs;

/// Arguments of `pfc ppa`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct PpaArgs {
    #[command(subcommand)]
    pub command: Option<PpaCommand>,
    /// Tasks, by thread ID; a PID is the first thread of a process [all]
    #[arg(value_name = "PID", group = "pids", value_parser = parse_pid)]
    pub tasks: Vec<u32>,
    /// Tasks, as a list
    #[arg(
        short,
        long = "pid",
        value_name = "PID,...",
        value_delimiter = ',',
        value_parser = parse_pid,
        group = "pids"
    )]
    pub processes: Vec<u32>,
    /// Print a histogram of the latencies from wakeup to run
    #[arg(long, requires = "pids", conflicts_with_all = ["top", "cpus"])]
    pub histogram: bool,
    /// Show changes, live: a table on a terminal, lines in a pipe
    #[arg(long)]
    pub top: bool,
    /// Seconds between tables of --top
    #[arg(short, long, value_name = "SECONDS", default_value = "2", value_parser = parse_seconds, requires = "top")]
    pub delay: f64,
    /// Stop --top after TIMES tables
    #[arg(short = 'n', long, value_name = "TIMES", requires = "top",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub times: Option<u64>,
    /// Print plain lines, also on a terminal
    #[arg(long, requires = "top")]
    pub plain: bool,
    /// Sort key, largest value first
    #[arg(short, long, value_name = "KEY", default_value = "time")]
    pub sort: TaskSortKey,
    /// Number of rows of a table [all; with --top in a pipe 20]
    #[arg(long, value_name = "N")]
    pub rows: Option<usize>,
    /// Also show each CPU
    #[arg(long)]
    pub cpus: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl PpaArgs {
    /// Returns the IDs of all tasks that the user selected, as operands or by `-p`.
    pub fn selected_pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.tasks.iter().chain(&self.processes).copied()
    }
}

/// Keys by which rows are sorted, largest value first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TaskSortKey {
    /// Time on a CPU
    Time,
    /// Average time from wakeup to run
    Latency,
    /// Involuntary context switches
    Involuntary,
    /// Time in interrupts while the task ran
    Irq,
    /// System calls
    Syscalls,
}

impl TaskSortKey {
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Latency => "latency",
            Self::Involuntary => "preemptions",
            Self::Irq => "interrupts",
            Self::Syscalls => "system calls",
        }
    }
}

/// Subcommands other than showing values.
#[derive(Debug, Subcommand)]
pub enum PpaCommand {
    /// Account all tasks or some, with histograms of latencies
    #[command(after_help = "\
Examples:
  pfc ppa on                                  all tasks
  pfc ppa on --levels sched,irq,syscall       without the duration of switches
  pfc ppa on 1234                             one task, in /proc/ppa/1234")]
    On(OnArgs),
    /// Stop accounting all tasks, or some of the individually accounted ones
    #[command(after_help = "\
Examples:
  pfc ppa off                                 all tasks
  pfc ppa off 1234                            one individually accounted task")]
    Off(OffArgs),
    /// Show the state of accounting
    #[command(after_help = "\
Examples:
  pfc ppa status --json                       as JSON")]
    Status(JsonArgs),
    /// Record the values of a task periodically, into a file
    #[command(after_help = "\
Examples:
  pfc ppa record 1234 -o daemon.ppa           until the task ends, or Ctrl-C
  pfc ppa record 1234 -o daemon.ppa -d 10 -t 30
                                              100 times a second, for 30 seconds

The file has one JSON object per line. pfc ppa report shows it.")]
    Record(RecordArgs),
    /// Show a recording: as a table, or with -o as an SVG picture
    #[command(after_help = "\
Examples:
  pfc ppa report daemon.ppa                   one line per interval
  pfc ppa report daemon.ppa -o daemon.svg     as a picture, for a browser
  pfc ppa report daemon.ppa --json            as JSON")]
    Report(ReportArgs),
}

/// Arguments of `pfc ppa on`.
#[derive(Debug, Args)]
pub struct OnArgs {
    /// Tasks to account individually, each with files in /proc/ppa/PID [all tasks]
    #[arg(value_name = "PID", value_parser = parse_pid)]
    pub tasks: Vec<u32>,
    /// Levels to measure, for all tasks [unchanged]
    #[arg(long, value_name = "LEVEL,...", value_delimiter = ',')]
    pub levels: Vec<AccountingLevel>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `pfc ppa off`.
#[derive(Debug, Args)]
pub struct OffArgs {
    /// Individually accounted tasks [all tasks]
    #[arg(value_name = "PID", value_parser = parse_pid)]
    pub tasks: Vec<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Levels of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AccountingLevel {
    /// Scheduling; always on
    Sched,
    /// Interrupts and softirqs
    Irq,
    /// System calls
    Syscall,
    /// Duration of context switches, and how often the scheduler keeps the same task
    Switch,
}

impl AccountingLevel {
    pub fn level_bit(self) -> u32 {
        match self {
            Self::Sched => ppa::LEVEL_SCHED,
            Self::Irq => ppa::LEVEL_IRQ,
            Self::Syscall => ppa::LEVEL_SYSCALL,
            Self::Switch => ppa::LEVEL_SWITCH,
        }
    }
}

/// Arguments of `pfc ppa record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// Task to record
    #[arg(value_name = "PID", value_parser = parse_pid)]
    pub pid: u32,
    /// Milliseconds between samples
    #[arg(short, long, value_name = "MS", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub delay: u64,
    /// Stop after SECONDS seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub time: Option<f64>,
    /// Write JSON (the default)
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `pfc ppa report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// File that pfc ppa record has written
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn parse_pid(word: &str) -> Result<u32, String> {
    match word.parse::<u32>() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("expected the number of a task, or a subcommand as the first word".to_owned()),
    }
}

fn parse_seconds(word: &str) -> Result<f64, String> {
    match word.parse::<f64>() {
        Ok(n) if (0.01..=1e6).contains(&n) => Ok(n),
        _ => Err("expected seconds, from 0.01 to 1000000".to_owned()),
    }
}
