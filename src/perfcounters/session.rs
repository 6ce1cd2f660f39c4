// SPDX-License-Identifier: GPL-2.0

//! State shared by all contexts: the reserved PMU, the claims on its registers, the scheduler
//! probes, the periodic worker that reads counters before they wrap, and the handlers of CPU
//! hotplug and suspend.

use core::cell::Cell;

use engine::claims::{Claims, Shares};
use engine::pmu::Scope;
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::pr_warn_once;
use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNodeReservation};
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

use crate::contexts::Context;
use crate::costs::Cost;
use crate::pmu;
use crate::provider::probe::{ProcessExec, ProcessExit, SchedExit, SchedSwitch};
use crate::provider::{Handler, Probes};
use crate::sys::costs::Span;
use crate::sys::lock::{HELD, SESSION};
use crate::sys::msr::{self, Reserved};
use crate::sys::nmi::{self, Global};
use crate::sys::rights;
use crate::sys::sched;
use crate::sys::threads::context_of;
use crate::sys::wake::{self, Rounds};
use crate::target::Target;

/// An attached context. `yields`: it was attached without `CAP_PERFMON`, so an administrator's
/// context that needs its registers may end it.
struct Attached {
    context: *const Context,
    yields: bool,
}

// SAFETY: The pointer is only used for shared access, and `Context` is `Sync`. It stays valid while
// it is in the list: a context is removed by `delist()` before it is freed.
unsafe impl Send for Attached {}

/// The state that is shared by all attached contexts, protected by `SESSION`.
pub(crate) struct Session {
    /// Number of attached contexts of threads. While it is not 0, the scheduler probes are
    /// attached.
    threads: usize,
    /// The hardware registers that attached contexts have claimed.
    shares: Shares,
    /// The reservation of the PMU; `None` while no attached context uses hardware registers.
    held: Option<Held>,
    /// The attached contexts, by address: finding one does not take longer if there are many.
    /// `None` until the first context is attached.
    attached: Option<RBTree<usize, Attached>>,
    /// The scheduler probes. They stay attached for [`IDLE_MS`] after the last detach.
    probes: Option<Probes<Switch>>,
}

impl Session {
    /// The state while nothing is attached.
    pub(crate) const IDLE: Self = Self {
        threads: 0,
        shares: Shares::NONE,
        held: None,
        attached: None,
        probes: None,
    };

    /// Adds a context that the caller is about to attach to the list, before it claims registers.
    pub(crate) fn enlist(&mut self, room: Room, context: &Context) {
        let yields = !rights::has_perfmon();
        let context = core::ptr::from_ref(context);
        let attached = self.attached.get_or_insert_with(RBTree::new);
        let one = Attached { context, yields };
        attached.insert(room.0.into_node(context as usize, one));
    }

    /// Removes a context from the list, if it is in it.
    pub(crate) fn delist(&mut self, context: &Context) {
        let key = core::ptr::from_ref(context) as usize;
        if let Some(attached) = &mut self.attached {
            let _ = attached.remove(&key);
        }
    }

    /// Returns whether these registers would be free if all users' contexts of the other scope
    /// ended. They would not if a context that was attached with `CAP_PERFMON` has one of them.
    fn would_be_free(&self, scope: Scope, claims: &Claims) -> bool {
        attached_in(&self.attached).all(|one| {
            // SAFETY: A context is removed from the list by `delist()` before it is freed, and
            // `delist()` needs `SESSION`, which protects `self`.
            let context = unsafe { &*one.context };
            one.yields || context.scope() == scope || !context.state.lock().claims.meets(claims)
        })
    }

    /// Ends the users' contexts of the other scope that use one of these registers. The caller's
    /// context has claimed the registers, and no step of the caller may fail after this. Preemption
    /// may be off.
    pub(crate) fn evict(&mut self, scope: Scope, claims: &Claims) {
        if self.shares.fits(scope, claims) {
            return;
        }
        let Self {
            attached, shares, ..
        } = self;
        for one in attached_in(attached).filter(|one| one.yields) {
            // SAFETY: A context is removed from the list by `delist()` before it is freed, and
            // `delist()` needs `SESSION`, which protects `self`.
            let context = unsafe { &*one.context };
            if context.scope() != scope {
                let had = context.evict(&|state| state.claims.meets(claims));
                shares.remove(context.scope(), &had);
            }
        }
    }

