// SPDX-License-Identifier: GPL-2.0

//! `pfc stat`: counts events for a command, for threads or for CPUs, like `perf stat`.
//!
//! A run has four steps: parse the events, place them on registers, attach one context per thread
//! or CPU, and print. If there are more events than counters, they are placed in several event sets
//! that take turns, and the values are scaled with an error bar.
//!
//! | file | contents |
//! |---|---|
//! | `events.rs` | event names: perf's, soft registers, counter pages, raw codes, libpfm4 |
//! | `groups.rs` | the `{a,b}` syntax: events that must share an event set |
//! | `place.rs` | assigns events to PMDs and event sets |
//! | `counting.rs` | the contexts of a run: creation, attach, reading |
//! | `estimate.rs` | scaling and error bars for events that counted part of the time |
//! | `command.rs`, `process.rs` | starts a command, follows its children (ptrace, unsafe) |
//! | `wait.rs` | one wait for children, signals and the interval timer |
//! | `short.rs`, `throttled.rs` | why counts are missing; time without samples |
//! | `report.rs`, `row.rs`, `derived.rs` | output: table, CSV, JSON; derived metrics such as IPC |

pub mod command;
pub mod counting;
mod derived;
pub mod estimate;
pub mod events;
mod groups;
pub mod place;
mod process;
mod report;
mod row;
pub mod short;
pub mod throttled;
pub mod wait;

use std::io;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use perfmon::Scope;
use rustix::thread::gettid;

use crate::cli::{StatArgs, Whom};
use crate::failure::Failure;
use crate::out::Out;
use crate::rights;
use command::Child;
use counting::{has_context, is_gone, Group, Threshold, TURN};
pub use counting::{is_busy, Recipe};
use estimate::Sums;
use events::{Event, Machine};
use place::{place, spread, Place, Plan};
use report::Report;
use wait::{Alive, Waiter, Wake};

/// The tasks or CPUs that a run counts.
pub enum Target {
    /// The command, from its exec on, and its children unless `--no-inherit` is given.
    Command,
    /// Existing threads, by id, until the command exits (without one: until all of them have
    /// exited) or the user interrupts.
    Threads(Vec<u32>),
    /// CPUs, by number, until the command exits or the user interrupts.
    Cpus(Vec<u32>),
}

impl Target {
    /// Returns the CPUs that are counted; `None` if threads are.
    pub fn cpus(&self) -> Option<&[u32]> {
        match self {
            Self::Cpus(cpus) => Some(cpus),
            Self::Command | Self::Threads(_) => None,
        }
    }
}

/// The result of one run (`-r` makes several).
pub struct Counts {
    /// The values are in the order of the recipe's sources.
    pub values: Vec<Sums>,
    pub elapsed: Duration,
    /// User and system time of the children that were reaped in this run, in seconds, from
    /// `getrusage(RUSAGE_CHILDREN)`.
    pub times: (f64, f64),
}

