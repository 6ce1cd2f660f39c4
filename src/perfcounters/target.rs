// SPDX-License-Identifier: GPL-2.0

//! What contexts are attached to: threads and CPUs, who may attach them, what becomes of
//! them when these end. The lock order is in [`crate::contexts`].

use engine::claims::Claims;
use engine::context::Error;
use engine::pmu::Scope;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use crate::contexts::{Context, State};
use crate::pmu::refused;
use crate::sys::lock::SESSION;
use crate::sys::sched::{self, THREADS};

/// What a context is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Nothing.
    None,
    /// A thread, by its address.
    Thread(usize),
    /// A CPU.
    Cpu(u32),
    /// A thread or CPU that is no more.
    Ended,
}

impl Context {
    /// Attaches it, not yet counting: to a thread, or to the CPU of that number,
    /// on which the caller must be.
    pub(crate) fn load(&self, number: u32, set: u16) -> Result {
        let mut session = SESSION.lock();
        let claims = {
            let mut state = self.state.lock();
            if state.target != Target::None {
                return Err(refused(Error::Loaded));
            }
            state.order().map_err(refused)?;
            self.choose(&mut state, set).map_err(refused)?;
            state.claims_with(&self.registers.map(), |_| Claims::NONE)
        };
        let task = match self.scope() {
            Scope::Thread => Some(permitted(number)?),
            Scope::System if sched::is_perfmon_capable() => None,
            Scope::System => return Err(EPERM),
        };
        session.claim(self.scope(), &self.registers, &Claims::NONE, &claims)?;
        let attached = match task {
            Some(task) => session
                .watch()
                .and_then(|()| self.attach(task, claims).inspect_err(|_| session.unwatch())),
            None => self.take_cpu(number, claims),
        };
        attached.inspect_err(|_| {
            let _ = session.claim(self.scope(), &self.registers, &claims, &Claims::NONE);
        })
    }

    fn attach(&self, task: ARef<Task>, claims: Claims) -> Result {
        let address = sched::address(&task);
        if self.blocks && address == sched::current() {
            return Err(EINVAL);
        }
        let again = task.clone();
        let ended = {
            let mut state = self.state.lock();
            THREADS.insert(address, self)?;
            state.target = Target::Thread(address);
            state.claims = claims;
            state.sampling.own = address == sched::current();
            // It may have ended since it was found, unseen.
            let ended = sched::has_ended(&task);
            if ended {
                self.forget(&mut state);
                state.claims = Claims::NONE;
            }
            // The old one is let go when the lock is.
            (ended, state.thread.replace(task))
        };
        if ended.0 {
            return Err(ESRCH);
        }
        // It may have become another program since it was looked at, before it was
        // found here at its exec.
        if let Err(error) = may_watch(&again) {
            let mut state = self.state.lock();
            if state.target == Target::Thread(address) {
                self.forget(&mut state);
            }
            (state.target, state.claims) = (Target::None, Claims::NONE);
            return Err(error);
        }
        Ok(())
    }

    fn take_cpu(&self, number: u32, claims: Claims) -> Result {
        let mut state = self.state.lock();
        if sched::this_cpu() != number {
            return Err(EINVAL);
        }
        if sched::loaded(Scope::System).is_some() {
            return Err(EBUSY);
        }
        state.target = Target::Cpu(number);
        state.claims = claims;
        sched::set_loaded(Scope::System, Some(self));
        Ok(())
    }

    /// Detaches it; values stay. Nothing if it is not attached.
    pub(crate) fn unload(&self) -> Result {
        let mut session = SESSION.lock();
        let (mut was, mut thread, mut claims) = (Target::None, None, Claims::NONE);
        self.with(&mut |state| {
            was = state.target;
            self.halt(state);
            self.forget(state);
            thread = state.thread.take();
            state.sampling.rest();
            let _ = state.set.registers.take_pending();
            state.set.end_turn();
            state.sets.due = false;
            self.bell.let_go();
            claims = core::mem::replace(&mut state.claims, Claims::NONE);
        });
        self.bell.go();
        session.claim(self.scope(), &self.registers, &claims, &Claims::NONE)?;
        if was != Target::None && self.scope() == Scope::Thread {
            session.unwatch();
        }
        Ok(())
    }

    /// What it is attached to ends, here and now.
    pub(crate) fn end(&self, target: Target) {
        let mut state = self.state.lock();
        if state.target == target {
            self.halt(&mut state);
            self.forget(&mut state);
            state.target = Target::Ended;
            self.tell_end(&mut state);
            self.bell.let_go();
        }
        drop(state);
        self.bell.go();
    }

    /// Nobody finds it by its target any more. On its CPU, if that is one.
    fn forget(&self, state: &mut State) {
        match state.target {
            Target::Thread(task) => THREADS.remove(task),
            Target::Cpu(_) => sched::set_loaded(Scope::System, None),
            Target::None | Target::Ended => {}
        }
        state.target = Target::None;
    }
}

/// The thread of that number, if the caller may monitor it.
fn permitted(number: u32) -> Result<ARef<Task>> {
    let task = sched::find(number).ok_or(ESRCH)?;
    may_watch(&task)?;
    Ok(task)
}

/// May the caller monitor this thread?
fn may_watch(task: &Task) -> Result {
    let may =
        !sched::is_kernel_thread(task) && (sched::may_watch(task) || sched::is_perfmon_capable());
    match may {
        true => Ok(()),
        false => Err(EPERM),
    }
}
