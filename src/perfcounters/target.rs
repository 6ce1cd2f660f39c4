// SPDX-License-Identifier: GPL-2.0

//! Attaching and detaching contexts: the targets (threads and CPUs), the permissions that this
//! needs, and what happens when a target ends. The lock order is in [`crate::contexts`].

use engine::claims::RegisterMask;
use engine::context::Error;
use engine::pmu::Scope;
use engine::sampling;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use crate::contexts::{Context, State};
use crate::cpu_kinds;
use crate::permission::Permission;
use crate::pmu::to_kernel_error;
use crate::session::{ListSlot, Session};
use crate::sys::access::Process;
use crate::sys::lock::SESSION;
use crate::sys::rawlock::Guard;
use crate::sys::threads::{ThreadEntry, UnlinkedEntry};
use crate::sys::{access, msr, sched};

/// The target that a context is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// No target: the context is detached.
    Detached,
    /// A thread, identified by the address of its `task_struct`.
    Thread(usize),
    /// A CPU.
    Cpu(u32),
    /// The target has ended: the thread has exited or the CPU is offline. Also set when the context
    /// was ended for another reason, for example because the permission was lost.
    Dead,
}

impl Target {
    /// Returns the number of the CPU; `None` for other targets.
    pub(crate) fn cpu(self) -> Option<u32> {
        match self {
            Self::Cpu(cpu) => Some(cpu),
            Self::Detached | Self::Thread(_) | Self::Dead => None,
        }
    }
}

impl Context {
    /// Attaches the context, stopped: to the thread with this number, or to the CPU with this
    /// number, on which the caller must be.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the context is attached already, or if its registers or the CPU are in use;
    /// `EPERM` without permission, `ESRCH` if the thread does not exist or exits; `EEXIST` if the
    /// thread has a context; `EINVAL` if the caller is on another CPU, if an event set does not
    /// exist, or if a thread would block itself; `ENODEV` if no CPU has all registers; `EINTR`,
    /// `ENOMEM`.
    pub(crate) fn load(&self, number: u32, set: u16) -> Result {
        // The permission check may wait for other processes, so it is made without a lock.
        let task = match self.scope() {
            Scope::Thread => Some(self.find_permitted(number)?),
            Scope::System if access::is_perfmon_capable() => None,
            Scope::System => return Err(EPERM),
        };
        let place = match self.scope() {
            Scope::Thread => Some(UnlinkedEntry::new()?),
            Scope::System => None,
        };
        let slot = ListSlot::new()?;
        let mut session = SESSION.lock();
        // Register writes take `SESSION`, which is held, so the uses cannot change until they are
        // set below.
        let (uses, core) = {
            let state = self.state.lock();
            let uses = state.required_with(&self.registers.map(), |_| RegisterMask::NONE);
            (uses, state.elsewhere.core())
        };
        let cpu = task.is_none().then_some(number);
        let can_count = cpu_kinds::can_count(&uses, core, cpu);
        let claims = {
            let mut state = self.state.lock();
            if state.target != Target::Detached || state.loading {
                return Err(to_kernel_error(Error::Loaded));
            }
            // Errors must be found before another context is evicted. attach_cpu() checks the CPU
            // again, because preemption is on in between.
            match &task {
                Some((task, _))
                    if self.notify_block && sched::address(task) == sched::current() =>
                {
                    return Err(EINVAL)
                }
                Some(_) => {}
                None => Self::check_cpu_free(number)?,
            }
            state.compute_order().map_err(to_kernel_error)?;
            if !can_count {
                drop(state);
                msr::log_lacking(cpu);
                return Err(ENODEV);
            }
            state.elsewhere.set_required(uses);
            self.activate_set(&mut state, set)
                .map_err(to_kernel_error)?;
            state.claims_with(&self.registers.map(), |_| RegisterMask::NONE)
        };
        session.add_context(slot, self);
        session
            .claim(self.scope(), &self.registers, &RegisterMask::NONE, &claims)
            .inspect_err(|_| session.remove_context(self))?;
        let attached = match task.zip(place) {
            Some(((task, watch), place)) => session.add_thread().and_then(|()| {
                self.attach_thread(&mut session, task, watch, place, claims)
                    .inspect_err(|_| session.remove_thread())
            }),
            None => {
                // Making perf forget this CPU's counters may take 100 ms, so `SESSION` is dropped.
                // Until then `loading` makes `unload()` and writes of registers fail. The claims
                // are in the state already: is_available_after_evict() of other contexts must see
                // them.
                {
                    let mut state = self.state.lock();
                    (state.loading, state.claims) = (true, claims);
                }
                drop(session);
                let ready = match claims.is_none() {
                    true => Ok(()),
                    false => msr::flush_perf_dirty_counters(),
                };
                session = SESSION.lock();
                self.state.lock().loading = false;
                ready
                    .and_then(|()| self.attach_cpu(&mut session, number, &claims))
                    .inspect_err(|_| self.state.lock().claims = RegisterMask::NONE)
            }
        };
        attached.inspect_err(|_| {
            let _ = session.claim(self.scope(), &self.registers, &claims, &RegisterMask::NONE);
            session.remove_context(self);
        })
    }

