// SPDX-License-Identifier: GPL-2.0

//! Publishes the per-CPU values of process accounting as instances of the counter pages. Programs
//! such as `pfc` and the exporters for PCP and OpenMetrics read the counter pages.
//!
//! A worker copies the values of all CPUs every [`PUBLISH_PERIOD_MS`] milliseconds. The worker
//! reads the values of a CPU from memory, without an IPI, so it does not disturb the CPU. The
//! copied values are current even if the CPU is idle.
//!
//! The instances of the values are added when accounting is first started, and exist until the
//! module is unloaded. When accounting is stopped and started again, the instances continue from
//! their old values.

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::{KVVec, KVec};
use kernel::prelude::*;
use ppa_rules::NR_CPU_VALUES;

use crate::driver::{CounterSpec, Instance};
use crate::state::AccountingState;
use crate::stats::add_to_instance_on_cpu;
use base::cpu;

/// The period of the worker, in milliseconds.
pub(crate) const PUBLISH_PERIOD_MS: u32 = 250;

/// The name of each instance, whether its value is a time, and its help text, in the order of `enum
/// ppa_cpu_value`.
#[rustfmt::skip]
const CPU_VALUE_SPECS: [(&CStr, bool, &CStr); NR_CPU_VALUES] = [
    (c"ppa/user_time", true, c"Time in user mode"),
    (c"ppa/system_time", true, c"Time in system calls"),
    (c"ppa/interrupt_time", true, c"Time in interrupts and softirqs"),
    (c"ppa/idle_time", true, c"Idle time"),
    (c"ppa/syscalls", false, c"System calls"),
    (c"ppa/interrupts", false, c"Interrupts"),
    (c"ppa/softirq_time", true, c"Time in softirqs, on return from interrupts and in ksoftirqd"),
    (c"ppa/softirqs", false, c"Softirqs"),
    (c"ppa/softirq/hi_time", true, c"Time in softirqs of high-priority tasklets"),
    (c"ppa/softirq/hi", false, c"Softirqs of high-priority tasklets"),
    (c"ppa/softirq/tasklet_time", true, c"Time in softirqs of tasklets"),
    (c"ppa/softirq/tasklet", false, c"Softirqs of tasklets"),
    (c"ppa/softirq/timer_time", true, c"Time in softirqs of timers"),
    (c"ppa/softirq/timer", false, c"Softirqs of timers"),
    (c"ppa/softirq/net_tx_time", true, c"Time in softirqs that send packets"),
    (c"ppa/softirq/net_tx", false, c"Softirqs that send packets"),
    (c"ppa/softirq/net_rx_time", true, c"Time in softirqs that receive packets"),
    (c"ppa/softirq/net_rx", false, c"Softirqs that receive packets"),
];

/// The instances of the CPU values in the counter pages, and each CPU's last published values.
pub(crate) struct CpuInstances {
    instances: KVec<Instance>,
    last_published: KVVec<[u64; NR_CPU_VALUES]>,
}

impl CpuInstances {
    /// Adds the instances of the CPU values to the counter pages. May sleep.
    pub(crate) fn new() -> Result<Self> {
        let mut instances = KVec::with_capacity(NR_CPU_VALUES, GFP_KERNEL)?;
        for (name, is_time, help) in CPU_VALUE_SPECS {
            let spec = match is_time {
                true => CounterSpec::nanoseconds(name),
                false => CounterSpec::counter(name),
            };
            instances.push(
                Instance::try_add(&CounterSpec { help, ..spec })?,
                GFP_KERNEL,
            )?;
        }
        let nr = cpu::nr_cpu_ids() as usize;
        let mut last_published = KVVec::with_capacity(nr, GFP_KERNEL)?;
        for _ in 0..nr {
            last_published.push([0; NR_CPU_VALUES], GFP_KERNEL)?;
        }
        Ok(Self {
            instances,
            last_published,
        })
    }

    /// Adds to each instance the increment of its value since the last call. Calls must not
    /// overlap.
    pub(crate) fn publish(&mut self, accounts: &AccountingState) {
        for (last, cpu) in self.last_published.iter_mut().zip(0..cpu::nr_cpu_ids()) {
            let words = accounts.cpu(cpu);
            // Skip a CPU that is updating its values: the next `publish()` adds the increments.
            let Some(mut values) =
                words.and_then(|w| w.values(cpu::is_online(cpu), || accounts.clock.now_ordered()))
            else {
                continue;
            };
            for (value, (_, is_time, _)) in values.iter_mut().zip(&CPU_VALUE_SPECS) {
                if *is_time {
                    *value = accounts.clock.ticks_to_ns(*value);
                }
            }
            let pairs = values.iter().zip(last.iter());
            for ((value, last), instance) in pairs.zip(&self.instances) {
                let more = value.saturating_sub(*last);
                add_to_instance_on_cpu(instance, cpu, more as i64);
            }
            for (last, value) in last.iter_mut().zip(values) {
                *last = value.max(*last);
            }
        }
    }

    /// Sets the last published values of all CPUs to 0. Called when accounting is stopped, because
    /// the values of each CPU begin at 0 when accounting is started again.
    pub(crate) fn reset_last_published(&mut self) {
        for last in &mut self.last_published {
            *last = [0; NR_CPU_VALUES];
        }
    }
}