pub fn run(device: &Path, args: &StatArgs, file: Option<&Path>) -> Result<ExitCode, Failure> {
    let target = target(&args.whom, "count", !args.command.is_empty())?;
    let scope = match target {
        Target::Cpus(_) => Scope::System,
        _ => Scope::Thread,
    };
    let machine = Machine::here(target.cpus());
    let (events, groups) = match args.events.is_empty() {
        true => (machine.default_events(), Vec::new()),
        false => groups::parse(&args.events)?
            .into_iter()
            .map(|(word, group)| Ok((machine.event(&word, device)?, group)))
            .collect::<Result<Vec<_>, Failure>>()?
            .into_iter()
            .unzip(),
    };
    let clock = clock(&machine, scope);
    let plan = spread(&events, &groups, &machine.map)
        .map_err(|(group, event)| groups::not_together(&events, &groups, group, event))?;
    let threshold = match &args.cascade {
        Some(word) => Some(threshold(word, &machine, device)?),
        None => None,
    };
    let recipe = |plan: &Plan| Recipe {
        turn: args.turn.map_or(TURN, |ms| ms * 1_000_000),
        threshold: threshold.clone(),
        ..Recipe::new(scope, plan, clock)
    };
    let plan = available(plan, &target, &recipe)?;
    advise(&events, &plan, &machine, args.verbose);
    let recipe = recipe(&plan);
    let out = match file {
        Some(_) => Out::stream(file)?,
        None => Out::stderr(),
    };
    let mut report = Report::new(args, title(args, &target), &events, &plan, &recipe, out);
    let mut run = Run {
        args,
        target,
        waiter: Waiter::new()?,
        follow: !args.no_inherit,
        interrupted: false,
    };
    let (mut all, mut status) = (Vec::new(), None);
    for _ in 0..args.repeat {
        let mut group = Group::new(recipe.clone());
        let (counts, ended) = run.once(&mut group, &mut report)?;
        if group.lost > 0 {
            eprintln!(
                "pfc: {} threads were not counted: too many at once, or permission denied",
                group.lost
            );
        }
        for sentence in group.shorts.sentences(scope, "counting") {
            eprintln!("pfc: {sentence}");
        }
        let throttled = group.throttled()?;
        if !throttled.is_none() {
            eprintln!("pfc: the event of --cascade was {throttled}; its count is complete");
        }
        all.push(counts);
        status = ended;
        if run.is_interrupted()? {
            break;
        }
    }
    report.end(&all)?;
    Ok(status.map_or(ExitCode::SUCCESS, exit_code))
}

/// Returns the exit status of the command, or 128 plus the number of the signal that killed it.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status
        .code()
        .or(status.signal().map(|signal| 128 + signal))
        .unwrap_or(2);
    ExitCode::from(u8::try_from(code).unwrap_or(2))
}

/// Parses `--cascade EVENT=N`: events are counted only after `N` events of that kind.
fn threshold(word: &str, machine: &Machine, device: &Path) -> Result<Threshold, Failure> {
    let wrong = || {
        Failure::Refused(format!(
            "invalid threshold '{word}'; use EVENT=COUNT, for example branch-misses=1000"
        ))
    };
    let (name, count) = word.rsplit_once('=').ok_or_else(wrong)?;
    let count: u64 = count.replace('_', "").parse().map_err(|_| wrong())?;
    if count == 0 || count > i64::MAX as u64 {
        return Err(wrong());
    }
    let event = machine.event(name, device)?;
    let why = event.why.clone();
    let plan = place(&[event], &machine.map);
    match plan.places.first() {
        Some(Place::Pmd(pmd)) => Ok(Threshold {
            pmcs: plan.pmcs,
            pmd: *pmd,
            count,
        }),
        _ => Err(Failure::Refused(match why {
            Some(why) => format!("cannot count '{name}': {why}"),
            None => {
                format!("no register counts '{name}' on this machine; pfc pmu lists the registers")
            }
        })),
    }
}

/// Returns the PMD that measures for how long events were counted, if the machine has it.
fn clock(machine: &Machine, scope: Scope) -> Option<u16> {
    let number = match scope {
        Scope::Thread => perfmon::TASK_CLOCK,
        Scope::System => perfmon::CPU_CLOCK,
    };
    machine.map.pmd(number).map(|r| r.number)
}

/// Returns the plan if its registers are available, which is tried once on this thread or on the
/// first CPU. If the PMU is in use, returns the plan without hardware registers.
fn available(
    plan: Plan,
    target: &Target,
    recipe: &dyn Fn(&Plan) -> Recipe,
) -> Result<Plan, Failure> {
    let on = match target {
        Target::Cpus(cpus) => cpus[0],
        _ => gettid().as_raw_nonzero().get().unsigned_abs(),
    };
    let attempt = |plan: &Plan| match plan.is_empty() {
        // There is nothing to count, but the device must exist nevertheless.
        true => std::fs::metadata(perfmon::DEVICE).map(drop),
        false => recipe(plan).try_on(on),
    };
    let error = match attempt(&plan) {
        Ok(()) => return Ok(plan),
        // This thread is itself monitored by another program. That says nothing about the threads
        // to be counted.
        Err(error) if has_context(&error) && matches!(target, Target::Threads(_)) => {
            return Ok(plan);
        }
        Err(error) => error,
    };
    if !is_busy(&error) || !plan.hardware {
        return Err(refused("count", &error));
    }
    eprintln!("pfc: the PMU is in use by perf, the NMI watchdog or another context; hardware events are not counted; see pfc doctor");
    let plan = plan.without_hardware();
    attempt(&plan).map_err(|e| refused("count", &e))?;
    Ok(plan)
}

