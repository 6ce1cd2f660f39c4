// SPDX-License-Identifier: GPL-2.0

//! `pfc record`: samples a command, threads or CPUs, and writes the samples to a file in the format
//! of `perf record`.
//!
//! | file | contents |
//! |---|---|
//! | `contexts.rs` | the contexts of threads or CPUs, with their rings |
//! | `files.rs` | the files of a recording |
//! | `freq.rs` | computes sampling periods for a frequency |
//! | `lost.rs` | counts of lost records |
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
mod lost;
mod maps;
mod perf_event;
mod task_events;
mod tasks;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use perfmon::ring::{self, RingArgument};
use perfmon::Scope;
use rustix::thread::gettid;

use crate::cli::{RecordArgs, TargetArgs};
use crate::data::{self, EventAttribute, PerfDataWriter};
use crate::error::{Failure, TryingTo};
use crate::hotplug::MonitoredCpus;
use crate::message;
use crate::pmu::load_perfmon_modules;
use crate::stat::assign::{assign_events_to_registers, EventPlacement, RegisterPlan};
use crate::stat::command::FollowedCommand;
use crate::stat::event_loop::{EventLoop, WakeReason};
use crate::stat::events::{Event, EventSource, MachineProperties};
use crate::stat::side_command::SideCommand;
use crate::stat::{exit_code_of_run, select_target, syscall_failure, Target};
use crate::target::{is_ebusy, is_esrch};
use crate::text_file;
pub use contexts::SamplingContexts;
use contexts::{SamplingContextConfig, SamplingPmdConfig};
pub use kernel_maps::{parse_proc_modules, read_loaded_modules};
pub use tasks::monotonic_now_ns;
use tasks::ProcessRecordPosition;

/// The maximum time between two reads of the sampling rings.
const RING_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The number of samples per second if the user gives neither a frequency nor a period.
const DEFAULT_SAMPLES_PER_SECOND: u64 = 4000;
const PAGE_SIZE: u64 = 4096;
/// The time between two updates of the progress message.
const PROGRESS_MESSAGE_INTERVAL: Duration = Duration::from_secs(1);

/// Types of perf events.
const PERF_TYPE_HARDWARE: u32 = 0;
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_TYPE_RAW: u32 = 4;

/// Returns the time at which the sampling rings must be read again.
fn next_ring_poll_at() -> Option<Instant> {
    Some(Instant::now() + RING_POLL_INTERVAL)
}

pub fn run(device: &Path, args: &RecordArgs, file: Option<&Path>) -> Result<ExitCode, Failure> {
    let target = select_target(&args.targets, "record", !args.command.is_empty())?;
    let scope = target.scope();
    // The event loop catches signals as soon as it exists. The event loop is created before the
    // contexts are prepared, because their preparation can take long.
    let event_loop = match args.switch_output || args.overwrite {
        true => EventLoop::with_sigusr2(),
        false => EventLoop::new(),
    }
    .trying_to("catch signals")?;
    let (attributes, contexts) = prepare_sampling(device, args, scope, &target)?;
    let mut run = Recording {
        args,
        contexts,
        event_loop,
        event_attributes: attributes,
        output_path: file
            .unwrap_or(Path::new(data::DEFAULT_PERF_DATA_PATH))
            .to_owned(),
        output_file: None,
        written_process_record_position: ProcessRecordPosition::default(),
        write_failure: None,
        nr_finished_files: 0,
        has_missing_file: false,
        nr_wakeups: 0,
        // No progress is shown during a command, because the command may write to the terminal
        // itself.
        last_progress_at: (message::is_stderr_terminal() && args.command.is_empty())
            .then(Instant::now),
    };
    run.begin_output_file()?;
    let status = match &target {
        Target::Command => run.record_command()?,
        _ => {
            attach_to_targets(&mut run.contexts, &target, &args.targets)?;
            run.record_threads_or_cpus()?
        }
    };
    run.finish_recording()?;
    let are_processes_complete =
        target.report_unless_monitored_to_end(|thread| run.contexts.has_thread_exited(thread));
    Ok(exit_code_of_run(
        status,
        are_processes_complete && run.is_complete(),
    ))
}