    /// Attaches the context to a thread. For an administrator's context, contexts of users are
    /// evicted after all checks. The two checks that are repeated after that fail only if the
    /// thread exits or executes a program at this moment.
    fn attach_thread(
        &self,
        session: &mut Session,
        task: ARef<Task>,
        watch: Option<Permission>,
        place: UnlinkedEntry,
        claims: RegisterMask,
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
        let place = self.insert_entry(session, place, address)?;
        session.evict(Scope::Thread, &claims);
        let ended = {
            let mut state = self.state.lock();
            state.target = Target::Thread(address);
            let old = (
                state.loader.replace(loader),
                core::mem::replace(&mut state.permission, watch),
            );
            state.claims = claims;
            state.sampling.self_monitoring = address == sched::current();
            // The thread may have exited since the first check, before its probe could find the
            // target.
            let ended = sched::has_ended(&task);
            if ended {
                self.detach_state(&mut state);
                state.claims = RegisterMask::NONE;
            } else {
                state.thread_entry = Some(place);
            }
            // The replaced values are dropped after the lock is released.
            (ended, state.thread.replace(task), old)
        };
        if ended.0 {
            return Err(ESRCH);
        }
        // The thread may have executed a program after the first check. The exec probe found the
        // context only if `target` was set by then.
        if !self.may_still_watch(&again) {
            let mut state = self.state.lock();
            if state.target == Target::Thread(address) {
                self.detach_state(&mut state);
            }
            (state.target, state.claims) = (Target::Detached, RegisterMask::NONE);
            let place = state.thread_entry.take();
            drop(state);
            drop(place);
            return Err(EPERM);
        }
        Ok(())
    }

    /// Inserts the context into the table of monitored threads. Probes that find the entry before
    /// `target` is set ignore it.
    ///
    /// # Errors
    ///
    /// `EEXIST` if the thread has a context already. If the caller is an administrator and that
    /// context was attached without `CAP_PERFMON`, it is ended and replaced instead.
    fn insert_entry(
        &self,
        session: &mut Session,
        new: UnlinkedEntry,
        task: usize,
    ) -> Result<ThreadEntry> {
        let (error, new) = match ThreadEntry::new(new, task, self) {
            Ok(place) => return Ok(place),
            Err(refused) => refused,
        };
        if error != EEXIST || !access::may_evict() || !session.evict_thread(task) {
            return Err(error);
        }
        ThreadEntry::new(new, task, self).map_err(|(error, _)| error)
    }

