// SPDX-License-Identifier: GPL-2.0

//! The command line of `pfc`, as clap structures. The help texts, shell completions and manual
//! pages are generated from these structures.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};
use perfcounters::{InstancePattern, PERFCOUNTERS_DEVICE_PATH};

use crate::export;
use crate::ppa::args::PpaArgs;
use crate::trace::args::TraceArgs;

mod samples;

#[cfg(test)]
pub use samples::SampleInputArgs;
pub use samples::{FlamegraphArgs, ReportArgs, ScriptArgs, SortKey};

/// Read kernel counters, count and sample events, account tasks, trace programs
#[derive(Debug, Parser)]
#[command(
    name = "pfc",
    version,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  pfc watch                         rates of all counters, live
  pfc list irq                      instances with 'irq' in their name
  pfc read 'block/*' --per-cpu      totals and the values of each CPU
  pfc watch --plain -n 5 --count 3  three tables of the five busiest instances
  pfc snapshot --json -o now.json   all values in one consistent snapshot
  pfc export --openmetrics          text for Prometheus
  pfc stat -e cycles make           count events of a command
  pfc record -g make                sample a command; then: pfc report
  pfc ppa --top                     where the time of tasks goes, live
  pfc trace live                    events that programs write, live
  pfc doctor                        what prevents counting, and remedies

PATTERN is a glob for the whole name if it has *, ? or [, else a part of the name.
Exit status: 0 success; 1 nothing matched; 2 error, with a message."
)]
pub struct Cli {
    #[command(flatten)]
    pub global: GlobalArgs,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every subcommand.
#[derive(Debug, Args)]
pub struct GlobalArgs {
    /// Device or file with the counters
    #[arg(long, global = true, value_name = "PATH", default_value = PERFCOUNTERS_DEVICE_PATH)]
    pub device: PathBuf,
    /// Write to this file instead of standard output
    #[arg(short, long, global = true, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List instances: number, name, kind, unit, state
    #[command(
        visible_alias = "ls",
        after_help = "\
Examples:
  pfc list                   all live instances
  pfc list 'net/*/rx_*' -v   with help texts and times
  pfc list --all --json      also dormant instances, as JSON"
    )]
    List(ListArgs),
    /// Print values once: totals over all CPUs
    #[command(after_help = "\
Examples:
  pfc read sched             totals of all instances with 'sched' in their name
  pfc read -z irq softirq    without values that are zero
  pfc read --per-cpu mm      also the values of each CPU
  pfc read --csv 'syscalls/*' -o calls.csv

Times are printed in s, ms, us or ns, bytes in KiB and so on. --json and --csv
print exact values, in units of 10^exponent.")]
    Read(ReadArgs),
    /// Show rates, live: a table on a terminal, plain lines in a pipe
    #[command(after_help = "\
Examples:
  pfc watch                        busiest instances first; ? shows the keys
  pfc watch block -i 200           block devices, five times per second
  pfc watch --plain -n 10          plain lines, the ten busiest instances
  pfc watch --count 1 'net/*' | tail -n +3

An instance that was added again counts from zero and is marked 'new'. Dormant
instances, which their driver has deleted, are grey; plain lines need --all.")]
    Watch(WatchArgs),
    /// Print one consistent snapshot, with its generation, boot id and time
    #[command(after_help = "\
Examples:
  pfc snapshot                     all live instances, by CPU
  pfc snapshot 'disk/*' --json     some of them, as JSON
  pfc snapshot --all               also the last values of dormant instances

All values belong to one generation of the set of instances. The values of each
CPU are consistent: a group of updates is seen as a whole or not at all.")]
    Snapshot(SnapshotArgs),
    /// Export values in the formats of other monitoring systems
    #[command(after_help = "\
Examples:
  pfc export --openmetrics                    once, to standard output
  pfc export --openmetrics --sum 'net/*'      totals over all CPUs
  pfc export --openmetrics -o pfc.prom        to a file, replaced atomically
  pfc export --openmetrics -o pfc.prom -i 5000
                                              every five seconds
  pfc export --openmetrics --listen 127.0.0.1:9464
                                              as http://127.0.0.1:9464/metrics
  pfc export --mmv perfcounters               metrics mmv.perfcounters.* for PCP

