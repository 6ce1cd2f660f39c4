// SPDX-License-Identifier: GPL-2.0

//! The target of a run: the command, existing threads or CPUs.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use crate::cli::{StatArgs, TargetArgs};
use crate::error::{Failure, TryingTo};
use perfmon::Scope;

use super::monitored_processes::MonitoredProcesses;
use crate::hotplug::{read_online_cpus, ONLINE_CPUS_PATH};
use crate::text_file;

/// The tasks or CPUs that a run counts.
pub enum Target {
    /// The command that the user gave, from its exec on, and its children unless `--no-inherit` is
    /// given.
    Command,
    /// Existing threads, which are given by their IDs, and the processes of `-p` to which the
    /// threads belong. Counting of existing threads ends when the command exits or the user
    /// interrupts. Without a command, counting ends when the contexts of all threads have ended.
    Threads(Vec<u32>, MonitoredProcesses),
    /// CPUs, by number. Counting ends when the command exits or the user interrupts.
    Cpus(Vec<u32>),
}

impl Target {
    /// Returns the CPUs that are counted; `None` if threads are counted.
    pub fn cpus(&self) -> Option<&[u32]> {
        match self {
            Self::Cpus(cpus) => Some(cpus),
            Self::Command | Self::Threads(..) => None,
        }
    }

    /// Returns the scope of the contexts that count.
    pub fn scope(&self) -> Scope {
        match self {
            Self::Cpus(_) => Scope::System,
            Self::Command | Self::Threads(..) => Scope::Thread,
        }
    }

    /// Prints a message for each process of `-p` that continues although all its threads with a
    /// context have exited. Returns true if there is no such process. `has_exited` returns true for
    /// a thread whose context has ended because the thread has exited.
    pub fn report_unless_monitored_to_end(&self, has_exited: impl Fn(u32) -> bool) -> bool {
        match self {
            Self::Threads(_, processes) => processes.report_unless_monitored_to_end(has_exited),
            Self::Command | Self::Cpus(_) => true,
        }
    }
}

/// Returns the threads or CPUs that the options select. `verb` is a verb such as "count", for error
/// messages about missing options. `has_command` says whether the user gave a command, which is the
/// target if no option selects threads or CPUs.
pub fn select_target(args: &TargetArgs, verb: &str, has_command: bool) -> Result<Target, Failure> {
    if args.all_cpus || args.cpus.is_some() {
        let online = read_online_cpus().trying_to(format_args!("read {ONLINE_CPUS_PATH}"))?;
        let Some(list) = &args.cpus else {
            return Ok(Target::Cpus(online));
        };
        let Some(selected) = parse_cpu_list(list.trim()) else {
            return Err(Failure::Refused(format!(
                "invalid list of CPUs '{list}'; use a list such as 0,2-3"
            )));
        };
        return match selected.iter().find(|cpu| !online.contains(cpu)) {
            None => Ok(Target::Cpus(selected)),
            Some(cpu) => Err(Failure::Refused(format!(
                "CPU {cpu} is not online; online CPUs: {}",
                text_file::read_text_escaping_non_utf8(ONLINE_CPUS_PATH)
                    .unwrap_or_default()
                    .trim()
            ))),
        };
    }
    if !args.threads.is_empty() {
        let threads = remove_duplicates(args.threads.clone());
        return Ok(Target::Threads(threads, MonitoredProcesses::default()));
    }
    if args.processes.is_empty() {
        return match has_command {
            false => Err(Failure::Refused(format!(
                "nothing to {verb}; give a command, -p, -t, -C or -a, see --help"
            ))),
            true => Ok(Target::Command),
        };
    }
    let (mut threads, mut processes) = (Vec::new(), MonitoredProcesses::default());
    for process in &args.processes {
        let directory = format!("/proc/{process}/task");
        let tasks = std::fs::read_dir(&directory).or_else(|e| match e.kind() {
            io::ErrorKind::NotFound if Path::new("/proc/self").exists() => {
                Err(Failure::Refused(format!("no process {process}")))
            }
            _ => Err(e).trying_to(format_args!("read {directory}")),
        })?;
        let number =
            |e: io::Result<std::fs::DirEntry>| e.ok()?.file_name().to_str()?.parse::<u32>().ok();
        let threads_of_process: Vec<u32> = tasks.filter_map(number).collect();
        threads.extend(&threads_of_process);
        processes.add(*process, threads_of_process);
    }
    Ok(Target::Threads(remove_duplicates(threads), processes))
}

/// Removes repeated threads, because only one context can be attached to a thread. The user may
/// name a thread twice, or two threads of a process with `-p`.
fn remove_duplicates(mut threads: Vec<u32>) -> Vec<u32> {
    let mut seen = BTreeSet::new();
    threads.retain(|thread| seen.insert(*thread));
    threads
}

/// Parses a list of CPUs such as `0,2-3` into ascending numbers without duplicates. Returns `None`
/// if the text is not a list of CPUs, or has a number above 65,535.
pub fn parse_cpu_list(list: &str) -> Option<Vec<u32>> {
    let mut is_listed = vec![false; usize::from(u16::MAX) + 1];
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        if first > last {
            return None;
        }
        is_listed[usize::from(first)..=usize::from(last)].fill(true);
    }
    let listed = (0..).zip(is_listed).filter(|(_, is_listed)| *is_listed);
    Some(listed.map(|(cpu, _)| cpu).collect())
}

/// Returns the counted target in perf's words, for the title of the output.
pub(super) fn report_title(args: &StatArgs, target: &Target) -> String {
    match args
        .cascade
        .as_deref()
        .and_then(|word| word.rsplit_once('='))
    {
        Some((event, count)) => {
            format!(
                "{}, each after {count} {event}",
                describe_target(args, target)
            )
        }
        None => describe_target(args, target),
    }
}

fn describe_target(args: &StatArgs, target: &Target) -> String {
    let join = |numbers: &[u32]| {
        let words: Vec<String> = numbers.iter().map(u32::to_string).collect();
        words.join(",")
    };
    match target {
        Target::Command => {
            let words: Vec<_> = args
                .command
                .iter()
                .map(|w| visible::escape_os_str(w))
                .collect();
            format!("'{}'", words.join(" "))
        }
        Target::Cpus(_) if args.targets.cpus.is_none() => "'system wide'".to_owned(),
        Target::Cpus(cpus) => format!("'CPU(s) {}'", join(cpus)),
        Target::Threads(..) if !args.targets.threads.is_empty() => {
            format!("thread id '{}'", join(&args.targets.threads))
        }
        Target::Threads(..) => format!("process id '{}'", join(&args.targets.processes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_6_repeated_threads_are_counted_once() {
        let select = |processes: &[u32], threads: &[u32]| {
            let args = TargetArgs {
                processes: processes.to_vec(),
                threads: threads.to_vec(),
                cpus: None,
                all_cpus: false,
            };
            match select_target(&args, "count", false) {
                Ok(Target::Threads(threads, _)) => threads,
                _ => panic!("no threads"),
            }
        };
        assert_eq!(select(&[], &[7, 5, 7, 5]), [7, 5]);
        let own = std::process::id();
        let threads = select(&[own, own], &[]);
        assert_eq!(threads.iter().filter(|thread| **thread == own).count(), 1);
    }
}
