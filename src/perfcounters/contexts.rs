// SPDX-License-Identifier: GPL-2.0

//! Contexts: a PMU's registers for a thread or a CPU.
//!
//! A context that counts is *in the hardware* of one CPU, whose number `State`
//! has and whose `LOADED` points to it, or in none: its thread does not run. All
//! three change together, on that CPU, with interrupts off and the context's
//! lock held. So whoever wants the registers takes the lock; if they are in
//! another CPU's hardware it asks that CPU.
//!
//! Lock order: `SESSION`, `HELD`, a context's lock. Only the last is taken by the
//! probes; nothing is called under it that locks. CPU hotplug takes no `SESSION`:
//! under that, probes are attached, which waits for hotplug.

use engine::context::{Error, Registers};
use engine::pmu::Scope;
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use kernel::task::Task;

use crate::pmu::{self, refused};
use crate::provider::probe::{ProcessExec, ProcessExit, SchedExit, SchedSwitch};
use crate::provider::{Handler, Probes};
use crate::sys::lock::{HELD, SESSION};
use crate::sys::msr::{self, Reserved};
use crate::sys::rawlock::RawLock;
use crate::sys::sched::{self, THREADS};
use crate::sys::zeroed::zeroed_registers;

/// What a context is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// Nothing.
    None,
    /// A thread, by its address.
    Thread(usize),
    /// A CPU.
    Cpu(u32),
    /// A thread or CPU that is no more.
    Ended,
}

/// What changes.
struct State {
    registers: Registers,
    target: Target,
    /// Counting, whenever its thread runs.
    started: bool,
    /// The CPU in whose hardware it is.
    cpu: Option<u32>,
}

/// A context.
#[pin_data]
pub(crate) struct Context {
    scope: Scope,
    registers: Arc<pmu::Registers>,
    global_ctrl: u64,
    #[pin]
    state: RawLock<State>,
}

/// What is there while any context is attached.
pub(crate) struct Session {
    threads: usize,
    systems: usize,
    held: Option<Held>,
    probes: Option<Probes<Switch>>,
}

impl Session {
    /// Nothing is attached.
    pub(crate) const IDLE: Self = Self {
        threads: 0,
        systems: 0,
        held: None,
        probes: None,
    };
}

/// The PMU, ours: what perf and the watchdog cannot have meanwhile.
struct Held {
    registers: Arc<pmu::Registers>,
    _reserved: Reserved,
}

