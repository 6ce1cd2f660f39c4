// SPDX-License-Identifier: GPL-2.0

//! Runs a parser on hostile inputs, within limits of memory, stack and time.
//!
//! A fuzzer generates inputs until its time is over, and calls a parser with each of them. A case
//! is one input. A case fails if the parser panics, overflows a small stack, or needs too much
//! memory or CPU time. After a failure, proptest searches for a smaller input that fails as well.
//!
//! ```text
//! #[global_allocator]
//! static ALLOCATOR: fuzz::CountingAllocator = fuzz::CountingAllocator;
//!
//! #[test]
//! fn parser_any_bytes_are_read_or_refused() {
//!     fuzz::Fuzzer::new("parser").run(fuzz::changed_inputs(&[b"a valid input".to_vec()]), |bytes|
//!     { let _ = parse(bytes);
//!     });
//! }
//! ```
//!
//! | variable | meaning |
//! |---|---|
//! | `FUZZ_SECONDS` | the time of each fuzzer: by default 0.5 seconds of CPU time and at most 1,024 cases, and 1.5 seconds with `LONG=1` |
//! | `FUZZ_SEED` | the seed of the first 16 inputs: by default 0, and random with `LONG=1`; a failure prints the seed of the failing input |
//! | `FUZZ_SAVE` | a directory: each input is written to a file before the parser gets it, so that the input of a fuzzer that was killed is known |
//! | `FUZZ_INPUT` | a file: the fuzzer runs this input only |
//!
//! | file | contents |
//! |---|---|
//! | `input.rs` | inputs |
//! | `memory.rs` | the counting allocator; unsafe |

mod input;
mod memory;

use std::cell::Cell;
use std::env;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use rustix::time::{clock_gettime, ClockId};

pub use input::{arbitrary_inputs, changed_inputs, word_inputs, Input};
pub use memory::CountingAllocator;

/// The default size in bytes of the stack on which a parser runs. The stack of a parser is much
/// smaller than the stack of a program's main thread, which has 8 MiB by default.
const DEFAULT_STACK_BYTES: usize = 256 << 10;
/// The default limit on the memory of a parser, in bytes, for an empty input.
const DEFAULT_MEMORY_BYTES: usize = 64 << 20;
/// The default number of bytes that each byte of the input adds to a parser's memory limit.
const DEFAULT_MEMORY_PER_INPUT_BYTE: usize = 256;
/// The maximum CPU time of a parser for one input. The limit is generous: a parser exceeds it only
/// if the parser hardly makes progress.
const MAX_CPU_TIME_PER_INPUT: Duration = Duration::from_secs(20);
/// The time after which a parser that has not returned is regarded as hanging. [`scale_timeout`]
/// multiplies it by `PATIENCE`.
const HANG_TIME_LIMIT_SECONDS: u64 = 180;
/// The limits of a fuzzer if neither `FUZZ_SECONDS` nor `LONG` is set. The CPU time includes making
/// the inputs, and does not depend on the load of the machine. Without the limit on the number of
/// cases, a run on a fast machine would test more inputs than all earlier runs, and the additional
/// inputs could make the run fail by chance.
const SHORT_RUN_LIMITS: FuzzerLimits = FuzzerLimits {
    time: Duration::from_secs(5),
    cpu_time: Duration::from_millis(500),
    nr_cases: 1024,
};
/// The number of inputs that the fuzzer makes from one seed. After each seed, the fuzzer checks
/// whether its time is over.
const INPUTS_PER_SEED: u32 = 16;
/// The maximum number of attempts to make a failing input smaller.
const MAX_SHRINK_ATTEMPTS: u32 = 3000;

/// The limits of a fuzzer. A fuzzer ends when it has reached one of them.
#[derive(Clone, Copy, Debug)]
struct FuzzerLimits {
    time: Duration,
    /// The CPU time of the parser and of the thread that makes the inputs.
    cpu_time: Duration,
    nr_cases: u64,
}

/// A fuzzer of one parser: its name, and the limits on the parser's stack and memory.
#[derive(Clone, Copy, Debug)]
pub struct Fuzzer {
    name: &'static str,
    stack_size: usize,
    base_memory_bytes: usize,
    memory_per_input_byte: usize,
}

