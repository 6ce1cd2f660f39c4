// SPDX-License-Identifier: GPL-2.0

//! The permission to watch another process's thread. It is checked when a context is attached, and
//! again when the thread's credentials or its dumpability have changed.
//!
//! The kernel does not notify modules of such a change. It is therefore looked for at these points:
//!
//! - when the thread is switched in and when it has executed a program: the check may sleep, so a
//!   worker makes it soon afterwards;
//! - before each `read()` of the context and each ioctl but `PERFMON_UNLOAD`, which make the check
//!   themselves.
//!
//! The permission to stop the thread is also checked for each `PERFMON_RESTART` of the process that
//! attached the context, and once a second while the thread is stopped (`Bell::block()`).
//!
//! Two callers need no permission that can be lost: a caller with `CAP_PERFMON`, unless its context
//! blocks the thread; and a process that monitors its own threads, even if another process has the
//! same file.

use engine::ring::EXEC;
use kernel::cred::Credential;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use crate::contexts::{Context, State};
use crate::sys::rights::{self, Process, Seen};
use crate::sys::{nmi, sched};
use crate::target::Target;

/// A permission that can be lost.
pub(crate) struct Watch {
    /// The credentials with which the context was attached.
    by: ARef<Credential>,
    /// The credentials and the dumpability of the thread when the permission was checked.
    seen: Seen,
}

impl Watch {
    /// Checks that the caller may watch a thread, or also stop it if the context `blocks` it.
    /// Returns `None` if the permission cannot be lost.
    ///
    /// Context: may sleep; no lock of the module is held.
    ///
    /// # Errors
    ///
    /// `EPERM` without permission, `ESRCH` if the thread has exited, `EINTR`, `ENOMEM`.
    pub(crate) fn ask(task: &Task, blocks: bool) -> Result<Option<Self>> {
        if !blocks && rights::has_perfmon() {
            return Ok(None);
        }
        // Recorded before the check, so that a later change is noticed.
        let seen = Seen::of(task)?;
        rights::may(task, blocks)?;
        if sched::is_of_caller(task) {
            return Ok(None);
        }
        Ok(Some(Self {
            by: rights::of_caller(),
            seen,
        }))
    }
}

impl State {
    /// Returns whether the thread has changed since the permission was checked.
    fn is_in_doubt(&self) -> bool {
        match (&self.watch, &self.thread) {
            (Some(watch), Some(thread)) => !watch.seen.is_still(thread),
            _ => false,
        }
    }
}

impl Context {
    /// Queues a worker to check the permission again if the current thread, which is the context's,
    /// has changed. Any context but NMI.
    #[inline]
    pub(crate) fn doubt(&self, state: &mut State) {
        if state.watch.is_some() {
            self.doubt_watched(state);
        }
    }

    /// The part of [`doubt`](Self::doubt) for contexts whose permission can be lost. Most contexts
    /// monitor threads of the process that attached them, and do not need it.
    #[inline(never)]
    fn doubt_watched(&self, state: &mut State) {
        if state.is_in_doubt() {
            state.asks = true;
            self.bell.call();
        }
    }

    /// If the context is still attached to the target, writes the record of an exec into the ring of a
    /// started context, and calls [`doubt`](Self::doubt). Called when the current thread has executed
    /// a program: samples before the record belong to the former program.
    pub(crate) fn executed(&self, target: Target) {
        let mut state = self.state.lock();
        if state.target == target {
            if state.started {
                self.tell_ring(&mut state, EXEC, nmi::now());
            }
            self.doubt(&mut state);
        }
    }

    /// Checks the permission again if the thread has changed, before a system call uses the
    /// context. Without permission the context ends. Returns `EINTR` or `ENOMEM` if the check could
    /// not be made.
    pub(crate) fn settle_doubt(&self) -> Result {
        let in_doubt = self.state.lock().is_in_doubt();
        match in_doubt {
            true => self.ask_again(),
            false => Ok(()),
        }
    }

    /// Checks whether the process that attached the context may still watch its thread, and ends
    /// the context if not.
    ///
    /// Context: may sleep; no lock of the module is held.
    ///
    /// # Errors
    ///
    /// `EINTR`, `ENOMEM` if the check could not be made.
    pub(crate) fn ask_again(&self) -> Result {
        let (task, by) = {
            let state = self.state.lock();
            match (state.target, &state.thread, &state.watch) {
                (Target::Thread(_), Some(task), Some(watch)) => (task.clone(), watch.by.clone()),
                _ => return Ok(()),
            }
        };
        let seen = Seen::of(&task)?;
        // The permission to stop the thread is checked by `settle_block()`, and where the thread is
        // blocked: `Bell::block()`.
        let may = match rights::may_by(&by, &task, false) {
            // The thread exits, and the context ends with it.
            Err(error) if error == ESRCH => return Ok(()),
            Err(error) if error != EPERM => return Err(error),
            answer => answer.is_ok(),
        };
        // The thread has changed during the check: it will be checked again.
        if may && !seen.is_still(&task) {
            return Ok(());
        }
        let target = Target::Thread(sched::address(&task));
        // Another process may have attached the context meanwhile.
        let is_that = |state: &State| {
            let watch = state.watch.as_ref();
            state.target == target && watch.is_some_and(|watch| core::ptr::eq(&*watch.by, &*by))
        };
        if may {
            let mut seen = Some(seen);
            let mut state = self.state.lock();
            if is_that(&state) {
                if let Some(watch) = &mut state.watch {
                    seen = seen.map(|seen| core::mem::replace(&mut watch.seen, seen));
                }
            }
            // The unused `Seen` is dropped without the lock.
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
    pub(crate) fn settle_block(&self) -> Result {
        if !self.blocks {
            return Ok(());
        }
        let caller = Process::of_caller()?;
        let is_mine = |state: &State| state.loader.as_ref().is_some_and(|one| one.is(&caller));
        let (task, target) = {
            let state = self.state.lock();
            match (state.target, &state.thread) {
                (Target::Thread(_), Some(task)) if is_mine(&state) => (task.clone(), state.target),
                _ => return Ok(()),
            }
        };
        match rights::may(&task, true) {
            Err(error) if error == EPERM => {
                self.end_if(&|state| state.target == target && is_mine(state));
                Ok(())
            }
            // The thread exits, and the context ends with it.
            Err(error) if error == ESRCH => Ok(()),
            answer => answer,
        }
    }

    /// Ends the context if `is_that` returns true for its state: the permission was lost.
    fn end_if(&self, is_that: &dyn Fn(&State) -> bool) {
        let mut place = None;
        self.with(&mut |state| {
            if is_that(state) {
                self.end_here(state);
                place = state.listed.take();
            }
        });
        self.bell.go();
        drop(place);
    }
}
