// SPDX-License-Identifier: GPL-2.0

//! The sampling contexts of a recording: one context for each thread or CPU. All contexts of a
//! recording have the same configuration, and each context has its own ring.

mod cpus;
mod follow;
mod lost;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use perfmon::ring::{Argument, Record, Ring};
use perfmon::{sampling_pmd, Context, Message, RegisterValue, Scope};

use lost::LostRecords;

use super::freq::FreqController;
use super::task_events::TaskEvents;
use super::tasks::{now, numeric_entries, BuildIds, Tasks};
use crate::data::{Encoder, SampleId};
use crate::hotplug::MonitoredCpus;
use crate::limits;
use crate::stat::command::FollowHandler as _;
use crate::stat::short_counts::{ShortCauses, ShortCounts};
use crate::stat::syscall_failure;
use crate::stat::throttling::Throttling;
use crate::target::{is_esrch, on_target};
use crate::text_file;

/// Returns the process ID of a thread, from /proc; if the thread has exited, returns its thread ID.
fn process_id(thread: u32) -> u32 {
    let status = text_file::read(format!("/proc/{thread}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("Tgid:"));
    line.and_then(|l| l.trim().parse().ok()).unwrap_or(thread)
}

/// The sampling configuration of one PMD (data register).
#[derive(Clone, Debug)]
pub struct Sampler {
    pub pmd: u16,
    /// The initial sampling period, in events.
    pub period: u64,
    /// The number of samples per second to which the period is adjusted; `None` if the period is
    /// fixed.
    pub frequency: Option<u64>,
    /// The ID that samples of this PMD contain.
    pub id: u64,
}

/// The configuration that all contexts of a recording share.
#[derive(Clone, Debug)]
pub struct ContextConfig {
    pub scope: Scope,
    pub format: &'static str,
    pub argument: Argument,
    pub pmcs: Vec<RegisterValue>,
    pub samplers: Vec<Sampler>,
}

impl ContextConfig {
    /// Creates a context and writes its registers, without attaching the context.
    pub fn create_context(&self) -> io::Result<Context> {
        let context = Context::create_format(self.scope, self.format, &self.argument.to_bytes())?;
        context.write_pmcs(&self.pmcs)?;
        let pmds: Vec<_> = self
            .samplers
            .iter()
            .map(|s| sampling_pmd(s.pmd, s.period, s.id))
            .collect();
        context.write_sampling_pmds(&pmds)?;
        Ok(context)
    }

    /// Checks whether a context with this configuration can be created and attached to the thread
    /// or CPU `target`, and closes the context again.
    pub fn probe(&self, target: u32) -> io::Result<()> {
        on_target(self.scope, target, || {
            let context = self.create_context()?;
            context.load(target)?;
            Ring::open(&context)?;
            context.unload()
        })
    }
}

struct ActiveContext {
    context: Context,
    ring: Ring,
    /// The frequency controller of each sampler in [`ContextConfig::samplers`]; `None` if the
    /// period of the sampler is fixed.
    controllers: Vec<Option<FreqController>>,
    lost: LostRecords,
    is_ended: bool,
}

impl ActiveContext {
    /// Reads the messages of the context. If a message says why samples of the context are missing,
    /// returns the cause.
    fn read_messages(&mut self, scope: Scope) -> ShortCauses {
        while !self.is_ended {
            match self.context.read_message() {
                Ok(None) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => break,
                Ok(Some(Message::Overflow { .. } | Message::Other(_))) => {}
                Ok(Some(message)) => {
                    self.is_ended = true;
                    return ShortCauses::from_message(message, scope);
                }
                // If messages cannot be read, the end of the context cannot be detected, so
                // `is_ended` is set at once. The ring of an ended context is still read.
                Err(_) => self.is_ended = true,
            }
        }
        ShortCauses::NONE
    }
}

/// The records that were read from the rings and have not been written to the file yet.
#[derive(Default)]
pub struct Drained {
    pub records: Encoder,
    pub samples: u64,
    pub lost: u64,
    /// The number of samples of idle CPUs, or of processes outside of this PID namespace.
    pub outside_namespace: u64,
}

/// All contexts of a recording, by thread ID or CPU number.
pub struct Contexts {
    config: ContextConfig,
    live: BTreeMap<u32, ActiveContext>,
    pub tasks: Tasks,
    /// The kernel's records of processes; `None` if the kernel refuses to open the perf events.
    task_events: Option<TaskEvents>,
    pub drained: Drained,
    /// The number of threads that could not be sampled, and the error of the first such thread.
    pub failed_threads: usize,
    pub first_error: Option<io::Error>,
    /// The threads and CPUs for which samples are missing, with the causes.
    short_counts: ShortCounts,
    /// The sum of the throttling of all closed contexts.
    closed_throttling: Throttling,
    /// The throttling of all contexts up to the last call of [`Contexts::take_throttling`].
    reported_throttling: Throttling,
    /// True if a full ring overwrites its oldest records. The rings of a flight recorder are read
    /// only when a file is written or their CPU goes offline.
    is_flight_recorder: bool,
    /// True after [`Contexts::stop`]: new threads get no contexts.
    is_stopped: bool,
    has_broken_ring: bool,
    /// The sampled CPUs; `None` if threads are sampled.
    cpus: Option<MonitoredCpus>,
    /// The time for which each CPU was not sampled.
    gaps: BTreeMap<u32, Duration>,
    /// The CPUs that could not be sampled again after they had come online, with the error.
    failed_cpus: BTreeMap<u32, io::Error>,
    /// True if pfc runs in a PID namespace other than the initial one, so that samples of CPUs can
    /// belong to processes that have no ID in pfc's namespace.
    in_child_pid_namespace: bool,
}

/// The target of the link /proc/self/ns/pid in the initial PID namespace. The inode number of the
/// initial PID namespace is the kernel's PROC_PID_INIT_INO.
const INIT_PID_NAMESPACE: &str = "pid:[4026531836]";

fn in_child_pid_namespace() -> bool {
    let own = std::fs::read_link("/proc/self/ns/pid");
    own.is_ok_and(|own| own.as_os_str() != INIT_PID_NAMESPACE)
}

impl Contexts {
    pub fn new(config: ContextConfig, is_flight_recorder: bool, has_stacks: bool) -> Self {
        let id = config.samplers.first().map_or(0, |s| s.id);
        let mut drained = Drained::default();
        drained.records.has_stacks = has_stacks;
        Self {
            config,
            live: BTreeMap::new(),
            tasks: Tasks::new(id),
            task_events: None,
            drained,
            failed_threads: 0,
            first_error: None,
            short_counts: ShortCounts::default(),
            closed_throttling: Throttling::default(),
            reported_throttling: Throttling::default(),
            is_flight_recorder,
            is_stopped: false,
            has_broken_ring: false,
            cpus: None,
            gaps: BTreeMap::new(),
            failed_cpus: BTreeMap::new(),
            in_child_pid_namespace: in_child_pid_namespace(),
        }
    }

    /// Creates a context and attaches the context to a thread or CPU, without starting the context.
    pub fn attach(&mut self, target: u32) -> io::Result<()> {
        let config = &self.config;
        let context = on_target(config.scope, target, || {
            let context = config.create_context()?;
            context.load(target)?;
            Ok(context)
        })?;
        self.insert_attached(target, context)
    }

    fn start_context(&self, target: u32) -> io::Result<()> {
        match self.live.get(&target) {
            Some(live) => on_target(self.config.scope, target, || live.context.start()),
            None => Ok(()),
        }
    }

    /// Starts all contexts. If a thread has exited since its context was attached, no error is
    /// returned.
    pub fn start(&self) -> io::Result<()> {
        for target in self.live.keys() {
            match self.start_context(*target) {
                Err(e) if is_esrch(&e) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Stops all contexts. Threads that are created after this call are not sampled.
    pub fn stop(&mut self) {
        self.is_stopped = true;
        for (target, live) in &self.live {
            // stop() fails only if the context has ended, and an ended context takes no samples.
            let _ = on_target(self.config.scope, *target, || live.context.stop());
        }
    }

    /// Returns the descriptors that become readable when a context has messages or data, or when a
    /// ring of [`TaskEvents`] is half full.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let live = self.live.values().filter(|live| !live.is_ended);
        let mut fds: Vec<_> = live.map(|live| live.context.as_fd()).collect();
        fds.extend(self.task_events.iter().flat_map(TaskEvents::fds));
        fds
    }

    /// Reads the messages of all contexts, and the kernel's records of processes. Unless the
    /// recording is a flight recorder, this function also reads the rings of the contexts and
    /// adjusts the periods.
    pub fn poll(&mut self) {
        let targets: Vec<u32> = self.live.keys().copied().collect();
        for target in targets {
            let Some(live) = self.live.get_mut(&target) else {
                continue;
            };
            let causes = live.read_messages(self.config.scope);
            match &mut self.cpus {
                Some(cpus) if causes.contains(ShortCauses::OFFLINE) => {
                    cpus.detach(target);
                    // The ring is read before its context is closed, also in a flight recorder. The
                    // samples are kept for the next file.
                    self.drain_ring(target);
                    self.close(target);
                    continue;
                }
                _ => self.short_counts.add(target, causes),
            }
            if !self.is_flight_recorder {
                self.drain_ring(target);
                self.adjust_periods(target);
            }
        }
        self.attach_online_cpus();
        self.record_gaps(MonitoredCpus::take_ended_gaps);
        self.drain_task_events();
    }

    /// Reads the kernel's records of processes. Called after samples are read and before the
    /// samples are written: for each written sample, all earlier records of processes must have
    /// been read.
    fn drain_task_events(&mut self) {
        if let Some(events) = &mut self.task_events {
            self.tasks.drain(events);
        }
    }

    /// Reads all rings. The contexts of a flight recorder are paused while their rings are read.
    /// The contexts of a flight recorder that have ended are closed after their rings are read.
    pub fn drain_all(&mut self) {
        let targets: Vec<u32> = self.live.keys().copied().collect();
        for target in &targets {
            self.set_paused(*target, true);
        }
        for target in &targets {
            self.drain_ring(*target);
            self.flush_lost(*target);
        }
        self.record_gaps(MonitoredCpus::take_gaps);
        self.drain_task_events();
        for target in &targets {
            self.set_paused(*target, false);
        }
        if self.is_flight_recorder {
            let ended: Vec<u32> = self
                .live
                .iter()
                .filter(|(_, live)| live.is_ended)
                .map(|(target, _)| *target)
                .collect();
            for target in ended {
                self.close(target);
            }
        }
    }

    fn close(&mut self, target: u32) {
        self.flush_lost(target);
        if let Some(live) = self.live.remove(&target) {
            if let Ok(status) = live.context.status() {
                self.closed_throttling.add(&status);
                self.short_counts
                    .add(target, ShortCauses::from_status(&status));
            }
        }
    }

    /// Returns the throttling of all contexts since the last call.
    pub fn take_throttling(&mut self) -> Throttling {
        let mut all = self.closed_throttling;
        for status in self
            .live
            .values()
            .filter_map(|live| live.context.status().ok())
        {
            all.add(&status);
        }
        let before = std::mem::replace(&mut self.reported_throttling, all);
        all.since(&before)
    }

    fn set_paused(&self, target: u32, paused: bool) {
        if let (true, Some(live)) = (self.is_flight_recorder, self.live.get(&target)) {
            // Unless the context is paused, the kernel may overwrite the oldest records before pfc
            // reads the records. pause() fails only if the context has ended.
            let _ = on_target(self.config.scope, target, || live.context.pause(paused));
        }
    }

    fn drain_ring(&mut self, target: u32) {
        let Some(live) = self.live.get_mut(&target) else {
            return;
        };
        let samplers = &self.config.samplers;
        let first_id = samplers.first().map_or(0, |s| s.id);
        let drained = &mut self.drained;
        for record in live.ring.records() {
            let sample_id = |time| SampleId {
                time,
                id: first_id,
                ..SampleId::default()
            };
            match record {
                Record::Sample(mut sample) => {
                    if self.in_child_pid_namespace && sample.pid == 0 {
                        (sample.pid, sample.tid) = (u32::MAX, u32::MAX);
                        drained.outside_namespace += 1;
                    }
                    self.tasks.handle_sample(&sample);
                    let index = samplers.iter().position(|s| s.id == sample.eventid);
                    if let Some(controller) = index.and_then(|n| live.controllers[n].as_mut()) {
                        controller.add_sample(sample.time);
                    }
                    let id = index.map_or(first_id, |_| sample.eventid);
                    drained.records.sample(&sample, id);
                    drained.samples += 1;
                }
                Record::Lost(lost) => {
                    if let lost @ 1.. = live.lost.add_record(lost) {
                        drained.records.lost(lost, &sample_id(now()));
                    }
                }
                Record::Throttle(time) => drained.records.throttle(true, &sample_id(time)),
                Record::Unthrottle(time) => drained.records.throttle(false, &sample_id(time)),
                Record::Exec(time) => self.tasks.record_thread_exec(target, time),
                // A kernel module that is newer than pfc may write records of an unknown type.
                Record::Other { .. } => {}
            }
        }
        self.tasks.check_sampled();
        // If records are lost after the last record in the ring, only the ring's count of lost
        // records includes the loss: no record in the ring reports it.
        drained.lost += live.lost.set_total(live.ring.lost());
        self.has_broken_ring |= live.ring.is_broken();
    }

    /// Writes a LOST record for those lost records of a ring that are in no LOST record yet.
    fn flush_lost(&mut self, target: u32) {
        let Some(live) = self.live.get_mut(&target) else {
            return;
        };
        if let lost @ 1.. = live.lost.take_rest() {
            let sample_id = SampleId {
                time: now(),
                id: self.config.samplers.first().map_or(0, |s| s.id),
                ..SampleId::default()
            };
            self.drained.records.lost(lost, &sample_id);
        }
    }

    /// Writes new periods for the samplers whose period should change.
    fn adjust_periods(&mut self, target: u32) {
        let Some(live) = self.live.get_mut(&target) else {
            return;
        };
        let mut pmds = Vec::new();
        for (sampler, controller) in self.config.samplers.iter().zip(&mut live.controllers) {
            if let Some(period) = controller.as_mut().and_then(FreqController::adjust) {
                pmds.push(sampling_pmd(sampler.pmd, period, sampler.id));
            }
        }
        if pmds.is_empty() || live.is_ended {
            return;
        }
        // If write_sampling_pmds() fails, the old periods stay in effect.
        let _ = on_target(self.config.scope, target, || {
            live.context.write_sampling_pmds(&pmds)
        });
    }

    /// Returns true if all contexts have ended for good. `all_ended` is false while a sampled CPU
    /// is offline, because the CPU gets a new context when it is online again.
    pub fn all_ended(&self) -> bool {
        let has_open_gap = self.cpus.as_ref().is_some_and(MonitoredCpus::has_open_gap);
        !has_open_gap && self.live.values().all(|live| live.is_ended)
    }

    /// Prints warnings about lost records, samples without a name, and threads or CPUs whose
    /// sampling ended early.
    pub fn print_problems(&mut self) {
        for (target, live) in &mut self.live {
            let causes = live.read_messages(self.config.scope);
            self.short_counts.add(*target, causes);
            if let Ok(status) = live.context.status() {
                self.short_counts
                    .add(*target, ShortCauses::from_status(&status));
            }
        }
        if let lost @ 1.. = self.task_events.as_ref().map_or(0, |events| events.lost) {
            message!("pfc: {lost} records of processes were lost: some names may be missing, or those of an earlier program");
        }
        for (cpu, time) in &self.gaps {
            message!(
                "pfc: CPU {cpu} was not sampled for {:.3} s, in which it was offline",
                time.as_secs_f64()
            );
        }
        for (cpu, error) in &self.failed_cpus {
            let failure = syscall_failure(&format!("sample CPU {cpu} again"), error);
            message!("pfc: {failure}");
        }
        if self.drained.outside_namespace > 0 {
            message!(
                "pfc: {} samples are of idle CPUs or of processes outside of this pid name space; they have no names (:-1)",
                self.drained.outside_namespace
            );
        }
        if self.has_broken_ring {
            message!("pfc: a ring contained an invalid record: install pfc and the modules in the same version");
        }
        for sentence in self.short_counts.sentences(self.config.scope, "sampling") {
            message!("pfc: {sentence}");
        }
    }
}

impl Contexts {
    /// Opens perf events with which the kernel records changes of the names and mappings of
    /// processes: the processes that contain `threads`, or all processes if `threads` is `None`.
    /// Reads the names and mappings of existing processes from /proc. If the kernel refuses to open
    /// the perf events, /proc is also read during the recording.
    pub fn track_tasks(&mut self, threads: Option<&[u32]>) {
        // All records from /proc get a time before the perf events are opened. If a process changes
        // while /proc is read, the kernel's record of the change is later and has precedence.
        let time = now();
        let processes = threads.map(process_ids);
        self.open_task_events(processes.as_deref());
        self.add_existing(processes.unwrap_or_else(|| numeric_entries("/proc")), time);
    }

    /// Records the names and mappings of processes from /proc, with the time `time`.
    fn add_existing(&mut self, processes: Vec<u32>, time: u64) {
        let mut build_ids = BuildIds::new();
        for pid in processes {
            self.tasks.add_existing(pid, time, &mut build_ids);
        }
    }

    /// Opens perf events for the kernel's records of the given processes, or of all processes.
    /// Returns false if the kernel refuses to open the events.
    fn open_task_events(&mut self, processes: Option<&[u32]>) -> bool {
        let events = match processes {
            None => TaskEvents::open_all_tasks(),
            Some(processes) => {
                let threads = |pid| numeric_entries(&format!("/proc/{pid}/task"));
                TaskEvents::open_threads(&processes.iter().flat_map(threads).collect::<Vec<u32>>())
            }
        };
        if let Err(error) = &events {
            if let Some(libc::EMFILE | libc::ENFILE) = error.raw_os_error() {
                let advice = limits::advice(error);
                message!("pfc: names are read from /proc, because perf events cannot be opened: {error}{advice}");
            }
        }
        self.task_events = events.ok();
        let is_open = self.task_events.is_some();
        if is_open {
            self.tasks.use_kernel_records();
        }
        is_open
    }
}

/// Returns the process IDs of the given threads, without duplicates.
fn process_ids(threads: &[u32]) -> Vec<u32> {
    let mut processes: Vec<u32> = threads.iter().map(|t| process_id(*t)).collect();
    processes.sort_unstable();
    processes.dedup();
    processes
}
