// SPDX-License-Identifier: GPL-2.0

//! Reads the records of tasks: the values of one task or of all tasks for `/dev/ppa` and `/proc/ppa`,
//! and the memory that the records of each user occupy.

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KVVec;
use kernel::prelude::*;
use ppa_rules::{NR_SIGNALS, NR_VALUES};

use crate::abi::TaskStats;
use crate::ended_tasks::ENDED_TASKS_WALK_POSITION;
use crate::start_stop::{Accounting, ACCOUNTING};
use crate::task_record::TaskRecord;
use crate::worker;
use base::clock::Clock;
use base::preempt::NoPreempt;
use base::tracepoint::Probes;
use base::{access, errno, task};

/// Maximum number of tasks that one read returns.
const MAX_TASKS_PER_READ: usize = 256;
/// Maximum number of attempts to read values that are being changed. The time between two attempts
/// is 1 ms. A change of the values may take long if the virtual CPU that changes them is preempted.
pub(crate) const MAX_ONE_MS_RETRIES: u32 = 200;

/// Returns the values of at most `most` tasks for an open file, from the walk position `at` on.
/// First come the values of living tasks, then the values of ended tasks that have not been read
/// through this file. Also returns a record number, which the caller passes to
/// [`note_delivered_records`]: the next read of ended tasks begins at the record with this number.
/// Returns `ENODATA` if accounting is off.
pub(crate) fn collect_tasks(
    file: usize,
    at: &mut u64,
    most: usize,
) -> Result<(KVVec<TaskStats>, u64)> {
    let most = most.min(MAX_TASKS_PER_READ);
    let mut found = KVVec::with_capacity(most, GFP_KERNEL)?;
    let mut all = ACCOUNTING.lock();
    let Accounting {
        probes: on,
        ended_tasks,
        ..
    } = &mut *all;
    let accounts = on.as_ref().map(Probes::state).ok_or_else(errno::enodata)?;
    ended_tasks.add_reader(file)?;
    let mut tries = 0u32;
    while found.len() < most && *at < ENDED_TASKS_WALK_POSITION {
        let (told, next) = {
            let _preempt = NoPreempt::new();
            match accounts.index.next_after(*at) {
                None => (None, ENDED_TASKS_WALK_POSITION),
                Some((record, place)) => {
                    let told = TaskStats::read_from(
                        record,
                        &accounts.per_cpu,
                        false,
                        true,
                        accounts.clock,
                    );
                    (told, place)
                }
            }
        };
        // If the record is being changed, sleep: the task that changes the record may need this
        // CPU.
        if told.is_none() && next != ENDED_TASKS_WALK_POSITION && tries < MAX_ONE_MS_RETRIES {
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
    let next = ended_tasks.collect(accounts, file, at, &mut found, most);
    Ok((found, next))
}

/// Notes that an open file has got the records of ended tasks whose record numbers are below
/// `next`. Called after a read of `/dev/ppa` has copied the values of ended tasks to user space.
pub(crate) fn note_delivered_records(file: usize, next: u64) {
    let mut all = ACCOUNTING.lock();
    all.ended_tasks.advance(file, next);
    if !all.config.on {
        worker::queue_cleanup_worker();
    }
}

/// Removes the reader of an open file that is being closed.
pub(crate) fn remove_file_reader(file: usize) {
    let mut all = ACCOUNTING.lock();
    all.ended_tasks.remove_reader(file);
    if !all.config.on {
        worker::queue_cleanup_worker();
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
    access::check_may_read_accounting(&task)?;
    let accounts = all.state().ok_or_else(errno::enodata)?;
    for _ in 0..MAX_ONE_MS_RETRIES {
        {
            let _preempt = NoPreempt::new();
            let record = accounts.index.get(task::task_address(&task));
            let record = record.ok_or_else(errno::enodata)?;
            if let Some(told) =
                TaskStats::read_from(record, &accounts.per_cpu, false, false, accounts.clock)
            {
                return Ok(told);
            }
        }
        task::sleep_one_ms();
    }
    Err(EAGAIN)
}

/// The accounting values of an entry's task.
pub(crate) struct TaskValues {
    pub(crate) snapshot: ppa_rules::TaskSnapshot,
    pub(crate) groups: KVVec<[u64; NR_VALUES]>,
    pub(crate) signals: [u32; NR_SIGNALS],
    pub(crate) has_latency_hist: bool,
    pub(crate) clock: Clock,
}

/// Reads the accounting values of an entry's task.
///
/// # Errors
///
/// `ESRCH` if the entry or the record of its task does not exist, `EPERM` if the caller may not
/// watch the task (ptrace) and has no `CAP_PERFMON`, `ENODATA` if accounting is off, `EAGAIN` if
/// the values changed during each attempt to read them, `ENOMEM`.
pub(crate) fn read_entry(id: usize) -> Result<TaskValues> {
    let all = ACCOUNTING.lock();
    let entry = all.entries.find(id)?;
    access::check_may_read_accounting(&entry.task)?;
    let accounts = all.state().ok_or_else(errno::enodata)?;
    let nr = TaskRecord::groups(entry.config.cpus_per_group);
    let mut groups = KVVec::with_capacity(nr, GFP_KERNEL)?;
    for _ in 0..nr {
        groups.push([0; NR_VALUES], GFP_KERNEL)?;
    }
    for _ in 0..MAX_ONE_MS_RETRIES {
        {
            let _preempt = NoPreempt::new();
            let record = accounts.index.get(task::task_address(&entry.task));
            let record = record.ok_or(ESRCH)?;
            let clock = || accounts.clock.now_ordered();
            let found = record.read(clock, |cpu| accounts.cpu(cpu), &mut groups);
            if let Some(read) = found {
                return Ok(TaskValues {
                    snapshot: read,
                    signals: core::array::from_fn(|n| record.signals(n)),
                    has_latency_hist: record.task_state.has_latency_hist(),
                    clock: accounts.clock,
                    groups,
                });
            }
        }
        task::sleep_one_ms();
    }
    Err(EAGAIN)
}

/// Returns the number of bytes of task records for each user, sorted by user. Records of ended
/// tasks that have not been read yet are included. May sleep.
pub(crate) fn record_bytes_by_user() -> Result<KVVec<(u32, u64)>> {
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
                found.map(|(record, next)| (record.saved_uid(), record.bytes(), next))
            };
            let Some((user, bytes, next)) = found else {
                break;
            };
            add(user, bytes)?;
            place = next;
        }
        // `ACCOUNTING` is held, so no record is removed from `accounts.ended_records` during the
        // walk.
        let mut done = Ok(());
        accounts.ended_records.each(|record| {
            if done.is_ok() {
                done = add(record.saved_uid(), record.bytes());
            }
        });
        done?;
    }
    for record in all.ended_tasks.records_from(0) {
        add(record.saved_uid(), record.bytes())?;
    }
    Ok(users)
}
