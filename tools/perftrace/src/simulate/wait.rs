// SPDX-License-Identifier: GPL-2.0

//! Functions of the simulated kernel for tests of threads that wait for room in a buffer.

use super::{Relaxed, Release, SimulatedKernel};

impl SimulatedKernel {
    /// Sets the maximum time, in milliseconds, that a thread waits for room in a buffer of a trace.
    pub fn set_wait_ms(&self, trace: u32, ms: u32) {
        let slot = &self.control().slots[trace as usize];
        slot.wait_ms.store(ms, Relaxed);
    }

    /// Removes the oldest record of a buffer. The buffer has a record that was not read.
    pub fn discard_oldest_record(&self, trace: u32, cpu: u32) {
        let buffer = self.buffer(trace, cpu);
        let tail = buffer.tail.load(Relaxed);
        let (_, words) = self.read_record(trace, buffer, tail);
        // Release: pairs with the writer's load of `tail`, as in `read_records`.
        buffer.tail.store(tail + words * 8, Release);
    }
}
