// SPDX-License-Identifier: GPL-2.0

//! Collects records of processes, which each output file contains in addition to the samples: the
//! names of the processes and their executable mappings.
//!
//! Names and mappings that exist when the recording starts are read from /proc. The kernel's
//! records (`task_events.rs`) describe all changes after the start of the recording.
//!
//! If the kernel refuses perf_event_open(2), pfc also reads /proc during the recording:
//!
//! - At each exec, and when a traced thread starts or exits, pfc reads names and mappings.
//! - If the address of a sample is in no known mapping of its process, pfc reads the mappings.
//! - After the samples of a process were read, pfc checks the process for a new name or program, and
//!   reads its mappings again.
//! - Before a file is completed, pfc reads the names of all threads of known processes. Processes
//!   whose samples are newer than their last check are checked again.
//!
//! While pfc handles samples, it reads the mappings of each process at most once in 50 ms, and
//! checks the name and program of each process at most once in 50 ms. `mappings.rs` describes which
//! times mappings get in the records. `limit.rs` limits the size of the records that are kept for the
//! next file.

mod limit;
mod mappings;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use perfmon::ring::Sample;

use super::kernel_maps::encode_kernel_mappings;
use super::task_events::PerfTaskEvents;
use crate::data::record::ExecutableMapping;
use crate::data::{RecordEncoder, SampleId, LOWEST_KERNEL_ADDRESS};
use crate::stat::monitored_processes::read_pid_and_parent_pid;
pub use limit::{DiscardedRecords, MAX_KEPT_RECORD_BYTES};
pub use mappings::BuildIdsByFile;

/// The minimum time between two reads of a process's mappings, and between two checks of its name
/// and program.
const MIN_PROC_READ_INTERVAL: Duration = Duration::from_millis(50);

/// The minimum ratio of the time between two reads of a process's mappings to the time that a read
/// takes. Reading the thousands of mappings of a large process takes milliseconds.
const MIN_READ_INTERVAL_PER_READ_TIME: u32 = 20;

/// The time for which a process is kept after the last read of its mappings, even if it has ended:
/// samples of an ended process are still expected.
const KEEP_TIME_AFTER_MAPPINGS_READ: Duration = Duration::from_secs(5);
const MIN_KNOWN_PROCESSES_TO_REAP: usize = 1024;

struct KnownProcess {
    /// The process name, which can contain any bytes except NUL. The kernel cuts a name after 15
    /// bytes, even in the middle of a UTF-8 character.
    name: Vec<u8>,
    /// The time of the process's exec or fork, or the time when the process was first seen, in
    /// nanoseconds of CLOCK_MONOTONIC.
    known_since_ns: u64,
    regions_by_start: BTreeMap<u64, ExecutableMapping>,
    /// The name and the start time of each thread except the thread-group leader.
    non_leader_threads: BTreeMap<u32, (Vec<u8>, u64)>,
    /// The time of the last read of the mappings, in nanoseconds of CLOCK_MONOTONIC, and the time
    /// that this read took. `None` if the mappings were not read yet.
    last_mappings_read: Option<(u64, Duration)>,
    /// The device and inode of the process's executable. `exe_checked_at` is the time of the last
    /// check of the process name and the executable.
    exe_file_id: Option<(u64, u64)>,
    exe_checked_at: Instant,
}

impl KnownProcess {
    fn new(name: Vec<u8>, known_since_ns: u64) -> Self {
        Self {
            name,
            known_since_ns,
            regions_by_start: BTreeMap::new(),
            non_leader_threads: BTreeMap::new(),
            last_mappings_read: None,
            exe_file_id: None,
            exe_checked_at: Instant::now(),
        }
    }

    /// Returns the time since the last read of the mappings; `None` if there was no read.
    fn time_since_mappings_read(&self) -> Option<Duration> {
        let (at, _) = self.last_mappings_read?;
        Some(Duration::from_nanos(monotonic_now_ns().saturating_sub(at)))
    }