    /// Ends the context of a thread if it was attached without `CAP_PERFMON`, because an
    /// administrator's context takes its place. Returns whether there was one. May sleep.
    ///
    /// The caller's context has claimed its registers before. If it claims none and the ended
    /// context held the last ones, the PMU is released to perf.
    pub(crate) fn evict_from(&mut self, task: usize) -> bool {
        let Self {
            attached, shares, ..
        } = self;
        let ended = Cell::new(false);
        for one in attached_in(attached).filter(|one| one.yields) {
            // SAFETY: A context is removed from the list by `delist()` before it is freed, and
            // `delist()` needs `SESSION`, which protects `self`.
            let context = unsafe { &*one.context };
            let had = context.evict(&|state| {
                let is = state.target == Target::Thread(task);
                ended.set(ended.get() || is);
                is
            });
            shares.remove(context.scope(), &had);
        }
        if self.shares.is_empty() {
            self.held = None;
        }
        ended.get()
    }

    /// Changes the claims of a context from `old` to `new`, and reserves or releases the PMU if
    /// needed.
    ///
    /// An administrator's context may also claim registers of users' contexts. These contexts keep
    /// counting until [`evict`](Self::evict), which the caller calls when nothing can fail any
    /// more, and before its context uses the registers.
    ///
    /// # Errors
    ///
    /// `EBUSY` if contexts of the other scope, perf or the NMI watchdog use one of the new
    /// registers; `ENOMEM`. The claims are then unchanged.
    pub(crate) fn claim(
        &mut self,
        scope: Scope,
        registers: &Arc<pmu::Registers>,
        old: &Claims,
        new: &Claims,
    ) -> Result {
        let fits = self.shares.fits(scope, new);
        if !fits && !(rights::is_admin() && self.would_be_free(scope, new)) {
            return Err(EBUSY);
        }
        if !new.is_none() && self.held.is_none() {
            self.held = Some(Held::take(registers.clone())?);
        }
        self.shares.add(scope, new);
        self.shares.remove(scope, old);
        if self.shares.is_empty() {
            self.held = None;
        }
        Ok(())
    }

    /// Returns the registers that contexts of this scope can claim, if the PMU can be reserved.
    pub(crate) fn free(&self, scope: Scope) -> Claims {
        self.shares.free(scope)
    }

    /// Counts one more context of a thread that is about to be attached. Attaches the probes if
    /// they are not.
    pub(crate) fn watch(&mut self) -> Result {
        if self.probes.is_none() {
            let mut probes = Probes::new(Switch)?;
            probes.attach::<SchedSwitch<'_>>()?;
            probes.attach::<SchedExit<'_>>()?;
            probes.attach::<ProcessExit<'_>>()?;
            probes.attach::<ProcessExec<'_>>()?;
            self.probes = Some(probes);
        }
        self.threads = self.threads.wrapping_add(1);
        Ok(())
    }

    /// Counts one context of a thread less. Attaching probes is costly for all CPUs, so they are
    /// detached only after [`IDLE_MS`].
    pub(crate) fn unwatch(&mut self) {
        self.threads = self.threads.wrapping_sub(1);
        if self.threads == 0 {
            wake::idle_later(IDLE_MS);
        }
    }
}

/// Returns the contexts of the session's list.
fn attached_in(list: &Option<RBTree<usize, Attached>>) -> impl Iterator<Item = &Attached> {
    list.iter().flat_map(|attached| attached.values())
}

/// Memory for one context in the session's list.
pub(crate) struct Room(RBTreeNodeReservation<usize, Attached>);

impl Room {
    /// Allocates the memory, charged to the caller's control group. `ENOMEM`. The allocation may
    /// wait for memory: caller holds no lock of this module.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?))
    }
}

/// Milliseconds for which the probes stay attached after the last context of a thread is detached.
const IDLE_MS: u32 = 10_000;

