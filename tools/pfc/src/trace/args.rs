// SPDX-License-Identifier: GPL-2.0

//! The command line of `pfc trace`.

use clap::{Args, Subcommand, ValueEnum};
use perftrace_reader::{ALL_USERS, BYTES_MAX, BYTES_MIN, FIELDS_MAX, NAME_MAX, SHARED, WAIT};

use crate::failure::Failure;

/// Arguments of `pfc trace`.
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
pub struct TraceArgs {
    #[command(subcommand)]
    pub command: TraceCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Make a trace, and write its events until it ends
    #[command(after_help = "\
Examples:
  pfc trace start all                        all of one's programs, into the directory all
  pfc trace start db -e 'db:*' -f 'ms > 10' -o slow
                                             slow queries, until Ctrl-C or pfc trace stop db
  pfc trace start make --format perfetto -- make -j2
                                             until the command ends; then ui.perfetto.dev
  pfc trace start box -e 'app:*' -s 64K --flight
                                             a flight recorder; see pfc trace snapshot
  pfc trace start sys --kernel sched --all-users
                                             as root, with the kernel's switches
  babeltrace2 all                            what it has written

GLOBS are for whole names of markers, 'provider:event'; without -e all are wanted but
the kernel's. A filter compares a marker's fields, $thread, $process and $marker: ==
!= < <= > >= & (a bit is set) ~ (a glob), with && || ! and parentheses. What a marker
has not makes a comparison false.
What is lost, and why, is said at the end. Exit status: the command's, if there is
one; 2 something is wrong, and said.")]
    Start(StartArgs),
    /// End a trace; its recorder writes what is left
    #[command(after_help = "\
Examples:
  pfc trace stop db          its pfc trace start ends, with status 0
  pfc trace stop box         a flight recorder; what it kept is gone")]
    Stop(StopArgs),
    /// Write what a flight recorder has kept
    #[command(after_help = "\
Examples:
  pfc trace snapshot box -o now              then: babeltrace2 now
  pfc trace snapshot box --format text | tail

It goes on meanwhile. Events of processes that have ended, or were killed, are there
too.")]
    Snapshot(SnapshotArgs),
    /// Show events as they come
    #[command(after_help = "\
Examples:
  pfc trace live -e 'app:*'                  of one's programs, until Ctrl-C
  pfc trace live -e 'db:*' -f 'rows > 1000'  some of them
  pfc trace live box                         what comes into a flight recorder")]
    Live(LiveArgs),
    /// List traces, or markers of programs that run
    #[command(
        visible_alias = "ls",
        after_help = "\
Examples:
  pfc trace list                             one's traces; root's: all
  pfc trace list --markers                   what programs can be asked for
  pfc trace list --json                      for a program"
    )]
    List(ListArgs),
    /// Trace programs that began before the module was loaded; for root
    #[command(after_help = "\
Examples:
  modprobe perfcounters && pfc trace arm     what the service does when it starts

A program that finds no device when it begins attaches at its next event after this.")]
    Arm,
    /// Have programs let go of the module, so that it can be unloaded; for root
    #[command(after_help = "\
Examples:
  pfc trace release && rmmod perfcounters    what the service does when it stops

Programs with markers have the device open as long as they run. They go on, untraced, and
attach again after the next pfc trace arm. A system call that one of them sleeps in may
end with EINTR, as after SIGSTOP and SIGCONT. With traces there it is refused.
Exit status: 2 some did not let go, and are named; all are as before.")]
    Release(ReleaseArgs),
}

/// Which events, and how they are kept.
#[derive(Debug, Args)]
pub struct Wanted {
    /// Globs of markers' names [all but the kernel's]
    #[arg(short, long = "event", value_name = "GLOBS", value_delimiter = ',')]
    pub events: Vec<String>,
    /// Only events for which this is true, such as 'size > 4096 && file ~ "*.db"'
    #[arg(short, long, value_name = "FILTER")]
    pub filter: Option<String>,
    /// The kernel's own events, too; for root or CAP_PERFMON
    #[arg(long, value_name = "WHICH,...", value_delimiter = ',')]
    pub kernel: Vec<Kernel>,
    /// Bytes of each buffer, such as 64K [16K; 1M with --shared]
    #[arg(short, long, value_name = "BYTES", value_parser = size)]
    pub size: Option<u32>,
    /// A thread waits where there is no room, so that nothing is lost
    #[arg(long, conflicts_with = "shared")]
    pub wait: bool,
    /// Milliseconds that it waits at the most, until the event is lost; or "inf" [10000]
    #[arg(long, value_name = "MS", requires = "wait", value_parser = patience)]
    pub blocking_timeout: Option<u32>,
    /// One buffer a CPU for all programs that take part: they can harm each other's
    #[arg(long)]
    pub shared: bool,
    /// Programs of all users; for root or CAP_PERFMON
    #[arg(long)]
    pub all_users: bool,
}

/// Events of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kernel {
    /// Switches from thread to thread
    Sched,
    /// System calls, their beginnings and ends
    Syscalls,
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A directory, for babeltrace2 and Trace Compass: CTF 2
    Ctf,
    /// Lines
    Text,
    /// JSON, for ui.perfetto.dev and chrome://tracing
    Perfetto,
}

