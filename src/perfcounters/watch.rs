// SPDX-License-Identifier: GPL-2.0

//! The right to watch another process's thread: asked for when a context is loaded, and again when
//! the thread's credentials or its dumpability have changed since.
//!
//! Nothing tells a module of such a change. So it is looked for when the thread comes onto a CPU
//! and when it has executed a program, where asking is impossible and a worker asks soon, and before
//! each ioctl and read() of the context, which ask themselves. Who loaded it with CAP_PERFMON needs
//! no right that could be lost, unless it stops the thread. Nor does a process for its own threads,
//! though another one may have the same file.

use engine::ring::EXEC;
use kernel::cred::Credential;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use crate::contexts::{Context, State};
use crate::sys::rights::{self, Seen};
use crate::sys::{nmi, sched};
use crate::target::Target;

/// A right that may be lost.
pub(crate) struct Watch {
    /// The credentials of whoever loaded the context.
    by: ARef<Credential>,
    /// What the thread was when they had it.
    seen: Seen,
}

impl Watch {
    /// The caller's right to look at that thread, or to stop it, too; `None` if it cannot be lost.
    /// `EPERM` without one. May sleep; no lock of ours held.
    pub(crate) fn ask(task: &Task, blocks: bool) -> Result<Option<Self>> {
        if !blocks && rights::has_perfmon() {
            return Ok(None);
        }
        // Before it is asked about: what changes later is noticed.
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
    /// Has its thread changed since the right to watch it was asked for?
    fn is_in_doubt(&self) -> bool {
        match (&self.watch, &self.thread) {
            (Some(watch), Some(thread)) => !watch.seen.is_still(thread),
            _ => false,
        }
    }
}

impl Context {
    /// Its thread is the current one: a worker asks, if there is a doubt. Any context but NMI.
    #[inline]
    pub(crate) fn doubt(&self, state: &mut State) {
        if state.watch.is_some() {
            self.doubt_watched(state);
        }
    }

    /// Apart: most contexts are of who loaded them.
    #[inline(never)]
    fn doubt_watched(&self, state: &mut State) {
        if state.is_in_doubt() {
            state.asks = true;
            self.bell.call();
        }
    }

    /// The current thread has executed a program. If the context is still attached to it, this
    /// writes the record of the exec into the ring of a started context, and calls
    /// [`doubt`](Self::doubt).
    /// Samples before the record are of the former program.
    pub(crate) fn executed(&self, target: Target) {
        let mut state = self.state.lock();
        if state.target == target {
            if state.started {
                self.tell_ring(&mut state, EXEC, nmi::now());
            }
            self.doubt(&mut state);
        }
    }

    /// Before a call: without the right it has ended. `EINTR`, `ENOMEM`: it could not be asked.
    pub(crate) fn settle_doubt(&self) -> Result {
        let in_doubt = self.state.lock().is_in_doubt();
        match in_doubt {
            true => self.ask_again(),
            false => Ok(()),
        }
    }

    /// Asks whether who loaded it may still watch its thread, and ends it if not. May sleep; no
    /// lock of ours held. `EINTR`, `ENOMEM`: it could not be asked.
    pub(crate) fn ask_again(&self) -> Result {
        let (task, by) = {
            let state = self.state.lock();
            match (state.target, &state.thread, &state.watch) {
                (Target::Thread(_), Some(task), Some(watch)) => (task.clone(), watch.by.clone()),
                _ => return Ok(()),
            }
        };
        let seen = Seen::of(&task)?;
        // To stop it is another right, which `Bell::block` asks for.
        let may = match rights::may_by(&by, &task, false) {
            // It ends, and the context with it.
            Err(error) if error == ESRCH => return Ok(()),
            Err(error) if error != EPERM => return Err(error),
            answer => answer.is_ok(),
        };
        // It has changed once more: it is in doubt still.
        if may && !seen.is_still(&task) {
            return Ok(());
        }
        let target = Target::Thread(sched::address(&task));
        // It may have been loaded by somebody else meanwhile.
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
            // Without the lock, whichever goes.
            drop(state);
            drop(seen);
            return Ok(());
        }
        let mut place = None;
        self.with(&mut |state| {
            if is_that(state) {
                self.end_here(state);
                place = state.listed.take();
            }
        });
        self.bell.go();
        drop(place);
        Ok(())
    }
}
