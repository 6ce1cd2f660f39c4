// SPDX-License-Identifier: GPL-2.0

//! Process accounting's files in `/proc`, and the worker that removes those of tasks that
//! have ended.

use core::mem::size_of;
use core::ptr::NonNull;

use engine::accounting::NR_CPU_VALUES;
use kernel::bindings;
use kernel::error::{from_result, to_result, Result};
use kernel::ffi::{c_int, c_ulong, c_void};
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::seq_print;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use super::shim;
use crate::{accounting as files, entries};

/// The files; drop removes them, and all entries.
pub(crate) struct Files(());

impl Files {
    /// Makes them appear.
    pub(crate) fn create() -> Result<Self> {
        // SAFETY: Once; drop removes them.
        let made = to_result(unsafe { shim::ppa_files_create() });
        // Nobody can switch it on any more, but somebody may have.
        made.inspect_err(|_| files::stop_for_good())?;
        Ok(Self(()))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // SAFETY: They are there. Waits for readers and the worker, which nobody of them
        // can call again.
        unsafe { shim::ppa_files_close() };
        files::stop_for_good();
        entries::remove_all();
        // SAFETY: No entry is there. An exit's call of the worker was before the probes went.
        unsafe { shim::ppa_wait_for_worker() };
        // SAFETY: No entry is there, and no worker that would make one.
        unsafe { shim::ppa_files_remove() };
    }
}

/// A task's files.
///
/// # Invariants
///
/// They are there.
pub(crate) struct Directory(NonNull<c_void>);

// SAFETY: Only ever removed, from wherever it is dropped.
unsafe impl Send for Directory {}

impl Directory {
    /// Makes a task's files appear, which know it by `id`. May sleep.
    pub(crate) fn create(pid: u32, id: usize) -> Result<Self> {
        // SAFETY: Between the creation of the files and their removal.
        let directory = unsafe { shim::ppa_entry_create(pid, id) };
        // INVARIANT: it was made.
        NonNull::new(directory).map(Self).ok_or(ENOMEM)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: There, by the type's invariant. Waits for readers.
        unsafe { shim::ppa_entry_remove(self.0.as_ptr()) }
    }
}

/// A thread by its number in the initial name space.
pub(crate) fn find(pid: u32) -> Option<ARef<Task>> {
    // SAFETY: A reference, which we own; `Task` is a transparent wrapper of the structure.
    unsafe {
        let task = shim::ppa_get_task(pid);
        Some(ARef::from_raw(NonNull::new(task.cast::<Task>())?))
    }
}

/// Has entries looked after that are not needed any more. Any context that may wake a thread.
pub(crate) fn queue_worker() {
    // SAFETY: It is there as long as the module.
    unsafe { shim::ppa_queue_worker() }
}

/// The values of CPUs go into the counter pages so much later.
pub(crate) fn queue_publisher(ms: u32) {
    // SAFETY: The work is there as long as the module.
    unsafe { shim::ppa_queue_publisher(ms) }
}

#[no_mangle]
extern "C" fn ppa_publish() {
    files::publish();
}

#[no_mangle]
extern "C" fn ppa_worker() {
    entries::tidy();
}

/// # Safety
///
/// Called by seq_file.
#[no_mangle]
unsafe extern "C" fn ppa_show_cpus(seq: *mut bindings::seq_file, _: *mut c_void) -> c_int {
    from_result(|| {
        files::each_cpu(&mut |values: [u64; NR_CPU_VALUES]| {
            // SAFETY: seq_file's own, for the time of the call; an array of ours.
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

/// # Safety
///
/// Called by seq_file.
#[no_mangle]
unsafe extern "C" fn ppa_show_users(seq: *mut bindings::seq_file) -> c_int {
    from_result(|| {
        for (uid, bytes) in &files::of_users()? {
            // SAFETY: seq_file's own, for the time of the call.
            unsafe { shim::pfm_account_line(seq, *uid, *bytes) };
        }
        Ok(0)
    })
}

/// # Safety
///
/// Four numbers, which it reads or writes.
#[no_mangle]
unsafe extern "C" fn ppa_settings(values: *mut c_int, write: bool) -> c_int {
    // SAFETY: By the function's requirement.
    let values = unsafe { &mut *values.cast::<[i32; 4]>() };
    from_result(|| files::settings(values, write).map(|()| 0))
}

/// # Safety
///
/// A number, which it reads or writes.
#[no_mangle]
unsafe extern "C" fn ppa_levels(level: *mut c_int, write: bool) -> c_int {
    // SAFETY: By the function's requirement.
    let level = unsafe { &mut *level };
    from_result(|| files::levels(level, write).map(|()| 0))
}

/// # Safety
///
/// Four numbers, which it reads or writes.
#[no_mangle]
unsafe extern "C" fn ppa_entry_settings(entry: c_ulong, values: *mut c_int, write: bool) -> c_int {
    // SAFETY: By the function's requirement.
    let values = unsafe { &mut *values.cast::<[i32; 4]>() };
    from_result(|| {
        match write {
            true => entries::set_settings(entry, values)?,
            false => *values = entries::settings(entry)?,
        }
        Ok(0)
    })
}

/// # Safety
///
/// Four numbers, which it reads.
#[no_mangle]
unsafe extern "C" fn ppa_set_entry(pid: u32, values: *const c_int) -> c_int {
    // SAFETY: By the function's requirement.
    let values = unsafe { &*values.cast::<[i32; 4]>() };
    from_result(|| entries::set(pid, values).map(|()| 0))
}

/// # Safety
///
/// Called by seq_file.
#[no_mangle]
unsafe extern "C" fn ppa_show_text(seq: *mut bindings::seq_file, entry: c_ulong) -> c_int {
    // SAFETY: seq_file's own, for the time of the call.
    let seq = unsafe { SeqFile::from_raw(seq) };
    from_result(|| entries::show(entry, seq).map(|()| 0))
}

/// # Safety
///
/// Called by seq_file.
#[no_mangle]
unsafe extern "C" fn ppa_show_raw(seq: *mut bindings::seq_file, entry: c_ulong) -> c_int {
    from_result(|| {
        entries::each_number(entry, &mut |bytes| {
            // SAFETY: seq_file's own, for the time of the call.
            unsafe { bindings::seq_write(seq, bytes.as_ptr().cast(), bytes.len()) };
        })?;
        Ok(0)
    })
}

/// # Safety
///
/// Called by seq_file.
#[no_mangle]
unsafe extern "C" fn ppa_show_entries(seq: *mut bindings::seq_file) -> c_int {
    // SAFETY: seq_file's own, for the time of the call.
    let seq = unsafe { SeqFile::from_raw(seq) };
    entries::each(&mut |pid, [a, b, c, d]| {
        seq_print!(seq, "{pid}\t{a}\t{b}\t{c}\t{d}\n");
    });
    0
}
