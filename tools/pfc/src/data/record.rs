// SPDX-License-Identifier: GPL-2.0

//! Encodes records of perf.data: `enum perf_event_type` of linux/perf_event.h.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use perfmon::ring::{Sample, GUEST_SAMPLE_ADDRESS};

use super::LOWEST_KERNEL_ADDRESS;

const RECORD_MMAP: u32 = 1;
const RECORD_LOST: u32 = 2;
const RECORD_COMM: u32 = 3;
const RECORD_EXIT: u32 = 4;
const RECORD_THROTTLE: u32 = 5;
const RECORD_UNTHROTTLE: u32 = 6;
const RECORD_FORK: u32 = 7;
pub const RECORD_SAMPLE: u32 = 9;
const RECORD_MMAP2: u32 = 10;
const RECORD_BUILD_ID: u32 = 67;
/// The maximum number of bytes of a build ID in a record of a mapping.
pub const MAX_RECORDED_BUILD_ID_BYTES: usize = 20;

/// Bits of the field `misc` in a record's header: PERF_RECORD_MISC_*.
const MISC_MMAP_BUILD_ID: u16 = 1 << 14;
const MISC_KERNEL: u16 = 1;
const MISC_USER: u16 = 2;
const MISC_GUEST_KERNEL: u16 = 4;
const MISC_COMM_EXEC: u16 = 1 << 13;
const MISC_BUILD_ID_SIZE: u16 = 1 << 15;

/// The event ID in the throttling records that mark the start and the end of a time in which a CPU
/// was offline. perf gives no event this ID.
pub const CPU_OFFLINE_EVENT_ID: u64 = u64::MAX;
/// The event ID in the LOST records that count lost records of processes, and no lost samples.
pub const LOST_PROCESS_RECORDS_EVENT_ID: u64 = u64::MAX;

/// The maximum number of frames in a sample. The size of a record has 16 bits, and 8000 frames of 8
/// bytes leave 1535 bytes for the other fields of the sample.
const MAX_FRAMES_PER_SAMPLE: usize = 8000;

/// The fields of a sample: PERF_SAMPLE_*.
pub const SAMPLE_TYPE: u64 =
    SAMPLE_IP | SAMPLE_TID | SAMPLE_TIME | SAMPLE_CPU | SAMPLE_PERIOD | SAMPLE_IDENTIFIER;
const SAMPLE_IP: u64 = 1 << 0;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
pub const SAMPLE_CALLCHAIN: u64 = 1 << 5;
const SAMPLE_CPU: u64 = 1 << 7;
const SAMPLE_PERIOD: u64 = 1 << 8;
const SAMPLE_IDENTIFIER: u64 = 1 << 16;

/// The fields at the end of each record that is not a sample: the kernel's `sample_id`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleId {
    pub pid: u32,
    pub tid: u32,
    /// The time of the record, in nanoseconds of CLOCK_MONOTONIC.
    pub time: u64,
    pub cpu: u32,
    /// The ID of the event, [`super::EventAttribute::id`].
    pub id: u64,
}

/// An executable mapping of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutableMapping {
    pub start: u64,
    pub end: u64,
    /// The offset of `start` in the mapped file, in bytes.
    pub offset: u64,
    /// The major and the minor number of the file's device.
    pub device: (u32, u32),
    pub inode: u64,
    /// The build ID of the file; empty if the build ID is not known. Only the first 20 bytes of the
    /// build ID are encoded.
    pub build_id: Vec<u8>,
    pub path: OsString,
}

/// Encodes perf.data records and collects their bytes.
#[derive(Debug, Default)]
pub struct RecordEncoder {
    pub bytes: Vec<u8>,
    /// True if samples contain call chains. The attribute of the event then has
    /// [`SAMPLE_CALLCHAIN`] set.
    pub has_stacks: bool,
}

