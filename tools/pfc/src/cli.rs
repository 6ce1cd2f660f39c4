// SPDX-License-Identifier: GPL-2.0

//! The command line, as clap structures. Help, completions and manual pages are generated from
//! them.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use perfcounters::{Pattern, DEVICE};

use crate::export;
use crate::ppa::args::PpaArgs;
use crate::trace::args::TraceArgs;

/// Kernel counters, read without system calls; events, counted
#[derive(Debug, Parser)]
#[command(
    name = "pfc",
    version,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  pfc watch                         what the kernel does, live
  pfc list irq                      instances with 'irq' in their name
  pfc read 'block/*' --per-cpu      totals and each CPU's part
  pfc watch --plain -n 5 --count 3  three tables of the five busiest
  pfc snapshot --json -o now.json   everything, of one moment
  pfc export --openmetrics          text for Prometheus
  pfc stat -e cycles make           events of a command
  pfc record -g make                where its time goes; then pfc report
  pfc ppa --top                     where the time of tasks goes, by time stamps
  pfc trace live                    events that programs write, as they come
  pfc doctor                        what is in the way, and what to do

PATTERN: a glob for the whole name if it has *, ? or [; else a part of it.
Exit status: 0 done; 1 nothing matched; 2 something is wrong, and said."
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every subcommand.
#[derive(Debug, Args)]
pub struct Global {
    /// The counters to read
    #[arg(long, global = true, value_name = "PATH", default_value = DEVICE)]
    pub device: PathBuf,
    /// Write to this file instead of standard output
    #[arg(short, long, global = true, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the instances: number, name, kind, unit, state
    #[command(
        visible_alias = "ls",
        after_help = "\
Examples:
  pfc list                   all live instances
  pfc list 'net/*/rx_*' -v   with help texts
  pfc list --all --json      dormant ones too, for a program"
    )]
    List(ListArgs),
    /// Read values once: totals over all CPUs
    #[command(after_help = "\
Examples:
  pfc read sched             totals of everything with 'sched' in its name
  pfc read -z irq softirq    only what is not zero
  pfc read --per-cpu mm      each CPU's part too
  pfc read --csv 'syscalls/*' -o calls.csv

Time is shown in s, ms, us or ns, bytes in KiB and so on; --json and --csv are
exact: a value is value * 10^exponent units.")]
    Read(ReadArgs),
    /// Watch rates, live: a table on a terminal, plain lines in a pipe
    #[command(after_help = "\
Examples:
  pfc watch                        the busiest first; ? shows the keys
  pfc watch block -i 200           block devices, five times a second
  pfc watch --plain -n 10          lines, the ten busiest
  pfc watch --count 1 'net/*' | tail -n +3

An instance that began anew counts from its birth, marked 'new'. Dormant ones
(their driver has gone) are shown grey, or with --all in lines.")]
    Watch(WatchArgs),
    /// One consistent snapshot, with its generation, boot id and time
    #[command(after_help = "\
Examples:
  pfc snapshot                     everything that is live, by CPU
  pfc snapshot 'disk/*' --json     for a program
  pfc snapshot --all               dormant instances' last values too

All values are of one generation of the set of instances, and those of each
CPU belong together: no group of updates is seen half.")]
    Snapshot(SnapshotArgs),
    /// Give values to other monitors, in their formats
    #[command(after_help = "\
Examples:
  pfc export --openmetrics                    once, on standard output
  pfc export --openmetrics --sum 'net/*'      totals over all CPUs
  pfc export --openmetrics -o pfc.prom        a file that is never half
  pfc export --openmetrics -o pfc.prom -i 5000
                                              anew every five seconds
  pfc export --openmetrics --listen 127.0.0.1:9464
                                              http://127.0.0.1:9464/metrics
  pfc export --mmv perfcounters               metrics mmv.perfcounters.* for PCP

