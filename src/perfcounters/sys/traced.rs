// SPDX-License-Identifier: GPL-2.0

//! Limits and log lines of user tracing, and marks of traced address spaces and threads.

use kernel::error::Error;

use super::shim;
use crate::base::task::TaskRef;

/// Returns the module parameter `max_traced`: the maximum number of processes that are traced or
/// whose trace was not read.
pub(crate) fn max_traced() -> usize {
    // SAFETY: The callee only reads a module parameter, without requirements.
    unsafe { shim::pt_max_traced() as usize }
}

/// Logs that the current process, or some of its markers, could not be traced. Called in process
/// context.
pub(crate) fn log_refused(markers: bool, error: Error) {
    // SAFETY: The caller is in process context, as the callee requires.
    unsafe { shim::pt_log_refused(markers, error.to_errno()) }
}

/// Records that an address space is traced, or no longer traced. If a traced address space is
/// shared with a child process, the thread id cached in it (`struct perftrace_thread`) is marked as
/// shared before the child runs (`pt_queue_shared_thread()`).
pub(crate) fn set_traced(mm: usize, is_traced: bool) {
    // SAFETY: The callee uses the address as a number only.
    unsafe { shim::pt_set_traced(mm, is_traced) }
}

/// Replaces two words of the current thread's thread-local storage, at offset `at` from the thread
/// pointer, if the second word is `was`. If the memory is not accessible, the words are not
/// changed.
pub(crate) fn replace_thread_words(at: i64, was: u64, new: [u64; 2]) {
    // SAFETY: The caller is in process context and holds no lock, so user memory may be accessed.
    unsafe { shim::pt_thread_replace(at, was, new[0], new[1]) }
}

/// Queues work that a task does before it first enters user mode. The task is a new child that
/// shares the memory of the current task and has not run yet: see [`crate::tracing::children`].
pub(crate) fn queue_shared_work(task: TaskRef<'_>) {
    // SAFETY: The current task is creating the task, which is valid by the invariant of `TaskRef`.
    unsafe { shim::pt_queue_shared_thread(task.as_ptr()) }
}
