// SPDX-License-Identifier: GPL-2.0

//! Tests of the ring's writer and reader. The memory accesses are executed in every order that the
//! memory model allows. `loom.rs` describes how to run tests with loom, and what loom does not
//! explore. The tests use the writer and the reader of the modules. In this code, no thread loads a
//! word that it stores to.
//!
//! The rings have four words, and each test writes only a few records. Each word of a ring is
//! overwritten at least once.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use protocols::ring::{
    read_record, read_ring_head, release_records_up_to, ReadResult, RingStatePage, RingWriter,
    SharedRing, WriteResult, BACKWARD, OVERWRITE, RECORD_LOST,
};
use protocols::sync::Word;

const RING_WORDS: usize = 4;
const RING_BYTES: u64 = 8 * RING_WORDS as u64;
const SAMPLE_KIND: u16 = 1;
const MAX_PREEMPTIONS: usize = 4;

fn run_in_loom(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(MAX_PREEMPTIONS);
    builder.check(f);
}

struct Ring {
    page: RingStatePage,
    tail: Word,
    data: [Word; RING_WORDS],
    flags: u32,
}

impl Ring {
    fn new(flags: u32) -> Arc<Self> {
        let page = RingStatePage::new();
        page.init(flags, 0, RING_BYTES);
        Arc::new(Self {
            page,
            tail: Word::new(0),
            data: std::array::from_fn(|_| Word::new(0)),
            flags,
        })
    }

    fn shared(&self) -> SharedRing<'_> {
        SharedRing {
            page: &self.page,
            tail: &self.tail,
            data: &self.data,
        }
    }

    /// Writes a record for each size in `records`; sizes are in words. Each word after the header
    /// of a record is the number of the record, from 1 on. Returns the number of lost records.
    fn write(&self, records: &[usize]) -> u64 {
        let mut writer = RingWriter::new(self.flags, RING_BYTES, 0);
        let mut lost = 0;
        for (n, words) in (1..).zip(records) {
            let payload = [n; RING_WORDS];
            let result = writer.write(&self.shared(), SAMPLE_KIND, &[&payload[..words - 1]]);
            lost += u64::from(result == WriteResult::Lost);
        }
        lost
    }
}

/// Checks that a record is one of `records` and not torn, and returns the number of the record.
fn check_record(copied: &[u64], records: &[usize]) -> u64 {
    let n = copied[1];
    let size = records.get(n as usize - 1).copied();
    assert_eq!(Some(copied.len()), size, "of another size");
    assert_eq!(
        copied[0],
        8 * copied.len() as u64 | (1 << 32),
        "another header"
    );
    assert!(copied[1..].iter().all(|w| *w == n), "torn: {copied:?}");
    n
}

/// Takes snapshots of a backward ring. A snapshot must consist of whole records, newest first and
/// without gaps, and must not contain a record that is newer than the head.
fn check_backward_snapshots(records: &'static [usize]) {
    run_in_loom(move || {
        let ring = Ring::new(BACKWARD | OVERWRITE);
        let writer_thread = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.write(records))
        };
        let take_snapshot = || {
            let mut to = [0; RING_WORDS];
            let head = read_ring_head(&ring.shared());
            // Because the sizes of the records are known, the head determines how many records were
            // written before the head was stored.
            let mut up_to = 0;
            let mut nr_written = 0;
            for words in records {
                if up_to < head.wrapping_neg() {
                    up_to += 8 * *words as u64;
                    nr_written += 1;
                }
            }
            assert_eq!(up_to, head.wrapping_neg(), "a head in a record");
            let (mut at, mut newer) = (head, nr_written + 1);
            let end = loop {
                match read_record(&ring.shared(), head, at, &mut to) {
                    ReadResult::Record { words, kind } => {
                        assert_eq!(kind, SAMPLE_KIND);
                        assert_eq!(check_record(&to[..words], records), newer - 1);
                        newer -= 1;
                        at = at.wrapping_add(8 * words as u64);
                    }
                    end => break end,
                }
            };
            assert!(
                matches!(end, ReadResult::Overwritten | ReadResult::End),
                "{end:?}"
            );
            (nr_written, nr_written + 1 - newer)
        };
        take_snapshot();
        writer_thread.join().expect("the writer ends");
        // After the writer has ended, the snapshot holds the newest records that fit into the ring.
        let mut left = RING_WORDS;
        let fit = records.iter().rev().take_while(|words| {
            let fits = **words <= left;
            left = left.saturating_sub(**words);
            fits
        });
        assert_eq!(take_snapshot(), (records.len() as u64, fit.count() as u64));
    });
}

#[test]
fn r2_5_backward_records_of_one_size() {
    check_backward_snapshots(&[2, 2, 2, 2]);
}

#[test]
fn r2_5_backward_records_across_the_end() {
    check_backward_snapshots(&[3, 3, 2]);
}