impl RecordEncoder {
    fn begin_record(&mut self, kind: u32, misc: u16) -> usize {
        let at = self.bytes.len();
        self.append_u32(kind);
        self.bytes.extend(misc.to_le_bytes());
        self.bytes.extend([0; 2]);
        at
    }

    /// Appends the sample ID to a record that is not a sample, and sets the size of the record.
    fn end_record(&mut self, at: usize, sample_id: &SampleId) {
        self.append_u32_pair(sample_id.pid, sample_id.tid);
        self.append_u64(sample_id.time);
        self.append_u32_pair(sample_id.cpu, 0);
        self.append_u64(sample_id.id);
        self.set_record_size(at);
    }

    fn set_record_size(&mut self, at: usize) {
        let size = u16::try_from(self.bytes.len() - at).unwrap_or(u16::MAX);
        self.bytes[at + 6..at + 8].copy_from_slice(&size.to_le_bytes());
    }

    fn append_u32(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn append_u64(&mut self, value: u64) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn append_u32_pair(&mut self, first: u32, second: u32) {
        self.append_u32(first);
        self.append_u32(second);
    }

    /// Appends a text, and then one to eight NUL bytes, so that the total size is a multiple of 8
    /// bytes.
    fn append_padded_string(&mut self, text: &[u8]) {
        // A path has at most 4096 bytes. A text of more than 4096 bytes is cut off, because it
        // could make the record longer than its size field allows.
        let text = &text[..text.len().min(4096)];
        self.bytes.extend(text);
        let zeros = 8 - text.len() % 8;
        self.bytes.extend(std::iter::repeat_n(0, zeros));
    }

    pub fn encode_sample(&mut self, sample: &Sample, id: u64) {
        let (misc, ip) = match sample.ip {
            // For a sample in a guest, the ring buffer does not say whether the guest was in kernel
            // mode or in user mode. The sample is assigned to the guest's kernel.
            GUEST_SAMPLE_ADDRESS => (MISC_GUEST_KERNEL, 0),
            ip if ip >= LOWEST_KERNEL_ADDRESS => (MISC_KERNEL, ip),
            ip => (MISC_USER, ip),
        };
        let at = self.begin_record(RECORD_SAMPLE, misc);
        self.append_u64(id);
        self.append_u64(ip);
        self.append_u32_pair(sample.pid, sample.tid);
        self.append_u64(sample.time);
        self.append_u32_pair(sample.cpu, 0);
        self.append_u64(sample.period());
        if self.has_stacks {
            let frames = &sample.frames[..sample.frames.len().min(MAX_FRAMES_PER_SAMPLE)];
            self.append_u64(frames.len() as u64);
            for frame in frames {
                self.append_u64(*frame);
            }
        }
        self.set_record_size(at);
    }

    pub fn encode_lost(&mut self, lost: u64, sample_id: &SampleId) {
        let at = self.begin_record(RECORD_LOST, 0);
        self.append_u64(sample_id.id);
        self.append_u64(lost);
        self.end_record(at, sample_id);
    }

    /// Encodes the number of lost records of processes. In this LOST record, the event with the lost
    /// records has the ID [`LOST_PROCESS_RECORDS_EVENT_ID`].
    pub fn encode_lost_process_records(&mut self, lost: u64, sample_id: &SampleId) {
        let at = self.begin_record(RECORD_LOST, 0);
        self.append_u64(LOST_PROCESS_RECORDS_EVENT_ID);
        self.append_u64(lost);
        self.end_record(at, sample_id);
    }

    pub fn encode_throttle(&mut self, is_start: bool, sample_id: &SampleId) {
        self.encode_throttling_record(is_start, sample_id.id, sample_id);
    }

    /// Encodes the beginning or the end of a period in which a CPU was offline and not sampled. The
    /// record is a throttling record with the ID [`CPU_OFFLINE_EVENT_ID`].
    pub fn encode_cpu_offline(&mut self, is_start: bool, sample_id: &SampleId) {
        self.encode_throttling_record(is_start, CPU_OFFLINE_EVENT_ID, sample_id);
    }

    fn encode_throttling_record(&mut self, is_start: bool, id: u64, sample_id: &SampleId) {
        let kind = if is_start {
            RECORD_THROTTLE
        } else {
            RECORD_UNTHROTTLE
        };
        let at = self.begin_record(kind, 0);
        self.append_u64(sample_id.time);
        self.append_u64(id);
        self.append_u64(id);
        self.end_record(at, sample_id);
    }

    /// Encodes the name of a thread. `is_exec` says that the thread has called exec, which removed
    /// all earlier mappings of its process.
    pub fn encode_comm(&mut self, name: &[u8], is_exec: bool, sample_id: &SampleId) {
        let at = self.begin_record(RECORD_COMM, if is_exec { MISC_COMM_EXEC } else { 0 });
        self.append_u32_pair(sample_id.pid, sample_id.tid);
        self.append_padded_string(name);
        self.end_record(at, sample_id);
    }

    /// Encodes the creation of a thread. `parent` has the process ID and the thread ID of the
    /// creator. The new thread is the first of a new process if its process ID differs from the
    /// creator's.
    pub fn encode_fork(&mut self, parent: (u32, u32), sample_id: &SampleId) {
        self.encode_task_record(RECORD_FORK, parent, sample_id);
    }

    pub fn encode_exit(&mut self, parent: (u32, u32), sample_id: &SampleId) {
        self.encode_task_record(RECORD_EXIT, parent, sample_id);
    }

    fn encode_task_record(&mut self, kind: u32, parent: (u32, u32), sample_id: &SampleId) {
        let at = self.begin_record(kind, 0);
        self.append_u32_pair(sample_id.pid, parent.0);
        self.append_u32_pair(sample_id.tid, parent.1);
        self.append_u64(sample_id.time);
        self.end_record(at, sample_id);
    }

    /// Encodes an executable mapping of a process.
    pub fn encode_mmap2(&mut self, region: &ExecutableMapping, sample_id: &SampleId) {
        let has_build_id = !region.build_id.is_empty();
        let misc = MISC_USER | if has_build_id { MISC_MMAP_BUILD_ID } else { 0 };
        let at = self.begin_record(RECORD_MMAP2, misc);
        self.append_u32_pair(sample_id.pid, sample_id.tid);
        self.append_u64(region.start);
        self.append_u64(region.end.saturating_sub(region.start));
        self.append_u64(region.offset);
        if has_build_id {
            let id = &region.build_id[..region.build_id.len().min(MAX_RECORDED_BUILD_ID_BYTES)];
            let mut bytes = [0; 24];
            bytes[0] = id.len() as u8;
            bytes[4..4 + id.len()].copy_from_slice(id);
            self.bytes.extend(bytes);
        } else {
            self.append_u32_pair(region.device.0, region.device.1);
            self.append_u64(region.inode);
            self.append_u64(0);
        }
        // The protection PROT_READ | PROT_EXEC, and the flag MAP_PRIVATE.
        self.append_u32_pair(5, 2);
        self.append_padded_string(region.path.as_bytes());
        self.end_record(at, sample_id);
    }

    /// Encodes the build ID of the file with this path, for the list of build IDs in the header.
    #[cfg(test)]
    pub fn encode_build_id(&mut self, path: &[u8], id: &[u8]) {
        self.encode_build_id_record(MISC_USER, path, id);
    }

    /// Encodes the build ID of the kernel, for the list of build IDs in the header.
    pub fn encode_kernel_build_id(&mut self, id: &[u8]) {
        self.encode_build_id_record(MISC_KERNEL, b"[kernel.kallsyms]", id);
    }

    fn encode_build_id_record(&mut self, misc: u16, path: &[u8], id: &[u8]) {
        let at = self.begin_record(RECORD_BUILD_ID, misc | MISC_BUILD_ID_SIZE);
        self.append_u32(u32::MAX);
        let id = &id[..id.len().min(20)];
        let mut bytes = [0; 24];
        bytes[..id.len()].copy_from_slice(id);
        bytes[20] = id.len() as u8;
        self.bytes.extend(bytes);
        self.append_padded_string(path);
        self.set_record_size(at);
    }

    /// Copies a record that the kernel has written for an event. The kernel's record ends with the
    /// fields TID, TIME, CPU and IDENTIFIER of [`SAMPLE_TYPE`]. In the copy of the kernel's record,
    /// the last field (IDENTIFIER) is set to `id`.
    pub fn copy_kernel_record_with_id(&mut self, record: &[u8], id: u64) {
        self.bytes.extend(record);
        let at = self.bytes.len() - 8;
        self.bytes[at..].copy_from_slice(&id.to_le_bytes());
    }

    /// Encodes the mapping of the kernel's text or of a module. The record has the time 0, so that
    /// readers process the record before all other records.
    pub fn encode_kernel_mmap(&mut self, start: u64, end: u64, offset: u64, name: &str, id: u64) {
        let at = self.begin_record(RECORD_MMAP, MISC_KERNEL);
        self.append_u32_pair(u32::MAX, 0);
        self.append_u64(start);
        self.append_u64(end.saturating_sub(start));
        self.append_u64(offset);
        self.append_padded_string(name.as_bytes());
        let sample_id = SampleId {
            id,
            ..SampleId::default()
        };
        self.end_record(at, &sample_id);
    }
}

/// Returns each record that a [`RecordEncoder`] has made, with the time of the record.
fn records_with_time(mut records: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
    std::iter::from_fn(move || {
        let header = read_u64_at(records, 0)?;
        let (record, rest) = records.split_at_checked(((header >> 48) as usize).max(8))?;
        records = rest;
        let at = match header as u32 {
            // In a sample, four fields precede the time: the header, the event's ID, the address,
            // and the process and thread ID.
            RECORD_SAMPLE => Some(32),
            // A record other than a sample ends with the time, the CPU and the event's ID.
            _ => record.len().checked_sub(24),
        };
        Some((
            record,
            at.and_then(|at| read_u64_at(record, at)).unwrap_or(0),
        ))
    })
}

/// Returns the size and the type of each record that a [`RecordEncoder`] has made.
pub fn record_sizes_and_types(records: &[u8]) -> impl Iterator<Item = (usize, u32)> + '_ {
    records_with_time(records)
        .map(|(record, _)| (record.len(), read_u64_at(record, 0).unwrap_or(0) as u32))
}