/// Prints which events cannot be counted and what to do, one line for each reason.
fn advise(events: &[Event], plan: &Plan, machine: &Machine, verbose: bool) {
    use place::Place::NotSupported;
    let missing = |soft: bool| {
        events.iter().zip(&plan.places).any(|(event, place)| {
            *place == NotSupported && soft == machine.is_soft_name(&event.name)
        })
    };
    if missing(false) && machine.vendor.is_none() {
        eprintln!(
            "pfc: this machine has no usable PMU; hardware events are not counted; see pfc doctor"
        );
    } else if missing(false) {
        say_why(events, plan, machine, verbose);
    }
    if missing(true) && machine.map.pmd(perfmon::CPU_CLOCK).is_some() {
        eprintln!("pfc: some of these events exist for threads only; drop -a and -C to count them");
    } else if missing(true) {
        eprintln!("pfc: no software events are available; load them: modprobe pfm_soft");
    }
    if plan.too_many {
        eprintln!("pfc: more counter:NAME events than registers; count at most four at a time");
    }
}

/// Prints why the processor cannot count some events: one line per event with `-v`, otherwise only
/// their number.
fn say_why(events: &[Event], plan: &Plan, machine: &Machine, verbose: bool) {
    let all = events.iter().zip(&plan.places);
    let missing: Vec<&Event> = all
        .filter(|(event, place)| {
            **place == Place::NotSupported && !machine.is_soft_name(&event.name)
        })
        .map(|(event, _)| event)
        .collect();
    if !verbose {
        let (n, s) = (missing.len(), if missing.len() == 1 { "" } else { "s" });
        return eprintln!(
            "pfc: {n} event{s} cannot be counted on this machine; for the reasons use -v"
        );
    }
    for event in missing {
        let why = event.why.as_deref();
        let why = why.unwrap_or("no counter of this processor can count it");
        eprintln!("pfc: '{}': {why}", event.base());
    }
}

/// Makes the error for a failed system call. `what` says what could not be done; advice is added.
pub fn refused(what: &str, error: &io::Error) -> Failure {
    use io::ErrorKind::{NotFound, PermissionDenied, ResourceBusy};
    let device = perfmon::DEVICE;
    let todo = match (error.kind(), error.raw_os_error()) {
        (NotFound, _) => format!("{device}: no such device; load the module: modprobe perfcounters"),
        (_, Some(libc::EACCES)) => {
            format!("{device}: permission denied; {}", rights::remedy(device, true))
        }
        (PermissionDenied, _) => "permission denied; kernel mode, CPUs and other users' tasks need CAP_PERFMON; kernel threads cannot be counted; try EVENT:u with your own command".to_owned(),
        (ResourceBusy, _) => "the PMU is in use; see pfc doctor".to_owned(),
        _ if is_gone(error) => "no such thread".to_owned(),
        _ if has_context(error) => "the thread already has a context; end the program that uses it".to_owned(),
        _ => format!("{error}; see pfc doctor"),
    };
    Failure::Refused(format!("cannot {what}: {todo}"))
}

/// Returns the threads or CPUs that the options select. `what` is the verb for error messages;
/// `command` says whether a command was given, which is the target if no option is.
pub fn target(args: &Whom, what: &str, command: bool) -> Result<Target, Failure> {
    if args.all_cpus || args.cpus.is_some() {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
        let list = args.cpus.as_ref().unwrap_or(&online);
        return match cpus(list.trim()) {
            Some(wanted) => {
                let there = cpus(online.trim()).unwrap_or_default();
                match wanted.iter().find(|cpu| !there.contains(cpu)) {
                    None => Ok(Target::Cpus(wanted)),
                    Some(cpu) => Err(Failure::Refused(format!(
                        "CPU {cpu} is not online; online CPUs: {}",
                        online.trim()
                    ))),
                }
            }
            None => Err(Failure::Refused(format!(
                "invalid list of CPUs '{list}'; use a list such as 0,2-3"
            ))),
        };
    }
    if !args.threads.is_empty() {
        return Ok(Target::Threads(args.threads.clone()));
    }
    if args.processes.is_empty() {
        return match command {
            false => Err(Failure::Refused(format!(
                "nothing to {what}; give a command, -p, -t, -C or -a, see --help"
            ))),
            true => Ok(Target::Command),
        };
    }
    let mut threads = Vec::new();
    for process in &args.processes {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task"))
            .map_err(|_| Failure::Refused(format!("no process {process}")))?;
        let number =
            |e: io::Result<std::fs::DirEntry>| e.ok()?.file_name().to_str()?.parse::<u32>().ok();
        threads.extend(tasks.filter_map(number));
    }
    Ok(Target::Threads(threads))
}

