// SPDX-License-Identifier: GPL-2.0

//! Starts and stops process accounting, and defines the state that the lock `ACCOUNTING` protects.
//! The probes of accounting are in [`crate::probes`], its arithmetic is in `ppa_rules`.

use kernel::alloc::flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT};
use kernel::alloc::KVec;
use kernel::prelude::*;

use crate::config::AccountingConfig;
use crate::cpu_instances::{self, CpuInstances};
use crate::ended_tasks::EndedTasks;
use crate::state::{add_return, level, AccountingState};
use crate::task_entries::TaskEntries;
use crate::task_record::TaskRecord;
use crate::user_return::KernelEntryHooks;
use crate::worker;
use base::global_mutex;
use base::tracepoint::Probes;
use base::{cpu, rcu, task};

/// Maximum number of passes over the task list when accounting starts. Each pass over the task list
/// finds tasks that earlier passes have missed.
const MAX_ATTACH_PASSES: u32 = 10;

global_mutex! {
    /// The state of process accounting. The CPU hotplug lock and the mutex of the counter pages'
    /// registry are taken under `ACCOUNTING`. CPU hotplug callbacks must not take `ACCOUNTING`.
    pub(crate) static ACCOUNTING: Mutex<Accounting> = Accounting::OFF;
}

/// The state of process accounting, protected by the lock `ACCOUNTING`.
pub(crate) struct Accounting {
    /// The probes and their state; `None` while accounting is off.
    pub(crate) probes: Option<Probes<AccountingState>>,
    /// The hooks that measure kernel time outside of system calls; `None` while accounting is off.
    kernel_entry_hooks: Option<KernelEntryHooks>,
    /// The settings for all tasks. If `cpus_per_group` is 0, all CPUs form one group.
    pub(crate) config: AccountingConfig,
    /// The tasks that are accounted individually, and the settings of each such task.
    pub(crate) entries: TaskEntries,
    /// The levels (`PPA_LEVEL_*`) that are measured, as set by `kernel.ppa_levels`.
    pub(crate) levels: u32,
    /// The instances of the counter pages for the values of CPUs; `None` before accounting was
    /// first started, or if the instances could not be added.
    pub(crate) cpu_instances: Option<CpuInstances>,
    /// The records of ended tasks, moved from the list of the probes for the readers of `/dev/ppa`.
    /// A record is kept until each reader has got it, but the oldest records are dropped if the
    /// records exceed their limits.
    pub(crate) ended_tasks: EndedTasks,
}

impl Accounting {
    /// The state before accounting was first started.
    pub(crate) const OFF: Self = Self {
        probes: None,
        kernel_entry_hooks: None,
        config: AccountingConfig {
            on: false,
            latency_hist: false,
            cpus_per_group: 0,
        },
        entries: TaskEntries::NONE,
        levels: level::ALL,
        cpu_instances: None,
        ended_tasks: EndedTasks::NONE,
    };

    /// Returns the number of CPUs per group.
    pub(crate) fn cpus_per_group(&self) -> u32 {
        match self.config.cpus_per_group {
            0 => cpu::nr_cpu_ids(),
            cpus => cpus,
        }
    }

    /// Stops accounting and frees the records of tasks. Before accounting stops, adds the
    /// increments of the CPUs' values since the last [`crate::read_cpus::publish_cpu_values`] to the counter pages.
    fn stop(&mut self) {
        self.ended_tasks.clear();
        let Some(probes) = self.probes.take() else {
            return;
        };
        if let Some(totals) = &mut self.cpu_instances {
            totals.publish(probes.state());
            totals.reset_last_published();
        }
        drop(probes);
        self.kernel_entry_hooks = None;
        rcu::wait_for_callbacks();
    }

    /// Stops accounting if accounting is switched off for all tasks, no task is accounted
    /// individually, and each reader has got all records.
    pub(crate) fn stop_if_done(&mut self) {
        let is_done = |accounts: &AccountingState| {
            // The acquire load pairs with the release of `add_return` in `move_to_ended_tasks`, which
            // increments `nr_ended` before it decrements `nr_tasks`.
            accounts.nr_tasks.load_acquire() == 0 && accounts.nr_ended.load_relaxed() == 0
        };
        if !self.config.on
            && self.entries.has_no_active_entries()
            && self.ended_tasks.is_empty()
            && self.state().is_some_and(is_done)
        {
            self.stop();
        }
    }