/// Detaches the probes if no context of a thread is attached. Called by a delayed work, and when
/// the module is unloaded.
pub(crate) fn tire() {
    let mut session = SESSION.lock();
    let unneeded = match session.threads {
        0 => session.probes.take(),
        _ => None,
    };
    drop(session);
    // Dropped without the lock: this waits for probes that run.
    drop(unneeded);
}

/// The reservation of the PMU: perf and the NMI watchdog cannot use it meanwhile.
struct Held {
    /// The registers that are reset when the reservation ends.
    registers: Arc<pmu::Registers>,
    /// The periodic worker that reads counters before they wrap.
    _rounds: Rounds,
    /// The handling of overflow NMIs.
    _overflows: nmi::Owned,
    /// The reserved control registers.
    _reserved: Reserved,
}

impl Held {
    /// Reserves all control registers, and starts the periodic worker and the handling of NMIs.
    ///
    /// # Errors
    ///
    /// `EBUSY` if perf or the NMI watchdog uses the PMU; `ENOMEM`.
    fn take(registers: Arc<pmu::Registers>) -> Result<Self> {
        let all = registers.controls().map(|r| r.address);
        let reserved = Reserved::all(all).inspect_err(|error| {
            if *error == EBUSY {
                pr_warn_once!(
                    "perfmon: PMU is in use by perf or the NMI watchdog; end perf, or stop the \
                     watchdog with \"sysctl kernel.nmi_watchdog=0\"; \"pfc doctor\" lists the users\n"
                );
            }
        })?;
        let overflows = nmi::Owned::new(&global(&registers));
        *HELD.lock() = Some(registers.clone());
        // Relaxed: the lock of the context that is loaded orders this before the load.
        TAKEN.fetch_add(1, Relaxed);
        let widths = registers.counters().map(|r| u32::from(r.width));
        Ok(Self {
            _rounds: Rounds::every(period(widths.min().unwrap_or(64))),
            _overflows: overflows,
            registers,
            _reserved: reserved,
        })
    }
}

impl Drop for Held {
    /// Resets the PMU of each CPU on which a context was programmed. No context is attached that
    /// uses hardware registers.
    fn drop(&mut self) {
        let taken = TAKEN.load(Relaxed);
        sched::call_on_all_that(&|cpu| sched::quiet_since_of(cpu) == taken, &|| {
            quiet(&self.registers);
        });
        *HELD.lock() = None;
    }
}

/// Number of times that the PMU was reserved. A CPU whose per-CPU word `quiet_since` has another
/// value has not been reset since the last reservation.
static TAKEN: Atomic<u64> = Atomic::new(0);

/// Resets this CPU's PMU, unless that was done since the PMU was reserved. Called before a context
/// that uses hardware registers is programmed. Interrupts off.
#[inline]
pub(crate) fn quiet_first(registers: &pmu::Registers) {
    // Relaxed: the PMU was reserved before the context was loaded, and that context's lock is held.
    let taken = TAKEN.load(Relaxed);
    if sched::quiet_since() != taken {
        quiet_since(registers, taken);
    }
}

#[cold]
fn quiet_since(registers: &pmu::Registers, taken: u64) {
    quiet(registers);
    sched::set_quiet_since(taken);
}

/// Returns the milliseconds in which a counter of this width advances by half its range at 2^34
/// events a second, limited to the range of 100 ms to one hour. Below 35 bits it is 100 ms.
fn period(width: u32) -> u32 {
    let turn = 1000u64
        .checked_shl(width.saturating_sub(35))
        .unwrap_or(u64::MAX);
    let turn = match width {
        35.. => turn,
        _ => 0,
    };
    turn.clamp(100, 3_600_000) as u32
}

/// Returns the description of the global registers that the NMI handler needs.
fn global(registers: &pmu::Registers) -> Global {
    let map = registers.map();
    Global {
        control: map.global_ctrl,
        status: map.global_status,
        clear: map.global_clear,
        bits: registers
            .counters()
            .fold(0, |bits, r| bits | r.global_bit()),
        late: u64::from(nmi::may_be_late()),
    }
}

