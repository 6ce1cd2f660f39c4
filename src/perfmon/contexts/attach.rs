// SPDX-License-Identifier: GPL-2.0

//! Attaches contexts to targets (threads or CPUs) and detaches them, and checks the permissions for
//! the attach. [`crate::contexts::context`] documents the lock order.

use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::GlobalGuard;
use kernel::task::Task;
use perfmon_rules::claims::RegisterMask;
use perfmon_rules::error::Error;
use perfmon_rules::register_map::Scope;

use crate::contexts::blocker::Blocker;
use crate::contexts::context::{loaded_or_attached_context, Context, RevocablePermission};
use crate::contexts::cpu_fit;
use crate::contexts::phase::Target;
use crate::contexts::thread_table::{ThreadEntry, UnlinkedEntry};
use crate::msr;
use crate::per_cpu;
use crate::pmus::to_kernel_error;
use crate::session::{ContextListSlot, Session, SESSION};
use base::{access, cpu, preempt, task};

impl Context {
    /// Attaches the context to the thread with the TID `number` or, for the context of a CPU, to
    /// the CPU `number`, on which the caller must run. After the attach, the context is stopped and
    /// `set` is its active event set.
    ///
    /// # Errors
    ///
    /// `EBUSY`: the context is attached already, or its registers or the CPU are in use. `EPERM`:
    /// the caller lacks the permission. `ESRCH`: the thread does not exist or is exiting. `EEXIST`:
    /// the thread has a context already. `EINVAL`: the caller is on another CPU, an event set does
    /// not exist, or a thread attaches a context with `PFM_FL_NOTIFY_BLOCK` to itself. `ENODEV`:
    /// none of the CPUs that the context may use has all registers of the context. Other errors:
    /// `EINTR`, `ENOMEM`.
    pub(crate) fn load(&self, number: u32, set: u16) -> Result {
        // Check the permission before any lock is taken, because the check can sleep.
        let task = match self.scope {
            Scope::Thread => Some(self.find_permitted_thread(number)?),
            Scope::System if access::is_perfmon_capable() => None,
            Scope::System => return Err(EPERM),
        };
        let place = task.is_some().then(UnlinkedEntry::new).transpose()?;
        let blocker = self.notify_block.then(|| Blocker::new(&self.deferral));
        let blocker = blocker.transpose()?;
        let slot = ContextListSlot::new()?;
        let mut session = SESSION.lock();
        // The required registers in `uses` do not change until set_required_registers() is called
        // below, because code that changes them also takes `SESSION`.
        let (uses, core) = {
            let state = self.state.lock();
            let uses = state.required_registers_of_all_sets(&self.pmu_registers.as_map());
            (uses, state.cpu_fit.core_type)
        };
        let cpu = task.is_none().then_some(number);
        let can_count = cpu_fit::can_count(&uses, core, cpu);
        let claims = {
            let mut state = self.state.lock();
            if state.phase.target() != Target::Detached || state.is_clearing_perf_counters {
                return Err(to_kernel_error(Error::Loaded));
            }
            // Find errors before another context is evicted. attach_cpu() repeats the check of the
            // CPU, because the caller can be preempted before attach_cpu() is called.
            match &task {
                Some((task, _))
                    if self.notify_block
                        && task::task_address(task) == task::current_task_address() =>
                {
                    return Err(EINVAL)
                }
                Some(_) => {}
                None => Self::check_caller_on_free_cpu(number)?,
            }
            state.compute_set_order().map_err(to_kernel_error)?;
            if !can_count {
                drop(state);
                cpu_fit::log_missing_registers(cpu);
                return Err(ENODEV);
            }
            state.cpu_fit.set_required_registers(uses);
            self.activate_set(&mut state, set)
                .map_err(to_kernel_error)?;
            state.claimed_registers_of_all_sets(&self.pmu_registers.as_map())
        };
        session.add_context(slot, self);
        session
            .replace_claimed_registers(
                self.scope,
                &self.pmu_registers,
                &RegisterMask::NONE,
                &claims,
            )
            .inspect_err(|_| session.remove_context(self))?;
        let attached = match task.zip(place) {
            Some(((task, watch), place)) => session.add_thread().and_then(|()| {
                self.attach_thread(&mut session, task, (watch, blocker), place, claims)
                    .inspect_err(|_| session.remove_thread())
            }),
            None => {
                let ready;
                (session, ready) = self.init_claims_and_flush_perf(session, number, claims);
                ready.and_then(|()| self.attach_cpu(&mut session, number, &claims))
            }
        };
        attached.inspect_err(|_| {
            self.detach_and_take_claims();
            let _ = session.replace_claimed_registers(
                self.scope,
                &self.pmu_registers,
                &claims,
                &RegisterMask::NONE,
            );
            session.remove_context(self);
        })
    }

