// SPDX-License-Identifier: GPL-2.0

//! Kills programs at arbitrary instructions while they write events. Each event whose macro has
//! returned must be in the buffers, and no record may be invalid.

mod common;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;
use std::time::{Duration, Instant};

use common::{map_shared_words, marker_number, set_affinity};
use perftrace::event;
use perftrace::simulate::{Record, SimulatedKernel, FLIGHT, WAIT};

const NR_WRITER_THREADS: u32 = 3;
const CHILD_PROGRESS_ENV: &str = "PERFTRACE_TEST_CHILD";

/// Writes events until the process is killed. Stores the number of the last event in
/// `last_written`.
fn write_events_until_killed(thread_nr: u32, last_written: &AtomicU64) {
    for n in 1u64.. {
        if n % 500 == 0 {
            set_affinity((n / 500) as usize % common::nr_cpus());
        }
        match n % 3 {
            0 => {
                event!(killed, text, thread: u32 = thread_nr, n: u64 = n, s: str = &"abcdefgh"[..(n % 8) as usize])
            }
            _ => event!(killed, pair, thread: u32 = thread_nr, n: u64 = n),
        }
        last_written.store(n, Release);
    }
}

/// Runs the threads that write events. `run_writer_threads` is the main function of the processes
/// that are killed.
fn run_writer_threads(progress: &str) {
    let file = File::options()
        .read(true)
        .write(true)
        .open(progress)
        .expect("progress");
    let last_written = map_shared_words(&file);
    thread::scope(|scope| {
        for thread_nr in 0..NR_WRITER_THREADS {
            let last_written = &last_written[thread_nr as usize];
            scope.spawn(move || write_events_until_killed(thread_nr, last_written));
        }
    });
}

struct WriterProcess {
    child: Child,
    kernel: SimulatedKernel,
    last_written: &'static [AtomicU64; 512],
}

impl WriterProcess {
    fn new(test: &str, flags: u32, tunables: &str, directory: &Path) -> Self {
        let progress = directory.join("progress");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&progress);
        let last_written = map_shared_words(&file.expect("a file"));
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command
            .args(["--exact", test, "--nocapture"])
            .env(CHILD_PROGRESS_ENV, &progress);
        command
            .env("PERFTRACE_SIMULATE", directory)
            .env("GLIBC_TUNABLES", tunables);
        command.env("PERFTRACE_SIMULATE_FLAGS", flags.to_string());
        let child = command
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("it runs");
        let path = directory.join(child.id().to_string());
        let begin = Instant::now();
        while last_written
            .iter()
            .all(|last_written| last_written.load(Acquire) == 0)
        {
            assert!(
                begin.elapsed() < fuzz::scale_timeout(120),
                "it writes nothing"
            );
            thread::sleep(Duration::from_micros(100));
        }
        let kernel = SimulatedKernel::open_existing_file(&path).expect("its file");
        fs::remove_file(path).expect("its file");
        Self {
            child,
            kernel,
            last_written,
        }
    }

    fn kill(&mut self) {
        self.child.kill().expect("it is there");
        self.child.wait().expect("it is gone");
    }

    /// Checks the marker of an event, and returns the numbers of the thread and of the event.
    fn check_event(&self, record: &Record) -> (u32, u64) {
        let (a, b) = (record.words_after_header[0], record.words_after_header[1]);
        let (thread_nr, n) = (a as u32, (a >> 32) | ((b & 0xffff_ffff) << 32));
        let name = match n % 3 {
            0 => "killed:text thread:u32 n:u64 s:str",
            _ => "killed:pair thread:u32 n:u64",
        };
        assert_eq!(
            record.marker,
            marker_number(&self.kernel, name),
            "{record:?}"
        );
        assert!(thread_nr < NR_WRITER_THREADS);
        (thread_nr, n)
    }
}

