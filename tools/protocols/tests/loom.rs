// SPDX-License-Identifier: GPL-2.0

//! Tests of four protocols of counter pages: the seqflag, the generations, growth of the file, and
//! revival of instances. The memory accesses are executed in every order that the memory model
//! allows. The model checker loom does not model load buffering, and does not model SeqCst.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p protocols --test loom --release
//! ```
//!
//! The constant MAX_PREEMPTIONS limits the number of preemptions that loom tries.
//! `Documentation/barriers.md` has the run time of these tests.
//!
//! loom 0.7 remembers only the last access to a word. If a thread loads a word before it stores to
//! the word, loom forgets earlier loads by other threads and does not explore some orders. Tests
//! with such a thread did not detect some broken protocols. The writers in this file, except
//! `ChangeWriter::Module`, never load a word: they keep the value of the word in `OwnedWord`.
//! `ChangeWriter::Module` runs the code of the modules.
//!
//! One CPU is the writer. The updates of a task, of an interrupt and of an NMI are nested calls on
//! one thread; the tests try the nested updates at every point where they can occur. Each update
//! adds one to both counters of a group. Another CPU is the reader. A, B, C and D are the steps of
//! the seqflag protocol. Some tests use a protocol in which one of the steps A to D is broken;
//! these tests expect a panic.
#![cfg(loom)]

use std::cell::Cell;

use loom::sync::Arc;
use loom::thread;
use protocols::generation::Generation;
use protocols::seqflag::{completed_updates, is_idle, try_read, BEGIN_INCREMENT, END_INCREMENT};
use protocols::sync::{fence_acquire, fence_release, Word};

/// Maximum number of preemptions that loom tries, which is enough to detect every broken protocol
/// below. With a higher number, tests of nested updates would take hours.
const MAX_PREEMPTIONS: usize = 3;
const MAX_PREEMPTIONS_NESTED: usize = 2;

fn run_in_loom(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

/// Defines tests of broken protocols. Each test runs a model in which loom must find an error.
macro_rules! loom_finds {
    ($($name:ident: $model:expr;)*) => {
        $(
            #[test]
            #[should_panic]
            fn $name() {
                $model;
            }
        )*
    };
}

/// The seqflag of a CPU, and a group of two counters of that CPU.
struct Cpu {
    flag: Word,
    a: Word,
    b: Word,
}

impl Cpu {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            flag: Word::new(0),
            a: Word::new(0),
            b: Word::new(0),
        })
    }
}

/// A word, with a copy of the value that its only writer stored last.
struct OwnedWord<'a> {
    word: &'a Word,
    value: Cell<u64>,
}

impl<'a> OwnedWord<'a> {
    fn new(word: &'a Word) -> Self {
        Self {
            word,
            value: Cell::new(0),
        }
    }

    fn advance(&self, delta: u64) -> u64 {
        self.value.set(self.value.get().wrapping_add(delta));
        self.value.get()
    }

    /// Adds `delta` to the word. On a real CPU, one instruction adds to the word.
    fn add(&self, delta: u64) {
        self.word.store_relaxed(self.advance(delta));
    }

    fn add_release(&self, delta: u64) {
        self.word.store_release(self.advance(delta));
    }
}

/// The defect of a broken writer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriterDefect {
    None,
    NoA,
    NoBarrierAfterA,
    BNotRelease,
    BBeforeValues,
}

/// The words of a CPU, each with the copy of its value that the writer keeps.
struct CpuWriter<'a> {
    flag: OwnedWord<'a>,
    a: OwnedWord<'a>,
    b: OwnedWord<'a>,
}

/// Number of points of an update at which a nested update (an interrupt) can occur.
const NR_UPDATE_POINTS: usize = 5;

/// Makes an update in which other updates are nested. `nested[0]` is the point at which the first
/// nested update occurs.
fn update(cpu: &CpuWriter<'_>, writer: WriterDefect, nested: &[usize]) {
    let interrupt_at = |point: usize| {
        if let Some((first, rest)) = nested.split_first() {
            if *first == point {
                update(cpu, writer, rest);
            }
        }
    };
    interrupt_at(0);
    if writer != WriterDefect::NoA {
        cpu.flag.add(BEGIN_INCREMENT);
    }
    if writer != WriterDefect::NoBarrierAfterA {
        fence_release();
    }
    interrupt_at(1);
    if writer == WriterDefect::BBeforeValues {
        cpu.flag.add(END_INCREMENT);
    }
    cpu.a.add(1);
    interrupt_at(2);
    cpu.b.add(1);
    interrupt_at(3);
    let end = match writer {
        // Adding END_INCREMENT increments the number of completed updates, and decrements the
        // number of updates in flight. The writer without step A has not added BEGIN_INCREMENT, so
        // add BEGIN_INCREMENT together with END_INCREMENT to keep the number of updates in flight
        // at 0.
        WriterDefect::NoA => END_INCREMENT + BEGIN_INCREMENT,
        _ => END_INCREMENT,
    };
    match writer {
        WriterDefect::BBeforeValues => {}
        WriterDefect::BNotRelease => cpu.flag.add(end),
        _ => cpu.flag.add_release(end),
    }
    interrupt_at(4);
}

