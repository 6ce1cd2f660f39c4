// SPDX-License-Identifier: GPL-2.0

//! `pfc stat`: counts of events for a command, threads or CPUs, as perf stat
//! gives them.
//!
//! | file | holds |
//! |---|---|
//! | `events.rs` | what events are called |
//! | `place.rs` | which register counts which |
//! | `groups.rs` | events that stay together |
//! | `estimate.rs` | what a part of the time says of all, and how well |
//! | `counting.rs` | the contexts of threads or CPUs |
//! | `command.rs` `process.rs` | a command and all that it starts; unsafe |
//! | `wait.rs` | children, Ctrl-C, time |
//! | `short.rs` `throttled.rs` | counts that are missing, time without samples |
//! | `report.rs` `row.rs` `derived.rs` | what is printed |

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

/// Who is counted.
pub enum Target {
    /// The command, from its exec on.
    Command,
    /// These threads, for as long as the command runs.
    Threads(Vec<u32>),
    /// These CPUs.
    Cpus(Vec<u32>),
}

/// Counts of one run.
pub struct Counts {
    /// In the recipe's order.
    pub values: Vec<Sums>,
    pub elapsed: Duration,
    /// Seconds that the command and its children were in user mode, in the kernel.
    pub times: (f64, f64),
}

pub fn run(device: &Path, args: &StatArgs, file: Option<&Path>) -> Result<ExitCode, Failure> {
    let target = target(&args.whom, "count", !args.command.is_empty())?;
    let scope = match target {
        Target::Cpus(_) => Scope::System,
        _ => Scope::Thread,
    };
    let machine = Machine::here(scope == Scope::System);
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
                "pfc: {} threads could not be counted: too many at once, or not yours to count",
                group.lost
            );
        }
        for sentence in group.shorts.sentences(scope, "counting") {
            eprintln!("pfc: {sentence}");
        }
        let throttled = group.throttled()?;
        if !throttled.is_none() {
            eprintln!("pfc: the event of --cascade was {throttled}; what it counts is whole");
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

/// The command's own; 128 and the signal if one ended it.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status
        .code()
        .or(status.signal().map(|signal| 128 + signal))
        .unwrap_or(2);
    ExitCode::from(u8::try_from(code).unwrap_or(2))
}

/// `EVENT=N`: what is counted is what comes after.
fn threshold(word: &str, machine: &Machine, device: &Path) -> Result<Threshold, Failure> {
    let wrong = || {
        Failure::Refused(format!(
            "'{word}' is no threshold, such as branch-misses=1000"
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
            Some(why) => format!("'{name}' cannot be counted: {why}"),
            None => format!("there is nothing that counts {name}"),
        })),
    }
}

/// The register that says for how long was counted.
fn clock(machine: &Machine, scope: Scope) -> Option<u16> {
    let number = match scope {
        Scope::Thread => perfmon::TASK_CLOCK,
        Scope::System => perfmon::CPU_CLOCK,
    };
    machine.map.pmd(number).map(|r| r.number)
}

/// The plan, if its registers can be had: tried once, on this thread or the
/// first of the CPUs. Without those of the PMU if somebody has that.
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
        // Without the module nothing is counted, whatever is asked for.
        true => std::fs::metadata(perfmon::DEVICE).map(drop),
        false => recipe(plan).try_on(on),
    };
    let error = match attempt(&plan) {
        Ok(()) => return Ok(plan),
        // This thread is counted itself; of others that says nothing.
        Err(error) if has_context(&error) && matches!(target, Target::Threads(_)) => {
            return Ok(plan);
        }
        Err(error) => error,
    };
    if !is_busy(&error) || !plan.hardware {
        return Err(refused("count", &error));
    }
    eprintln!("pfc: the PMU is in somebody else's hands, its events are not counted; 'pfc doctor' says whose");
    let plan = plan.without_hardware();
    attempt(&plan).map_err(|e| refused("count", &e))?;
    Ok(plan)
}

/// What cannot be counted, and what to do about it: a line for each reason.
fn advise(events: &[Event], plan: &Plan, machine: &Machine, verbose: bool) {
    use place::Place::NotSupported;
    let missing = |soft: bool| {
        events.iter().zip(&plan.places).any(|(event, place)| {
            *place == NotSupported && soft == machine.is_soft_name(&event.name)
        })
    };
    if missing(false) && machine.vendor.is_none() {
        eprintln!("pfc: there is no PMU to count with; 'pfc doctor' says why");
    } else if missing(false) {
        say_why(events, plan, machine, verbose);
    }
    if missing(true) && machine.map.pmd(perfmon::CPU_CLOCK).is_some() {
        eprintln!(
            "pfc: a CPU has none of the kernel's own events that are a thread's; without -a and -C"
        );
    } else if missing(true) {
        eprintln!("pfc: the kernel's own events are not there; load them: modprobe pfm_soft");
    }
    if plan.too_many {
        eprintln!(
            "pfc: there are more instances of counter pages than registers; take four at a time"
        );
    }
}

