// SPDX-License-Identifier: GPL-2.0

//! Tests the events of one thread in the memory of a simulated kernel: the contents of records, and
//! events for which a buffer has no room.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use common::{gettid, marker_number, read_trace_records, run_in_child_process, set_affinity};
use perftrace::event;
use perftrace::simulate::{
    attach_to_simulated_kernel, attached_kernel, SimulatedKernel, SimulatedKernelConfig, FILTERED,
    FLIGHT, LOST_RECORD, WAIT,
};
use protocols::filter::{Step, OP_EQ, OP_GLOB, STEP_ACCEPT, STEP_REJECT};

/// Serialises the tests, which share the process's markers, and moves them to one CPU.
fn lock_simulated_kernel() -> (MutexGuard<'static, ()>, &'static SimulatedKernel) {
    static TEST_LOCK: Mutex<()> = Mutex::new(());
    let guard = TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let kernel = attached_kernel()
        .unwrap_or_else(|| attach_to_simulated_kernel(SimulatedKernelConfig::default()));
    set_affinity(0);
    (guard, kernel)
}

/// Writes events with the numbers from `from` up to, but not including, `to`.
fn write_counted_events(from: u64, to: u64) {
    for n in from..to {
        event!(writer, count, n: u64 = n);
    }
}

/// Returns the number `n` from each of the `records`, which are events that
/// `write_counted_events()` has written.
fn event_numbers(records: &[perftrace::simulate::Record]) -> Vec<u64> {
    records
        .iter()
        .map(|record| record.words_after_header[0])
        .collect()
}

#[test]
fn r3_8_markers_are_registered_before_main_with_their_fields() {
    let (_alone, kernel) = lock_simulated_kernel();
    fn never_called() {
        event!(writer, unused, a: u8 = 1, b: s16 = 2, c: x32 = 3, d: f64 = 4.0, e: str = "5");
    }
    let _ = never_called as fn();
    marker_number(kernel, "writer:unused a:u8 b:s16 c:x32 d:f64 e:str");
}

#[test]
fn r3_1_event_record_has_marker_thread_and_fields() {
    let (_alone, kernel) = lock_simulated_kernel();
    let mut evaluated = 0;
    let mut write_pair = |value: u32| {
        event!(writer, pair, value: u32 = { evaluated += 1; value }, sum: u64 = 0x1122_3344_5566_7788);
    };
    write_pair(1);
    kernel.start_trace(3, 0, 1 << 16);
    write_pair(0xaabb_ccdd);
    kernel.end_trace(3);
    write_pair(3);
    assert_eq!(evaluated, 1);
    let records = read_trace_records(kernel, 3);
    let [record] = &records[..] else {
        panic!("{records:?}")
    };
    let number = marker_number(kernel, "writer:pair value:u32 sum:u64");
    assert_eq!(record.marker, number);
    assert_eq!(record.thread, gettid());
    assert_eq!(
        record.words_after_header,
        [0x5566_7788_aabb_ccdd, 0x1122_3344]
    );
}

#[test]
fn r3_1_fields_of_all_types_are_packed_without_holes() {
    let (_alone, kernel) = lock_simulated_kernel();
    kernel.start_trace(4, 0, 1 << 16);
    for _ in 0..2 {
        event!(writer, none);
        event!(writer, one, a: u8 = 1, b: s8 = -1, c: u16 = 2, d: s32 = -2);
        event!(writer, many, a: u8 = 1, b: x64 = 2, c: f32 = 1.0, d: f64 = 1.0, e: s64 = -1, f: x16 = 7);
        event!(writer, text, a: u16 = 0x4241, s: str = &format!("{}!", 12345), b: u8 = 9, t: str = "");
    }
    kernel.end_trace(4);
    let records = read_trace_records(kernel, 4);
    let payloads: Vec<&[u64]> = records
        .iter()
        .map(|record| &record.words_after_header[..])
        .collect();
    let mut many = vec![1u8];
    many.extend(2u64.to_le_bytes());
    many.extend(1.0f32.to_le_bytes());
    many.extend(1.0f64.to_le_bytes());
    many.extend((-1i64).to_le_bytes());
    many.extend([7, 0, 0]);
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    let many: Vec<u64> = many.chunks(8).map(word).collect();
    let text = [u64::from_le_bytes(*b"AB12345!"), 0x00_09_00];
    for four in payloads.chunks(4) {
        assert_eq!(four[0], []);
        assert_eq!(four[1], [0xffff_fffe_0002_ff01]);
        assert_eq!(four[2], many);
        assert_eq!(four[3], text);
    }
    assert_eq!(payloads.len(), 8);
}