/// Kills 40 writers, or 200 in a long run, and checks the events of each writer. `read` reads
/// records: it is called repeatedly with `false` while the writer runs, and once with `true` after
/// the writer was killed.
fn check_events_of_killed_writers(
    test: &str,
    flags: u32,
    tunables: &str,
    read: fn(&SimulatedKernel, bool) -> Vec<Record>,
) {
    if let Ok(progress) = std::env::var(CHILD_PROGRESS_ENV) {
        return run_writer_threads(&progress);
    }
    let directory = tempfile::tempdir().expect("a directory");
    for round in 0..if fuzz::is_long_run() { 200 } else { 40 } {
        let mut writer = WriterProcess::new(test, flags, tunables, directory.path());
        let mut records = Vec::new();
        // The writer runs for 50 microseconds to 3 milliseconds; the time differs from writer to
        // writer.
        let run_time = Duration::from_nanos(50_000 + (round * 7919 * 1009) % 3_000_000);
        let begin = Instant::now();
        while begin.elapsed() < run_time {
            records.extend(read(&writer.kernel, false));
        }
        writer.kill();
        records.extend(read(&writer.kernel, true));
        let mut next = [None; NR_WRITER_THREADS as usize];
        let mut events: Vec<_> = records
            .iter()
            .map(|r| (r.time, writer.check_event(r)))
            .collect();
        events.sort_unstable();
        for (_, (thread_nr, n)) in events {
            let next = &mut next[thread_nr as usize];
            assert_eq!(n, next.unwrap_or(n), "thread {thread_nr}");
            *next = Some(n + 1);
        }
        for (thread_nr, next) in next.into_iter().enumerate() {
            let last_written = writer.last_written[thread_nr].load(Acquire);
            // The event that the thread was writing when it was killed may also be in the buffer.
            if let Some(next) = next {
                assert!(
                    (last_written + 1..=last_written + 2).contains(&next),
                    "{last_written} were written, {next} is next"
                );
            } else {
                assert!(
                    last_written == 0 || flags & FLIGHT != 0,
                    "{last_written} were written, none is there"
                );
            }
        }
    }
}

fn read_all_buffers(kernel: &SimulatedKernel, _: bool) -> Vec<Record> {
    kernel
        .cpus()
        .flat_map(|cpu| kernel.read_records(0, cpu))
        .collect()
}

/// Returns the records of the flight recorders after the writer was killed. A flight recorder
/// overwrites its oldest events when its buffer is full. Events of a thread that are older than the
/// overwritten ones may still be in the buffer of another CPU, on which the thread ran before. To
/// avoid gaps in the events of a thread, the function leaves out all events that are older than the
/// oldest event of any full buffer.
fn read_flight_recorders(kernel: &SimulatedKernel, dead: bool) -> Vec<Record> {
    if !dead {
        return Vec::new();
    }
    let per_cpu: Vec<Vec<Record>> = kernel
        .cpus()
        .map(|cpu| kernel.read_flight_recorder(0, cpu))
        .collect();
    let full_buffers = per_cpu.iter().filter(|records| records.len() > 1000);
    let oldest = full_buffers
        .filter_map(|records| records.last())
        .map(|record| record.time)
        .max();
    let records = per_cpu.into_iter().flatten();
    records
        .filter(|record| record.time >= oldest.unwrap_or(0))
        .collect()
}

/// Defines tests of killed writers, each with the flags of the trace, the tunables of the C library,
/// and the function that reads the records.
macro_rules! killed_writer_tests {
    ($($name:ident: $flags:expr, $tunables:expr, $read:expr;)*) => {
        $(
            #[test]
            fn $name() {
                check_events_of_killed_writers(stringify!($name), $flags, $tunables, $read);
            }
        )*
    };
}

killed_writer_tests! {
    r3_1_written_events_survive_a_kill: WAIT, "", read_all_buffers;
    r3_11_flight_recorder_events_survive_a_kill: FLIGHT, "", read_flight_recorders;
    r3_4_events_survive_a_kill_without_rseq: WAIT, "glibc.pthread.rseq=0", read_all_buffers;
}
