// SPDX-License-Identifier: GPL-2.0

//! User tracing: its limit of traced processes, its log lines, and the marking of address spaces
//! and threads as traced or shared.

#![expect(unsafe_code, reason = "calls of C")]

use kernel::error::Error;
use kernel::task::Task;

use crate::helpers;
use base::task::TaskRef;

/// Returns the module parameter `max_traced`: the maximum number of processes that are traced or
/// whose events were not read yet.
pub(crate) fn max_traced() -> usize {
    // SAFETY: `pt_max_traced()` only reads a module parameter.
    unsafe { helpers::pt_max_traced() as usize }
}

/// Logs that the current process, or some of its markers, could not be traced. Called in process
/// context.
pub(crate) fn log_refused(markers: bool, error: Error) {
    // SAFETY: The caller is in process context, as `pt_log_refused()` requires.
    unsafe { helpers::pt_log_refused(markers, error.to_errno()) }
}

/// Logs that a process is not traced because the permission to trace it could not be checked.
pub(crate) fn log_unchecked(leader: &Task, error: Error) {
    // SAFETY: The reference keeps the task alive.
    unsafe { helpers::pt_log_unchecked(leader.as_ptr(), error.to_errno()) }
}

/// Records that an address space is traced, or is no longer traced. A child process may share a
/// traced address space, and with it a `struct perftrace_thread`. Before such a child enters user
/// mode, `pt_queue_shared_thread()` marks the thread id in this structure as shared.
pub(crate) fn set_traced(mm: usize, is_traced: bool) {
    // SAFETY: `pt_set_traced()` uses the address `mm` as a number only.
    unsafe { helpers::pt_set_traced(mm, is_traced) }
}

/// Replaces two words of the current thread's thread-local storage, at offset `at` from the thread
/// pointer, by `new`. Does nothing if the word at offset `at` + 8 is not `was` or the memory is not
/// accessible.
pub(crate) fn replace_thread_words(at: i64, was: u64, new: [u64; 2]) {
    // SAFETY: The caller is in process context and holds no lock, so user memory may be accessed.
    unsafe { helpers::pt_replace_thread_words(at, was, new[0], new[1]) }
}

/// Queues work that `task` does before it first enters user mode. `task` is a new child that shares
/// the memory of the current task and has not run yet; see [`crate::children`].
pub(crate) fn queue_shared_work(task: TaskRef<'_>) {
    // SAFETY: `task` is valid by the invariant of `TaskRef`, and the current task is creating it.
    unsafe { helpers::pt_queue_shared_thread(task.as_ptr()) }
}
