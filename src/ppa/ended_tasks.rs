// SPDX-License-Identifier: GPL-2.0

//! The records of ended tasks, which the readers of `/dev/ppa` share.
//!
//! A *reader* is an open file that has read at least once. Each reader has a position of its own,
//! so a read through one file does not take records away from other readers. A record is freed when
//! each reader has got it. The number and the bytes of the records are limited: beyond a limit the
//! oldest record is dropped, and is counted as lost for each reader that has not got it.

use kernel::alloc::flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT};
use kernel::alloc::{KBox, KVVec};
use kernel::prelude::*;

use crate::abi::TaskStats;
use crate::state::{
    add_return, AccountingState, MAX_ENDED_BYTES_PER_LIST, MAX_ENDED_RECORDS_PER_LIST,
};
use crate::stats;
use crate::task_record::TaskRecord;

/// The walk position at which the records of ended tasks begin. Positions below
/// `ENDED_TASKS_WALK_POSITION` belong to the records of living tasks.
pub(crate) const ENDED_TASKS_WALK_POSITION: u64 = 1 << 62;
/// A reader whose walk position is at least `PASS_END_POSITION_BASE` reads the records of ended
/// tasks. The reader's walk position minus `PASS_END_POSITION_BASE` is the number of a record: the
/// reader stops before this record. Records of tasks that end later are left for the reader's next
/// pass, so that each pass ends.
const PASS_END_POSITION_BASE: u64 = ENDED_TASKS_WALK_POSITION + 1;

/// The queue reuses the free places at its front only if there are at least
/// `MIN_FREE_PLACES_TO_REUSE` of them.
const MIN_FREE_PLACES_TO_REUSE: usize = 256;

/// A reader: an open file of `/dev/ppa`, identified by the address of its `struct file`.
struct EndedTasksReader {
    file: usize,
    /// The number of the next record that the reader gets.
    next: u64,
    /// Number of records that were dropped before the reader got them.
    lost: u64,
}

/// The records of ended tasks, numbered in the order in which the tasks have ended, and their
/// readers.
pub(crate) struct EndedTasks {
    /// The queue: first `nr_free_places` free places, which are `None`, and then the records.
    records: KVVec<Option<KBox<TaskRecord>>>,
    nr_free_places: usize,
    /// The number of the first record in the queue.
    first: u64,
    /// Number of bytes of the records.
    bytes: u64,
    /// Number of the first record that no reader has read. A new reader begins at this record.
    first_unread: u64,
    readers: KVVec<EndedTasksReader>,
}

impl EndedTasks {
    pub(crate) const NONE: Self = Self {
        records: KVVec::new(),
        nr_free_places: 0,
        first: 0,
        bytes: 0,
        first_unread: 0,
        readers: KVVec::new(),
    };