/// Chooses the events, and makes an empty [`SamplingContexts`] for the events. Contexts that this
/// function creates are only tests, and are closed again.
pub fn prepare_sampling(
    device: &Path,
    args: &RecordArgs,
    scope: Scope,
    target: &Target,
) -> Result<(Vec<EventAttribute>, SamplingContexts), Failure> {
    load_perfmon_modules();
    let machine = MachineProperties::read(target.cpus())?;
    let (events, config) = choose_events_and_config(device, args, scope, &machine, target)?;
    let attributes = perf_attributes_of_events(&events, &config, args);
    Ok((
        attributes,
        SamplingContexts::new(config, args.overwrite, args.stacks),
    ))
}

/// Creates a context for each thread or CPU of `target` and attaches it, without starting it. If
/// `target` is a command, no context is created, because the process of the command does not exist
/// yet.
pub fn attach_to_targets(
    contexts: &mut SamplingContexts,
    target: &Target,
    args: &TargetArgs,
) -> Result<(), Failure> {
    match target {
        Target::Command => {}
        Target::Threads(threads, _) => {
            contexts.start_process_tracking(Some(threads));
            for thread in threads {
                match contexts.attach_context(*thread) {
                    // The thread has exited since the threads of its process were listed.
                    Err(e) if is_esrch(&e) && args.threads.is_empty() => {}
                    done => {
                        done.map_err(|e| syscall_failure(&format!("sample thread {thread}"), &e))?
                    }
                }
            }
        }
        Target::Cpus(cpus) => {
            contexts.start_process_tracking(None);
            contexts
                .attach_contexts_to_cpus(cpus, args.cpus.is_none())
                .map_err(|(cpu, e)| syscall_failure(&format!("sample CPU {cpu}"), &e))?;
        }
    }
    Ok(())
}

/// Returns the events and the configuration of the contexts. If the user names no events, cycles
/// are sampled. If the user names no events and cycles cannot be sampled, because there is no PMU
/// or the PMU is in use, the CPU time (task-clock) is sampled.
fn choose_events_and_config(
    device: &Path,
    args: &RecordArgs,
    scope: Scope,
    machine: &MachineProperties,
    target: &Target,
) -> Result<(Vec<Event>, SamplingContextConfig), Failure> {
    let target_id = match target {
        Target::Cpus(cpus) => cpus[0],
        _ => gettid().as_raw_nonzero().get().unsigned_abs(),
    };
    let resolve = |words: &[String]| -> Result<Vec<Event>, Failure> {
        words
            .iter()
            .map(|w| machine.resolve_event_name(w, device))
            .collect()
    };
    let try_events = |events: Vec<Event>| -> Result<(Vec<Event>, SamplingContextConfig), Failure> {
        let plan = assign_events_to_registers(&events, &machine.register_map);
        let config = build_sampling_config(&events, &plan, args, scope, machine)?;
        match config.check_can_attach(target_id) {
            Ok(()) => Ok((events, config)),
            Err(e) => Err(explain_sampling_error(&e, config.sampling_format_name)),
        }
    };
    if !args.events.is_empty() {
        return try_events(resolve(&args.events)?);
    }
    let clock = ["task-clock".to_owned()];
    if machine.vendor.is_some() {
        let cycles = resolve(&["cycles".to_owned()])?;
        let plan = assign_events_to_registers(&cycles, &machine.register_map);
        let config = build_sampling_config(&cycles, &plan, args, scope, machine)?;
        match config.check_can_attach(target_id) {
            Ok(()) => return Ok((cycles, config)),
            Err(e) if is_ebusy(&e) => {
                let why = syscall_failure("sample cycles", &e);
                message!("pfc: {why}; sampling time instead");
            }
            Err(e) => return Err(explain_sampling_error(&e, config.sampling_format_name)),
        }
    }
    try_events(resolve(&clock)?)
}

/// Converts an error of [`SamplingContextConfig::check_can_attach`] to a failure with advice for
/// the user. The sampling format `format` is missing if the kernel module of the format is not
/// loaded.
fn explain_sampling_error(error: &io::Error, format: &str) -> Failure {
    let has_device = Path::new(perfmon::PERFMON_DEVICE_PATH).exists();
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::NotFound, _) if has_device => Failure::Refused(format!(
            "cannot record: there is no format '{format}'; load it: modprobe pfm_ring"
        )),
        (io::ErrorKind::OutOfMemory, _) => Failure::Refused(format!(
            "cannot record: {error}: a ring exceeds the limit on locked memory (ulimit -l) or that of the control group, or memory is short; take fewer pages (-m)"
        )),
        (_, Some(libc::ENOTTY)) => Failure::Refused(
            "cannot record: the module perfmon that is loaded cannot sample; load a newer one"
                .to_owned(),
        ),
        _ => syscall_failure("record", error),
    }
}

