// SPDX-License-Identifier: GPL-2.0

//! Measures events of user programs. The kernel is simulated: buffers are ordinary memory. The cost
//! of an event is the same as with a real kernel, because the kernel executes nothing when a
//! program records an event.

use std::io;

use perftrace::event;
use perftrace::simulate::{self, attach_to_simulated_kernel, SimulatedKernelConfig};

pub use perftrace::simulate::FLIGHT;

/// Size of a buffer in bytes. A buffer has room for all records that one window of a measurement
/// writes.
const BUFFER_BYTES: u32 = 1 << 20;
/// Number of events that fill a buffer twice, so that each page of the buffer is accessed.
const EVENTS_TO_FILL_BUFFER_TWICE: u32 = 2 * BUFFER_BYTES / 32;
/// Slot (number) of the trace that records the measured events.
const TRACE_SLOT: u32 = 3;

/// A function that records as many events as its argument says, in a loop that contains nothing but
/// the events. The arguments of the events are in registers.
pub type EventLoop = fn(u32) -> io::Result<()>;

#[inline(never)]
pub fn record_u32_u64_events(n: u32) -> io::Result<()> {
    for i in 0..n {
        event!(bench, pair, number: u32 = i, sum: u64 = u64::from(i));
    }
    Ok(())
}

#[inline(never)]
pub fn record_two_events_per_round(n: u32) -> io::Result<()> {
    for i in 0..n {
        event!(bench, pair, number: u32 = i, sum: u64 = u64::from(i));
        event!(bench, second, number: u32 = i, sum: u64 = u64::from(i));
    }
    Ok(())
}

#[inline(never)]
pub fn record_three_u64_events(n: u32) -> io::Result<()> {
    for i in 0..n {
        let i = u64::from(i);
        event!(bench, three, a: u64 = i, b: u64 = i, c: u64 = i);
    }
    Ok(())
}

#[inline(never)]
pub fn record_text_events(n: u32) -> io::Result<()> {
    for i in 0..n {
        event!(bench, text, number: u32 = i, name: str = "a text of 24 characters.");
    }
    Ok(())
}

/// The simulated kernel that traces the events. A program attaches to one simulated kernel, and
/// cannot attach again.
#[derive(Clone, Copy)]
pub struct SimulatedKernel(&'static simulate::SimulatedKernel);

impl SimulatedKernel {
    /// Attaches to a simulated kernel with this number of CPUs.
    pub fn new(nr_cpus: u32) -> Self {
        Self(attach_to_simulated_kernel(SimulatedKernelConfig {
            nr_cpus,
            buffer_stride_shift: 21,
            ..SimulatedKernelConfig::default()
        }))
    }

    /// Passes a loop of events to `measure`. If `flags` is not `None`, a trace with these flags
    /// records the events; otherwise no trace records them. Before each run of the loop all records
    /// are marked as read. Marking records as read takes the same time for few and for many events,
    /// so it does not change the result.
    pub fn measure_events(
        self,
        run: EventLoop,
        flags: Option<u32>,
        measure: impl FnOnce(&mut dyn FnMut(u32) -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Some(flags) = flags {
            self.0.start_trace(TRACE_SLOT, flags, BUFFER_BYTES);
        }
        // Access all pages, so that no page fault occurs during the measurement.
        for _ in 0..8 {
            self.0.discard_records(TRACE_SLOT);
            run(EVENTS_TO_FILL_BUFFER_TWICE / 8)?;
        }
        let measured = measure(&mut |n| {
            self.0.discard_records(TRACE_SLOT);
            run(n)
        });
        if flags.is_some() {
            self.0.end_trace(TRACE_SLOT);
        }
        measured
    }
}