    /// Attaches the context to the thread `task`. If the caller has `CAP_SYS_ADMIN`, evicts
    /// contexts that were attached without `CAP_PERFMON`: the context of the same thread, and
    /// contexts of CPUs that have claimed the same registers. Evicts a context only after all
    /// checks have succeeded. After the eviction, checks again that the thread has not exited and
    /// that the caller may still watch the thread. After an error, the caller calls
    /// [`detach_and_take_claims`](Self::detach_and_take_claims).
    fn attach_thread(
        &self,
        session: &mut Session,
        task: ARef<Task>,
        (watch, blocker): (Option<RevocablePermission>, Option<Blocker>),
        place: UnlinkedEntry,
        claims: RegisterMask,
    ) -> Result {
        let address = task::task_address(&task);
        self.check_may_watch_without_lsm(&task)?;
        let place = self.insert_thread_entry(session, place, address)?;
        session.evict_other_scope(Scope::Thread, &claims);
        let mut state = self.state.lock();
        state.phase.attach(Target::Thread(address));
        (state.thread, state.thread_entry) = (Some(task.clone()), Some(place));
        (state.blocker, state.revocable_permission) = (blocker, watch);
        state.claims = claims;
        state.sampling.self_monitoring = address == task::current_task_address();
        drop(state);
        // Check the thread again. If the thread exited or executed a program before the context was
        // attached, the scheduler probes have ignored the context.
        self.check_may_watch_without_lsm(&task)
    }

    /// Inserts the context into the table of monitored threads, as the context of the thread
    /// `task`. Scheduler probes ignore an entry of the thread table until the entry's context is
    /// attached.
    ///
    /// # Errors
    ///
    /// `EEXIST` if another context is attached to the thread already. If the caller is an
    /// administrator (`CAP_SYS_ADMIN`), a context of the thread that was attached without
    /// `CAP_PERFMON` is ended, and this context replaces it.
    fn insert_thread_entry(
        &self,
        session: &mut Session,
        new: UnlinkedEntry,
        task: usize,
    ) -> Result<ThreadEntry> {
        let (error, new) = match ThreadEntry::new(new, task, self.address()) {
            Ok(place) => return Ok(place),
            Err(refused) => refused,
        };
        if error != EEXIST
            || !access::may_evict_contexts()
            || !session.evict_context_of_thread(task)
        {
            return Err(error);
        }
        ThreadEntry::new(new, task, self.address()).map_err(|(error, _)| error)
    }

    /// Checks whether a context can be attached to the CPU `number`. Returns `EINVAL` if the caller
    /// is on another CPU, `EBUSY` if a context is attached to the CPU already. Called with
    /// preemption off.
    fn check_caller_on_free_cpu(number: u32) -> Result {
        if cpu::this_cpu() != number {
            return Err(EINVAL);
        }
        match loaded_or_attached_context(Scope::System) {
            Some(_) => Err(EBUSY),
            None => Ok(()),
        }
    }

    /// Stores `claims`, the registers that the context of a CPU claims, in the context's state, and
    /// makes perf clear its dirty counters on the CPU `number`. Does nothing for the context of a
    /// thread, or if the context has claimed registers before. The caller checks afterwards that it
    /// runs on this CPU. Returns `EBUSY` if the CPU is too busy, or `ENOMEM`.
    ///
    /// flush_perf_dirty_counters() can take 100 ms, so this function releases `SESSION` during the
    /// call. While `SESSION` is released, `is_clearing_perf_counters` makes unload() and writes of
    /// registers fail.
    pub(crate) fn init_claims_and_flush_perf(
        &self,
        session: GlobalGuard<SESSION>,
        number: u32,
        claims: RegisterMask,
    ) -> (GlobalGuard<SESSION>, Result) {
        let mut state = self.state.lock();
        if self.scope == Scope::Thread || !state.claims.is_none() || claims.is_none() {
            return (session, Ok(()));
        }
        // Store the claims before `SESSION` is released, because can_free_by_eviction() must see
        // them when another context claims registers.
        (state.is_clearing_perf_counters, state.claims) = (true, claims);
        drop(state);
        drop(session);
        let ready = msr::flush_perf_dirty_counters(number);
        let session = SESSION.lock();
        self.state.lock().is_clearing_perf_counters = false;
        (session, ready)
    }

    /// Attaches the context to the CPU `number`, on which the caller must run. Contexts of threads
    /// are evicted only after the check that no context is attached to the CPU. After this check no
    /// other context can be attached to the CPU, because the caller holds `SESSION`.
    fn attach_cpu(&self, session: &mut Session, number: u32, claims: &RegisterMask) -> Result {
        let _stays = preempt::NoPreempt::new();
        Self::check_caller_on_free_cpu(number)?;
        session.evict_other_scope(Scope::System, claims);
        let mut state = self.state.lock();
        state.phase.attach(Target::Cpu(number));
        per_cpu::set_loaded_or_attached_address(Scope::System, self.address() as usize);
        Ok(())
    }

