// SPDX-License-Identifier: GPL-2.0

//! The settings and the readers of process accounting. The probes of accounting are in
//! [`crate::probes`], its arithmetic is in `ppa_rules`.

use kernel::alloc::flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT};
use kernel::alloc::{KVVec, KVec};
use kernel::pr_warn_once;
use kernel::prelude::*;
use ppa_rules::NR_CPU_VALUES;

use crate::abi::{Info, TaskStats};
use crate::config::AccountingConfig;
use crate::cpu_instances::{self, CpuInstances};
use crate::ended_tasks::EndedTasks;
use crate::individual_tasks::TaskEntries;
use crate::state::{add_return, level, AccountingState, MAX_ENDED_BYTES, MAX_ENDED_RECORDS};
use crate::task_record::TaskRecord;
use crate::user_return::KernelEntryHooks;
use crate::worker;
use base::global_mutex::global_mutex;
use base::preempt::NoPreempt;
use base::tracepoint::Probes;
use base::{access, clock, cpu, rcu, task};

/// The position in `/dev/ppa` at which the records of ended tasks begin. Positions below
/// `ENDED_POSITION` belong to the records of living tasks.
const ENDED_POSITION: u64 = 1 << 62;
/// A reader whose position is at least `DRAINED_POSITION` reads the records of ended tasks. The
/// reader's position minus `DRAINED_POSITION` is the number of a record: the reader stops before
/// this record. Records of tasks that end later are left for the reader's next pass, so that each
/// pass ends.
const DRAINED_POSITION: u64 = ENDED_POSITION + 1;
/// The bit `PPA_UNSTABLE` in the flags of `PPA_GETINFO`.
const INFO_UNSTABLE: u32 = 8;
/// Maximum number of tasks that one read returns.
const MAX_TASKS_PER_READ: usize = 256;
/// Maximum number of passes over the task list when accounting starts. Each pass over the task list
/// finds tasks that earlier passes have missed.
const MAX_ATTACH_PASSES: u32 = 10;
/// Maximum number of attempts to read values that are being changed. The time between two attempts
/// is 1 ms. A change of the values may take long if the virtual CPU that changes them is preempted.
pub(crate) const MAX_READ_ATTEMPTS: u32 = 200;

global_mutex! {
    /// The state of process accounting. The CPU hotplug lock and the mutex of the counter pages'
    /// registry are taken under `ACCOUNTING`. CPU hotplug callbacks must not take `ACCOUNTING`.
    pub(crate) static ACCOUNTING: Mutex<Accounting> = Accounting::OFF;
}

/// The state of process accounting, protected by the lock `ACCOUNTING`.
pub(crate) struct Accounting {
    /// The probes and their state; `None` while accounting is off.
    probes: Option<Probes<AccountingState>>,
    /// The hooks that measure kernel time outside of system calls; `None` while accounting is off.
    hooks: Option<KernelEntryHooks>,
    /// The settings for all tasks. If `cpus_per_group` is 0, all CPUs form one group.
    config: AccountingConfig,
    /// The tasks that are accounted individually, and the settings of each such task.
    pub(crate) entries: TaskEntries,
    /// The levels (`PPA_LEVEL_*`) that are measured, as set by `kernel.ppa_levels`.
    levels: u32,
    /// The instances of the counter pages for the values of CPUs; `None` before accounting was
    /// first started, or if the instances could not be added.
    cpu_instances: Option<CpuInstances>,
    /// The records of ended tasks, moved from the list of the probes for the readers of `/dev/ppa`.
    /// A record is kept until each reader has got it, but the oldest records are dropped if the
    /// records exceed their limits.
    ended: EndedTasks,
}

impl Accounting {
    /// The state before accounting was first started.
    pub(crate) const OFF: Self = Self {
        probes: None,
        hooks: None,
        config: AccountingConfig {
            on: false,
            latency_hist: false,
            cpus_per_group: 0,
        },
        entries: TaskEntries::NONE,
        levels: level::ALL,
        cpu_instances: None,
        ended: EndedTasks::NONE,
    };

    /// Returns the number of CPUs per group.
    fn cpus_per_group(&self) -> u32 {
        match self.config.cpus_per_group {
            0 => cpu::nr_cpu_ids(),
            cpus => cpus,
        }
    }

