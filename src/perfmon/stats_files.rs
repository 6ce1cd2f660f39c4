// SPDX-License-Identifier: GPL-2.0

//! The per-CPU counters of the statistics about perfmon itself, and their debugfs files.

#![expect(unsafe_code, reason = "calls of C, and the callback of a file")]

use kernel::ffi::CStr;

use crate::driver::Counter;
use crate::helpers::{self, CostFile};
use base::self_stat::ModuleStats;

pub(crate) const NR_SLOTS: usize = 32;

/// The addresses of the per-CPU counters of all statistics, indexed by `SelfStat` variants.
pub(crate) static MODULE_STATS: ModuleStats<NR_SLOTS> = ModuleStats::new();

/// Makes `counter` the per-CPU counter of the statistic `cost`, a `SelfStat` variant. Called by
/// module init, before any code can update the statistic.
pub(crate) fn publish(cost: usize, counter: Counter) {
    // SAFETY: No code can update a statistic yet. The per-CPU words of `counter` exist until the
    // module is unloaded.
    unsafe { MODULE_STATS.set_slot(cost, counter.raw()) }
}

/// A debugfs file in the directory perfmon/cpuN.
#[repr(transparent)]
pub(crate) struct File(CostFile);

// SAFETY: A `File` is a constant with pointers to static strings only.
unsafe impl Sync for File {}

impl File {
    /// Creates a debugfs file that shows the sum of the statistics `first` and `second`, or one
    /// statistic if `first` and `second` are equal.
    pub(crate) const fn new(name: &'static CStr, first: u16, second: u16) -> Self {
        Self(CostFile {
            name: name.to_bytes_with_nul().as_ptr().cast(),
            first,
            second,
        })
    }
}

/// Creates the debugfs files of a CPU, unless they exist already. Called in process context.
pub(crate) fn show(cpu: u32, files: &'static [File]) {
    // SAFETY: `files` is a static slice, and `File` has the layout of `CostFile`. `MODULE_STATS` is
    // a static array.
    unsafe {
        helpers::pfc_costs_show(
            cpu,
            files.as_ptr().cast(),
            files.len() as u32,
            MODULE_STATS.slots(),
        )
    }
}