fn build_sampling_config(
    events: &[Event],
    plan: &RegisterPlan,
    args: &RecordArgs,
    scope: Scope,
    machine: &MachineProperties,
) -> Result<SamplingContextConfig, Failure> {
    let mut sampling_pmds = Vec::new();
    for ((event, placement), id) in events.iter().zip(&plan.placements).zip(1..) {
        let pmd = match placement {
            EventPlacement::Pmd(pmd) => *pmd,
            EventPlacement::NotCounted => {
                return Err(Failure::Refused(
                    "there are more events than counters; take fewer at a time".to_owned(),
                ))
            }
            EventPlacement::NotSupported => {
                if !Path::new(perfmon::PERFMON_DEVICE_PATH).exists() {
                    let error = io::ErrorKind::NotFound.into();
                    return Err(syscall_failure("record", &error));
                }
                let why = match (
                    machine.is_software_event_name(&event.name),
                    &event.missing_reason,
                ) {
                    (true, Some(why)) => why.as_str(),
                    (true, None) => "load the kernel's own events: modprobe pfm_soft",
                    (false, Some(why)) if machine.vendor.is_some() => why.as_str(),
                    (false, _) => "there is no counter for it; 'pfc doctor' looks for the cause",
                };
                return Err(Failure::Refused(format!(
                    "'{}' cannot be sampled: {why}",
                    event.name
                )));
            }
        };
        let (period, frequency) = initial_period_and_frequency(event, args);
        sampling_pmds.push(SamplingPmdConfig {
            pmd,
            initial_period: period,
            target_frequency_hz: frequency,
            event_id: id,
        });
    }
    let pages = args.pages.unwrap_or(match scope {
        Scope::System => 128,
        Scope::Thread => 32,
    });
    let mut argument = RingArgument::new(pages * PAGE_SIZE);
    let format = match (args.overwrite, args.stacks) {
        (true, stacks) => {
            argument.flags = ring::BACKWARD | ring::OVERWRITE;
            if stacks {
                argument.fields = ring::FIELD_KERNEL_STACK | ring::FIELD_USER_STACK;
            }
            "flight-recorder"
        }
        (false, true) => "call-stack",
        (false, false) => "ring",
    };
    Ok(SamplingContextConfig {
        scope,
        sampling_format_name: format,
        format_argument: argument,
        pmc_values: plan.pmc_values.clone(),
        sampling_pmds,
    })
}

/// Returns the initial period of an event, and the sampling frequency to which the period is
/// adjusted. The frequency is `None` if the period is fixed.
fn initial_period_and_frequency(event: &Event, args: &RecordArgs) -> (u64, Option<u64>) {
    if let Some(period) = args.period {
        return (period, None);
    }
    let frequency = args.frequency.unwrap_or(DEFAULT_SAMPLES_PER_SECOND);
    match event.source {
        // The period of a clock event is in nanoseconds.
        EventSource::Soft(perfmon::CPU_CLOCK_PMD | perfmon::TASK_CLOCK_PMD) => {
            ((1_000_000_000 / frequency).max(1), None)
        }
        // The initial period is right for an event that occurs once in each cycle. The frequency
        // controller corrects the period after the first samples.
        EventSource::Hardware(_) => (
            (read_cpu_mhz() * 1_000_000 / frequency).max(1000),
            Some(frequency),
        ),
        _ => (1, Some(frequency)),
    }
}

