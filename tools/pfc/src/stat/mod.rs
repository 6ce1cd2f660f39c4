// SPDX-License-Identifier: GPL-2.0

//! `pfc stat`: counts events for a command, for threads or for CPUs, like `perf stat`.
//!
//! A run of `pfc stat` has four steps: parse the events, assign the events to registers, attach one
//! context per thread or CPU, and print the counts. If there are more events than counters, the
//! events are assigned to several event sets, which are loaded in turn, and the counts are scaled
//! with an error bar.
//!
//! | file | contents |
//! |---|---|
//! | `target.rs` | what a run counts: a command, threads or CPUs |
//! | `events.rs` | event names: perf's, soft registers, counter pages, raw codes, libpfm4 |
//! | `event_code.rs` | codes of events on hardware counters; the codes of perf's generic names |
//! | `architectural_events.rs` | Intel's generic events that CPUID reports missing; unsafe |
//! | `groups.rs` | the `{a,b}` syntax: events that must share an event set |
//! | `assign.rs` | assigns events to PMDs and event sets |
//! | `counting.rs` | the contexts of a run: creation, attach, reading |
//! | `estimate.rs` | scaling and error bars for events that counted part of the time |
//! | `command.rs`, `process.rs` | starts a command, follows its children (ptrace, unsafe) |
//! | `side_command.rs` | runs a command beside a count of other threads or of CPUs |
//! | `monitored_processes.rs` | processes of `-p` that continue without a context |
//! | `failure.rs` | messages of failed system calls, with advice |
//! | `event_loop.rs`, `interval.rs` | one wait for children, signals and files; the timer of `-I` |
//! | `short_counts.rs`, `throttling.rs` | why counts are missing; time without samples |
//! | `report.rs`, `row.rs`, `derived.rs` | output: table, CSV, JSON; derived metrics such as IPC |

mod architectural_events;
pub mod assign;
pub mod command;
pub mod counting;
mod derived;
pub mod estimate;
mod event_code;
pub mod event_loop;
pub mod events;
mod failure;
#[cfg(test)]
mod fuzz;
mod groups;
mod interval;
pub mod monitored_processes;
mod process;
mod report;
mod row;
pub mod short_counts;
pub mod side_command;
mod start_pipe;
mod target;
pub mod throttling;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use assign::{assign_events_to_registers, assign_events_to_sets, EventPlacement, RegisterPlan};
use command::FollowedCommand;
use counting::{CascadeThreshold, CountingContexts, DEFAULT_EVENT_SET_TIMEOUT_NS};
use estimate::CountSums;
use event_loop::{EventLoop, WakeReason};
use events::{Event, MachineProperties};
use interval::IntervalTimer;
use perfmon::Scope;
pub use process::is_signal_ignored;
use report::StatReport;
use rustix::thread::gettid;
use side_command::SideCommand;
use target::report_title;

use crate::cli::StatArgs;
use crate::error::{Failure, TryingTo};
use crate::hotplug::{sum_gaps_by_cpu, MonitoredCpus};
use crate::output::Out;
use crate::pmu::load_perfmon_modules;
use crate::target::{is_ebusy, is_eexist, is_esrch};
pub use counting::CountingContextConfig;
pub use failure::syscall_failure;
pub use target::{parse_cpu_list, select_target, Target};

/// Names of actions for error messages. [`TryingTo`] puts the name after the word "cannot".
const READ_COUNTS_ACTION: &str = "read the counts of a context";
pub const WAIT_FOR_SIGNALS_ACTION: &str = "wait for signals and children";

/// The result of one run; the option `-r` makes several runs.
#[derive(Default)]
pub struct RunResult {
    /// The sums of each counted event, in the order of [`CountingContextConfig::count_sources`].
    pub event_sums: Vec<CountSums>,
    /// The time for which each CPU was not counted.
    pub uncounted_time_by_cpu: BTreeMap<u32, Duration>,
    pub elapsed: Duration,
    /// User and system time of the children that were reaped during the run, in seconds, from
    /// `getrusage(RUSAGE_CHILDREN)`.
    pub cpu_seconds: (f64, f64),
}