/// Clears the overflow status of this CPU, and unmasks the overflow interrupt (LVTPC).
fn forget_overflows(global: &Global) {
    if global.clear != 0 {
        // The NMI of such an overflow may still arrive; it is then recognised as expected. Only
        // bits that are set are written: those of counters that this CPU lacks would fault.
        let over = msr::read(global.status) & global.bits;
        if global.late != 0 && over != 0 {
            nmi::expect(msr::time_stamp());
        }
        msr::write(global.clear, over);
    }
    nmi::unmask();
}

/// Resets this CPU's PMU: nothing counts, all counters are 0, no overflow is flagged.
pub(crate) fn quiet(registers: &pmu::Registers) {
    if registers.map().global_ctrl != 0 {
        msr::write(registers.map().global_ctrl, 0);
    }
    for control in registers.controls() {
        msr::write(control.address, control.reset);
    }
    for counter in registers.counters() {
        msr::write(counter.address, 0);
    }
    forget_overflows(&global(registers));
}

/// The handler of the scheduler probes.
struct Switch;

impl Handler<SchedSwitch<'_>> for Switch {
    /// The current thread is switched out. Interrupts off, run-queue lock held.
    #[inline]
    fn on(&self, _: SchedSwitch<'_>) {
        if let Some(context) = sched::loaded(Scope::Thread) {
            let _span = Span::begin(Cost::SwitchesOut, Cost::OutTime);
            context.depart();
        }
    }
}

impl Handler<SchedExit<'_>> for Switch {
    /// The current thread was switched in. Preemption off.
    #[inline]
    fn on(&self, event: SchedExit<'_>) {
        if event.is_switch {
            if let Some(context) = context_of(sched::current()) {
                let _span = Span::begin(Cost::SwitchesIn, Cost::InTime);
                context.arrive(Target::Thread(sched::current()));
            }
        }
    }
}

impl Handler<ProcessExit<'_>> for Switch {
    /// The current thread exits: its context ends.
    fn on(&self, _: ProcessExit<'_>) {
        let task = sched::current();
        let _preempt = sched::NoPreempt::new();
        if let Some(context) = context_of(task) {
            context.end(Target::Thread(task));
        }
    }
}

impl Handler<ProcessExec<'_>> for Switch {
    /// The current thread has executed a program. Its context ends if the program runs with more
    /// privileges than its user has, or may not be read. Otherwise the permission to watch it is
    /// checked again.
    fn on(&self, event: ProcessExec<'_>) {
        let task = sched::current();
        let _preempt = sched::NoPreempt::new();
        if let Some(context) = context_of(task) {
            match event.secret {
                true => context.end(Target::Thread(task)),
                false => context.executed(Target::Thread(task)),
            }
        }
    }
}

/// Has every CPU read the counters of its contexts, so that no counter wraps unnoticed.
pub(crate) fn look_round() {
    sched::call_on_all(&|| {
        for scope in [Scope::Thread, Scope::System] {
            if let Some(context) = sched::loaded(scope) {
                context.look_here();
            }
        }
    });
}

/// Resets the PMU of a CPU that comes online, on that CPU, if the PMU is reserved.
pub(crate) fn cpu_online() {
    if let Some(registers) = HELD.lock().as_ref() {
        quiet(registers);
    }
}

/// Ends the context of a CPU that goes offline. Runs on that CPU.
pub(crate) fn cpu_offline() {
    let _preempt = sched::NoPreempt::new();
    if let Some(context) = sched::loaded(Scope::System) {
        context.end(Target::Cpu(sched::this_cpu()));
    }
}

/// Saves the registers before the machine suspends, and programs them again when it resumes.
///
/// Context: on the only CPU that is online, interrupts off.
pub(crate) fn sleep(going: bool) {
    let system = sched::loaded(Scope::System);
    if going {
        for context in Iterator::chain(sched::loaded(Scope::Thread).into_iter(), system) {
            context.depart();
        }
        return;
    }
    let thread = context_of(sched::current());
    // Firmware may have changed the registers. Tasks are frozen, so none holds `HELD`.
    if let Some(held) = HELD.try_lock() {
        if let Some(registers) = held.as_ref() {
            quiet(registers);
        }
    }
    if let Some(context) = system {
        context.arrive(Target::Cpu(sched::this_cpu()));
    }
    if let Some(context) = thread {
        context.arrive(Target::Thread(sched::current()));
    }
}
