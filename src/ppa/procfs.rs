// SPDX-License-Identifier: GPL-2.0

//! The files of process accounting in `/proc` and debugfs, and the worker that removes the files of
//! tasks that have ended.

#![expect(unsafe_code, reason = "calls of C, and callbacks of files")]

use core::mem::size_of;

use kernel::error::{from_result, to_result, Result};
use kernel::ffi::{c_int, c_ulong, c_void};
use kernel::seq_file::SeqFile;
use kernel::{bindings, seq_print};
use ppa_rules::NR_CPU_VALUES;

use crate::{helpers, read_cpus, read_tasks, start_stop, sysctl, task_files};
use base::access;

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
        task_files::remove_all();
        // SAFETY: `remove_all()` has waited for writers of the files of single tasks, and the
        // probes are detached, so that nothing queues the worker any more.
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
    task_files::remove_marked_entries();
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
            true => task_files::set_settings(entry, values)?,
            false => *values = task_files::settings(entry)?,
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
    from_result(|| task_files::set_task_accounting(pid, values).map(|()| 0))
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
    from_result(|| task_files::show_text(entry, seq).map(|()| 0))
}

/// Shows `/proc/ppa/PID/rawppa`: the values of a task, in binary.
///
/// # Safety
///
/// Only seq_file calls this function.
#[no_mangle]
unsafe extern "C" fn ppa_show_raw(seq: *mut bindings::seq_file, entry: c_ulong) -> c_int {
    from_result(|| {
        task_files::write_binary_values(entry, &mut |bytes| {
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
    from_result(|| task_files::each(print).map(|()| 0))
}
