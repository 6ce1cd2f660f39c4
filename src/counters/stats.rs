// SPDX-License-Identifier: GPL-2.0

//! Statistics about page faults in mappings of the counter pages. Programs read the statistics as
//! instances of the counter pages.

#![expect(unsafe_code, reason = "per-CPU slots of counters")]

use kernel::prelude::*;

use crate::driver::{CounterSpec, Instance};
use base::self_stat::{CostTimer, ModuleStats};

/// The per-CPU slots of two statistics: the number of page faults, and their total duration.
static MODULE_STATS: ModuleStats<2> = ModuleStats::new();

/// The instances of the statistics. Dropping this value makes the instances dormant. The value is
/// dropped after all code that updates the statistics has stopped.
pub(crate) struct FaultStats {
    _served_faults: Instance,
    _fault_time: Instance,
}

impl FaultStats {
    /// Adds the instances. Called once, from module init, before any code can update the
    /// statistics.
    pub(crate) fn new() -> Result<Self> {
        let served = Instance::try_add(&CounterSpec {
            help: c"Page faults in mappings of counter pages",
            ..CounterSpec::counter(c"perfcounters/faults/served")
        })?;
        let time = Instance::try_add(&CounterSpec {
            help: c"Time in page faults of mappings of counter pages",
            ..CounterSpec::nanoseconds(c"perfcounters/faults/time")
        })?;
        for (n, counter) in [served.counter(), time.counter()].into_iter().enumerate() {
            // SAFETY: No page fault can be counted yet, and the per-CPU slots of `counter` exist
            // until the module is unloaded.
            unsafe { MODULE_STATS.set_per_cpu_slot(n, counter.raw()) };
        }
        Ok(Self {
            _served_faults: served,
            _fault_time: time,
        })
    }
}

/// Counts a page fault, and measures the time until the returned timer is dropped.
#[inline(always)]
pub(crate) fn fault_timer() -> CostTimer<2> {
    MODULE_STATS.count_and_time(0, 1)
}
