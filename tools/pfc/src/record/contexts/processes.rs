// SPDX-License-Identifier: GPL-2.0

//! Tracks the names and the mappings of the sampled processes: from the kernel's records, or from
//! /proc if the kernel refuses to open perf events.

use std::io;

use perfmon::Scope;

use super::SamplingContexts;
use crate::data::record::count_samples_until;
use crate::data::SampleId;
use crate::limits;
use crate::profile::{describe_lost_process_records, MISSING_PROCESS_RECORDS_CONSEQUENCE};
use crate::record::task_events::PerfTaskEvents;
use crate::record::tasks::{
    list_numeric_entries, monotonic_now_ns, BuildIdsByFile, MAX_KEPT_RECORD_BYTES,
};
use crate::stat::monitored_processes::read_process_id_of_thread;
use crate::units::format_byte_size;

impl SamplingContexts {
    /// Opens perf events with which the kernel records changes of the names and mappings of
    /// processes: the processes that contain `threads`, or all processes if `threads` is `None`.
    /// Reads the names and mappings of existing processes from /proc. If the kernel refuses to open
    /// the perf events, /proc is also read during the recording.
    pub fn start_process_tracking(&mut self, threads: Option<&[u32]>) {
        // All records from /proc get a time before the perf events are opened. If a process changes
        // while /proc is read, the kernel's record of the change is later and has precedence.
        let time = monotonic_now_ns();
        let processes = threads.map(read_distinct_pids_of_threads);
        self.open_perf_task_events(processes.as_deref());
        self.record_existing_processes(
            processes.unwrap_or_else(|| list_numeric_entries("/proc")),
            time,
        );
    }

    /// Records the names and mappings of processes from /proc, with the time `time`.
    pub(super) fn record_existing_processes(&mut self, processes: Vec<u32>, time: u64) {
        let mut build_ids = BuildIdsByFile::new();
        for pid in processes {
            self.process_recorder
                .record_existing_process(pid, time, &mut build_ids);
        }
    }

    /// Opens perf events for the kernel's records of the given processes, or of all processes.
    /// Returns false if the kernel refuses to open the events.
    pub(super) fn open_perf_task_events(&mut self, processes: Option<&[u32]>) -> bool {
        let events = match processes {
            None => PerfTaskEvents::open_for_all_tasks(),
            Some(processes) => {
                PerfTaskEvents::open_for_threads_or_all_tasks(|| list_threads(processes))
            }
        };
        let scope = self.config.scope;
        let error = events.as_ref().err();
        self.unopened_events_problem = error.and_then(|e| describe_unopened_events(e, scope));
        self.perf_task_events = events.ok();
        let is_open = self.perf_task_events.is_some();
        if is_open {
            self.process_recorder.switch_to_kernel_records();
        }
        is_open
    }

    /// Reads the kernel's records of processes, and limits the size of all records of processes.
    /// Called after samples are read and before the samples are written: for each written sample,
    /// all earlier records of processes must have been read.
    pub(super) fn drain_perf_task_events(&mut self) {
        if let Some(events) = &mut self.perf_task_events {
            self.process_recorder.drain_kernel_records(events);
        }
        // Records that were read from /proc are limited, too.
        self.process_recorder.limit_kept_records();
    }

    /// Returns the number of the samples in [`SamplingContexts::drained_records`] that are older
    /// than discarded records of processes, with a warning. If there are such samples, writes the
    /// number of discarded records to the file, as lost records of processes.
    pub fn report_discarded_process_records(&mut self) -> Option<String> {
        let discarded = self.process_recorder.discarded_records();
        let drained = &mut self.drained_records.records;
        let nr_samples = count_samples_until(&drained.bytes, discarded.until_ns);
        if discarded.nr_records == 0 || nr_samples == 0 {
            return None;
        }
        let sample_id = SampleId {
            time: discarded.until_ns,
            id: self.config.sampling_pmds.first().map_or(0, |s| s.event_id),
            ..SampleId::default()
        };
        drained.encode_lost_process_records(discarded.nr_records, &sample_id);
        Some(format!(
            "{nr_samples} samples may have no names: they are older than {} records of processes that were discarded, because more than {} of records were kept",
            discarded.nr_records,
            format_byte_size(MAX_KEPT_RECORD_BYTES as u64),
        ))
    }

    /// Opens perf events on the CPUs that have come online since the last check.
    pub(super) fn open_events_on_newly_online_cpus(&mut self) {
        if let Some(events) = &mut self.perf_task_events {
            let cpus = events.find_cpus_needing_events();
            self.restart_tracking_on_cpus(&cpus);
        }
    }

    /// Opens perf events on CPUs that have come online, and reads all names and mappings from
    /// /proc. Changes of processes that ran on such a CPU before the events were open have left no
    /// records.
    pub(super) fn restart_tracking_on_cpus(&mut self, cpus: &[u32]) {
        if cpus.is_empty() {
            return;
        }
        // The ring of an event that has ended is dropped, so it is read first.
        self.drain_perf_task_events();
        let time = monotonic_now_ns();
        let processes = match self.config.scope {
            Scope::System => list_numeric_entries("/proc"),
            Scope::Thread => {
                let threads: Vec<u32> = self.contexts_by_target.keys().copied().collect();
                read_distinct_pids_of_threads(&threads)
            }
        };
        if let Some(events) = &mut self.perf_task_events {
            for cpu in cpus {
                events.reopen_on_cpu(*cpu, || list_threads(&processes));
            }
        }
        self.record_existing_processes(processes, time);
    }

