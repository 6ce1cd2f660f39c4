// SPDX-License-Identifier: GPL-2.0

//! Tests the ring against a model: the list of all written records. The tests use all four kinds of
//! rings, with 2 to 64 words. Some positions are near the wrap at 2^64.
#![cfg(not(loom))]

use std::collections::VecDeque;

use proptest::prelude::*;
use protocols::ring::{
    read_record, read_ring_head, release_records_up_to, ReadResult, RingStatePage, RingWriter,
    SharedRing, WriteResult, BACKWARD, OVERWRITE, RECORD_LOST,
};
use protocols::sync::Word;

const SAMPLE_KIND: u16 = 1;
const GUARD_VALUE: u64 = 0x00ca_9a47_00ca_9a47;
/// Number of guard words before and after the ring's data, which must not change.
const GUARD_WORDS: usize = 64;

/// A record that the reader should return: its kind, and its words without the header.
type Record = (u16, Vec<u64>);

/// A ring with its writer, and the model of the ring, which is the list of all written records.
struct TestRing {
    page: RingStatePage,
    tail: Word,
    memory: Vec<Word>,
    words: usize,
    flags: u32,
    writer: RingWriter,
    begin: u64,
    head: u64,
    /// Position and contents of each written record, the oldest first.
    written_records: Vec<(u64, Record)>,
    written: u64,
    kept: u64,
    lost: u64,
    unreported_lost: u64,
    paused: bool,
    serial: u64,
}

impl TestRing {
    fn new(flags: u32, words: usize, begin: u64) -> Self {
        let canaries = || (0..GUARD_WORDS).map(|_| Word::new(GUARD_VALUE));
        let data = (0..words).map(|_| Word::new(0));
        let page = RingStatePage::new();
        let bytes = words as u64 * 8;
        page.init(flags, 4096, bytes);
        let mut bench = Self {
            page,
            tail: Word::new(begin),
            memory: canaries().chain(data).chain(canaries()).collect(),
            words,
            flags,
            writer: RingWriter::new(flags, bytes, 0),
            begin,
            head: begin,
            written_records: Vec::new(),
            written: 0,
            kept: 0,
            lost: 0,
            unreported_lost: 0,
            paused: false,
            serial: 0,
        };
        let mut writer = bench.writer;
        writer.begin_at_position(&bench.shared(), begin);
        bench.writer = writer;
        bench
    }

