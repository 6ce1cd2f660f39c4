// SPDX-License-Identifier: GPL-2.0

//! The settings of process accounting.

use kernel::prelude::*;

use base::{cpu, errno};

/// The four values of `kernel.ppa` (for all tasks) or of a `ppactl` file (for one task). The third
/// of the four values, a flag for timers, must be 0 and is not stored.
#[derive(Clone, Copy)]
pub(crate) struct AccountingConfig {
    /// True if accounting is switched on.
    pub(crate) on: bool,
    /// True if wakeup latencies are also counted in a histogram.
    pub(crate) latency_hist: bool,
    /// Number of CPUs per group: a task has separate values for each group.
    pub(crate) cpus_per_group: u32,
}

impl AccountingConfig {
    /// Checks the four values of `kernel.ppa` or of a `ppactl` file. Invalid values are reported in
    /// the kernel log.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an invalid value, `EOPNOTSUPP` if timers are requested.
    pub(crate) fn new(values: &[i32; 4]) -> Result<Self> {
        let [on, latencies, timers, scaling] = *values;
        let mut flags = [on, latencies, timers].into_iter();
        if flags.any(|flag| !(0..=1).contains(&flag)) || scaling < 1 {
            pr_notice!("expected \"ON LATENCIES TIMERS CPUS\", three flags of 0 or 1 and CPUs per group >= 1\n");
            return Err(EINVAL);
        }
        if timers != 0 {
            pr_notice!("timers (third value) are not supported; set it to 0\n");
            return Err(errno::eopnotsupp());
        }
        if latencies > on {
            pr_notice!("latencies (second value) require accounting on (first value 1)\n");
            return Err(EINVAL);
        }
        Ok(Self {
            on: on != 0,
            latency_hist: latencies != 0,
            cpus_per_group: (scaling as u32).min(cpu::nr_cpu_ids()),
        })
    }

    /// Returns the settings as the four values of `kernel.ppa` or of a `ppactl` file.
    pub(crate) fn values(&self) -> [i32; 4] {
        [
            self.on.into(),
            self.latency_hist.into(),
            0,
            self.cpus_per_group as i32,
        ]
    }
}
