// SPDX-License-Identifier: GPL-2.0

//! Starts, changes and ends the individual accounting of tasks. Tasks can be accounted individually
//! whether or not all tasks are accounted. [`TaskEntry`] describes a task that is accounted
//! individually.
//!
//! Removing the files of an entry waits for readers of the files, which take the lock `ACCOUNTING`.
//! Code that holds `ACCOUNTING` must not wait for readers of the files, so it only sets `removing`
//! in the entry. A worker removes the files later, without holding `ACCOUNTING`.

use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;

use crate::config::AccountingConfig;
use crate::read_tasks::MAX_ONE_MS_RETRIES;
use crate::start_stop::{Accounting, ACCOUNTING};
use crate::task_entries::{TaskDirectory, TaskEntry};
use crate::worker;
use base::preempt::NoPreempt;
use base::task::{self, TaskRef};
use base::{access, errno, global_mutex};

global_mutex! {
    /// Serialises the selection of single tasks for accounting, which creates `/proc/ppa/PID`.
    /// `SET_TASK_ACCOUNTING_LOCK` is taken before `ACCOUNTING`. The files in `/proc/ppa/PID` are
    /// created and removed without `ACCOUNTING`, because readers of these files take `ACCOUNTING`.
    pub(crate) static SET_TASK_ACCOUNTING_LOCK: Mutex<()> = ();
}

/// Maximum number of tasks with entries.
const MAX_TASK_ENTRIES: usize = 4096;

/// Starts, changes or ends the individual accounting of a task. `pid` is in the initial namespace.
///
/// # Errors
///
/// `EPERM` without `CAP_PERFMON`; `ESRCH` if the task does not exist or is exiting; `EBUSY` while
/// another task has an entry with the PID `pid`, or an old entry of the task is being removed;
/// `ENOSPC` at [`MAX_TASK_ENTRIES`] entries; `EDQUOT` if the task's user would exceed the limit
/// `user_kb`; `ENOMEM`; the errors of [`AccountingConfig::new`].
pub(crate) fn set_task_accounting(pid: u32, values: &[i32; 4]) -> Result {
    access::check_may_manage_accounting()?;
    let wanted = AccountingConfig::new(values)?;
    let task = task::find_thread_in_initial_ns(pid).ok_or(ESRCH)?;
    if task::is_exiting(&task) {
        return Err(ESRCH);
    }
    let _others = SET_TASK_ACCOUNTING_LOCK.lock();
    // Wait until an older entry with this PID is removed, but check at most `MAX_ONE_MS_RETRIES`
    // times: readers of the entry's files can delay the removal.
    for _ in 0..MAX_ONE_MS_RETRIES {
        let is_going =
            |entry: &TaskEntry| entry.pid == pid && (entry.removing || entry.is_task_exiting());
        if !ACCOUNTING.lock().entries.iter().any(is_going) {
            break;
        }
        worker::queue_cleanup_worker();
        task::sleep_one_ms();
    }
    let id = {
        let mut all = ACCOUNTING.lock();
        let same =
            |entry: &&TaskEntry| task::task_address(&entry.task) == task::task_address(&task);
        let found = all.entries.iter().find(same);
        match found.map(|entry| (entry.id, entry.removing)) {
            Some((_, true)) => return Err(EBUSY),
            Some((id, false)) => return change_entry(&mut all, id, wanted),
            None => {}
        }
        // Another task may have an entry with this PID: a thread that executes a program takes over
        // the PID of its thread-group leader, and the thread's old PID may be in use again.
        if all.entries.iter().any(|entry| entry.pid == pid) {
            worker::queue_cleanup_worker();
            return Err(EBUSY);
        }
        if !wanted.on {
            return Ok(());
        }
        if all.entries.nr() >= MAX_TASK_ENTRIES {
            pr_notice!("limit of {MAX_TASK_ENTRIES} individually accounted tasks reached; remove some through /proc/ppa/ppactl\n");
            return Err(ENOSPC);
        }
        all.entries.all.reserve(1, GFP_KERNEL)?;
        let id = all.entries.next_id;
        all.entries.next_id = id.wrapping_add(1);
        id
    };
    let entry = TaskEntry {
        id,
        pid,
        config: wanted,
        removing: false,
        directory: Some(TaskDirectory::create(pid, id)?),
        task,
    };
    add_and_start_entry(&mut ACCOUNTING.lock(), entry)
}

/// Adds an entry to the list and starts to account its task. The caller has reserved memory for one
/// more entry.
fn add_and_start_entry(all: &mut Accounting, entry: TaskEntry) -> Result {
    let id = entry.id;
    all.entries.put(entry);
    let accounted = match all.state() {
        None => start_with_entry(all, id),
        Some(accounts) => all
            .entries
            .find(id)
            .and_then(|e| e.start_accounting(accounts)),
    };
    // If the task exited before its record was marked as individually accounted, the exit probe has
    // not queued the worker. Search for the entry again, which fails if the task has exited.
    let done = accounted.and_then(|()| all.entries.find(id).map(|_| ()));
    if done.is_err() {
        let entry = all.entries.iter().find(|entry| entry.id == id);
        // If the task got no individual record, it keeps the record that it had before.
        if let (Ok(()), Some(entry), Some(accounts)) = (accounted, entry, all.state()) {
            accounts.end_individual_accounting(TaskRef::of_task(&entry.task));
        }
        queue_entry_removal(all, id);
    }
    done
}