    fn shared(&self) -> SharedRing<'_> {
        SharedRing {
            page: &self.page,
            tail: &self.tail,
            data: &self.memory[GUARD_WORDS..GUARD_WORDS + self.words],
        }
    }

    fn bytes(&self) -> u64 {
        self.words as u64 * 8
    }

    fn backward(&self) -> bool {
        self.flags & BACKWARD != 0
    }

    /// Returns the number of bytes that the writer may write according to the uapi header.
    fn free_bytes(&self) -> u64 {
        if self.flags & OVERWRITE != 0 {
            return self.bytes();
        }
        let tail = self.tail.load_relaxed();
        let (from, to) = match self.backward() {
            false => (tail, self.head),
            true => (self.head, tail),
        };
        let used = to.wrapping_sub(from);
        match used <= self.bytes() {
            true => self.bytes() - used,
            false => 0,
        }
    }

    fn memory_words(&self) -> Vec<u64> {
        self.memory.iter().map(Word::load_relaxed).collect()
    }

    /// Appends a record to the model.
    fn append(&mut self, record: Record) {
        let bytes = 8 + record.1.len() as u64 * 8;
        let at = match self.backward() {
            false => self.head,
            true => self.head.wrapping_sub(bytes),
        };
        self.head = match self.backward() {
            false => self.head.wrapping_add(bytes),
            true => at,
        };
        self.written_records.push((at, record));
    }

    /// Writes a record of this size in words. Checks the result, and checks that no word outside
    /// the record was written.
    fn write(&mut self, words: usize) -> WriteResult {
        let payload: Vec<u64> = (1..words as u64)
            .map(|n| (self.serial << 16).wrapping_add(n))
            .collect();
        self.serial += 1;
        let bytes = words as u64 * 8;
        let lost_record_bytes = if self.unreported_lost != 0 { 16 } else { 0 };
        let (room, before, from) = (self.free_bytes(), self.memory_words(), self.head);
        let is_kept = !self.paused && bytes + lost_record_bytes <= room;

        let mut writer = self.writer;
        let (first, second) = payload.split_at(payload.len() / 2);
        let result = writer.write(&self.shared(), SAMPLE_KIND, &[first, &[], second]);
        self.writer = writer;

        self.written += 1;
        assert_eq!(
            result != WriteResult::Lost,
            is_kept,
            "{words} words, room {room}"
        );
        if is_kept {
            if self.unreported_lost != 0 {
                self.append((RECORD_LOST, vec![self.unreported_lost]));
                self.unreported_lost = 0;
            }
            self.append((SAMPLE_KIND, payload));
            self.kept += 1;
        } else {
            self.lost += 1;
            self.unreported_lost += 1;
        }
        assert_eq!(self.page.lost(), self.lost);
        assert_eq!(self.kept + self.lost, self.written);
        assert_eq!(read_ring_head(&self.shared()), self.head);

        // Check that only words between the old head and the new head have changed.
        let grown = match self.backward() {
            false => self.head.wrapping_sub(from),
            true => from.wrapping_sub(self.head),
        };
        let low = if self.backward() { self.head } else { from };
        let mut may_change = vec![false; before.len()];
        for n in 0..grown / 8 {
            let at = (low / 8).wrapping_add(n) as usize & (self.words - 1);
            may_change[GUARD_WORDS + at] = true;
        }
        let changed = before.iter().zip(self.memory_words()).zip(may_change);
        for (n, ((before, after), may_change)) in changed.enumerate() {
            assert!(may_change || *before == after, "word {n} was written");
        }
        assert!(self.memory_words()[..GUARD_WORDS]
            .iter()
            .all(|w| *w == GUARD_VALUE));
        // Check that the writer has not overwritten words that the reader has not released.
        assert!(
            grown <= room,
            "{grown} bytes were written where {room} may be"
        );
        result
    }

    fn pause(&mut self, paused: bool) {
        self.paused = paused;
        self.page.set_paused(paused);
    }

    /// Returns the words of a record in the model, with its header.
    fn record_words(record: &Record) -> Vec<u64> {
        let size = 8 + record.1.len() as u64 * 8;
        let mut words = vec![size | (u64::from(record.0) << 32)];
        words.extend(&record.1);
        words
    }

    /// Reads the record at the position `at` and compares it with `record`. Also checks that a read
    /// into a buffer that is one word too short returns the size of the record.
    fn check_record_at(&self, head: u64, at: u64, record: &Record) -> u64 {
        let expected = Self::record_words(record);
        let mut to = vec![0; expected.len()];
        let short = read_record(&self.shared(), head, at, &mut to[..expected.len() - 1]);
        assert_eq!(short, ReadResult::TooLong(expected.len()));
        let found = read_record(&self.shared(), head, at, &mut to);
        let (kind, words) = (record.0, expected.len());
        assert_eq!(found, ReadResult::Record { kind, words }, "at {at:#x}");
        assert_eq!(to, expected);
        words as u64 * 8
    }

    /// Reads a whole backward ring, and checks that the reader gets exactly the records that are
    /// not overwritten, newest first.
    fn check_snapshot(&self, head: u64, log: &[(u64, Record)]) {
        let mut at = head;
        let mut left = self.bytes();
        for (position, record) in log.iter().rev() {
            let bytes = 8 + record.1.len() as u64 * 8;
            if bytes > left {
                // The first record that is partly overwritten cannot be read.
                let mut to = vec![0; self.words];
                assert_eq!(
                    read_record(&self.shared(), head, at, &mut to),
                    ReadResult::Overwritten
                );
                return;
            }
            assert_eq!(*position, at);
            at = at.wrapping_add(self.check_record_at(head, at, record));
            left -= bytes;
        }
        let found = read_record(&self.shared(), head, at, &mut vec![0; self.words]);
        match left {
            0 => assert_eq!(found, ReadResult::Overwritten),
            _ => assert_eq!((found, at), (ReadResult::End, self.begin)),
        }
    }
}

/// An operation on a ring.
#[derive(Clone, Debug)]
enum RingStep {
    /// Write a record of this size in words.
    Write(usize),
    /// Read this number of records.
    Read(usize),
    Pause(bool),
    /// Set the tail to any value.
    Tail(u64),
    /// Set the tail to this distance from the head, in bytes.
    TailOffset(i64),
}