/// Removes the records up to the time `time`, and returns these records. Newer records stay in
/// `records`.
pub fn take_records_until(records: &mut Vec<u8>, time: u64) -> Vec<u8> {
    let (mut until, mut later) = (Vec::new(), Vec::new());
    for (record, time_of_record) in records_with_time(records) {
        let to = if time_of_record > time {
            &mut later
        } else {
            &mut until
        };
        to.extend(record);
    }
    *records = later;
    until
}

/// Returns the IDs of the processes for which `records` has a record of their start or of an exec.
pub fn pids_with_fork_or_exec(records: &[u8]) -> BTreeSet<u32> {
    let started = |(record, _): (&[u8], u64)| {
        let header = read_u64_at(record, 0)?;
        let (kind, misc) = (header as u32, (header >> 32) as u16);
        let ids = read_u64_at(record, 8)?;
        let (pid, other) = (ids as u32, (ids >> 32) as u32);
        let is_start = match kind {
            RECORD_FORK => pid != other,
            RECORD_COMM => misc & MISC_COMM_EXEC != 0,
            _ => false,
        };
        is_start.then_some(pid)
    };
    records_with_time(records).filter_map(started).collect()
}

/// Returns the earliest time for which [`take_records_until`] takes at least half of the bytes of
/// `records`. The records need not be in the order of time. Returns 0 if `records` is empty.
pub fn time_that_halves_records(records: &[u8]) -> u64 {
    let sizes = records_with_time(records).map(|(record, time)| (time, record.len()));
    let mut sizes: Vec<(u64, usize)> = sizes.collect();
    sizes.sort_unstable();
    let mut bytes = 0;
    let middle = sizes.iter().find(|(_, size)| {
        bytes += size;
        bytes >= records.len() / 2
    });
    middle.map_or(0, |(time, _)| *time)
}

