// SPDX-License-Identifier: GPL-2.0

//! Counting instructions: windows between two RDTSC, of two sizes. What both
//! have in common cancels out; what an interrupt adds, the shortest of many
//! does not have.

use std::cmp::Ordering;
use std::io;

use crate::record::{Count, WINDOWS};
use crate::sys::ticks;

const WARM_UPS: u32 = 5;
/// Ticks of a long window, where an operation is short enough: a tenth of the
/// time between two interrupts of the clock.
const AIM: u64 = 400_000;
/// More tell no more.
pub const MOST_OPERATIONS: u32 = 256;

/// The shortest windows seen so far.
struct Shortest {
    ticks: u64,
    agree: u32,
}

impl Shortest {
    const NONE: Self = Self {
        ticks: u64::MAX,
        agree: 0,
    };

    fn see(&mut self, ticks: u64) {
        match ticks.cmp(&self.ticks) {
            Ordering::Less => *self = Self { ticks, agree: 1 },
            Ordering::Equal => self.agree += 1,
            Ordering::Greater => {}
        }
    }
}

/// One window of `operations`. Never inlined, so that both sizes have the very
/// same instructions around them.
#[inline(never)]
fn window(operations: u32, run: &mut dyn FnMut(u32) -> io::Result<()>) -> io::Result<u64> {
    let start = ticks();
    run(operations)?;
    Ok(ticks().wrapping_sub(start))
}

/// Measures an operation. `run` does it as often as it is told, `most` times at most.
pub fn count(
    operation: &str,
    cpus: u32,
    values: u64,
    most: u32,
    run: &mut dyn FnMut(u32) -> io::Result<()>,
) -> io::Result<Count> {
    let mut once = Shortest::NONE;
    for _ in 0..WARM_UPS {
        once.see(window(1, run)?);
    }
    let many = ((AIM / once.ticks.max(1)) as u32).clamp(1, most);
    let few = many / 4;
    let (mut short, mut long) = (Shortest::NONE, Shortest::NONE);
    for _ in 0..WARM_UPS {
        window(few, run)?;
        window(many, run)?;
    }
    for _ in 0..WINDOWS {
        short.see(window(few, run)?);
        long.see(window(many, run)?);
    }
    Ok(Count {
        operation: operation.into(),
        cpus,
        values,
        operations: [few, many],
        ticks: [short.ticks, long.ticks],
        agree: [short.agree, long.agree],
    })
}