block/sda/reads becomes perfcounters_block_reads_total{device=\"sda\",cpu=\"0\"}; the
label 'name' is the name of the instance. Values are in seconds, bytes and so on.
For pfc's own JSON, see pfc snapshot --json.")]
    Export(ExportArgs),
    /// Count events of a command, of threads or of CPUs, like perf stat
    #[command(after_help = "\
Examples:
  pfc stat make                          the default events
  pfc stat -e cycles,instructions:u make these; :u user mode, :k kernel mode
  pfc stat -e r01c2 -e UOPS_ISSUED:ANY true   a raw code, a libpfm4 name
  pfc stat -e counter:mm/page_faults_user true
                                         the increase of a counter page instance
  pfc stat -p 1234 -- sleep 1            all threads of a process, for a second
  pfc stat -p 1234                       until they have exited, or Ctrl-C
  pfc stat -a -I 1000                    all CPUs, every second, until Ctrl-C
  pfc stat -r 5 -x, true                 means of five runs, as CSV
  pfc stat -e '{cycles,instructions},branches,branch-misses,r2e' true
                                         multiplexed if there are too few counters;
                                         events in braces are counted together
  pfc stat --cascade branch-misses:u=1000 -e cycles:u true
                                         in each thread, after 1000 branch misses

(33.3%, +- 1.2%) after an event: it was counted for 33.3% of the time, and its
value is scaled to the whole time. In 99 of 100 cases the true value is within
1.2% of it, unless the program changes in step with the switches of event sets.
A command is counted from its exec on, with all processes and threads that it
creates; with -p and -t, later threads are not counted. Without CAP_PERFMON, the
kernel, CPUs and programs of other users cannot be counted. A followed program
gets no set-uid privileges. With --no-inherit it gets them, but counting ends when
it is executed: run pfc as root to count it.
Events: perf's generic names, software events (task-clock, context-switches,
page-faults, migrations and so on), counter:NAME, rHEX, and libpfm4 names.
Exit status: that of the command, or 128 + signal; 127 or 126 if the command could
not be run; 2 error, with a message.")]
    Stat(StatArgs),
    /// Sample a command, threads or CPUs into a file, like perf record
    #[command(after_help = "\
Examples:
  pfc record make                        cycles, or time without a PMU
  pfc record -g -F 999 make              with call stacks, 999 samples per second
  pfc record -e instructions:u -c 100003 true
                                         one sample per 100003 instructions
  pfc record -a -g -- sleep 10           all CPUs, for ten seconds
  pfc record -p 1234 -o daemon.data      a process, until Ctrl-C
  pfc record -a --overwrite --switch-output &
  kill -USR2 %1                          write the newest samples to a file

The file has linux-perf's format perf.data: pfc report, script and flamegraph read
it, and so does perf. See pfc stat for events and permissions. A flight recorder
(--overwrite) keeps the newest samples in memory until SIGUSR2 or its end.
Sampling needs the module pfm_ring.
Exit status: that of the command; 127 or 126 if the command could not be run; 2
error, with a message.")]
    Record(RecordArgs),
    /// Show where samples are taken, live: a table on a terminal, lines in a pipe
    #[command(after_help = "\
Examples:
  pfc top                            all CPUs: cycles, or time without a PMU
  pfc top -p 1234 -e instructions:u  instructions of one process
  pfc top --plain -n 5 --count 3     three tables of the five most frequent")]
    Top(TopArgs),
    /// Show where samples were taken, most frequent first
    #[command(after_help = "\
Examples:
  pfc report                         pfc.data by command, file, function
  pfc report -g -i other.data        with callers
  pfc report --sort dso,sym -F 1     only lines of one percent or more
  pfc report --json                  as JSON
  pfc report --firefox -o all.json   for profiler.firefox.com
  pfc report --pprof -o all.pb       for go tool pprof