/// Returns the number of records of names, starts, ends and mappings of processes.
pub fn count_process_records(records: &[u8]) -> u64 {
    let kinds = [RECORD_COMM, RECORD_EXIT, RECORD_FORK, RECORD_MMAP2];
    let is_counted = |(_, kind): &(usize, u32)| kinds.contains(kind);
    record_sizes_and_types(records).filter(is_counted).count() as u64
}

/// Returns the number of samples that were taken up to the time `time`.
pub fn count_samples_until(records: &[u8], time: u64) -> u64 {
    let is_counted = |(record, of_record): &(&[u8], u64)| {
        read_u64_at(record, 0).is_some_and(|header| header as u32 == RECORD_SAMPLE)
            && *of_record <= time
    };
    records_with_time(records).filter(is_counted).count() as u64
}

/// Returns the number of lost records of processes that the LOST records among `records` count.
pub fn sum_of_lost_process_records(records: &[u8]) -> u64 {
    sum_of_lost_records(records, |event| event == LOST_PROCESS_RECORDS_EVENT_ID)
}

/// Returns the number of lost samples that the LOST records among `records` count.
pub fn sum_of_lost_samples(records: &[u8]) -> u64 {
    sum_of_lost_records(records, |event| event != LOST_PROCESS_RECORDS_EVENT_ID)
}