    /// Stops accounting and frees the records of tasks. Before accounting stops, adds the
    /// increments of the CPUs' values since the last [`publish_cpu_values`] to the counter pages.
    fn stop(&mut self) {
        self.ended.clear();
        let Some(probes) = self.probes.take() else {
            return;
        };
        if let Some(totals) = &mut self.cpu_instances {
            totals.publish(probes.state());
            totals.reset_last();
        }
        drop(probes);
        self.hooks = None;
        rcu::wait_for_callbacks();
    }

    /// Stops accounting if accounting is switched off for all tasks, no task is accounted
    /// individually, and each reader has got all records.
    pub(crate) fn stop_if_done(&mut self) {
        let is_done = |accounts: &AccountingState| {
            accounts.nr_tasks.load_relaxed() == 0 && accounts.nr_ended.load_relaxed() == 0
        };
        if !self.config.on
            && self.entries.is_empty()
            && self.ended.is_empty()
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
        // After an error `probes` must be dropped before `hooks`: the probes arm the hooks.
        let hooks = KernelEntryHooks;
        let mut probes = Probes::new(accounts)?;
        probes.state().per_cpu.publish();
        AccountingState::attach(&mut probes)?;
        if self.levels & level::CALLS != 0 {
            hooks.attach_seccomp()?;
        }
        let accounts = probes.state();
        // Account the selected tasks first, so that other tasks of their users do not use up the
        // memory that the selected tasks may have.
        self.entries.account(accounts)?;
        let mut refused = 0;
        for _ in 0..MAX_ATTACH_PASSES {
            let added = match on {
                true => attach_running_tasks(accounts, &mut refused)?,
                false => 0,
            };
            if added == 0 {
                break;
            }
        }
        add_return(&accounts.refused, refused);
        accounts.begin();
        self.probes = Some(probes);
        self.hooks = Some(hooks);
        worker::queue_publisher(cpu_instances::PUBLISH_PERIOD_MS);
        // A task with an entry in `/proc/ppa` may have exited before the exit probe was attached.
        // The worker removes the entries of exited tasks from `/proc/ppa`.
        worker::queue_worker();
        Ok(())
    }