    /// Returns true if no record is in the queue: each reader has then got all records.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.len() == self.nr_free_places
    }

    /// Returns the number that the next new record will have.
    pub(crate) fn end(&self) -> u64 {
        let nr = self.records.len().wrapping_sub(self.nr_free_places);
        self.first.wrapping_add(nr as u64)
    }

    /// Returns true if `nr` more records with `bytes` bytes fit into the limits `most` and
    /// `most_bytes`.
    fn fits(&self, nr: u64, bytes: u64, most: u64, most_bytes: u64) -> bool {
        let all = self.end().wrapping_sub(self.first);
        all.saturating_add(nr) <= most && self.bytes.saturating_add(bytes) <= most_bytes
    }

    /// Moves the records from `AccountingState::ended_records`, the list of the probes, to this
    /// queue. Drops the oldest records beyond the limits, and counts them as lost.
    fn take_probe_records_and_limit(&mut self, accounts: &AccountingState) {
        let first = self.end();
        accounts
            .ended_records
            .take_all_after_grace_period(&mut |record| {
                accounts.subtract_ended_record(record.bytes());
                if self.push(record).is_err() {
                    add_return(&accounts.lost, 1);
                    stats::count_lost_record();
                }
            });
        // `accounts.ended_records` begins with the task that ended last: reverse the order of the
        // records.
        self.reverse_records_from(first);
        for _ in 0..self.limit(MAX_ENDED_RECORDS_PER_LIST, MAX_ENDED_BYTES_PER_LIST) {
            stats::count_lost_record();
        }
    }

    /// Adds a record after the last record. Drops the record and returns `ENOMEM` if memory is
    /// short.
    fn push(&mut self, record: KBox<TaskRecord>) -> Result {
        let bytes = record.bytes();
        // The memory of the queue is not charged to the control group of a reader: if one reader's
        // control group were full, all readers would lose the record. `limit` bounds the memory.
        self.records.push(Some(record), GFP_KERNEL)?;
        self.bytes = self.bytes.wrapping_add(bytes);
        Ok(())
    }

    /// Reverses the order of the records from the number `from` on, which no reader has got yet.
    fn reverse_records_from(&mut self, from: u64) {
        let at = from.wrapping_sub(self.first) as usize;
        let at = at.wrapping_add(self.nr_free_places);
        if let Some(records) = self.records.get_mut(at..) {
            records.reverse();
        }
    }

    /// Drops the oldest records until there are at most `most` records with at most `most_bytes`
    /// bytes. Returns the number of dropped records.
    fn limit(&mut self, most: u64, most_bytes: u64) -> u64 {
        let before = self.first;
        while self.end().wrapping_sub(self.first) > most || self.bytes > most_bytes {
            if !self.free_first_record() {
                break;
            }
        }
        for reader in &mut self.readers {
            let lost = self.first.saturating_sub(reader.next);
            reader.lost = reader.lost.wrapping_add(lost);
            reader.next = reader.next.wrapping_add(lost);
        }
        self.first_unread = self.first_unread.max(self.first);
        self.reuse_free_places();
        self.first.wrapping_sub(before)
    }

    /// Frees all records, without counting them as lost for readers that have not got them.
    pub(crate) fn clear(&mut self) {
        self.first = self.end();
        self.first_unread = self.first;
        for reader in &mut self.readers {
            reader.next = self.first;
        }
        self.records = KVVec::new();
        (self.nr_free_places, self.bytes) = (0, 0);
    }

    /// Adds a reader for an open file that has no reader yet. Returns `ENOMEM` if memory is short.
    pub(crate) fn add_reader(&mut self, file: usize) -> Result {
        if self.reader(file).is_none() {
            let reader = EndedTasksReader {
                file,
                next: self.first_unread,
                lost: 0,
            };
            self.readers.push(reader, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(())
    }

    /// Removes the reader of a file that is being closed, and frees the records that all remaining
    /// readers have read. Does nothing if the file has no reader.
    pub(crate) fn remove_reader(&mut self, file: usize) {
        let Some(at) = self.readers.iter().position(|reader| reader.file == file) else {
            return;
        };
        // Move the last reader to the place of the removed reader, because `retain` could panic.
        let last = self.readers.pop();
        if let (Some(place), Some(last)) = (self.readers.get_mut(at), last) {
            *place = last;
        }
        self.free_delivered_records();
    }

    fn reader(&self, file: usize) -> Option<&EndedTasksReader> {
        self.readers.iter().find(|reader| reader.file == file)
    }

    /// Returns the number of the next record to be read through an open file.
    pub(crate) fn next_record_of_reader(&self, file: usize) -> u64 {
        self.reader(file)
            .map_or(self.first_unread, |reader| reader.next)
    }

    /// Returns the number of records that were dropped before they were read through the file.
    pub(crate) fn lost_records_of_reader(&self, file: usize) -> u64 {
        self.reader(file).map_or(0, |reader| reader.lost)
    }

    /// Returns the records from the number `from` on.
    pub(crate) fn records_from(&self, from: u64) -> impl Iterator<Item = &TaskRecord> {
        let nr = from.saturating_sub(self.first) as usize;
        let records = self.records.iter().flatten();
        records.skip(nr).map(|record| &**record)
    }

    /// Adds the values of ended tasks that have not been read through the file to `found`, until
    /// `found` has `most` elements. `at` is the reader's walk position. Returns the number of the
    /// record at which the next read of ended tasks begins.
    pub(crate) fn collect(
        &mut self,
        accounts: &AccountingState,
        file: usize,
        at: &mut u64,
        found: &mut KVVec<TaskStats>,
        most: usize,
    ) -> u64 {
        let mut next = self.next_record_of_reader(file);
        if found.len() == most {
            return next;
        }
        if *at < PASS_END_POSITION_BASE {
            // `take_probe_records_and_limit()` drops the oldest records of the queue if old and new
            // records exceed the limits. Call `take_probe_records_and_limit()` only if this reader
            // has got all records of the queue, or if the new records fit into the limits together
            // with the old records.
            let nr = accounts.nr_ended.load_relaxed();
            let bytes = accounts.ended_bytes.load_relaxed();
            let fits = self.fits(
                nr,
                bytes,
                MAX_ENDED_RECORDS_PER_LIST,
                MAX_ENDED_BYTES_PER_LIST,
            );
            if next == self.end() || fits {
                self.take_probe_records_and_limit(accounts);
                next = self.next_record_of_reader(file);
            }
            *at = PASS_END_POSITION_BASE.wrapping_add(self.end());
        }
        let pass_end = at.wrapping_sub(PASS_END_POSITION_BASE);
        for record in self.records_from(next) {
            if found.len() == most || next >= pass_end {
                break;
            }
            let Some(told) =
                TaskStats::read_from(record, &accounts.per_cpu, true, true, accounts.clock)
            else {
                break;
            };
            let _ = found.push_within_capacity(told);
            next = next.wrapping_add(1);
        }
        next
    }

    /// Notes that a file has got all records whose numbers are below `to`, and frees the records
    /// that each reader has got.
    pub(crate) fn advance(&mut self, file: usize, to: u64) {
        let to = to.min(self.end());
        if let Some(reader) = self.readers.iter_mut().find(|reader| reader.file == file) {
            reader.next = reader.next.max(to);
        }
        self.first_unread = self.first_unread.max(to);
        self.free_delivered_records();
    }

    /// Frees the records that each reader has got. If no file is a reader any more, frees the
    /// records that at least one earlier reader has got.
    fn free_delivered_records(&mut self) {
        let read = self.readers.iter().map(|reader| reader.next).min();
        let read = read.unwrap_or(self.first_unread);
        while self.first < read && self.free_first_record() {}
        self.reuse_free_places();
    }

    /// Frees the first record. Returns false if the queue has no record.
    fn free_first_record(&mut self) -> bool {
        let Some(record) = self
            .records
            .get_mut(self.nr_free_places)
            .and_then(Option::take)
        else {
            return false;
        };
        self.bytes = self.bytes.wrapping_sub(record.bytes());
        self.nr_free_places = self.nr_free_places.wrapping_add(1);
        self.first = self.first.wrapping_add(1);
        true
    }

    /// Moves the records to the front of the queue if at least half of the places are free.
    fn reuse_free_places(&mut self) {
        if self.is_empty() {
            self.records = KVVec::new();
            self.nr_free_places = 0;
        } else if self.nr_free_places >= MIN_FREE_PLACES_TO_REUSE
            && self.nr_free_places >= self.records.len() / 2
        {
            let free = core::mem::take(&mut self.nr_free_places);
            let nr = self.records.len().wrapping_sub(free);
            // Unlike `rotate_left` and `truncate`, these loops cannot panic.
            for to in 0..nr {
                let from = to.wrapping_add(free);
                let record = self.records.get_mut(from).and_then(Option::take);
                if let Some(place) = self.records.get_mut(to) {
                    *place = record;
                }
            }
            while self.records.len() > nr {
                self.records.pop();
            }
        }
    }
}
