// SPDX-License-Identifier: GPL-2.0

//! One event, and within it, at an instruction, its trace's end and the beginning of one of another
//! kind in the same place: the next trace is not spoilt, whichever instruction that is.

mod common;

use std::collections::HashSet;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use common::{all, move_to, stepped};
use perftrace::event;
use perftrace::simulate::{attach_to, attached, Kernel, Plan, FLIGHT};

const TRACE: u32 = 3;
/// More than there are before the restartable sequence, where a step is a new beginning.
const STEPS: usize = 600;
/// And then more than from that beginning to the sequence.
const ROUND: usize = 100;

static NEXT: AtomicUsize = AtomicUsize::new(0);

fn write(n: u64) {
    event!(stepped, count, n: u64 = n);
}

/// Its events, oldest first.
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
            // The event is the new trace's when it found that out in time, else nobody's.
            assert!(
                seen == [1, 2, 3, 4] || seen == [2, 3, 4],
                "step {at}: {seen:?}"
            );
            kept += usize::from(seen.len() == 4);
            kernel.end(TRACE);
        }
        assert!(kept > 0);
        // It has come to where it goes round and round.
        assert!(places.len() < ROUND / 2, "{} places", places.len());
    }
}
