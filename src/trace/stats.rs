// SPDX-License-Identifier: GPL-2.0

//! Statistics about user tracing itself, which programs read in the counter pages.

#![expect(unsafe_code, reason = "per-CPU slots of counters")]

use kernel::prelude::*;

use crate::driver::{CounterSpec, Instance};
use base::self_stat::{CostTimer, ModuleStats};

const STAT_KERNEL_EVENTS_LOST: usize = 0;
const STAT_FAULTS: usize = 1;
const STAT_FAULT_TIME: usize = 2;

/// The values of the module's own statistics.
static MODULE_STATS: ModuleStats<4> = ModuleStats::new();

/// The counters from which users read the statistics. Dropping this value deletes the counters,
/// whose last values stay readable. This value is dropped after all code that updates the
/// statistics has stopped.
pub(crate) struct TraceStats {
    _lost: Instance,
    _faults: Instance,
    _fault_time: Instance,
}

impl TraceStats {
    /// Adds the counters. Called once, from module init, before any code can update the statistics.
    pub(crate) fn new() -> Result<Self> {
        let lost = Instance::add_even_if_full(&CounterSpec {
            help: c"Kernel events lost because the buffer of a trace was full",
            ..CounterSpec::counter(c"perfcounters/tracing/lost")
        })?;
        let faults = Instance::add_even_if_full(&CounterSpec {
            help: c"Page faults in mappings of /dev/perftrace",
            ..CounterSpec::counter(c"perfcounters/tracing/faults")
        })?;
        let fault_time = Instance::add_even_if_full(&CounterSpec {
            help: c"Time in page faults of mappings of /dev/perftrace",
            ..CounterSpec::nanoseconds(c"perfcounters/tracing/fault_time")
        })?;
        let slots = [
            (STAT_KERNEL_EVENTS_LOST, lost.counter()),
            (STAT_FAULTS, faults.counter()),
            (STAT_FAULT_TIME, fault_time.counter()),
        ];
        for (stat, counter) in slots {
            // SAFETY: Nothing can be counted yet, and the per-CPU slots of `counter` exist until
            // the module is unloaded.
            unsafe { MODULE_STATS.set_per_cpu_slot(stat, counter.raw()) };
        }
        Ok(Self {
            _lost: lost,
            _faults: faults,
            _fault_time: fault_time,
        })
    }
}

/// Counts a kernel event that is lost because the buffer of a trace is full. Callable in any
/// context.
#[inline(always)]
pub(crate) fn count_lost_kernel_event() {
    MODULE_STATS.count(STAT_KERNEL_EVENTS_LOST);
}

/// Counts a page fault, and returns a timer that measures the duration of the fault until the timer
/// is dropped.
#[inline(always)]
pub(crate) fn fault_timer() -> CostTimer<4> {
    MODULE_STATS.count_and_time(STAT_FAULTS, STAT_FAULT_TIME)
}
