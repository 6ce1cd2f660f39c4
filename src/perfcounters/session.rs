// SPDX-License-Identifier: GPL-2.0

//! What all contexts share: the PMU while it is ours, who claims which of its
//! registers, the probes in the scheduler, rounds against counters that turn over,
//! CPUs that come and go, the machine's sleep.

use core::cell::Cell;

use engine::claims::{Claims, Shares};
use engine::pmu::Scope;
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KVec;
use kernel::pr_warn_once;
use kernel::prelude::*;
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

/// A context that is attached, and whether others may end it who need its registers.
struct Attached {
    context: *const Context,
    yields: bool,
}

// SAFETY: Contexts may be used by all threads; see `Session::evict` for how long.
unsafe impl Send for Attached {}

/// What is there while any context is attached.
pub(crate) struct Session {
    /// Attached contexts of threads; those of CPUs need no probes.
    threads: usize,
    shares: Shares,
    held: Option<Held>,
    /// Those that are attached.
    attached: KVec<Attached>,
    probes: Option<Probes<Switch>>,
}

impl Session {
    /// Nothing is attached.
    pub(crate) const IDLE: Self = Self {
        threads: 0,
        shares: Shares::NONE,
        held: None,
        attached: KVec::new(),
        probes: None,
    };

    /// Is there room for one more context in its list?
    pub(crate) fn has_room(&self) -> bool {
        self.attached.len() < self.attached.capacity()
    }

    /// A context is about to be attached, by the caller; there is room. Before it claims
    /// anything.
    pub(crate) fn enlist(&mut self, context: &Context) -> Result {
        let yields = !rights::has_perfmon();
        let context = core::ptr::from_ref(context);
        self.attached
            .push_within_capacity(Attached { context, yields })
            .map_err(|_| ENOMEM)
    }

    /// It is not any more.
    pub(crate) fn delist(&mut self, context: &Context) {
        let is = |one: &Attached| core::ptr::eq(one.context, context);
        if let Some(place) = self.attached.iter().position(is) {
            let _ = self.attached.remove(place);
        }
        // Nobody frees what a static holds when the module goes.
        if self.attached.is_empty() {
            self.attached = KVec::new();
        }
    }

    /// Would these registers be free if users' contexts of the other kind ended? Not if one that
    /// was attached with the right to monitor CPUs has one of them.
    fn would_be_free(&self, scope: Scope, claims: &Claims) -> bool {
        self.attached.iter().all(|one| {
            // SAFETY: A context that is attached is delisted before it goes, and that is under
            // our lock.
            let context = unsafe { &*one.context };
            one.yields || context.scope() == scope || !context.state.lock().claims.meets(claims)
        })
    }

    /// Users' contexts of the other kind end that have one of these registers, which the caller's
    /// context has claimed. Nothing that the caller does after that may fail. Preemption may be
    /// off.
    pub(crate) fn evict(&mut self, scope: Scope, claims: &Claims) {
        if self.shares.fits(scope, claims) {
            return;
        }
        let Self {
            attached, shares, ..
        } = self;
        for one in attached.iter().filter(|one| one.yields) {
            // SAFETY: A context that is attached is delisted before it goes, and that is under
            // our lock.
            let context = unsafe { &*one.context };
            if context.scope() != scope {
                let had = context.evict(&|state| state.claims.meets(claims));
                shares.remove(context.scope(), &had);
            }
        }
    }

