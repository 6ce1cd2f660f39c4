// SPDX-License-Identifier: GPL-2.0

//! State shared by all attached contexts: the reservation of the PMU, the registers that contexts
//! claim, and the scheduler probes. An *administrator's* context belongs to a caller with
//! `CAP_SYS_ADMIN`. A *user's* context was attached by a caller without `CAP_PERFMON`.

#![expect(unsafe_code, reason = "the list of the addresses of attached contexts")]

use core::cell::Cell;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNodeReservation};
use kernel::sync::Arc;
use perfmon_rules::claims::{RegisterMask, RegisterUsers};
use perfmon_rules::register_map::Scope;

use crate::contexts::context::Context;
use crate::contexts::phase::Target;
use crate::delayed_work::{self, Workqueues};
use crate::pmu_registers::PmuRegisters;
use crate::reservation::PmuReservation;
use crate::sched_probes::SchedProbes;
use base::tracepoint::{Probes, ProcessExec, ProcessExit, SchedExit, SchedSwitch};
use base::{access, global_mutex};

global_mutex! {
    /// The attached contexts, the registers that these contexts have claimed, and the probes of the
    /// scheduler's tracepoints. No other mutex of this module is held when `SESSION` is taken. CPU
    /// hotplug callbacks must not take `SESSION`.
    pub(crate) static SESSION: Mutex<Session> = Session::IDLE;
}

/// An attached context. `evictable` is true if the context was attached without `CAP_PERFMON`. A
/// caller with `CAP_SYS_ADMIN` ends an evictable context in two cases: the caller attaches another
/// context to the thread of the evictable context, or the caller's context has the other scope
/// (thread or CPU) and claims registers that the evictable context has claimed.
struct AttachedContext {
    context: *const Context,
    evictable: bool,
}

// SAFETY: The pointer `context` is only used for shared access, and `Context` is `Sync`. The
// pointer is valid while it is in the list of `Session`, because `remove_context()` removes a
// context from the list before the context is freed.
unsafe impl Send for AttachedContext {}

/// The state that is shared by all attached contexts, protected by the lock `SESSION`.
pub(crate) struct Session {
    /// The number of contexts that are attached to threads. While contexts are attached to threads,
    /// the scheduler probes are attached.
    threads: usize,
    /// The hardware registers that attached contexts have claimed, with the number of contexts that
    /// use each register.
    register_users: RegisterUsers,
    /// The reservation of the PMU, or `None` while no attached context uses hardware registers.
    reservation: Option<PmuReservation>,
    /// The attached contexts, in a tree that is sorted by the address of the context, so that the
    /// search for a context is fast. `None` until the first context is attached.
    attached: Option<RBTree<usize, AttachedContext>>,
    /// The scheduler probes. When no thread has a context any more, the probes stay attached for
    /// another [`IDLE_PROBES_MS`] milliseconds.
    probes: Option<Probes<SchedProbes>>,
}

impl Session {
    /// The state of `Session` while no context is attached.
    pub(crate) const IDLE: Self = Self {
        threads: 0,
        register_users: RegisterUsers::NONE,
        reservation: None,
        attached: None,
        probes: None,
    };

    /// Adds a context to the list of attached contexts. Called before the context claims registers.
    /// The caller attaches the context afterwards.
    pub(crate) fn add_context(&mut self, slot: ContextListSlot, context: &Context) {
        let yields = !access::has_perfmon_noaudit();
        let context = core::ptr::from_ref(context);
        let attached = self.attached.get_or_insert_with(RBTree::new);
        let one = AttachedContext {
            context,
            evictable: yields,
        };
        attached.insert(slot.0.into_node(context as usize, one));
    }

    /// Removes a context from the list of attached contexts. Does nothing if the context is not in
    /// the list.
    pub(crate) fn remove_context(&mut self, context: &Context) {
        let key = core::ptr::from_ref(context) as usize;
        if let Some(attached) = &mut self.attached {
            let _ = attached.remove(&key);
        }
    }

