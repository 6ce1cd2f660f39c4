// SPDX-License-Identifier: GPL-2.0

//! What contexts are attached to: threads and CPUs, who may attach them, what becomes of
//! them when these end. The lock order is in [`crate::contexts`].

use engine::claims::Claims;
use engine::context::Error;
use engine::pmu::Scope;
use engine::sampling;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use crate::contexts::{Context, State};
use crate::kinds;
use crate::pmu::refused;
use crate::session::{self, Session};
use crate::sys::lock::SESSION;
use crate::sys::rawlock::Guard;
use crate::sys::rights::Process;
use crate::sys::threads::{Place, Unplaced};
use crate::sys::{msr, rights, sched};
use crate::watch::Watch;

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

impl Target {
    /// The CPU, if it is one.
    pub(crate) fn cpu(self) -> Option<u32> {
        match self {
            Self::Cpu(cpu) => Some(cpu),
            Self::None | Self::Thread(_) | Self::Ended => None,
        }
    }
}

impl Context {
    /// Attaches it, not yet counting: to a thread, or to the CPU of that number,
    /// on which the caller must be.
    pub(crate) fn load(&self, number: u32, set: u16) -> Result {
        // Which may wait for others: without a lock.
        let task = match self.scope() {
            Scope::Thread => Some(self.permitted(number)?),
            Scope::System if rights::is_perfmon_capable() => None,
            Scope::System => return Err(EPERM),
        };
        let place = match self.scope() {
            Scope::Thread => Some(Unplaced::new()?),
            Scope::System => None,
        };
        let mut session = SESSION.lock();
        while !session.has_room() {
            drop(session);
            session::make_room()?;
            session = SESSION.lock();
        }
        // Writes of registers take `SESSION`, which is held.
        let (uses, core) = {
            let state = self.state.lock();
            let uses = state.uses_with(&self.registers.map(), |_| Claims::NONE);
            (uses, state.elsewhere.core())
        };
        let cpu = task.is_none().then_some(number);
        let can_count = kinds::can_count(&uses, core, cpu);
        let claims = {
            let mut state = self.state.lock();
            if state.target != Target::None || state.loading {
                return Err(refused(Error::Loaded));
            }
            // A load that is refused for this ends no other context; a CPU is looked at again
            // when it is taken.
            match &task {
                Some((task, _)) if self.blocks && sched::address(task) == sched::current() => {
                    return Err(EINVAL)
                }
                Some(_) => {}
                None => Self::is_free_here(number)?,
            }
            state.order().map_err(refused)?;
            if !can_count {
                drop(state);
                msr::say_lacking(cpu);
                return Err(ENODEV);
            }
            state.elsewhere.set_uses(uses);
            self.choose(&mut state, set).map_err(refused)?;
            state.claims_with(&self.registers.map(), |_| Claims::NONE)
        };
        session.enlist(self)?;
        session
            .claim(self.scope(), &self.registers, &Claims::NONE, &claims)
            .inspect_err(|_| session.delist(self))?;
        let attached = match task.zip(place) {
            Some(((task, watch), place)) => session.watch().and_then(|()| {
                self.attach(&mut session, task, watch, place, claims)
                    .inspect_err(|_| session.unwatch())
            }),
            None => {
                // Making perf forget this CPU's counters may take 100 ms, so `SESSION` is dropped.
                // Until then `loading` makes `unload()` and writes of registers fail. The claims
                // are in the state already: would_be_free() of other contexts must see them.
                {
                    let mut state = self.state.lock();
                    (state.loading, state.claims) = (true, claims);
                }
                drop(session);
                let ready = match claims.is_none() {
                    true => Ok(()),
                    false => msr::make_perf_forget(),
                };
                session = SESSION.lock();
                self.state.lock().loading = false;
                ready
                    .and_then(|()| self.take_cpu(&mut session, number, &claims))
                    .inspect_err(|_| self.state.lock().claims = Claims::NONE)
            }
        };
        attached.inspect_err(|_| {
            let _ = session.claim(self.scope(), &self.registers, &claims, &Claims::NONE);
            session.delist(self);
        })
    }

