// SPDX-License-Identifier: GPL-2.0

//! Limits the size of the records of processes that are kept for the next file, with --overwrite or
//! --switch-output.

use super::{list_numeric_entries, BuildIdsByFile, ProcessRecorder};
use crate::data::record::{count_process_records, sum_of_lost_process_records};
use crate::data::{pids_with_fork_or_exec, take_records_until, time_that_halves_records, SampleId};
use crate::record::kernel_maps::encode_kernel_mappings;

/// The maximum size in bytes of the records that are kept for the next file: of the records of
/// processes, with --overwrite or --switch-output, and of the samples of exited threads, with
/// --overwrite.
pub const MAX_KEPT_RECORD_BYTES: usize = 64 << 20;

/// The records of processes that were discarded because all records exceeded the maximum size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardedRecords {
    pub nr_records: u64,
    /// The time of the newest discarded record. Samples up to this time may have no names.
    pub until_ns: u64,
}

impl ProcessRecorder {
    /// Replaces the older half of the records by the present contents of /proc, if the records
    /// exceed [`MAX_KEPT_RECORD_BYTES`]. On a machine with many processes, the contents of /proc
    /// alone can be that large. The records may therefore grow to four times the size of the
    /// contents of /proc, so that /proc is not read again at each call.
    ///
    /// Called after each batch of records, so that the records of both sources are limited: the
    /// kernel's records, and records that were read from /proc.
    pub fn limit_kept_records(&mut self) {
        if self.records.bytes.len() > self.max_record_bytes {
            self.replace_older_half_of_records();
        }
    }

    /// Returns the number of the records that [`Self::limit_kept_records`] has discarded, and their
    /// time.
    pub fn discarded_records(&self) -> DiscardedRecords {
        self.discarded_records
    }

    /// Adds records of execs, from the time `time` on, until all records exceed the maximum size.
    /// Returns the time after the last record. The process of these records does not exist.
    #[cfg(test)]
    pub fn exceed_max_record_bytes(&mut self, mut time: u64) -> u64 {
        while self.records.bytes.len() <= self.max_record_bytes {
            let sample_id = self.make_sample_id(u32::MAX - 1, u32::MAX - 1, time);
            self.records.encode_comm(&[b'a'; 4000], true, &sample_id);
            time += 1;
        }
        time
    }

    /// Replaces the older half of the records by the present contents of /proc. Processes that have
    /// ended are missing there. If the name and mappings of an ended process were in the older half
    /// of the records, the process's samples in the next file have no names. If the newer half has
    /// a record of an exec, the process's samples before the exec have no names, because /proc
    /// describes the new program.
    fn replace_older_half_of_records(&mut self) {
        self.nr_record_replacements += 1;
        let mut newer = std::mem::take(&mut self.records.bytes);
        let time = time_that_halves_records(&newer);
        let older = take_records_until(&mut newer, time);
        self.discarded_records.nr_records += count_process_records(&older);
        self.discarded_records.until_ns = self.discarded_records.until_ns.max(time);
        encode_kernel_mappings(&mut self.records, self.event_id);
        // The kernel's counts of lost records are in no other record.
        if let lost @ 1.. = sum_of_lost_process_records(&older) {
            let sample_id = SampleId {
                time,
                id: self.event_id,
                ..SampleId::default()
            };
            self.records.encode_lost_process_records(lost, &sample_id);
        }
        drop(older);
        self.forget_ended_if_many();
        let pids = match self.has_kernel_records {
            true => list_numeric_entries("/proc"),
            // Without the kernel's records, other processes have no records.
            false => self.processes.keys().copied().collect(),
        };
        let mut build_ids = BuildIdsByFile::new();
        let started = pids_with_fork_or_exec(&newer);
        for pid in pids {
            if !started.contains(&pid) {
                self.record_existing_process(pid, time, &mut build_ids);
            }
        }
        self.max_record_bytes = max_bytes_for_proc_contents(self.records.bytes.len());
        self.records.bytes.append(&mut newer);
    }
}