#[test]
fn r3_2_texts_that_are_too_long_are_truncated() {
    let (_alone, kernel) = lock_simulated_kernel();
    kernel.start_trace(5, 0, 1 << 16);
    let long = "x".repeat(5000);
    event!(writer, long, s: str = &long, t: str = "y", a: u32 = 0x0707_0707);
    event!(writer, long, s: str = "a\0b", t: str = "y", a: u32 = 0x0707_0707);
    kernel.end_trace(5);
    let records = read_trace_records(kernel, 5);
    let bytes = |n: usize| -> Vec<u8> {
        let words = records[n].words_after_header.iter();
        words.flat_map(|word| word.to_le_bytes()).collect()
    };
    let cut = bytes(0);
    assert_eq!(cut.len(), 2024);
    assert!(cut[..2018].iter().all(|&byte| byte == b'x'));
    assert_eq!(&cut[2018..], b"\0\0\x07\x07\x07\x07");
    assert_eq!(&bytes(1)[..8], b"a\0y\0\x07\x07\x07\x07");
}

#[test]
fn r3_3_lost_events_are_reported_before_the_next_event() {
    let (_alone, kernel) = lock_simulated_kernel();
    let notified = kernel.nr_reader_wakeups();
    // The buffer has room for 170 records of 24 bytes, and 16 bytes are left over.
    kernel.start_trace(6, 0, 4096);
    write_counted_events(0, 100);
    assert_eq!(kernel.nr_reader_wakeups(), notified + 1, "half full");
    write_counted_events(100, 1000);
    assert_eq!(kernel.nr_lost_events(6, 0), 830);
    assert_eq!(kernel.nr_reader_wakeups(), notified + 2, "full");
    let numbers = event_numbers(&kernel.read_records(6, 0));
    assert_eq!(numbers, Vec::from_iter(0..170));
    write_counted_events(1000, 1003);
    kernel.end_trace(6);
    let records = kernel.read_records(6, 0);
    assert_eq!(records[0].marker, LOST_RECORD);
    assert_eq!(event_numbers(&records), [830, 1000, 1001, 1002]);
}

#[test]
fn r3_1_buffer_that_is_read_is_used_again_from_its_start() {
    let (_alone, kernel) = lock_simulated_kernel();
    kernel.start_trace(7, 0, 4096);
    for round in 0..1000 {
        write_counted_events(round * 10, round * 10 + 10);
        event!(writer, three, a: u64 = 1, b: u64 = 2, c: u64 = round);
        let records = kernel.read_records(7, 0);
        let numbers = Vec::from_iter(round * 10..round * 10 + 10);
        assert_eq!(event_numbers(&records[..10]), numbers);
        assert_eq!(records[10].words_after_header, [1, 2, round]);
    }
    kernel.end_trace(7);
    assert_eq!(kernel.nr_lost_events(7, 0), 0);
}

#[test]
fn r3_3_thread_waits_for_room_until_the_trace_ends() {
    let (_alone, kernel) = lock_simulated_kernel();
    kernel.start_trace(8, WAIT, 4096);
    let mut records = Vec::new();
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_counted_events(0, 5000));
        while !writer.is_finished() {
            thread::sleep(Duration::from_millis(1));
            records.extend(read_trace_records(kernel, 8));
        }
    });
    records.extend(read_trace_records(kernel, 8));
    assert_eq!(event_numbers(&records), (0..5000).collect::<Vec<_>>());
    // The end of a trace also ends the wait of its writers.
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_counted_events(0, 5000));
        thread::sleep(Duration::from_millis(20));
        assert!(!writer.is_finished());
        kernel.end_trace(8);
    });
}

#[test]
fn r3_3_thread_waits_longer_if_the_reader_makes_too_little_room() {
    let wait = Duration::from_millis(1000);
    let (_alone, kernel) = lock_simulated_kernel();
    kernel.set_wait_ms(8, wait.as_millis() as u32);
    kernel.start_trace(8, WAIT, 4096);
    write_counted_events(0, 170);
    let mut longest_wait = Duration::ZERO;
    thread::scope(|scope| {
        let writer = scope.spawn(|| event!(writer, wide, s: str = &"x".repeat(800)));
        // The reader makes room for a record of 24 bytes each time, which is not enough.
        for _ in 0..5 {
            let start = Instant::now();
            thread::sleep(wait * 3 / 10);
            kernel.discard_oldest_record(8, 0);
            longest_wait = longest_wait.max(start.elapsed());
        }
        thread::sleep(wait / 10);
        // On a busy machine, the wait can time out between two reads.
        if longest_wait < wait * 8 / 10 {
            assert!(!writer.is_finished(), "the thread still waits");
        }
        kernel.read_records(8, 0);
    });
    kernel.end_trace(8);
    kernel.set_wait_ms(8, 0);
    if longest_wait < wait * 8 / 10 {
        assert_eq!(kernel.nr_lost_events(8, 0), 0);
        assert_eq!(kernel.read_records(8, 0).len(), 1);
    }
}