    /// Returns true if the last read of the mappings was long enough ago for another read.
    fn may_read_mappings(&self) -> bool {
        let read_time = self
            .last_mappings_read
            .map_or(Duration::ZERO, |(_, time)| time);
        let interval = MIN_PROC_READ_INTERVAL.max(read_time * MIN_READ_INTERVAL_PER_READ_TIME);
        self.time_since_mappings_read()
            .is_none_or(|age| age >= interval)
    }

    fn find_region(&self, address: u64) -> Option<&ExecutableMapping> {
        let (_, region) = self.regions_by_start.range(..=address).next_back()?;
        (address < region.end).then_some(region)
    }
}

/// A position in the records that [`ProcessRecorder`] has collected.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessRecordPosition {
    /// The value of [`ProcessRecorder::nr_record_replacements`] for which `byte_offset` is valid.
    nr_record_replacements: u64,
    byte_offset: usize,
}

/// All known processes, and the records of these processes.
pub struct ProcessRecorder {
    processes: BTreeMap<u32, KnownProcess>,
    /// The records that were collected and have not been taken by [`Self::take_new_records`] yet.
    records: RecordEncoder,
    /// The maximum size of `records` in bytes after a call of [`Self::limit_kept_records`].
    max_record_bytes: usize,
    /// The number of times that the older half of the records was replaced.
    nr_record_replacements: u64,
    discarded_records: DiscardedRecords,
    /// True if the kernel's records describe all changes after the start of the recording.
    has_kernel_records: bool,
    /// Processes with samples that are newer than the last check of their executable, name and
    /// mappings.
    pids_to_check: BTreeSet<u32>,
    /// The ID of the first event. All records contain this ID.
    event_id: u64,
    /// If the number of processes reaches this value, [`Self::forget_ended_if_many`] removes the
    /// processes that have ended.
    reap_threshold: usize,
}

/// Returns the time of CLOCK_MONOTONIC, in nanoseconds.
pub fn monotonic_now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec.unsigned_abs() * 1_000_000_000).wrapping_add(now.tv_nsec.unsigned_abs())
}

/// Returns the entries of a directory whose names are numbers.
pub fn list_numeric_entries(path: &str) -> Vec<u32> {
    let all = fs::read_dir(path).into_iter().flatten().flatten();
    all.filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect()
}

/// Returns the name in a `comm` file of /proc, without the newline that the kernel appends.
fn read_comm_file(path: &str) -> Option<Vec<u8>> {
    let mut name = fs::read(path).ok()?;
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    Some(name)
}

impl ProcessRecorder {
    /// Makes a `ProcessRecorder` whose records contain the event ID `id`. The first records are the
    /// mappings of the kernel.
    pub fn new(id: u64) -> Self {
        let mut this = Self {
            processes: BTreeMap::new(),
            records: RecordEncoder::default(),
            max_record_bytes: MAX_KEPT_RECORD_BYTES,
            nr_record_replacements: 0,
            discarded_records: DiscardedRecords::default(),
            has_kernel_records: false,
            pids_to_check: BTreeSet::new(),
            event_id: id,
            reap_threshold: MIN_KNOWN_PROCESSES_TO_REAP,
        };
        encode_kernel_mappings(&mut this.records, id);
        this
    }

    #[cfg(test)]
    fn record_bytes(&self) -> &[u8] {
        &self.records.bytes
    }

    /// Returns the records that were collected after `position`, and sets `position` to the end of
    /// the records. If older records have been replaced since `position` was set, returns all
    /// records.
    pub fn records_after_position(&self, position: &mut ProcessRecordPosition) -> &[u8] {
        let begin = match position.nr_record_replacements == self.nr_record_replacements {
            true => position.byte_offset,
            false => 0,
        };
        *position = ProcessRecordPosition {
            nr_record_replacements: self.nr_record_replacements,
            byte_offset: self.records.bytes.len(),
        };
        &self.records.bytes[begin..]
    }

