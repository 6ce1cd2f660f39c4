// SPDX-License-Identifier: GPL-2.0

//! Tests the ring with a writer and a reader on two real threads.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicBool, Ordering};

use protocols::ring::{
    read_record, read_ring_head, release_records_up_to, ReadResult, RingStatePage, RingWriter,
    SharedRing, WriteResult, BACKWARD, OVERWRITE, RECORD_LOST,
};
use protocols::sync::Word;

const SAMPLE_KIND: u16 = 1;

/// Flags by which the reader and the writer of a test signal each other to end.
#[derive(Default)]
struct StopFlags {
    /// Set when the reader has read enough records, so that the writer may end.
    enough: AtomicBool,
    /// Set when the writer has ended.
    done: AtomicBool,
}

/// Runs a writer and a reader on two real threads, with far more records than in a test with loom.
/// The writer writes at least `records` records, and then continues until the reader has read
/// enough records. Otherwise the writer could end before a loaded machine schedules the reader.
fn run_writer_and_reader_threads(
    flags: u32,
    records: u64,
    mut reader: impl FnMut(&SharedRing<'_>, &StopFlags),
) {
    let page = RingStatePage::new();
    let data: Vec<Word> = (0..64).map(|_| Word::new(0)).collect();
    page.init(flags, 4096, 512);
    let tail = Word::new(0);
    let ring = SharedRing {
        page: &page,
        tail: &tail,
        data: &data[..],
    };
    let ends = StopFlags::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = RingWriter::new(flags, 512, 0);
            let (mut kept, mut n) = (0, 0u64);
            while kept < records || !ends.enough.load(Ordering::Relaxed) {
                n += 1;
                let payload = [n; 12];
                let words = 1 + (n * 7 % 12) as usize;
                match writer.write(&ring, SAMPLE_KIND, &[&payload[..words]]) {
                    WriteResult::Lost => std::thread::yield_now(),
                    _ => kept += 1,
                }
            }
            assert_eq!(kept + page.lost(), n);
            ends.done.store(true, Ordering::Release);
        });
        reader(&ring, &ends);
    });
}

/// Returns true if the long form of the test runs (`LONG`, see Documentation/testing.md).
fn is_long_run() -> bool {
    std::env::var_os("LONG").is_some_and(|value| !value.is_empty())
}

/// Checks that a record was written by `run_writer_and_reader_threads` and is not torn, and returns
/// the number of the record.
fn intact_record_number(copied: &[u64]) -> u64 {
    let n = copied[1];
    assert!(copied[1..].iter().all(|w| *w == n), "torn: {copied:?}");
    assert_eq!(copied.len() as u64, 2 + n * 7 % 12, "torn: {copied:?}");
    n
}

#[test]
fn r2_5_reader_accepts_no_torn_record_during_writes() {
    let records = if is_long_run() { 300_000 } else { 60_000 };
    run_writer_and_reader_threads(BACKWARD | OVERWRITE, records, |ring, ends| {
        let mut to = [0; 64];
        let mut nr_records = 0u64;
        while !ends.done.load(Ordering::Acquire) {
            let head = read_ring_head(ring);
            let mut at = head;
            let mut newer = u64::MAX;
            while let ReadResult::Record { kind, words } = read_record(ring, head, at, &mut to) {
                assert_eq!(kind, SAMPLE_KIND);
                let n = intact_record_number(&to[..words]);
                assert!(newer == u64::MAX || newer == n + 1);
                (newer, nr_records) = (n, nr_records + 1);
                at = at.wrapping_add(words as u64 * 8);
            }
            ends.enough.store(nr_records >= 1000, Ordering::Relaxed);
        }
        assert!(nr_records >= 1000);
    });
}

#[test]
fn r2_7_reader_gets_every_record_during_writes() {
    let records = if is_long_run() { 100_000 } else { 20_000 };
    run_writer_and_reader_threads(0, records, |ring, ends| {
        let mut to = [0; 64];
        let (mut at, mut last) = (0u64, 0);
        // The writer may end as soon as it has written `records` records. The writer cannot write
        // all records before the reader runs, because a full ring gets room only when the reader
        // reads.
        ends.enough.store(true, Ordering::Relaxed);
        loop {
            let ended = ends.done.load(Ordering::Acquire);
            let head = read_ring_head(ring);
            while at != head {
                let ReadResult::Record { kind, words } = read_record(ring, head, at, &mut to)
                else {
                    panic!("a record is not there");
                };
                // If the sequence of record numbers has a gap, a LOST record must have the number
                // of missing records.
                last += match kind {
                    RECORD_LOST => to[1],
                    _ => {
                        assert_eq!(intact_record_number(&to[..words]), last + 1);
                        1
                    }
                };
                at = at.wrapping_add(words as u64 * 8);
                release_records_up_to(ring, at);
            }
            if ended {
                break;
            }
            std::thread::yield_now();
        }
    });
}
