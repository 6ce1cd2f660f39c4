// SPDX-License-Identifier: GPL-2.0

//! The files of process accounting in `/proc` and debugfs, and the worker that removes the files of
//! tasks that have ended. The directories `/proc/ppa/<pid>` are those of the tasks that are
//! accounted individually. Tasks can be accounted individually whether or not all tasks are
//! accounted.
//!
//! Removing the files of an entry waits for readers of the files, which take the lock `ACCOUNTING`.
//! Code that holds `ACCOUNTING` must not wait for readers of the files, so it only sets `removing`
//! in the entry. A worker removes the files later, without holding `ACCOUNTING`.

#![expect(unsafe_code, reason = "calls of C, and callbacks of files")]

use core::mem::size_of;

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KVVec;
use kernel::bindings;
use kernel::error::{from_result, to_result, Result};
use kernel::ffi::{c_int, c_ulong, c_void};
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::seq_print;
use ppa_rules::{value, NR_CPU_VALUES, NR_LATENCIES, NR_SIGNALS, NR_VALUES};

use crate::config::AccountingConfig;
use crate::helpers;
use crate::individual_tasks::TaskEntry;
use crate::read_cpus::{self, for_each_cpu_values};
use crate::read_tasks::{self, MAX_READ_ATTEMPTS};
use crate::start_stop::{self, Accounting, ACCOUNTING};
use crate::sysctl;
use crate::task_record::TaskRecord;
use crate::worker::{self, Directory};
use base::clock::Clock;
use base::preempt::NoPreempt;
use base::task::{self, TaskRef};
use base::{access, cpu, global_mutex};

/// The files of process accounting in `/proc` and debugfs. Dropping this value removes these files
/// and the `/proc/ppa/PID` files of all tasks.
pub(crate) struct ProcfsFiles(());

impl ProcfsFiles {
    /// Creates the files of process accounting.
    pub(crate) fn create() -> Result<Self> {
        // SAFETY: `ppa_files_create()` is called once, and the drop of `ProcfsFiles` removes the
        // files.
        let made = to_result(unsafe { helpers::ppa_files_create() });
        // After an error no file is left that could turn accounting on. Turn accounting off,
        // because a writer may have turned it on before the error.
        made.inspect_err(|_| start_stop::shutdown())?;
        Ok(Self(()))
    }
}

impl Drop for ProcfsFiles {
    fn drop(&mut self) {
        // SAFETY: `create` has created the files. `ppa_files_close()` waits for readers and writers
        // of the files that it removes, and for the worker. After `ppa_files_close()`, only probes
        // and the files of single tasks can queue the worker.
        unsafe { helpers::ppa_files_close() };
        start_stop::shutdown();
        remove_all_entries();
        // SAFETY: `remove_all_entries()` has waited for writers of the files of single tasks, and
        // the probes are detached, so that nothing queues the worker any more.
        unsafe { helpers::ppa_wait_for_worker() };
        // SAFETY: The files of all tasks are removed, and the worker does not run any more.
        unsafe { helpers::ppa_files_remove() };
    }
}

#[no_mangle]
extern "C" fn ppa_publish() {
    read_cpus::publish_cpu_values();
}

#[no_mangle]
extern "C" fn ppa_worker() {
    remove_marked_entries();
}

/// Shows `/proc/rawsysppa`: the values of all CPUs, in binary. Returns `EPERM` without
/// `CAP_PERFMON`.
///
/// # Safety
///
/// Only seq_file calls this function.
#[no_mangle]
unsafe extern "C" fn ppa_show_cpus(seq: *mut bindings::seq_file, _: *mut c_void) -> c_int {
    from_result(|| {
        access::may_manage_accounting()?;
        read_cpus::for_each_cpu_values(&mut |values: [u64; NR_CPU_VALUES]| {
            // SAFETY: seq_file's structure is valid during the call, and the size passed is that of
            // the array.
            unsafe {
                bindings::seq_write(
                    seq,
                    values.as_ptr().cast(),
                    size_of::<[u64; NR_CPU_VALUES]>(),
                )
            };
        })?;
        Ok(0)
    })
}

