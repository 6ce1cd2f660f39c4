// SPDX-License-Identifier: GPL-2.0

//! Tests the reader with the writer of the kernel: in forward and backward rings, in wrapped,
//! overwritten and full rings, and while the writer writes.

use std::sync::atomic::{AtomicBool, Ordering};

use perfmon::ring::{self, Reader, Record, RingArgument, Sample};
use protocols::ring::{RingStatePage, RingWriter, SharedRing, WriteResult, BACKWARD, OVERWRITE};
use protocols::sync::Word;

struct RingMemory {
    page: RingStatePage,
    tail: Word,
    data: Vec<Word>,
}

impl RingMemory {
    fn new(flags: u32, words: usize) -> Self {
        let page = RingStatePage::new();
        page.init(flags, 4096, words as u64 * 8);
        Self {
            page,
            tail: Word::new(0),
            data: (0..words).map(|_| Word::new(0)).collect(),
        }
    }

    fn shared(&self) -> SharedRing<'_> {
        SharedRing {
            page: &self.page,
            tail: &self.tail,
            data: &self.data,
        }
    }

    fn writer(&self, flags: u32) -> RingWriter {
        RingWriter::new(flags, self.data.len() as u64 * 8, 0)
    }

    /// Reads all new records, and returns their numbers: see [`record_numbers`].
    fn read_numbers(&self, reader: &mut Reader) -> Vec<u64> {
        record_numbers(reader.records(self.shared()))
    }
}

/// record_numbers() adds this number to a count of lost records, so that the sum differs from the
/// number of every record.
const LOST_COUNT_OFFSET: u64 = 1 << 40;

