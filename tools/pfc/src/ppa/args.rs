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
    /// These tasks, threads or processes' first ones [all]
    #[arg(value_name = "PID", group = "whose", value_parser = pid)]
    pub tasks: Vec<u32>,
    /// The same, in a list
    #[arg(
        short,
        long = "pid",
        value_name = "PID,...",
        value_delimiter = ',',
        value_parser = pid,
        group = "whose"
    )]
    pub processes: Vec<u32>,
    /// How long they waited from wakeup to run, how often
    #[arg(long, requires = "whose", conflicts_with_all = ["top", "cpus"])]
    pub histogram: bool,
    /// What comes, live: a table on a terminal, lines in a pipe
    #[arg(long)]
    pub top: bool,
    /// Seconds between two tables of --top
    #[arg(short, long, value_name = "SECONDS", default_value = "2", value_parser = seconds, requires = "top")]
    pub delay: f64,
    /// Stop --top after so many tables
    #[arg(short = 'n', long, value_name = "TIMES", requires = "top",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub times: Option<u64>,
    /// Plain lines, also on a terminal
    #[arg(long, requires = "top")]
    pub plain: bool,
    /// What comes first
    #[arg(short, long, value_name = "KEY", default_value = "time")]
    pub sort: Sort,
    /// Rows of a table, the first [all; of --top in a pipe 20]
    #[arg(long, value_name = "N")]
    pub rows: Option<usize>,
    /// Each CPU too
    #[arg(long)]
    pub cpus: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl PpaArgs {
    /// Returns the ids of all tasks that were given, as operands or by `-p`.
    pub fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.tasks.iter().chain(&self.processes).copied()
    }
}

/// What rows are ordered by, the most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Time on a CPU
    Time,
    /// Average time from wakeup to run
    Latency,
    /// How often it made way for others
    Involuntary,
    /// Time in interrupts that came while it ran
    Irq,
    /// System calls
    Syscalls,
}

impl Sort {
    pub fn word(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Latency => "latency",
            Self::Involuntary => "preemptions",
            Self::Irq => "interrupts",
            Self::Syscalls => "system calls",
        }
    }
}

/// What to do, other than to show values.
#[derive(Debug, Subcommand)]
pub enum PpaCommand {
    /// Account all tasks, or some, latencies by length too
    #[command(after_help = "\
Examples:
  pfc ppa on                                  all tasks
  pfc ppa on --levels sched,irq,syscall       without the time of switches
  pfc ppa on 1234                             that one by itself: /proc/ppa/1234")]
    On(OnArgs),
    /// Account idle time only, or some tasks no longer by themselves
    #[command(after_help = "\
Examples:
  pfc ppa off                                 all of them
  pfc ppa off 1234                            that one")]
    Off(OffArgs),
    /// Say how accounting stands
    #[command(after_help = "\
Examples:
  pfc ppa status --json                       for a program")]
    Status(JsonArgs),
    /// Write a task's values into a file, again and again
    #[command(after_help = "\
Examples:
  pfc ppa record 1234 -o daemon.ppa           until it ends, or Ctrl-C
  pfc ppa record 1234 -o daemon.ppa -d 10 -t 30
                                              100 times a second, for 30 seconds

The file has an object of JSON a line. pfc ppa report shows it.")]
    Record(RecordArgs),
    /// Show what was recorded: a table, or with -o a picture
    #[command(after_help = "\
Examples:
  pfc ppa report daemon.ppa                   a line for each interval
  pfc ppa report daemon.ppa -o daemon.svg     for a browser
  pfc ppa report daemon.ppa --json            for a program")]
    Report(ReportArgs),
}

/// Arguments of `pfc ppa on`.
#[derive(Debug, Args)]
pub struct OnArgs {
    /// These tasks by themselves, each with the files /proc/ppa/PID [all tasks]
    #[arg(value_name = "PID", value_parser = pid)]
    pub tasks: Vec<u32>,
    /// What is measured, of all tasks [as before]
    #[arg(long, value_name = "LEVEL,...", value_delimiter = ',')]
    pub levels: Vec<Level>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `pfc ppa off`.
#[derive(Debug, Args)]
pub struct OffArgs {
    /// These tasks, by themselves [all tasks]
    #[arg(value_name = "PID", value_parser = pid)]
    pub tasks: Vec<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// What the scheduler does; always
    Sched,
    /// Interrupts and softirqs
    Irq,
    /// System calls
    Syscall,
    /// How long switches take, and how often the same task goes on
    Switch,
}

impl Level {
    pub fn bit(self) -> u32 {
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
    /// Whose values
    #[arg(value_name = "PID", value_parser = pid)]
    pub pid: u32,
    /// Milliseconds from one look to the next
    #[arg(short, long, value_name = "MS", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub delay: u64,
    /// Stop after so many seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub time: Option<f64>,
    /// Write JSON, which it always is
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `pfc ppa report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// What pfc ppa record wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn pid(word: &str) -> Result<u32, String> {
    match word.parse::<u32>() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("no task's number, nor a command as the first word".to_owned()),
    }
}

fn seconds(word: &str) -> Result<f64, String> {
    match word.parse::<f64>() {
        Ok(n) if (0.01..=1e6).contains(&n) => Ok(n),
        _ => Err("seconds, from 0.01 to 1000000".to_owned()),
    }
}
