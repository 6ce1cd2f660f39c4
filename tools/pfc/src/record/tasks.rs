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
//! - After the samples of a process were read, pfc checks the process for a new name or program.
//! - Before a file is completed, pfc reads the names of all threads of known processes.
//!
//! While pfc handles samples, it reads the mappings of each process at most once in 50 ms, and
//! checks the name and program of each process at most once in 50 ms. A mapping that is read after
//! the exec of its process is recorded as if it had existed since the exec, because libraries are
//! mapped soon after the exec.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use perfmon::ring::Sample;

use super::kernel_maps::encode_kernel_maps;
use super::maps::parse_maps_line;
use super::task_events::TaskEvents;
use crate::data::record::Region;
use crate::data::{middle_time, started_processes, take_until, Encoder, SampleId, KERNEL_START};
use crate::profile::{build_id, candidate_paths, is_same_file, open_regular};
use crate::text_file;

/// The minimum time between two reads of a process's mappings, and between two checks of its name
/// and program.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(50);

/// The maximum size in bytes of the records of processes that a flight recorder or --switch-output
/// keeps for the next file.
const MAX_RECORD_BYTES: usize = 64 << 20;

/// The time for which samples of an ended process are still expected, measured from the last read
/// of the process's mappings.
const MAX_SAMPLE_DELAY: Duration = Duration::from_secs(5);
const MIN_REAP_SIZE: usize = 1024;

struct Process {
    /// The process name, in any bytes but NUL: the kernel cuts a name after 15 bytes, even in the
    /// middle of a UTF-8 character.
    name: Vec<u8>,
    /// The time of the process's exec or fork, or the time when the process was first seen, in
    /// nanoseconds of CLOCK_MONOTONIC.
    start_time: u64,
    regions: BTreeMap<u64, Region>,
    /// The name and the start time of each thread except the thread-group leader.
    threads: BTreeMap<u32, (Vec<u8>, u64)>,
    maps_read_at: Option<Instant>,
    /// The device and inode of the process's executable. `checked_at` is the time of the last check
    /// of the process name and the executable.
    exe: Option<(u64, u64)>,
    checked_at: Instant,
}

impl Process {
    fn new(name: Vec<u8>, start_time: u64) -> Self {
        Self {
            name,
            start_time,
            regions: BTreeMap::new(),
            threads: BTreeMap::new(),
            maps_read_at: None,
            exe: None,
            checked_at: Instant::now(),
        }
    }

    fn find_region(&self, address: u64) -> Option<&Region> {
        let (_, region) = self.regions.range(..=address).next_back()?;
        (address < region.end).then_some(region)
    }
}

/// Build IDs by the device and inode of their file. A file that several processes have mapped is
/// read only once.
pub type BuildIds = HashMap<((u32, u32), u64), Vec<u8>>;

/// A position in the records that [`Tasks`] has collected.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskPosition {
    /// The value of [`Tasks::nr_shrinks`] for which `bytes` is valid.
    nr_shrinks: u64,
    bytes: usize,
}

/// All known processes, and the records of these processes.
pub struct Tasks {
    processes: BTreeMap<u32, Process>,
    /// The records that were collected and have not been taken by [`Self::take_records`] yet.
    records: Encoder,
    /// The number of calls of [`Self::shrink_records`].
    nr_shrinks: u64,
    /// True if the kernel's records describe all changes after the start of the recording.
    has_kernel_records: bool,
    /// Processes whose executable and name [`Self::check_sampled`] has to check.
    to_check: BTreeSet<u32>,
    /// The ID of the first event. All records contain this ID.
    event_id: u64,
    /// If this number of processes is reached, [`Self::reap`] removes those that have ended.
    reap_size: usize,
}

/// Returns the time of CLOCK_MONOTONIC, in nanoseconds.
pub fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec.unsigned_abs() * 1_000_000_000).wrapping_add(now.tv_nsec.unsigned_abs())
}

/// Returns those names of a directory's entries that are numbers.
pub fn numeric_entries(path: &str) -> Vec<u32> {
    let all = fs::read_dir(path).into_iter().flatten().flatten();
    all.filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect()
}