    /// Stops accounting and starts it again with the current settings. If accounting cannot be
    /// started, accounting is switched off.
    fn restart(&mut self) -> Result {
        self.stop();
        if !self.config.on && self.entries.is_empty() {
            return Ok(());
        }
        self.start().inspect_err(|_| {
            self.config.on = false;
            self.config.latency_hist = false;
            worker::queue_worker();
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
fn attach_running_tasks(accounts: &AccountingState, refused: &mut u64) -> Result<usize> {
    let (mut missing, mut added) = (0usize, 0usize);
    *refused = 0;
    task::for_each_task(&mut |task| {
        missing = missing.wrapping_add(usize::from(!accounts.is_tracked_or_exiting(task)));
    });
    let mut blanks = KVec::with_capacity(missing, GFP_KERNEL)?;
    for _ in 0..missing {
        let blank = TaskRecord::alloc(accounts.cpus_per_group, GFP_KERNEL_ACCOUNT)?;
        blanks.push(blank, GFP_KERNEL)?;
    }
    let latencies = accounts.latency_hist.load_relaxed() != 0;
    task::for_each_task(&mut |task| {
        if accounts.is_tracked_or_exiting(task) {
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
            record.words.begin(false, latencies, accounts.clock.now());
            if let Some(rejected) = accounts.insert_running(record, task) {
                // A record must not be freed inside the RCU read-side critical section, so put the
                // record back into `blanks`, which still has room for it.
                let _ = blanks.push_within_capacity(rejected);
            }
        }
    });
    Ok(added)
}

/// Reads or writes the four values of `kernel.ppa`. A write fails with `EPERM` without
/// `CAP_PERFMON`; see [`AccountingConfig::new`] for other errors.
pub(crate) fn read_or_write_settings(values: &mut [i32; 4], write: bool) -> Result {
    if write {
        access::may_manage_accounting()?;
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
    if before != (wanted.on, wanted.cpus_per_group) || (!wanted.on && all.entries.is_empty()) {
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
                record.words.set_latency_hist(wanted.latency_hist);
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
        access::may_manage_accounting()?;
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

/// Returns the data of `PPA_GETINFO` for an open file.
pub(crate) fn info(file: usize) -> Info {
    let all = ACCOUNTING.lock();
    let clock = all
        .state()
        .map_or_else(clock::Clock::choose, |accounts| accounts.clock);
    let mut info = Info {
        size: size_of::<Info>() as u32,
        version: 1,
        khz: clock.khz,
        scaling: all.cpus_per_group(),
        nr_cpus: cpu::nr_cpu_ids(),
        nr_groups: cpu::nr_cpu_ids().div_ceil(all.cpus_per_group().max(1)),
        now: clock.now(),
        ..Info::default()
    };
    info.flags = u32::from(all.config.on) | u32::from(all.config.latency_hist) << 1;
    if let Some(accounts) = all.state() {
        if accounts.clock.is_unstable() {
            info.flags |= INFO_UNSTABLE;
        }
        info.levels = accounts.levels;
        info.nr_tasks = accounts.nr_tasks.load_relaxed();
        let unread = all
            .ended
            .end()
            .saturating_sub(all.ended.next_record_of_reader(file));
        info.nr_ended = accounts.nr_ended.load_relaxed().wrapping_add(unread);
        let lost = all.ended.lost_records_of_reader(file);
        info.lost = accounts.lost.load_relaxed().wrapping_add(lost);
        info.refused = accounts.refused.load_relaxed();
    }
    info
}

/// Returns the number of bytes of task records for each user, sorted by user. Records of ended
/// tasks that have not been read yet are included. May sleep.
pub(crate) fn bytes_by_user() -> Result<KVVec<(u32, u64)>> {
    let mut users: KVVec<(u32, u64)> = KVVec::new();
    let mut add = |user: u32, bytes: u64| -> Result {
        match users.binary_search_by_key(&user, |(known, _)| *known) {
            Ok(at) => {
                let known = users.get_mut(at).ok_or(EINVAL)?;
                known.1 = known.1.wrapping_add(bytes);
            }
            Err(at) => {
                users.reserve(1, GFP_KERNEL)?;
                let _ = users.insert_within_capacity(at, (user, bytes));
            }
        }
        Ok(())
    };
    let all = ACCOUNTING.lock();
    if let Some(accounts) = all.state() {
        let mut place = 0;
        loop {
            let found = {
                let _preempt = NoPreempt::new();
                let found = accounts.index.next_after(place);
                found.map(|(record, next)| (record.user(), record.bytes(), next))
            };
            let Some((user, bytes, next)) = found else {
                break;
            };
            add(user, bytes)?;
            place = next;
        }
        // `ACCOUNTING` is held, so no record is removed from `accounts.ended` during the walk.
        let mut done = Ok(());
        accounts.ended.each(|record| {
            if done.is_ok() {
                done = add(record.user(), record.bytes());
            }
        });
        done?;
    }
    for record in all.ended.records_from(0) {
        add(record.user(), record.bytes())?;
    }
    Ok(users)
}

/// Returns the values of at most `most` tasks for an open file, from the position `at` on. First
/// come the values of living tasks, then the values of ended tasks that have not been read through
/// this file. Also returns a record number, which the caller passes to [`note_delivered_records`]:
/// the next read of ended tasks begins at the record with this number. Returns `ENODATA` if
/// accounting is off.
pub(crate) fn collect_tasks(
    file: usize,
    at: &mut u64,
    most: usize,
) -> Result<(KVVec<TaskStats>, u64)> {
    let most = most.min(MAX_TASKS_PER_READ);
    let mut found = KVVec::with_capacity(most, GFP_KERNEL)?;
    let mut all = ACCOUNTING.lock();
    let Accounting {
        probes: on, ended, ..
    } = &mut *all;
    let accounts = on.as_ref().map(Probes::state).ok_or(ENODATA)?;
    ended.add_reader(file)?;
    let mut tries = 0u32;
    while found.len() < most && *at < ENDED_POSITION {
        let (told, next) = {
            let _preempt = NoPreempt::new();
            match accounts.index.next_after(*at) {
                None => (None, ENDED_POSITION),
                Some((record, place)) => {
                    let told =
                        TaskStats::new(record, &accounts.per_cpu, false, true, accounts.clock);
                    (told, place)
                }
            }
        };
        // If the record is being changed, sleep: the task that changes the record may need this
        // CPU.
        if told.is_none() && next != ENDED_POSITION && tries < MAX_READ_ATTEMPTS {
            tries = tries.wrapping_add(1);
            task::sleep_one_ms();
            continue;
        }
        tries = 0;
        *at = next;
        if let Some(told) = told {
            let _ = found.push_within_capacity(told);
        }
    }
    accounts.free_retired();
    let mut next = ended.next_record_of_reader(file);
    if found.len() == most {
        return Ok((found, next));
    }
    if *at < DRAINED_POSITION {
        // `drain()` drops the oldest records of `ended` if old and new records exceed the limits.
        // Call `drain()` only if this reader has got all records of `ended`, or if the new records
        // fit into the limits together with the old records.
        let (nr, bytes) = (accounts.nr_ended.load_relaxed(), accounts.ended_bytes());
        if next == ended.end() || ended.fits(nr, bytes, MAX_ENDED_RECORDS, MAX_ENDED_BYTES) {
            ended.drain(accounts);
            next = ended.next_record_of_reader(file);
        }
        *at = DRAINED_POSITION.wrapping_add(ended.end());
    }
    let pass_end = at.wrapping_sub(DRAINED_POSITION);
    for record in ended.records_from(next) {
        if found.len() == most || next >= pass_end {
            break;
        }
        let Some(told) = TaskStats::new(record, &accounts.per_cpu, true, true, accounts.clock)
        else {
            break;
        };
        let _ = found.push_within_capacity(told);
        next = next.wrapping_add(1);
    }
    Ok((found, next))
}

/// Notes that an open file has got the records of ended tasks whose record numbers are below
/// `next`. Called after a read of `/dev/ppa` has copied the values of ended tasks to user space.
pub(crate) fn note_delivered_records(file: usize, next: u64) {
    let mut all = ACCOUNTING.lock();
    all.ended.advance(file, next);
    if !all.config.on {
        worker::queue_worker();
    }
}

/// Removes the reader of an open file that is being closed.
pub(crate) fn remove_file_reader(file: usize) {
    let mut all = ACCOUNTING.lock();
    all.ended.remove_reader(file);
    if !all.config.on {
        worker::queue_worker();
    }
}

/// Returns the values of one task.
///
/// # Errors
///
/// `ESRCH` if the task does not exist, `EPERM` if the caller may not watch the task, `ENODATA` if
/// the task is not accounted, `EAGAIN` if the values of the task changed during each attempt to
/// read them.
pub(crate) fn collect_task(pid: u32) -> Result<TaskStats> {
    let task = task::find_thread(pid).ok_or(ESRCH)?;
    let all = ACCOUNTING.lock();
    // The task may execute a program with more rights while the caller waits for the lock, so the
    // permission is checked after the wait.
    access::may_read_accounting(&task)?;
    let accounts = all.state().ok_or(ENODATA)?;
    for _ in 0..MAX_READ_ATTEMPTS {
        {
            let _preempt = NoPreempt::new();
            let record = accounts.index.get(task::task_address(&task));
            let record = record.ok_or(ENODATA)?;
            if let Some(told) =
                TaskStats::new(record, &accounts.per_cpu, false, false, accounts.clock)
            {
                return Ok(told);
            }
        }
        task::sleep_one_ms();
    }
    Err(EAGAIN)
}

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
                for _ in 0..MAX_READ_ATTEMPTS {
                    let online = cpu::is_online(cpu);
                    values = here.words.values(online, || accounts.clock.now_ordered());
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

/// Stops accounting when the module is unloaded or its load fails.
pub(crate) fn shutdown() {
    let mut all = ACCOUNTING.lock();
    all.stop();
    all.cpu_instances = None;
    all.ended = EndedTasks::NONE;
    // Wait until the task records were freed. stop() waits only if accounting is on.
    rcu::wait_for_callbacks();
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
