// SPDX-License-Identifier: GPL-2.0

//! Tests threads that write at the same time, move between CPUs, and are interrupted by signals
//! whose handlers write as well. Each event must be in a buffer once or be counted as lost, and the
//! times of the records in a buffer must not decrease. The tests run with and without restartable
//! sequences.
#![allow(clippy::disallowed_methods, reason = "texts of a test")]
#![allow(clippy::disallowed_macros, reason = "output of a test")]

mod common;

use std::cell::Cell;
use std::collections::HashMap;
use std::process::Command;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    block_alarms, interrupt_self, marker_number, nr_cpus, set_affinity, set_alarm_timer,
    unblock_alarms,
};
use perftrace::event;
use perftrace::simulate::{
    attach_to_simulated_kernel, SimulatedKernel, SimulatedKernelConfig, LOST_RECORD, SHARED, WAIT,
};

const NR_WRITER_THREADS: u32 = 8;
const TRACE_SLOT: u32 = 2;

/// Number of runs of the signal handler that have begun.
static NR_HANDLERS_STARTED: AtomicU64 = AtomicU64::new(0);
/// Number of runs of the signal handler that have ended, whether or not they have written events.
static NR_HANDLERS_RETURNED: AtomicU64 = AtomicU64::new(0);
/// Number of runs of the signal handler that have written events.
static NR_HANDLERS_WROTE: AtomicU64 = AtomicU64::new(0);
/// Set when the trace is about to end. A handler that begins while the flag is set writes no event.
static TRACE_IS_ENDING: AtomicBool = AtomicBool::new(false);
/// Maximum depth of nested handlers in a thread. Without `MAX_NESTED_HANDLERS`, handlers that wait
/// for room on a busy machine would be interrupted by further handlers until the stack is full.
const MAX_NESTED_HANDLERS: u32 = 8;

thread_local! {
    static HANDLER_DEPTH: Cell<u32> = const { Cell::new(0) };
}

extern "C" fn write_in_signal_handler(_: i32) {
    let n = NR_HANDLERS_STARTED.fetch_add(1, SeqCst);
    let depth = HANDLER_DEPTH.get();
    // Check TRACE_IS_ENDING after incrementing NR_HANDLERS_STARTED: run_writers_under_signals()
    // sets TRACE_IS_ENDING, and then waits until NR_HANDLERS_RETURNED is equal to
    // NR_HANDLERS_STARTED.
    if depth >= MAX_NESTED_HANDLERS || TRACE_IS_ENDING.load(SeqCst) {
        NR_HANDLERS_RETURNED.fetch_add(1, SeqCst);
        return;
    }
    HANDLER_DEPTH.set(depth + 1);
    event!(stress, signal, n: u64 = n);
    // Nest another handler in this handler.
    if n % 64 == 0 {
        interrupt_self(libc::SIGALRM);
    }
    event!(stress, text, n: u64 = n, text: str = &"signal"[..(n % 7) as usize]);
    HANDLER_DEPTH.set(depth);
    NR_HANDLERS_WROTE.fetch_add(1, SeqCst);
    NR_HANDLERS_RETURNED.fetch_add(1, SeqCst);
}

/// The events that were read from all CPUs.
#[derive(Default)]
struct EventsOfAllCpus {
    last_time: HashMap<u32, u64>,
    events: Vec<(u32, u64, u64)>,
    signals: Vec<u64>,
    texts: Vec<u64>,
    reported_lost: HashMap<u32, u64>,
}

impl EventsOfAllCpus {
    fn read_new_events(&mut self, kernel: &SimulatedKernel, key_words: usize) {
        let number = |name| marker_number(kernel, name);
        let event = number("stress:event thread:u32 n:u64 check:u64");
        let (signal, text) = (
            number("stress:signal n:u64"),
            number("stress:text n:u64 text:str"),
        );
        for cpu in kernel.cpus() {
            for record in kernel.read_records(TRACE_SLOT, cpu) {
                let last = self.last_time.entry(cpu).or_default();
                assert!(record.time >= *last, "times fall on CPU {cpu}");
                *last = record.time;
                if record.marker == LOST_RECORD {
                    let reported = self.reported_lost.entry(cpu).or_default();
                    assert!(record.words_after_header[0] >= *reported, "losses fall");
                    *reported = record.words_after_header[0];
                    continue;
                }
                let fields = &record.words_after_header[key_words..];
                if record.marker == event {
                    let [a, b, c] = fields[..] else {
                        panic!("{record:?}")
                    };
                    let (thread_nr, n) = (a as u32, (a >> 32) | (b << 32));
                    let check = (b >> 32) | (c << 32);
                    assert_eq!(check, n ^ 0x5555_5555_5555, "{record:?}");
                    self.events.push((thread_nr, n, record.time));
                } else if record.marker == signal {
                    self.signals.push(fields[0]);
                } else if record.marker == text {
                    let bytes: Vec<u8> = fields[1..].iter().flat_map(|w| w.to_le_bytes()).collect();
                    let length = (fields[0] % 7) as usize;
                    assert_eq!(&bytes[..length], &b"signal"[..length]);
                    assert!(bytes[length..].iter().all(|byte| *byte == 0));
                    self.texts.push(fields[0]);
                } else {
                    panic!("nobody wrote {record:?}");
                }
            }
        }
    }
}

/// Checks that no number is in the list twice. Returns the number of entries.
fn check_numbers_unique(mut all: Vec<u64>) -> usize {
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "there twice");
    count
}