/// Why the processor cannot count some events: each, or that there are some.
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
        return eprintln!("pfc: {n} event{s} cannot be counted here; -v says why");
    }
    for event in missing {
        let why = event.why.as_deref();
        let why = why.unwrap_or("no counter of this processor can count it");
        eprintln!("pfc: '{}': {why}", event.base());
    }
}

/// A call that the kernel refused, and what to do.
pub fn refused(what: &str, error: &io::Error) -> Failure {
    use io::ErrorKind::{NotFound, PermissionDenied, ResourceBusy};
    let device = perfmon::DEVICE;
    let todo = match (error.kind(), error.raw_os_error()) {
        (NotFound, _) => format!("{device} is not there; load the module: modprobe perfcounters"),
        (_, Some(libc::EACCES)) => {
            format!("{device} is not for this user; {}", rights::remedy(device, true))
        }
        (PermissionDenied, _) => "the kernel, CPUs, and what others run are for CAP_PERFMON, and the kernel's own threads for nobody; take user mode (:u) and a command of your own".to_owned(),
        (ResourceBusy, _) => "it is in use; 'pfc doctor' says by whom".to_owned(),
        _ if is_gone(error) => "there is no such thread".to_owned(),
        _ if has_context(error) => "the thread has a context already; end the other program".to_owned(),
        _ => format!("{error}; 'pfc doctor' looks for the cause"),
    };
    Failure::Refused(format!("cannot {what}: {todo}"))
}

/// Whom, as it was said; `what` is done with them.
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
                        "CPU {cpu} is not online; these are: {}",
                        online.trim()
                    ))),
                }
            }
            None => Err(Failure::Refused(format!(
                "'{list}' is no list of CPUs, such as 0,2-3"
            ))),
        };
    }
    if !args.threads.is_empty() {
        return Ok(Target::Threads(args.threads.clone()));
    }
    if args.processes.is_empty() {
        return match command {
            false => Err(Failure::Refused(format!(
                "nothing to {what}: give a command, -p, -t, -C or -a; --help has examples"
            ))),
            true => Ok(Target::Command),
        };
    }
    let mut threads = Vec::new();
    for process in &args.processes {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task"))
            .map_err(|_| Failure::Refused(format!("there is no process {process}")))?;
        let number =
            |e: io::Result<std::fs::DirEntry>| e.ok()?.file_name().to_str()?.parse::<u32>().ok();
        threads.extend(tasks.filter_map(number));
    }
    Ok(Target::Threads(threads))
}

/// `0,2-3` as numbers, each once.
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

/// What is counted, in perf's words.
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

/// What a run needs.
struct Run<'a> {
    args: &'a StatArgs,
    target: Target,
    waiter: Waiter,
    follow: bool,
    interrupted: bool,
}

/// When the next line is due, and what the last had.
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
        // Late by more than one, those in between are left out.
        if let (Some(every), Some(next)) = (self.every, &mut self.next) {
            while *next <= Instant::now() {
                *next += every;
            }
        }
        Ok(())
    }
}

impl Run<'_> {
    /// Has the user had enough?
    fn is_interrupted(&mut self) -> io::Result<bool> {
        loop {
            match self.waiter.wait(Some(Instant::now()))? {
                Wake::Interrupted | Wake::Terminated => self.interrupted = true,
                Wake::Child | Wake::Switch | Wake::Ready => {}
                Wake::Time => return Ok(self.interrupted),
            }
        }
    }

    /// One run: its counts, and how the command ended if there is one.
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
                        // Of a process, some may have ended since it was looked at.
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
                    eprintln!("pfc: children and threads are not followed: {error}; is ptrace forbidden (sysctl kernel.yama.ptrace_scope)?");
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
                // The terminal has told the command, too.
                Wake::Interrupted => self.interrupted = true,
                Wake::Child | Wake::Switch | Wake::Ready => {}
            }
        }
    }

    /// Threads or CPUs, while the command runs; without one while the threads do, or until
    /// the user says so.
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