    /// Takes the records that were added since the last call.
    pub fn take_new_records(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.records.bytes)
    }

    /// Removes processes that have ended, if the number of processes has reached `reap_threshold`.
    /// The new `reap_threshold` is twice the number of the remaining processes, but at least
    /// `MIN_KNOWN_PROCESSES_TO_REAP`.
    fn forget_ended_if_many(&mut self) {
        if self.processes.len() < self.reap_threshold {
            return;
        }
        self.processes.retain(|pid, process| {
            // The last samples of a process may still be in a ring after the process has ended.
            process
                .time_since_mappings_read()
                .is_some_and(|age| age < KEEP_TIME_AFTER_MAPPINGS_READ)
                || fs::exists(format!("/proc/{pid}")).unwrap_or(true)
        });
        self.reap_threshold = MIN_KNOWN_PROCESSES_TO_REAP.max(2 * self.processes.len());
    }

    /// Switches from /proc to the kernel's records. After this call, only
    /// [`Self::record_existing_process`] reads /proc.
    pub fn switch_to_kernel_records(&mut self) {
        self.has_kernel_records = true;
    }

    /// Moves the kernel's records out of the rings of `events`. The caller then calls
    /// [`Self::limit_kept_records`].
    pub fn drain_kernel_records(&mut self, events: &mut PerfTaskEvents) {
        events.drain_rings(&mut self.records, self.event_id);
    }

    /// Records the number of the kernel's records that were lost and that no record counts yet.
    pub fn record_remaining_losses(&mut self, events: &mut PerfTaskEvents) {
        events.record_remaining_losses(&mut self.records, self.event_id);
    }

    fn make_sample_id(&self, pid: u32, tid: u32, time: u64) -> SampleId {
        SampleId {
            pid,
            tid,
            time,
            cpu: 0,
            id: self.event_id,
        }
    }

    /// Records the names and the mappings of an existing process and its threads from /proc, with
    /// the time `time`.
    pub fn record_existing_process(&mut self, pid: u32, time: u64, build_ids: &mut BuildIdsByFile) {
        let Some(name) = read_comm_file(&format!("/proc/{pid}/comm")) else {
            return;
        };
        let sample_id = self.make_sample_id(pid, pid, time);
        self.records.encode_comm(&name, false, &sample_id);
        let mut process = KnownProcess::new(name, time);
        process.exe_file_id = read_exe_file_id(pid);
        self.processes.insert(pid, process);
        for tid in list_numeric_entries(&format!("/proc/{pid}/task")) {
            if tid != pid {
                self.record_changed_thread_name(pid, tid);
            }
        }
        self.record_new_mappings(pid, time, build_ids);
    }

    /// Reads the name of a thread other than the thread-group leader, and records a changed name.
    /// The record of a changed name gets the start time of the thread, because most threads are
    /// named soon after they start.
    fn record_changed_thread_name(&mut self, pid: u32, tid: u32) {
        let Some(name) = read_comm_file(&format!("/proc/{pid}/task/{tid}/comm")) else {
            return;
        };
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let known = process.non_leader_threads.get(&tid);
        let since = known.map_or(process.known_since_ns, |(_, since)| *since);
        if known.is_none_or(|(known, _)| *known != name) {
            process
                .non_leader_threads
                .insert(tid, (name.clone(), since));
            // The fork record gives the thread the name of its parent, so the name record must be
            // later.
            let sample_id = self.make_sample_id(pid, tid, since + 1);
            self.records.encode_comm(&name, false, &sample_id);
        }
    }

    /// Records that the process has called exec, with its new name and mappings.
    pub fn record_process_exec(&mut self, pid: u32, time: u64) {
        if self.has_kernel_records {
            return;
        }
        let name = read_comm_file(&format!("/proc/{pid}/comm")).unwrap_or_default();
        let sample_id = self.make_sample_id(pid, pid, time);
        self.records.encode_comm(&name, true, &sample_id);
        let mut process = KnownProcess::new(name, time);
        process.exe_file_id = read_exe_file_id(pid);
        self.processes.insert(pid, process);
        self.record_new_mappings(pid, time, &mut BuildIdsByFile::new());
    }

    /// Records an exec that the ring of a thread's context reports. `thread` is the thread's ID
    /// before the exec, which can differ from the process ID.
    pub fn record_exec_by_thread(&mut self, thread: u32, time: u64) {
        let mut all = self.processes.iter();
        let owner =
            all.find(|(pid, p)| **pid == thread || p.non_leader_threads.contains_key(&thread));
        let pid = owner.map_or(thread, |(pid, _)| *pid);
        self.record_process_exec(pid, time);
    }

    /// Records a new thread, which has not run yet.
    pub fn record_new_thread(&mut self, thread: u32, time: u64) {
        if self.has_kernel_records {
            return;
        }
        let Some((pid, parent)) = read_pid_and_parent_pid(thread) else {
            return;
        };
        let sample_id = self.make_sample_id(pid, thread, time);
        if pid != thread {
            self.records.encode_fork((pid, pid), &sample_id);
            if let Some(process) = self.processes.get_mut(&pid) {
                process
                    .non_leader_threads
                    .insert(thread, (process.name.clone(), time));
            }
            return;
        }
        self.records.encode_fork((parent, parent), &sample_id);
        // The new process has the mappings and the program of its parent until the new process
        // calls exec.
        let (known, regions, exe) = match self.processes.get(&parent) {
            Some(p) => (p.name.clone(), p.regions_by_start.clone(), p.exe_file_id),
            None => (Vec::new(), BTreeMap::new(), None),
        };
        // The parent may have changed its name after pfc read the name.
        let name = read_comm_file(&format!("/proc/{pid}/comm")).unwrap_or_else(|| known.clone());
        if name != known {
            let sample_id = self.make_sample_id(pid, pid, time + 1);
            self.records.encode_comm(&name, false, &sample_id);
        }
        let mut process = KnownProcess::new(name, time);
        (process.regions_by_start, process.exe_file_id) = (regions, exe);
        self.forget_ended_if_many();
        self.processes.insert(pid, process);
    }

    /// Records that a thread is about to exit. Before recording the exit, reads the thread's name,
    /// or for a thread-group leader the mappings of the process.
    pub fn record_thread_exit(&mut self, thread: u32, time: u64) {
        if self.has_kernel_records {
            return;
        }
        let Some((pid, parent)) = read_pid_and_parent_pid(thread) else {
            return;
        };
        match pid == thread {
            true => self.record_new_mappings(pid, time, &mut BuildIdsByFile::new()),
            false => self.record_changed_thread_name(pid, thread),
        }
        let parent = if pid == thread { parent } else { pid };
        let sample_id = self.make_sample_id(pid, thread, time);
        self.records.encode_exit((parent, parent), &sample_id);
        // The name of an exited thread does not change, and is in the records.
        if let Some(process) = self.processes.get_mut(&pid) {
            process.non_leader_threads.remove(&thread);
        }
    }

    /// Records the last changes of known processes before a file is completed, unless the kernel's
    /// records have all changes: the names of all threads, and the executable, name and mappings of
    /// processes whose samples are newer than their last check.
    pub fn record_changes_at_file_end(&mut self) {
        if self.has_kernel_records {
            return;
        }
        for pid in std::mem::take(&mut self.pids_to_check) {
            self.record_exec_or_new_name(pid, monotonic_now_ns());
            self.record_new_mappings(pid, monotonic_now_ns(), &mut BuildIdsByFile::new());
        }
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        for pid in pids {
            let tids = list_numeric_entries(&format!("/proc/{pid}/task"));
            let tids: BTreeSet<u32> = tids.into_iter().collect();
            for tid in &tids {
                if *tid != pid {
                    self.record_changed_thread_name(pid, *tid);
                }
            }
            // The names of threads that have exited are in the records.
            if let Some(process) = self.processes.get_mut(&pid) {
                process
                    .non_leader_threads
                    .retain(|tid, _| tids.contains(tid));
            }
        }
    }

    /// Records the process of a sample and the mapping of the sample's address, if they are not
    /// recorded yet.
    pub fn record_process_of_sample(&mut self, sample: &Sample) {
        let (pid, time) = (sample.pid, sample.time.saturating_sub(1));
        if self.has_kernel_records || matches!(pid, 0 | u32::MAX) {
            return;
        }
        let process = self.processes.get(&pid);
        let Some(process) = process else {
            self.forget_ended_if_many();
            self.record_existing_process(pid, time, &mut BuildIdsByFile::new());
            // A process that has ended gets an empty entry, so that its /proc directory is not read
            // again.
            let ended = || KnownProcess::new(Vec::new(), time);
            self.processes.entry(pid).or_insert_with(ended);
            return;
        };
        let is_known =
            sample.ip >= LOWEST_KERNEL_ADDRESS || process.find_region(sample.ip).is_some();
        let may_read_mappings = process.may_read_mappings();
        self.pids_to_check.insert(pid);
        if !is_known && may_read_mappings {
            self.record_new_mappings(pid, time, &mut BuildIdsByFile::new());
        }
    }

    /// Checks the name and the executable of each process in `pids_to_check`, to detect an exec
    /// that no ring has reported, and reads its mappings, to detect a library that was loaded at
    /// the address of another one. The caller has read a ring to its end, so every exec that the
    /// ring reports is already recorded. A process that was checked just before is checked at the
    /// next call.
    pub fn check_sampled_processes(&mut self) {
        for pid in std::mem::take(&mut self.pids_to_check) {
            let Some(process) = self.processes.get(&pid) else {
                continue;
            };
            let may_read_mappings = process.may_read_mappings();
            if may_read_mappings || process.exe_checked_at.elapsed() >= MIN_PROC_READ_INTERVAL {
                self.record_exec_or_new_name(pid, monotonic_now_ns());
            }
            if may_read_mappings {
                self.record_new_mappings(pid, monotonic_now_ns(), &mut BuildIdsByFile::new());
            } else {
                self.pids_to_check.insert(pid);
            }
        }
    }

    /// Records an exec or a new name, if the process has changed since its last check.
    fn record_exec_or_new_name(&mut self, pid: u32, time: u64) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.exe_checked_at = Instant::now();
        let Some(name) = read_comm_file(&format!("/proc/{pid}/comm")) else {
            return;
        };
        let exe = read_exe_file_id(pid);
        if exe.is_some() && exe != process.exe_file_id {
            self.record_process_exec(pid, time);
        } else if name != process.name {
            process.name.clone_from(&name);
            let sample_id = self.make_sample_id(pid, pid, time);
            self.records.encode_comm(&name, false, &sample_id);
        }
    }
}

