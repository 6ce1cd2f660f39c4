// SPDX-License-Identifier: GPL-2.0

//! The settings for all tasks: the files `kernel.ppa` and `kernel.ppa_levels` of sysctl.

use kernel::prelude::*;

use crate::config::AccountingConfig;
use crate::start_stop::ACCOUNTING;
use crate::state::level;
use base::access;
use base::preempt::NoPreempt;

/// Reads or writes the four values of `kernel.ppa`. A write fails with `EPERM` without
/// `CAP_PERFMON`; see [`AccountingConfig::new`] for other errors.
pub(crate) fn read_or_write_settings(values: &mut [i32; 4], write: bool) -> Result {
    if write {
        access::check_may_manage_accounting()?;
    }
    let mut all = ACCOUNTING.lock();
    if !write {
        *values = all.config.values();
        values[3] = all.cpus_per_group() as i32;
        return Ok(());
    }
    let wanted = AccountingConfig::new(values)?;
    let before = (all.config.on, all.cpus_per_group());
    all.config = wanted;
    if before != (wanted.on, wanted.cpus_per_group)
        || (!wanted.on && all.entries.has_no_active_entries())
    {
        return all.restart();
    }
    if let Some(accounts) = all.state() {
        accounts
            .latency_hist
            .store_relaxed(wanted.latency_hist.into());
        let mut place = 0;
        loop {
            let _preempt = NoPreempt::new();
            let Some((record, next)) = accounts.index.next_after(place) else {
                break;
            };
            if record.individually_accounted.load_relaxed() == 0 {
                record.task_state.set_latency_hist(wanted.latency_hist);
            }
            place = next;
        }
    }
    Ok(())
}

/// Reads or writes `kernel.ppa_levels`. A write fails with `EPERM` without `CAP_PERFMON`, and with
/// `EINVAL` for an invalid value.
pub(crate) fn read_or_write_levels(value: &mut i32, write: bool) -> Result {
    if write {
        access::check_may_manage_accounting()?;
    }
    let mut all = ACCOUNTING.lock();
    if !write {
        *value = all.levels as i32;
        return Ok(());
    }
    let levels = *value as u32;
    if levels & level::SCHED == 0 || levels & !level::ALL != 0 {
        pr_notice!(
            "kernel.ppa_levels={}: expected 1, plus 2 for interrupts, 4 for system calls, 8 for the \
             duration of switches\n",
            *value
        );
        return Err(EINVAL);
    }
    if core::mem::replace(&mut all.levels, levels) != levels {
        return all.restart();
    }
    Ok(())
}
