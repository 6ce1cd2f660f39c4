// SPDX-License-Identifier: GPL-2.0

//! The monitoring contexts of a run of `pfc stat`: one context per thread or CPU, all with the same
//! configuration.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use perfmon::{Context, Pmd, RegisterValue, Scope, SetDesc, EXPL_NEXT, OVFL_SWITCH, TIME_SWITCH};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::retry_on_intr;

use super::assign::{EventPlacement, RegisterPlan};
use super::command::FollowedThreadHandler;
use super::estimate::{add_sums, union_of_causes, CountSums};
use super::short_counts::{IncompleteTargets, MissingCountCauses};
use super::throttling::Throttling;
use crate::hotplug::{cpu_may_be_online, MonitoredCpus, MonitoringGap};
use crate::target::{call_on_target_cpu, is_esrch};

/// The default of [`CountingContextConfig::event_set_timeout_ns`].
pub const DEFAULT_EVENT_SET_TIMEOUT_NS: u64 = 1_000_000;

/// The PMD (data register) or PMDs from which the count of an event is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountSource {
    /// A PMD that counts in every event set. The values of the PMD in all event sets are added up.
    AllSets(u16),
    /// A PMD that counts only while its event set is loaded. The fields are the event set and the
    /// PMD.
    OneSet(u16, u16),
}

/// The threshold of `--cascade`: the events of `-e` are counted only after the event of the
/// threshold has occurred `event_count` times.
#[derive(Clone, Debug)]
pub struct CascadeThreshold {
    /// The PMCs (control registers) that select the event of the `--cascade` threshold.
    pub pmc_values: Vec<RegisterValue>,
    pub pmd: u16,
    pub event_count: u64,
}

/// The configuration that all contexts of a run share.
#[derive(Clone, Debug)]
pub struct CountingContextConfig {
    pub scope: Scope,
    pub pmc_values: Vec<RegisterValue>,
    /// The sources of the counts: one source for each event that is counted, in the order of the
    /// events, and then [`Self::clock_pmd`] if it is `Some`.
    pub count_sources: Vec<CountSource>,
    /// The PMD that measures for how long events are counted, if the machine has such a PMD.
    pub clock_pmd: Option<u16>,
    /// The number of event sets that are loaded in turn; 1 if there is only one event set.
    pub nr_sets: u16,
    /// The time for which an event set is loaded before the next event set is loaded, in
    /// nanoseconds.
    pub event_set_timeout_ns: u64,
    /// The threshold of `--cascade`. If there is a threshold, event set 0 counts the event of the
    /// threshold, and the other event sets are loaded after the threshold is reached.
    pub cascade_threshold: Option<CascadeThreshold>,
}

impl CountingContextConfig {
    /// Makes the configuration of the contexts for a plan of registers. `clock_pmd` is the PMD that
    /// measures for how long events are counted, if the machine has such a PMD.
    pub fn new(scope: Scope, plan: &RegisterPlan, clock_pmd: Option<u16>) -> Self {
        let source_of = |(n, placement): (usize, &EventPlacement)| match placement {
            EventPlacement::Pmd(pmd)
                if *pmd < perfmon::FIRST_SOFT_REGISTER && plan.nr_multiplexed_sets > 1 =>
            {
                let set = plan.event_set_of_each_event.get(n).copied().unwrap_or(0);
                Some(CountSource::OneSet(set, *pmd))
            }
            EventPlacement::Pmd(pmd) => Some(CountSource::AllSets(*pmd)),
            _ => None,
        };
        let mut sources: Vec<CountSource> = plan
            .placements
            .iter()
            .enumerate()
            .filter_map(source_of)
            .collect();
        let clock_pmd = clock_pmd.filter(|_| !sources.is_empty());
        sources.extend(clock_pmd.map(CountSource::AllSets));
        Self {
            scope,
            pmc_values: plan.pmc_values.clone(),
            count_sources: sources,
            clock_pmd,
            nr_sets: plan.nr_multiplexed_sets.max(1),
            event_set_timeout_ns: DEFAULT_EVENT_SET_TIMEOUT_NS,
            cascade_threshold: None,
        }
    }

    /// Returns true if there is nothing to count, so that no context is needed.
    pub fn is_empty(&self) -> bool {
        self.count_sources.is_empty()
    }

    /// Returns the ID of the first event set that does not count the event of the threshold.
    fn first_counting_set_id(&self) -> u16 {
        u16::from(self.cascade_threshold.is_some())
    }

    fn counting_set_ids(&self) -> std::ops::Range<u16> {
        self.first_counting_set_id()..self.first_counting_set_id() + self.nr_sets
    }