/// Returns the process ID of a thread, and the ID of its parent process, from /proc.
fn process_and_parent(thread: u32) -> Option<(u32, u32)> {
    parse_ids(&text_file::read(format!("/proc/{thread}/status")).ok()?)
}

/// Parses the process ID and the ID of the parent process in /proc/PID/status.
pub(super) fn parse_ids(status: &str) -> Option<(u32, u32)> {
    let number = |key: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(key))?;
        line.trim().parse::<u32>().ok()
    };
    Some((number("Tgid:")?, number("PPid:")?))
}

/// Returns the name in a `comm` file of /proc, without the newline that the kernel appends.
fn read_name(path: &str) -> Option<Vec<u8>> {
    let mut name = fs::read(path).ok()?;
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    Some(name)
}

impl Tasks {
    /// Makes a `Tasks` whose records contain the event ID `id`. The first records are the mappings
    /// of the kernel.
    pub fn new(id: u64) -> Self {
        let mut this = Self {
            processes: BTreeMap::new(),
            records: Encoder::default(),
            has_kernel_records: false,
            nr_shrinks: 0,
            to_check: BTreeSet::new(),
            event_id: id,
            reap_size: MIN_REAP_SIZE,
        };
        encode_kernel_maps(&mut this.records, id);
        this
    }

    #[cfg(test)]
    fn records(&self) -> &[u8] {
        &self.records.bytes
    }

    /// Returns the records that were collected after `position`, and sets `position` to the end of
    /// the records. If older records have been replaced since `position` was set, returns all
    /// records.
    pub fn records_since(&self, position: &mut TaskPosition) -> &[u8] {
        let begin = match position.nr_shrinks == self.nr_shrinks {
            true => position.bytes,
            false => 0,
        };
        *position = TaskPosition {
            nr_shrinks: self.nr_shrinks,
            bytes: self.records.bytes.len(),
        };
        &self.records.bytes[begin..]
    }

