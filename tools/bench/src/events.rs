// SPDX-License-Identifier: GPL-2.0

//! Measures events of user programs. The kernel is simulated: buffers are ordinary memory. This
//! does not change the cost of an event, in which the kernel has no part.

use std::io;

use perftrace::event;
use perftrace::simulate::{attach_to, Config, Kernel, FLIGHT};

use crate::bars::{bar, instructions, Bar};
use crate::results::Results;

/// Size of a buffer in bytes: more than all windows of a measurement write.
const BYTES: u32 = 1 << 20;
/// Number of events that fill a buffer twice, so that each of its pages is accessed.
const ALL: u32 = 2 * BYTES / 32;
/// Slot of the trace that records the events.
const TRACE: u32 = 3;

/// A loop that executes this number of events.
type Run = fn(u32) -> io::Result<()>;

/// A loop of events, with its preparation.
pub type Measured<'a> = &'a mut dyn FnMut(u32) -> io::Result<()>;

/// Name, loop and trace flags of each way (`None`: not traced). The loops contain nothing but the
/// events, whose arguments are in registers.
const WAYS: [(&str, Run, Option<u32>); 6] = [
    ("event_off", pair, None),
    ("event_off_2", two, None),
    ("event", pair, Some(0)),
    ("event_three", three, Some(0)),
    ("event_text", text, Some(0)),
    ("event_flight", pair, Some(FLIGHT)),
];

#[inline(never)]
fn pair(n: u32) -> io::Result<()> {
    for i in 0..n {
        event!(bench, pair, number: u32 = i, sum: u64 = u64::from(i));
    }
    Ok(())
}

#[inline(never)]
fn two(n: u32) -> io::Result<()> {
    for i in 0..n {
        event!(bench, pair, number: u32 = i, sum: u64 = u64::from(i));
        event!(bench, second, number: u32 = i, sum: u64 = u64::from(i));
    }
    Ok(())
}

#[inline(never)]
fn three(n: u32) -> io::Result<()> {
    for i in 0..n {
        let i = u64::from(i);
        event!(bench, three, a: u64 = i, b: u64 = i, c: u64 = i);
    }
    Ok(())
}

#[inline(never)]
fn text(n: u32) -> io::Result<()> {
    for i in 0..n {
        event!(bench, text, number: u32 = i, name: str = "a text of 24 characters.");
    }
    Ok(())
}

/// The simulated kernel that traces the events. A program attaches to it once.
pub struct Traced(&'static Kernel);

impl Traced {
    /// Attaches to a simulated kernel with this number of CPUs.
    pub fn new(nr_cpus: u32) -> Self {
        Self(attach_to(Config {
            nr_cpus,
            stride: 21,
            ..Config::default()
        }))
    }

    /// Passes each way to `measure`. Before each run all records are marked as read, which has the
    /// same cost for few events as for many.
    pub fn each(&self, measure: &mut dyn FnMut(&str, Measured<'_>)) -> io::Result<()> {
        for (name, run, traced) in WAYS {
            if let Some(flags) = traced {
                self.0.start(TRACE, flags, BYTES);
            }
            // Accesses all pages, so that no page fault occurs in the measurement.
            for _ in 0..8 {
                self.0.discard(TRACE);
                run(ALL / 8)?;
            }
            measure(name, &mut |n| {
                self.0.discard(TRACE);
                run(n)
            });
            if traced.is_some() {
                self.0.end(TRACE);
            }
        }
        Ok(())
    }
}

/// Returns the bars about instructions.
pub fn guest_bars(results: &Results) -> [Bar; 2] {
    let off: Vec<f64> = results
        .cpus()
        .into_iter()
        .filter_map(|n| {
            let cost = |name| Some(results.count(name, n)?.instructions());
            Some(cost("event_off_2")? - cost("event_off")?)
        })
        .collect();
    let was = match off.first() {
        None => Err(results.why_not("event_off")),
        Some(first) => Ok((format!("{first}"), off.iter().all(|cost| *cost <= 4.0))),
    };
    [
        instructions(
            results,
            "event",
            "an event of a program, u32 + u64 and the time",
            "<= 60 instructions",
            |n| n <= 60.0,
        ),
        bar("an event that no trace wants", "<= 4 instructions", was),
    ]
}

/// Returns the bar about time.
pub fn host_bar(results: &Results) -> Bar {
    let was = results
        .ratio("lttng_event")
        .map(|r| (format!("{:.1}x", r.median()), r.median() >= 6.0));
    bar(
        "an event of a program, u32 + u64 and the time, against LTTng-UST",
        ">= 6x faster",
        was.ok_or(results.why_not("lttng_event")),
    )
}