/// Shows the debugfs file `ppa/records`: the memory of task records per user in bytes.
///
/// # Safety
///
/// Only seq_file calls this function.
#[no_mangle]
unsafe extern "C" fn ppa_show_records(seq: *mut bindings::seq_file) -> c_int {
    from_result(|| {
        for (uid, bytes) in &read_tasks::bytes_by_user()? {
            // SAFETY: seq_file's structure is valid during the call.
            unsafe { helpers::ppa_record_line(seq, *uid, *bytes) };
        }
        Ok(0)
    })
}

/// Reads or writes the setting `kernel.ppa`.
///
/// # Safety
///
/// `values` points to four integers, which nothing else uses during the call.
#[no_mangle]
unsafe extern "C" fn ppa_settings(values: *mut c_int, write: bool) -> c_int {
    // SAFETY: By the function's requirement `values` points to four integers that nothing else
    // uses.
    let values = unsafe { &mut *values.cast::<[i32; 4]>() };
    from_result(|| sysctl::read_or_write_settings(values, write).map(|()| 0))
}

/// Reads or writes the setting `kernel.ppa_levels`.
///
/// # Safety
///
/// `level` points to an integer, which nothing else uses during the call.
#[no_mangle]
unsafe extern "C" fn ppa_levels(level: *mut c_int, write: bool) -> c_int {
    // SAFETY: By the function's requirement `level` points to an integer that nothing else uses.
    let level = unsafe { &mut *level };
    from_result(|| sysctl::read_or_write_levels(level, write).map(|()| 0))
}

/// Reads or writes the settings of a selected task.
///
/// # Safety
///
/// `values` points to four integers, which nothing else uses during the call.
#[no_mangle]
unsafe extern "C" fn ppa_entry_settings(entry: c_ulong, values: *mut c_int, write: bool) -> c_int {
    // SAFETY: By the function's requirement `values` points to four integers that nothing else
    // uses.
    let values = unsafe { &mut *values.cast::<[i32; 4]>() };
    from_result(|| {
        match write {
            true => set_entry_settings(entry, values)?,
            false => *values = entry_settings(entry)?,
        }
        Ok(0)
    })
}

/// Selects a task for accounting, changes the settings of a selected task, or deselects a task.
///
/// # Safety
///
/// `values` points to four integers, which nothing writes during the call.
#[no_mangle]
unsafe extern "C" fn ppa_set_entry(pid: u32, values: *const c_int) -> c_int {
    // SAFETY: By the function's requirement `values` points to four integers that nothing writes.
    let values = unsafe { &*values.cast::<[i32; 4]>() };
    from_result(|| set_task_accounting(pid, values).map(|()| 0))
}

/// Shows `/proc/ppa/PID/ppa`: the values of a task, as text.
///
/// # Safety
///
/// Only seq_file calls this function.
#[no_mangle]
unsafe extern "C" fn ppa_show_text(seq: *mut bindings::seq_file, entry: c_ulong) -> c_int {
    // SAFETY: seq_file's structure is valid during the call.
    let seq = unsafe { SeqFile::from_raw(seq) };
    from_result(|| show_text(entry, seq).map(|()| 0))
}

/// Shows `/proc/ppa/PID/rawppa`: the values of a task, in binary.
///
/// # Safety
///
/// Only seq_file calls this function.
#[no_mangle]
unsafe extern "C" fn ppa_show_raw(seq: *mut bindings::seq_file, entry: c_ulong) -> c_int {
    from_result(|| {
        write_binary_values(entry, &mut |bytes| {
            // SAFETY: seq_file's structure is valid during the call, and the length passed is that
            // of the slice.
            unsafe { bindings::seq_write(seq, bytes.as_ptr().cast(), bytes.len()) };
        })?;
        Ok(0)
    })
}

/// Shows `/proc/ppa/ppactl`: the selected tasks and their settings.
///
/// # Safety
///
/// Only seq_file calls this function.
#[no_mangle]
unsafe extern "C" fn ppa_show_entries(seq: *mut bindings::seq_file) -> c_int {
    // SAFETY: seq_file's structure is valid during the call.
    let seq = unsafe { SeqFile::from_raw(seq) };
    let print = &mut |pid, [a, b, c, d]: [i32; 4]| {
        seq_print!(seq, "{pid}\t{a}\t{b}\t{c}\t{d}\n");
    };
    from_result(|| for_each_entry(print).map(|()| 0))
}