impl Fuzzer {
    /// Makes a fuzzer with the default limits.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            stack_size: DEFAULT_STACK_BYTES,
            base_memory_bytes: DEFAULT_MEMORY_BYTES,
            memory_per_input_byte: DEFAULT_MEMORY_PER_INPUT_BYTE,
        }
    }

    /// Sets the size of the parser's stack in bytes.
    #[must_use]
    pub fn stack_size(self, bytes: usize) -> Self {
        Self {
            stack_size: bytes,
            ..self
        }
    }

    /// Sets the limit on the memory of the parser in bytes. The limit is the sum of
    /// `base_memory_bytes` and, for each byte of the input, `memory_per_input_byte`.
    #[must_use]
    pub fn memory_limit(self, base_memory_bytes: usize, memory_per_input_byte: usize) -> Self {
        Self {
            base_memory_bytes,
            memory_per_input_byte,
            ..self
        }
    }

    /// Calls `parse` with generated inputs until the fuzzer has used up its time or its number of
    /// inputs.
    ///
    /// # Panics
    ///
    /// Panics if the parser panics or exceeds a limit. The message contains the failing input,
    /// after proptest has made it smaller.
    pub fn run(&self, inputs: impl Strategy<Value = Input>, parse: impl Fn(&[u8]) + Sync) {
        if let Some(path) = env::var_os("FUZZ_INPUT") {
            let bytes = std::fs::read(path).expect("a readable file in FUZZ_INPUT");
            self.run_case(&bytes, &parse)
                .unwrap_or_else(|why| panic!("{why}"));
            return;
        }
        let limits = read_limits_from_env();
        let begun = Instant::now();
        let cpu_time_begun = thread_cpu_time();
        let parser_time = Cell::new(Duration::ZERO);
        let first_seed = first_seed();
        let mut nr_cases = 0_u64;
        for seed in first_seed.. {
            let mut rng_seed = [0; 32];
            rng_seed[..8].copy_from_slice(&seed.to_le_bytes());
            let config = Config {
                cases: INPUTS_PER_SEED,
                failure_persistence: None,
                max_shrink_iters: MAX_SHRINK_ATTEMPTS,
                ..Config::default()
            };
            let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &rng_seed);
            let result = TestRunner::new_with_rng(config, rng).run(&inputs, |Input(bytes)| {
                let time = self.run_case(&bytes, &parse).map_err(TestCaseError::fail)?;
                parser_time.set(parser_time.get() + time);
                Ok(())
            });
            nr_cases += u64::from(INPUTS_PER_SEED);
            match result {
                Ok(()) => {}
                Err(TestError::Fail(why, input)) => panic!(
                    "{}: {why}\ninput: {input:?}\nrepeat this with FUZZ_SEED={seed}",
                    self.name
                ),
                Err(TestError::Abort(why)) => panic!("{}: {why}", self.name),
            }
            let cpu_time = thread_cpu_time().saturating_sub(cpu_time_begun) + parser_time.get();
            if begun.elapsed() >= limits.time
                || cpu_time >= limits.cpu_time
                || nr_cases >= limits.nr_cases
            {
                break;
            }
        }
        print_report(self.name, nr_cases, first_seed);
    }

    /// Calls `parse` with one input, within the limits of this fuzzer.
    ///
    /// # Panics
    ///
    /// Panics if the parser panics or exceeds a limit.
    pub fn check_input(&self, bytes: &[u8], parse: impl Fn(&[u8]) + Sync) {
        let result = self.run_case(bytes, &parse);
        result.unwrap_or_else(|why| panic!("{}: {why}", self.name));
    }

    /// Calls the parser in a new thread: the allocator counts memory for each thread, and the stack
    /// of a new thread can have any size. Returns the CPU time of the parser.
    fn run_case(&self, bytes: &[u8], parse: &(impl Fn(&[u8]) + Sync)) -> Result<Duration, String> {
        self.save_input(bytes);
        let (sender, receiver) = mpsc::sync_channel(1);
        thread::scope(|scope| {
            let builder = thread::Builder::new().stack_size(self.stack_size);
            let case = move || {
                let before = memory::peak_thread_bytes();
                parse(bytes);
                let time = thread_cpu_time();
                let _ = sender.send(());
                (memory::peak_thread_bytes().saturating_sub(before), time)
            };
            let thread = builder
                .name(self.name.to_owned())
                .spawn_scoped(scope, case)
                .map_err(|e| format!("cannot start a thread: {e}"))?;
            if receiver.recv_timeout(scale_timeout(HANG_TIME_LIMIT_SECONDS))
                == Err(mpsc::RecvTimeoutError::Timeout)
            {
                // A hanging thread cannot be stopped, so the process is stopped.
                let input = Input(bytes.to_vec());
                abort_with_message(&format!("{}: the parser hangs: {input:?}", self.name));
            }
            let (memory, time) = thread
                .join()
                .map_err(|_| "the parser panics; see the message above".to_owned())?;
            let max_memory = self.base_memory_bytes + self.memory_per_input_byte * bytes.len();
            if memory > max_memory {
                return Err(format!(
                    "{memory} bytes of memory, {max_memory} are allowed"
                ));
            }
            match time > MAX_CPU_TIME_PER_INPUT {
                true => Err(format!(
                    "{time:?} of CPU time, {MAX_CPU_TIME_PER_INPUT:?} are allowed"
                )),
                false => Ok(time),
            }
        })
    }

    fn save_input(&self, bytes: &[u8]) {
        if let Some(directory) = env::var_os("FUZZ_SAVE") {
            let path = PathBuf::from(directory).join(self.name.replace([' ', '/'], "-"));
            std::fs::write(path, bytes).expect("room in the directory of FUZZ_SAVE");
        }
    }
}