    /// Attaches it to a thread. For an administrator's context, contexts of users are evicted after
    /// all checks. The two checks that are repeated after that fail only if the thread exits or
    /// executes a program at this moment.
    fn attach(
        &self,
        session: &mut Session,
        task: ARef<Task>,
        watch: Option<Watch>,
        place: Unplaced,
        claims: Claims,
    ) -> Result {
        let address = sched::address(&task);
        let again = task.clone();
        let loader = Process::of_caller()?;
        if sched::has_ended(&task) {
            return Err(ESRCH);
        }
        if !self.may_still_watch(&task) {
            return Err(EPERM);
        }
        let place = self.take_place(session, place, address)?;
        session.evict(Scope::Thread, &claims);
        let ended = {
            let mut state = self.state.lock();
            state.target = Target::Thread(address);
            let old = (
                state.loader.replace(loader),
                core::mem::replace(&mut state.watch, watch),
            );
            state.claims = claims;
            state.sampling.own = address == sched::current();
            // It may have ended since it was found, unseen.
            let ended = sched::has_ended(&task);
            if ended {
                self.forget(&mut state);
                state.claims = Claims::NONE;
            } else {
                state.listed = Some(place);
            }
            // The old ones are let go when the lock is.
            (ended, state.thread.replace(task), old)
        };
        if ended.0 {
            return Err(ESRCH);
        }
        // It may have become another program since it was looked at, before it was
        // found here at its exec.
        if !self.may_still_watch(&again) {
            let mut state = self.state.lock();
            if state.target == Target::Thread(address) {
                self.forget(&mut state);
            }
            (state.target, state.claims) = (Target::None, Claims::NONE);
            let place = state.listed.take();
            drop(state);
            drop(place);
            return Err(EPERM);
        }
        Ok(())
    }

    /// Puts the context into the table, at a thread. A user's context that is there ends if the
    /// caller is an administrator; `EEXIST` if it does not. Probes that find the new entry before
    /// `target` is set ignore it.
    fn take_place(&self, session: &mut Session, new: Unplaced, task: usize) -> Result<Place> {
        let (error, new) = match Place::new(new, task, self) {
            Ok(place) => return Ok(place),
            Err(refused) => refused,
        };
        if error != EEXIST || !rights::is_admin() || !session.evict_from(task) {
            return Err(error);
        }
        Place::new(new, task, self).map_err(|(error, _)| error)
    }

    /// `EINVAL` if the caller is on another CPU, `EBUSY` if this one has a context. Preemption off.
    fn is_free_here(number: u32) -> Result {
        if sched::this_cpu() != number {
            return Err(EINVAL);
        }
        match sched::loaded(Scope::System) {
            Some(_) => Err(EBUSY),
            None => Ok(()),
        }
    }

    /// Attaches it to the CPU that the caller is on, whose number was given. Contexts of threads
    /// end for it only once it is known that this CPU is free: none but a holder of `SESSION` takes
    /// a CPU.
    fn take_cpu(&self, session: &mut Session, number: u32, claims: &Claims) -> Result {
        let _stays = sched::NoPreempt::new();
        Self::is_free_here(number)?;
        session.evict(Scope::System, claims);
        let mut state = self.state.lock();
        state.target = Target::Cpu(number);
        sched::set_loaded(Scope::System, Some(self));
        Ok(())
    }

    /// If its thread runs now, its context has to be put into the hardware there;
    /// the next time the scheduler does it.
    ///
    /// One attempt is enough, however often the thread changes CPUs, so the thread cannot prolong
    /// the call. `where_runs()` saw it run after the context was started (barrier there). If the
    /// thread has left that CPU before the call arrives, it was switched out, and the probe of its
    /// next switch finds the context started.
    pub(crate) fn find_running(&self, task: usize) {
        if task == sched::current() {
            return self.arrive(Target::Thread(task));
        }
        let Some(thread) = self.state.lock().thread.clone() else {
            return;
        };
        if let Some(cpu) = sched::where_runs(&thread) {
            sched::call_on(cpu, &mut || {
                if sched::current() == task {
                    self.arrive(Target::Thread(task));
                }
            });
        }
    }

