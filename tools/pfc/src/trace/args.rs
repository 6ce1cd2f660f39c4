// SPDX-License-Identifier: GPL-2.0

//! The command line of `pfc trace`.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueEnum};
use perftrace_reader::{
    ALL_USERS, MAX_BUFFER_BYTES, MAX_FIELDS_BYTES, MAX_NAME_BYTES, MIN_BUFFER_BYTES, SHARED, WAIT,
};

use crate::error::Failure;

/// Arguments of `pfc trace`.
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
pub struct TraceArgs {
    #[command(subcommand)]
    pub command: TraceCommand,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Create a trace, and write its events until it ends
    #[command(after_help = "\
Examples:
  pfc trace start all                        all programs of the user, into directory all
  pfc trace start db -e 'db:*' -f 'ms > 10' -o slow
                                             slow queries, until Ctrl-C or pfc trace stop db
  pfc trace start make --format perfetto -- make -j2
                                             until the command ends; for ui.perfetto.dev
  pfc trace start box -e 'app:*' -s 64K --flight
                                             a flight recorder; see pfc trace snapshot
  pfc trace start sys --kernel sched --all-users
                                             as root, with context switches of the kernel
  babeltrace2 all                            print the events of directory all

GLOBS match whole names of markers, 'provider:event'. Without -e, all markers are
traced except those of the kernel. A filter compares fields of a marker, $thread,
$process and $marker, with == != < <= > >= & (a bit is set) ~ (a glob), && || ! and
parentheses. A comparison of a field that the marker does not have is false.
At the end, lost events are reported with the reason. Exit status: that of the command,
if there is one; 2 error, with a message.")]
    Start(StartArgs),
    /// End a trace; its recorder writes the remaining events
    #[command(after_help = "\
Examples:
  pfc trace stop db          pfc trace start db ends, with status 0
  pfc trace stop box         a flight recorder; its events are discarded")]
    Stop(StopArgs),
    /// Write the events that a flight recorder has kept
    #[command(after_help = "\
Examples:
  pfc trace snapshot box -o now              then: babeltrace2 now
  pfc trace snapshot box --format text | tail

Recording continues meanwhile. Events of processes that have exited or were killed are
included.")]
    Snapshot(SnapshotArgs),
    /// Show events, live
    #[command(after_help = "\
Examples:
  pfc trace live -e 'app:*'                  programs of the user, until Ctrl-C
  pfc trace live -e 'db:*' -f 'rows > 1000'  only events that pass a filter
  pfc trace live box                         new events of a flight recorder")]
    Live(LiveArgs),
    /// List traces, or markers of running programs
    #[command(
        visible_alias = "ls",
        after_help = "\
Examples:
  pfc trace list                             traces of the user; for root, all traces
  pfc trace list --markers                   markers of running programs
  pfc trace list --json                      as JSON"
    )]
    List(ListArgs),
    /// Attach programs that started before the module was loaded; needs root
    #[command(after_help = "\
Examples:
  modprobe perftrace && pfc trace arm        as the service does when it starts

A program that could not attach before, for example because there was no device,
tries again at its next event after this.")]
    Arm,
    /// Detach all programs from the module, so that it can be unloaded; needs root
    #[command(after_help = "\
Examples:
  pfc trace release && rmmod perftrace       as the service does when it stops

Programs with markers keep the device open while they run. They continue untraced, and
attach again after the next pfc trace arm. A system call in which one of them sleeps may
fail with EINTR, as after SIGSTOP and SIGCONT. The command fails while traces exist.
Exit status: 2 some programs, which are named, did not detach; all stay attached.
SIGINT and SIGTERM end the command with status 2 as well.")]
    Release(ReleaseArgs),
}