    /// If the context's thread is running, programs the context into the PMU of the thread's CPU.
    /// If the thread is not running, or is switched out before this function's IPI arrives, the
    /// scheduler probe programs the context when the thread is switched in.
    ///
    /// This function sends at most one IPI, so a thread that often moves to another CPU cannot
    /// prolong the call. `running_cpu()` has a barrier, so it reads the thread's CPU after the
    /// context was started.
    pub(crate) fn load_on_cpu_of_thread(&self, task: usize) {
        if task == task::current_task_address() {
            return self.sched_in(Target::Thread(task));
        }
        let Some(thread) = self.state.lock().thread.clone() else {
            return;
        };
        if let Some(cpu) = task::running_cpu(&thread) {
            cpu::call_on_cpu(cpu, &mut || {
                if task::current_task_address() == task {
                    self.sched_in(Target::Thread(task));
                }
            });
        }
    }

    /// Stops and detaches the context. The PMDs (data registers) of the context keep their values.
    ///
    /// # Errors
    ///
    /// `EBUSY` while [`init_claims_and_flush_perf`](Self::init_claims_and_flush_perf) has released
    /// `SESSION`. Without this error, `unload` would remove the context from the list of attached
    /// contexts, and `load` would then attach a context that is not in the list.
    pub(crate) fn unload(&self) -> Result {
        let mut session = SESSION.lock();
        if self.state.lock().is_clearing_perf_counters {
            return Err(EBUSY);
        }
        let (was, claims) = self.detach_and_take_claims();
        session.replace_claimed_registers(
            self.scope,
            &self.pmu_registers,
            &claims,
            &RegisterMask::NONE,
        )?;
        session.remove_context(self);
        if was != Target::Detached && self.scope == Scope::Thread {
            session.remove_thread();
        }
        Ok(())
    }

    /// Stops and detaches the context. Resets the fields of the context that are valid only until
    /// it is detached, such as its thread, its claims and whether it is masked. Returns the target
    /// and the claims that the context had. Caller holds `SESSION`.
    fn detach_and_take_claims(&self) -> (Target, RegisterMask) {
        let (mut was, mut claims, mut old) = (Target::Detached, RegisterMask::NONE, None);
        self.with_state_on_access_cpu(&mut |state| {
            was = state.phase.target();
            self.stop_counting(state);
            self.set_target_detached(state);
            old = Some((
                (state.thread.take(), state.thread_entry.take()),
                (state.blocker.take(), state.revocable_permission.take()),
            ));
            state.sampling.reset();
            state.cpu_fit.reset_times();
            for set in state.each_set_mut() {
                let _ = set.registers.take_pending_pmds();
                let _ = set.registers.take_skipped_pmds();
            }
            state.active_set.end_run();
            state.sets.is_switch_due = false;
            state.has_register_fault = false;
            claims = core::mem::replace(&mut state.claims, RegisterMask::NONE);
        });
        // Drop the old thread, blocker and permission only after the context's lock is released.
        drop(old);
        (was, claims)
    }

    /// Finds the thread with the TID `number` and checks that the caller is allowed to monitor the
    /// thread. A context that blocks its thread needs the permission to stop the thread (ptrace
    /// attach); for other contexts `CAP_PERFMON` is enough.
    ///
    /// # Errors
    ///
    /// `ESRCH` if the thread does not exist, `EPERM` without permission and for kernel threads;
    /// `EINTR`, `ENOMEM`.
    fn find_permitted_thread(
        &self,
        number: u32,
    ) -> Result<(ARef<Task>, Option<RevocablePermission>)> {
        let task = task::find_thread(number).ok_or(ESRCH)?;
        if task::is_kernel_thread(&task) {
            return Err(EPERM);
        }
        let watch = RevocablePermission::check(&task, self.notify_block)?;
        Ok((task, watch))
    }

    /// Checks, without sleeping, whether the caller may watch the thread. Unlike
    /// [`RevocablePermission::check`], this function does not ask the security modules. Returns
    /// `ESRCH` if the thread exits, `EPERM` without permission.
    fn check_may_watch_without_lsm(&self, task: &Task) -> Result {
        if task::is_exiting(task) {
            return Err(ESRCH);
        }
        match access::ptrace_rule_allows_read(task)
            || (!self.notify_block && access::has_perfmon_noaudit())
        {
            true => Ok(()),
            false => Err(EPERM),
        }
    }
}