    /// Returns whether evictions can make the registers `claims` available to a context of the
    /// scope `scope`. Returns false if a non-evictable context whose scope is not `scope` has
    /// claimed one of the registers.
    fn can_free_by_eviction(&self, scope: Scope, claims: &RegisterMask) -> bool {
        attached_contexts(&self.attached).all(|one| {
            // SAFETY: A context is freed only after `remove_context()` has removed it from the
            // list. `remove_context()` cannot run now, because the caller holds the lock `SESSION`.
            let context = unsafe { &*one.context };
            one.evictable
                || context.scope == scope
                || !context.state.lock().claims.intersects(claims)
        })
    }

    /// Ends each evictable context whose scope is not `scope` and which has claimed one of the
    /// registers `claims`. The caller's context has claimed these registers with
    /// [`replace_claimed_registers`](Self::replace_claimed_registers). The caller must not fail
    /// after this call. Preemption may be off.
    pub(crate) fn evict_other_scope(&mut self, scope: Scope, claims: &RegisterMask) {
        if self.register_users.is_available(scope, claims) {
            return;
        }
        let Self {
            attached,
            register_users: shares,
            ..
        } = self;
        for one in attached_contexts(attached).filter(|one| one.evictable) {
            // SAFETY: A context is freed only after `remove_context()` has removed it from the
            // list. `remove_context()` cannot run now, because the caller holds the lock `SESSION`.
            let context = unsafe { &*one.context };
            if context.scope != scope {
                let had = context.evict_if(&|state| state.claims.intersects(claims));
                shares.remove(context.scope, &had);
            }
        }
    }

    /// Ends the context that is attached to the thread `task` if it was attached without
    /// `CAP_PERFMON`, because an administrator's context replaces it. Returns whether a context was
    /// ended. May sleep.
    ///
    /// The caller's context has claimed its registers before this call. If the eviction leaves no
    /// context that has claimed a register, this function releases the PMU to perf.
    pub(crate) fn evict_context_of_thread(&mut self, task: usize) -> bool {
        let Self {
            attached,
            register_users: shares,
            ..
        } = self;
        let ended = Cell::new(false);
        for one in attached_contexts(attached).filter(|one| one.evictable) {
            // SAFETY: A context is freed only after `remove_context()` has removed it from the
            // list. `remove_context()` cannot run now, because the caller holds the lock `SESSION`.
            let context = unsafe { &*one.context };
            let had = context.evict_if(&|state| {
                let is = state.phase.target() == Target::Thread(task);
                ended.set(ended.get() || is);
                is
            });
            shares.remove(context.scope, &had);
        }
        if self.register_users.is_empty() {
            self.reservation = None;
        }
        ended.get()
    }

    /// Claims the registers `new` for a context and releases the registers `old`, which the context
    /// had claimed. Reserves the PMU for the first claim, and releases it when no claim is left.
    ///
    /// An administrator's context can also claim registers that users' contexts of the other scope
    /// (thread or CPU) have claimed. The users' contexts keep counting until
    /// [`evict_other_scope`](Self::evict_other_scope) ends them. The caller calls
    /// `evict_other_scope()` when the caller cannot fail any more, and before its context uses the
    /// registers.
    ///
    /// # Errors
    ///
    /// `EBUSY` if perf, the NMI watchdog or a context whose scope is not `scope` uses one of the
    /// registers `new`. `ENOMEM` if memory is short. On error, the claims are unchanged.
    pub(crate) fn replace_claimed_registers(
        &mut self,
        scope: Scope,
        registers: &Arc<PmuRegisters>,
        old: &RegisterMask,
        new: &RegisterMask,
    ) -> Result {
        let is_available = self.register_users.is_available(scope, new)
            || (access::may_evict_contexts() && self.can_free_by_eviction(scope, new));
        if !is_available {
            return Err(EBUSY);
        }
        if !new.is_none() && self.reservation.is_none() {
            self.reservation = Some(PmuReservation::reserve(registers.clone())?);
        }
        self.register_users.add(scope, new);
        self.register_users.remove(scope, old);
        if self.register_users.is_empty() {
            self.reservation = None;
        }
        Ok(())
    }