#[test]
fn r3_11_a_flight_recorder_has_the_newest_events_whole() {
    let (_alone, kernel) = lock_simulated_kernel();
    kernel.start_trace(9, FLIGHT, 4096);
    write_counted_events(0, 5);
    let newest = event_numbers(&kernel.read_flight_recorder(9, 0));
    assert_eq!(newest, [4, 3, 2, 1, 0]);
    for to in [170, 171, 1000, 12345] {
        write_counted_events(0, to);
        let newest = event_numbers(&kernel.read_flight_recorder(9, 0));
        assert!(newest.len() >= 169, "{}", newest.len());
        let nr = newest.len().min(to as usize);
        let expected: Vec<_> = (0..to).rev().take(nr).collect();
        assert_eq!(&newest[..nr], expected);
    }
    for n in 0..100 {
        let text = "x".repeat(n * 13);
        event!(writer, long, s: str = &text, t: str = "", a: u32 = n as u32);
        let newest = kernel.read_flight_recorder(9, 0);
        assert_eq!(newest[0].words_after_header.len(), (n * 13 + 6).div_ceil(8));
    }
    kernel.end_trace(9);
    assert_eq!(kernel.nr_lost_events(9, 0), 0);
}

#[test]
fn r3_11_each_of_16_traces_records_every_event() {
    let (_alone, kernel) = lock_simulated_kernel();
    for trace in 0..16 {
        kernel.start_trace(trace, if trace % 2 == 0 { 0 } else { FLIGHT }, 4096);
    }
    write_counted_events(0, 20);
    for trace in 0..16 {
        kernel.end_trace(trace);
        let mut numbers = match trace % 2 {
            0 => event_numbers(&kernel.read_records(trace, 0)),
            _ => event_numbers(&kernel.read_flight_recorder(trace, 0)),
        };
        numbers.sort_unstable();
        assert_eq!(numbers, (0..20).collect::<Vec<_>>(), "trace {trace}");
    }
    write_counted_events(0, 20);
}

#[test]
fn r3_5_an_event_of_one_trace_is_never_in_the_next_one() {
    let (_alone, kernel) = lock_simulated_kernel();
    // While a thread writes, the slot alternately holds a trace, is empty, and holds a trace of
    // another kind.
    let nr_events = 500_000 * if fuzz::is_long_run() { 6 } else { 1 };
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_counted_events(0, nr_events));
        let mut rounds = 0;
        while !writer.is_finished() {
            for flags in [0, FLIGHT] {
                kernel.start_trace(10, flags, 4096);
                thread::sleep(Duration::from_micros(50));
                kernel.end_trace(10);
                // A thread that has begun an event before the end of the trace may still write the
                // event after the end, while the slot is empty.
                thread::sleep(Duration::from_millis(2));
                let numbers = match flags {
                    0 => event_numbers(&read_trace_records(kernel, 10)),
                    _ => {
                        let read = |cpu| kernel.read_flight_recorder(10, cpu);
                        let mut records: Vec<_> = kernel.cpus().flat_map(read).collect();
                        records.sort_by_key(|record| record.time);
                        event_numbers(&records)
                    }
                };
                let is_rising = numbers.windows(2).all(|pair| pair[0] < pair[1]);
                assert!(is_rising, "{numbers:?}");
            }
            rounds += 1;
        }
        assert!(rounds > 0);
    });
}

#[test]
fn r3_5_late_loss_of_a_trace_breaks_no_record_of_the_next_one() {
    let (_alone, kernel) = lock_simulated_kernel();
    for flags in [0, FLIGHT] {
        kernel.start_trace(11, flags, 4096);
        write_counted_events(0, 5);
        for from in (5..5000).step_by(150) {
            kernel.simulate_late_limit_store(11, 0);
            write_counted_events(from, from + 150);
            let numbers: Vec<_> = match flags {
                0 => event_numbers(&kernel.read_records(11, 0)),
                _ => {
                    let newest = event_numbers(&kernel.read_flight_recorder(11, 0));
                    newest.into_iter().rev().collect()
                }
            };
            let newest = &numbers[numbers.len() - 150..];
            assert_eq!(newest, (from..from + 150).collect::<Vec<_>>());
        }
        kernel.end_trace(11);
        assert_eq!(kernel.nr_lost_events(11, 0), 0);
    }
}