pub fn run(device: &Path, args: &StatArgs, file: Option<&Path>) -> Result<ExitCode, Failure> {
    let target = select_target(&args.targets, "count", !args.command.is_empty())?;
    let scope = target.scope();
    load_perfmon_modules();
    let machine = MachineProperties::read(target.cpus())?;
    let (events, groups) = match args.events.is_empty() {
        true => (machine.default_events(), Vec::new()),
        false => groups::parse_event_groups(&args.events)?
            .into_iter()
            .map(|(word, group)| Ok((machine.resolve_event_name(&word, device)?, group)))
            .collect::<Result<Vec<_>, Failure>>()?
            .into_iter()
            .unzip(),
    };
    let clock = find_clock_pmd(&machine, scope);
    let plan = assign_events_to_sets(&events, &groups, &machine.register_map).map_err(
        |(group, event)| groups::group_too_large_failure(&events, &groups, group, event),
    )?;
    let threshold = match &args.cascade {
        Some(word) => Some(parse_cascade_threshold(word, &machine, device)?),
        None => None,
    };
    let config_of = |plan: &RegisterPlan| CountingContextConfig {
        event_set_timeout_ns: args
            .turn
            .map_or(DEFAULT_EVENT_SET_TIMEOUT_NS, |ms| ms * 1_000_000),
        cascade_threshold: threshold.clone(),
        ..CountingContextConfig::new(scope, plan, clock)
    };
    let plan = plan_with_available_registers(plan, &target, &config_of)?;
    print_uncountable_events(&events, &plan, &machine, args.verbose);
    let config = config_of(&plan);
    let out = match file {
        Some(_) => Out::open_in_place(file)?,
        None => Out::stderr(),
    };
    let mut report = StatReport::new(
        args,
        report_title(args, &target),
        &events,
        &plan,
        &config,
        out,
    );
    let mut session = StatSession {
        args,
        target,
        event_loop: EventLoop::new().trying_to("catch signals")?,
        follows_children: !args.no_inherit,
        earlier_pids: BTreeSet::new(),
        is_interrupted: false,
    };
    let (mut counts_of_runs, mut status, mut is_complete) = (Vec::new(), None, true);
    for run in 1..=args.repeat {
        let mut group = CountingContexts::new(config.clone());
        let (counts, exit_status) = session.count_one_run(&mut group, &mut report)?;
        if let (n @ 1.., Some(error)) = (group.nr_uncounted_threads, &group.first_thread_error) {
            let why = syscall_failure("count a thread", error);
            message!("pfc: {n} threads were not counted; of the first: {why}");
            is_complete = false;
        }
        for sentence in group.incomplete_targets.cause_sentences(scope, "counting") {
            message!("pfc: {sentence}");
        }
        for (cpu, error) in &group.restart_errors_by_cpu {
            let failure = syscall_failure(&format!("count CPU {cpu} again"), error);
            message!("pfc: {failure}");
            is_complete = false;
        }
        let cpus = group.monitored_cpus.as_ref();
        if let Some(problem) = cpus.and_then(MonitoredCpus::describe_online_cpus_read_error) {
            message!("pfc: {problem}");
            is_complete = false;
        }
        is_complete &= !group.incomplete_targets.has_any_ended_early();
        let throttled = group
            .read_total_throttling()
            .trying_to(READ_COUNTS_ACTION)?;
        if !throttled.is_zero() {
            message!("pfc: the event of --cascade was {throttled}; its count is complete");
        }
        counts_of_runs.push(counts);
        status = exit_status;
        let is_interrupted = session
            .handle_pending_signals()
            .trying_to(WAIT_FOR_SIGNALS_ACTION)?;
        if is_interrupted || run == args.repeat {
            // A later run may monitor the new program of a process.
            is_complete &= session
                .target
                .report_unless_monitored_to_end(|thread| group.has_thread_exited(thread));
            break;
        }
    }
    report.finish_with_runs(&counts_of_runs)?;
    Ok(exit_code_of_run(status, is_complete))
}

