// SPDX-License-Identifier: GPL-2.0

//! `pfc record`: samples a command, threads or CPUs, and writes the samples to a file in the format
//! of `perf record`.
//!
//! | file | contents |
//! |---|---|
//! | `contexts.rs` | the contexts of threads or CPUs, with their rings |
//! | `files.rs` | the files of a recording |
//! | `freq.rs` | computes sampling periods for a frequency |
//! | `tasks.rs` | names of processes, and their executable mappings |
//! | `kernel_maps.rs` | the mappings of the kernel and of its modules |
//! | `maps.rs` | parses /proc/PID/maps |
//! | `task_events.rs` | the kernel's records of processes |
//! | `perf_event.rs` | perf_event_open(2) and the rings of perf events; unsafe |

mod contexts;
mod files;
mod freq;
#[cfg(test)]
mod fuzz;
mod kernel_maps;
mod maps;
mod perf_event;
mod task_events;
mod tasks;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use perfmon::ring::{self, Argument};
use perfmon::Scope;
use rustix::thread::gettid;

use crate::cli::{RecordArgs, TargetArgs};
use crate::data::{self, Attribute, Writer};
use crate::error::{Failure, TryingTo};
use crate::message;
use crate::pmu::load_modules;
use crate::stat::assign::{assign, Placement, Plan};
use crate::stat::beside::SideCommand;
use crate::stat::command::Child;
use crate::stat::event_loop::{EventLoop, WakeReason};
use crate::stat::events::{Event, EventSource, Machine};
use crate::stat::{result_code, select_target, syscall_failure, Target};
use crate::target::{is_ebusy, is_esrch};
use crate::text_file;
pub use contexts::Contexts;
use contexts::{ContextConfig, Sampler};
pub use kernel_maps::parse_modules;
pub use tasks::now;
use tasks::TaskPosition;

/// The maximum time between two reads of the sampling rings.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The number of samples per second if the user gives neither a frequency nor a period.
const DEFAULT_FREQUENCY: u64 = 4000;
const PAGE_SIZE: u64 = 4096;
/// The time between two updates of the progress message.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Types of events: PERF_TYPE_*.
const TYPE_HARDWARE: u32 = 0;
const TYPE_SOFTWARE: u32 = 1;
const TYPE_RAW: u32 = 4;

pub fn run(device: &Path, args: &RecordArgs, file: Option<&Path>) -> Result<ExitCode, Failure> {
    let target = select_target(&args.targets, "record", !args.command.is_empty())?;
    let scope = match target {
        Target::Cpus(_) => Scope::System,
        _ => Scope::Thread,
    };
    // The event loop catches signals as soon as it exists. The event loop is created before the
    // contexts are prepared, because their preparation can take long.
    let event_loop = match args.switch_output || args.overwrite {
        true => EventLoop::with_sigusr2(),
        false => EventLoop::new(),
    }
    .trying_to("catch signals")?;
    let (attributes, contexts) = prepare(device, args, scope, &target)?;
    let mut run = Run {
        args,
        contexts,
        event_loop,
        attributes,
        path: file.unwrap_or(Path::new(data::DEFAULT_FILE)).to_owned(),
        file: None,
        tasks_in_file: TaskPosition::default(),
        incomplete: None,
        nr_files: 0,
        wakeups: 0,
        // No progress is shown during a command, because the command may write to the terminal
        // itself.
        last_progress: (message::is_terminal() && args.command.is_empty()).then(Instant::now),
    };
    run.begin_file()?;
    let status = match &target {
        Target::Command => run.record_command()?,
        _ => {
            attach(&mut run.contexts, &target, &args.targets)?;
            run.record_targets()?
        }
    };
    run.finish()?;
    Ok(result_code(status, run.contexts.failed_threads == 0))
}

/// Chooses the events, and makes an empty [`Contexts`] for the events. This function creates no
/// context that is kept.
pub fn prepare(
    device: &Path,
    args: &RecordArgs,
    scope: Scope,
    target: &Target,
) -> Result<(Vec<Attribute>, Contexts), Failure> {
    load_modules();
    let machine = Machine::read(target.cpus())?;
    let (events, config) = choose_config(device, args, scope, &machine, target)?;
    let attributes = perf_attributes(&events, &config, args);
    Ok((
        attributes,
        Contexts::new(config, args.overwrite, args.stacks),
    ))
}