The input is a perf.data of pfc record, or of linux-perf without compression.
Names of functions are read from the current files. Names of kernel functions
need root, or sysctl kernel.kptr_restrict=0.")]
    Report(ReportArgs),
    /// Print samples, or folded stacks
    #[command(after_help = "\
Examples:
  pfc script                         in the format of perf script
  pfc script --json -i other.data    one JSON object per line
  pfc script --folded | sort -k2 -n  folded stacks, for flame graph programs")]
    Script(ScriptArgs),
    /// Draw a flame graph of call stacks, as SVG
    #[command(after_help = "\
Examples:
  pfc flamegraph -o all.svg          from pfc.data; click to zoom, Ctrl-F to find
  pfc flamegraph -e cycles -i other.data -o cycles.svg

Without -e the first event is drawn. Other flame graph programs read the output
of pfc script --folded.")]
    Flamegraph(FlamegraphArgs),
    /// Show where tasks and CPUs spend their time, measured by time stamps
    #[command(after_help = "\
Examples:
  pfc ppa on                         account all tasks; pfc ppa off stops it
  pfc ppa                            all tasks, busiest first, and all CPUs
  pfc ppa --cpus --rows 5            five tasks, and each CPU
  pfc ppa 1234                       one task, in the format of PPA (2006)
  pfc ppa --top -s latency -d 1      changes, live, every second
  pfc ppa --top -n 3 -p 1234,1235    two tasks, three times
  pfc ppa --histogram 1234           histogram of wakeup latencies
  pfc ppa record 1234 -o 1234.ppa    one task over time; then
  pfc ppa report 1234.ppa -o 1234.svg
  pfc ppa --json                     exact values in ticks, as JSON

USER is time in user mode, SYSTEM in system calls, IRQ in interrupts while the
task ran, WAITING ready to run without a CPU. LATENCY is the average time from
wakeup to run. BLOCKED counts how often the task gave up its CPU to wait,
PREEMPTED how often to other tasks. A task that has ended is shown once, to the
first reader. All tasks and CPUs need CAP_PERFMON; own tasks need nothing.
Keys of --top: t time, l latency, i preemptions, r interrupts, s system calls,
space pauses, q quits.")]
    Ppa(PpaArgs),
    /// Trace events that programs write without system calls
    #[command(after_help = "\
Examples:
  pfc trace list --markers                   markers of running programs
  pfc trace live -e 'app:*'                  events, live
  pfc trace start all                        into a directory, until Ctrl-C; then
  babeltrace2 all
  pfc trace start box -e 'app:*' --flight    keep the newest; after a crash
  pfc trace snapshot box -o crash

Programs define markers, with PERFTRACE() in C or a macro in Rust. A marker that is
not traced costs almost nothing. A trace covers the programs of its user. There can
be 16 traces.
Exit status: that of the command, if there is one; 2 error, with a message.")]
    Trace(TraceArgs),
    /// Show the registers of the PMU, and the matching event tables of libpfm4
    #[command(after_help = "\
Examples:
  pfc pmu                    registers and libpfm4 tables
  pfc pmu --json             as JSON")]
    Pmu(JsonArgs),
    /// Find out what prevents counting, accounting or tracing, and print remedies
    #[command(after_help = "\
Examples:
  pfc doctor                 one line per check
  pfc doctor --json          as JSON, for a bug report

It changes nothing. A note is for information; a problem prevents something for
this user.
Exit status: 0 no problem; 1 at least one problem.")]
    Doctor(JsonArgs),
    /// Print shell completions
    #[command(hide = true)]
    Completions {
        /// Shell: bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write all of them into a directory
    #[command(hide = true)]
    Man {
        /// Directory for pfc.1, pfc-list.1 and so on
        directory: Option<PathBuf>,
    },
}