    /// Returns the registers that a context of the scope `scope` can claim, provided that perf and
    /// the NMI watchdog do not use the PMU.
    pub(crate) fn available_registers(&self, scope: Scope) -> RegisterMask {
        self.register_users.available_registers(scope)
    }

    /// Increments the number of contexts that are attached to threads, and attaches the scheduler
    /// probes if they are not attached. Called before a context is attached to a thread.
    pub(crate) fn add_thread(&mut self) -> Result {
        if self.probes.is_none() {
            let mut probes = Probes::new(SchedProbes)?;
            probes.attach::<SchedSwitch<'_>>()?;
            probes.attach::<SchedExit<'_>>()?;
            probes.attach::<ProcessExit<'_>>()?;
            probes.attach::<ProcessExec<'_>>()?;
            self.probes = Some(probes);
        }
        self.threads = self.threads.wrapping_add(1);
        Ok(())
    }

    /// Decrements the number of contexts that are attached to threads. When no thread has a context
    /// any more, the scheduler probes stay attached for another [`IDLE_PROBES_MS`] milliseconds,
    /// because attaching them again is costly for all CPUs.
    pub(crate) fn remove_thread(&mut self) {
        self.threads = self.threads.wrapping_sub(1);
        if self.threads == 0 {
            delayed_work::queue_idle_probes_detach(IDLE_PROBES_MS);
        }
    }
}

/// Iterates over the list of attached contexts.
fn attached_contexts(
    list: &Option<RBTree<usize, AttachedContext>>,
) -> impl Iterator<Item = &AttachedContext> {
    list.iter().flat_map(|attached| attached.values())
}

/// Memory for one element of the list of attached contexts.
pub(crate) struct ContextListSlot(RBTreeNodeReservation<usize, AttachedContext>);

impl ContextListSlot {
    /// Allocates memory for a list element of one attached context. The memory is charged to the
    /// caller's control group. Returns `ENOMEM` if memory is short. The allocation can wait for
    /// free memory, so the caller holds no lock of this module.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?))
    }
}

/// The workqueues of perfmon. Dropping this value waits for the queued work, and then detaches the
/// probes of the scheduler's tracepoints.
pub(crate) struct SessionWorkqueues {
    _queues: Workqueues,
    _probes: DetachProbesOnDrop,
}

impl SessionWorkqueues {
    /// Creates the workqueues. Returns `ENOMEM` if memory is short.
    pub(crate) fn create() -> Result<Self> {
        Ok(Self {
            _queues: Workqueues::create()?,
            _probes: DetachProbesOnDrop,
        })
    }
}

/// The drop of this value detaches the scheduler probes, after [`SessionWorkqueues`] has dropped
/// the workqueues.
struct DetachProbesOnDrop;

impl Drop for DetachProbesOnDrop {
    fn drop(&mut self) {
        detach_idle_probes();
    }
}

/// Milliseconds for which the scheduler probes stay attached although no thread has a context.
const IDLE_PROBES_MS: u32 = 10_000;

/// Detaches the scheduler probes if no context is attached to a thread. Called by a delayed work,
/// and when the module is unloaded.
pub(crate) fn detach_idle_probes() {
    let mut session = SESSION.lock();
    let mut unneeded = match session.threads {
        0 => session.probes.take(),
        _ => None,
    };
    // Detach the probes while `SESSION` is held. Otherwise `add_thread()` could attach new probes
    // before these probes are detached. A new probe has the same function and the same state as the
    // old one, because `SchedProbes` has no size and thus no address of its own. The kernel refuses
    // to register the same probe twice: it warns, and the load of the context fails with EEXIST.
    if let Some(probes) = &mut unneeded {
        probes.detach();
    }
    drop(session);
    // Drop the probes only after `SESSION` was released, because the drop waits for running probes.
    drop(unneeded);
}
