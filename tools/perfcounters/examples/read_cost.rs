// SPDX-License-Identifier: GPL-2.0

//! Measures the cost of copying counter values: copies the values of a selection of instances
//! ROUNDS times.
//!
//! ```text
//! read_cost DEVICE [PATTERN [ROUNDS [unchecked]]]
//! ```
//!
//! With a fourth argument, copies the values without the check of the seqflag.
//!
//! Prints nanoseconds per value. To get instructions per value, run the program twice with
//! different ROUNDS, and count the instructions of each run with `valgrind --tool=callgrind` or
//! `perf stat`. The instructions per value are the difference of the instruction counts of the two
//! runs, divided by the difference of the numbers of values that the two runs copied.
#![allow(clippy::disallowed_methods, reason = "an example with ASCII arguments")]
#![allow(
    clippy::disallowed_macros,
    reason = "a test reads the output, and a panic fails the test"
)]

use std::time::Instant;

use perfcounters::{Counters, InstancePattern};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let device = args
        .next()
        .unwrap_or(perfcounters::PERFCOUNTERS_DEVICE_PATH.into());
    let pattern = InstancePattern::new(args.next());
    let rounds: u32 = args.next().unwrap_or("1000".into()).parse()?;
    let is_unchecked = args.next().is_some();

    let mut counters = Counters::open_path(device)?;
    let selection = counters.select(&pattern)?;
    let mut values = Vec::new();
    let start = Instant::now();
    for _ in 0..rounds {
        if is_unchecked {
            counters.copy_values_without_check(&selection, &mut values)?;
        } else {
            counters.copy_consistent_values(&selection, &mut values)?;
        }
    }
    let ns = start.elapsed().as_nanos() as f64 / f64::from(rounds);
    println!(
        "{} values ({} CPUs): {ns:.0} ns, {:.3} ns per value",
        values.len(),
        counters.cpus().len(),
        ns / values.len().max(1) as f64
    );
    Ok(())
}
