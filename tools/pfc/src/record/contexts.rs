// SPDX-License-Identifier: GPL-2.0

//! The sampling contexts of a recording: one context for each thread or CPU. All contexts of a
//! recording have the same configuration, and each context has its own ring.

mod cpus;
mod follow;
mod processes;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use perfmon::ring::{Record, Ring, RingArgument};
use perfmon::{sampling_pmd, status, Context, Message, RegisterValue, Scope, Status};

use super::freq::FreqController;
use super::lost::LostRecordCounts;
use super::task_events::PerfTaskEvents;
use super::tasks::{monotonic_now_ns, ProcessRecorder, MAX_KEPT_RECORD_BYTES};
use crate::data::record::sum_of_lost_samples;
use crate::data::{count_sample_records, take_first_half, RecordEncoder, SampleId};
use crate::hotplug::MonitoredCpus;
use crate::stat::command::FollowedThreadHandler as _;
use crate::stat::short_counts::{IncompleteTargets, MissingCountCauses};
use crate::stat::syscall_failure;
use crate::stat::throttling::Throttling;
use crate::target::{call_on_target_cpu, is_esrch};

/// The sampling configuration of one PMD (data register).
#[derive(Clone, Debug)]
pub struct SamplingPmdConfig {
    pub pmd: u16,
    /// The initial sampling period, in events.
    pub initial_period: u64,
    /// The number of samples per second to which the period is adjusted; `None` if the period is
    /// fixed.
    pub target_frequency_hz: Option<u64>,
    /// The ID that samples of this PMD contain.
    pub event_id: u64,
}

/// The configuration that all contexts of a recording share.
#[derive(Clone, Debug)]
pub struct SamplingContextConfig {
    pub scope: Scope,
    pub sampling_format_name: &'static str,
    pub format_argument: RingArgument,
    pub pmc_values: Vec<RegisterValue>,
    pub sampling_pmds: Vec<SamplingPmdConfig>,
}

impl SamplingContextConfig {
    /// Creates a context and writes its registers, without attaching the context.
    pub fn create_context(&self) -> io::Result<Context> {
        let context = Context::create_with_format(
            self.scope,
            self.sampling_format_name,
            &self.format_argument.to_bytes(),
        )?;
        context.write_pmcs(&self.pmc_values)?;
        let pmds: Vec<_> = self
            .sampling_pmds
            .iter()
            .map(|s| sampling_pmd(s.pmd, s.initial_period, s.event_id))
            .collect();
        context.write_sampling_pmds(&pmds)?;
        Ok(context)
    }

    /// Checks whether a context with this configuration can be created and attached to the thread
    /// or CPU `target`. The context is closed again.
    pub fn check_can_attach(&self, target: u32) -> io::Result<()> {
        call_on_target_cpu(self.scope, target, || {
            let context = self.create_context()?;
            context.load(target)?;
            Ring::open(&context)?;
            context.unload()
        })
    }
}

struct SamplingContext {
    context: Context,
    ring: Ring,
    /// The frequency controller of each PMD in [`SamplingContextConfig::sampling_pmds`]; `None` if
    /// the period of the PMD is fixed.
    frequency_controllers: Vec<Option<FreqController>>,
    lost_records: LostRecordCounts,
    has_ended: bool,
}

impl SamplingContext {
    /// Reads the messages of the context. If a message says why the context has ended, sets
    /// `has_ended` and returns the cause, which later calls do not return again.
    fn take_end_causes(&mut self, scope: Scope) -> MissingCountCauses {
        while !self.has_ended {
            match self.context.try_read_message() {
                Ok(None) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => break,
                Ok(Some(Message::Overflow { .. } | Message::Other(_))) => {}
                Ok(Some(message)) => {
                    self.has_ended = true;
                    return MissingCountCauses::from_message(message, scope);
                }
                // If messages cannot be read, pfc cannot detect when the context ends, so
                // `has_ended` is set now. The ring of an ended context is still read.
                Err(_) => self.has_ended = true,
            }
        }
        MissingCountCauses::NONE
    }