block/sda/reads is perfcounters_block_reads_total{device=\"sda\",cpu=\"0\"}; the
label 'name' has the instance's own name. Values are in seconds, bytes and so
on. For JSON of pfc's own, see 'pfc snapshot --json'.")]
    Export(ExportArgs),
    /// Count events of a command, of threads or of CPUs, as perf stat does
    #[command(after_help = "\
Examples:
  pfc stat make                          the usual events
  pfc stat -e cycles,instructions:u make these; :u user mode, :k the kernel
  pfc stat -e r01c2 -e UOPS_ISSUED:ANY true   by code; by libpfm4's name
  pfc stat -e counter:mm/page_faults_user true
                                         how much that counter grew meanwhile
  pfc stat -p 1234 -- sleep 1            all threads that it has, for a second
  pfc stat -p 1234                       the same, until they have ended or Ctrl-C
  pfc stat -a -I 1000                    all CPUs, each second, until Ctrl-C
  pfc stat -r 5 -x, true                 means of five runs, for a program
  pfc stat -e '{cycles,instructions},branches,branch-misses,r2e' true
                                         in turns, if there are too few counters;
                                         what is in braces together
  pfc stat --cascade branch-misses:u=1000 -e cycles:u true
                                         of each thread what comes after those

(33.3%, +- 1.2%) behind an event: it was counted in that much of the time, the
value is what it would be for all of it, and the true one is not farther away
in 99 of 100 cases, unless the program changes in step with the turns.
A command is counted from its exec on, with all processes and threads that it
makes; with -p and -t those that come later are not. Without CAP_PERFMON the
kernel, CPUs and other users' programs are not to be counted. What is followed
gets no rights of set-uid programs: for those take --no-inherit.
Events: perf's generic names, the kernel's own (task-clock, context-switches,
page-faults, migrations and so on), counter:NAME, rHEX, and libpfm4's names.
Exit status: the command's, 128 + signal if one ended it; 127 or 126 if it could
not be run; 2 something is wrong, and said.")]
    Stat(StatArgs),
    /// Sample a command, threads or CPUs into a file, as perf record does
    #[command(after_help = "\
Examples:
  pfc record make                        where cycles go, or time without a PMU
  pfc record -g -F 999 make              with call stacks, 999 samples a second
  pfc record -e instructions:u -c 100003 true
                                         one of each 100003 instructions
  pfc record -a -g -- sleep 10           all CPUs, for ten seconds
  pfc record -p 1234 -o daemon.data      until Ctrl-C
  pfc record -a --overwrite --switch-output &
  kill -USR2 %1                          the last moments before, in a file

The file is linux-perf's perf.data: pfc report, script and flamegraph read it,
and so do perf report and the like. Events, and who may sample what: see pfc
stat. A flight recorder (--overwrite) keeps the newest samples in memory until
SIGUSR2 or its end. Formats are of the module pfm_ring.
Exit status: the command's; 127 or 126 if it could not be run; 2 something is
wrong, and said.")]
    Record(RecordArgs),
    /// Watch where samples are, live: a table on a terminal, lines in a pipe
    #[command(after_help = "\
Examples:
  pfc top                            all CPUs: cycles, or time without a PMU
  pfc top -p 1234 -e instructions:u  one process
  pfc top --plain -n 5 --count 3     three tables of the five busiest")]
    Top(TopArgs),
    /// Show where samples were, the most first
    #[command(after_help = "\
Examples:
  pfc report                         of pfc.data: command, file, function
  pfc report -g -i other.data        who called them, too
  pfc report --sort dso,sym -F 1     only what is one percent or more
  pfc report --json                  for a program
  pfc report --firefox -o all.json   for profiler.firefox.com
  pfc report --pprof -o all.pb       for go tool pprof

The file is perf.data of pfc record, or of linux-perf without compression.
Names of functions are those of the files that are there now; the kernel's are
for root, or with sysctl kernel.kptr_restrict=0.")]
    Report(ReportArgs),
    /// Print each sample, or stacks in lines
    #[command(after_help = "\
Examples:
  pfc script                         as perf script does
  pfc script --json -i other.data    an object a line
  pfc script --folded | sort -k2 -n  stacks, for flame graph programs")]
    Script(ScriptArgs),
    /// Draw stacks as a flame graph, for a browser
    #[command(after_help = "\
Examples:
  pfc flamegraph -o all.svg          of pfc.data; a click zooms, Ctrl-F finds
  pfc flamegraph -e cycles -i other.data -o cycles.svg

Without -e it is of the first event. For other programs that draw such graphs:
pfc script --folded.")]
    Flamegraph(FlamegraphArgs),
    /// Show where the time of tasks and CPUs went, by time stamps
    #[command(after_help = "\
Examples:
  pfc ppa on                         account all tasks; off ends it
  pfc ppa                            all tasks, the busiest first, and CPUs
  pfc ppa --cpus --rows 5            five of them, and each CPU
  pfc ppa 1234                       one, as ppa of 2006 has it
  pfc ppa --top -s latency -d 1      what comes, live, every second
  pfc ppa --top -n 3 -p 1234,1235    of two tasks, three times
  pfc ppa --histogram 1234           how long it waited to run, how often
  pfc ppa record 1234 -o 1234.ppa    one over time; then
  pfc ppa report 1234.ppa -o 1234.svg
  pfc ppa --json                     for a program: exact, in ticks

USER is time in user mode, SYSTEM in system calls, IRQ in interrupts that came
while it ran, WAITING ready to run without a CPU; LATENCY is what one wakeup
takes until it runs. BLOCKED and PREEMPTED are how often it gave up a CPU, of
itself and for others. Tasks that have ended are shown once, to whoever looks
first. All tasks and CPUs are for CAP_PERFMON; one's own tasks are for anybody.
Keys of --top: t time, l latency, i preemptions, r interrupts, s system calls,
space pauses, q quits.")]
    Ppa(PpaArgs),
    /// Trace events that programs write, without a system call
    #[command(after_help = "\
Examples:
  pfc trace list --markers                   what programs can be asked for
  pfc trace live -e 'app:*'                  events, as they come
  pfc trace start all                        into a directory, until Ctrl-C; then
  babeltrace2 all
  pfc trace start box -e 'app:*' --flight    keep the newest; and after a crash
  pfc trace snapshot box -o crash

Programs have markers, of PERFTRACE() in C and a macro in Rust; what is not traced
costs them next to nothing. A trace is of one's own programs, and there are 16 at
most.
Exit status: the command's, if there is one; 2 something is wrong, and said.")]
    Trace(TraceArgs),
    /// Show the PMU's registers, and which tables of event names fit
    #[command(after_help = "\
Examples:
  pfc pmu                    registers, libpfm4's tables
  pfc pmu --json             for a program")]
    Pmu(JsonArgs),
    /// Find out what is in the way of counting, accounting and tracing, and what to do
    #[command(after_help = "\
Examples:
  pfc doctor                 a line for each thing that is looked at
  pfc doctor --json          for a bug report

It changes nothing. A note is so, and nothing is wrong with it; a problem is in
the way of this user.
Exit status: 0 no problem; 1 at least one.")]
    Doctor(JsonArgs),
    /// Print the completions of a shell
    #[command(hide = true)]
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write all of them into a directory
    #[command(hide = true)]
    Man {
        /// Where to: pfc.1, pfc-list.1 and so on
        directory: Option<PathBuf>,
    },
}

