// SPDX-License-Identifier: GPL-2.0

//! Lets other tasks take `TRACING` during a call that takes it again and again.

use kernel::time::delay::fsleep;
use kernel::time::Delta;

use base::clock;

/// A call that takes `TRACING` again and again sleeps after this number of nanoseconds.
const MAX_BUSY_NS: u64 = 300_000;
/// The duration of the sleep of a call that has run for [`MAX_BUSY_NS`] without a sleep.
const BUSY_SLEEP: Delta = Delta::from_micros(50);

/// Lets other tasks take `TRACING` during a call that takes it again and again. A task that waits
/// for a mutex on another CPU does not get the mutex if the call takes the mutex again at once.
pub(super) struct LockYielder {
    /// The beginning of the call, or the end of its last sleep, in CLOCK_MONOTONIC.
    busy_since_ns: u64,
}

impl LockYielder {
    pub(super) fn new() -> Self {
        let busy_since_ns = clock::monotonic_ns();
        Self { busy_since_ns }
    }

    /// Sleeps if the call has not slept for [`MAX_BUSY_NS`]. The caller does not hold `TRACING`.
    pub(super) fn sleep_if_busy(&mut self) {
        if clock::monotonic_ns().saturating_sub(self.busy_since_ns) >= MAX_BUSY_NS {
            fsleep(BUSY_SLEEP);
            self.busy_since_ns = clock::monotonic_ns();
        }
    }
}