type CpuCopy = (u64, u64, u64);

fn copy_cpu(cpu: &Cpu) -> CpuCopy {
    let flag = cpu.flag.load_relaxed();
    (flag, cpu.a.load_relaxed(), cpu.b.load_relaxed())
}

fn read_by_protocol(cpu: &Cpu) -> Option<CpuCopy> {
    try_read(&cpu.flag, || copy_cpu(cpu))
}

/// Reads without step C of the seqflag protocol: the loads of the values may be executed before the
/// first load of the flag.
fn read_without_c(cpu: &Cpu) -> Option<CpuCopy> {
    let before = cpu.flag.load_relaxed();
    if !is_idle(before) {
        return None;
    }
    let copied = copy_cpu(cpu);
    fence_acquire();
    (cpu.flag.load_relaxed() == before).then_some(copied)
}

/// Reads without step D of the seqflag protocol: the second load of the flag may be executed before
/// the loads of the values.
fn read_without_d(cpu: &Cpu) -> Option<CpuCopy> {
    let before = cpu.flag.load_acquire();
    if !is_idle(before) {
        return None;
    }
    let copied = copy_cpu(cpu);
    (cpu.flag.load_relaxed() == before).then_some(copied)
}

/// Reads by the protocol of the 2002 proposal: checks that no update is in flight before and after
/// the values are copied. The 2002 protocol does not detect an update that begins after the first
/// check of the flag and completes before the second check.
fn read_without_count(cpu: &Cpu) -> Option<CpuCopy> {
    if !is_idle(cpu.flag.load_acquire()) {
        return None;
    }
    let copied = copy_cpu(cpu);
    fence_acquire();
    is_idle(cpu.flag.load_relaxed()).then_some(copied)
}

/// Runs a writer with nested updates, and concurrently a reader that reads once or twice.
fn race_writer(
    writer: WriterDefect,
    reader: fn(&Cpu) -> Option<CpuCopy>,
    nested: &'static [usize],
) {
    // If two updates are nested, read only once: exploring all orders with a second read takes too
    // long.
    let (preemptions, nr_reads) = match nested.len() {
        0 => (MAX_PREEMPTIONS, 2),
        1 => (MAX_PREEMPTIONS_NESTED, 2),
        _ => (MAX_PREEMPTIONS_NESTED, 1),
    };
    run_in_loom(preemptions, move || {
        let cpu = Cpu::new();
        let writer_thread = {
            let cpu = Arc::clone(&cpu);
            thread::spawn(move || {
                let owner = CpuWriter {
                    flag: OwnedWord::new(&cpu.flag),
                    a: OwnedWord::new(&cpu.a),
                    b: OwnedWord::new(&cpu.b),
                };
                update(&owner, writer, nested);
            })
        };
        let mut last = 0;
        for _ in 0..nr_reads {
            if let Some((flag, a, b)) = reader(&cpu) {
                assert_eq!(a, b, "a group was seen half");
                assert_eq!(
                    completed_updates(flag),
                    a,
                    "the count and the values disagree"
                );
                assert!(a >= last, "time went backwards");
                last = a;
            }
        }
        writer_thread.join().expect("the writer ends");
        // The writer has ended: a read succeeds and returns all updates.
        let (_, a, b) = reader(&cpu).expect("all is quiet");
        let all = 1 + nested.len() as u64;
        assert_eq!((a, b), (all, all));
    });
}

#[test]
fn r0_9_seqflag_reader_sees_no_half_update() {
    race_writer(WriterDefect::None, read_by_protocol, &[]);
}

#[test]
fn r0_8_seqflag_interrupts_nest_at_every_point() {
    for point in 0..NR_UPDATE_POINTS {
        race_writer(
            WriterDefect::None,
            read_by_protocol,
            Box::leak(Box::new([point])),
        );
    }
}

#[test]
fn r0_8_seqflag_nmis_nest_in_interrupts_at_every_point() {
    for interrupt in 0..NR_UPDATE_POINTS {
        for nmi in 0..NR_UPDATE_POINTS {
            race_writer(
                WriterDefect::None,
                read_by_protocol,
                Box::leak(Box::new([interrupt, nmi])),
            );
        }
    }
}