global_mutex! {
    /// Serialises the selection of single tasks for accounting, which creates `/proc/ppa/PID`.
    /// `TASK_FILES` is taken before `ACCOUNTING`. The files in `/proc/ppa/PID` are created and
    /// removed without `ACCOUNTING`, because readers of these files take `ACCOUNTING`.
    pub(crate) static TASK_FILES: Mutex<()> = ();
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
fn set_task_accounting(pid: u32, values: &[i32; 4]) -> Result {
    access::may_manage_accounting()?;
    let wanted = AccountingConfig::new(values)?;
    let task = task::find_thread_in_initial_ns(pid).ok_or(ESRCH)?;
    if task::is_exiting(&task) {
        return Err(ESRCH);
    }
    let _others = TASK_FILES.lock();
    // Wait until an older entry with this PID is removed, but check at most `MAX_READ_ATTEMPTS`
    // times: readers of the entry's files can delay the removal.
    for _ in 0..MAX_READ_ATTEMPTS {
        let is_going =
            |entry: &TaskEntry| entry.pid == pid && (entry.removing || entry.has_ended());
        if !ACCOUNTING.lock().entries.iter().any(is_going) {
            break;
        }
        worker::queue_worker();
        task::sleep_one_ms();
    }
    let id = {
        let mut all = ACCOUNTING.lock();
        let same =
            |entry: &&TaskEntry| task::task_address(&entry.task) == task::task_address(&task);
        let found = all.entries.iter().find(same);
        match found.map(|entry| (entry.id, entry.removing)) {
            Some((_, true)) => return Err(EBUSY),
            Some((id, false)) => return change(&mut all, id, wanted),
            None => {}
        }
        // Another task may have an entry with this PID: a thread that executes a program takes over
        // the PID of its thread-group leader, and the thread's old PID may be in use again.
        if all.entries.iter().any(|entry| entry.pid == pid) {
            worker::queue_worker();
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
        let id = all.entries.next;
        all.entries.next = id.wrapping_add(1);
        id
    };
    let entry = TaskEntry {
        id,
        pid,
        config: wanted,
        removing: false,
        directory: Some(Directory::create(pid, id)?),
        task,
    };
    add(&mut ACCOUNTING.lock(), entry)
}

/// Adds an entry to the list and starts to account its task. The caller has reserved memory for one
/// more entry.
fn add(all: &mut Accounting, entry: TaskEntry) -> Result {
    let id = entry.id;
    all.entries.put(entry);
    let accounted = match all.state() {
        None => start_with_entry(all, id),
        Some(accounts) => all.entries.find(id).and_then(|e| e.account(accounts)),
    };
    // If the task exited before its record was marked as individually accounted, the exit probe has
    // not queued the worker. Search for the entry again, which fails if the task has exited.
    let done = accounted.and_then(|()| all.entries.find(id).map(|_| ()));
    if done.is_err() {
        let entry = all.entries.iter().find(|entry| entry.id == id);
        // If the task got no individual record, it keeps the record that it had before.
        if let (Ok(()), Some(entry), Some(accounts)) = (accounted, entry, all.state()) {
            accounts.end_individual(TaskRef::of_task(&entry.task));
        }
        mark_removing(all, id);
    }
    done
}

/// Starts accounting, which is off, for the tasks of all entries. Returns `EDQUOT` if the user of
/// the task with the entry `id` would exceed the limit `user_kb`.
fn start_with_entry(all: &mut Accounting, id: usize) -> Result {
    all.start()?;
    // start() has set `removing` if the record of the task was refused.
    match all.entries.find_even_removing(id) {
        Some(entry) if entry.removing => Err(EDQUOT),
        _ => Ok(()),
    }
}

/// Sets `removing` in an entry, and queues the worker that removes the entry.
fn mark_removing(all: &mut Accounting, id: usize) {
    if let Some(entry) = all.entries.find_even_removing(id) {
        entry.removing = true;
    }
    worker::queue_worker();
}

/// Changes the settings of an entry. If the new settings switch accounting off, removes the entry.
fn change(all: &mut Accounting, id: usize, wanted: AccountingConfig) -> Result {
    let entry = all.entries.find(id)?;
    if !wanted.on {
        if let Some(accounts) = all.state() {
            accounts.end_individual(TaskRef::of_task(&entry.task));
        }
        mark_removing(all, id);
        return Ok(());
    }
    let before = entry.config;
    if let Some(entry) = all.entries.find_even_removing(id) {
        entry.config = wanted;
    }
    let done = match all.state() {
        // Accounting is off although the task is selected: an earlier restart has failed.
        None => start_with_entry(all, id),
        Some(accounts) => match all.entries.find(id) {
            Ok(entry) if before.cpus_per_group == wanted.cpus_per_group => {
                let _preempt = NoPreempt::new();
                if let Some(record) = accounts.index.get(task::task_address(&entry.task)) {
                    record.words.set_latency_hist(wanted.latency_hist);
                }
                Ok(())
            }
            found => found.and_then(|entry| entry.account(accounts)),
        },
    };
    if done.is_err() {
        if let Some(entry) = all.entries.find_even_removing(id) {
            entry.config = before;
        }
    }
    done
}

/// Returns an entry's settings: the four values of the task's `ppactl` file. Returns `ESRCH` if the
/// entry does not exist, and `EPERM` in the same cases as [`read`].
fn entry_settings(id: usize) -> Result<[i32; 4]> {
    let all = ACCOUNTING.lock();
    let entry = all.entries.find(id)?;
    access::may_read_accounting(&entry.task)?;
    Ok(entry.config.values())
}

/// Changes an entry's settings: the four values of the task's `ppactl` file. Returns `EPERM`
/// without `CAP_PERFMON`; other errors are those of [`set_task_accounting`].
fn set_entry_settings(id: usize, values: &[i32; 4]) -> Result {
    access::may_manage_accounting()?;
    let wanted = AccountingConfig::new(values)?;
    change(&mut ACCOUNTING.lock(), id, wanted)
}

/// Calls `each` with the PID and the settings (the four values of `ppactl`) of each entry. Returns
/// `EPERM` without `CAP_PERFMON`.
fn for_each_entry(each: &mut dyn FnMut(u32, [i32; 4])) -> Result {
    access::may_manage_accounting()?;
    for entry in ACCOUNTING.lock().entries.iter() {
        if !entry.removing && !entry.has_ended() {
            each(entry.pid, entry.config.values());
        }
    }
    Ok(())
}

/// Removes the entries that are marked with `removing` or whose tasks have exited. Before it
/// removes the files of an entry, stops accounting if accounting is no longer needed: see
/// [`Accounting::stop_if_done`].
///
/// Context: the worker. `remove_marked_entries()` waits for readers of the files that it removes.
fn remove_marked_entries() {
    loop {
        let gone = {
            let mut all = ACCOUNTING.lock();
            all.stop_if_done();
            all.entries.take_entry_to_remove()
        };
        let Some((id, directory)) = gone else { break };
        drop(directory);
        let entry = ACCOUNTING.lock().entries.remove(id);
        drop(entry);
    }
}

/// Removes all entries and frees the list. Called when no new entries can be added any more.
fn remove_all_entries() {
    // The list is dropped while `ACCOUNTING` is not held, because dropping a directory waits for
    // readers of its files, which take `ACCOUNTING`.
    let all = core::mem::take(&mut ACCOUNTING.lock().entries.all);
    drop(all);
}

/// The accounting values of an entry's task.
struct TaskValues {
    snapshot: ppa_rules::TaskSnapshot,
    groups: KVVec<[u64; NR_VALUES]>,
    signals: [u32; NR_SIGNALS],
    latency_hist: bool,
    clock: Clock,
}

/// Reads the accounting values of an entry's task.
///
/// # Errors
///
/// `ESRCH` if the entry or the record of its task does not exist, `EPERM` if the caller may not
/// watch the task (ptrace) and has no `CAP_PERFMON`, `ENODATA` if accounting is off, `EAGAIN` if
/// the values changed during each attempt to read them, `ENOMEM`.
fn read(id: usize) -> Result<TaskValues> {
    let all = ACCOUNTING.lock();
    let entry = all.entries.find(id)?;
    access::may_read_accounting(&entry.task)?;
    let accounts = all.state().ok_or(ENODATA)?;
    let nr = TaskRecord::groups(entry.config.cpus_per_group);
    let mut groups = KVVec::with_capacity(nr, GFP_KERNEL)?;
    for _ in 0..nr {
        groups.push([0; NR_VALUES], GFP_KERNEL)?;
    }
    for _ in 0..MAX_READ_ATTEMPTS {
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
                    latency_hist: record.words.has_latency_hist(),
                    clock: accounts.clock,
                    groups,
                });
            }
        }
        task::sleep_one_ms();
    }
    Err(EAGAIN)
}