#[test]
fn r2_5_backward_small_record_over_a_large_one() {
    check_backward_snapshots(&[4, 2, 3]);
}

/// Checks that a consumer of a forward ring gets all records that were not lost, whole and in
/// order, and the number of lost records. The consumer reads `nr_reads` times while the writer
/// writes.
fn check_forward_consumer(records: &'static [usize], nr_reads: usize) {
    run_in_loom(move || {
        let ring = Ring::new(0);
        let writer_thread = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.write(records))
        };
        let (mut at, mut last, mut reported_lost) = (0u64, 0, 0);
        let mut consume = || {
            let mut to = [0; RING_WORDS];
            let head = read_ring_head(&ring.shared());
            while at != head {
                let found = read_record(&ring.shared(), head, at, &mut to);
                let ReadResult::Record { words, kind } = found else {
                    panic!("{found:?} where a record must be");
                };
                match kind {
                    RECORD_LOST => {
                        assert_eq!((words, to[0]), (2, 16 | (2 << 32)));
                        last += to[1];
                        reported_lost += to[1];
                    }
                    _ => {
                        assert_eq!(check_record(&to[..words], records), last + 1);
                        last += 1;
                    }
                }
                at = at.wrapping_add(8 * words as u64);
                release_records_up_to(&ring.shared(), at);
            }
            (last, reported_lost)
        };
        for _ in 0..nr_reads {
            consume();
        }
        let lost = writer_thread.join().expect("the writer ends");
        let (last, reported_lost) = consume();
        let all = records.len() as u64;
        // Losses after the last record in the ring are counted, but the writer reports them only
        // with its next record.
        assert_eq!(all - last, lost - reported_lost);
        assert_eq!(lost, ring.page.lost());
    });
}

#[test]
fn r2_7_forward_with_a_tail_records_of_one_size() {
    check_forward_consumer(&[2, 2, 2, 2], 2);
}

#[test]
fn r2_7_forward_with_a_tail_records_across_the_end() {
    check_forward_consumer(&[3, 3, 2], 2);
}

/// Checks a consumer of a backward ring. The consumer runs three times. In each run, the consumer
/// reads from the newest record back to the records that it has already read.
fn check_backward_consumer(records: &'static [usize]) {
    run_in_loom(move || {
        let ring = Ring::new(BACKWARD);
        let writer_thread = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.write(records))
        };
        let (mut tail, mut last, mut nr_read) = (0u64, 0, 0);
        let mut consume = || {
            let mut to = [0; RING_WORDS];
            let head = read_ring_head(&ring.shared());
            let (mut at, mut newest) = (head, None);
            while at != tail {
                let found = read_record(&ring.shared(), head, at, &mut to);
                let ReadResult::Record { words, kind } = found else {
                    panic!("{found:?} where a record must be");
                };
                if kind == SAMPLE_KIND {
                    let n = check_record(&to[..words], records);
                    assert!(n > last, "an old one");
                    newest = newest.or(Some(n));
                    nr_read += 1;
                }
                at = at.wrapping_add(8 * words as u64);
            }
            last = newest.unwrap_or(last);
            tail = head;
            release_records_up_to(&ring.shared(), tail);
            nr_read
        };
        consume();
        consume();
        let lost = writer_thread.join().expect("the writer ends");
        assert_eq!(consume() + lost, records.len() as u64);
    });
}

#[test]
fn r2_7_backward_with_a_tail() {
    check_backward_consumer(&[2, 2, 2, 2]);
    check_backward_consumer(&[3, 3, 2]);
}

/// Checks a reader of a forward ring whose writer overwrites unread records. The reader reads one
/// record after the other. When the writer has overtaken the reader, the reader continues at the
/// head.
fn check_overwritten_forward_reader(records: &'static [usize]) {
    run_in_loom(move || {
        let ring = Ring::new(OVERWRITE);
        let writer_thread = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.write(records))
        };
        let mut to = [0; RING_WORDS];
        let (mut at, mut last) = (0u64, 0);
        for _ in 0..2 {
            let head = read_ring_head(&ring.shared());
            while at != head {
                match read_record(&ring.shared(), head, at, &mut to) {
                    ReadResult::Record { words, kind } => {
                        assert_eq!(kind, SAMPLE_KIND);
                        let n = check_record(&to[..words], records);
                        assert!(n > last, "an old one");
                        last = n;
                        at = at.wrapping_add(8 * words as u64);
                    }
                    ReadResult::Overwritten => at = head,
                    other => panic!("{other:?}"),
                }
            }
        }
        writer_thread.join().expect("the writer ends");
    });
}

#[test]
fn r2_5_forward_overwritten_records_of_one_size() {
    check_overwritten_forward_reader(&[2, 2, 2, 2]);
}

#[test]
fn r2_5_forward_overwritten_records_across_the_end() {
    check_overwritten_forward_reader(&[3, 3, 2]);
}