/// Returns, for each record, the number that the record contains. For a record that reports losses,
/// returns `LOST_COUNT_OFFSET` plus the number of lost records.
fn record_numbers(records: impl Iterator<Item = Record>) -> Vec<u64> {
    records
        .map(|record| match record {
            Record::Other { kind: 9, words } => {
                // write_numbered_record() stores the number in all words, so all words of an intact
                // record are equal.
                assert!(words.iter().all(|w| *w == words[0]), "torn: {words:?}");
                words[0]
            }
            Record::Lost(n) => LOST_COUNT_OFFSET + n,
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Writes a record with the number `n`. The length of the record depends on `n`, so that records
/// also wrap around the end of the data.
fn write_numbered_record(writer: &mut RingWriter, memory: &RingMemory, n: u64) -> WriteResult {
    let words = vec![n; 1 + (n % 5) as usize];
    writer.write(&memory.shared(), 9, &[&words])
}

#[test]
fn r1_9_sample_throttle_and_exec_records_are_parsed() {
    let memory = RingMemory::new(0, 64);
    let mut writer = memory.writer(0);
    let fixed = [
        0x1000,
        7 | (8 << 32),
        99,
        256 | (2 << 16) | (3 << 32),
        0_u64.wrapping_sub(500),
        4,
        2 | (3 << 32),
    ];
    writer.write(
        &memory.shared(),
        1,
        &[
            &fixed,
            &[11, 12],
            &[ring::USER_STACK_MARKER, 0x1000, 0x2000],
        ],
    );
    writer.write(&memory.shared(), 3, &[&[5]]);
    writer.write(&memory.shared(), 4, &[&[6]]);
    writer.write(&memory.shared(), 5, &[&[7]]);
    // Write an invalid sample: its fields require more words than its record has.
    writer.write(&memory.shared(), 1, &[&fixed]);
    let mut reader = Reader::new(&memory.shared());
    let all: Vec<Record> = reader.records(memory.shared()).collect();
    let sample = Sample {
        ip: 0x1000,
        pid: 7,
        tid: 8,
        time: 99,
        pmd: 256,
        set: 2,
        cpu: 3,
        last_reset: 0_u64.wrapping_sub(500),
        eventid: 4,
        values: vec![11, 12],
        frames: vec![ring::USER_STACK_MARKER, 0x1000, 0x2000],
    };
    assert_eq!(sample.period(), 500);
    assert_eq!(all[0], Record::Sample(sample));
    assert_eq!(all[1..3], [Record::Throttle(5), Record::Unthrottle(6)]);
    assert_eq!(all[3], Record::Exec(7));
    assert!(matches!(all[4], Record::Other { kind: 1, .. }));
    assert_eq!(all.len(), 5);
}

#[test]
fn r1_9_forward_ring_returns_each_record_across_wraps() {
    let memory = RingMemory::new(0, 16);
    let (mut writer, mut reader) = (memory.writer(0), Reader::new(&memory.shared()));
    let mut numbers = Vec::new();
    for n in 0..1000 {
        let written = write_numbered_record(&mut writer, &memory, n);
        assert_eq!(written, WriteResult::Kept);
        if n % 2 == 0 {
            numbers.extend(memory.read_numbers(&mut reader));
        }
    }
    numbers.extend(memory.read_numbers(&mut reader));
    assert_eq!(numbers, (0..1000).collect::<Vec<u64>>());
    assert!(!reader.has_found_invalid_record());
}

#[test]
fn r1_9_lost_records_are_reported_before_the_next_record() {
    let memory = RingMemory::new(0, 16);
    let (mut writer, mut reader) = (memory.writer(0), Reader::new(&memory.shared()));
    let kept = (0..10)
        .filter(|_| write_numbered_record(&mut writer, &memory, 0) == WriteResult::Kept)
        .count();
    assert_eq!((kept, memory.page.lost()), (8, 2));
    assert_eq!(memory.read_numbers(&mut reader), [0; 8]);
    write_numbered_record(&mut writer, &memory, 1);
    let expected = [LOST_COUNT_OFFSET + 2, 1];
    assert_eq!(memory.read_numbers(&mut reader), expected);
}

#[test]
fn r1_9_unread_record_stays_in_the_ring() {
    let memory = RingMemory::new(0, 16);
    let (mut writer, mut reader) = (memory.writer(0), Reader::new(&memory.shared()));
    for _ in 0..8 {
        write_numbered_record(&mut writer, &memory, 0);
    }
    assert!(reader.records(memory.shared()).next().is_some());
    let mut write = || write_numbered_record(&mut writer, &memory, 0);
    assert_eq!([write(), write()], [WriteResult::Kept, WriteResult::Lost]);
    assert_eq!(reader.records(memory.shared()).count(), 8);
}

#[test]
fn r1_9_a_new_reader_continues_at_the_tail() {
    for flags in [0, BACKWARD] {
        let memory = RingMemory::new(flags, 16);
        let mut writer = memory.writer(flags);
        let read = || record_numbers(Reader::new(&memory.shared()).records(memory.shared()));
        let mut numbers = Vec::new();
        // After several readers, the ring has wrapped: position 0 is the middle of a record.
        for n in 0..100 {
            let written = write_numbered_record(&mut writer, &memory, n);
            assert_eq!(written, WriteResult::Kept);
            numbers.extend(read());
        }
        assert_eq!(numbers, (0..100).collect::<Vec<u64>>(), "flags {flags}");
    }
}

#[test]
fn r2_1_backward_ring_returns_oldest_records_first() {
    let memory = RingMemory::new(BACKWARD | OVERWRITE, 32);
    let mut writer = memory.writer(BACKWARD | OVERWRITE);
    let mut reader = Reader::new(&memory.shared());
    assert_eq!(memory.read_numbers(&mut reader), []);
    for n in 0..4 {
        write_numbered_record(&mut writer, &memory, n);
    }
    assert_eq!(memory.read_numbers(&mut reader), [0, 1, 2, 3]);
    // A second call returns only records that were written since the first call.
    assert_eq!(memory.read_numbers(&mut reader), []);
    write_numbered_record(&mut writer, &memory, 4);
    assert_eq!(memory.read_numbers(&mut reader), [4]);
}

#[test]
fn r2_3_backward_ring_returns_all_intact_records_after_a_wrap() {
    for last in 5..200 {
        let memory = RingMemory::new(BACKWARD | OVERWRITE, 32);
        let mut writer = memory.writer(BACKWARD | OVERWRITE);
        for n in 0..=last {
            write_numbered_record(&mut writer, &memory, n);
        }
        let numbers = record_numbers(Reader::new(&memory.shared()).records(memory.shared()));
        // The expected records are the newest records that fit into the ring.
        let mut words = 0;
        let fit = |n: &u64| {
            words += 2 + n % 5;
            words <= 32
        };
        let mut expected: Vec<u64> = (0..=last).rev().take_while(fit).collect();
        expected.reverse();
        assert_eq!(numbers, expected);
    }
}

#[test]
fn r2_7_backward_ring_without_overwrite_frees_read_records() {
    let memory = RingMemory::new(BACKWARD, 16);
    let (mut writer, mut reader) = (memory.writer(BACKWARD), Reader::new(&memory.shared()));
    for _ in 0..9 {
        write_numbered_record(&mut writer, &memory, 0);
    }
    assert_eq!(memory.page.lost(), 1);
    assert_eq!(memory.read_numbers(&mut reader), [0; 8]);
    write_numbered_record(&mut writer, &memory, 1);
    let expected = [LOST_COUNT_OFFSET + 1, 1];
    assert_eq!(memory.read_numbers(&mut reader), expected);
}

#[test]
fn r2_7_reader_of_an_overwritten_forward_ring_skips_to_the_head() {
    let memory = RingMemory::new(OVERWRITE, 16);
    let (mut writer, mut reader) = (memory.writer(OVERWRITE), Reader::new(&memory.shared()));
    for n in 0..3 {
        write_numbered_record(&mut writer, &memory, n);
    }
    assert_eq!(memory.read_numbers(&mut reader), [0, 1, 2]);
    assert_eq!(reader.nr_skips(), 0);
    // 20 records have 80 words: five times the size of the ring.
    for n in 0..20 {
        write_numbered_record(&mut writer, &memory, n);
    }
    assert_eq!(memory.read_numbers(&mut reader), []);
    assert_eq!(reader.nr_skips(), 1);
    write_numbered_record(&mut writer, &memory, 20);
    assert_eq!(memory.read_numbers(&mut reader), [20]);
    assert_eq!(
        (reader.nr_skips(), reader.has_found_invalid_record()),
        (1, false)
    );
}

#[test]
fn r2_5_invalid_record_breaks_the_reader() {
    let memory = RingMemory::new(0, 16);
    let mut writer = memory.writer(0);
    write_numbered_record(&mut writer, &memory, 0);
    memory.data[0].store_relaxed(3);
    let mut reader = Reader::new(&memory.shared());
    assert_eq!(reader.records(memory.shared()).count(), 0);
    assert!(reader.has_found_invalid_record());
}

#[test]
fn r2_5_reader_returns_no_torn_record_during_writes() {
    for flags in [0, OVERWRITE, BACKWARD, BACKWARD | OVERWRITE] {
        let memory = RingMemory::new(flags, 64);
        let (writer_done, has_read) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = memory.writer(flags);
                // Continue to write until the reader has read a record: on a busy machine the
                // reader may not be scheduled for a long time.
                for n in 0..1_000_000_000 {
                    if n > 200_000 && has_read.load(Ordering::Acquire) {
                        break;
                    }
                    write_numbered_record(&mut writer, &memory, n);
                }
                writer_done.store(true, Ordering::Release);
            });
            let mut reader = Reader::new(&memory.shared());
            let (mut last, mut nr_records) = (None, 0);
            loop {
                let ended = writer_done.load(Ordering::Acquire);
                for n in memory.read_numbers(&mut reader) {
                    if n < LOST_COUNT_OFFSET {
                        assert!(last < Some(n), "{n} after {last:?}");
                        (last, nr_records) = (Some(n), nr_records + 1);
                    }
                }
                assert!(!reader.has_found_invalid_record(), "flags {flags}");
                has_read.store(nr_records > 0, Ordering::Release);
                if ended {
                    break;
                }
            }
            assert!(nr_records > 0, "flags {flags}");
            assert!(
                flags == OVERWRITE || reader.nr_skips() == 0,
                "flags {flags}"
            );
        });
    }
}

#[test]
fn r1_9_ring_argument_has_the_layout_of_the_kernel() {
    let argument = RingArgument {
        size: 0x10000,
        flags: BACKWARD | OVERWRITE,
        watermark: 5,
        fields: ring::FIELD_USER_STACK,
        max_frames: 7,
    };
    let bytes = argument.to_bytes();
    assert_eq!(bytes[..8], 0x10000_u64.to_ne_bytes());
    assert_eq!(
        bytes[8..24],
        [3, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0]
    );
    assert_eq!(bytes[24..], [0; 40]);
}