fn any_ring_size_and_begin() -> impl Strategy<Value = (usize, u64)> {
    let words = (1u32..7).prop_map(|n| 1usize << n);
    let begin = prop_oneof![
        Just(0u64),
        Just(8),
        (0u64..64).prop_map(|n| n * 8),
        (1u64..64).prop_map(|n| (n * 8).wrapping_neg()),
        any::<u64>().prop_map(|n| n & !7),
    ];
    (words, begin)
}

fn any_record_words() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 1usize..6, 2 => 1usize..20, 1 => 1usize..70]
}

fn any_steps() -> impl Strategy<Value = Vec<RingStep>> {
    let step = prop_oneof![
        6 => any_record_words().prop_map(RingStep::Write),
        3 => (1usize..8).prop_map(RingStep::Read),
        1 => any::<bool>().prop_map(RingStep::Pause),
    ];
    prop::collection::vec(step, 1..120)
}

fn any_hostile_steps() -> impl Strategy<Value = Vec<RingStep>> {
    let step = prop_oneof![
        4 => any_record_words().prop_map(RingStep::Write),
        2 => any::<u64>().prop_map(RingStep::Tail),
        2 => (-600i64..600).prop_map(RingStep::TailOffset),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #[test]
    fn r2_7_forward_ring_with_tail_returns_every_record_in_order(
        (words, begin) in any_ring_size_and_begin(),
        steps in any_steps(),
    ) {
        let mut b = TestRing::new(0, words, begin);
        let mut unread: VecDeque<(u64, Record)> = VecDeque::new();
        let mut at = begin;
        let mut reported_lost = 0;
        for step in steps {
            match step {
                RingStep::Write(words) => {
                    let nr_before = b.written_records.len();
                    b.write(words);
                    unread.extend(b.written_records[nr_before..].iter().cloned());
                }
                RingStep::Pause(paused) => b.pause(paused),
                _ => {
                    let n = match step { RingStep::Read(n) => n, _ => 0 };
                    let head = read_ring_head(&b.shared());
                    for _ in 0..n {
                        let Some((place, record)) = unread.pop_front() else {
                            let found = read_record(&b.shared(), head, at, &mut [0; 64]);
                            assert_eq!(found, ReadResult::End);
                            break;
                        };
                        assert_eq!(place, at);
                        at = at.wrapping_add(b.check_record_at(head, at, &record));
                        if record.0 == RECORD_LOST {
                            reported_lost += record.1[0];
                        }
                        release_records_up_to(&b.shared(), at);
                    }
                }
            }
        }
        // The writer has reported all losses, except those after the last record in the ring.
        let unread = unread.iter().filter(|(_, r)| r.0 == RECORD_LOST);
        let unread: u64 = unread.map(|(_, r)| r.1[0]).sum();
        assert_eq!(reported_lost + unread + b.unreported_lost, b.lost);
    }

    #[test]
    fn r2_7_overwritten_forward_ring_returns_intact_records(
        (words, begin) in any_ring_size_and_begin(),
        steps in any_steps(),
    ) {
        let mut b = TestRing::new(OVERWRITE, words, begin);
        let mut next = 0;
        for step in steps {
            match step {
                RingStep::Write(words) => { b.write(words); }
                RingStep::Pause(paused) => b.pause(paused),
                RingStep::Read(n) => {
                    for _ in 0..n {
                        let head = read_ring_head(&b.shared());
                        let Some((at, record)) = b.written_records.get(next) else { break };
                        if head.wrapping_sub(*at) <= b.bytes() {
                            b.check_record_at(head, *at, record);
                            next += 1;
                        } else {
                            let found = read_record(&b.shared(), head, *at, &mut [0; 64]);
                            assert_eq!(found, ReadResult::Overwritten);
                            // A reader that was overtaken does not know where the next intact
                            // record starts, so it continues at the head.
                            next = b.written_records.len();
                        }
                    }
                }
                _ => {}
            }
        }
    }

    #[test]
    fn r2_3_backward_ring_returns_the_newest_records_that_fit(
        (words, begin) in any_ring_size_and_begin(),
        steps in any_steps(),
    ) {
        let mut b = TestRing::new(BACKWARD | OVERWRITE, words, begin);
        for step in steps {
            match step {
                RingStep::Write(words) => { b.write(words); }
                RingStep::Pause(paused) => b.pause(paused),
                _ => b.check_snapshot(read_ring_head(&b.shared()), &b.written_records),
            }
        }
        b.check_snapshot(read_ring_head(&b.shared()), &b.written_records);
    }

    /// Reads a snapshot after the writer has written more records.
    #[test]
    fn r2_5_old_snapshot_returns_intact_records_only(
        (words, begin) in any_ring_size_and_begin(),
        before in prop::collection::vec(any_record_words(), 1..40),
        after in prop::collection::vec(any_record_words(), 0..10),
    ) {
        let mut b = TestRing::new(BACKWARD | OVERWRITE, words, begin);
        for words in before {
            b.write(words);
        }
        let (old, known) = (read_ring_head(&b.shared()), b.written_records.len());
        for words in after {
            b.write(words);
        }
        let top = b.head.wrapping_add(b.bytes());
        let mut at = old;
        for (place, record) in b.written_records[..known].iter().rev() {
            assert_eq!(*place, at);
            let bytes = 8 + record.1.len() as u64 * 8;
            if top.wrapping_sub(at).wrapping_sub(bytes) > b.bytes() {
                let mut to = vec![0; b.words];
                assert_eq!(read_record(&b.shared(), old, at, &mut to), ReadResult::Overwritten);
                break;
            }
            at = at.wrapping_add(b.check_record_at(old, at, record));
        }
    }

    #[test]
    fn r2_7_backward_ring_with_tail_returns_every_record(
        (words, begin) in any_ring_size_and_begin(),
        steps in any_steps(),
    ) {
        let mut b = TestRing::new(BACKWARD, words, begin);
        let mut nr_consumed = 0;
        // The snapshot that is being read: its head, and the number of records written before it.
        let mut open: Option<(u64, usize)> = None;
        for step in steps {
            match step {
                RingStep::Write(words) => { b.write(words); }
                RingStep::Pause(paused) => b.pause(paused),
                _ => match open.take() {
                    None => open = Some((read_ring_head(&b.shared()), b.written_records.len())),
                    Some((head, known)) => {
                        // The writer has not overwritten the records of the snapshot, because they
                        // are not released yet.
                        let mut at = head;
                        for (place, record) in b.written_records[nr_consumed..known].iter().rev() {
                            assert_eq!(*place, at);
                            at = at.wrapping_add(b.check_record_at(head, at, record));
                        }
                        assert_eq!(at, b.tail.load_relaxed());
                        release_records_up_to(&b.shared(), head);
                        nr_consumed = known;
                    }
                }
            }
        }
    }

    /// A hostile reader stores arbitrary values in the tail. TestRing::write() checks that the
    /// writer writes only free words.
    #[test]
    fn r1_9_hostile_tail_only_causes_lost_records(
        backward in any::<bool>(),
        (words, begin) in any_ring_size_and_begin(),
        steps in any_hostile_steps(),
    ) {
        let mut b = TestRing::new(if backward { BACKWARD } else { 0 }, words, begin);
        for step in steps {
            match step {
                RingStep::Write(words) => {
                    let used = match backward {
                        false => b.head.wrapping_sub(b.tail.load_relaxed()),
                        true => b.tail.load_relaxed().wrapping_sub(b.head),
                    };
                    let result = b.write(words);
                    if used > b.bytes() {
                        assert_eq!(result, WriteResult::Lost, "the tail makes no sense");
                    }
                }
                RingStep::Tail(tail) => b.tail.store_relaxed(tail),
                RingStep::TailOffset(by) => b.tail.store_relaxed(b.head.wrapping_add_signed(by)),
                _ => {}
            }
        }
        // After the tail has become valid again, the writer must write records again.
        b.tail.store_relaxed(b.head);
        let fits = b.words >= 4 || b.unreported_lost == 0;
        assert_eq!(b.write(2) != WriteResult::Lost, fits);
    }

    #[test]
    fn r2_5_read_of_hostile_memory_causes_no_panic(
        fields in prop::collection::vec(any_number(), 6),
        flags in 0u32..4,
        data in prop::collection::vec(any_number(), 0..70),
        room in 0usize..70,
    ) {
        let page = RingStatePage::new();
        page.init(flags, 4096, fields[0]);
        // A hostile writer stores arbitrary head and reserve positions.
        let mut hostile = RingWriter::new(flags | OVERWRITE, fields[1], 0);
        let nowhere = SharedRing { page: &page, tail: &Word::new(fields[3]), data: &[][..] };
        hostile.begin_at_position(&nowhere, fields[2]);
        hostile.write(&nowhere, SAMPLE_KIND, &[&[1, 2, 3]]);
        let data: Vec<Word> = data.into_iter().map(Word::new).collect();
        let ring = SharedRing { page: &page, tail: &Word::new(fields[3]), data: &data[..] };
        for (head, mut at) in [
            (read_ring_head(&ring), fields[4]),
            (fields[5], fields[4]),
            (fields[4], fields[4]),
        ] {
            let mut to = vec![GUARD_VALUE; 80];
            // Like every reader, the loop reads at most as many records as the ring has words.
            for n in 0.. {
                assert!(n <= data.len() + 1, "it does not end");
                let found = read_record(&ring, head, at, &mut to[..room]);
                assert!(to[room..].iter().all(|w| *w == GUARD_VALUE));
                let ReadResult::Record { words, .. } = found else { break };
                assert!(words > 0 && words <= room && words <= data.len());
                assert_eq!(to[0] & 0xffff_ffff, words as u64 * 8);
                at = at.wrapping_add(words as u64 * 8);
            }
        }
    }
}

/// Generates small numbers, sizes, record headers, negative numbers, and arbitrary numbers.
fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..100,
        (0u64..100).prop_map(|n| n * 8),
        (0u64..70).prop_map(|n| (n * 8) | (1 << 32)),
        (0u64..600).prop_map(u64::wrapping_neg),
        any::<u64>(),
    ]
}

