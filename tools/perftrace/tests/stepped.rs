// SPDX-License-Identifier: GPL-2.0

//! Ends a trace and starts one of another kind in the same slot, within an event. This is done at
//! each instruction of the event. The records of the second trace must be intact each time.

mod common;

use std::collections::HashSet;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use common::{all, move_to, stepped};
use perftrace::event;
use perftrace::simulate::{attach_to, attached, Kernel, Plan, FLIGHT};

const TRACE: u32 = 3;
/// Steps to test: more than the instructions before the restartable sequence. In the sequence each
/// step is an interruption, so it starts again at the top.
const STEPS: usize = 600;
/// The last steps, which are more than the instructions from the top to the sequence.
const ROUND: usize = 100;

static NEXT: AtomicUsize = AtomicUsize::new(0);

fn write(n: u64) {
    event!(stepped, count, n: u64 = n);
}

/// Returns the numbers of the trace's events, oldest first.
fn seen(kernel: &Kernel, flags: u32) -> Vec<u64> {
    let records = match flags {
        0 => all(kernel, TRACE),
        _ => {
            let mut records = kernel.flight(TRACE, 0);
            records.reverse();
            records
        }
    };
    records.iter().map(|record| record.payload[0]).collect()
}

fn turn() {
    let kernel = attached().expect("attached");
    kernel.end(TRACE);
    kernel.start(TRACE, NEXT.load(Relaxed) as u32, 4096);
}

#[test]
fn r3_5_a_trace_that_ends_within_an_event_does_not_spoil_the_next_one() {
    let kernel = attach_to(Plan::default());
    move_to(0);
    for (first, second) in [(0, FLIGHT), (FLIGHT, 0)] {
        NEXT.store(second as usize, Relaxed);
        let mut kept = 0;
        let mut places = HashSet::new();
        for at in 0..STEPS {
            kernel.start(TRACE, first, 4096);
            write(0);
            let place = stepped(at, turn, || write(1));
            if at >= STEPS - ROUND {
                places.insert(place);
            }
            (2..5).for_each(write);
            let seen = seen(kernel, second);
            // Event 1 belongs to the new trace if it noticed the change in time, and is dropped
            // otherwise.
            assert!(
                seen == [1, 2, 3, 4] || seen == [2, 3, 4],
                "step {at}: {seen:?}"
            );
            kept += usize::from(seen.len() == 4);
            kernel.end(TRACE);
        }
        assert!(kept > 0);
        // The last steps must have repeated the instructions from the top to the sequence.
        assert!(places.len() < ROUND / 2, "{} places", places.len());
    }
}