/// Arguments that select instances.
#[derive(Debug, Args)]
pub struct InstanceSelectionArgs {
    /// Globs for names of instances, or parts of names
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// Include dormant instances, which their owner has deleted
    #[arg(short, long)]
    pub all: bool,
}

impl InstanceSelectionArgs {
    pub fn pattern(&self) -> InstancePattern {
        InstancePattern::new(&self.patterns).include_dormant(self.all)
    }

    /// Returns the patterns of instance names as the user wrote them, separated by blanks.
    pub fn joined_patterns(&self) -> String {
        self.patterns.join(" ")
    }
}

/// Arguments of `pfc list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub select: InstanceSelectionArgs,
    /// Also show help texts and times
    #[arg(short, long)]
    pub verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `pfc read`.
#[derive(Debug, Args)]
pub struct ReadArgs {
    #[command(flatten)]
    pub select: InstanceSelectionArgs,
    /// Also show the value of each CPU
    #[arg(short = 'A', long)]
    pub per_cpu: bool,
    /// Omit values that are zero
    #[arg(short = 'z', long)]
    pub nonzero: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print comma-separated values
    #[arg(long)]
    pub csv: bool,
}

/// Arguments of `pfc watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    #[command(flatten)]
    pub select: InstanceSelectionArgs,
    /// Interval in milliseconds
    #[arg(short, long, value_name = "MS", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pub interval: u64,
    /// Stop after N intervals
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Lines per interval, busiest instances first
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub lines: usize,
    /// Print plain lines, also on a terminal
    #[arg(long)]
    pub plain: bool,
}

/// Arguments of `pfc snapshot`.
#[derive(Debug, Args)]
pub struct SnapshotArgs {
    #[command(flatten)]
    pub select: InstanceSelectionArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `pfc export`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("format").required(true).args(["openmetrics", "mmv"]))]
pub struct ExportArgs {
    /// Write OpenMetrics 1.0 text, for Prometheus and compatible systems
    #[arg(long)]
    pub openmetrics: bool,
    /// Maintain metrics mmv.NAME.* for Performance Co-Pilot
    #[arg(long, value_name = "NAME", conflicts_with_all = ["output", "listen"])]
    pub mmv: Option<String>,
    /// Directory that PCP's agent pmdammv reads
    #[arg(long, value_name = "DIRECTORY", default_value = export::MMV_DIRECTORY)]
    pub mmv_directory: PathBuf,
    #[command(flatten)]
    pub select: InstanceSelectionArgs,
    /// Export only totals over all CPUs
    #[arg(short, long)]
    pub sum: bool,
    /// Rewrite the file (-o) or the values (--mmv) every MS milliseconds [1000]
    #[arg(short, long, value_name = "MS",
          value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pub interval: Option<u64>,
    /// Also export the N busiest accounted tasks (see pfc ppa on)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub tasks: Option<u16>,
    /// Stop after writing the file N times
    #[arg(long, value_name = "N", requires = "output",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Serve HTTP at this address, for example 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["output", "interval", "count"])]
    pub listen: Option<SocketAddr>,
    /// Allow an address that is not loopback. There is no encryption and no
    /// authentication
    #[arg(long, requires = "listen")]
    pub allow_remote: bool,
}

/// Arguments that select threads or CPUs.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// All current threads of these processes
    #[arg(
        short,
        long = "pid",
        value_name = "PID,...",
        value_delimiter = ',',
        group = "target"
    )]
    pub processes: Vec<u32>,
    /// These threads
    #[arg(
        short,
        long = "tid",
        value_name = "TID,...",
        value_delimiter = ',',
        group = "target"
    )]
    pub threads: Vec<u32>,
    /// These CPUs, with all tasks that run there
    #[arg(short = 'C', long = "cpu", value_name = "CPUS", group = "target")]
    pub cpus: Option<String>,
    /// All CPUs
    #[arg(short, long, group = "target")]
    pub all_cpus: bool,
}