impl Held {
    fn take(registers: Arc<pmu::Registers>) -> Result<Self> {
        let all = registers.controls().map(|r| r.address);
        let reserved = Reserved::all(all).inspect_err(|error| {
            if *error == EBUSY {
                pr_warn!(
                    "perfmon: the PMU is in use, by perf or by the NMI watchdog; \
                     end perf, and \"sysctl kernel.nmi_watchdog=0\" frees the watchdog's counter\n"
                );
            }
        })?;
        *HELD.lock() = Some(registers.clone());
        quiet_everywhere(&registers);
        Ok(Self {
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

/// Nothing counts, on this CPU.
fn quiet(registers: &pmu::Registers) {
    if registers.map().global_ctrl != 0 {
        msr::write(registers.map().global_ctrl, 0);
    }
    for control in registers.controls() {
        msr::write(control.address, control.reset);
    }
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
        if let Some(context) = sched::loaded().filter(|c| c.scope == Scope::Thread) {
            let mut state = context.state.lock();
            context.leave(&mut state);
        }
    }
}

impl Handler<SchedExit<'_>> for Switch {
    /// A thread has come to this CPU. Preemption off.
    #[inline]
    fn on(&self, event: SchedExit<'_>) {
        if event.is_switch {
            if let Some(context) = THREADS.get(sched::current()) {
                context.arrive(sched::current());
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

impl Context {
    /// A new context. `EBUSY` if no PMU is described.
    pub(crate) fn new(scope: Scope) -> Result<Arc<Self>> {
        let registers = pmu::Registers::now()?;
        let global_ctrl = registers.map().global_ctrl;
        Arc::pin_init(
            try_pin_init!(Self {
                scope,
                registers,
                global_ctrl,
                state <- RawLock::new(init!(State {
                    registers <- zeroed_registers(),
                    target: Target::None,
                    started: false,
                    cpu: None,
                })),
            }? kernel::error::Error),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// What it is for.
    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    /// Its registers' descriptions.
    pub(crate) fn described(&self) -> &pmu::Registers {
        &self.registers
    }

    /// Into this CPU's hardware. Interrupts off.
    #[inline]
    fn enter(&self, state: &mut State) {
        let program = &state.registers.program;
        for counter in program.counters() {
            msr::write(counter.address, 0);
        }
        for control in program.controls() {
            msr::write(control.address, control.on);
        }
        if self.global_ctrl != 0 {
            msr::write(self.global_ctrl, program.global);
        }
        state.registers.begin();
        state.cpu = Some(sched::this_cpu());
        sched::set_loaded(Some(self));
    }

    /// Out of this CPU's hardware. Interrupts off; it is in it.
    #[inline]
    fn leave(&self, state: &mut State) {
        if self.global_ctrl != 0 {
            msr::write(self.global_ctrl, 0);
        } else {
            for control in state.registers.program.controls() {
                msr::write(control.address, control.off);
            }
        }
        state.registers.fold(|c| msr::read_counter(c.rdpmc));
        state.cpu = None;
        sched::set_loaded(None);
    }

    /// Its thread, `task`, runs here now: into the hardware, if it counts.
    #[inline]
    fn arrive(&self, task: usize) {
        let mut state = self.state.lock();
        if state.started && state.cpu.is_none() && state.target == Target::Thread(task) {
            self.enter(&mut state);
        }
    }

    /// What it is attached to ends, here and now.
    fn end(&self, target: Target) {
        let mut state = self.state.lock();
        if state.target != target {
            return;
        }
        if state.cpu.is_some() {
            self.leave(&mut state);
        }
        state.target = Target::Ended;
        if let Target::Thread(task) = target {
            THREADS.remove(task);
        }
    }

    /// Calls a function with the state, where its registers are: on the CPU in
    /// whose hardware they are, or here if they are in none. Process context.
    fn with(&self, function: &mut dyn FnMut(&mut State)) {
        loop {
            let elsewhere = {
                let mut state = self.state.lock();
                match state.cpu.filter(|cpu| *cpu != sched::this_cpu()) {
                    Some(cpu) => cpu,
                    None => return function(&mut state),
                }
            };
            let mut done = false;
            sched::call_on(elsewhere, &mut || {
                let mut state = self.state.lock();
                // It may have gone on, or to rest, in the meantime.
                if state.cpu.is_none_or(|cpu| cpu == sched::this_cpu()) {
                    function(&mut state);
                    done = true;
                }
            });
            if done {
                return;
            }
        }
    }

    /// The same for a caller's sake: a CPU's context is for callers on that CPU.
    fn call(&self, function: &mut dyn FnMut(&mut State)) -> Result<(), Error> {
        match self.state.lock().target {
            Target::Cpu(cpu) if cpu != sched::this_cpu() => return Err(Error::OtherCpu),
            _ => {}
        }
        self.with(function);
        Ok(())
    }

    /// The same with the registers out of the hardware, and into it again after.
    fn at_rest(&self, function: &mut dyn FnMut(&mut State)) -> Result<(), Error> {
        self.call(&mut |state| {
            let inside = state.cpu.is_some();
            if inside {
                self.leave(state);
            }
            function(state);
            if inside {
                self.enter(state);
            }
        })
    }

    /// Writes PMCs: numbers, flags, and values that `Registers::check_pmc` gave.
    pub(crate) fn write_pmcs(&self, values: &[(u16, u32, u64)]) -> Result {
        self.write(&mut |registers| {
            for (number, flags, value) in values {
                registers.set_pmc(*number, *flags, *value);
            }
        })
    }

    /// Writes PMDs: numbers that exist.
    pub(crate) fn write_pmds(&self, values: &[(u16, u64)]) -> Result {
        let map = self.registers.map();
        self.write(&mut |registers| {
            for (number, value) in values {
                registers.set_pmd(&map, *number, *value);
            }
        })
    }

    fn write(&self, function: &mut dyn FnMut(&mut Registers)) -> Result {
        let map = self.registers.map();
        self.at_rest(&mut |state| {
            function(&mut state.registers);
            state.registers.plan(&map);
        })
        .map_err(refused)
    }

    /// Reads PMDs: numbers that exist, into their values.
    pub(crate) fn read_pmds(&self, values: &mut [(u16, u64)]) -> Result {
        let map = self.registers.map();
        self.call(&mut |state| {
            if state.cpu.is_some() {
                state.registers.fold(|c| msr::read_counter(c.rdpmc));
            }
            for (number, value) in values.iter_mut() {
                *value = match self.registers.virtual_value(*number) {
                    Some(value) => value,
                    None => state.registers.pmd(&map, *number),
                };
            }
        })
        .map_err(refused)
    }

    /// Attaches it, not yet counting: to a thread, or to the CPU of that number,
    /// on which the caller must be.
    pub(crate) fn load(&self, number: u32) -> Result {
        let mut session = SESSION.lock();
        if self.state.lock().target != Target::None {
            return Err(refused(Error::Loaded));
        }
        match self.scope {
            Scope::Thread => {
                let task = self.permitted(number)?;
                if session.systems != 0 {
                    return Err(EBUSY);
                }
                session.hold(&self.registers)?;
                session
                    .watch()
                    .and_then(|()| self.attach(&task))
                    .inspect_err(|_| session.idle())?;
                session.threads = session.threads.wrapping_add(1);
            }
            Scope::System => {
                if !sched::is_perfmon_capable() {
                    return Err(EPERM);
                }
                if session.threads != 0 {
                    return Err(EBUSY);
                }
                session.hold(&self.registers)?;
                let taken = {
                    let mut state = self.state.lock();
                    if sched::this_cpu() != number {
                        Err(EINVAL)
                    } else if sched::loaded().is_some() {
                        Err(EBUSY)
                    } else {
                        state.target = Target::Cpu(number);
                        sched::set_loaded(Some(self));
                        Ok(())
                    }
                };
                taken.inspect_err(|_| session.idle())?;
                session.systems = session.systems.wrapping_add(1);
            }
        }
        Ok(())
    }

    /// The thread of that number, if the caller may monitor it.
    fn permitted(&self, number: u32) -> Result<ARef<Task>> {
        let task = sched::find(number).ok_or(ESRCH)?;
        if sched::is_kernel_thread(&task) {
            return Err(EPERM);
        }
        if !sched::is_own(&task) && !sched::is_perfmon_capable() {
            return Err(EPERM);
        }
        Ok(task)
    }

    fn attach(&self, task: &Task) -> Result {
        let address = sched::address(task);
        THREADS.insert(address, self)?;
        self.state.lock().target = Target::Thread(address);
        // It may have ended since it was found, unseen.
        if sched::has_ended(task) {
            self.end(Target::Thread(address));
            self.state.lock().target = Target::None;
            return Err(ESRCH);
        }
        Ok(())
    }

    /// Detaches it; values stay. Nothing if it is not attached.
    pub(crate) fn unload(&self) -> Result {
        let mut session = SESSION.lock();
        let mut was = Target::None;
        self.with(&mut |state| {
            was = state.target;
            state.started = false;
            if state.cpu.is_some() {
                self.leave(state);
            }
            state.target = Target::None;
            if let Target::Thread(task) = was {
                THREADS.remove(task);
            }
        });
        match (was, self.scope) {
            (Target::None, _) => return Ok(()),
            (Target::Cpu(cpu), _) => {
                // It is not in the hardware if it was stopped, but has the CPU.
                sched::call_on(cpu, &mut || {
                    if sched::is_loaded(self) {
                        sched::set_loaded(None);
                    }
                });
                session.systems = session.systems.wrapping_sub(1);
            }
            (_, Scope::Thread) => session.threads = session.threads.wrapping_sub(1),
            (_, Scope::System) => session.systems = session.systems.wrapping_sub(1),
        }
        session.idle();
        Ok(())
    }

    /// Counts from now on.
    pub(crate) fn start(&self) -> Result {
        let mut task = None;
        let mut done = Ok(());
        self.call(&mut |state| {
            done = match state.target {
                Target::None => Err(Error::NotLoaded),
                Target::Ended => Err(Error::Ended),
                Target::Cpu(_) => {
                    if !state.started {
                        self.enter(state);
                    }
                    Ok(())
                }
                Target::Thread(address) => {
                    task = Some(address);
                    Ok(())
                }
            };
            state.started |= done.is_ok();
        })
        .map_err(refused)?;
        if let Some(task) = task {
            self.find_running(task);
        }
        done.map_err(refused)
    }

    /// If its thread runs now, its context has to be put into the hardware there;
    /// the next time the scheduler does it.
    fn find_running(&self, task: usize) {
        if task == sched::current() {
            return self.arrive(task);
        }
        sched::call_on_all(&|| {
            if sched::current() == task {
                self.arrive(task);
            }
        });
    }

    /// Counts no more.
    pub(crate) fn stop(&self) -> Result {
        let mut done = Ok(());
        self.call(&mut |state| {
            if state.target == Target::None {
                done = Err(Error::NotLoaded);
            }
            state.started = false;
            if state.cpu.is_some() {
                self.leave(state);
                if self.scope == Scope::System {
                    // Stopped, but it has the CPU.
                    sched::set_loaded(Some(self));
                }
            }
        })
        .and(done)
        .map_err(refused)
    }
}

impl Session {
    /// Takes the PMU, for the first context.
    fn hold(&mut self, registers: &Arc<pmu::Registers>) -> Result {
        if self.held.is_none() {
            self.held = Some(Held::take(registers.clone())?);
        }
        Ok(())
    }

    /// Attaches the probes, for the first thread.
    fn watch(&mut self) -> Result {
        if self.probes.is_none() {
            let mut probes = Probes::new(Switch)?;
            probes.attach::<SchedSwitch<'_>>()?;
            probes.attach::<SchedExit<'_>>()?;
            probes.attach::<ProcessExit<'_>>()?;
            probes.attach::<ProcessExec<'_>>()?;
            self.probes = Some(probes);
        }
        Ok(())
    }

    /// Gives back what no context needs any more.
    fn idle(&mut self) {
        if self.threads == 0 && self.probes.take().is_some() && THREADS.nr() == 0 {
            THREADS.sweep();
        }
        if self.threads == 0 && self.systems == 0 {
            self.held = None;
        }
    }
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
    if let Some(context) = sched::loaded().filter(|c| c.scope == Scope::System) {
        context.end(Target::Cpu(sched::this_cpu()));
        sched::set_loaded(None);
    }
}