#[test]
fn r1_9_reader_is_woken_at_the_watermark_and_before_full() {
    use WriteResult::{Due, Full, Kept, Lost};
    let page = RingStatePage::new();
    let data: Vec<Word> = (0..16).map(|_| Word::new(0)).collect();
    let tail = Word::new(0);
    let ring = SharedRing {
        page: &page,
        tail: &tail,
        data: &data[..],
    };
    let mut write = RingWriter::new(0, 128, 64);
    let mut write = |words: usize| write.write(&ring, SAMPLE_KIND, &[&[7; 16][1..words]]);
    assert_eq!([4, 3, 1].map(&mut write), [Kept, Kept, Due]);
    assert_eq!(write(4), Kept);
    // After a record of 3 words there is no room for a second record of 3 words.
    assert_eq!([3, 2].map(&mut write), [Due, Lost]);
    release_records_up_to(&ring, 120);
    // The LOST record adds 16 bytes to the bytes that count towards the watermark.
    assert_eq!([2, 4].map(&mut write), [Kept, Due]);

    // If the watermark exceeds the free part of the ring, the first loss wakes the reader.
    let mut late = RingWriter::new(0, 128, 128);
    page.init(0, 0, 128);
    tail.store_relaxed(0);
    let mut write_late = |words: usize| late.write(&ring, SAMPLE_KIND, &[&[7; 16][1..words]]);
    assert_eq!(
        [4, 4, 12, 12].map(&mut write_late),
        [Kept, Kept, Full, Lost]
    );

    // If the records that fit into the ring have fewer bytes than the watermark, the write of the
    // last record that fits wakes the reader.
    let mut write = RingWriter::new(BACKWARD, 128, 128);
    page.init(BACKWARD, 0, 128);
    tail.store_relaxed(0);
    let mut write = |words: usize| write.write(&ring, SAMPLE_KIND, &[&[7; 16][1..words]]);
    assert_eq!([5, 5, 5].map(&mut write), [Kept, Kept, Due]);
}

#[test]
fn r2_4_paused_ring_counts_all_records_as_lost() {
    for flags in 0..4 {
        let mut b = TestRing::new(flags, 16, 0);
        b.write(3);
        b.pause(true);
        for _ in 0..5 {
            assert_eq!(b.write(3), WriteResult::Lost);
        }
        b.pause(false);
        assert_eq!(b.write(3), WriteResult::Kept);
        let kinds: Vec<_> = b.written_records.iter().map(|(_, r)| r.clone()).collect();
        assert_eq!(kinds[1], (RECORD_LOST, vec![5]));
        assert_eq!((b.kept, b.lost, b.unreported_lost), (2, 5, 0));
    }
}