    /// Returns `EINVAL` if the caller is on another CPU, `EBUSY` if this CPU has a context.
    /// Preemption off.
    fn check_cpu_free(number: u32) -> Result {
        if sched::this_cpu() != number {
            return Err(EINVAL);
        }
        match sched::loaded(Scope::System) {
            Some(_) => Err(EBUSY),
            None => Ok(()),
        }
    }

    /// Attaches the context to the given CPU, on which the caller must be. Contexts of threads are
    /// evicted only after this CPU was found free. It stays free, because attaching to a CPU needs
    /// `SESSION`.
    fn attach_cpu(&self, session: &mut Session, number: u32, claims: &RegisterMask) -> Result {
        let _stays = sched::NoPreempt::new();
        Self::check_cpu_free(number)?;
        session.evict(Scope::System, claims);
        let mut state = self.state.lock();
        state.target = Target::Cpu(number);
        sched::set_loaded(Scope::System, Some(self));
        Ok(())
    }

    /// Programs the context into the PMU of the CPU on which its thread runs now. If the thread
    /// does not run, the scheduler probe does this at its next switch.
    ///
    /// One attempt is enough, however often the thread changes CPUs, so the thread cannot prolong
    /// the call. `running_cpu()` looks at the thread after the context was started (barrier there).
    /// If the thread has left that CPU before the IPI arrives, it was switched out, and the probe
    /// of its next switch finds the context started.
    pub(crate) fn load_where_running(&self, task: usize) {
        if task == sched::current() {
            return self.sched_in(Target::Thread(task));
        }
        let Some(thread) = self.state.lock().thread.clone() else {
            return;
        };
        if let Some(cpu) = sched::running_cpu(&thread) {
            sched::call_on(cpu, &mut || {
                if sched::current() == task {
                    self.sched_in(Target::Thread(task));
                }
            });
        }
    }

    /// Detaches the context; its values stay. Does nothing if it is not attached.
    ///
    /// # Errors
    ///
    /// `EBUSY` while another thread attaches the context: `load()` drops `SESSION` in between, and
    /// would attach a context that is not in the session's list.
    pub(crate) fn unload(&self) -> Result {
        let mut session = SESSION.lock();
        if self.state.lock().loading {
            return Err(EBUSY);
        }
        let (mut was, mut thread, mut claims) = (Target::Detached, None, RegisterMask::NONE);
        let (mut place, mut loader, mut watch) = (None, None, None);
        self.with_state(&mut |state| {
            was = state.target;
            self.stop_counting(state);
            self.detach_state(state);
            thread = state.thread.take();
            place = state.thread_entry.take();
            loader = state.loader.take();
            watch = state.permission.take();
            state.sampling.reset();
            state.elsewhere.reset();
            let _ = state.set.registers.take_pending();
            let _ = state.set.registers.take_skipped();
            state.set.end_run();
            state.sets.due = false;
            self.notifier.resume();
            state.broken = false;
            claims = core::mem::replace(&mut state.claims, RegisterMask::NONE);
        });
        self.notifier.wake_blocked();
        drop((place, loader, watch));
        session.claim(self.scope(), &self.registers, &claims, &RegisterMask::NONE)?;
        session.remove_context(self);
        if was != Target::Detached && self.scope() == Scope::Thread {
            session.remove_thread();
        }
        Ok(())
    }

    /// Ends the context if it is attached to this target.
    ///
    /// Context: on the CPU that is going offline, or in the target thread, which exits, executes a
    /// program with other privileges, or may not be stopped any more.
    pub(crate) fn end(&self, target: Target) {
        let mut state = self.state.lock();
        if state.target == target {
            self.end_state(&mut state);
        }
        // Remove the entry even if the context was ended before: the address of the thread's
        // task_struct may be used for another thread from now on.
        let place = state
            .thread_entry
            .take_if(|place| Target::Thread(place.task()) == target);
        drop(state);
        drop(place);
        self.notifier.wake_blocked();
    }