/// Returns the device and inode of a process's executable.
fn read_exe_file_id(pid: u32) -> Option<(u64, u64)> {
    let file = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::fixtures::sample;

    #[test]
    fn r1_9_known_process_is_recorded_once() {
        let mut tasks = ProcessRecorder::new(1);
        let pid = std::process::id();
        let sample = |ip| sample(pid, 100, ip);
        let here = r1_9_known_process_is_recorded_once as *const () as u64;
        tasks.record_process_of_sample(&sample(here));
        let records = tasks.record_bytes().len();
        assert!(tasks.processes[&pid].find_region(here).is_some());
        assert_eq!(tasks.processes[&pid].known_since_ns, 99);
        tasks.record_process_of_sample(&sample(here));
        tasks.record_process_of_sample(&sample(u64::MAX - 8192));
        // The mappings of the process were read less than 50 ms ago, so they are not read again.
        tasks.record_process_of_sample(&sample(1));
        assert_eq!(tasks.record_bytes().len(), records);
    }

    #[test]
    fn r1_9_exited_threads_are_forgotten() {
        let (pid, own) = (std::process::id(), rustix::thread::gettid());
        let own = own.as_raw_nonzero().get().unsigned_abs();
        assert_ne!(own, pid, "a test runs in a thread of its own");
        let mut tasks = ProcessRecorder::new(1);
        tasks.record_existing_process(pid, 1, &mut BuildIdsByFile::new());
        let threads = |tasks: &ProcessRecorder| {
            let threads = tasks.processes[&pid].non_leader_threads.keys();
            threads.copied().collect::<BTreeSet<u32>>()
        };
        assert!(threads(&tasks).contains(&own));
        tasks.record_thread_exit(own, 2);
        assert!(!threads(&tasks).contains(&own));
        // No thread has this ID.
        let exited = (u32::MAX - 1, (b"exited".to_vec(), 3));
        let process = tasks.processes.get_mut(&pid).expect("this process");
        process.non_leader_threads.extend([exited]);
        tasks.record_changes_at_file_end();
        assert!(!threads(&tasks).contains(&(u32::MAX - 1)));
        assert!(threads(&tasks).contains(&own));
    }
}