    /// Creates a context and writes its registers, without attaching the context.
    pub fn create_context(&self) -> io::Result<Context> {
        let context = Context::create(self.scope)?;
        self.create_event_sets(&context)?;
        let in_set = |v: &RegisterValue| v.in_set(v.set + self.first_counting_set_id());
        let pmcs: Vec<RegisterValue> = self.pmc_values.iter().map(in_set).collect();
        context.write_pmcs(&pmcs)?;
        let mut zeroes: Vec<(u16, u16)> = Vec::new();
        for source in &self.count_sources {
            match source {
                CountSource::AllSets(pmd) => {
                    zeroes.extend(self.counting_set_ids().map(|set| (set, *pmd)))
                }
                CountSource::OneSet(set, pmd) => {
                    zeroes.push((set + self.first_counting_set_id(), *pmd))
                }
            }
        }
        zeroes.sort_unstable();
        zeroes.dedup();
        let zeroes: Vec<RegisterValue> = zeroes
            .iter()
            .map(|(set, pmd)| RegisterValue::new(*pmd, 0).in_set(*set))
            .collect();
        context.write_pmds(&zeroes)?;
        Ok(context)
    }

    fn create_event_sets(&self, context: &Context) -> io::Result<()> {
        if self.counting_set_ids() == (0..1) {
            return Ok(());
        }
        let set_desc = |set_id| SetDesc {
            set_id,
            set_flags: if self.nr_sets > 1 { TIME_SWITCH } else { 0 },
            set_timeout: if self.nr_sets > 1 {
                self.event_set_timeout_ns
            } else {
                0
            },
            ..SetDesc::default()
        };
        let mut sets: Vec<SetDesc> = self.counting_set_ids().map(set_desc).collect();
        if let Some(threshold) = &self.cascade_threshold {
            // After the last event set, the kernel loads the first event set that does not count
            // the event of the threshold.
            if let Some(last) = sets.last_mut() {
                (last.set_flags, last.set_id_next) =
                    (last.set_flags | EXPL_NEXT, self.first_counting_set_id());
            }
            sets.push(SetDesc {
                set_flags: OVFL_SWITCH,
                ..SetDesc::default()
            });
            context.create_event_sets(&mut sets)?;
            context.write_pmcs(&threshold.pmc_values)?;
            return context.write_sampling_pmds(&[Pmd {
                reg_num: threshold.pmd,
                reg_value: threshold.event_count.wrapping_neg(),
                reg_ovfl_switch_cnt: 1,
                ..Pmd::default()
            }]);
        }
        context.create_event_sets(&mut sets)
    }

    /// Reads the counts of a context. The counts are in the order of the configuration's sources.
    fn read_context_sums(&self, context: &Context) -> io::Result<Vec<CountSums>> {
        let (mut all_sets, mut one_set) = (Vec::new(), Vec::new());
        for source in &self.count_sources {
            match source {
                CountSource::AllSets(pmd) => {
                    all_sets.extend(self.counting_set_ids().map(|set| (set, *pmd)))
                }
                CountSource::OneSet(set, pmd) => {
                    one_set.push((set + self.first_counting_set_id(), *pmd))
                }
            }
        }
        let values = context.read_set_pmds(&all_sets)?;
        let mut values_by_pmd = values.chunks(usize::from(self.nr_sets));
        let runs = context.read_sums_over_set_runs(&one_set)?;
        let mut runs = runs.iter();
        let sums = |source: &CountSource| match source {
            CountSource::AllSets(_) => {
                let sets = values_by_pmd.next().unwrap_or(&[]);
                let value = sets.iter().fold(0, |all: u64, v| all.wrapping_add(v.value));
                CountSums::from_unmultiplexed_count(value).with_missing_count_causes(
                    match sets.iter().any(|v| v.lacks_counts) {
                        true => MissingCountCauses::UNKNOWN_REASON,
                        false => MissingCountCauses::NONE,
                    },
                )
            }
            CountSource::OneSet(..) => runs.next().map(CountSums::from_runs).unwrap_or_default(),
        };
        let sums: Vec<CountSums> = self.count_sources.iter().map(sums).collect();
        if union_of_causes(&sums).is_empty() {
            return Ok(sums);
        }
        let status_causes = MissingCountCauses::from_status(&context.status()?);
        let with_causes = |sum: &CountSums| match sum.missing_count_causes.is_empty() {
            true => *sum,
            false => sum.with_missing_count_causes(status_causes),
        };
        Ok(sums.iter().map(with_causes).collect())
    }

