// SPDX-License-Identifier: GPL-2.0

//! The permission to watch a thread of another process. The process that attaches a context to such
//! a thread needs this permission. The permission is checked when the context is attached to the
//! thread, and again when the credentials or the dumpability of the thread have changed.
//!
//! The kernel does not notify modules when the credentials or the dumpability of a thread change.
//! To notice a change, each permission check takes a snapshot of the thread's credentials and
//! dumpability. The thread is compared with the snapshot later:
//!
//! - The scheduler probes compare the thread with the snapshot when the thread is switched in, and
//!   when the thread has executed a program. If the thread has changed, a worker repeats the
//!   permission check, because the check can sleep.
//! - Each `read()` of the context's file and each ioctl except `PERFMON_UNLOAD` first compares the
//!   thread with the snapshot, and makes the permission check if the thread has changed.
//!
//! A context with `PFM_FL_NOTIFY_BLOCK` also needs the permission to stop the thread. The
//! permission to stop the thread is checked when the process that attached the context calls
//! `PERFMON_RESTART`. The permission is also checked before a blocked thread sleeps, and then once
//! a second (`Blocker::block_current_thread()`).
//!
//! A permission that cannot be lost is checked only at the attach. If the context does not block
//! the thread, a caller with `CAP_PERFMON` cannot lose the permission. A process that monitors its
//! own threads cannot lose the permission, even if another process has the context's file open.

use kernel::prelude::*;
use kernel::task::Task;
use protocols::ring::RECORD_EXEC;

use crate::contexts::context::{Context, ContextState, RevocablePermission};
use crate::contexts::phase::Target;
use base::access::{self, AccessTargetSnapshot};
use base::clock;
use base::lock::RawLockGuard;
use base::task::{self, ProcessIdentity};

impl RevocablePermission {
    /// Checks that the caller is allowed to watch a thread and, if `blocks` is set, to stop the
    /// thread. Returns `None` if the caller cannot lose the permission.
    ///
    /// Context: may sleep; caller holds no lock of this module.
    ///
    /// # Errors
    ///
    /// `EPERM` if the caller has no permission, `ESRCH` if the thread has exited, `EINTR`,
    /// `ENOMEM`.
    pub(crate) fn check(task: &Task, blocks: bool) -> Result<Option<Self>> {
        if !blocks && access::has_perfmon_noaudit() {
            return Ok(None);
        }
        // Take the snapshot before the check, so that a change of credentials during the check is
        // noticed later.
        let access_snapshot = AccessTargetSnapshot::of_task(task)?;
        access::check_access(task, blocks)?;
        if task::is_thread_of_caller(task) {
            return Ok(None);
        }
        Ok(Some(Self {
            cred: access::caller_credentials(),
            access_snapshot,
        }))
    }
}

impl ContextState {
    /// Returns whether the credentials or the dumpability of the context's thread have changed
    /// since the permission to watch the thread was checked.
    fn is_permission_stale(&self) -> bool {
        match (&self.revocable_permission, &self.thread) {
            (Some(watch), Some(thread)) => {
                !watch.access_snapshot.has_same_cred_and_dumpable(thread)
            }
            _ => false,
        }
    }
}

impl Context {
    /// If the credentials or the dumpability of the context's thread have changed, queues the
    /// irq_work, which queues a worker that checks the permission again. The current thread is the
    /// context's thread. Must not be called in an NMI.
    #[inline]
    pub(crate) fn request_recheck_if_stale(&self, state: &mut ContextState) {
        if state.revocable_permission.is_some() {
            self.request_recheck_if_stale_slow(state);
        }
    }

    /// Implements [`request_recheck_if_stale`](Self::request_recheck_if_stale) for contexts whose
    /// permission can be lost. Not inlined, because most contexts monitor threads of the process
    /// that attached them and do not need the check.
    #[inline(never)]
    fn request_recheck_if_stale_slow(&self, state: &mut ContextState) {
        if state.is_permission_stale() {
            state.recheck_pending = true;
            self.deferral.queue_work();
        }
    }

