// SPDX-License-Identifier: GPL-2.0

//! Reads the values of CPUs, for the files of accounting in `/proc`, and copies them to the counter
//! pages.

use kernel::pr_warn_once;
use kernel::prelude::*;
use ppa_rules::NR_CPU_VALUES;

use crate::cpu_instances;
use crate::read_tasks::MAX_ONE_MS_RETRIES;
use crate::start_stop::{Accounting, ACCOUNTING};
use crate::worker;
use base::{clock, cpu, task};

/// Calls `each` with the values of each CPU number below `nr_cpu_ids`. While accounting is off, the
/// idle time is the value that the kernel has measured, and the other values are 0. Returns
/// `EAGAIN` if the values of a CPU changed during each attempt to read them.
pub(crate) fn for_each_cpu_values(each: &mut dyn FnMut([u64; NR_CPU_VALUES])) -> Result {
    let all = ACCOUNTING.lock();
    let khz = u64::from(clock::Clock::choose().khz);
    for cpu in 0..cpu::nr_cpu_ids() {
        let here = all.state().and_then(|a| Some((a, a.per_cpu.cpu(cpu)?)));
        each(match here {
            Some((accounts, here)) => {
                let mut values = None;
                for _ in 0..MAX_ONE_MS_RETRIES {
                    let online = cpu::is_online(cpu);
                    values = here
                        .cpu_state
                        .values(online, || accounts.clock.now_ordered());
                    if values.is_some() {
                        break;
                    }
                    task::sleep_one_ms();
                }
                values.ok_or(EAGAIN)?
            }
            None => {
                let mut values = [0; NR_CPU_VALUES];
                if cpu::is_possible(cpu) {
                    let ns = cpu::idle_ns(cpu);
                    let (ms, rest) = (ns / 1_000_000, ns % 1_000_000);
                    values[3] = ms
                        .wrapping_mul(khz)
                        .wrapping_add(rest.wrapping_mul(khz) / 1_000_000);
                }
                values
            }
        });
    }
    Ok(())
}

/// Copies the values of CPUs to the counter pages. Called by a worker. While accounting is on,
/// queues the worker again.
pub(crate) fn publish_cpu_values() {
    let mut all = ACCOUNTING.lock();
    let Accounting {
        probes: on,
        cpu_instances: totals,
        ..
    } = &mut *all;
    if let (Some(probes), Some(totals)) = (on, totals) {
        if probes.state().clock.is_unstable() {
            pr_warn_once!("accounting: the kernel has marked the TSC unstable; times may be wrong until accounting is turned off and on\n");
        }
        totals.publish(probes.state());
        worker::queue_publisher(cpu_instances::PUBLISH_PERIOD_MS);
    }
}