/// Arguments of `pfc stat`.
#[derive(Debug, Args)]
pub struct StatArgs {
    /// Events to count
    #[arg(short, long = "event", value_name = "EVENT,...", value_delimiter = ',')]
    pub events: Vec<String>,
    #[command(flatten)]
    pub targets: TargetArgs,
    /// Print raw counts, not scaled to the whole time
    #[arg(long)]
    pub no_scale: bool,
    /// Omit values of events that were counted for less than PCT percent of the time
    #[arg(long, value_name = "PCT", value_parser = parse_percentage)]
    pub refuse_below: Option<f64>,
    /// Milliseconds per event set, if there are more events than counters [1]
    #[arg(long = "turn", value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub turn: Option<u64>,
    /// Start counting in each thread after N of this event
    #[arg(long, value_name = "EVENT=N")]
    pub cascade: Option<String>,
    /// Print the counts of each interval of MS milliseconds
    #[arg(short = 'I', long = "interval-print", value_name = "MS", conflicts_with = "repeat",
          value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pub interval: Option<u64>,
    /// Print fields separated by SEP
    #[arg(short = 'x', long = "field-separator", value_name = "SEP")]
    pub separator: Option<String>,
    /// Print JSON, one object per line
    #[arg(short, long, conflicts_with = "separator")]
    pub json: bool,
    /// Run the command N times and print means
    #[arg(short, long, value_name = "N", default_value_t = 1, requires = "command",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Count only the first thread of the command, without ptrace
    #[arg(short = 'i', long)]
    pub no_inherit: bool,
    /// Print why events cannot be counted
    #[arg(short, long)]
    pub verbose: bool,
    /// Command to run
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// Arguments of `pfc record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// Events to sample, independently of each other
    #[arg(short, long = "event", value_name = "EVENT,...", value_delimiter = ',')]
    pub events: Vec<String>,
    /// Samples per second [4000]
    #[arg(short = 'F', long = "freq", value_name = "HZ", conflicts_with = "period",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub frequency: Option<u64>,
    /// Take a sample every N events
    #[arg(short = 'c', long = "count", value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=i64::MAX as u64))]
    pub period: Option<u64>,
    /// Record call stacks, by frame pointers
    #[arg(short = 'g', long = "call-graph")]
    pub stacks: bool,
    #[command(flatten)]
    pub targets: TargetArgs,
    /// Pages of each ring, a power of two [128 per CPU, 32 per thread]
    #[arg(short = 'm', long = "mmap-pages", value_name = "PAGES", value_parser = parse_power_of_two)]
    pub pages: Option<u64>,
    /// Keep only the newest samples, and write them at the end
    #[arg(long)]
    pub overwrite: bool,
    /// Write a file at each SIGUSR2, with the time in its name
    #[arg(long)]
    pub switch_output: bool,
    /// Sample only the first thread of the command, without ptrace
    #[arg(short = 'i', long)]
    pub no_inherit: bool,
    /// Command to run
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

fn parse_percentage(word: &str) -> Result<f64, String> {
    match word.trim_end_matches('%').parse::<f64>() {
        Ok(n) if (0.0..=100.0).contains(&n) => Ok(n),
        _ => Err("expected a number from 0 to 100".to_owned()),
    }
}

fn parse_power_of_two(word: &str) -> Result<u64, String> {
    match word.parse::<u64>() {
        Ok(n) if n.is_power_of_two() && n <= 1 << 20 => Ok(n),
        _ => Err("expected a power of two, for example 64".to_owned()),
    }
}

/// Arguments of `pfc top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Event to sample
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,
    /// Samples per second
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub frequency: u64,
    #[command(flatten)]
    pub targets: TargetArgs,
    /// Milliseconds between tables
    #[arg(short = 'I', long, value_name = "MS", default_value_t = 2000,
          value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    pub interval: u64,
    /// Stop after N tables
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Lines per table, in a pipe
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub lines: usize,
    /// Print plain lines, also on a terminal
    #[arg(long)]
    pub plain: bool,
}

/// Arguments of `pfc pmu` and `pfc doctor`.
#[derive(Debug, Args)]
pub struct JsonArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
