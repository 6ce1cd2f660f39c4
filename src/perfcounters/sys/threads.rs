// SPDX-License-Identifier: GPL-2.0

//! The table of monitored threads: finds the context of a thread, without a lock, at each switch to
//! a thread. It is a resizable hash table of the kernel (`sys/shim/threads.c`).

use core::ptr::NonNull;

use kernel::error::{to_result, Error, Result};
use kernel::prelude::*;

use super::shim;
use crate::contexts::Context;

/// Guard of the table. It is created before anything that uses the table, and dropped after it.
pub(crate) struct ThreadTable(());

impl ThreadTable {
    /// Creates an empty table. May sleep.
    pub(crate) fn create() -> Result<Self> {
        // SAFETY: Called once, before anything uses the table.
        to_result(unsafe { shim::pfm_threads_init() })?;
        Ok(Self(()))
    }
}

impl Drop for ThreadTable {
    fn drop(&mut self) {
        // SAFETY: Nothing searches the table any more, and it has no entries: all contexts are
        // freed.
        unsafe { shim::pfm_threads_destroy() }
    }
}

/// Finds the context of a task. Preemption is off while the result is used. The context may be one
/// that is being detached, or that belongs to another task by now: the caller checks its target
/// under its lock.
#[inline]
pub(crate) fn context_of<'a>(task: usize) -> Option<&'a Context> {
    // SAFETY: The entry's context is freed after an RCU grace period (`Notifier::free_context`),
    // before which the entry was removed, so it is valid with preemption off.
    unsafe { shim::pfm_thread_find(task).cast::<Context>().as_ref() }
}

/// Memory for an entry of the table.
///
/// # Invariants
///
/// `raw` is an entry that this owns and that is not in the table.
pub(crate) struct UnlinkedEntry {
    raw: NonNull<shim::ThreadEntry>,
}

impl UnlinkedEntry {
    /// Allocates an entry, charged to the caller's control group. May sleep, for long if the
    /// control group is full: the caller holds no lock that others wait for. `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: Allocates in process context; no requirements.
        let raw = unsafe { shim::pfm_thread_entry_new() };
        // INVARIANT: The entry was just allocated.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
        })
    }
}

impl Drop for UnlinkedEntry {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant the entry is owned, and not in the table.
        unsafe { shim::pfm_thread_entry_free(self.raw.as_ptr()) }
    }
}

/// An entry of the table. Drop removes it; the caller then holds no lock of this module.
///
/// # Invariants
///
/// `raw` is an entry of the table that this owns.
pub(crate) struct ThreadEntry {
    raw: NonNull<shim::ThreadEntry>,
    task: usize,
}

// SAFETY: The entry may be removed by any thread; the table does its own locking.
unsafe impl Send for ThreadEntry {}
// SAFETY: The entry is accessed by the table only, which does its own locking.
unsafe impl Sync for ThreadEntry {}

impl ThreadEntry {
    /// Enters a context under its task. The context must not be freed before the entry is removed.
    /// `EEXIST` if the task has a context already, and other errors of the table; the memory is
    /// returned with the error.
    pub(crate) fn new(
        memory: UnlinkedEntry,
        task: usize,
        context: &Context,
    ) -> Result<Self, (Error, UnlinkedEntry)> {
        let context: *const Context = context;
        let raw = memory.raw;
        // SAFETY: By its invariant the memory is owned, and not in the table. The table does not
        // access what `task` and `context` point to.
        let rc = unsafe { shim::pfm_thread_add(raw.as_ptr(), task, context.cast()) };
        if let Err(error) = to_result(rc) {
            return Err((error, memory));
        }
        core::mem::forget(memory);
        // INVARIANT: The entry was just inserted; its memory was given up above.
        Ok(Self { raw, task })
    }

    /// Returns the address of the task.
    pub(crate) fn task(&self) -> usize {
        self.task
    }
}

impl Drop for ThreadEntry {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant the entry is in the table. It is freed after an RCU grace
        // period.
        unsafe { shim::pfm_thread_remove(self.raw.as_ptr()) }
    }
}