/// Which instances.
#[derive(Debug, Args)]
pub struct Select {
    /// Which instances: globs for names, or parts of names
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// Dormant instances too: those whose owner has gone
    #[arg(short, long)]
    pub all: bool,
}

impl Select {
    pub fn pattern(&self) -> Pattern {
        Pattern::new(&self.patterns).dormant(self.all)
    }

    /// The patterns as the user wrote them.
    pub fn words(&self) -> String {
        self.patterns.join(" ")
    }
}

/// Arguments of `pfc list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub select: Select,
    /// Show help texts and times too
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
    pub select: Select,
    /// Show each CPU's part too
    #[arg(short = 'A', long)]
    pub per_cpu: bool,
    /// Leave out what is zero
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
    pub select: Select,
    /// Milliseconds between two looks
    #[arg(short, long, value_name = "MS", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pub interval: u64,
    /// Stop after this many intervals
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Lines shown per interval, the busiest
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub lines: usize,
    /// Plain lines, also on a terminal
    #[arg(long)]
    pub plain: bool,
}

/// Arguments of `pfc snapshot`.
#[derive(Debug, Args)]
pub struct SnapshotArgs {
    #[command(flatten)]
    pub select: Select,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `pfc export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    pub format: export::Chosen,
    /// Keep metrics mmv.NAME.* for Performance Co-Pilot up to date
    #[arg(long, value_name = "NAME", conflicts_with_all = ["output", "listen"])]
    pub mmv: Option<String>,
    /// Where PCP's agent pmdammv looks
    #[arg(long, value_name = "DIRECTORY", default_value = export::MMV_DIRECTORY)]
    pub mmv_directory: PathBuf,
    #[command(flatten)]
    pub select: Select,
    /// Totals over all CPUs only
    #[arg(short, long)]
    pub sum: bool,
    /// Write the file (-o), or values (--mmv), anew every so many milliseconds [1000]
    #[arg(short, long, value_name = "MS",
          value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pub interval: Option<u64>,
    /// The so many busiest tasks, too, if they are accounted (pfc ppa on)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub tasks: Option<u16>,
    /// Write the file so many times, then stop
    #[arg(long, value_name = "N", requires = "output",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Serve over HTTP at this address, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["output", "interval", "count"])]
    pub listen: Option<SocketAddr>,
    /// Let other machines in: an address that is not loopback. Nothing is
    /// encrypted, nobody is asked who they are
    #[arg(long, requires = "listen")]
    pub allow_remote: bool,
}

/// Which threads or CPUs.
#[derive(Debug, Args)]
pub struct Whom {
    /// All threads of these processes that there are now
    #[arg(
        short,
        long = "pid",
        value_name = "PID,...",
        value_delimiter = ',',
        group = "whom"
    )]
    pub processes: Vec<u32>,
    /// These threads
    #[arg(
        short,
        long = "tid",
        value_name = "TID,...",
        value_delimiter = ',',
        group = "whom"
    )]
    pub threads: Vec<u32>,
    /// These CPUs, whoever runs there
    #[arg(short = 'C', long = "cpu", value_name = "CPUS", group = "whom")]
    pub cpus: Option<String>,
    /// All CPUs
    #[arg(short, long, group = "whom")]
    pub all_cpus: bool,
}

/// Arguments of `pfc stat`.
#[derive(Debug, Args)]
pub struct StatArgs {
    /// Events to count, together
    #[arg(short, long = "event", value_name = "EVENT,...", value_delimiter = ',')]
    pub events: Vec<String>,
    #[command(flatten)]
    pub whom: Whom,
    /// Print what was counted, not what it would be had it been all the time
    #[arg(long)]
    pub no_scale: bool,
    /// Print no event that was counted in less of the time
    #[arg(long, value_name = "PCT", value_parser = percentage)]
    pub refuse_below: Option<f64>,
    /// Milliseconds of a turn, where there are more events than counters [1]
    #[arg(long = "turn", value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub turn: Option<u64>,
    /// Count what comes after so many of that event
    #[arg(long, value_name = "EVENT=N")]
    pub cascade: Option<String>,
    /// Print what came, each so many milliseconds
    #[arg(short = 'I', long = "interval-print", value_name = "MS", conflicts_with = "repeat",
          value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pub interval: Option<u64>,
    /// Print fields with this between them
    #[arg(short = 'x', long = "field-separator", value_name = "SEP")]
    pub separator: Option<String>,
    /// Print JSON, an object a line
    #[arg(short, long, conflicts_with = "separator")]
    pub json: bool,
    /// Run the command so many times; print means
    #[arg(short, long, value_name = "N", default_value_t = 1, requires = "command",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Only the command's first thread, without ptrace
    #[arg(short = 'i', long)]
    pub no_inherit: bool,
    /// Say why events cannot be counted
    #[arg(short, long)]
    pub verbose: bool,
    /// What to run
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub command: Vec<String>,
}

/// Arguments of `pfc record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// Events to sample, each by itself
    #[arg(short, long = "event", value_name = "EVENT,...", value_delimiter = ',')]
    pub events: Vec<String>,
    /// Samples per second [4000]
    #[arg(short = 'F', long = "freq", value_name = "HZ", conflicts_with = "period",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub frequency: Option<u64>,
    /// Events from one sample to the next
    #[arg(short = 'c', long = "count", value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=i64::MAX as u64))]
    pub period: Option<u64>,
    /// With call stacks, by frame pointers
    #[arg(short = 'g', long = "call-graph")]
    pub stacks: bool,
    #[command(flatten)]
    pub whom: Whom,
    /// Pages of each ring, a power of two [128 of a CPU, 32 of a thread]
    #[arg(short = 'm', long = "mmap-pages", value_name = "PAGES", value_parser = power_of_two)]
    pub pages: Option<u64>,
    /// Keep the newest samples, and write them at the end
    #[arg(long)]
    pub overwrite: bool,
    /// Another file at each SIGUSR2, with the time in its name
    #[arg(long)]
    pub switch_output: bool,
    /// Only the command's first thread, without ptrace
    #[arg(short = 'i', long)]
    pub no_inherit: bool,
    /// What to run
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub command: Vec<String>,
}