/// Returns the exit status of a run of `pfc stat` or `pfc record`: the status of the command, if
/// there was one. If `is_complete` is false, because threads or CPUs were not counted or sampled to
/// their end, a status of 0 is replaced by 2.
pub fn exit_code_of_run(status: Option<ExitStatus>, is_complete: bool) -> ExitCode {
    match status {
        Some(status) if !status.success() => exit_code_of_command(status),
        _ if !is_complete => ExitCode::from(2),
        _ => ExitCode::SUCCESS,
    }
}

/// Returns the exit status of the command, or 128 plus the number of the signal that killed the
/// command.
pub fn exit_code_of_command(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status
        .code()
        .or(status.signal().map(|signal| 128 + signal))
        .unwrap_or(2);
    ExitCode::from(u8::try_from(code).unwrap_or(2))
}

/// Parses `--cascade EVENT=N`, which lets pfc count events only after `EVENT` has occurred `N`
/// times.
fn parse_cascade_threshold(
    word: &str,
    machine: &MachineProperties,
    device: &Path,
) -> Result<CascadeThreshold, Failure> {
    let invalid = || {
        Failure::Refused(format!(
            "invalid threshold '{word}'; use EVENT=COUNT, for example branch-misses=1000"
        ))
    };
    let (name, count) = word.rsplit_once('=').ok_or_else(invalid)?;
    let count: u64 = count.replace('_', "").parse().map_err(|_| invalid())?;
    if count == 0 || count > i64::MAX as u64 {
        return Err(invalid());
    }
    let event = machine.resolve_event_name(name, device)?;
    let reason = event.missing_reason.clone();
    let plan = assign_events_to_registers(&[event], &machine.register_map);
    match plan.placements.first() {
        Some(EventPlacement::Pmd(pmd)) => Ok(CascadeThreshold {
            pmc_values: plan.pmc_values,
            pmd: *pmd,
            event_count: count,
        }),
        _ => Err(Failure::Refused(match reason {
            Some(reason) => format!("cannot count '{name}': {reason}"),
            None => {
                format!("no register counts '{name}' on this machine; pfc pmu lists the registers")
            }
        })),
    }
}

/// Returns the PMD (data register) that measures for how long events are counted, if the machine
/// has such a PMD.
fn find_clock_pmd(machine: &MachineProperties, scope: Scope) -> Option<u16> {
    let number = match scope {
        Scope::Thread => perfmon::TASK_CLOCK_PMD,
        Scope::System => perfmon::CPU_CLOCK_PMD,
    };
    machine.register_map.pmd(number).map(|r| r.number)
}

/// Returns the plan if its registers are available, which is tested by attaching a context to this
/// thread or to the first CPU. If the PMU is in use, returns the plan without hardware registers.
fn plan_with_available_registers(
    plan: RegisterPlan,
    target: &Target,
    config_of: &dyn Fn(&RegisterPlan) -> CountingContextConfig,
) -> Result<RegisterPlan, Failure> {
    let target_id = match target {
        Target::Cpus(cpus) => cpus[0],
        _ => gettid().as_raw_nonzero().get().unsigned_abs(),
    };
    let try_plan = |plan: &RegisterPlan| match plan.is_empty() {
        // The plan has no events to count, but the device `/dev/perfmon` must exist even so.
        true => std::fs::metadata(perfmon::PERFMON_DEVICE_PATH).map(drop),
        false => config_of(plan).check_can_attach(target_id),
    };
    let error = match try_plan(&plan) {
        Ok(()) => return Ok(plan),
        // Another program monitors the thread of pfc, so the test of the plan failed. The registers
        // may still be available for the threads that pfc will count.
        Err(error) if is_eexist(&error) && matches!(target, Target::Threads(..)) => {
            return Ok(plan);
        }
        Err(error) => error,
    };
    if !is_ebusy(&error) || !plan.uses_hardware {
        return Err(syscall_failure("count", &error));
    }
    message!("pfc: the PMU is in use by perf, the NMI watchdog or another context; hardware events are not counted; see pfc doctor");
    let plan = plan.without_hardware_registers();
    try_plan(&plan).map_err(|e| syscall_failure("count", &e))?;
    Ok(plan)
}