loom_finds! {
    loom_finds_a_missing_begin: race_writer(WriterDefect::NoA, read_by_protocol, &[]);
    loom_finds_a_missing_barrier_after_begin:
        race_writer(WriterDefect::NoBarrierAfterA, read_by_protocol, &[]);
    loom_finds_an_end_that_is_not_a_release:
        race_writer(WriterDefect::BNotRelease, read_by_protocol, &[]);
    loom_finds_an_end_before_the_values:
        race_writer(WriterDefect::BBeforeValues, read_by_protocol, &[]);
    loom_finds_a_reader_without_c: race_writer(WriterDefect::None, read_without_c, &[]);
    loom_finds_a_reader_without_d: race_writer(WriterDefect::None, read_without_d, &[]);
    loom_finds_a_flag_that_does_not_count_updates:
        race_writer(WriterDefect::None, read_without_count, &[]);
}

/// The two generation words in the header of the file, and two words that stand for the
/// descriptors.
struct Header {
    gen1: Word,
    gen2: Word,
    meta: [Word; 2],
}

impl Header {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            gen1: Word::new(0),
            gen2: Word::new(0),
            meta: [Word::new(0), Word::new(0)],
        })
    }

    fn generation(&self) -> Generation<'_> {
        Generation::new(&self.gen1, &self.gen2)
    }
}

/// The code that changes the set of instances: the code of the kernel modules, a copy of this code
/// that uses `OwnedWord`s, or a broken copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChangeWriter {
    Module,
    Correct,
    NoBarrierAfterA,
    BNotRelease,
}

fn change_twice(header: &Header, changer: ChangeWriter) {
    let [gen1, gen2] = [OwnedWord::new(&header.gen1), OwnedWord::new(&header.gen2)];
    let meta = [
        OwnedWord::new(&header.meta[0]),
        OwnedWord::new(&header.meta[1]),
    ];
    for _ in 0..2 {
        if changer == ChangeWriter::Module {
            header.generation().begin_change();
        } else {
            gen1.add(1);
            if changer != ChangeWriter::NoBarrierAfterA {
                fence_release();
            }
        }
        meta[0].add(1);
        meta[1].add(1);
        match changer {
            ChangeWriter::Module => header.generation().end_change(),
            ChangeWriter::BNotRelease => gen2.add(1),
            _ => gen2.add_release(1),
        }
    }
}

/// Makes two changes of the set of instances, concurrently with a reader that reads twice.
fn race_changes(changer: ChangeWriter, enter: fn(&Header) -> u64, holds: fn(&Header, u64) -> bool) {
    run_in_loom(MAX_PREEMPTIONS, move || {
        let header = Header::new();
        let writer_thread = {
            let header = Arc::clone(&header);
            thread::spawn(move || change_twice(&header, changer))
        };
        for _ in 0..2 {
            let entered = enter(&header);
            let copied = [header.meta[0].load_relaxed(), header.meta[1].load_relaxed()];
            if holds(&header, entered) {
                assert_eq!(copied, [entered; 2], "of another generation");
            }
        }
        writer_thread.join().expect("the writer ends");
        let entered = enter(&header);
        assert_eq!(entered, 2);
        assert!(holds(&header, entered));
    });
}

fn enter(h: &Header) -> u64 {
    h.generation().read_begin()
}

fn holds(h: &Header, entered: u64) -> bool {
    h.generation().is_current(entered)
}

#[test]
fn r0_6_generation_checked_copy_is_of_one_generation() {
    race_changes(ChangeWriter::Correct, enter, holds);
    race_changes(ChangeWriter::Module, enter, holds);
}

loom_finds! {
    loom_finds_a_change_without_barrier_after_gen1:
        race_changes(ChangeWriter::NoBarrierAfterA, enter, holds);
    loom_finds_a_gen2_that_is_not_a_release: race_changes(ChangeWriter::BNotRelease, enter, holds);
    loom_finds_an_enter_that_does_not_acquire:
        race_changes(ChangeWriter::Correct, |h| h.gen2.load_relaxed(), holds);
    loom_finds_a_check_of_gen1_without_fence:
        race_changes(ChangeWriter::Correct, enter, |h, entered| {
        h.gen1.load_relaxed() == entered
    });
}