/// Arguments that select events, and how they are buffered.
#[derive(Debug, Args)]
pub struct TraceConfigArgs {
    /// Globs for names of markers [all except those of the kernel]
    #[arg(short, long = "event", value_name = "GLOBS", value_delimiter = ',')]
    pub events: Vec<String>,
    /// Trace only events that match, for example 'size > 4096 && file ~ "*.db"'
    #[arg(short, long, value_name = "FILTER")]
    pub filter: Option<String>,
    /// Also trace events of the kernel; needs root or CAP_PERFMON
    #[arg(long, value_name = "WHICH,...", value_delimiter = ',')]
    pub kernel: Vec<KernelEvents>,
    /// Size of each buffer, for example 64K [16K; 1M with --shared]
    #[arg(short, long, value_name = "BYTES", value_parser = parse_buffer_size)]
    pub size: Option<u32>,
    /// Block threads while a buffer is full, so that no event is lost
    #[arg(long, conflicts_with = "shared")]
    pub wait: bool,
    /// Longest wait in milliseconds before the event is lost; or "inf" [10000]
    #[arg(long, value_name = "MS", requires = "wait", value_parser = parse_blocking_timeout)]
    pub blocking_timeout: Option<u32>,
    /// Share one buffer per CPU among programs that allow it, without protection
    #[arg(long)]
    pub shared: bool,
    /// Trace programs of all users; needs root or CAP_PERFMON
    #[arg(long)]
    pub all_users: bool,
}

/// Events of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KernelEvents {
    /// Context switches
    Sched,
    /// Entry and exit of system calls
    Syscalls,
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// CTF 2, a directory for babeltrace2 and Trace Compass
    Ctf,
    /// Text, one line per event
    Text,
    /// JSON, for ui.perfetto.dev and chrome://tracing
    Perfetto,
}

/// Arguments of `pfc trace start`.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// Name of the trace
    #[arg(value_name = "NAME", value_parser = parse_trace_name)]
    pub name: String,
    #[command(flatten)]
    pub config: TraceConfigArgs,
    /// Keep the newest events in memory; the trace continues after pfc has exited
    #[arg(long, conflicts_with_all = ["wait", "output", "format", "command"])]
    pub flight: bool,
    /// Output format; without -o written to NAME, standard output or NAME.json
    #[arg(long, value_name = "FORMAT", default_value = "ctf")]
    pub format: OutputFormat,
    /// Command to run; the trace ends when it exits
    #[arg(value_name = "COMMAND", last = true)]
    pub command: Vec<OsString>,
}

/// Arguments of `pfc trace stop`.
#[derive(Debug, Args)]
pub struct StopArgs {
    /// Name of the trace
    #[arg(value_name = "NAME", value_parser = parse_trace_name)]
    pub name: String,
}

/// Arguments of `pfc trace snapshot`.
#[derive(Debug, Args)]
pub struct SnapshotArgs {
    /// Name of the trace
    #[arg(value_name = "NAME", value_parser = parse_trace_name)]
    pub name: String,
    /// Output format; without -o written to NAME, standard output or NAME.json
    #[arg(long, value_name = "FORMAT", default_value = "ctf")]
    pub format: OutputFormat,
}

/// Arguments of `pfc trace live`.
#[derive(Debug, Args)]
pub struct LiveArgs {
    /// Name of an existing trace [create a new one]
    #[arg(value_name = "NAME", value_parser = parse_trace_name,
          conflicts_with_all = ["events", "filter", "kernel", "size", "wait", "shared", "all_users"])]
    pub name: Option<String>,
    #[command(flatten)]
    pub config: TraceConfigArgs,
}