/// Creates a context for each thread or CPU of `target` and attaches it, without starting it. If
/// `target` is a command, no context is created, because the process of the command does not exist
/// yet.
pub fn attach(contexts: &mut Contexts, target: &Target, args: &TargetArgs) -> Result<(), Failure> {
    match target {
        Target::Command => {}
        Target::Threads(threads) => {
            contexts.track_tasks(Some(threads));
            for thread in threads {
                match contexts.attach(*thread) {
                    // The thread has exited since the threads of its process were listed.
                    Err(e) if is_esrch(&e) && args.threads.is_empty() => {}
                    done => {
                        done.map_err(|e| syscall_failure(&format!("sample thread {thread}"), &e))?
                    }
                }
            }
        }
        Target::Cpus(cpus) => {
            contexts.track_tasks(None);
            contexts
                .attach_cpus(cpus, args.cpus.is_none())
                .map_err(|(cpu, e)| syscall_failure(&format!("sample CPU {cpu}"), &e))?;
        }
    }
    Ok(())
}

/// Returns the events and the configuration of the contexts. If the user names no events, cycles
/// are sampled. If the user names no events and cycles cannot be sampled, because there is no PMU
/// or the PMU is in use, the CPU time (task-clock) is sampled.
fn choose_config(
    device: &Path,
    args: &RecordArgs,
    scope: Scope,
    machine: &Machine,
    target: &Target,
) -> Result<(Vec<Event>, ContextConfig), Failure> {
    let target_id = match target {
        Target::Cpus(cpus) => cpus[0],
        _ => gettid().as_raw_nonzero().get().unsigned_abs(),
    };
    let resolve = |words: &[String]| -> Result<Vec<Event>, Failure> {
        words.iter().map(|w| machine.resolve(w, device)).collect()
    };
    let try_events = |events: Vec<Event>| -> Result<(Vec<Event>, ContextConfig), Failure> {
        let plan = assign(&events, &machine.map);
        let config = build_config(&events, &plan, args, scope, machine)?;
        match config.probe(target_id) {
            Ok(()) => Ok((events, config)),
            Err(e) => Err(describe_error(&e, config.format)),
        }
    };
    if !args.events.is_empty() {
        return try_events(resolve(&args.events)?);
    }
    let clock = ["task-clock".to_owned()];
    if machine.vendor.is_some() {
        let cycles = resolve(&["cycles".to_owned()])?;
        let plan = assign(&cycles, &machine.map);
        let config = build_config(&cycles, &plan, args, scope, machine)?;
        match config.probe(target_id) {
            Ok(()) => return Ok((cycles, config)),
            Err(e) if is_ebusy(&e) => {
                message!("pfc: the PMU is in use ('pfc doctor' shows by which program): sampling time instead of cycles");
            }
            Err(e) => return Err(describe_error(&e, config.format)),
        }
    }
    try_events(resolve(&clock)?)
}

/// Converts an error of [`ContextConfig::probe`] to a failure with advice for the user. The
/// sampling format `format` is missing if the kernel module of the format is not loaded.
fn describe_error(error: &io::Error, format: &str) -> Failure {
    let has_device = Path::new(perfmon::DEVICE).exists();
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::NotFound, _) if has_device => Failure::Refused(format!(
            "cannot record: there is no format '{format}'; load it: modprobe pfm_ring"
        )),
        (io::ErrorKind::OutOfMemory, _) => Failure::Refused(format!(
            "cannot record: {error}: the ring is too large; take fewer pages (-m), or raise ulimit -l"
        )),
        (_, Some(libc::ENOTTY)) => Failure::Refused(
            "cannot record: the module perfmon that is loaded cannot sample; load a newer one"
                .to_owned(),
        ),
        _ => syscall_failure("record", error),
    }
}

fn build_config(
    events: &[Event],
    plan: &Plan,
    args: &RecordArgs,
    scope: Scope,
    machine: &Machine,
) -> Result<ContextConfig, Failure> {
    let mut samplers = Vec::new();
    for ((event, placement), id) in events.iter().zip(&plan.placements).zip(1..) {
        let pmd = match placement {
            Placement::Pmd(pmd) => *pmd,
            Placement::NotCounted => {
                return Err(Failure::Refused(
                    "there are more events than counters; take fewer at a time".to_owned(),
                ))
            }
            Placement::NotSupported => {
                if !Path::new(perfmon::DEVICE).exists() {
                    let error = io::ErrorKind::NotFound.into();
                    return Err(syscall_failure("record", &error));
                }
                let why = match (machine.is_soft_name(&event.name), &event.reason) {
                    (true, _) => "load the kernel's own events: modprobe pfm_soft",
                    (false, Some(why)) if machine.vendor.is_some() => why.as_str(),
                    (false, _) => "there is no counter for it; 'pfc doctor' looks for the cause",
                };
                return Err(Failure::Refused(format!(
                    "'{}' cannot be sampled: {why}",
                    event.name
                )));
            }
        };
        let (period, frequency) = initial_period(event, args);
        samplers.push(Sampler {
            pmd,
            period,
            frequency,
            id,
        });
    }
    let pages = args.pages.unwrap_or(match scope {
        Scope::System => 128,
        Scope::Thread => 32,
    });
    let mut argument = Argument::new(pages * PAGE_SIZE);
    let format = match (args.overwrite, args.stacks) {
        (true, stacks) => {
            argument.flags = ring::BACKWARD | ring::OVERWRITE;
            if stacks {
                argument.fields = ring::KERNEL_STACK | ring::USER_STACK;
            }
            "flight-recorder"
        }
        (false, true) => "call-stack",
        (false, false) => "ring",
    };
    Ok(ContextConfig {
        scope,
        format,
        argument,
        pmcs: plan.pmcs.clone(),
        samplers,
    })
}