/// Parses a list of CPUs such as `0,2-3` into ascending numbers without duplicates. Returns `None`
/// if it is not such a list, or has a number above 65,535.
pub fn cpus(list: &str) -> Option<Vec<u32>> {
    let mut all = std::collections::BTreeSet::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > 65_535 {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all.into_iter().collect())
}

/// Returns the target in perf's words, for the title of the output.
fn title(args: &StatArgs, target: &Target) -> String {
    match args
        .cascade
        .as_deref()
        .and_then(|word| word.rsplit_once('='))
    {
        Some((event, count)) => format!("{}, each after {count} {event}", whose(args, target)),
        None => whose(args, target),
    }
}

fn whose(args: &StatArgs, target: &Target) -> String {
    let list = |numbers: &[u32]| {
        let words: Vec<String> = numbers.iter().map(u32::to_string).collect();
        words.join(",")
    };
    match target {
        Target::Command => format!("'{}'", args.command.join(" ")),
        Target::Cpus(_) if args.whom.cpus.is_none() => "'system wide'".to_owned(),
        Target::Cpus(cpus) => format!("'CPU(s) {}'", list(cpus)),
        Target::Threads(_) if !args.whom.threads.is_empty() => {
            format!("thread id '{}'", list(&args.whom.threads))
        }
        Target::Threads(_) => format!("process id '{}'", list(&args.whom.processes)),
    }
}

/// State that is kept over the runs of one invocation.
struct Run<'a> {
    args: &'a StatArgs,
    target: Target,
    waiter: Waiter,
    follow: bool,
    interrupted: bool,
}

/// The timer of `-I`: when the next interval is due.
struct Ticks {
    every: Option<Duration>,
    begun: Instant,
    next: Option<Instant>,
}

impl Ticks {
    fn begin(args: &StatArgs) -> Self {
        let every = args.interval.map(Duration::from_millis);
        let begun = Instant::now();
        Self {
            every,
            begun,
            next: every.map(|t| begun + t),
        }
    }

    fn tick(&mut self, group: &mut Group, report: &mut Report<'_>) -> Result<(), Failure> {
        report.interval(group.read()?, self.begun.elapsed())?;
        // If more than one interval has passed, the missed ones are left out.
        if let (Some(every), Some(next)) = (self.every, &mut self.next) {
            while *next <= Instant::now() {
                *next += every;
            }
        }
        Ok(())
    }
}