/// Starts accounting, which is off, for the tasks of all entries. Returns `EDQUOT` if the user of
/// the task with the entry `id` would exceed the limit `user_kb`.
fn start_with_entry(all: &mut Accounting, id: usize) -> Result {
    all.start()?;
    // start() has set `removing` if the record of the task was refused.
    match all.entries.find_even_if_removing(id) {
        Some(entry) if entry.removing => Err(errno::edquot()),
        _ => Ok(()),
    }
}

/// Sets `removing` in an entry, and queues the worker that removes the entry.
fn queue_entry_removal(all: &mut Accounting, id: usize) {
    if let Some(entry) = all.entries.find_even_if_removing(id) {
        entry.removing = true;
    }
    worker::queue_cleanup_worker();
}

/// Changes the settings of an entry. If the new settings switch accounting off, removes the entry.
fn change_entry(all: &mut Accounting, id: usize, wanted: AccountingConfig) -> Result {
    let entry = all.entries.find(id)?;
    if !wanted.on {
        if let Some(accounts) = all.state() {
            accounts.end_individual_accounting(TaskRef::of_task(&entry.task));
        }
        queue_entry_removal(all, id);
        return Ok(());
    }
    let before = entry.config;
    if let Some(entry) = all.entries.find_even_if_removing(id) {
        entry.config = wanted;
    }
    let done = match all.state() {
        // Accounting is off although the task is selected: an earlier restart has failed.
        None => start_with_entry(all, id),
        Some(accounts) => match all.entries.find(id) {
            Ok(entry) if before.cpus_per_group == wanted.cpus_per_group => {
                let _preempt = NoPreempt::new();
                if let Some(record) = accounts.index.get(task::task_address(&entry.task)) {
                    record.task_state.set_latency_hist(wanted.latency_hist);
                }
                Ok(())
            }
            found => found.and_then(|entry| entry.start_accounting(accounts)),
        },
    };
    if done.is_err() {
        if let Some(entry) = all.entries.find_even_if_removing(id) {
            entry.config = before;
        }
    }
    done
}

/// Returns an entry's settings: the four values of the task's `ppactl` file. Returns `ESRCH` if the
/// entry does not exist, and `EPERM` in the same cases as
/// [`read_entry`](crate::read_tasks::read_entry).
pub(crate) fn entry_settings(id: usize) -> Result<[i32; 4]> {
    let all = ACCOUNTING.lock();
    let entry = all.entries.find(id)?;
    access::check_may_read_accounting(&entry.task)?;
    Ok(entry.config.values())
}

/// Returns `EPERM` if the caller may not read the files of an entry, and `ESRCH` if the entry was
/// removed.
pub(crate) fn check_may_read_entry(id: usize) -> Result {
    let mut all = ACCOUNTING.lock();
    let entry = all.entries.find_even_if_removing(id).ok_or(ESRCH)?;
    access::check_may_read_accounting(&entry.task)
}

/// Changes an entry's settings: the four values of the task's `ppactl` file. Returns `EPERM`
/// without `CAP_PERFMON`; other errors are those of [`set_task_accounting`].
pub(crate) fn set_entry_settings(id: usize, values: &[i32; 4]) -> Result {
    access::check_may_manage_accounting()?;
    let wanted = AccountingConfig::new(values)?;
    change_entry(&mut ACCOUNTING.lock(), id, wanted)
}

/// Calls `each` with the PID and the settings (the four values of `ppactl`) of each entry. Returns
/// `EPERM` without `CAP_PERFMON`.
pub(crate) fn for_each_entry(each: &mut dyn FnMut(u32, [i32; 4])) -> Result {
    access::check_may_manage_accounting()?;
    for entry in ACCOUNTING.lock().entries.iter() {
        if !entry.removing && !entry.is_task_exiting() {
            each(entry.pid, entry.config.values());
        }
    }
    Ok(())
}

/// Removes the entries that are marked with `removing` or whose tasks have exited. Before it
/// removes the files of an entry, stops accounting if accounting is no longer needed: see
/// [`Accounting::stop_if_done`].
///
/// Context: the worker. `remove_done_entries()` waits for readers of the files that it removes.
pub(crate) fn remove_done_entries() {
    loop {
        let gone = {
            let mut all = ACCOUNTING.lock();
            all.stop_if_done();
            all.entries.take_directory_to_remove()
        };
        let Some((id, directory)) = gone else { break };
        drop(directory);
        let entry = ACCOUNTING.lock().entries.remove(id);
        drop(entry);
    }
}

/// Removes all entries and frees the list. Waits for readers and writers of the files of tasks.
/// Called when no new entries can be added any more. Accounting may still be on.
pub(crate) fn remove_all_entries() {
    // The list is dropped while `ACCOUNTING` is not held, because dropping a directory waits for
    // readers of its files, which take `ACCOUNTING`.
    let all = core::mem::take(&mut ACCOUNTING.lock().entries.all);
    drop(all);
}