/// Returns the initial period of an event, and the sampling frequency to which the period is
/// adjusted. The frequency is `None` if the period is fixed.
fn initial_period(event: &Event, args: &RecordArgs) -> (u64, Option<u64>) {
    if let Some(period) = args.period {
        return (period, None);
    }
    let frequency = args.frequency.unwrap_or(DEFAULT_FREQUENCY);
    match event.source {
        // The period of a clock event is in nanoseconds.
        EventSource::Soft(perfmon::CPU_CLOCK | perfmon::TASK_CLOCK) => {
            ((1_000_000_000 / frequency).max(1), None)
        }
        // The initial period is right for an event that occurs once in each cycle. The frequency
        // controller corrects the period after the first samples.
        EventSource::Hardware(_) => (
            (cpu_mhz() * 1_000_000 / frequency).max(1000),
            Some(frequency),
        ),
        _ => (1, Some(frequency)),
    }
}

fn cpu_mhz() -> u64 {
    let text = text_file::read("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("cpu MHz"));
    let value = line.and_then(|l| l.split_once(':')?.1.trim().parse::<f64>().ok());
    value.map_or(1000, |mhz| mhz as u64).clamp(100, 10_000)
}

/// Returns the attributes of the events, with the types and codes that perf uses for the same
/// events.
fn perf_attributes(events: &[Event], config: &ContextConfig, args: &RecordArgs) -> Vec<Attribute> {
    let attribute = |(event, sampler): (&Event, &Sampler)| {
        let (kind, config) = match event.source {
            EventSource::Soft(perfmon::CPU_CLOCK) => (TYPE_SOFTWARE, 0),
            EventSource::Soft(perfmon::TASK_CLOCK) => (TYPE_SOFTWARE, 1),
            EventSource::Soft(perfmon::PAGE_FAULTS) => (TYPE_SOFTWARE, 2),
            EventSource::Soft(perfmon::CONTEXT_SWITCHES) => (TYPE_SOFTWARE, 3),
            EventSource::Soft(perfmon::MIGRATIONS) => (TYPE_SOFTWARE, 4),
            EventSource::Soft(perfmon::MAJOR_FAULTS) => (TYPE_SOFTWARE, 6),
            EventSource::Hardware(code) => match generic_hardware_event(event.base_name()) {
                Some(generic) => (TYPE_HARDWARE, generic),
                None => (TYPE_RAW, code.select),
            },
            // An event that perf does not know gets the code PERF_COUNT_SW_DUMMY.
            _ => (TYPE_SOFTWARE, 9),
        };
        let modes = match event.source {
            EventSource::Hardware(code) => (code.user, code.kernel),
            _ => (true, true),
        };
        Attribute {
            name: event.name.clone(),
            kind,
            config,
            period: match (args.period, args.frequency) {
                (Some(period), _) => period,
                (None, frequency) => frequency.unwrap_or(DEFAULT_FREQUENCY),
            },
            is_frequency: args.period.is_none(),
            exclude_user: !modes.0,
            exclude_kernel: !modes.1,
            id: sampler.id,
        }
    };
    events.iter().zip(&config.samplers).map(attribute).collect()
}

/// Returns perf's code (PERF_COUNT_HW_*) of a generic hardware event.
fn generic_hardware_event(name: &str) -> Option<u64> {
    Some(match name {
        "cycles" | "cpu-cycles" => 0,
        "instructions" => 1,
        "cache-references" => 2,
        "cache-misses" => 3,
        "branches" | "branch-instructions" => 4,
        "branch-misses" => 5,
        "bus-cycles" => 6,
        "ref-cycles" => 9,
        _ => return None,
    })
}

/// The state of a recording.
struct Run<'a> {
    args: &'a RecordArgs,
    contexts: Contexts,
    event_loop: EventLoop,
    attributes: Vec<Attribute>,
    /// The path of the output file: the path that the user gave, or the default path.
    path: PathBuf,
    /// The open output file. In a flight recorder, `file` is `None` except while a file is written.
    /// After a failed write, `file` is `None` in every recording.
    file: Option<Writer>,
    /// The position up to which the records of processes have been written to the open file.
    tasks_in_file: TaskPosition,
    /// The failure of a write to the output file. After a failed write, no samples are taken.
    incomplete: Option<Failure>,
    nr_files: usize,
    wakeups: usize,
    /// The time of the last progress message; `None` if no progress is shown.
    last_progress: Option<Instant>,
}