impl Run<'_> {
    /// Handles pending signals. Returns true if SIGINT or SIGTERM has arrived since the program
    /// began.
    fn is_interrupted(&mut self) -> io::Result<bool> {
        loop {
            match self.waiter.wait(Some(Instant::now()))? {
                Wake::Interrupted | Wake::Terminated => self.interrupted = true,
                Wake::Child | Wake::Switch | Wake::Ready => {}
                Wake::Time => return Ok(self.interrupted),
            }
        }
    }

    /// Makes one run. Returns its counts, and the exit status of the command if there is one.
    fn once(
        &mut self,
        group: &mut Group,
        report: &mut Report<'_>,
    ) -> Result<(Counts, Option<ExitStatus>), Failure> {
        let before = process::children_times();
        let (elapsed, status) = match &self.target {
            Target::Command => self.command(group, report)?,
            Target::Threads(threads) => {
                for thread in threads {
                    match group.load(*thread) {
                        // Threads of a process may have exited since its task directory was read.
                        Err(e) if is_gone(&e) && self.args.whom.threads.is_empty() => {}
                        done => done.map_err(|e| refused(&format!("count thread {thread}"), &e))?,
                    }
                }
                self.others(group, report)?
            }
            Target::Cpus(cpus) => {
                for cpu in cpus {
                    group
                        .load(*cpu)
                        .map_err(|e| refused(&format!("count CPU {cpu}"), &e))?;
                }
                self.others(group, report)?
            }
        };
        let after = process::children_times();
        let values = group.read()?;
        if self.args.interval.is_some() {
            report.interval(values.clone(), elapsed)?;
        }
        let counts = Counts {
            values,
            elapsed,
            times: (after.0 - before.0, after.1 - before.1),
        };
        Ok((counts, status))
    }

    fn command(
        &mut self,
        group: &mut Group,
        report: &mut Report<'_>,
    ) -> Result<(Duration, Option<ExitStatus>), Failure> {
        let words = &self.args.command;
        let mut child = match self.follow {
            true => match Child::traced(words, group) {
                Err(error) => {
                    eprintln!("pfc: cannot follow children and threads: {error}; check sysctl kernel.yama.ptrace_scope");
                    self.follow = false;
                    Child::alone(words, group)?
                }
                child => child?,
            },
            false => Child::alone(words, group)?,
        };
        let mut ticks = Ticks::begin(self.args);
        loop {
            let begun = child.has_begun();
            if let Some(status) = child.look(group)? {
                return Ok((ticks.begun.elapsed(), Some(status)));
            }
            if child.has_begun() && !begun {
                ticks = Ticks::begin(self.args);
            }
            match self.waiter.wait(ticks.next)? {
                Wake::Time => ticks.tick(group, report)?,
                Wake::Terminated => {
                    self.interrupted = true;
                    child.signal(libc::SIGTERM);
                }
                // The terminal sends SIGINT to the command as well.
                Wake::Interrupted => self.interrupted = true,
                Wake::Child | Wake::Switch | Wake::Ready => {}
            }
        }
    }

    /// Counts threads or CPUs until the command exits or the user interrupts. Without a command,
    /// counting of threads ends when all of them have exited. A command that still runs is killed.
    fn others(
        &mut self,
        group: &mut Group,
        report: &mut Report<'_>,
    ) -> Result<(Duration, Option<ExitStatus>), Failure> {
        let mut ticks = Ticks::begin(self.args);
        group.start().map_err(|e| refused("count", &e))?;
        let mut child = command::beside(&self.args.command)?;
        let mut alive = match &self.target {
            Target::Threads(threads) if child.is_none() => Some(Alive::new(threads)),
            _ => None,
        };
        let mut status = None;
        while !alive.as_mut().is_some_and(Alive::is_over) {
            let threads = alive.as_ref().map_or(Vec::new(), Alive::files);
            match self.waiter.wait_for(ticks.next, &threads)? {
                Wake::Time => ticks.tick(group, report)?,
                Wake::Interrupted | Wake::Terminated => {
                    self.interrupted = true;
                    break;
                }
                Wake::Child => {
                    if let Some(child) = &mut child {
                        status = child.try_wait()?;
                        if status.is_some() {
                            break;
                        }
                    }
                }
                Wake::Switch | Wake::Ready => {}
            }
        }
        group.stop();
        let elapsed = ticks.begun.elapsed();
        if let (Some(mut child), None) = (child, status) {
            let _ = child.kill();
            status = child.wait().ok();
        }
        Ok((elapsed, status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_6_lists_of_cpus() {
        assert_eq!(cpus("0,2-3"), Some(vec![0, 2, 3]));
        assert_eq!(cpus("3-4,4,1"), Some(vec![1, 3, 4]));
        for wrong in ["", "a", "3-2", "1-", "-1", "0,,1", "0-99999"] {
            assert_eq!(cpus(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn r1_6_exit_statuses_are_the_commands() {
        use std::os::unix::process::ExitStatusExt;
        let code = |raw| exit_code(ExitStatus::from_raw(raw));
        assert_eq!(code(7 << 8), ExitCode::from(7));
        assert_eq!(code(libc::SIGKILL), ExitCode::from(137));
    }
}