/// Returns the maximum size of the records if the records of the present contents of /proc take
/// `proc_bytes`.
fn max_bytes_for_proc_contents(proc_bytes: usize) -> usize {
    MAX_KEPT_RECORD_BYTES.max(4 * proc_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::record::record_sizes_and_types;
    use crate::data::RecordEncoder;

    /// Replaces the older half of the records, and returns how many name records of this process
    /// there are afterwards. `add_newer` adds a record to the newer half.
    fn count_names_after_replacement(add_newer: impl Fn(&mut RecordEncoder, &SampleId)) -> usize {
        let pid = std::process::id();
        let id = |pid: u32, time: u64| SampleId {
            pid,
            tid: pid,
            time,
            ..SampleId::default()
        };
        let mut tasks = ProcessRecorder::new(1);
        tasks.switch_to_kernel_records();
        tasks.records.bytes.clear();
        for time in 10..20 {
            tasks
                .records
                .encode_comm(b"older", true, &id(u32::MAX, time));
        }
        add_newer(&mut tasks.records, &id(pid, 30));
        tasks.replace_older_half_of_records();
        // A COMM record has the type 3. The process ID and the thread ID follow its header.
        let wanted = [pid.to_le_bytes(), pid.to_le_bytes()].concat();
        let mut names = 0;
        let mut at = 0;
        for (size, kind) in record_sizes_and_types(tasks.record_bytes()) {
            names += usize::from(kind == 3 && tasks.record_bytes()[at + 8..].starts_with(&wanted));
            at += size;
        }
        names
    }

    #[test]
    fn r1_9_replacement_adds_no_name_before_exec() {
        let rename = |to: &mut RecordEncoder, id: &SampleId| to.encode_comm(b"new", false, id);
        let exec = |to: &mut RecordEncoder, id: &SampleId| to.encode_comm(b"new", true, id);
        let fork = |to: &mut RecordEncoder, id: &SampleId| to.encode_fork((1, 1), id);
        let thread = |to: &mut RecordEncoder, id: &SampleId| to.encode_fork((id.pid, id.pid), id);
        assert_eq!(count_names_after_replacement(rename), 2);
        assert_eq!(count_names_after_replacement(exec), 1);
        assert_eq!(count_names_after_replacement(fork), 0);
        assert_eq!(count_names_after_replacement(thread), 1);
    }

    #[test]
    fn r1_9_records_from_proc_are_limited_and_discarded_records_are_counted() {
        let mut tasks = ProcessRecorder::new(1);
        tasks.limit_kept_records();
        assert_eq!(tasks.discarded_records(), DiscardedRecords::default());
        // The program of this process is recorded from /proc, as without perf events.
        tasks.record_process_exec(std::process::id(), 1);
        let last_time = tasks.exceed_max_record_bytes(2);
        let nr_records = count_process_records(tasks.record_bytes());
        tasks.limit_kept_records();
        assert!(tasks.record_bytes().len() <= MAX_KEPT_RECORD_BYTES * 6 / 10);
        let discarded = tasks.discarded_records();
        assert!((nr_records / 3..=nr_records).contains(&discarded.nr_records));
        assert!((last_time / 3..last_time).contains(&discarded.until_ns));
        // This process still exists, so it is recorded again.
        let id = |time| SampleId {
            pid: std::process::id(),
            tid: std::process::id(),
            time,
            id: 1,
            ..SampleId::default()
        };
        let mut name = RecordEncoder::default();
        let comm = std::fs::read("/proc/self/comm").expect("a name");
        name.encode_comm(comm.trim_ascii_end(), false, &id(discarded.until_ns));
        let mut records = tasks.record_bytes().windows(name.bytes.len());
        assert!(records.any(|record| record == name.bytes));
        tasks.exceed_max_record_bytes(last_time);
        tasks.limit_kept_records();
        let later = tasks.discarded_records();
        assert!(later.nr_records > discarded.nr_records && later.until_ns > discarded.until_ns);
        assert_eq!(tasks.max_record_bytes, MAX_KEPT_RECORD_BYTES);
    }

    /// A mapping that is read late gets the time of its process's exec.
    #[test]
    fn r1_9_records_that_are_out_of_order_are_halved() {
        let mut tasks = ProcessRecorder::new(1);
        let id = |time| SampleId {
            time,
            ..SampleId::default()
        };
        for time in (1..=1000).rev() {
            tasks.records.encode_comm(b"a", true, &id(time));
        }
        let size = tasks.record_bytes().len();
        tasks.max_record_bytes = size - 1;
        tasks.limit_kept_records();
        assert!(tasks.record_bytes().len() < size * 6 / 10);
        assert!((490..=510).contains(&tasks.discarded_records().until_ns));
    }

    #[test]
    fn r1_9_counts_of_lost_process_records_are_not_discarded() {
        let mut tasks = ProcessRecorder::new(1);
        let id = |time| SampleId {
            time,
            ..SampleId::default()
        };
        for time in 1..=100 {
            tasks.records.encode_lost_process_records(3, &id(time));
            tasks.records.encode_comm(b"a", true, &id(time));
        }
        for _ in 0..3 {
            tasks.replace_older_half_of_records();
            assert_eq!(sum_of_lost_process_records(tasks.record_bytes()), 300);
        }
    }

    #[test]
    fn r1_9_maximum_size_leaves_room_after_large_proc_contents_were_read() {
        assert_eq!(max_bytes_for_proc_contents(1000), MAX_KEPT_RECORD_BYTES);
        let large = MAX_KEPT_RECORD_BYTES;
        // The newer half of the records is kept, too.
        let max = max_bytes_for_proc_contents(large);
        assert!(max / 2 + large < max);
    }
}