impl Run<'_> {
    fn finish(&mut self) -> Result<(), Failure> {
        if self.incomplete.is_none() {
            let heading = format!("Woken up {} times to write data", self.wakeups);
            self.finish_file(true, &heading)?;
        }
        if self.incomplete.is_some() && self.last_progress.is_some() {
            message::clear_progress();
        }
        self.contexts.print_problems();
        if let (n @ 1.., Some(error)) = (self.contexts.failed_threads, &self.contexts.first_error) {
            let why = syscall_failure("sample a thread", error);
            message!("pfc: {n} threads are missing; of the first: {why}");
        }
        self.incomplete.take().map_or(Ok(()), Err)
    }

    /// Waits for a signal or for readable rings, at most [`POLL_INTERVAL`], and then reads the
    /// rings and writes the records to the file. Returns the reason why the wait ended.
    fn wait_and_poll(&mut self) -> Result<WakeReason, Failure> {
        let until = Some(Instant::now() + POLL_INTERVAL);
        let wake = self
            .event_loop
            .wait_for(until, &self.contexts.fds())
            .trying_to("wait for samples")?;
        self.contexts.poll();
        if !self.contexts.drained.records.bytes.is_empty() {
            self.wakeups += 1;
        }
        self.write_records();
        if wake == WakeReason::SwitchOutput && self.incomplete.is_none() {
            self.switch_file()?;
        }
        self.print_progress();
        Ok(wake)
    }

    /// Updates the progress message once per second, if progress is shown.
    fn print_progress(&mut self) {
        let drained = &self.contexts.drained;
        if let Some(last) = self
            .last_progress
            .as_mut()
            .filter(|t| t.elapsed() >= PROGRESS_INTERVAL)
        {
            *last = Instant::now();
            message::print_progress(&format!(
                "[ pfc record: {} samples, {} lost so far; Ctrl-C ends ] ",
                drained.samples, drained.lost
            ));
        }
    }

    fn record_command(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let argv = &self.args.command;
        let spawn_untraced = |contexts: &mut Contexts| -> Result<Child, Failure> {
            let fork_time = now();
            let child = Child::spawn_untraced(argv, contexts)?;
            contexts.tasks.record_exec(child.pid(), fork_time);
            Ok(child)
        };
        let mut child = match self.args.no_inherit {
            false => match Child::spawn_traced(argv, &mut self.contexts)? {
                Err(error) => {
                    message!("pfc: children and threads are not followed: {error}; is ptrace forbidden (sysctl kernel.yama.ptrace_scope)?");
                    spawn_untraced(&mut self.contexts)?
                }
                Ok(child) => child,
            },
            true => spawn_untraced(&mut self.contexts)?,
        };
        let result = self.follow_command(&mut child);
        if result.is_err() {
            // Recording has failed, but the command continues to run. pfc waits until the command
            // exits, and resumes each of its threads that ptrace stops.
            child.wait_uncounted(&mut self.event_loop);
        }
        result.map(Some)
    }

    fn follow_command(&mut self, child: &mut Child) -> Result<ExitStatus, Failure> {
        loop {
            if let Some(status) = child.handle_events(&mut self.contexts)? {
                self.contexts.poll();
                return Ok(status);
            }
            if let WakeReason::Terminated(signal) = self.wait_and_poll()? {
                child.signal(signal);
            }
        }
    }

    /// Records threads or CPUs until the command exits. Without a command, recording ends when the
    /// user interrupts or when all contexts have ended.
    fn record_targets(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.contexts
            .start()
            .map_err(|e| syscall_failure("record", &e))?;
        let mut command = SideCommand::spawn(&self.args.command)?;
        let result = self.wait_for_targets(command.as_mut());
        self.contexts.stop();
        // After a failure of the recording, the command continues to run, and pfc waits for it.
        let status = command
            .as_mut()
            .map(|command| command.wait(&mut self.event_loop))
            .transpose();
        result.and(status)
    }

    /// Waits until the command exits. If there is no command, waits until the user interrupts, all
    /// contexts have ended, or a write has failed.
    fn wait_for_targets(&mut self, mut command: Option<&mut SideCommand>) -> Result<(), Failure> {
        loop {
            let wake = self.wait_and_poll()?;
            let has_ended = match (&mut command, wake) {
                (Some(command), wake) => command.handle(wake)?,
                (None, WakeReason::Interrupted | WakeReason::Terminated(_)) => true,
                (None, _) => self.contexts.all_ended() || self.incomplete.is_some(),
            };
            if has_ended {
                return Ok(());
            }
        }
    }
}