    /// Returns warnings about changes of processes for which the kernel's records are missing, and
    /// about perf events that could not be opened.
    pub(super) fn find_process_record_problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.unopened_events_problem.iter().cloned().collect();
        let consequence = MISSING_PROCESS_RECORDS_CONSEQUENCE;
        if let Some(events) = &self.perf_task_events {
            if let lost @ 1.. = events.nr_lost_in_output() {
                problems.push(describe_lost_process_records(lost));
            }
            for (cpu, error) in &events.reopen_errors_by_cpu {
                let advice = limits::advice_on_resource_error(error);
                problems.push(format!("perf events cannot be opened on CPU {cpu}, which has come online: {error}: {consequence}{advice}"));
            }
        }
        problems
    }
}

/// Returns a warning that perf events could not be opened, with the consequence for the user.
///
/// If threads are sampled, returns `None` unless file descriptors ran out, because the ring of a
/// sampled thread also reports the execs of the thread. The ring of a CPU does not report execs.
fn describe_unopened_events(error: &io::Error, scope: Scope) -> Option<String> {
    let errno = error.raw_os_error();
    if scope == Scope::Thread && !matches!(errno, Some(libc::EMFILE | libc::ENFILE)) {
        return None;
    }
    let consequence = match scope {
        Scope::Thread => "",
        Scope::System => "; for up to 100 ms after an exec, samples may have names of the program before the exec",
    };
    let advice = match errno {
        Some(libc::EACCES | libc::EPERM) => "; perf_event_open(2) needs CAP_PERFMON, or a sysctl kernel.perf_event_paranoid of 0 or less; a container may forbid it".to_owned(),
        _ => limits::advice_on_resource_error(error),
    };
    Some(format!("names are read from /proc, because perf events cannot be opened: {error}{consequence}{advice}"))
}

/// Returns the process IDs of the given threads, without duplicates.
fn read_distinct_pids_of_threads(threads: &[u32]) -> Vec<u32> {
    let mut processes: Vec<u32> = threads
        .iter()
        .map(|t| read_process_id_of_thread(*t))
        .collect();
    processes.sort_unstable();
    processes.dedup();
    processes
}

/// Returns the IDs of all threads of the given processes.
fn list_threads(processes: &[u32]) -> Vec<u32> {
    let threads = |pid| list_numeric_entries(&format!("/proc/{pid}/task"));
    processes.iter().flat_map(threads).collect()
}

#[cfg(test)]
mod tests {
    use perfmon::ring::RingArgument;

    use super::*;
    use crate::data::fixtures::sample;
    use crate::data::record::sum_of_lost_process_records;
    use crate::record::contexts::SamplingContextConfig;
    use crate::record::tasks::ProcessRecordPosition;

    /// Returns the contexts of a flight recorder whose records of processes come from /proc.
    fn contexts_without_perf_events() -> SamplingContexts {
        let config = SamplingContextConfig {
            scope: Scope::Thread,
            sampling_format_name: "flight-recorder",
            format_argument: RingArgument::new(1 << 12),
            pmc_values: Vec::new(),
            sampling_pmds: Vec::new(),
        };
        SamplingContexts::new(config, true, false)
    }

    fn nr_record_bytes(contexts: &SamplingContexts) -> usize {
        let mut start = ProcessRecordPosition::default();
        let records = contexts.process_recorder.records_after_position(&mut start);
        records.len()
    }

    #[test]
    fn r1_9_process_records_of_a_flight_recorder_without_perf_events_are_limited() {
        let mut contexts = contexts_without_perf_events();
        contexts.process_recorder.exceed_max_record_bytes(1);
        assert!(nr_record_bytes(&contexts) > MAX_KEPT_RECORD_BYTES);
        contexts.read_rings_and_update_contexts();
        assert!(nr_record_bytes(&contexts) <= MAX_KEPT_RECORD_BYTES);
    }

    #[test]
    fn r1_9_samples_older_than_discarded_process_records_are_counted() {
        let mut contexts = contexts_without_perf_events();
        assert_eq!(contexts.report_discarded_process_records(), None);
        contexts.process_recorder.exceed_max_record_bytes(1);
        contexts.drain_perf_task_events();
        let discarded = contexts.process_recorder.discarded_records();
        let add_sample = |contexts: &mut SamplingContexts, time| {
            let sample = sample(7, time, 0x1000);
            contexts.drained_records.records.encode_sample(&sample, 1);
        };
        add_sample(&mut contexts, discarded.until_ns + 1);
        assert_eq!(contexts.report_discarded_process_records(), None);
        add_sample(&mut contexts, discarded.until_ns);
        let warning = contexts.report_discarded_process_records();
        let expected = format!("1 samples may have no names: they are older than {} records of processes that were discarded, because more than 64 MiB of records were kept", discarded.nr_records);
        assert_eq!(warning, Some(expected));
        let bytes = &contexts.drained_records.records.bytes;
        assert_eq!(sum_of_lost_process_records(bytes), discarded.nr_records);
    }
}
