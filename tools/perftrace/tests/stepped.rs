// SPDX-License-Identifier: GPL-2.0

//! Ends a trace in the middle of an event, and starts a trace of another kind in the same slot. The
//! test replaces the trace once at each instruction of the code that records an event, and checks
//! that the records of the second trace are intact.

mod common;

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use common::{read_trace_records, run_in_single_steps, set_affinity};
use perftrace::event;
use perftrace::simulate::{
    attach_to_simulated_kernel, attached_kernel, SimulatedKernel, SimulatedKernelConfig, FLIGHT,
};

const TRACE_SLOT: u32 = 3;
/// Maximum number of steps to test, which is more than the number of instructions before the
/// restartable sequence. The trap of a single step in the restartable sequence aborts the sequence,
/// and the thread starts again at the top of the fast path.
const MAX_TESTED_STEPS: usize = 600;
/// The test checks the instruction addresses of the last `NR_LAST_STEPS` steps. `NR_LAST_STEPS` is
/// more than the number of instructions from the top of the fast path to the restartable sequence.
const NR_LAST_STEPS: usize = 100;

static NEXT_TRACE_FLAGS: AtomicUsize = AtomicUsize::new(0);

fn write_event(n: u64) {
    event!(stepped, count, n: u64 = n);
}

/// Returns the numbers of the trace's events, oldest first.
fn read_event_numbers(kernel: &SimulatedKernel, flags: u32) -> Vec<u64> {
    let records = match flags {
        0 => read_trace_records(kernel, TRACE_SLOT),
        _ => {
            let mut records = kernel.read_flight_recorder(TRACE_SLOT, 0);
            records.reverse();
            records
        }
    };
    records
        .iter()
        .map(|record| record.words_after_header[0])
        .collect()
}

/// Returns true if there are `NR_LAST_STEPS` addresses, and less than half of them are different,
/// because the steps have repeated a few instructions.
fn repeats_few_addresses(addresses: &VecDeque<usize>) -> bool {
    let different: HashSet<_> = addresses.iter().collect();
    addresses.len() == NR_LAST_STEPS && different.len() < NR_LAST_STEPS / 2
}

fn replace_trace() {
    let kernel = attached_kernel().expect("attached");
    kernel.end_trace(TRACE_SLOT);
    kernel.start_trace(TRACE_SLOT, NEXT_TRACE_FLAGS.load(Relaxed) as u32, 4096);
}

#[test]
fn r3_5_trace_replaced_during_an_event_has_intact_records() {
    let kernel = attach_to_simulated_kernel(SimulatedKernelConfig::default());
    set_affinity(0);
    for (first, second) in [(0, FLIGHT), (FLIGHT, 0)] {
        NEXT_TRACE_FLAGS.store(second as usize, Relaxed);
        let mut nr_kept = 0;
        let mut addresses = VecDeque::new();
        for nr_steps in 0..MAX_TESTED_STEPS {
            kernel.start_trace(TRACE_SLOT, first, 4096);
            write_event(0);
            let address = run_in_single_steps(nr_steps, replace_trace, || write_event(1));
            addresses.push_back(address);
            if addresses.len() > NR_LAST_STEPS {
                addresses.pop_front();
            }
            (2..5).for_each(write_event);
            let numbers = read_event_numbers(kernel, second);
            // Event 1 belongs to the new trace if the thread noticed the change of the trace in
            // time, and is dropped otherwise.
            assert!(
                numbers == [1, 2, 3, 4] || numbers == [2, 3, 4],
                "step {nr_steps}: {numbers:?}"
            );
            nr_kept += usize::from(numbers.len() == 4);
            kernel.end_trace(TRACE_SLOT);
            // The time of the test grows with the square of the number of steps. More steps would
            // only repeat instructions that were tested, so the short form ends here.
            if !fuzz::is_long_run() && repeats_few_addresses(&addresses) {
                break;
            }
        }
        assert!(nr_kept > 0);
        // A step in the restartable sequence sends the thread back to the top of the fast path, so
        // the last `NR_LAST_STEPS` steps must have repeated a few instructions.
        assert!(repeats_few_addresses(&addresses), "{addresses:x?}");
    }
}