/// Models growth of the file: a writer initializes the two words of a chunk, and then raises the
/// count of chunks. In this model the memory of the chunk exists from the start. A reader that sees
/// the raised count must not see a word that is still uninitialized (0).
fn race_growth(count_last: bool, barrier: bool) {
    const INITIALIZED: u64 = 1;
    run_in_loom(MAX_PREEMPTIONS, move || {
        let words = Arc::new([Word::new(0), Word::new(0), Word::new(0)]);
        let writer_thread = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                let [a, b, count] = &*words;
                if !count_last {
                    count.store_relaxed(1);
                }
                a.store_relaxed(INITIALIZED);
                b.store_relaxed(INITIALIZED);
                if barrier {
                    fence_release();
                }
                if count_last {
                    count.store_relaxed(1);
                }
            })
        };
        let [a, b, count] = &*words;
        if count.load_acquire() == 1 {
            assert_eq!(a.load_relaxed(), INITIALIZED, "counted, and not there");
            assert_eq!(b.load_relaxed(), INITIALIZED, "counted, and not there");
        }
        writer_thread.join().expect("the writer ends");
    });
}

#[test]
fn r0_4_growth_counted_chunk_is_initialized() {
    race_growth(true, true);
}

loom_finds! {
    loom_finds_a_chunk_that_is_counted_before_it_exists: race_growth(false, true);
    loom_finds_a_count_without_barrier: race_growth(true, false);
}

/// The order of the steps that revive a deleted instance: the correct order, or one with a defect.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Revival {
    Correct,
    /// The value is zeroed without waiting for updates in flight to end.
    NoSettle,
    /// The instance is live again before its value is zeroed.
    LiveBeforeZero,
    /// The value is zeroed before the change of generation begins.
    ZeroBeforeChange,
}

/// Models the deletion and the revival of an instance, while two threads update the instance by its
/// number and another thread reads its incarnation and its value.
///
/// Joining a thread models the grace period: all updates of the joined thread have ended after the
/// join. A second thread makes the updates that begin after the deletion.
fn race_revival(revival: Revival) {
    struct Instance {
        header: Header,
        live: Word,
        value: Word,
    }
    /// Models perf_adjust(): stores `delta` if the instance is live. The update that begins before
    /// the deletion stores 10, and the update that begins after the deletion stores 1.
    fn adjust(i: &Instance, delta: u64) -> bool {
        let live = i.live.load_acquire() == 1;
        if live {
            i.value.store_relaxed(delta);
        }
        live
    }
    run_in_loom(MAX_PREEMPTIONS_NESTED, move || {
        let header = Header {
            gen1: Word::new(0),
            gen2: Word::new(0),
            meta: [Word::new(1), Word::new(0)],
        };
        let i = Arc::new(Instance {
            header,
            live: Word::new(1),
            value: Word::new(0),
        });
        let old = {
            let i = Arc::clone(&i);
            thread::spawn(move || adjust(&i, 10))
        };
        let reader_thread = {
            let i = Arc::clone(&i);
            thread::spawn(move || {
                let entered = enter(&i.header);
                let incarnation = i.header.meta[0].load_relaxed();
                let value = i.value.load_relaxed();
                if holds(&i.header, entered) && incarnation == 2 {
                    assert!(value <= 1, "a value of the life before");
                }
            })
        };
        // perf_del() begins here.
        i.live.store_relaxed(0);
        let mut old = Some(old);
        if revival != Revival::NoSettle {
            old.take().map(thread::JoinHandle::join);
        }
        // perf_add() begins here.
        if revival == Revival::LiveBeforeZero {
            i.live.store_release(1);
        }
        let new = {
            let i = Arc::clone(&i);
            thread::spawn(move || adjust(&i, 1))
        };
        if revival == Revival::ZeroBeforeChange {
            i.header.meta[0].store_relaxed(2);
            i.value.store_relaxed(0);
        }
        // Store gen1 without a load: loom misses orders if a writer loads a word that it stores to.
        i.header.gen1.store_relaxed(1);
        fence_release();
        if revival != Revival::ZeroBeforeChange {
            i.header.meta[0].store_relaxed(2);
            i.value.store_relaxed(0);
        }
        // The kernel also executes a write barrier before it publishes a live instance.
        fence_release();
        i.live.store_relaxed(1);
        i.header.gen2.store_release(1);
        let counted = new.join().expect("it ends");
        old.take().map(thread::JoinHandle::join);
        reader_thread.join().expect("the reader ends");
        // All updates have ended. The value is 1 if the update after the deletion found the
        // instance live, and 0 if that update found it dormant. The value is never 10, the value of
        // the update that began before the deletion.
        assert_eq!(i.value.load_relaxed(), u64::from(counted));
    });
}

#[test]
fn r0_10_revival_shows_no_value_of_the_earlier_incarnation() {
    race_revival(Revival::Correct);
}

loom_finds! {
    loom_finds_a_revival_during_updates_in_flight: race_revival(Revival::NoSettle);
    loom_finds_a_revival_that_is_live_before_zeroing: race_revival(Revival::LiveBeforeZero);
    loom_finds_a_revival_outside_of_a_change: race_revival(Revival::ZeroBeforeChange);
}