    /// Detaches it; values stay. Nothing if it is not attached. `EBUSY` while another thread
    /// attaches it: `load()` drops `SESSION` in between, and would attach a context that is not
    /// listed.
    pub(crate) fn unload(&self) -> Result {
        let mut session = SESSION.lock();
        if self.state.lock().loading {
            return Err(EBUSY);
        }
        let (mut was, mut thread, mut claims) = (Target::None, None, Claims::NONE);
        let (mut place, mut loader, mut watch) = (None, None, None);
        self.with(&mut |state| {
            was = state.target;
            self.halt(state);
            self.forget(state);
            thread = state.thread.take();
            place = state.listed.take();
            loader = state.loader.take();
            watch = state.watch.take();
            state.sampling.rest();
            state.elsewhere.rest();
            let _ = state.set.registers.take_pending();
            let _ = state.set.registers.take_skipped();
            state.set.end_turn();
            state.sets.due = false;
            self.bell.let_go();
            state.broken = false;
            claims = core::mem::replace(&mut state.claims, Claims::NONE);
        });
        self.bell.go();
        drop((place, loader, watch));
        session.claim(self.scope(), &self.registers, &claims, &Claims::NONE)?;
        session.delist(self);
        if was != Target::None && self.scope() == Scope::Thread {
            session.unwatch();
        }
        Ok(())
    }

    /// What it is attached to ends, here and now.
    pub(crate) fn end(&self, target: Target) {
        let mut state = self.state.lock();
        if state.target == target {
            self.end_here(&mut state);
        }
        // Whatever has ended it: the thread's address may be another's from now on.
        let place = state
            .listed
            .take_if(|place| Target::Thread(place.task()) == target);
        drop(state);
        drop(place);
        self.bell.go();
    }

    /// Its thread or CPU is no more, or may not be watched any more: it counts no more, and its
    /// reader is told. On the CPU where its registers are; a thread that it stopped goes on once
    /// `Bell::go` is called.
    pub(crate) fn end_here(&self, state: &mut State) {
        self.halt(state);
        self.forget(state);
        state.target = Target::Ended;
        self.tell_end(state);
        self.bell.let_go();
    }

    /// The thread of that number, if the caller may monitor it: who stops it needs what a
    /// debugger needs, CAP_PERFMON is for looking.
    fn permitted(&self, number: u32) -> Result<(ARef<Task>, Option<Watch>)> {
        let task = sched::find(number).ok_or(ESRCH)?;
        if sched::is_kernel_thread(&task) {
            return Err(EPERM);
        }
        let watch = Watch::ask(&task, self.blocks)?;
        Ok((task, watch))
    }

    /// Has nothing changed about that?
    fn may_still_watch(&self, task: &Task) -> bool {
        rights::may_watch(task) || (!self.blocks && rights::has_perfmon())
    }

    /// An administrator's context needs what this one has, if `has` says that it does: it ends,
    /// and its reader gets a message. Returns what it had claimed.
    pub(crate) fn evict(&self, has: &dyn Fn(&State) -> bool) -> Claims {
        let (mut claims, mut place) = (Claims::NONE, None);
        // No CPU is interrupted for one that is not concerned.
        if !has(&self.state.lock()) {
            return claims;
        }
        self.with(&mut |state| {
            if has(state) {
                self.cut_short(state);
                self.tell_of(state, sampling::EVICTED);
                self.bell.let_go();
                claims = core::mem::replace(&mut state.claims, Claims::NONE);
                // Another one may have the thread from now on.
                place = state.listed.take();
            }
        });
        self.bell.go();
        drop(place);
        claims
    }

    /// A register that it uses was not there, on this CPU, on which the bell is: it ends, and
    /// its reader gets a message.
    pub(crate) fn end_broken(&self, mut state: Guard<'_, State>) {
        self.cut_short(&mut state);
        self.tell_of(&mut state, sampling::FAULT);
        self.bell.let_go();
        // printk() may wake a thread, which takes a run-queue lock. The probes take the context's
        // lock under that.
        drop(state);
        msr::say_fault();
        // With interrupts off, threads that sleep in the bell are woken with its readers.
        self.bell.ring();
    }

    /// It ends though its target does not. If it counts, or would have, something is missing in
    /// each of its sets from now on, and its page says so.
    fn cut_short(&self, state: &mut State) {
        let counts = state.started || state.broken;
        self.halt(state);
        self.forget(state);
        state.target = Target::Ended;
        state.broken = false;
        if counts {
            for set in state.each_set_mut() {
                set.registers.cut_short();
            }
        }
        state.publish(false);
    }

    /// Nobody finds it by its target any more. On its CPU, if that is one.
    fn forget(&self, state: &mut State) {
        match state.target {
            Target::Cpu(_) => sched::set_loaded(Scope::System, None),
            Target::Thread(_) | Target::None | Target::Ended => {}
        }
        state.target = Target::None;
    }
}