    /// Returns the causes of missing samples that the status `status` of the context names. If the
    /// kernel has set PERFMON_REGFL_SHORT for a PMD, the result has at least one cause. The kernel
    /// sets this flag if the context has ended early, but not if its thread has exited.
    fn find_missing_sample_causes(
        &self,
        status: &Status,
        config: &SamplingContextConfig,
    ) -> MissingCountCauses {
        let pmds: Vec<_> = config.sampling_pmds.iter().map(|s| (0, s.pmd)).collect();
        let values = self.context.read_set_pmds(&pmds).unwrap_or_default();
        let unknown = match values.iter().any(|value| value.lacks_counts) {
            true => MissingCountCauses::UNKNOWN_REASON,
            false => MissingCountCauses::NONE,
        };
        MissingCountCauses::from_status(status).union_preferring_known(unknown)
    }
}

/// The records that were read from the rings and have not been written to the file yet.
#[derive(Default)]
pub struct DrainedRecords {
    pub records: RecordEncoder,
    /// The numbers of samples and of lost records since the caller last set the numbers to 0.
    pub nr_samples_since_reset: u64,
    pub nr_lost_records_since_reset: u64,
    /// The number of samples since the last call of [`SamplingContexts::refresh_problems`] that
    /// were taken on idle CPUs or in processes outside of this PID namespace.
    pub nr_new_samples_of_unknown_pid: u64,
}

impl DrainedRecords {
    /// Discards the older half of the records if they take more than [`MAX_KEPT_RECORD_BYTES`]. A
    /// LOST record of the event `id` replaces the discarded LOST records, because the file must
    /// count all lost samples.
    fn discard_older_half_if_large(&mut self, id: u64) {
        if self.records.bytes.len() > MAX_KEPT_RECORD_BYTES {
            let older = take_first_half(&mut self.records.bytes);
            self.nr_samples_since_reset -= count_sample_records(&older);
            if let lost @ 1.. = sum_of_lost_samples(&older) {
                let sample_id = SampleId {
                    time: monotonic_now_ns(),
                    id,
                    ..SampleId::default()
                };
                self.records.encode_lost(lost, &sample_id);
            }
        }
    }
}

/// All contexts of a recording, by thread ID or CPU number.
pub struct SamplingContexts {
    config: SamplingContextConfig,
    contexts_by_target: BTreeMap<u32, SamplingContext>,
    pub process_recorder: ProcessRecorder,
    /// The kernel's records of processes; `None` if the kernel refuses to open the perf events.
    perf_task_events: Option<PerfTaskEvents>,
    /// The warning that perf events could not be opened, or `None`.
    unopened_events_problem: Option<String>,
    pub drained_records: DrainedRecords,
    /// The number of threads that could not be sampled, and the error of the first such thread.
    pub nr_unsampled_threads: usize,
    pub first_thread_error: Option<io::Error>,
    /// The threads and CPUs for which samples are missing, with the causes.
    pub incomplete_targets: IncompleteTargets,
    /// The throttling of all closed contexts, added up.
    throttling_of_closed_contexts: Throttling,
    /// The throttling of all contexts up to the last call of
    /// [`SamplingContexts::take_new_throttling`].
    reported_throttling: Throttling,
    /// True if a full ring overwrites its oldest records. The rings of a flight recorder are read
    /// only when a file is written or their CPU goes offline.
    is_flight_recorder: bool,
    /// True after [`SamplingContexts::stop`]: new threads get no contexts.
    is_stopped: bool,
    pub has_broken_ring: bool,
    /// The sampled CPUs; `None` if threads are sampled.
    pub monitored_cpus: Option<MonitoredCpus>,
    /// The time for which each CPU was not sampled.
    unsampled_time_by_cpu: BTreeMap<u32, Duration>,
    /// The CPUs that could not be sampled again after they had come online, with the error.
    pub restart_errors_by_cpu: BTreeMap<u32, io::Error>,
    /// True if pfc runs in a PID namespace other than the initial one, so that samples of CPUs can
    /// belong to processes that have no ID in pfc's namespace.
    is_in_child_pid_namespace: bool,
}