    /// Takes the records that were added since the last call.
    pub fn take_records(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.records.bytes)
    }

    /// Removes processes that have ended, if the number of processes has reached `reap_size`. The
    /// new `reap_size` is twice the number of the remaining processes, but at least
    /// `MIN_REAP_SIZE`.
    fn reap(&mut self) {
        if self.processes.len() < self.reap_size {
            return;
        }
        self.processes.retain(|pid, process| {
            // The last samples of a process may still be in a ring after the process has ended.
            process
                .maps_read_at
                .is_some_and(|at| at.elapsed() < MAX_SAMPLE_DELAY)
                || fs::exists(format!("/proc/{pid}")).unwrap_or(true)
        });
        self.reap_size = MIN_REAP_SIZE.max(2 * self.processes.len());
    }

    /// Switches from /proc to the kernel's records. After this call, only [`Self::add_existing`]
    /// reads /proc.
    pub fn use_kernel_records(&mut self) {
        self.has_kernel_records = true;
    }

    /// Moves the kernel's records out of the rings of `events`. If the collected records exceed
    /// [`MAX_RECORD_BYTES`], the present contents of /proc replace the older half of the records.
    pub fn drain(&mut self, events: &mut TaskEvents) {
        events.drain(&mut self.records, self.event_id);
        if self.records.bytes.len() > MAX_RECORD_BYTES {
            self.shrink_records();
        }
    }

    /// Replaces the older half of the records by the present contents of /proc, where processes
    /// that have ended are missing. If the name and mappings of an ended process were in the older
    /// half of the records, the process's samples in the next file have no names. The samples before
    /// an exec in the newer half have no names either, because /proc describes the new program.
    fn shrink_records(&mut self) {
        self.nr_shrinks += 1;
        let mut newer = std::mem::take(&mut self.records.bytes);
        let time = middle_time(&newer);
        take_until(&mut newer, time);
        encode_kernel_maps(&mut self.records, self.event_id);
        let mut build_ids = BuildIds::new();
        let started = started_processes(&newer);
        for pid in numeric_entries("/proc") {
            if !started.contains(&pid) {
                self.add_existing(pid, time, &mut build_ids);
            }
        }
        self.records.bytes.append(&mut newer);
    }

    fn sample_id(&self, pid: u32, tid: u32, time: u64) -> SampleId {
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
    pub fn add_existing(&mut self, pid: u32, time: u64, build_ids: &mut BuildIds) {
        let Some(name) = read_name(&format!("/proc/{pid}/comm")) else {
            return;
        };
        let sample_id = self.sample_id(pid, pid, time);
        self.records.comm(&name, false, &sample_id);
        let mut process = Process::new(name, time);
        process.exe = exe_id(pid);
        self.processes.insert(pid, process);
        for tid in numeric_entries(&format!("/proc/{pid}/task")) {
            if tid != pid {
                self.read_thread_name(pid, tid);
            }
        }
        self.read_maps(pid, time, build_ids);
    }

    /// Reads the name of a thread other than the thread-group leader, and records a changed name.
    /// The record of a changed name gets the start time of the thread, because most threads are
    /// named soon after they start.
    fn read_thread_name(&mut self, pid: u32, tid: u32) {
        let Some(name) = read_name(&format!("/proc/{pid}/task/{tid}/comm")) else {
            return;
        };
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let known = process.threads.get(&tid);
        let since = known.map_or(process.start_time, |(_, since)| *since);
        if known.is_none_or(|(known, _)| *known != name) {
            process.threads.insert(tid, (name.clone(), since));
            // The fork record gives the thread the name of its parent, so the name record must be
            // later.
            let sample_id = self.sample_id(pid, tid, since + 1);
            self.records.comm(&name, false, &sample_id);
        }
    }

    /// Records that the process has called exec, with its new name and mappings.
    pub fn record_exec(&mut self, pid: u32, time: u64) {
        if self.has_kernel_records {
            return;
        }
        let name = read_name(&format!("/proc/{pid}/comm")).unwrap_or_default();
        let sample_id = self.sample_id(pid, pid, time);
        self.records.comm(&name, true, &sample_id);
        let mut process = Process::new(name, time);
        process.exe = exe_id(pid);
        self.processes.insert(pid, process);
        self.read_maps(pid, time, &mut BuildIds::new());
    }

    /// Records an exec that the ring of a thread's context reports. `thread` is the thread's ID
    /// before the exec, which can differ from the process ID.
    pub fn record_thread_exec(&mut self, thread: u32, time: u64) {
        let mut all = self.processes.iter();
        let owner = all.find(|(pid, p)| **pid == thread || p.threads.contains_key(&thread));
        let pid = owner.map_or(thread, |(pid, _)| *pid);
        self.record_exec(pid, time);
    }

    /// Records a new thread, which has not run yet.
    pub fn record_fork(&mut self, thread: u32, time: u64) {
        if self.has_kernel_records {
            return;
        }
        let Some((pid, parent)) = process_and_parent(thread) else {
            return;
        };
        let sample_id = self.sample_id(pid, thread, time);
        if pid != thread {
            self.records.fork((pid, pid), &sample_id);
            if let Some(process) = self.processes.get_mut(&pid) {
                process.threads.insert(thread, (process.name.clone(), time));
            }
            return;
        }
        self.records.fork((parent, parent), &sample_id);
        // The new process has the mappings and the program of its parent until the new process
        // calls exec.
        let (known, regions, exe) = match self.processes.get(&parent) {
            Some(p) => (p.name.clone(), p.regions.clone(), p.exe),
            None => (Vec::new(), BTreeMap::new(), None),
        };
        // The parent may have changed its name after pfc read that name.
        let name = read_name(&format!("/proc/{pid}/comm")).unwrap_or_else(|| known.clone());
        if name != known {
            let sample_id = self.sample_id(pid, pid, time + 1);
            self.records.comm(&name, false, &sample_id);
        }
        let mut process = Process::new(name, time);
        (process.regions, process.exe) = (regions, exe);
        self.reap();
        self.processes.insert(pid, process);
    }

    /// Records that a thread is about to exit. Before recording the exit, reads the thread's name,
    /// or for a thread-group leader the mappings of the process.
    pub fn record_exit(&mut self, thread: u32, time: u64) {
        if self.has_kernel_records {
            return;
        }
        let Some((pid, parent)) = process_and_parent(thread) else {
            return;
        };
        match pid == thread {
            true => self.read_maps(pid, time, &mut BuildIds::new()),
            false => self.read_thread_name(pid, thread),
        }
        let parent = if pid == thread { parent } else { pid };
        let sample_id = self.sample_id(pid, thread, time);
        self.records.exit((parent, parent), &sample_id);
    }

    /// Reads the names of all threads of known processes if the kernel's records do not have them.
    pub fn read_thread_names(&mut self) {
        if self.has_kernel_records {
            return;
        }
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        for pid in pids {
            for tid in numeric_entries(&format!("/proc/{pid}/task")) {
                if tid != pid {
                    self.read_thread_name(pid, tid);
                }
            }
        }
    }

    /// Records the process of a sample and the mapping of the sample's address, if they are not
    /// recorded yet.
    pub fn handle_sample(&mut self, sample: &Sample) {
        let (pid, time) = (sample.pid, sample.time.saturating_sub(1));
        if self.has_kernel_records || matches!(pid, 0 | u32::MAX) {
            return;
        }
        let process = self.processes.get(&pid);
        let Some(process) = process else {
            self.reap();
            self.add_existing(pid, time, &mut BuildIds::new());
            // A process that has ended gets an empty entry, so that its /proc directory is not read
            // again.
            let ended = || Process::new(Vec::new(), time);
            self.processes.entry(pid).or_insert_with(ended);
            return;
        };
        let recently = process
            .maps_read_at
            .is_some_and(|at| at.elapsed() < MIN_READ_INTERVAL);
        let is_known = sample.ip >= KERNEL_START || process.find_region(sample.ip).is_some();
        if process.checked_at.elapsed() >= MIN_READ_INTERVAL {
            self.to_check.insert(pid);
        }
        if !is_known && !recently {
            self.read_maps(pid, time, &mut BuildIds::new());
        }
    }

    /// Checks the name and the executable of each process in `to_check`, to detect an exec that no
    /// ring has reported. The caller has read a ring to its end, so every exec that the ring
    /// reports is already recorded.
    pub fn check_sampled(&mut self) {
        for pid in std::mem::take(&mut self.to_check) {
            self.check_process(pid, now());
        }
    }

    /// Records an exec or a new name, if the process has changed since its last check.
    fn check_process(&mut self, pid: u32, time: u64) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.checked_at = Instant::now();
        let Some(name) = read_name(&format!("/proc/{pid}/comm")) else {
            return;
        };
        let exe = exe_id(pid);
        if exe.is_some() && exe != process.exe {
            self.record_exec(pid, time);
        } else if name != process.name {
            process.name.clone_from(&name);
            let sample_id = self.sample_id(pid, pid, time);
            self.records.comm(&name, false, &sample_id);
        }
    }

    /// Reads the executable mappings of a process, and records those that are not known yet.
    fn read_maps(&mut self, pid: u32, time: u64, build_ids: &mut BuildIds) {
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let sample_id = self.sample_id(pid, pid, time);
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.maps_read_at = Some(Instant::now());
        for mut region in text_file::byte_lines(&maps).filter_map(parse_maps_line) {
            let known = process.regions.get(&region.start);
            if known.is_some_and(|known| is_same_mapping(known, &region)) {
                continue;
            }
            if region.inode != 0 {
                let of_file = build_ids.entry((region.device, region.inode));
                let id = of_file.or_insert_with(|| region_build_id(pid, &region));
                region.build_id.clone_from(id);
            }
            let overlaps = |r: &Region| r.start < region.end && region.start < r.end;
            let others: Vec<u64> = process
                .regions
                .values()
                .filter(|r| overlaps(r))
                .map(|r| r.start)
                .collect();
            // A mapping that replaces another mapping cannot have existed since the exec.
            let since = if others.is_empty() {
                process.start_time
            } else {
                time
            };
            for other in others {
                process.regions.remove(&other);
            }
            self.records.mmap2(
                &region,
                &SampleId {
                    time: since,
                    ..sample_id
                },
            );
            process.regions.insert(region.start, region);
        }
    }
}

