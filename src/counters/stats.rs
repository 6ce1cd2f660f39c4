// SPDX-License-Identifier: GPL-2.0

//! Statistics about page faults in mappings of the devices of perfcounters.ko. Programs read them
//! as instances of the counter pages.

#![expect(unsafe_code, reason = "per-CPU slots of counters")]

use kernel::prelude::*;

use crate::driver::{Counter, Instance, Kind, Spec, Unit};
use base::self_stat::{CostTimer, SelfStats};

/// The slots: the number of page faults, and their time.
static SLOTS: SelfStats<2> = SelfStats::new();

/// The instances of the statistics. Dropping this value makes the instances dormant. It is dropped
/// after all code that updates the statistics has stopped.
pub(crate) struct FaultStats {
    served: Instance,
    time: Instance,
}

impl FaultStats {
    /// Adds the instances. Called once, from module init, before any code can update the
    /// statistics.
    pub(crate) fn new() -> Result<Self> {
        let served = Instance::try_add(&Spec {
            help: c"Page faults in mappings of the devices of this module",
            ..Spec::counter(c"perfcounters/faults/served")
        })?;
        let time = Instance::try_add(&Spec {
            help: c"Time in page faults of the devices of this module",
            kind: Kind::Time,
            unit: Unit::Seconds,
            exponent: -9,
            ..Spec::counter(c"perfcounters/faults/time")
        })?;
        let stats = Self { served, time };
        for (n, counter) in stats.counters().into_iter().enumerate() {
            // SAFETY: No page fault can be counted yet, and the per-CPU slots of `counter` exist
            // until the module is unloaded.
            unsafe { SLOTS.publish(n, counter.raw()) };
        }
        Ok(stats)
    }

    /// Returns the counters of the number and of the time of page faults.
    pub(crate) fn counters(&self) -> [Counter; 2] {
        [self.served.counter(), self.time.counter()]
    }
}

/// Counts a page fault, and measures its duration until the result is dropped.
#[inline(always)]
pub(crate) fn timer() -> CostTimer<2> {
    SLOTS.begin(0, 1)
}