/// The target of the link /proc/self/ns/pid in the initial PID namespace. The inode number of the
/// initial PID namespace is the kernel's PROC_PID_INIT_INO.
const INIT_PID_NAMESPACE_LINK: &str = "pid:[4026531836]";

fn is_in_child_pid_namespace() -> bool {
    let own = std::fs::read_link("/proc/self/ns/pid");
    own.is_ok_and(|own| own.as_os_str() != INIT_PID_NAMESPACE_LINK)
}

impl SamplingContexts {
    pub fn new(config: SamplingContextConfig, is_flight_recorder: bool, has_stacks: bool) -> Self {
        let id = config.sampling_pmds.first().map_or(0, |s| s.event_id);
        let mut drained = DrainedRecords::default();
        drained.records.has_stacks = has_stacks;
        Self {
            config,
            contexts_by_target: BTreeMap::new(),
            process_recorder: ProcessRecorder::new(id),
            perf_task_events: None,
            unopened_events_problem: None,
            drained_records: drained,
            nr_unsampled_threads: 0,
            first_thread_error: None,
            incomplete_targets: IncompleteTargets::default(),
            throttling_of_closed_contexts: Throttling::default(),
            reported_throttling: Throttling::default(),
            is_flight_recorder,
            is_stopped: false,
            has_broken_ring: false,
            monitored_cpus: None,
            unsampled_time_by_cpu: BTreeMap::new(),
            restart_errors_by_cpu: BTreeMap::new(),
            is_in_child_pid_namespace: is_in_child_pid_namespace(),
        }
    }

    /// Creates a context and attaches the context to a thread or CPU, without starting the context.
    pub fn attach_context(&mut self, target: u32) -> io::Result<()> {
        let config = &self.config;
        let context = call_on_target_cpu(config.scope, target, || {
            let context = config.create_context()?;
            context.load(target)?;
            Ok(context)
        })?;
        self.insert_attached_context(target, context)
    }

    fn start_context(&self, target: u32) -> io::Result<()> {
        match self.contexts_by_target.get(&target) {
            Some(live) => call_on_target_cpu(self.config.scope, target, || live.context.start()),
            None => Ok(()),
        }
    }

    /// Starts all contexts. If a thread has exited since its context was attached, no error is
    /// returned.
    pub fn start(&self) -> io::Result<()> {
        for target in self.contexts_by_target.keys() {
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
        for (target, live) in &self.contexts_by_target {
            // stop() fails only if the context has ended, and an ended context takes no samples.
            let _ = call_on_target_cpu(self.config.scope, *target, || live.context.stop());
        }
    }

    /// Returns the descriptors that become readable when a context has messages or data, or when a
    /// ring of [`PerfTaskEvents`] is half full.
    pub fn fds_to_poll(&self) -> Vec<BorrowedFd<'_>> {
        let live = self
            .contexts_by_target
            .values()
            .filter(|live| !live.has_ended);
        let mut fds: Vec<_> = live.map(|live| live.context.as_fd()).collect();
        fds.extend(
            self.perf_task_events
                .iter()
                .flat_map(PerfTaskEvents::all_tasks_event_fds),
        );
        fds
    }

