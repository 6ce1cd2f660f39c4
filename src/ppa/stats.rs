// SPDX-License-Identifier: GPL-2.0

//! Statistics of process accounting about itself: the instance `perfcounters/accounting/lost` of
//! the counter pages counts lost records.

#![expect(unsafe_code, reason = "per-CPU slots of counters")]

use kernel::prelude::*;

use crate::driver::{CounterSpec, Instance};
use base::cpu;
use base::self_stat::ModuleStats;

/// The slot of the statistic that counts records that were dropped before they were read.
static MODULE_STATS: ModuleStats<1> = ModuleStats::new();

/// The instances of the statistics. Dropping this value deletes the instances. This value is
/// dropped after all code that updates the statistics has stopped.
pub(crate) struct AccountingStats {
    _lost: Instance,
}

impl AccountingStats {
    /// Adds the instances. Called once, from module init, before any code can update the
    /// statistics.
    pub(crate) fn new() -> Result<Self> {
        let lost = Instance::add_even_if_full(&CounterSpec {
            help: c"Records of ended tasks dropped before they were read",
            ..CounterSpec::counter(c"perfcounters/accounting/lost")
        })?;
        // SAFETY: No code can count a dropped record yet, and the per-CPU slots of the counter
        // `lost` exist until the module is unloaded.
        unsafe { MODULE_STATS.set_per_cpu_slot(0, lost.counter().raw()) };
        Ok(Self { _lost: lost })
    }
}

/// Adds `more` to the value that an instance of accounting has on `cpu`. Calls must not overlap,
/// and nothing else updates the instance. A concurrent reader sees either the old or the new value.
pub(crate) fn add_to_instance_on_cpu(instance: &Instance, cpu: u32, more: i64) {
    // SAFETY: The per-CPU slot exists as long as `instance`, and nothing else writes the slot.
    unsafe { cpu::add_to_word_on_cpu(instance.counter().raw(), cpu, more) }
}

/// Counts a record of an ended task that was dropped before it was read. Callable in any context.
#[inline(always)]
pub(crate) fn count_lost_record() {
    MODULE_STATS.count(0);
}