/// Returns the device and inode of a process's executable.
fn exe_id(pid: u32) -> Option<(u64, u64)> {
    let file = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((file.dev(), file.ino()))
}

/// Returns true if two regions, from two reads of /proc, are the same mapping. Build IDs are not
/// compared, because files with the same device and inode have the same build ID.
fn is_same_mapping(one: &Region, other: &Region) -> bool {
    (one.start, one.end, one.offset, one.device, one.inode)
        == (
            other.start,
            other.end,
            other.offset,
            other.device,
            other.inode,
        )
        && one.path == other.path
}

/// Returns the build ID of the file that a process has mapped. Returns an empty build ID if the
/// file has none or cannot be found.
fn region_build_id(pid: u32, region: &Region) -> Vec<u8> {
    let open = candidate_paths(pid as i32, Path::new(&region.path)).find_map(|path| {
        let file = open_regular(&path).ok()?;
        is_same_file(&file, region.device, region.inode).then_some(file)
    });
    open.and_then(|file| build_id(&file)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::record::sizes_and_kinds;

    /// Returns the number of names of this process after the older half of the records is replaced.
    /// The newer half has a record that `add_newer` adds.
    fn names_after_shrink(add_newer: impl Fn(&mut Encoder, &SampleId)) -> usize {
        let pid = std::process::id();
        let id = |pid: u32, time: u64| SampleId {
            pid,
            tid: pid,
            time,
            ..SampleId::default()
        };
        let mut tasks = Tasks::new(1);
        tasks.use_kernel_records();
        tasks.records.bytes.clear();
        for time in 10..20 {
            tasks.records.comm(b"older", true, &id(u32::MAX, time));
        }
        add_newer(&mut tasks.records, &id(pid, 30));
        tasks.shrink_records();
        // A COMM record has the type 3. The process ID and the thread ID follow its header.
        let wanted = [pid.to_le_bytes(), pid.to_le_bytes()].concat();
        let mut names = 0;
        let mut at = 0;
        for (size, kind) in sizes_and_kinds(tasks.records()) {
            names += usize::from(kind == 3 && tasks.records()[at + 8..].starts_with(&wanted));
            at += size;
        }
        names
    }

    #[test]
    fn r1_9_a_later_program_has_no_earlier_records() {
        let rename = |to: &mut Encoder, id: &SampleId| to.comm(b"new", false, id);
        let exec = |to: &mut Encoder, id: &SampleId| to.comm(b"new", true, id);
        let fork = |to: &mut Encoder, id: &SampleId| to.fork((1, 1), id);
        let thread = |to: &mut Encoder, id: &SampleId| to.fork((id.pid, id.pid), id);
        assert_eq!(names_after_shrink(rename), 2);
        assert_eq!(names_after_shrink(exec), 1);
        assert_eq!(names_after_shrink(fork), 0);
        assert_eq!(names_after_shrink(thread), 1);
    }

    #[test]
    fn r1_9_a_process_is_told_of_once() {
        let mut tasks = Tasks::new(1);
        let pid = std::process::id();
        let sample = |ip| Sample {
            ip,
            pid,
            tid: pid,
            time: 100,
            ..Sample::default()
        };
        let here = r1_9_a_process_is_told_of_once as *const () as u64;
        tasks.handle_sample(&sample(here));
        let records = tasks.records().len();
        assert!(tasks.processes[&pid].find_region(here).is_some());
        assert_eq!(tasks.processes[&pid].start_time, 99);
        tasks.handle_sample(&sample(here));
        tasks.handle_sample(&sample(u64::MAX - 8192));
        // The mappings of the process were read less than 50 ms ago, so they are not read again.
        tasks.handle_sample(&sample(1));
        assert_eq!(tasks.records().len(), records);
    }
}
