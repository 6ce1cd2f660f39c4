// SPDX-License-Identifier: GPL-2.0

//! The permission to watch a thread of another process. The permission is checked when a context is
//! attached to the thread, and again when the thread's credentials or its dumpability have changed.
//!
//! The kernel does not notify modules when credentials or dumpability change. The module therefore
//! looks for such a change:
//!
//! - when the thread is switched in and when it has executed a program. The permission check may
//!   sleep, so a worker makes the check soon afterwards.
//! - before each `read()` of the context and each ioctl except `PERFMON_UNLOAD`. The system call
//!   makes the check itself.
//!
//! The permission to stop the thread is also checked for each `PERFMON_RESTART` of the process that
//! attached the context, and once a second while the thread is stopped
//! (`Notifier::block_thread()`).
//!
//! Two kinds of callers need no permission that can be lost. The first is a caller with
//! `CAP_PERFMON`, unless its context blocks the thread. The second is a process that monitors its
//! own threads, even if another process has the context's file open.

use kernel::cred::Credential;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;
use protocols::ring::EXEC;

use crate::base::access::{self, AccessSnapshot, Process};
use crate::base::{clock, task};
use crate::contexts::{Context, State};
use crate::target::Target;

/// A permission to watch a thread that can be lost, and the credentials for which the permission
/// was granted.
pub(crate) struct Permission {
    /// The credentials of the process that attached the context.
    cred: ARef<Credential>,
    /// The credentials and the dumpability of the thread when the permission was checked.
    seen: AccessSnapshot,
}

impl Permission {
    /// Checks that the caller may watch a thread and, if `blocks` is set, that the caller may stop
    /// the thread. Returns `None` if the permission cannot be lost.
    ///
    /// Context: may sleep; no lock of the module is held.
    ///
    /// # Errors
    ///
    /// `EPERM` if the caller has no permission, `ESRCH` if the thread has exited, `EINTR`,
    /// `ENOMEM`.
    pub(crate) fn check(task: &Task, blocks: bool) -> Result<Option<Self>> {
        if !blocks && access::has_perfmon_noaudit() {
            return Ok(None);
        }
        // The snapshot is taken before the check, so that a change during the check is noticed
        // later.
        let seen = AccessSnapshot::of(task)?;
        access::check_access(task, blocks)?;
        if task::is_of_caller(task) {
            return Ok(None);
        }
        Ok(Some(Self {
            cred: access::of_caller(),
            seen,
        }))
    }
}

impl State {
    /// Returns whether the thread's credentials or dumpability have changed since the permission
    /// was checked.
    fn is_permission_stale(&self) -> bool {
        match (&self.permission, &self.thread) {
            (Some(watch), Some(thread)) => !watch.seen.is_unchanged(thread),
            _ => false,
        }
    }
}

impl Context {
    /// Queues a worker that checks the permission again, if the credentials or the dumpability of
    /// the current thread have changed. The current thread is the context's thread. Must not be
    /// called in an NMI.
    #[inline]
    pub(crate) fn recheck_if_changed(&self, state: &mut State) {
        if state.permission.is_some() {
            self.recheck_revocable(state);
        }
    }

    /// Implements [`recheck_if_changed`](Self::recheck_if_changed) for contexts whose permission
    /// can be lost. Most contexts monitor threads of the process that attached them, and do not
    /// call this function.
    #[inline(never)]
    fn recheck_revocable(&self, state: &mut State) {
        if state.is_permission_stale() {
            state.recheck_pending = true;
            self.notifier.queue_work();
        }
    }

    /// Called when the current thread, the target of the context, has executed a program. If the
    /// context is started, writes an `EXEC` record into the context's ring: samples before this
    /// record belong to the former program. Then calls
    /// [`recheck_if_changed`](Self::recheck_if_changed). Does nothing if the context is not
    /// attached to `target` any more.
    pub(crate) fn executed(&self, target: Target) {
        let mut state = self.state.lock();
        if state.target == target {
            if state.started {
                self.write_ring_record(&mut state, EXEC, clock::now());
            }
            self.recheck_if_changed(&mut state);
        }
    }