/// Arguments of `pfc trace start`.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// What it is to be called
    #[arg(value_name = "NAME", value_parser = name)]
    pub name: String,
    #[command(flatten)]
    pub wanted: Wanted,
    /// Keep the newest events in memory; it goes on by itself
    #[arg(long, conflicts_with_all = ["wait", "output", "format", "command"])]
    pub flight: bool,
    /// What is written: to NAME, standard output or NAME.json, if there is no -o
    #[arg(long, value_name = "FORMAT", default_value = "ctf")]
    pub format: Format,
    /// What to run; the trace ends with it
    #[arg(value_name = "COMMAND", last = true)]
    pub command: Vec<String>,
}

/// Arguments of `pfc trace stop`.
#[derive(Debug, Args)]
pub struct StopArgs {
    /// Its name
    #[arg(value_name = "NAME", value_parser = name)]
    pub name: String,
}

/// Arguments of `pfc trace snapshot`.
#[derive(Debug, Args)]
pub struct SnapshotArgs {
    /// Its name
    #[arg(value_name = "NAME", value_parser = name)]
    pub name: String,
    /// What is written: to NAME, standard output or NAME.json, if there is no -o
    #[arg(long, value_name = "FORMAT", default_value = "ctf")]
    pub format: Format,
}

/// Arguments of `pfc trace live`.
#[derive(Debug, Args)]
pub struct LiveArgs {
    /// A trace that is there [a new one]
    #[arg(value_name = "NAME", value_parser = name,
          conflicts_with_all = ["events", "filter", "kernel", "size", "wait", "shared", "all_users"])]
    pub name: Option<String>,
    #[command(flatten)]
    pub wanted: Wanted,
}

/// Arguments of `pfc trace list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Markers of programs that run
    #[arg(long)]
    pub markers: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How long it may take.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// Seconds until those that have not let go are named
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub timeout: u32,
}

impl Wanted {
    /// Returns the globs in the kernel's format: names with single blanks between them.
    pub fn markers(&self) -> Result<String, Failure> {
        let mut globs: Vec<&str> = self.events.iter().map(String::as_str).collect();
        if let Some(bad) = globs
            .iter()
            .find(|g| g.is_empty() || g.contains([' ', '\0']))
        {
            return Err(Failure::Refused(format!(
                "'{bad}' is no name of a marker; they are like 'provider:event'"
            )));
        }
        if globs.is_empty() && !self.kernel.is_empty() {
            globs.push("*");
        }
        for kernel in &self.kernel {
            globs.extend(match kernel {
                Kernel::Sched => &["kernel:sched_switch"][..],
                Kernel::Syscalls => &["kernel:sys_enter", "kernel:sys_exit"],
            });
        }
        let all = globs.join(" ");
        match all.len() < FIELDS_MAX {
            true => Ok(all),
            false => Err(Failure::Refused(format!(
                "these are {} bytes of names, and there is room for {}; use globs",
                all.len(),
                FIELDS_MAX - 1
            ))),
        }
    }

    pub fn flags(&self) -> u32 {
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

/// Parses a timeout. The kernel takes all ones as "no limit".
fn patience(word: &str) -> Result<u32, String> {
    match word {
        "inf" => Ok(u32::MAX),
        _ => match word.parse() {
            Ok(ms) if ms != 0 && ms != u32::MAX => Ok(ms),
            _ => Err("milliseconds, 1 at least, or \"inf\"".to_owned()),
        },
    }
}

fn name(word: &str) -> Result<String, String> {
    let well = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    match word.len() {
        1.. if word.len() < NAME_MAX && word.bytes().all(well) => Ok(word.to_owned()),
        _ => Err("letters, digits and _.-, 63 at most".to_owned()),
    }
}

fn size(word: &str) -> Result<u32, String> {
    let (digits, unit) = match word.as_bytes().last() {
        Some(b'K' | b'k') => (&word[..word.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&word[..word.len() - 1], 1 << 20),
        _ => (word, 1),
    };
    let bytes = digits.parse::<u32>().ok().and_then(|n| n.checked_mul(unit));
    match bytes {
        Some(n) if n.is_power_of_two() && (BYTES_MIN..=BYTES_MAX).contains(&n) => Ok(n),
        _ => Err("a power of two from 4K to 4M".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r3_2_sizes_are_powers_of_two() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("64K"), Ok(65536));
        assert_eq!(size("4m"), Ok(4 << 20));
        for bad in [
            "",
            "K",
            "0",
            "3K",
            "2K",
            "8M",
            "-4K",
            "4294967295M",
            "64Kü",
            "é",
        ] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn r9_2_how_long_a_thread_waits() {
        assert_eq!(patience("1"), Ok(1));
        assert_eq!(patience("inf"), Ok(u32::MAX));
        for bad in ["0", "", "-1", "4294967295", "1s", "Inf"] {
            assert!(patience(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn r3_11_globs_are_joined() {
        let mut wanted = Wanted {
            events: vec!["a:*".to_owned(), "b:c".to_owned()],
            filter: None,
            kernel: vec![Kernel::Syscalls],
            size: None,
            wait: false,
            blocking_timeout: None,
            shared: true,
            all_users: true,
        };
        let all = wanted.markers().expect("they fit");
        assert_eq!(all, "a:* b:c kernel:sys_enter kernel:sys_exit");
        assert_eq!(wanted.flags(), SHARED | ALL_USERS);
        wanted.events.clear();
        wanted.kernel = vec![Kernel::Sched];
        assert_eq!(wanted.markers().expect("they fit"), "* kernel:sched_switch");
        wanted.events = vec!["x".repeat(240)];
        assert!(wanted.markers().is_err());
        wanted.events = vec!["a b".to_owned()];
        assert!(wanted.markers().is_err());
    }
}