fn read_cpu_mhz() -> u64 {
    let text = text_file::read_text_escaping_non_utf8("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("cpu MHz"));
    let value = line.and_then(|l| l.split_once(':')?.1.trim().parse::<f64>().ok());
    value.map_or(1000, |mhz| mhz as u64).clamp(100, 10_000)
}

/// Returns the attributes of the events, with the types and codes that perf uses for the same
/// events.
fn perf_attributes_of_events(
    events: &[Event],
    config: &SamplingContextConfig,
    args: &RecordArgs,
) -> Vec<EventAttribute> {
    let attribute = |(event, sampler): (&Event, &SamplingPmdConfig)| {
        let (kind, config) = match event.source {
            EventSource::Soft(perfmon::CPU_CLOCK_PMD) => (PERF_TYPE_SOFTWARE, 0),
            EventSource::Soft(perfmon::TASK_CLOCK_PMD) => (PERF_TYPE_SOFTWARE, 1),
            EventSource::Soft(perfmon::PAGE_FAULTS_PMD) => (PERF_TYPE_SOFTWARE, 2),
            EventSource::Soft(perfmon::CONTEXT_SWITCHES_PMD) => (PERF_TYPE_SOFTWARE, 3),
            EventSource::Soft(perfmon::MIGRATIONS_PMD) => (PERF_TYPE_SOFTWARE, 4),
            EventSource::Soft(perfmon::MAJOR_FAULTS_PMD) => (PERF_TYPE_SOFTWARE, 6),
            EventSource::Hardware(code) => {
                match perf_hardware_event_code(event.name_without_modes()) {
                    Some(generic) => (PERF_TYPE_HARDWARE, generic),
                    None => (PERF_TYPE_RAW, code.select),
                }
            }
            // An event that perf does not know gets the code PERF_COUNT_SW_DUMMY.
            _ => (PERF_TYPE_SOFTWARE, 9),
        };
        let modes = match event.source {
            EventSource::Hardware(code) => (code.counts_user, code.counts_kernel),
            _ => (true, true),
        };
        EventAttribute {
            name: event.name.clone(),
            event_type: kind,
            config,
            period_or_frequency: match (args.period, args.frequency) {
                (Some(period), _) => period,
                (None, frequency) => frequency.unwrap_or(DEFAULT_SAMPLES_PER_SECOND),
            },
            is_frequency: args.period.is_none(),
            exclude_user: !modes.0,
            exclude_kernel: !modes.1,
            id: sampler.event_id,
        }
    };
    events
        .iter()
        .zip(&config.sampling_pmds)
        .map(attribute)
        .collect()
}

/// Returns perf's code (PERF_COUNT_HW_*) of a generic hardware event.
fn perf_hardware_event_code(name: &str) -> Option<u64> {
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
struct Recording<'a> {
    args: &'a RecordArgs,
    contexts: SamplingContexts,
    event_loop: EventLoop,
    event_attributes: Vec<EventAttribute>,
    /// The path of the output file: the path that the user gave, or the default path.
    output_path: PathBuf,
    /// The open output file. In a flight recorder, `output_file` is `None` except while a file is
    /// written. After a failed write, `output_file` is `None` in every recording.
    output_file: Option<PerfDataWriter>,
    /// The position in the records of processes. The open file has the records before this
    /// position.
    written_process_record_position: ProcessRecordPosition,
    /// The failure of a write to the output file. After a failed write, no samples are taken.
    write_failure: Option<Failure>,
    nr_finished_files: usize,
    /// True if a file that SIGUSR2 requested could not be created.
    has_missing_file: bool,
    nr_wakeups: usize,
    /// The time of the last progress message; `None` if no progress is shown.
    last_progress_at: Option<Instant>,
}

impl Recording<'_> {
    fn finish_recording(&mut self) -> Result<(), Failure> {
        if self.write_failure.is_none() {
            let heading = format!("Woken up {} times to write data", self.nr_wakeups);
            self.finish_file_from_rings(true, &heading)?;
        }
        if self.write_failure.is_some() && self.last_progress_at.is_some() {
            message::clear_progress();
        }
        self.contexts.print_sampling_problems();
        if let (n @ 1.., Some(error)) = (
            self.contexts.nr_unsampled_threads,
            &self.contexts.first_thread_error,
        ) {
            let why = syscall_failure("sample a thread", error);
            message!("pfc: {n} threads are missing; of the first: {why}");
        }
        self.write_failure.take().map_or(Ok(()), Err)
    }

    /// Returns true if all threads and CPUs were sampled to their end, and each file that SIGUSR2
    /// requested was created. Lost samples do not matter.
    /// The caller has called [`Self::finish_recording`].
    fn is_complete(&self) -> bool {
        let contexts = &self.contexts;
        let cpus = contexts.monitored_cpus.as_ref();
        !self.has_missing_file
            && contexts.nr_unsampled_threads == 0
            && contexts.restart_errors_by_cpu.is_empty()
            && !contexts.incomplete_targets.has_any_ended_early()
            && !contexts.has_broken_ring
            && cpus
                .and_then(MonitoredCpus::describe_online_cpus_read_error)
                .is_none()
    }

    /// Waits for a signal or for readable rings, at most until the time `until`, and then reads the
    /// rings and writes the records to the file. Returns the reason why the wait ended.
    fn wait_and_read_rings(&mut self, until: Option<Instant>) -> Result<WakeReason, Failure> {
        let wake = self
            .event_loop
            .wait_for_readable_files(until, &self.contexts.fds_to_poll())
            .trying_to("wait for samples")?;
        self.contexts.read_rings_and_update_contexts();
        if !self.contexts.drained_records.records.bytes.is_empty() {
            self.nr_wakeups += 1;
        }
        self.write_or_stop_sampling();
        if wake == WakeReason::SwitchOutput && self.write_failure.is_none() {
            self.switch_output_file()?;
        }
        self.update_progress_message();
        Ok(wake)
    }

    /// Updates the progress message once per second, if progress is shown.
    fn update_progress_message(&mut self) {
        let drained = &self.contexts.drained_records;
        if let Some(last) = self
            .last_progress_at
            .as_mut()
            .filter(|t| t.elapsed() >= PROGRESS_MESSAGE_INTERVAL)
        {
            *last = Instant::now();
            message::print_progress(&format!(
                "[ pfc record: {} samples, {} lost so far; Ctrl-C ends ] ",
                drained.nr_samples_since_reset, drained.nr_lost_records_since_reset
            ));
        }
    }

    fn record_command(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let argv = &self.args.command;
        let spawn_untraced = |contexts: &mut SamplingContexts| -> Result<FollowedCommand, Failure> {
            let fork_time = monotonic_now_ns();
            let child = FollowedCommand::spawn_untraced(argv, contexts)?;
            contexts
                .process_recorder
                .record_process_exec(child.pid(), fork_time);
            Ok(child)
        };
        let mut child = match self.args.no_inherit {
            false => match FollowedCommand::spawn_traced(argv, &mut self.contexts)? {
                Err(error) => {
                    message!("pfc: children and threads are not followed: {error}; is ptrace forbidden (sysctl kernel.yama.ptrace_scope)?");
                    spawn_untraced(&mut self.contexts)?
                }
                Ok(child) => child,
            },
            true => spawn_untraced(&mut self.contexts)?,
        };
        let result = self.record_until_command_exits(&mut child);
        if result.is_err() {
            // Recording has failed, but the command continues to run. pfc waits until the command
            // exits, and resumes each of its threads that ptrace stops.
            child.wait_for_exit_without_counting(&mut self.event_loop);
        }
        result.map(Some)
    }

    fn record_until_command_exits(
        &mut self,
        child: &mut FollowedCommand,
    ) -> Result<ExitStatus, Failure> {
        loop {
            if let Some(status) = child.handle_state_changes(&mut self.contexts)? {
                self.contexts.read_rings_and_update_contexts();
                return Ok(status);
            }
            let until = child.shorten_wait_if_changes_pending(next_ring_poll_at());
            if let WakeReason::Terminated(signal) = self.wait_and_read_rings(until)? {
                child.send_signal(signal);
            }
        }
    }

    /// Records threads or CPUs until the command exits. Without a command, recording ends when the
    /// user interrupts or when all contexts have ended.
    fn record_threads_or_cpus(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.contexts
            .start()
            .map_err(|e| syscall_failure("record", &e))?;
        let mut command = SideCommand::spawn(&self.args.command)?;
        let result = self.poll_until_recording_ends(command.as_mut());
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
    fn poll_until_recording_ends(
        &mut self,
        mut command: Option<&mut SideCommand>,
    ) -> Result<(), Failure> {
        loop {
            let wake = self.wait_and_read_rings(next_ring_poll_at())?;
            let has_ended = match (&mut command, wake) {
                (Some(command), wake) => command.handle_wake_reason(wake)?,
                (None, WakeReason::Interrupted | WakeReason::Terminated(_)) => true,
                (None, _) => {
                    self.contexts.have_all_contexts_ended() || self.write_failure.is_some()
                }
            };
            if has_ended {
                return Ok(());
            }
        }
    }
}