fn percentage(word: &str) -> Result<f64, String> {
    match word.trim_end_matches('%').parse::<f64>() {
        Ok(n) if (0.0..=100.0).contains(&n) => Ok(n),
        _ => Err("a number from 0 to 100".to_owned()),
    }
}

fn power_of_two(word: &str) -> Result<u64, String> {
    match word.parse::<u64>() {
        Ok(n) if n.is_power_of_two() && n <= 1 << 20 => Ok(n),
        _ => Err("a power of two, such as 64".to_owned()),
    }
}

/// Arguments of `pfc top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// The event to sample
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,
    /// Samples per second
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub frequency: u64,
    #[command(flatten)]
    pub whom: Whom,
    /// Milliseconds between two tables
    #[arg(short = 'I', long, value_name = "MS", default_value_t = 2000,
          value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    pub interval: u64,
    /// Stop after this many tables
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Lines shown per table in a pipe
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub lines: usize,
    /// Plain lines, also on a terminal
    #[arg(long)]
    pub plain: bool,
}

/// A file of samples.
#[derive(Debug, Args)]
pub struct Input {
    /// The file [pfc.data]
    #[arg(short = 'i', long = "input", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Only samples of this event
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,
}

/// What lines of a report are made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SortKey {
    Comm,
    Dso,
    Sym,
    Pid,
    Tid,
    Cpu,
}