    /// Adds the instances for the values of CPUs to the counter pages, if the instances do not
    /// exist.
    fn create_cpu_instances(&mut self) -> Result {
        if self.cpu_instances.is_none() {
            match CpuInstances::new() {
                Ok(totals) => self.cpu_instances = Some(totals),
                // The instances could not be added, for example because their names are in use or
                // all instance numbers are taken. Continue, because accounting works without the
                // instances.
                Err(error) if error != ENOMEM => pr_notice!(
                    "cannot add accounting counters (error {}); accounting runs without them\n",
                    error.to_errno()
                ),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Starts accounting, for all tasks or only for the tasks with an entry in `/proc/ppa`.
    pub(crate) fn start(&mut self) -> Result {
        self.create_cpu_instances()?;
        let AccountingConfig {
            on,
            latency_hist: latencies,
            ..
        } = self.config;
        let accounts = AccountingState::new(on, self.levels, self.cpus_per_group(), latencies)?;
        // After an error `probes` must be dropped before the hooks: the probes arm the hooks.
        let hooks = KernelEntryHooks;
        let mut probes = Probes::new(accounts)?;
        probes.state().per_cpu.set_percpu_pointers();
        AccountingState::attach(&mut probes)?;
        if self.levels & level::CALLS != 0 {
            hooks.attach_seccomp()?;
        }
        let accounts = probes.state();
        // Account the selected tasks first, so that other tasks of their users do not use up the
        // memory that the selected tasks may have.
        self.entries.start_accounting(accounts)?;
        let mut refused = 0;
        for _ in 0..MAX_ATTACH_PASSES {
            let added = match on {
                true => attach_existing_tasks(accounts, &mut refused)?,
                false => 0,
            };
            if added == 0 {
                break;
            }
        }
        add_return(&accounts.refused, refused);
        accounts.begin();
        self.probes = Some(probes);
        self.kernel_entry_hooks = Some(hooks);
        worker::queue_publisher(cpu_instances::PUBLISH_PERIOD_MS);
        // A task with an entry in `/proc/ppa` may have exited before the exit probe was attached.
        // The worker removes the entries of exited tasks from `/proc/ppa`.
        worker::queue_cleanup_worker();
        Ok(())
    }

    /// Stops accounting and starts it again with the current settings. If accounting cannot be
    /// started, accounting is switched off.
    pub(crate) fn restart(&mut self) -> Result {
        self.stop();
        if !self.config.on && self.entries.has_no_active_entries() {
            return Ok(());
        }
        self.start().inspect_err(|_| {
            self.config.on = false;
            self.config.latency_hist = false;
            worker::queue_cleanup_worker();
        })
    }

    /// Returns the state of the probes; `None` while accounting is off.
    pub(crate) fn state(&self) -> Option<&AccountingState> {
        self.probes.as_ref().map(Probes::state)
    }
}

/// Creates records for tasks that have no record, and returns the number of these records. Sets
/// `refused` to the number of tasks that got no record because their user is at its limit or memory
/// is short.
fn attach_existing_tasks(accounts: &AccountingState, refused: &mut u64) -> Result<usize> {
    let (mut missing, mut added) = (0usize, 0usize);
    *refused = 0;
    task::for_each_task(&mut |task| {
        missing = missing.wrapping_add(usize::from(!accounts.has_record_or_exit_state(task)));
    });
    let mut blanks = KVec::with_capacity(missing, GFP_KERNEL)?;
    for _ in 0..missing {
        let blank = TaskRecord::alloc(accounts.cpus_per_group, GFP_KERNEL_ACCOUNT)?;
        blanks.push(blank, GFP_KERNEL)?;
    }
    let latencies = accounts.latency_hist.load_relaxed() != 0;
    task::for_each_task(&mut |task| {
        if accounts.has_record_or_exit_state(task) {
            return;
        }
        if let Some(mut record) = blanks.pop() {
            if record.fill(task).is_err() {
                *refused = refused.wrapping_add(1);
                // Keep the record, because it must not be freed inside the RCU read-side critical
                // section.
                let _ = blanks.push_within_capacity(record);
                return;
            }
            added = added.wrapping_add(1);
            record
                .task_state
                .begin(false, latencies, accounts.clock.now());
            if let Some(rejected) = accounts.insert_record_of_existing_task(record, task) {
                // A record must not be freed inside the RCU read-side critical section, so put the
                // record back into `blanks`, which still has room for it.
                let _ = blanks.push_within_capacity(rejected);
            }
        }
    });
    Ok(added)
}

/// Stops accounting when the module is unloaded or its load fails.
pub(crate) fn shutdown() {
    let mut all = ACCOUNTING.lock();
    all.stop();
    all.cpu_instances = None;
    all.ended_tasks = EndedTasks::NONE;
    // Wait until the task records were freed. stop() waits only if accounting is on.
    rcu::wait_for_callbacks();
}