/// Returns `sum / of`, or 0 if `of` is 0.
fn ratio_or_zero(sum: u64, of: u64) -> u64 {
    sum.checked_div(of).unwrap_or(0)
}

/// Prints the values of an entry's task in the text format of PPA (2006).
fn show_text(id: usize, seq: &SeqFile) -> Result {
    let had = read(id)?;
    let v = &had.snapshot.values;
    let micros = |ticks: u64| had.clock.ticks_to_ns(ticks) / 1000;
    // The average is in nanoseconds, and is printed in microseconds with three decimals.
    let average = |ticks: u64, of: u64| had.clock.ticks_to_ns(ratio_or_zero(ticks, of));
    let mut idle = 0u64;
    for_each_cpu_values(&mut |values| idle = idle.wrapping_add(values[3]))?;
    // Precise times of other tasks are a side channel, so the idle time of the system is rounded
    // down to a multiple of 10 ms.
    let idle = ratio_or_zero(micros(idle), 10_000).wrapping_mul(10_000);
    // User time is computed from the rounded total and system times, so that the printed user and
    // system times add up to the total.
    let (total, system) = (micros(v[value::SCHED]), micros(v[value::SYSTEM]));
    let switches = v[value::BLOCKED]
        .wrapping_add(v[value::EXPIRED])
        .wrapping_add(v[value::PREEMPTED]);
    // Divide by 1 at least: the number of wakeups is 0 until the first wait of the task is over.
    let latency = average(v[value::LATENCY], had.snapshot.wakeups().max(1));
    let switching = average(v[value::SWITCHING], switches);
    seq_print!(
        seq,
        "All results in micro seconds ([v2.0]) {} cycles/usec {} CPUs active\n",
        had.clock.khz / 1000,
        cpu::count_online_cpus()
    );
    seq_print!(
        seq,
        "Usr Sys Int Total\n{} {} {} {}\n",
        total.saturating_sub(system),
        system,
        micros(v[value::INTERRUPTS]),
        total
    );
    seq_print!(
        seq,
        "Rescheds Scho Prmpt-Pri Prmpt-Exp Avg-Latency\n{} {} {} {} {}.{:03}\n",
        v[value::RESCHEDULED],
        v[value::BLOCKED],
        v[value::PREEMPTED],
        v[value::EXPIRED],
        latency / 1000,
        latency % 1000
    );
    seq_print!(
        seq,
        "Sys-Idle Avg-Ctxt-Dur\n{} {}.{:03}\n",
        idle,
        switching / 1000,
        switching % 1000
    );
    Ok(())
}

/// Writes the values of an entry's task in binary: the values for each group of CPUs, the time on
/// the run queue, how often each signal was delivered, and the latency histogram, if any.
fn write_binary_values(id: usize, write: &mut dyn FnMut(&[u8])) -> Result {
    let had = read(id)?;
    for number in had.groups.iter().flatten() {
        write(&number.to_ne_bytes());
    }
    write(&had.snapshot.runq.to_ne_bytes());
    for number in &had.signals {
        write(&number.to_ne_bytes());
    }
    if had.latency_hist {
        let latencies: &[u64; NR_LATENCIES] = &had.snapshot.latencies;
        for number in latencies {
            write(&number.to_ne_bytes());
        }
    }
    Ok(())
}