    /// Ends a context: it stops counting, is marked as ended, and its reader gets a message. Called
    /// when the thread or CPU ends, or when the permission to watch the thread is lost.
    ///
    /// Runs on the CPU whose PMU holds the registers. The caller then calls
    /// `Notifier::wake_blocked()`, which wakes the thread if it is blocked after a notification.
    pub(crate) fn end_state(&self, state: &mut State) {
        self.stop_counting(state);
        self.detach_state(state);
        state.target = Target::Dead;
        self.queue_end_message(state);
        self.notifier.resume();
    }

    /// Finds the thread with this number and checks that the caller may monitor it. A context that
    /// blocks its thread needs the permission to trace it (ptrace); for other contexts
    /// `CAP_PERFMON` is enough.
    ///
    /// # Errors
    ///
    /// `ESRCH` if there is no such thread, `EPERM` without permission and for kernel threads;
    /// `EINTR`, `ENOMEM`.
    fn find_permitted(&self, number: u32) -> Result<(ARef<Task>, Option<Permission>)> {
        let task = sched::find(number).ok_or(ESRCH)?;
        if sched::is_kernel_thread(&task) {
            return Err(EPERM);
        }
        let watch = Permission::check(&task, self.notify_block)?;
        Ok((task, watch))
    }

    /// Repeats the part of the permission check of [`Permission::check`] that does not sleep.
    fn may_still_watch(&self, task: &Task) -> bool {
        access::may_watch(task) || (!self.notify_block && access::has_perfmon_noaudit())
    }

    /// Ends the context, because an administrator's context needs its registers or its thread. Does
    /// nothing unless `has` returns true for its state. The reader gets a message. Returns the
    /// registers that the context had claimed.
    pub(crate) fn evict(&self, has: &dyn Fn(&State) -> bool) -> RegisterMask {
        let (mut claims, mut place) = (RegisterMask::NONE, None);
        // No IPI is sent for a context that is not concerned.
        if !has(&self.state.lock()) {
            return claims;
        }
        self.with_state(&mut |state| {
            if has(state) {
                self.end_early(state);
                self.queue_message(state, sampling::EVICTED);
                self.notifier.resume();
                claims = core::mem::replace(&mut state.claims, RegisterMask::NONE);
                // Another context may be attached to the thread from now on.
                place = state.thread_entry.take();
            }
        });
        self.notifier.wake_blocked();
        drop(place);
        claims
    }

    /// Ends a context that uses a register which this CPU does not have. The reader gets a message.
    /// Called by the notifier's irq_work.
    pub(crate) fn end_broken(&self, mut state: Guard<'_, State>) {
        self.end_early(&mut state);
        self.queue_message(&mut state, sampling::FAULT);
        self.notifier.resume();
        // printk() may wake a thread, which takes a run-queue lock. The probes take the context's
        // lock under that.
        drop(state);
        msr::log_fault();
        // Interrupts are off, so a blocked thread cannot be woken here. The irq_work queued by
        // wake_readers() wakes blocked threads as well as readers.
        self.notifier.wake_readers();
    }

    /// Ends the context although its target goes on. If it was started, all its values are marked
    /// as short from now on, and the self page is updated.
    fn end_early(&self, state: &mut State) {
        let counts = state.started || state.broken;
        self.stop_counting(state);
        self.detach_state(state);
        state.target = Target::Dead;
        state.broken = false;
        if counts {
            for set in state.each_set_mut() {
                set.registers.mark_all_incomplete();
            }
        }
        state.update_self_page(false);
    }

    /// Detaches the state from its target. For a CPU's context, runs on that CPU and clears its
    /// `loaded` word.
    fn detach_state(&self, state: &mut State) {
        match state.target {
            Target::Cpu(_) => sched::set_loaded(Scope::System, None),
            Target::Thread(_) | Target::Detached | Target::Dead => {}
        }
        state.target = Target::Detached;
    }
}