/// Returns true if the long form of the tests runs (`LONG`, see Documentation/testing.md).
pub fn is_long_run() -> bool {
    env::var_os("LONG").is_some_and(|value| !value.is_empty())
}

/// Returns the value of an environment variable as a number, or `None` if it is not set or is not a
/// number.
fn parse_number_from_env<T: std::str::FromStr>(name: &str) -> Option<T> {
    env::var_os(name)?.to_str()?.parse().ok()
}

fn read_limits_from_env() -> FuzzerLimits {
    let usual = is_long_run().then_some(1.5);
    match parse_number_from_env("FUZZ_SECONDS").or(usual) {
        Some(seconds) => FuzzerLimits {
            time: Duration::from_secs_f64(seconds),
            cpu_time: Duration::MAX,
            nr_cases: u64::MAX,
        },
        None => SHORT_RUN_LIMITS,
    }
}

/// Returns the CPU time that the calling thread has used.
fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Returns the seed from which the first inputs are generated. Without `LONG` the seed is fixed, so
/// that a test run does not fail by chance.
fn first_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let random = || now.map_or(0, |now| u64::from(now.subsec_nanos()) << 32);
    let usual = || if is_long_run() { random() } else { 0 };
    parse_number_from_env("FUZZ_SEED").unwrap_or_else(usual)
}

/// Returns a time limit of `seconds` seconds, multiplied by the environment variable `PATIENCE` if it
/// is set. `PATIENCE` makes time limits longer on a busy machine.
pub fn scale_timeout(seconds: u64) -> Duration {
    Duration::from_secs(seconds * parse_number_from_env("PATIENCE").unwrap_or(1))
}

#[expect(clippy::disallowed_macros, reason = "the output of a test")]
fn print_report(name: &str, nr_cases: u64, first_seed: u64) {
    println!("{name}: {nr_cases} cases from FUZZ_SEED={first_seed} on");
}

#[expect(clippy::disallowed_macros, reason = "the output of a test")]
fn abort_with_message(message: &str) -> ! {
    eprintln!("{message}");
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use super::*;

    #[global_allocator]
    static ALLOCATOR: CountingAllocator = CountingAllocator;

    fn check_parser_in_test(parse: impl Fn(&[u8]) + Sync) -> Result<(), String> {
        let fuzzer = Fuzzer::new("self test").memory_limit(1 << 20, 16);
        fuzzer.run_case(b"abc", &parse).map(|_| ())
    }

    #[test]
    fn fuzz_case_fails_by_panic_or_memory_limit() {
        assert_eq!(
            check_parser_in_test(|bytes| assert_eq!(bytes, b"abc")),
            Ok(())
        );
        assert!(check_parser_in_test(|bytes| assert!(bytes.is_empty())).is_err());
        let allocate = |bytes: usize| {
            check_parser_in_test(move |_| {
                drop(std::hint::black_box(Vec::<u8>::with_capacity(bytes)))
            })
        };
        assert_eq!(allocate(1 << 19), Ok(()));
        let why = allocate((1 << 20) + 1000).expect_err("too much");
        assert!(why.contains("of memory"), "{why}");
        // Memory that the parser has freed does not count towards the limit.
        let often = check_parser_in_test(|_| {
            for _ in 0..10 {
                drop(std::hint::black_box(Vec::<u8>::with_capacity(1 << 19)));
            }
        });
        assert_eq!(often, Ok(()));
    }

    #[test]
    fn fuzz_failing_input_is_made_smaller() {
        let inputs = changed_inputs(&[b"0123456789".repeat(5)]);
        let run = AssertUnwindSafe(|| {
            Fuzzer::new("self test").run(inputs, |bytes| {
                assert!(bytes.len() < 100);
            });
        });
        let failure = std::panic::catch_unwind(run);
        let why = failure.expect_err("a failure");
        let why = why.downcast_ref::<String>().expect("a message");
        let rest = why.split_once("input: ").expect("an input").1;
        let size: usize = rest
            .split(' ')
            .next()
            .and_then(|n| n.parse().ok())
            .expect("a size");
        assert!(
            (100..2000).contains(&size) && why.contains("FUZZ_SEED="),
            "{why}"
        );
    }
}
