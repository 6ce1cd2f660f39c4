// SPDX-License-Identifier: GPL-2.0

//! Ends a trace in the middle of an event, and starts a trace of another kind in the same slot. The
//! test replaces the trace once at each instruction of the code that records an event, and checks
//! that the records of the second trace are intact.

mod common;

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use common::{read_all, run_stepped, set_affinity};
use perftrace::event;
use perftrace::simulate::{attach_to, attached, Config, Kernel, FLIGHT};

const TRACE: u32 = 3;
/// Maximum number of steps to test, which is more than the number of instructions before the
/// restartable sequence. The trap of a single step in the restartable sequence aborts the sequence,
/// and the thread starts again at the top of the fast path.
const MAX_STEPS: usize = 600;
/// The test checks the instruction addresses of the last `LAST_STEPS` steps. `LAST_STEPS` is more
/// than the number of instructions from the top of the fast path to the restartable sequence.
const LAST_STEPS: usize = 100;

static NEXT_FLAGS: AtomicUsize = AtomicUsize::new(0);

fn write(n: u64) {
    event!(stepped, count, n: u64 = n);
}

/// Returns the numbers of the trace's events, oldest first.
fn read_numbers(kernel: &Kernel, flags: u32) -> Vec<u64> {
    let records = match flags {
        0 => read_all(kernel, TRACE),
        _ => {
            let mut records = kernel.read_flight(TRACE, 0);
            records.reverse();
            records
        }
    };
    records.iter().map(|record| record.payload[0]).collect()
}

/// Returns true if the addresses of `LAST_STEPS` steps are those of a few instructions that were
/// repeated.
fn repeats(addresses: &VecDeque<usize>) -> bool {
    let different: HashSet<_> = addresses.iter().collect();
    addresses.len() == LAST_STEPS && different.len() < LAST_STEPS / 2
}

/// Returns true if the long form of the test runs (`LONG`, see Documentation/testing.md).
fn long_run() -> bool {
    std::env::var_os("LONG").is_some_and(|value| !value.is_empty())
}

fn restart_trace() {
    let kernel = attached().expect("attached");
    kernel.end(TRACE);
    kernel.start(TRACE, NEXT_FLAGS.load(Relaxed) as u32, 4096);
}

#[test]
fn r3_5_a_trace_that_ends_within_an_event_does_not_spoil_the_next_one() {
    let kernel = attach_to(Config::default());
    set_affinity(0);
    for (first, second) in [(0, FLIGHT), (FLIGHT, 0)] {
        NEXT_FLAGS.store(second as usize, Relaxed);
        let mut nr_kept = 0;
        let mut addresses = VecDeque::new();
        for nr_steps in 0..MAX_STEPS {
            kernel.start(TRACE, first, 4096);
            write(0);
            let address = run_stepped(nr_steps, restart_trace, || write(1));
            addresses.push_back(address);
            if addresses.len() > LAST_STEPS {
                addresses.pop_front();
            }
            (2..5).for_each(write);
            let numbers = read_numbers(kernel, second);
            // Event 1 belongs to the new trace if the thread noticed the change of the trace in
            // time, and is dropped otherwise.
            assert!(
                numbers == [1, 2, 3, 4] || numbers == [2, 3, 4],
                "step {nr_steps}: {numbers:?}"
            );
            nr_kept += usize::from(numbers.len() == 4);
            kernel.end(TRACE);
            // The time of the test grows with the square of the number of steps. More steps would
            // only repeat instructions that were tested, so the short form ends here.
            if !long_run() && repeats(&addresses) {
                break;
            }
        }
        assert!(nr_kept > 0);
        // A step in the restartable sequence sends the thread back to the top of the fast path, so
        // the last `LAST_STEPS` steps must have repeated a few instructions.
        assert!(repeats(&addresses), "{addresses:x?}");
    }
}