    /// Reads the messages of all contexts, and the kernel's records of processes. Unless the
    /// recording is a flight recorder, this function also reads the rings of the contexts and
    /// adjusts the periods. If a CPU is offline, its ring is read and its context is closed, also
    /// in a flight recorder. Contexts are attached to CPUs that have come online.
    pub fn read_rings_and_update_contexts(&mut self) {
        let targets: Vec<u32> = self.contexts_by_target.keys().copied().collect();
        for target in targets {
            let Some(live) = self.contexts_by_target.get_mut(&target) else {
                continue;
            };
            let causes = live.take_end_causes(self.config.scope);
            match &mut self.monitored_cpus {
                Some(cpus) if causes.intersects(MissingCountCauses::CPU_OFFLINE) => {
                    cpus.mark_detached(target);
                    self.keep_samples_and_close_context(target);
                    continue;
                }
                _ => self.incomplete_targets.add(target, causes),
            }
            if !self.is_flight_recorder {
                self.drain_sample_ring(target);
                self.adjust_sampling_periods(target);
            }
        }
        self.open_events_on_newly_online_cpus();
        self.attach_newly_online_cpus();
        self.record_cpu_gaps(MonitoredCpus::take_ended_gaps);
        self.drain_perf_task_events();
    }

    /// Reads all rings. The contexts of a flight recorder are paused while their rings are read.
    /// The contexts of a flight recorder that have ended are closed after their rings are read.
    pub fn drain_rings_closing_ended(&mut self) {
        let targets: Vec<u32> = self.contexts_by_target.keys().copied().collect();
        for target in &targets {
            self.set_flight_recorder_paused(*target, true);
        }
        for target in &targets {
            self.drain_sample_ring(*target);
            self.record_remaining_losses(*target);
        }
        self.record_cpu_gaps(MonitoredCpus::take_gaps);
        self.drain_perf_task_events();
        for target in &targets {
            self.set_flight_recorder_paused(*target, false);
        }
        // Reading a count takes a system call for each event, and a paused context drops samples.
        if let Some(events) = &mut self.perf_task_events {
            self.process_recorder.record_remaining_losses(events);
        }
        if self.is_flight_recorder {
            let ended: Vec<u32> = self
                .contexts_by_target
                .iter()
                .filter(|(_, live)| live.has_ended)
                .map(|(target, _)| *target)
                .collect();
            for target in ended {
                self.close_context(target);
            }
        }
    }

    /// Reads the ring of a context that has ended, and closes the context. A flight recorder keeps
    /// the samples for the next file.
    fn keep_samples_and_close_context(&mut self, target: u32) {
        self.drain_sample_ring(target);
        self.close_context(target);
        if self.is_flight_recorder {
            let id = self.config.sampling_pmds.first().map_or(0, |s| s.event_id);
            self.drained_records.discard_older_half_if_large(id);
        }
    }

    fn close_context(&mut self, target: u32) {
        self.record_remaining_losses(target);
        if let Some(live) = self.contexts_by_target.remove(&target) {
            if let Ok(status) = live.context.status() {
                self.throttling_of_closed_contexts.add(&status);
                let causes = live.find_missing_sample_causes(&status, &self.config);
                self.incomplete_targets.add(target, causes);
            }
        }
    }

    /// Returns the throttling of all contexts since the last call.
    pub fn take_new_throttling(&mut self) -> Throttling {
        let mut all = self.throttling_of_closed_contexts;
        for status in self
            .contexts_by_target
            .values()
            .filter_map(|live| live.context.status().ok())
        {
            all.add(&status);
        }
        let before = std::mem::replace(&mut self.reported_throttling, all);
        all.since(&before)
    }

    fn set_flight_recorder_paused(&self, target: u32, paused: bool) {
        if let (true, Some(live)) = (
            self.is_flight_recorder,
            self.contexts_by_target.get(&target),
        ) {
            // Unless the context is paused, the kernel may overwrite the oldest records before pfc
            // reads the records. set_ring_paused() fails only if the context has ended.
            let _ = call_on_target_cpu(self.config.scope, target, || {
                live.context.set_ring_paused(paused)
            });
        }
    }