/// Prints which events cannot be counted and what to do, one line for each reason.
fn print_uncountable_events(
    events: &[Event],
    plan: &RegisterPlan,
    machine: &MachineProperties,
    verbose: bool,
) {
    let not_supported = events
        .iter()
        .zip(&plan.placements)
        .filter(|(_, placement)| **placement == EventPlacement::NotSupported)
        .map(|(event, _)| event);
    let (software, hardware): (Vec<&Event>, Vec<&Event>) =
        not_supported.partition(|event| machine.is_software_event_name(&event.name));
    let (mut explained, unavailable): (Vec<&Event>, Vec<&Event>) = software
        .into_iter()
        .partition(|event| event.missing_reason.is_some());
    if machine.vendor.is_some() {
        explained.extend(hardware);
    } else if !hardware.is_empty() {
        message!(
            "pfc: this machine has no usable PMU; hardware events are not counted; see pfc doctor"
        );
    }
    print_uncountable_event_reasons(&explained, verbose);
    if !unavailable.is_empty() && machine.register_map.pmd(perfmon::CPU_CLOCK_PMD).is_some() {
        message!("pfc: some of these events exist for threads only; drop -a and -C to count them");
    } else if !unavailable.is_empty() {
        message!("pfc: no software events are available; load them: modprobe pfm_soft");
    }
    if plan.has_unplaced_countable_event {
        message!("pfc: more counter:NAME events than registers; count at most four at a time");
    }
}

/// Prints why some events cannot be counted: one line per event with `-v`, and without `-v` one
/// line with the number of events that cannot be counted.
fn print_uncountable_event_reasons(events: &[&Event], verbose: bool) {
    if !verbose && !events.is_empty() {
        let (n, s) = (events.len(), if events.len() == 1 { "" } else { "s" });
        return message!(
            "pfc: {n} event{s} cannot be counted on this machine; for the reasons use -v"
        );
    }
    for event in events {
        let reason = event.missing_reason.as_deref();
        let reason = reason.unwrap_or("no counter of this processor can count it");
        message!("pfc: '{}': {reason}", event.name_without_modes());
    }
}

/// State that is kept over all runs of one invocation of `pfc stat`.
struct StatSession<'a> {
    args: &'a StatArgs,
    target: Target,
    event_loop: EventLoop,
    follows_children: bool,
    /// The IDs of the processes that earlier runs of the command have left behind.
    earlier_pids: BTreeSet<u32>,
    is_interrupted: bool,
}