    /// Creates a context, attaches the context to the thread or CPU `target`, and detaches the
    /// context again. Returns an error if the context cannot be created or attached.
    pub fn check_can_attach(&self, target: u32) -> io::Result<()> {
        self.run_on_target(target, || {
            let context = self.create_context()?;
            context.load(target)?;
            context.unload()
        })
    }

    fn run_on_target<T>(&self, target: u32, work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        call_on_target_cpu(self.scope, target, work)
    }
}

/// A context that is attached to a thread or CPU, or that was attached and has ended.
struct AttachedContext {
    context: Context,
    /// The causes of missing counts that the messages of the context have named. `None` as long as
    /// the context has not ended.
    end_causes: Option<MissingCountCauses>,
}

impl From<Context> for AttachedContext {
    fn from(context: Context) -> Self {
        Self {
            context,
            end_causes: None,
        }
    }
}

impl AttachedContext {
    /// Reads the messages of the context and returns the causes that the messages name. The
    /// contexts of `pfc stat` request no messages about overflows, so each message says why the
    /// context has ended.
    fn read_end_causes(&mut self, scope: Scope) -> io::Result<MissingCountCauses> {
        while let Some(message) = self.context.try_read_message()? {
            let causes = self.end_causes.unwrap_or_default();
            let new = MissingCountCauses::from_message(message, scope);
            self.end_causes = Some(causes.union_preferring_known(new));
        }
        Ok(self.end_causes.unwrap_or_default())
    }
}

/// The contexts of a run by thread ID or CPU number, and the sums of the contexts that were closed.
pub struct CountingContexts {
    config: CountingContextConfig,
    contexts: BTreeMap<u32, AttachedContext>,
    sums_of_closed_contexts: Vec<CountSums>,
    /// The event set with which the next context starts.
    next_start_set: u16,
    /// Number of threads that could not be counted.
    pub nr_uncounted_threads: usize,
    /// The error of the first thread that could not be counted.
    pub first_thread_error: Option<io::Error>,
    /// Threads and CPUs for which counts are missing.
    pub incomplete_targets: IncompleteTargets,
    /// The throttling of the contexts that were closed.
    throttling_of_closed_contexts: Throttling,
    /// The counted CPUs; `None` if threads are counted.
    pub monitored_cpus: Option<MonitoredCpus>,
    /// The CPUs that could not be counted again after they had come online, with the error.
    pub restart_errors_by_cpu: BTreeMap<u32, io::Error>,
}

impl CountingContexts {
    pub fn new(config: CountingContextConfig) -> Self {
        Self {
            sums_of_closed_contexts: vec![CountSums::default(); config.count_sources.len()],
            next_start_set: 0,
            contexts: BTreeMap::new(),
            config,
            nr_uncounted_threads: 0,
            first_thread_error: None,
            incomplete_targets: IncompleteTargets::default(),
            throttling_of_closed_contexts: Throttling::default(),
            monitored_cpus: None,
            restart_errors_by_cpu: BTreeMap::new(),
        }
    }

    /// Attaches a context to each of the CPUs. A CPU that goes offline is counted again when it
    /// comes back online. If `counts_all` is true, a CPU that is not in `cpus` is counted from the
    /// time when it comes online.
    pub fn attach_contexts_to_cpus(
        &mut self,
        cpus: &[u32],
        counts_all: bool,
    ) -> Result<(), (u32, io::Error)> {
        let mut monitored = MonitoredCpus::new(cpus, counts_all);
        for cpu in cpus {
            match self.attach_context(*cpu) {
                Err(_) if !cpu_may_be_online(*cpu) => monitored.mark_detached(*cpu),
                done => done.map_err(|e| (*cpu, e))?,
            }
        }
        if !self.config.is_empty() {
            self.monitored_cpus = Some(monitored);
        }
        Ok(())
    }