fn run_writers_under_signals(flags: u32, time: Duration) {
    let kernel = attach_to_simulated_kernel(SimulatedKernelConfig::default());
    kernel.start_trace(TRACE_SLOT, flags, 16 << 10);
    let stop = AtomicBool::new(false);
    // The thread of the reader must not get signals. A signal handler in this thread could wait for
    // room in a buffer forever, because only this thread makes room by reading.
    block_alarms();
    set_alarm_timer(200, Some(write_in_signal_handler));
    let mut events_read = EventsOfAllCpus::default();
    let key_words = usize::from(flags & SHARED != 0);
    let written: u64 = thread::scope(|scope| {
        let stop = &stop;
        let write = |thread_nr: u32| {
            unblock_alarms();
            let mut n = 0u64;
            while !stop.load(Relaxed) {
                if n % 1000 == u64::from(thread_nr) {
                    set_affinity((n / 1000) as usize % nr_cpus());
                }
                event!(stress, event, thread: u32 = thread_nr, n: u64 = n, check: u64 = n ^ 0x5555_5555_5555);
                n += 1;
            }
            n
        };
        let threads: Vec<_> = (0..NR_WRITER_THREADS)
            .map(|thread_nr| scope.spawn(move || write(thread_nr)))
            .collect();
        let begin = Instant::now();
        // The writers continue until the reader has read an event of a handler. On a busy machine,
        // the first event of a handler may come late, because no thread is interrupted for some
        // time or because the buffer is full.
        while begin.elapsed() < time || events_read.signals.is_empty() {
            events_read.read_new_events(kernel, key_words);
            thread::sleep(Duration::from_micros(50));
        }
        stop.store(true, SeqCst);
        while !threads.iter().all(|thread| thread.is_finished()) {
            events_read.read_new_events(kernel, key_words);
        }
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        joined.sum()
    });
    set_alarm_timer(0, None);
    TRACE_IS_ENDING.store(true, SeqCst);
    // SIGALRM may also have interrupted a thread of the test harness, which is then in the handler
    // or about to enter it. Wait until all handlers that have begun have returned.
    for pass in 0.. {
        events_read.read_new_events(kernel, key_words);
        thread::sleep(Duration::from_millis(1));
        if pass > 20 && NR_HANDLERS_RETURNED.load(SeqCst) == NR_HANDLERS_STARTED.load(SeqCst) {
            break;
        }
    }
    kernel.end_trace(TRACE_SLOT);
    events_read.read_new_events(kernel, key_words);
    let lost: u64 = kernel
        .cpus()
        .map(|cpu| kernel.nr_lost_events(TRACE_SLOT, cpu))
        .sum();
    for (cpu, reported) in &events_read.reported_lost {
        assert!(*reported <= kernel.nr_lost_events(TRACE_SLOT, *cpu));
    }
    // If the events of a thread are sorted by time, their numbers must increase.
    for thread_nr in 0..NR_WRITER_THREADS {
        let mut own_events: Vec<_> = events_read
            .events
            .iter()
            .filter(|event| event.0 == thread_nr)
            .collect();
        own_events.sort_by_key(|event| (event.2, event.1));
        assert!(
            own_events.windows(2).all(|pair| pair[0].1 < pair[1].1),
            "thread {thread_nr}"
        );
    }
    let events = check_numbers_unique(
        events_read
            .events
            .iter()
            .map(|e| (e.1 << 8) | u64::from(e.0))
            .collect(),
    );
    let signals =
        check_numbers_unique(events_read.signals) + check_numbers_unique(events_read.texts);
    let total = written + 2 * NR_HANDLERS_WROTE.load(SeqCst);
    println!("{total} events, {signals} of handlers, {lost} lost");
    assert_eq!(events as u64 + signals as u64 + lost, total);
    assert!(signals > 0);
    assert!(flags & WAIT == 0 || lost == 0);
}

/// Runs a test in a separate process, because the markers belong to the process.
fn run_in_own_process(name: &str, tunables: &str, test: impl FnOnce()) {
    if std::env::var_os("PERFTRACE_TEST_ALONE").is_some() {
        return test();
    }
    let program = std::env::current_exe().expect("a program");
    let mut command = Command::new(program);
    command
        .args(["--exact", name, "--nocapture"])
        .env("PERFTRACE_TEST_ALONE", "1");
    let output = command
        .env("GLIBC_TUNABLES", tunables)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", output.status);
}

const RSEQ_OFF_TUNABLE: &str = "glibc.pthread.rseq=0";

/// Defines tests that write events in a separate process, each with the tunables of the C library
/// and the flags of the trace.
macro_rules! stress_tests {
    ($($name:ident: $tunables:expr, $flags:expr;)*) => {
        $(
            #[test]
            fn $name() {
                let time = Duration::from_millis(if fuzz::is_long_run() { 2000 } else { 500 });
                run_in_own_process(stringify!($name), $tunables, || {
                    run_writers_under_signals($flags, time)
                });
            }
        )*
    };
}

stress_tests! {
    r3_4_moving_interrupted_threads_count_each_lost_event: "", 0;
    r3_4_threads_without_rseq_count_each_lost_event: RSEQ_OFF_TUNABLE, 0;
    r3_3_threads_that_wait_for_room_lose_no_event: "", WAIT;
    r3_3_threads_that_wait_without_rseq_lose_no_event: RSEQ_OFF_TUNABLE, WAIT;
    r3_2_shared_buffers_have_the_key_before_the_fields: "", SHARED;
}