    /// Ends the context of a thread if it was attached without CAP_PERFMON, as an administrator's
    /// takes its place. Returns whether there was one. The caller's context has claimed its
    /// registers before. If it has none, and the ended one had the last, perf gets the PMU back.
    /// May sleep.
    pub(crate) fn evict_from(&mut self, task: usize) -> bool {
        let Self {
            attached, shares, ..
        } = self;
        let ended = Cell::new(false);
        for one in attached.iter().filter(|one| one.yields) {
            // SAFETY: A context that is attached is delisted before it goes, and that is under
            // our lock.
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

    /// A context's claims change. `EBUSY` if contexts of the other kind, perf or the
    /// watchdog have one of the new ones; then all is as before. An administrator gets those that
    /// users' contexts have as well: these go on until [`evict`](Self::evict), which the caller
    /// calls when nothing can fail any more, and before its context uses the registers.
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

    /// What a context of this kind may have, unless perf or the watchdog has it.
    pub(crate) fn free(&self, scope: Scope) -> Claims {
        self.shares.free(scope)
    }

    /// One more context of a thread is about to be attached.
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

    /// One less. Attaching probes costs all CPUs: they stay for a while.
    pub(crate) fn unwatch(&mut self) {
        self.threads = self.threads.wrapping_sub(1);
        if self.threads == 0 {
            wake::idle_later(IDLE_MS);
        }
    }
}

/// Makes room in the session's list. The memory is the caller's control group's, which may be
/// full: it is waited for without the lock.
pub(crate) fn make_room() -> Result {
    let nr = SESSION.lock().attached.len();
    let mut larger = KVec::with_capacity(nr.wrapping_mul(2).max(8), GFP_KERNEL_ACCOUNT)?;
    let mut session = SESSION.lock();
    if session.attached.capacity() < larger.capacity() {
        for one in session.attached.drain_all() {
            let _ = larger.push_within_capacity(one);
        }
        core::mem::swap(&mut session.attached, &mut larger);
    }
    // The old list is freed without the lock.
    drop(session);
    drop(larger);
    Ok(())
}

/// Milliseconds that probes stay which nobody needs.
const IDLE_MS: u32 = 10_000;

/// Nobody has needed them for a while.
pub(crate) fn tire() {
    let mut session = SESSION.lock();
    let unneeded = match session.threads {
        0 => session.probes.take(),
        _ => None,
    };
    drop(session);
    // Which waits for those that run.
    drop(unneeded);
}

/// The PMU, ours: what perf and the watchdog cannot have meanwhile. Nothing counts
/// and every counter is 0, but those of contexts in the hardware.
struct Held {
    registers: Arc<pmu::Registers>,
    _rounds: Rounds,
    _overflows: nmi::Owned,
    _reserved: Reserved,
}

impl Held {
    fn take(registers: Arc<pmu::Registers>) -> Result<Self> {
        let all = registers.controls().map(|r| r.address);
        let reserved = Reserved::all(all).inspect_err(|error| {
            if *error == EBUSY {
                pr_warn_once!(
                    "perfmon: the PMU is in use, by perf or by the NMI watchdog; \
                     end perf, and \"sysctl kernel.nmi_watchdog=0\" frees the watchdog's counter; \
                     \"pfc doctor\" says who has it\n"
                );
            }
        })?;
        let overflows = nmi::Owned::new(&global(&registers));
        *HELD.lock() = Some(registers.clone());
        // Relaxed: whoever loads a context sees it by that context's lock.
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
    /// Nothing is loaded any more. CPUs on which nothing was are left alone.
    fn drop(&mut self) {
        let taken = TAKEN.load(Relaxed);
        sched::call_on_all_that(&|cpu| sched::quiet_since_of(cpu) == taken, &|| {
            quiet(&self.registers);
        });
        *HELD.lock() = None;
    }
}

/// How often the PMU was taken from perf. What perf left in a CPU's registers is cleared when the
/// first context is loaded there, so that taking it interrupts no CPU.
static TAKEN: Atomic<u64> = Atomic::new(0);

/// A context that uses the hardware is about to be loaded on this CPU. Interrupts off.
#[inline]
pub(crate) fn quiet_first(registers: &pmu::Registers) {
    // Relaxed: the PMU was taken before the context was loaded, under that context's lock.
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

/// Milliseconds in which a counter of so many bits turns less than half, at 2^34
/// events a second; between a tenth of a second and an hour.
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

/// What a PMU's NMIs need to know.
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

/// Nothing on this CPU has overflowed.
fn forget_overflows(global: &Global) {
    if global.clear != 0 {
        // Its NMI may still be under way.
        // The bit of a counter that this CPU does not have cannot be written.
        let over = msr::read(global.status) & global.bits;
        if global.late != 0 && over != 0 {
            nmi::expect(msr::time_stamp());
        }
        msr::write(global.clear, over);
    }
    nmi::unmask();
}

/// Nothing counts on this CPU, and no counter has anything to tell.
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

/// What the scheduler tells.
struct Switch;

impl Handler<SchedSwitch<'_>> for Switch {
    /// A thread leaves this CPU. Interrupts off, run-queue lock held.
    #[inline]
    fn on(&self, _: SchedSwitch<'_>) {
        if let Some(context) = sched::loaded(Scope::Thread) {
            let _span = Span::begin(Cost::SwitchesOut, Cost::OutTime);
            context.depart();
        }
    }
}

impl Handler<SchedExit<'_>> for Switch {
    /// A thread has come to this CPU. Preemption off.
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
    /// The current thread ends.
    fn on(&self, _: ProcessExit<'_>) {
        let task = sched::current();
        let _preempt = sched::NoPreempt::new();
        if let Some(context) = context_of(task) {
            context.end(Target::Thread(task));
        }
    }
}

impl Handler<ProcessExec<'_>> for Switch {
    /// The current thread runs another program. What it may see is nobody
    /// else's, if the program has more rights than its user.
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

/// Each CPU's contexts look at their counters.
pub(crate) fn look_round() {
    sched::call_on_all(&|| {
        for scope in [Scope::Thread, Scope::System] {
            if let Some(context) = sched::loaded(scope) {
                context.look_here();
            }
        }
    });
}

/// A CPU comes: nothing counts there yet. On that CPU.
pub(crate) fn cpu_online() {
    if let Some(registers) = HELD.lock().as_ref() {
        quiet(registers);
    }
}

/// A CPU goes: its context has ended. On that CPU.
pub(crate) fn cpu_offline() {
    let _preempt = sched::NoPreempt::new();
    if let Some(context) = sched::loaded(Scope::System) {
        context.end(Target::Cpu(sched::this_cpu()));
    }
}

/// The machine goes to sleep, or wakes up; the processor has forgotten all then. On
/// the one CPU there is, interrupts off.
pub(crate) fn sleep(going: bool) {
    let system = sched::loaded(Scope::System);
    if going {
        for context in Iterator::chain(sched::loaded(Scope::Thread).into_iter(), system) {
            context.depart();
        }
        return;
    }
    let thread = context_of(sched::current());
    // Firmware may have left anything in the registers. Tasks are frozen, and none holds the lock.
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