    fn drain_sample_ring(&mut self, target: u32) {
        let Some(live) = self.contexts_by_target.get_mut(&target) else {
            return;
        };
        let sampling_pmds = &self.config.sampling_pmds;
        let first_id = sampling_pmds.first().map_or(0, |s| s.event_id);
        let drained = &mut self.drained_records;
        for record in live.ring.records() {
            let sample_id = |time| SampleId {
                time,
                id: first_id,
                ..SampleId::default()
            };
            match record {
                Record::Sample(mut sample) => {
                    if self.is_in_child_pid_namespace && sample.pid == 0 {
                        (sample.pid, sample.tid) = (u32::MAX, u32::MAX);
                        drained.nr_new_samples_of_unknown_pid += 1;
                    }
                    self.process_recorder.record_process_of_sample(&sample);
                    let index = sampling_pmds
                        .iter()
                        .position(|s| s.event_id == sample.eventid);
                    if let Some(controller) =
                        index.and_then(|n| live.frequency_controllers[n].as_mut())
                    {
                        controller.add_sample_time(sample.time);
                    }
                    let id = index.map_or(first_id, |_| sample.eventid);
                    drained.records.encode_sample(&sample, id);
                    drained.nr_samples_since_reset += 1;
                }
                Record::Lost(lost) => {
                    if let lost @ 1.. = live.lost_records.add_record_and_take_unwritten(lost) {
                        drained
                            .records
                            .encode_lost(lost, &sample_id(monotonic_now_ns()));
                    }
                }
                Record::Throttle(time) => drained.records.encode_throttle(true, &sample_id(time)),
                Record::Unthrottle(time) => {
                    drained.records.encode_throttle(false, &sample_id(time))
                }
                Record::Exec(time) => self.process_recorder.record_exec_by_thread(target, time),
                // A kernel module that is newer than pfc may write records of an unknown type.
                Record::Other { .. } => {}
            }
        }
        self.process_recorder.check_sampled_processes();
        // If records are lost after the last record in the ring, only the ring's count of lost
        // records includes the loss: no record in the ring reports it.
        drained.nr_lost_records_since_reset +=
            live.lost_records.advance_kernel_count_to(live.ring.lost());
        self.has_broken_ring |= live.ring.has_found_invalid_record();
    }

    /// Writes a LOST record for the lost records of a ring that no LOST record counts yet.
    fn record_remaining_losses(&mut self, target: u32) {
        let Some(live) = self.contexts_by_target.get_mut(&target) else {
            return;
        };
        if let lost @ 1.. = live.lost_records.take_unwritten_count() {
            let sample_id = SampleId {
                time: monotonic_now_ns(),
                id: self.config.sampling_pmds.first().map_or(0, |s| s.event_id),
                ..SampleId::default()
            };
            self.drained_records.records.encode_lost(lost, &sample_id);
        }
    }

    /// Writes new periods for the sampling PMDs whose period should change.
    fn adjust_sampling_periods(&mut self, target: u32) {
        let Some(live) = self.contexts_by_target.get_mut(&target) else {
            return;
        };
        let mut pmds = Vec::new();
        for (sampler, controller) in self
            .config
            .sampling_pmds
            .iter()
            .zip(&mut live.frequency_controllers)
        {
            if let Some(period) = controller.as_mut().and_then(FreqController::adjust_period) {
                pmds.push(sampling_pmd(sampler.pmd, period, sampler.event_id));
            }
        }
        // A write to an ended context would clear PERFMON_REGFL_SHORT, the flag for missing
        // samples.
        let has_ended = |status: Status| status.flags & status::ENDED != 0;
        if pmds.is_empty() || live.has_ended || live.context.status().is_ok_and(has_ended) {
            return;
        }
        // If write_sampling_pmds() fails, the old periods stay in effect.
        let _ = call_on_target_cpu(self.config.scope, target, || {
            live.context.write_sampling_pmds(&pmds)
        });
    }

