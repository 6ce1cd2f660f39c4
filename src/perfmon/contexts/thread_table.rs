// SPDX-License-Identifier: GPL-2.0

//! The table of monitored threads. At each switch to a thread, the scheduler probe searches the
//! table for the thread's context, without a lock. The table is an rhashtable of the kernel
//! (`src/perfmon/helpers/threads.c`).

#![expect(unsafe_code, reason = "calls of C, and addresses in the table")]

use core::ptr::NonNull;

use kernel::error::{to_result, Error, Result};
use kernel::ffi::c_void;
use kernel::prelude::*;

use crate::helpers;

/// Owner of the table of monitored threads. A `ThreadTable` is created before any code uses the
/// table, and dropped when no code uses the table any more.
pub(crate) struct ThreadTable(());

impl ThreadTable {
    /// Creates an empty table. May sleep.
    pub(crate) fn create() -> Result<Self> {
        // SAFETY: `pfm_threads_init()` is called once, before the table is used.
        to_result(unsafe { helpers::pfm_threads_init() })?;
        Ok(Self(()))
    }
}

impl Drop for ThreadTable {
    fn drop(&mut self) {
        // SAFETY: The table is no longer searched and has no entries, because all contexts are
        // freed.
        unsafe { helpers::pfm_threads_destroy() }
    }
}

/// Returns the address of the context of a task, or null. Called with preemption off.
#[inline]
pub(crate) fn context_address(task: usize) -> *const c_void {
    // SAFETY: `pfm_thread_find()` compares the address `task` with the keys of the table, but does
    // not dereference it. The table exists, because the `ThreadTable` is dropped only when no code
    // uses the table any more.
    unsafe { helpers::pfm_thread_find(task) }
}

/// An entry that is allocated, but not inserted into the table of monitored threads.
///
/// # Invariants
///
/// `raw` is an entry that `self` owns and that is not in the table.
pub(crate) struct UnlinkedEntry {
    raw: NonNull<helpers::ThreadEntry>,
}

impl UnlinkedEntry {
    /// Allocates an entry, charged to the caller's control group. Returns `ENOMEM` if memory is
    /// short. May sleep. If the control group is at its memory limit, the allocation can wait for
    /// reclaim, so the caller holds no lock of this module.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: `pfm_thread_entry_new()` may sleep in the allocation, because the caller is in
        // process context.
        let raw = unsafe { helpers::pfm_thread_entry_new() };
        // INVARIANT: The entry was just allocated.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
        })
    }
}

impl Drop for UnlinkedEntry {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` owns the entry, which is not in the table.
        unsafe { helpers::pfm_thread_entry_free(self.raw.as_ptr()) }
    }
}

/// An entry in the table of monitored threads. Dropping this value removes the entry. The value
/// must not be dropped while a lock of this module is held.
///
/// # Invariants
///
/// `raw` is an entry that is in the table and that `self` owns.
pub(crate) struct ThreadEntry {
    raw: NonNull<helpers::ThreadEntry>,
    /// The address of the task under which the entry was inserted.
    pub(crate) task: usize,
}

// SAFETY: Any thread may remove the entry, because the functions of the table do their own locking.
unsafe impl Send for ThreadEntry {}
// SAFETY: Only the functions of the table access the entry, and they do their own locking.
unsafe impl Sync for ThreadEntry {}

impl ThreadEntry {
    /// Inserts the address of a context into the table under the address of its task. The context
    /// must not be freed before the entry is removed. On error, `memory` is returned with the
    /// error: `EEXIST` if the task has a context already, or an error of the hash table.
    pub(crate) fn new(
        memory: UnlinkedEntry,
        task: usize,
        context: *const c_void,
    ) -> Result<Self, (Error, UnlinkedEntry)> {
        let raw = memory.raw;
        // SAFETY: By the invariant of `UnlinkedEntry`, `memory` owns an entry that is not in the
        // table. The table does not dereference `task` and `context`.
        let rc = unsafe { helpers::pfm_thread_add(raw.as_ptr(), task, context) };
        if let Err(error) = to_result(rc) {
            return Err((error, memory));
        }
        core::mem::forget(memory);
        // INVARIANT: The entry was just inserted, and `memory`, which owned it, was forgotten.
        Ok(Self { raw, task })
    }
}

impl Drop for ThreadEntry {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant the entry is in the table. `pfm_thread_remove()` frees
        // the entry after an RCU grace period.
        unsafe { helpers::pfm_thread_remove(self.raw.as_ptr()) }
    }
}