    /// Checks the permission again if the thread's credentials or dumpability have changed. Called
    /// before a system call uses the context. If the permission is lost, the context ends. Returns
    /// `EINTR` or `ENOMEM` if the check could not be made.
    pub(crate) fn recheck_now(&self) -> Result {
        let in_doubt = self.state.lock().is_permission_stale();
        match in_doubt {
            true => self.recheck_permission(),
            false => Ok(()),
        }
    }

    /// Checks whether the process that attached the context may still watch the context's thread,
    /// and ends the context if not.
    ///
    /// Context: may sleep; no lock of the module is held.
    ///
    /// # Errors
    ///
    /// `EINTR`, `ENOMEM` if the check could not be made.
    pub(crate) fn recheck_permission(&self) -> Result {
        let (task, by) = {
            let state = self.state.lock();
            match (state.target, &state.thread, &state.permission) {
                (Target::Thread(_), Some(task), Some(watch)) => (task.clone(), watch.cred.clone()),
                _ => return Ok(()),
            }
        };
        let seen = AccessSnapshot::of(&task)?;
        // `check_block()` checks the permission to stop the thread; so does
        // `Notifier::block_thread()` while the thread is blocked.
        let may = match access::check_access_as(&by, &task, false) {
            // The thread is exiting, so the context will end.
            Err(error) if error == ESRCH => return Ok(()),
            Err(error) if error != EPERM => return Err(error),
            answer => answer.is_ok(),
        };
        // The credentials or the dumpability changed during the check. The permission will be
        // checked again, because the old snapshot is kept.
        if may && !seen.is_unchanged(&task) {
            return Ok(());
        }
        let target = Target::Thread(task::address(&task));
        // Another process may have attached the context during the check.
        let is_that = |state: &State| {
            let watch = state.permission.as_ref();
            state.target == target && watch.is_some_and(|watch| core::ptr::eq(&*watch.cred, &*by))
        };
        if may {
            let mut seen = Some(seen);
            let mut state = self.state.lock();
            if is_that(&state) {
                if let Some(watch) = &mut state.permission {
                    seen = seen.map(|seen| core::mem::replace(&mut watch.seen, seen));
                }
            }
            // The unused `AccessSnapshot` is dropped after the context's lock is released.
            drop(state);
            drop(seen);
            return Ok(());
        }
        self.end_if(&is_that);
        Ok(())
    }

    /// Checks before a restart whether the process that attached the context may still stop the
    /// thread, and ends the context if not. Does nothing unless the caller is that process, because
    /// Yama allows a process to stop its descendants only.
    ///
    /// Context: may sleep; no lock of the module is held.
    ///
    /// # Errors
    ///
    /// `EINTR`, `ENOMEM` if the check could not be made.
    pub(crate) fn check_block(&self) -> Result {
        if !self.notify_block {
            return Ok(());
        }
        let caller = Process::of_caller()?;
        let is_mine = |state: &State| {
            state
                .loader
                .as_ref()
                .is_some_and(|one| one.is_same(&caller))
        };
        let (task, target) = {
            let state = self.state.lock();
            match (state.target, &state.thread) {
                (Target::Thread(_), Some(task)) if is_mine(&state) => (task.clone(), state.target),
                _ => return Ok(()),
            }
        };
        match access::check_access(&task, true) {
            Err(error) if error == EPERM => {
                self.end_if(&|state| state.target == target && is_mine(state));
                Ok(())
            }
            // The thread exits, and the context ends with it.
            Err(error) if error == ESRCH => Ok(()),
            answer => answer,
        }
    }

    /// Ends the context, whose permission was lost, if `is_that` returns true for the context's
    /// state.
    fn end_if(&self, is_that: &dyn Fn(&State) -> bool) {
        let mut place = None;
        self.with_state(&mut |state| {
            if is_that(state) {
                self.end_state(state);
                place = state.thread_entry.take();
            }
        });
        self.notifier.wake_blocked();
        drop(place);
    }
}