    /// Returns true if all contexts have ended for good. `have_all_contexts_ended` is false while a
    /// sampled CPU is offline, because the CPU gets a new context when it is online again.
    pub fn have_all_contexts_ended(&self) -> bool {
        let has_open_gap = self
            .monitored_cpus
            .as_ref()
            .is_some_and(MonitoredCpus::has_open_gap);
        !has_open_gap && self.contexts_by_target.values().all(|live| live.has_ended)
    }

    /// Returns true if the thread has no context, or its context has ended because the thread has
    /// exited. The caller has read the messages of the contexts, and then called
    /// [`Self::refresh_problems`].
    pub fn has_thread_exited(&self, thread: u32) -> bool {
        let context = self.contexts_by_target.get(&thread);
        context.is_none_or(|live| live.has_ended)
            && !self.incomplete_targets.has_target_ended_early(thread)
    }

    /// Prints warnings about CPUs that were offline, and the warnings of [`Self::refresh_problems`].
    pub fn print_sampling_problems(&mut self) {
        for (target, live) in &mut self.contexts_by_target {
            let causes = live.take_end_causes(self.config.scope);
            self.incomplete_targets.add(*target, causes);
        }
        for (cpu, time) in &self.unsampled_time_by_cpu {
            let seconds = time.as_secs_f64();
            message!("pfc: CPU {cpu} was not sampled for {seconds:.3} s, in which it was offline");
        }
        for problem in self.refresh_problems() {
            message!("pfc: {problem}");
        }
    }

    /// Reads the status of all contexts, and returns warnings about lost records of processes,
    /// samples without a name since the last call, and threads or CPUs that are not sampled any
    /// more. Does not read the messages of the contexts:
    /// [`SamplingContexts::read_rings_and_update_contexts`] must be the first to read that a CPU is
    /// offline.
    pub fn refresh_problems(&mut self) -> Vec<String> {
        for (target, live) in &self.contexts_by_target {
            if let Ok(status) = live.context.status() {
                let causes = live.find_missing_sample_causes(&status, &self.config);
                self.incomplete_targets.add(*target, causes);
            }
        }
        let mut problems = self.find_process_record_problems();
        for (cpu, error) in &self.restart_errors_by_cpu {
            problems.push(syscall_failure(&format!("sample CPU {cpu} again"), error).to_string());
        }
        let cpus = self.monitored_cpus.as_ref();
        problems.extend(cpus.and_then(MonitoredCpus::describe_online_cpus_read_error));
        if let n @ 1.. = std::mem::take(&mut self.drained_records.nr_new_samples_of_unknown_pid) {
            problems.push(format!("{n} samples are of idle CPUs or of processes outside of this pid name space; they have no names (:-1)"));
        }
        if self.has_broken_ring {
            let problem = "a ring contained an invalid record: install pfc and the modules in the same version";
            problems.push(problem.to_owned());
        }
        let incomplete = &self.incomplete_targets;
        problems.extend(incomplete.cause_sentences(self.config.scope, "sampling"));
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::fixtures::{sample, sample_id};

    #[test]
    fn r1_9_discarded_samples_leave_the_count_of_lost_samples() {
        let mut drained = DrainedRecords::default();
        while drained.records.bytes.len() <= MAX_KEPT_RECORD_BYTES {
            drained.records.encode_sample(&sample(7, 1, 0x1000), 1);
            drained.records.encode_lost(2, &sample_id(0, 1));
            drained.nr_samples_since_reset += 1;
        }
        let lost = 2 * drained.nr_samples_since_reset;
        for _ in 0..2 {
            drained.discard_older_half_if_large(1);
            let bytes = &drained.records.bytes;
            assert!(bytes.len() < MAX_KEPT_RECORD_BYTES * 6 / 10);
            assert_eq!(sum_of_lost_samples(bytes), lost);
            let nr_samples = count_sample_records(bytes);
            assert_eq!(drained.nr_samples_since_reset, nr_samples);
        }
    }
}