impl StatSession<'_> {
    /// Handles pending signals. Returns true if SIGINT or SIGTERM has arrived since the start of
    /// `pfc stat`.
    fn handle_pending_signals(&mut self) -> io::Result<bool> {
        loop {
            match self.event_loop.wait(Some(Instant::now()))? {
                WakeReason::Interrupted | WakeReason::Terminated(_) => self.is_interrupted = true,
                WakeReason::Child
                | WakeReason::SwitchOutput
                | WakeReason::Resized
                | WakeReason::Ready => {}
                WakeReason::Timeout => return Ok(self.is_interrupted),
            }
        }
    }

    /// Makes one run. Returns the counts of the run, and the exit status of the command if the user
    /// gave a command.
    fn count_one_run(
        &mut self,
        group: &mut CountingContexts,
        report: &mut StatReport<'_>,
    ) -> Result<(RunResult, Option<ExitStatus>), Failure> {
        let before = process::reaped_children_cpu_seconds();
        let (elapsed, status) = match &self.target {
            Target::Command => self.count_command(group, report)?,
            Target::Threads(threads, _) => {
                for thread in threads {
                    match group.attach_context(*thread) {
                        // Threads of a process may have exited after pfc listed the threads of the
                        // process.
                        Err(e) if is_esrch(&e) && self.args.targets.threads.is_empty() => {}
                        done => done
                            .map_err(|e| syscall_failure(&format!("count thread {thread}"), &e))?,
                    }
                }
                self.count_threads_or_cpus(group, report)?
            }
            Target::Cpus(cpus) => {
                group
                    .attach_contexts_to_cpus(cpus, self.args.targets.cpus.is_none())
                    .map_err(|(cpu, e)| syscall_failure(&format!("count CPU {cpu}"), &e))?;
                self.count_threads_or_cpus(group, report)?
            }
        };
        let after = process::reaped_children_cpu_seconds();
        let values = group.read_sums().trying_to(READ_COUNTS_ACTION)?;
        let gaps = sum_gaps_by_cpu(&group.take_uncounted_gaps());
        if self.args.interval.is_some() {
            report.print_interval(values.clone(), gaps.clone(), elapsed)?;
        }
        let counts = RunResult {
            event_sums: values,
            uncounted_time_by_cpu: gaps,
            elapsed,
            cpu_seconds: (after.0 - before.0, after.1 - before.1),
        };
        Ok((counts, status))
    }

    fn count_command(
        &mut self,
        group: &mut CountingContexts,
        report: &mut StatReport<'_>,
    ) -> Result<(Duration, Option<ExitStatus>), Failure> {
        let argv = &self.args.command;
        let mut child = match self.follows_children {
            true => match FollowedCommand::spawn_traced(argv, group)? {
                Err(error) => {
                    message!("pfc: cannot follow children and threads: {error}; check sysctl kernel.yama.ptrace_scope");
                    self.follows_children = false;
                    FollowedCommand::spawn_untraced(argv, group)?
                }
                Ok(child) => child,
            },
            false => FollowedCommand::spawn_untraced(argv, group)?,
        };
        child.exclude_processes(std::mem::take(&mut self.earlier_pids));
        let result = self.count_until_command_exits(&mut child, group, report);
        if result.is_err() {
            // Counting has failed, but the command continues to run. pfc waits until the command
            // exits, and resumes each of its threads that ptrace stops.
            child.wait_for_exit_without_counting(&mut self.event_loop);
        }
        self.earlier_pids = child.into_running_processes();
        result
    }

    fn count_until_command_exits(
        &mut self,
        child: &mut FollowedCommand,
        group: &mut CountingContexts,
        report: &mut StatReport<'_>,
    ) -> Result<(Duration, Option<ExitStatus>), Failure> {
        let mut timer = IntervalTimer::start(self.args);
        loop {
            let was_executed = child.has_executed_program();
            if let Some(status) = child.handle_state_changes(group)? {
                return match timer.first_print_failure {
                    Some(failure) => Err(failure),
                    None => Ok((timer.started_at.elapsed(), Some(status))),
                };
            }
            if child.has_executed_program() && !was_executed {
                timer = IntervalTimer::start(self.args);
            }
            let until = child.shorten_wait_if_changes_pending(timer.next_due_at);
            let wake = self
                .event_loop
                .wait(until)
                .trying_to(WAIT_FOR_SIGNALS_ACTION)?;
            // If the command forks all the time, SIGCHLD ends every wait before its timeout, so the
            // interval is also checked after SIGCHLD.
            timer.print_interval_if_due(group, report)?;
            match wake {
                WakeReason::Terminated(signal) => {
                    self.is_interrupted = true;
                    child.send_signal(signal);
                }
                // The terminal also sends SIGINT to the command, so pfc does not forward it.
                WakeReason::Interrupted => self.is_interrupted = true,
                WakeReason::Timeout
                | WakeReason::Child
                | WakeReason::SwitchOutput
                | WakeReason::Resized
                | WakeReason::Ready => {}
            }
        }
    }

    /// Counts threads or CPUs until the command exits. Without a command, counting ends when the
    /// user interrupts, and counting of threads also ends when the contexts of all threads have
    /// ended.
    fn count_threads_or_cpus(
        &mut self,
        group: &mut CountingContexts,
        report: &mut StatReport<'_>,
    ) -> Result<(Duration, Option<ExitStatus>), Failure> {
        let mut timer = IntervalTimer::start(self.args);
        group.start().map_err(|e| syscall_failure("count", &e))?;
        let mut command = SideCommand::spawn(&self.args.command)?;
        let result = self.poll_until_counting_ends(group, report, &mut timer, command.as_mut());
        group.stop();
        let elapsed = timer.started_at.elapsed();
        // After a failure, the command continues to run, and pfc waits for it.
        let status = command
            .as_mut()
            .map(|command| command.wait(&mut self.event_loop))
            .transpose();
        result?;
        match timer.first_print_failure {
            Some(failure) => Err(failure),
            None => Ok((elapsed, status?)),
        }
    }

    /// Waits until the command exits. If there is no command, waits until the user interrupts, the
    /// contexts of all threads have ended, or a write has failed.
    fn poll_until_counting_ends(
        &mut self,
        group: &mut CountingContexts,
        report: &mut StatReport<'_>,
        timer: &mut IntervalTimer,
        mut command: Option<&mut SideCommand>,
    ) -> Result<(), Failure> {
        let ends_with_threads = command.is_none() && matches!(self.target, Target::Threads(..));
        while !(ends_with_threads && group.have_all_contexts_ended()) {
            let until = timer
                .next_due_at
                .into_iter()
                .chain(group.next_cpu_check_at());
            let wake = self
                .event_loop
                .wait_for_readable_files(until.min(), &group.running_context_fds());
            group.update_contexts().trying_to(READ_COUNTS_ACTION)?;
            let wake = wake.trying_to(WAIT_FOR_SIGNALS_ACTION)?;
            match wake {
                WakeReason::Timeout => timer.print_interval_if_due(group, report)?,
                WakeReason::Interrupted | WakeReason::Terminated(_) => self.is_interrupted = true,
                WakeReason::Child
                | WakeReason::SwitchOutput
                | WakeReason::Resized
                | WakeReason::Ready => {}
            }
            // A command continues to run after a failed write, and may continue after a signal.
            let has_ended = match &mut command {
                Some(command) => command.handle_wake_reason(wake)?,
                None => self.is_interrupted || timer.first_print_failure.is_some(),
            };
            if has_ended {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_6_cpu_lists_are_parsed() {
        assert_eq!(parse_cpu_list("0,2-3"), Some(vec![0, 2, 3]));
        assert_eq!(parse_cpu_list("3-4,4,1"), Some(vec![1, 3, 4]));
        // A list of CPUs may contain the same range many times.
        let long = vec!["0-65535"; 5000].join(",");
        assert_eq!(parse_cpu_list(&long).map(|cpus| cpus.len()), Some(65_536));
        for wrong in ["", "a", "3-2", "1-", "-1", "0,,1", "0-99999", "+1-65536"] {
            assert_eq!(parse_cpu_list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn r1_6_exit_code_is_that_of_command() {
        use std::os::unix::process::ExitStatusExt;
        let code = |raw| exit_code_of_command(ExitStatus::from_raw(raw));
        assert_eq!(code(7 << 8), ExitCode::from(7));
        assert_eq!(code(libc::SIGKILL), ExitCode::from(137));
    }
}