    /// Returns the descriptors that become readable when a context has ended.
    pub fn running_context_fds(&self) -> Vec<BorrowedFd<'_>> {
        let contexts = self.contexts.values();
        let running = contexts.filter(|attached| attached.end_causes.is_none());
        running.map(|attached| attached.context.as_fd()).collect()
    }

    /// Returns true if all contexts have ended, or if there are no contexts. The context of a
    /// thread ends at the latest when the thread exits.
    pub fn have_all_contexts_ended(&self) -> bool {
        let mut contexts = self.contexts.values();
        contexts.all(|attached| attached.end_causes.is_some())
    }

    /// Returns true if the thread has no context, or its context has ended because the thread has
    /// exited.
    pub fn has_thread_exited(&self, thread: u32) -> bool {
        let context = self.contexts.get(&thread);
        !self.config.is_empty()
            && context.is_none_or(|attached| attached.end_causes.is_some())
            && !self.incomplete_targets.has_target_ended_early(thread)
    }

    /// Returns the time of the next call of [`Self::update_contexts`]; `None` for threads.
    pub fn next_cpu_check_at(&self) -> Option<Instant> {
        self.monitored_cpus
            .as_ref()
            .map(MonitoredCpus::next_online_check)
    }

    /// Reads which contexts have ended. Closes the contexts of CPUs that are offline, and attaches
    /// contexts to CPUs that are online again.
    pub fn update_contexts(&mut self) -> io::Result<()> {
        self.handle_context_messages()?;
        let online = match &mut self.monitored_cpus {
            Some(cpus) => cpus.find_cpus_to_attach(),
            None => return Ok(()),
        };
        for cpu in online {
            let started = self
                .attach_context(cpu)
                .and_then(|()| self.start_context(cpu));
            match (started, &mut self.monitored_cpus) {
                (Ok(()), Some(cpus)) => {
                    cpus.mark_attached(cpu);
                    self.restart_errors_by_cpu.remove(&cpu);
                }
                // The CPU may have gone offline before the context was attached. The next call of
                // update_contexts() tries again to attach a context.
                (Err(error), _) => {
                    self.contexts.remove(&cpu);
                    if cpu_may_be_online(cpu) {
                        self.restart_errors_by_cpu.insert(cpu, error);
                    }
                }
                (Ok(()), None) => {}
            }
        }
        Ok(())
    }

    /// Returns the gaps since the last call: the times in which CPUs were not counted.
    pub fn take_uncounted_gaps(&mut self) -> Vec<MonitoringGap> {
        self.monitored_cpus
            .as_mut()
            .map_or(Vec::new(), MonitoredCpus::take_gaps)
    }

    /// Adds the counts of an offline CPU to the sums, and closes the context of the CPU.
    fn close_offline_cpu_context(&mut self, cpu: u32) -> io::Result<()> {
        if let (Some(attached), Some(cpus)) = (self.contexts.remove(&cpu), &mut self.monitored_cpus)
        {
            cpus.mark_detached(cpu);
            let values = self
                .config
                .run_on_target(cpu, || self.config.read_context_sums(&attached.context))?;
            // For an ended context, the kernel sets PERFMON_REGFL_SHORT, which says that counts are
            // missing, but not why. Remove this mark, `MissingCountCauses::UNKNOWN_REASON`, from
            // the sums of an offline CPU: the reason is known, and later intervals are complete
            // again.
            let values: Vec<CountSums> = values
                .iter()
                .map(CountSums::without_unknown_reason)
                .collect();
            self.incomplete_targets.add(cpu, union_of_causes(&values));
            add_sums(&mut self.sums_of_closed_contexts, &values);
            if self.config.cascade_threshold.is_some() {
                self.throttling_of_closed_contexts
                    .add(&attached.context.status()?);
            }
        }
        Ok(())
    }

    /// Creates a context and attaches the context to a thread or CPU, without starting the context.
    pub fn attach_context(&mut self, target: u32) -> io::Result<()> {
        if self.config.is_empty() {
            return Ok(());
        }
        let context = self.config.run_on_target(target, || {
            let context = self.config.create_context()?;
            context.load_with_active_set(target, self.next_start_set)?;
            Ok(context)
        })?;
        // Each context starts with the event set that follows the start set of the previous
        // context. In the first moments of different threads, different events are therefore
        // counted.
        if self.config.cascade_threshold.is_none() {
            self.next_start_set = (self.next_start_set + 1) % self.config.nr_sets;
        }
        self.contexts.insert(target, context.into());
        Ok(())
    }

    fn start_context(&self, target: u32) -> io::Result<()> {
        match self.contexts.get(&target) {
            Some(attached) => self
                .config
                .run_on_target(target, || attached.context.start()),
            None => Ok(()),
        }
    }

    /// Starts all contexts. The context of a thread that has exited is not started.
    pub fn start(&self) -> io::Result<()> {
        for target in self.contexts.keys() {
            match self.start_context(*target) {
                Err(e) if is_esrch(&e) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Stops all contexts.
    pub fn stop(&self) {
        for (target, attached) in &self.contexts {
            // A context that has ended does not count, so the error of stopping an ended context is
            // ignored.
            let _ = self
                .config
                .run_on_target(*target, || attached.context.stop());
        }
    }

    /// Returns the sums of all contexts so far, in the order of the configuration's sources.
    pub fn read_sums(&mut self) -> io::Result<Vec<CountSums>> {
        self.handle_context_messages()?;
        let mut sums = self.sums_of_closed_contexts.clone();
        for (target, attached) in &self.contexts {
            let values = self
                .config
                .run_on_target(*target, || self.config.read_context_sums(&attached.context))?;
            self.incomplete_targets
                .add(*target, union_of_causes(&values));
            add_sums(&mut sums, &values);
        }
        // The messages of the contexts are read after the values, so that the returned sums have
        // the causes of all contexts that ended before their values were read.
        let mut early_causes = self.handle_context_messages()?;
        if self
            .monitored_cpus
            .as_ref()
            .is_some_and(MonitoredCpus::has_unreported_gap)
        {
            early_causes = early_causes.union_preferring_known(MissingCountCauses::CPU_OFFLINE);
        }
        Ok(sums
            .into_iter()
            .map(|sum| sum.with_missing_count_causes(early_causes))
            .collect())
    }

    /// Reads the messages of all contexts, and closes the contexts of offline CPUs. Returns all
    /// causes of missing counts that the messages of the other contexts have named.
    fn handle_context_messages(&mut self) -> io::Result<MissingCountCauses> {
        let running = self
            .contexts
            .values()
            .filter(|attached| attached.end_causes.is_none());
        let mut fds: Vec<PollFd<'_>> = running
            .map(|attached| PollFd::new(&attached.context, PollFlags::IN))
            .collect();
        let nr_ready = retry_on_intr(|| poll(&mut fds, Some(&Timespec::default())))?;
        if nr_ready > 0 {
            let mut offline = Vec::new();
            for (target, attached) in &mut self.contexts {
                let causes = attached.read_end_causes(self.config.scope)?;
                self.incomplete_targets.add(*target, causes);
                if causes.intersects(MissingCountCauses::CPU_OFFLINE) {
                    offline.push(*target);
                }
            }
            for cpu in offline {
                self.close_offline_cpu_context(cpu)?;
            }
        }
        let contexts = self.contexts.values();
        let ended = contexts.filter_map(|attached| attached.end_causes);
        Ok(ended.fold(
            MissingCountCauses::NONE,
            MissingCountCauses::union_preferring_known,
        ))
    }

    /// Returns the throttling of all contexts of the run, added up. Only contexts with a threshold
    /// can be throttled, because other contexts request no overflows.
    pub fn read_total_throttling(&self) -> io::Result<Throttling> {
        let mut total = self.throttling_of_closed_contexts;
        if self.config.cascade_threshold.is_some() {
            for attached in self.contexts.values() {
                total.add(&attached.context.status()?);
            }
        }
        Ok(total)
    }
}

impl FollowedThreadHandler for CountingContexts {
    const STOP_THREADS_AT_EXIT: bool = false;

    fn create_context(&self) -> io::Result<Option<Context>> {
        match self.config.is_empty() {
            true => Ok(None),
            false => self.config.create_context().map(Some),
        }
    }

    fn insert_attached_context(&mut self, thread: u32, context: Context) -> io::Result<()> {
        self.contexts.insert(thread, context.into());
        Ok(())
    }

    fn attach_to_new_thread(&mut self, thread: u32) {
        let started = self
            .attach_context(thread)
            .and_then(|()| self.start_context(thread));
        if let Err(error) = started {
            self.contexts.remove(&thread);
            self.nr_uncounted_threads += 1;
            self.first_thread_error.get_or_insert(error);
        }
    }

    fn on_thread_executed(&mut self, former_tid: u32, tid: u32) -> io::Result<()> {
        if former_tid != tid {
            self.on_thread_exited(tid)?;
            if let Some(context) = self.contexts.remove(&former_tid) {
                self.contexts.insert(tid, context);
            }
        }
        Ok(())
    }

    /// Adds the counts of a thread that has exited to the sums, and closes the context of the
    /// thread.
    fn on_thread_exited(&mut self, thread: u32) -> io::Result<()> {
        if let Some(mut attached) = self.contexts.remove(&thread) {
            let values = self.config.read_context_sums(&attached.context)?;
            let early_causes = attached.read_end_causes(self.config.scope)?;
            let values: Vec<CountSums> = values
                .iter()
                .map(|sum| sum.with_missing_count_causes(early_causes))
                .collect();
            self.incomplete_targets
                .add(thread, union_of_causes(&values));
            add_sums(&mut self.sums_of_closed_contexts, &values);
            if self.config.cascade_threshold.is_some() {
                self.throttling_of_closed_contexts
                    .add(&attached.context.status()?);
            }
        }
        Ok(())
    }
}
