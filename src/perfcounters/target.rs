// SPDX-License-Identifier: GPL-2.0

//! Attaching and detaching contexts: the targets (threads and CPUs), the permissions that attaching
//! needs, and the end of a context when its target ends. [`crate::contexts`] documents the lock
//! order.

use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;
use perfmon_rules::abi;
use perfmon_rules::claims::RegisterMask;
use perfmon_rules::error::Error;
use perfmon_rules::register_map::Scope;

use crate::base::access::{self, Process};
use crate::base::raw_lock::Guard;
use crate::base::{cpu, preempt, task};
use crate::contexts::{Context, State};
use crate::cpu_kinds;
use crate::permission::Permission;
use crate::pmu::to_kernel_error;
use crate::session::{ListSlot, Session};
use crate::sys::lock::SESSION;
use crate::sys::threads::{ThreadEntry, UnlinkedEntry};
use crate::sys::{msr, sched};

/// The target that a context is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// No target: the context is detached.
    Detached,
    /// A thread, identified by the address of its `task_struct`.
    Thread(usize),
    /// A CPU.
    Cpu(u32),
    /// The target has ended: the thread has exited or the CPU is offline. `Dead` is also set if the
    /// context was ended for another reason, for example because the permission was lost.
    Dead,
}

impl Target {
    /// Returns the number of the CPU if the target is a CPU, otherwise `None`.
    pub(crate) fn cpu(self) -> Option<u32> {
        match self {
            Self::Cpu(cpu) => Some(cpu),
            Self::Detached | Self::Thread(_) | Self::Dead => None,
        }
    }
}