/// Arguments of `pfc trace list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// List markers of running programs
    #[arg(long)]
    pub markers: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `pfc trace release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// Seconds to wait for programs to detach
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub timeout: u32,
}

impl TraceConfigArgs {
    /// Returns the globs for names of markers in the kernel's format: one string, with a blank
    /// between two globs.
    pub fn joined_marker_globs(&self) -> Result<String, Failure> {
        let mut globs: Vec<&str> = self.events.iter().map(String::as_str).collect();
        if let Some(bad) = globs
            .iter()
            .find(|g| g.is_empty() || g.contains([' ', '\0']))
        {
            return Err(Failure::Refused(format!(
                "invalid marker name '{bad}'; names have the form 'provider:event'"
            )));
        }
        if globs.is_empty() && !self.kernel.is_empty() {
            globs.push("*");
        }
        for kernel in &self.kernel {
            globs.extend(match kernel {
                KernelEvents::Sched => &["kernel:sched_switch"][..],
                KernelEvents::Syscalls => &["kernel:sys_enter", "kernel:sys_exit"],
            });
        }
        let all = globs.join(" ");
        match all.len() < MAX_FIELDS_BYTES {
            true => Ok(all),
            false => Err(Failure::Refused(format!(
                "the marker names have {} bytes, but at most {} are possible; use globs",
                all.len(),
                MAX_FIELDS_BYTES - 1
            ))),
        }
    }

    pub fn trace_flags(&self) -> u32 {
        [
            (self.wait, WAIT),
            (self.shared, SHARED),
            (self.all_users, ALL_USERS),
        ]
        .iter()
        .filter(|(wanted, _)| *wanted)
        .fold(0, |all, (_, flag)| all | flag)
    }
}

/// Parses the value of `--blocking-timeout`. The value "inf" becomes `u32::MAX`, which means "no
/// limit" to the kernel.
fn parse_blocking_timeout(word: &str) -> Result<u32, String> {
    match word {
        "inf" => Ok(u32::MAX),
        _ => match word.parse() {
            Ok(ms) if ms != 0 && ms != u32::MAX => Ok(ms),
            _ => Err("expected milliseconds, at least 1, or \"inf\"".to_owned()),
        },
    }
}

fn parse_trace_name(word: &str) -> Result<String, String> {
    let is_valid = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    match word.len() {
        1.. if word.len() < MAX_NAME_BYTES && word.bytes().all(is_valid) => Ok(word.to_owned()),
        _ => Err("expected at most 63 letters, digits and _.-".to_owned()),
    }
}

fn parse_buffer_size(word: &str) -> Result<u32, String> {
    let (digits, unit) = match word.as_bytes().last() {
        Some(b'K' | b'k') => (&word[..word.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&word[..word.len() - 1], 1 << 20),
        _ => (word, 1),
    };
    let bytes = digits.parse::<u32>().ok().and_then(|n| n.checked_mul(unit));
    match bytes {
        Some(n) if n.is_power_of_two() && (MIN_BUFFER_BYTES..=MAX_BUFFER_BYTES).contains(&n) => {
            Ok(n)
        }
        _ => Err("expected a power of two from 4K to 4M".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r3_2_buffer_sizes_are_powers_of_two() {
        assert_eq!(parse_buffer_size("4096"), Ok(4096));
        assert_eq!(parse_buffer_size("64K"), Ok(65536));
        assert_eq!(parse_buffer_size("4m"), Ok(4 << 20));
        for bad in " K 0 3K 2K 8M -4K 4294967295M 64Kü é".split(' ') {
            assert!(parse_buffer_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn r9_2_blocking_timeout_is_milliseconds_or_inf() {
        assert_eq!(parse_blocking_timeout("1"), Ok(1));
        assert_eq!(parse_blocking_timeout("inf"), Ok(u32::MAX));
        for bad in ["0", "", "-1", "4294967295", "1s", "Inf"] {
            assert!(parse_blocking_timeout(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn r3_11_marker_globs_are_joined() {
        let mut config = TraceConfigArgs {
            events: vec!["a:*".to_owned(), "b:c".to_owned()],
            filter: None,
            kernel: vec![KernelEvents::Syscalls],
            size: None,
            wait: false,
            blocking_timeout: None,
            shared: true,
            all_users: true,
        };
        let all = config.joined_marker_globs().expect("they fit");
        assert_eq!(all, "a:* b:c kernel:sys_enter kernel:sys_exit");
        assert_eq!(config.trace_flags(), SHARED | ALL_USERS);
        config.events.clear();
        config.kernel = vec![KernelEvents::Sched];
        let all = config.joined_marker_globs().expect("they fit");
        assert_eq!(all, "* kernel:sched_switch");
        config.events = vec!["x".repeat(240)];
        assert!(config.joined_marker_globs().is_err());
        config.events = vec!["a b".to_owned()];
        assert!(config.joined_marker_globs().is_err());
    }
}