    /// If [`request_recheck_if_stale`](Self::request_recheck_if_stale) has requested a permission
    /// check, queues the worker that makes the check.
    ///
    /// Context: the context's timer or irq_work, interrupts off.
    #[inline]
    pub(crate) fn queue_pending_recheck<'a>(
        &'a self,
        mut state: RawLockGuard<'a, ContextState>,
    ) -> RawLockGuard<'a, ContextState> {
        if !core::mem::take(&mut state.recheck_pending) {
            return state;
        }
        // Release the context's lock, because queueing work can take a run-queue lock. The
        // scheduler probes take the context's lock under a run-queue lock.
        drop(state);
        self.deferral.queue_permission_check();
        self.state.lock()
    }

    /// Called when the current thread, the target of the context, has executed a program. If the
    /// context is started, writes a `RECORD_EXEC` record into the sampling ring; the samples before
    /// this record are of the old program. Then calls
    /// [`request_recheck_if_stale`](Self::request_recheck_if_stale). Does nothing if the context is
    /// no longer attached to `target`.
    pub(crate) fn handle_exec_of_target(&self, target: Target) {
        let mut state = self.state.lock();
        if state.phase.target() == target {
            if state.phase.is_started() {
                self.write_non_sample_record(
                    &mut state,
                    RECORD_EXEC,
                    clock::monotonic_ns_in_any_context(),
                );
            }
            self.request_recheck_if_stale(&mut state);
        }
    }

    /// Called by system calls before they use the context. If the credentials or the dumpability of
    /// the context's thread have changed, checks the permission again, and ends the context if the
    /// permission is lost. Returns `EINTR` or `ENOMEM` if the check could not be made.
    pub(crate) fn recheck_permission_if_stale(&self) -> Result {
        let in_doubt = self.state.lock().is_permission_stale();
        match in_doubt {
            true => self.recheck_permission(),
            false => Ok(()),
        }
    }

    /// Checks whether the process that attached the context still has the permission to watch the
    /// context's thread, and ends the context if not.
    ///
    /// Context: may sleep; caller holds no lock of this module.
    ///
    /// # Errors
    ///
    /// `EINTR`, `ENOMEM` if the check could not be made.
    pub(crate) fn recheck_permission(&self) -> Result {
        let (task, by) = {
            let state = self.state.lock();
            match (
                state.phase.target(),
                &state.thread,
                &state.revocable_permission,
            ) {
                (Target::Thread(_), Some(task), Some(watch)) => (task.clone(), watch.cred.clone()),
                _ => return Ok(()),
            }
        };
        let seen = AccessTargetSnapshot::of_task(&task)?;
        // Check only the permission to watch the thread. `recheck_stop_permission()` and
        // `Blocker::block_current_thread()` check the permission to stop the thread.
        let may = match access::check_access_as(&by, &task, false) {
            // The thread is exiting; the exit probe ends the context.
            Err(error) if error == ESRCH => return Ok(()),
            Err(error) if error != EPERM => return Err(error),
            answer => answer.is_ok(),
        };
        // If the credentials or the dumpability changed during the check, keep the old snapshot, so
        // that the permission is checked again.
        if may && !seen.has_same_cred_and_dumpable(&task) {
            return Ok(());
        }
        let target = Target::Thread(task::task_address(&task));
        // During the check, another process may have detached the context and attached it again.
        let is_that = |state: &ContextState| {
            let watch = state.revocable_permission.as_ref();
            state.phase.target() == target
                && watch.is_some_and(|watch| core::ptr::eq(&*watch.cred, &*by))
        };
        if may {
            let mut seen = Some(seen);
            let mut state = self.state.lock();
            if is_that(&state) {
                if let Some(watch) = &mut state.revocable_permission {
                    seen = seen.map(|seen| core::mem::replace(&mut watch.access_snapshot, seen));
                }
            }
            // Drop the old or unused `AccessTargetSnapshot` only after the context's lock was
            // released.
            drop(state);
            drop(seen);
            return Ok(());
        }
        self.end_without_permission_if(&is_that);
        Ok(())
    }

    /// Checks before `PERFMON_RESTART` whether the process that attached the context may still stop
    /// the thread, and ends the context if not. Makes no check if another process calls
    /// `PERFMON_RESTART`: the security module Yama would check whether the caller is an ancestor of
    /// the thread, not whether the process that attached the context is one.
    ///
    /// Context: may sleep; caller holds no lock of this module.
    ///
    /// # Errors
    ///
    /// `EINTR`, `ENOMEM` if the check could not be made.
    pub(crate) fn recheck_stop_permission(&self) -> Result {
        if !self.notify_block {
            return Ok(());
        }
        let caller = ProcessIdentity::of_caller()?;
        let is_mine = |state: &ContextState| {
            state
                .blocker
                .as_ref()
                .is_some_and(|one| one.attaching_process.is_same(&caller))
        };
        let (task, target) = {
            let state = self.state.lock();
            match (state.phase.target(), &state.thread) {
                (Target::Thread(_), Some(task)) if is_mine(&state) => {
                    (task.clone(), state.phase.target())
                }
                _ => return Ok(()),
            }
        };
        match access::check_access(&task, true) {
            Err(error) if error == EPERM => {
                self.end_without_permission_if(&|state| {
                    state.phase.target() == target && is_mine(state)
                });
                Ok(())
            }
            // The thread is exiting; the exit probe ends the context.
            Err(error) if error == ESRCH => Ok(()),
            answer => answer,
        }
    }

    /// Ends the context if it has not ended yet, and `is_that` returns true for the state of the
    /// context. Called because the permission to watch or stop the thread was lost.
    pub(crate) fn end_without_permission_if(&self, is_that: &dyn Fn(&ContextState) -> bool) {
        let mut place = None;
        self.with_state_on_access_cpu(&mut |state| {
            if state.phase.target() != Target::Dead && is_that(state) {
                self.end_without_permission(state);
                place = state.thread_entry.take();
            }
        });
        self.deferral.wake_blocked();
        drop(place);
    }
}