/// Arguments of `pfc report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    #[command(flatten)]
    pub input: Input,
    /// Plain text, which it always is
    #[arg(long)]
    pub stdio: bool,
    /// Show callers below each line
    #[arg(short = 'g', long = "call-graph")]
    pub stacks: bool,
    /// What lines are made by
    #[arg(
        short,
        long,
        value_name = "KEY,...",
        value_delimiter = ',',
        default_value = "comm,dso,sym"
    )]
    pub sort: Vec<SortKey>,
    /// Leave out lines below so many percent
    #[arg(
        short = 'F',
        long = "percent-limit",
        value_name = "PERCENT",
        default_value_t = 0.0
    )]
    pub limit: f64,
    /// Print JSON
    #[arg(long, group = "format")]
    pub json: bool,
    /// For the Firefox Profiler, https://profiler.firefox.com: its JSON
    #[arg(long, group = "format")]
    pub firefox: bool,
    /// For pprof: its protocol buffers, not compressed
    #[arg(long, group = "format")]
    pub pprof: bool,
}

impl ReportArgs {
    /// Returns the share of its line, in percent, below which a caller is left out. It is at least
    /// 0.5, perf's limit.
    pub fn least(&self) -> f64 {
        self.limit.max(0.5)
    }
}

/// Arguments of `pfc script`.
#[derive(Debug, Args)]
pub struct ScriptArgs {
    #[command(flatten)]
    pub input: Input,
    /// Print JSON, an object a line
    #[arg(long)]
    pub json: bool,
    /// Print each stack once, and how many samples have it
    #[arg(long, conflicts_with = "json")]
    pub folded: bool,
}

/// Arguments of `pfc flamegraph`.
#[derive(Debug, Args)]
pub struct FlamegraphArgs {
    #[command(flatten)]
    pub input: Input,
    /// What is written above it
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
}

/// Arguments of `pfc pmu` and `pfc doctor`.
#[derive(Debug, Args)]
pub struct JsonArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
