// SPDX-License-Identifier: GPL-2.0

//! The files of process accounting in `/proc` and debugfs. The directories `/proc/ppa/<pid>` are
//! those of the tasks that are accounted individually ([`crate::individual_tasks`]).

#![expect(unsafe_code, reason = "calls of C, and callbacks of files")]

use core::mem::size_of;

use kernel::bindings;
use kernel::error::{from_result, to_result, Result};
use kernel::ffi::{c_int, c_ulong, c_void};
use kernel::seq_file::SeqFile;
use kernel::seq_print;
use ppa_rules::{value, NR_CPU_VALUES, NR_LATENCIES};

use crate::helpers;
use crate::individual_tasks;
use crate::read_cpus::{self, for_each_cpu_values};
use crate::read_tasks::{self, read_entry};
use crate::start_stop;
use crate::sysctl;
use base::{access, cpu};

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
        // of the files that it removes. After `ppa_files_close()`, only the files of single tasks
        // can turn accounting on.
        unsafe { helpers::ppa_files_close() };
        // Remove the entries before accounting is stopped: a writer of the file of a task could
        // turn accounting on again. `remove_all_entries()` waits for the writers.
        individual_tasks::remove_all_entries();
        start_stop::shutdown();
        // SAFETY: The writers have ended and the probes are detached, so that nothing queues the
        // worker or the publisher any more.
        unsafe { helpers::ppa_files_cancel_work() };
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
    individual_tasks::remove_done_entries();
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
        access::check_may_manage_accounting()?;
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
unsafe extern "C" fn ppa_show_record_memory(seq: *mut bindings::seq_file) -> c_int {
    from_result(|| {
        for (uid, bytes) in &read_tasks::record_bytes_by_user()? {
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

/// Returns 0 if the caller may read a file of process accounting: the files of the selected task
/// with the ID `entry`, or, if `entry` is 0, the files with the values of all tasks or CPUs.
/// Otherwise returns a negative errno.
#[no_mangle]
extern "C" fn ppa_may_read(entry: c_ulong) -> c_int {
    from_result(|| {
        match entry {
            0 => access::check_may_manage_accounting()?,
            entry => individual_tasks::check_may_read_entry(entry)?,
        }
        Ok(0)
    })
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
            true => individual_tasks::set_entry_settings(entry, values)?,
            false => *values = individual_tasks::entry_settings(entry)?,
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
    from_result(|| individual_tasks::set_task_accounting(pid, values).map(|()| 0))
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
    from_result(|| individual_tasks::for_each_entry(print).map(|()| 0))
}

/// Returns `sum / of`, or 0 if `of` is 0.
fn ratio_or_zero(sum: u64, of: u64) -> u64 {
    sum.checked_div(of).unwrap_or(0)
}

/// Prints the values of an entry's task in the text format of PPA (2006).
fn show_text(id: usize, seq: &SeqFile) -> Result {
    let had = read_entry(id)?;
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
    let had = read_entry(id)?;
    for number in had.groups.iter().flatten() {
        write(&number.to_ne_bytes());
    }
    write(&had.snapshot.involuntary_wait_ticks.to_ne_bytes());
    for number in &had.signals {
        write(&number.to_ne_bytes());
    }
    if had.has_latency_hist {
        let latencies: &[u64; NR_LATENCIES] = &had.snapshot.latencies;
        for number in latencies {
            write(&number.to_ne_bytes());
        }
    }
    Ok(())
}