/// Builds a filter with one comparison for each element of `steps`. The filter accepts an event if
/// all of its comparisons are true.
fn build_filter(steps: &[(u8, &str, u64, &str)]) -> Vec<u8> {
    let texts_offset = 8 + 16 * steps.len();
    let (mut texts, mut bytes) = (Vec::new(), Vec::new());
    for (n, (op, field, value, pattern)) in steps.iter().enumerate() {
        let at = texts_offset + texts.len();
        texts.extend(field.bytes().chain([0]));
        let value = match *op {
            OP_GLOB => (texts_offset + texts.len()) as u64,
            _ => *value,
        };
        if *op == OP_GLOB {
            texts.extend(pattern.bytes().chain([0]));
        }
        let step = Step {
            op: *op,
            field: at as u16,
            yes: match n + 1 {
                next if next == steps.len() => STEP_ACCEPT,
                next => next as u16,
            },
            no: STEP_REJECT,
            value,
            ..Step::default()
        };
        bytes.extend(step.bytes());
    }
    let mut filter = ((texts_offset + texts.len()) as u32).to_le_bytes().to_vec();
    filter.extend((steps.len() as u16).to_le_bytes());
    filter.extend([0, 0]);
    filter.extend(bytes);
    filter.extend(texts);
    filter
}

#[test]
fn r3_10_filter_tests_fields_thread_process_and_marker() {
    let (_alone, kernel) = lock_simulated_kernel();
    let thread = u64::from(gettid());
    let process = u64::from(std::process::id());
    let trace = |steps: &[(u8, &str, u64, &str)]| -> usize {
        kernel.set_filter(11, &build_filter(steps));
        kernel.start_trace(11, FILTERED, 1 << 16);
        for n in 0..10 {
            event!(writer, filtered, number: u32 = n, name: str = if n % 2 == 0 { "even" } else { "odd" });
        }
        write_counted_events(0, 3);
        kernel.end_trace(11);
        read_trace_records(kernel, 11).len()
    };
    assert_eq!(trace(&[(OP_EQ, "number", 7, "")]), 1);
    assert_eq!(trace(&[(OP_GLOB, "name", 0, "ev*")]), 5);
    assert_eq!(
        trace(&[(OP_GLOB, "name", 0, "ev*"), (OP_EQ, "number", 7, "")]),
        0
    );
    assert_eq!(trace(&[(OP_EQ, "$thread", thread, "")]), 13);
    assert_eq!(trace(&[(OP_EQ, "$thread", thread + 1, "")]), 0);
    assert_eq!(trace(&[(OP_EQ, "$process", process, "")]), 13);
    assert_eq!(trace(&[(OP_GLOB, "$marker", 0, "*:count")]), 3);
    assert_eq!(trace(&[(OP_EQ, "none", 0, "")]), 0);
}

#[test]
fn r3_1_child_process_writes_to_its_own_buffers() {
    let (_alone, kernel) = lock_simulated_kernel();
    kernel.start_trace(12, 0, 1 << 16);
    write_counted_events(0, 3);
    assert!(run_in_child_process(|| {
        write_counted_events(3, 5);
        let child_kernel = attached_kernel().expect("it is attached");
        assert!(!std::ptr::eq(child_kernel, kernel));
        child_kernel.start_trace(12, 0, 1 << 16);
        write_counted_events(5, 8);
        let records = read_trace_records(child_kernel, 12);
        event_numbers(&records) == [5, 6, 7] && records[0].thread == gettid()
    }));
    write_counted_events(8, 9);
    kernel.end_trace(12);
    assert_eq!(event_numbers(&read_trace_records(kernel, 12)), [0, 1, 2, 8]);
}

#[test]
fn r3_6_monotonic_clock_replaces_an_unusable_tsc() {
    let (_alone, _) = lock_simulated_kernel();
    assert!(run_in_child_process(attach_with_monotonic_clock));
}

#[test]
fn r3_6_thread_that_wrote_tsc_times_uses_the_monotonic_clock_of_the_next_attach() {
    let (_alone, _) = lock_simulated_kernel();
    assert!(run_in_child_process(|| {
        let kernel = attach_to_simulated_kernel(SimulatedKernelConfig::default());
        kernel.start_trace(13, 0, 1 << 16);
        write_counted_events(0, 3);
        read_trace_records(kernel, 13).len() == 3 && attach_with_monotonic_clock()
    }));
}

/// Attaches to a new simulated kernel, whose clock is `CLOCK_MONOTONIC`, and writes two events.
/// Returns true if the difference of their times is in nanoseconds.
fn attach_with_monotonic_clock() -> bool {
    let kernel = attach_to_simulated_kernel(SimulatedKernelConfig {
        clock: 1,
        ..SimulatedKernelConfig::default()
    });
    kernel.start_trace(13, 0, 1 << 16);
    let begin = std::time::Instant::now();
    write_counted_events(0, 1);
    thread::sleep(Duration::from_millis(20));
    write_counted_events(1, 2);
    let elapsed = begin.elapsed().as_nanos() as u64;
    let records = read_trace_records(kernel, 13);
    let [first, second] = &records[..] else {
        return false;
    };
    (20_000_000..=elapsed).contains(&(second.time - first.time))
}
