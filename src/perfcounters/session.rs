// SPDX-License-Identifier: GPL-2.0

//! What all contexts share: the PMU while it is ours, who claims which of its
//! registers, the probes in the scheduler, rounds against counters that turn over,
//! CPUs that come and go, the machine's sleep.

use engine::claims::{Claims, Shares};
use engine::pmu::Scope;
use kernel::pr_warn_once;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::costs::Cost;
use crate::pmu;
use crate::provider::probe::{ProcessExec, ProcessExit, SchedExit, SchedSwitch};
use crate::provider::{Handler, Probes};
use crate::sys::costs::Span;
use crate::sys::lock::HELD;
use crate::sys::msr::{self, Reserved};
use crate::sys::nmi::{self, Global};
use crate::sys::sched::{self, THREADS};
use crate::sys::wake::Rounds;
use crate::target::Target;

/// What is there while any context is attached.
pub(crate) struct Session {
    /// Attached contexts of threads; those of CPUs need no probes.
    threads: usize,
    shares: Shares,
    held: Option<Held>,
    probes: Option<Probes<Switch>>,
}

impl Session {
    /// Nothing is attached.
    pub(crate) const IDLE: Self = Self {
        threads: 0,
        shares: Shares::NONE,
        held: None,
        probes: None,
    };

    /// A context's claims change. `EBUSY` if contexts of the other kind, perf or the
    /// watchdog have one of the new ones; then all is as before.
    pub(crate) fn claim(
        &mut self,
        scope: Scope,
        registers: &Arc<pmu::Registers>,
        old: &Claims,
        new: &Claims,
    ) -> Result {
        if !self.shares.fits(scope, new) {
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

    /// One less.
    pub(crate) fn unwatch(&mut self) {
        self.threads = self.threads.wrapping_sub(1);
        if self.threads == 0 {
            self.probes = None;
        }
    }
}

/// The PMU, ours: what perf and the watchdog cannot have meanwhile. Nothing counts
/// and every counter is 0, but those of contexts in the hardware.
struct Held {
    registers: Arc<pmu::Registers>,
    _rounds: Rounds,
    _overflows: nmi::Handler,
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
        let overflows = nmi::Handler::register(&global(&registers))?;
        *HELD.lock() = Some(registers.clone());
        msr::make_perf_forget();
        quiet_everywhere(&registers);
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
    fn drop(&mut self) {
        quiet_everywhere(&self.registers);
        *HELD.lock() = None;
    }
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
    }
}

/// Nothing on this CPU has overflowed.
fn forget_overflows(global: &Global) {
    if global.clear != 0 {
        msr::write(global.clear, global.bits);
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

fn quiet_everywhere(registers: &pmu::Registers) {
    sched::call_on_all(&|| quiet(registers));
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
            if let Some(context) = THREADS.get(sched::current()) {
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
        if let Some(context) = THREADS.get(task) {
            context.end(Target::Thread(task));
        }
    }
}

impl Handler<ProcessExec<'_>> for Switch {
    /// The current thread runs another program. What it may see is nobody
    /// else's, if the program has more rights than its user.
    fn on(&self, event: ProcessExec<'_>) {
        let task = sched::current();
        if event.secret {
            let _preempt = sched::NoPreempt::new();
            if let Some(context) = THREADS.get(task) {
                context.end(Target::Thread(task));
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
    let thread = THREADS.get(sched::current());
    for context in Iterator::chain(thread.into_iter(), system) {
        if context.has_hardware() {
            quiet(context.described());
        }
    }
    if let Some(context) = system {
        context.arrive(Target::Cpu(sched::this_cpu()));
    }
    if let Some(context) = thread {
        context.arrive(Target::Thread(sched::current()));
    }
}