/// Returns the sum of the LOST records of the events whose ID `is_wanted` accepts.
fn sum_of_lost_records(records: &[u8], is_wanted: impl Fn(u64) -> bool) -> u64 {
    let lost = |(record, _): (&[u8], u64)| {
        let is_lost = read_u64_at(record, 0)? as u32 == RECORD_LOST;
        let is_counted = is_lost && is_wanted(read_u64_at(record, 8)?);
        is_counted.then(|| read_u64_at(record, 16)).flatten()
    };
    let all = records_with_time(records).filter_map(lost);
    all.fold(0, u64::saturating_add)
}

fn read_u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::sample;
    use super::*;

    #[test]
    fn r1_9_records_are_taken_up_to_a_time() {
        let mut encoder = RecordEncoder::default();
        let sample_id = |time| SampleId {
            time,
            ..SampleId::default()
        };
        let sample = |time| sample(0, time, u64::MAX >> 1);
        encoder.encode_sample(&sample(5), 1);
        encoder.encode_sample(&sample(6), 1);
        encoder.encode_comm(b"a", true, &sample_id(6));
        encoder.encode_comm(b"b", true, &sample_id(5));
        assert_eq!(time_that_halves_records(&encoder.bytes), 5);
        assert_eq!(time_that_halves_records(&[]), 0);
        assert_eq!(count_samples_until(&encoder.bytes, 5), 1);
        assert_eq!(count_samples_until(&encoder.bytes, 6), 2);
        let mut wanted = RecordEncoder::default();
        wanted.encode_sample(&sample(5), 1);
        wanted.encode_comm(b"b", true, &sample_id(5));
        assert_eq!(take_records_until(&mut encoder.bytes, 5), wanted.bytes);
        assert!(take_records_until(&mut encoder.bytes, 5).is_empty());
        assert_eq!(
            take_records_until(&mut encoder.bytes, 6).len(),
            wanted.bytes.len()
        );
        assert!(encoder.bytes.is_empty());
    }
}