impl Context {
    /// Attaches the context to the thread with this number or, for a CPU's context, to the CPU with
    /// this number, on which the caller must be. The context is stopped, and `set` becomes its
    /// active event set.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the context is attached already, or if its registers or the CPU are in use;
    /// `EPERM` without permission; `ESRCH` if the thread does not exist or exits; `EEXIST` if the
    /// thread has a context; `EINVAL` if the caller is on another CPU, if an event set does not
    /// exist, or if a thread would block itself; `ENODEV` if no CPU that the context may use has
    /// all its registers; `EINTR`, `ENOMEM`.
    pub(crate) fn load(&self, number: u32, set: u16) -> Result {
        // The permission check may sleep, so the check is made without a lock.
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
        // Code that writes registers takes `SESSION`, which is held here, so `uses` stays valid
        // until the call of set_required() below.
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
            // again, because the caller may be preempted before that call.
            match &task {
                Some((task, _)) if self.notify_block && task::address(task) == task::current() => {
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
                // flush_perf_dirty_counters() may take 100 ms, so `SESSION` is released during the
                // call. While `SESSION` is released, `loading` makes `unload()` and writes of
                // registers fail. The claims are stored in the state before `SESSION` is released,
                // because is_available_after_evict() must see them when another context claims
                // registers.
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

    /// Attaches the context to a thread. If the caller is an administrator (`CAP_SYS_ADMIN`),
    /// contexts of users are evicted after all checks. The two checks that are repeated after the
    /// eviction fail only if the thread has exited or executed a program since the first checks.
    fn attach_thread(
        &self,
        session: &mut Session,
        task: ARef<Task>,
        watch: Option<Permission>,
        place: UnlinkedEntry,
        claims: RegisterMask,
    ) -> Result {
        let address = task::address(&task);
        let again = task.clone();
        let loader = Process::of_caller()?;
        if task::has_ended(&task) {
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
            state.sampling.self_monitoring = address == task::current();
            // The thread may have exited since the first check. If `target` was not set at that
            // time, the exit probe has ignored the context.
            let ended = task::has_ended(&task);
            if ended {
                self.detach_state(&mut state);
                state.claims = RegisterMask::NONE;
            } else {
                state.thread_entry = Some(place);
            }
            // The replaced values are dropped after the context's lock is released.
            (ended, state.thread.replace(task), old)
        };
        if ended.0 {
            return Err(ESRCH);
        }
        // The thread may have executed a program since the first check. If `target` was not set at
        // that time, the exec probe has ignored the context.
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

    /// Inserts the context into the table of monitored threads. Probes ignore an entry whose
    /// context has no `target` yet.
    ///
    /// # Errors
    ///
    /// `EEXIST` if the thread has a context already. If the caller is an administrator
    /// (`CAP_SYS_ADMIN`) and the old context was attached without `CAP_PERFMON`, the old context is
    /// ended and replaced instead.
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

    /// Returns `EINVAL` if the caller is not on the CPU with this number, `EBUSY` if a context is
    /// attached to this CPU. Called with preemption off.
    fn check_cpu_free(number: u32) -> Result {
        if cpu::this_cpu() != number {
            return Err(EINVAL);
        }
        match sched::loaded(Scope::System) {
            Some(_) => Err(EBUSY),
            None => Ok(()),
        }
    }

    /// Attaches the context to the CPU with this number, on which the caller must be. Contexts of
    /// threads are evicted only after the check that no context is attached to this CPU. No other
    /// context can be attached to this CPU during the call, because the caller holds `SESSION`.
    fn attach_cpu(&self, session: &mut Session, number: u32, claims: &RegisterMask) -> Result {
        let _stays = preempt::NoPreempt::new();
        Self::check_cpu_free(number)?;
        session.evict(Scope::System, claims);
        let mut state = self.state.lock();
        state.target = Target::Cpu(number);
        sched::set_loaded(Scope::System, Some(self));
        Ok(())
    }

    /// Programs the context into the PMU of the CPU on which its thread is running. If the thread
    /// is not running, the scheduler probe programs the context when the thread is switched in.
    ///
    /// One attempt is enough, however often the thread changes CPUs, so the thread cannot prolong
    /// the call. `running_cpu()` has a barrier and reads the thread's CPU after the context was
    /// started. If the thread leaves that CPU before the IPI arrives, the thread is switched out,
    /// and the probe finds the context started when the thread is switched in again.
    pub(crate) fn load_where_running(&self, task: usize) {
        if task == task::current() {
            return self.sched_in(Target::Thread(task));
        }
        let Some(thread) = self.state.lock().thread.clone() else {
            return;
        };
        if let Some(cpu) = task::running_cpu(&thread) {
            cpu::call_on(cpu, &mut || {
                if task::current() == task {
                    self.sched_in(Target::Thread(task));
                }
            });
        }
    }

    /// Detaches the context. The values of its PMDs (data registers) do not change.
    ///
    /// # Errors
    ///
    /// `EBUSY` while another thread attaches the context: `load()` has released `SESSION` during
    /// that time, and would later attach a context that is not in the list of attached contexts.
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

    /// Ends the context if the context is attached to this target.
    ///
    /// Context: on the CPU that is going offline, or in the target thread. The thread calls this
    /// function when it exits, when it has executed a program with other privileges, or when the
    /// process that attached the context has lost the permission to stop the thread.
    pub(crate) fn end(&self, target: Target) {
        let mut state = self.state.lock();
        if state.target == target {
            self.end_state(&mut state);
        }
        // Remove the entry from the table of threads even if the context was ended before: the
        // address of the thread's task_struct may be reused for another thread.
        let place = state
            .thread_entry
            .take_if(|place| Target::Thread(place.task()) == target);
        drop(state);
        drop(place);
        self.notifier.wake_blocked();
    }

    /// Ends a context: stops counting, sets the target to `Dead`, and queues a message for the
    /// reader. Called when the thread or CPU ends, or when the permission to watch the thread is
    /// lost.
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

    /// Finds the thread with this number and checks that the caller may monitor the thread. A
    /// context that blocks its thread needs the permission to trace the thread (ptrace); for other
    /// contexts `CAP_PERFMON` is enough.
    ///
    /// # Errors
    ///
    /// `ESRCH` if the thread does not exist, `EPERM` without permission and for kernel threads;
    /// `EINTR`, `ENOMEM`.
    fn find_permitted(&self, number: u32) -> Result<(ARef<Task>, Option<Permission>)> {
        let task = task::find(number).ok_or(ESRCH)?;
        if task::is_kernel_thread(&task) {
            return Err(EPERM);
        }
        let watch = Permission::check(&task, self.notify_block)?;
        Ok((task, watch))
    }

    /// Repeats the part of the permission check of [`Permission::check`] that does not sleep.
    fn may_still_watch(&self, task: &Task) -> bool {
        access::may_watch(task) || (!self.notify_block && access::has_perfmon_noaudit())
    }

    /// Ends this context if `has` returns true for its state, because an administrator's context
    /// needs its registers or its thread. Queues a message for the reader. Returns the registers
    /// that the context had claimed, or no registers if the context was not ended.
    pub(crate) fn evict(&self, has: &dyn Fn(&State) -> bool) -> RegisterMask {
        let (mut claims, mut place) = (RegisterMask::NONE, None);
        // Check `has` first without an IPI, which with_state() may send.
        if !has(&self.state.lock()) {
            return claims;
        }
        self.with_state(&mut |state| {
            if has(state) {
                self.end_early(state);
                self.queue_message(state, abi::EVICTED);
                self.notifier.resume();
                claims = core::mem::replace(&mut state.claims, RegisterMask::NONE);
                // Remove the entry from the table of threads, so that another context can be
                // attached.
                place = state.thread_entry.take();
            }
        });
        self.notifier.wake_blocked();
        drop(place);
        claims
    }

    /// Ends a context that uses a register which this CPU does not have, and queues a message for
    /// the reader. Called by the notifier's irq_work.
    pub(crate) fn end_broken(&self, mut state: Guard<'_, State>) {
        self.end_early(&mut state);
        self.queue_message(&mut state, abi::FAULT);
        self.notifier.resume();
        // Release the lock: printk() may wake a thread, which takes a run-queue lock, and the
        // probes take the context's lock under a run-queue lock.
        drop(state);
        msr::log_fault();
        // Interrupts are off, so a blocked thread cannot be woken here. The irq_work queued by
        // wake_readers() wakes blocked threads as well as readers.
        self.notifier.wake_readers();
    }

    /// Ends the context although its target continues to run. If the context was started, all its
    /// values are marked as short (incomplete). Updates the self page.
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

    /// Sets the target to `Detached`. If the target was a CPU, clears the CPU's `loaded` word; the
    /// caller is on that CPU.
    fn detach_state(&self, state: &mut State) {
        match state.target {
            Target::Cpu(_) => sched::set_loaded(Scope::System, None),
            Target::Thread(_) | Target::Detached | Target::Dead => {}
        }
        state.target = Target::Detached;
    }
}
