// SPDX-License-Identifier: GPL-2.0

//! Contexts by the thread they are for: looked up at each switch to a thread without a lock,
//! however many there are. The kernel's own table, `sys/shim/threads.c`.

use core::ptr::NonNull;

use kernel::error::{to_result, Error, Result};
use kernel::prelude::*;

use super::shim;
use crate::contexts::Context;

/// The table, while it is there. First of all that uses it, and the last to go.
pub(crate) struct Threads(());

impl Threads {
    /// An empty one. May sleep.
    pub(crate) fn begin() -> Result<Self> {
        // SAFETY: Once, before all the others.
        to_result(unsafe { shim::pfm_threads_begin() })?;
        Ok(Self(()))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // SAFETY: Nobody looks any more, and no place is left: contexts are gone.
        unsafe { shim::pfm_threads_end() }
    }
}

/// The context of a task. Preemption off while it is used; it may be one that is being taken
/// out, or even another task's by now, so it is asked again under its lock.
#[inline]
pub(crate) fn context_of<'a>(task: usize) -> Option<&'a Context> {
    // SAFETY: A context goes no sooner than nobody looks at it who found it while its place
    // was there (`Bell::leave`).
    unsafe { shim::pfm_thread_find(task).cast::<Context>().as_ref() }
}

/// Memory for a place in the table.
///
/// # Invariants
///
/// `raw` is one that is not in the table, ours.
pub(crate) struct Unplaced {
    raw: NonNull<shim::Place>,
}

impl Unplaced {
    /// Allocates it, charged to the caller. May sleep, and for long in a control group that is
    /// full: no lock of ours is held that others wait for.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: No requirements.
        let raw = unsafe { shim::pfm_place_new() };
        // INVARIANT: just made.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
        })
    }
}

impl Drop for Unplaced {
    fn drop(&mut self) {
        // SAFETY: Ours, and in no table, by the type's invariant.
        unsafe { shim::pfm_place_free(self.raw.as_ptr()) }
    }
}

/// A context's place in the table; taken out by drop, for which no lock of ours may be held.
///
/// # Invariants
///
/// `raw` is in the table, and ours.
pub(crate) struct Place {
    raw: NonNull<shim::Place>,
    task: usize,
}

// SAFETY: The table takes its own locks.
unsafe impl Send for Place {}
// SAFETY: Only C's table is reached through it, under that table's own locks.
unsafe impl Sync for Place {}

impl Place {
    /// A context is found by its task from now on; it stays while the place does. `EEXIST` if
    /// the task has one; the memory is given back with the error.
    pub(crate) fn new(
        memory: Unplaced,
        task: usize,
        context: &Context,
    ) -> Result<Self, (Error, Unplaced)> {
        let context: *const Context = context;
        let raw = memory.raw;
        // SAFETY: Ours, and in no table; the rest are numbers to it.
        let rc = unsafe { shim::pfm_thread_add(raw.as_ptr(), task, context.cast()) };
        if let Err(error) = to_result(rc) {
            return Err((error, memory));
        }
        core::mem::forget(memory);
        // INVARIANT: just put there.
        Ok(Self { raw, task })
    }

    /// Whose it is.
    pub(crate) fn task(&self) -> usize {
        self.task
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant.
        unsafe { shim::pfm_thread_remove(self.raw.as_ptr()) }
    }
}
