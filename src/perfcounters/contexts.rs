// SPDX-License-Identifier: GPL-2.0

//! Contexts: a PMU's registers for a thread or a CPU.
//!
//! A context that counts is *in the hardware* of one CPU, whose number `State`
//! has, or in none: its thread does not run. That CPU's words in `sys::sched` say
//! so, too; all change together, on that CPU, with interrupts off and the
//! context's lock held. So whoever wants the registers takes the lock; if they
//! are in another CPU's hardware it asks that CPU.
//!
//! A counter of the hardware is 0 unless it is a context's that is in the hardware:
//! nothing of one thread is there for another to read.
//!
//! Lock order: `SESSION`, `HELD`, a context's lock. Only the last is taken by the
//! probes; nothing is called under it that locks. CPU hotplug takes no `SESSION`:
//! under that, probes are attached, which waits for hotplug.

use engine::claims::Claims;
use engine::context::{Error, Growth};
use engine::pmu::Scope;
use engine::selfpage;
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KBox;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use kernel::task::Task;

use crate::costs::Cost;
use crate::pmu::{self, refused};
use crate::sampling::Sampling;
use crate::sets::{Set, Sets};
use crate::sys::bell::Bell;
use crate::sys::costs;
use crate::sys::format::{Areas, Buffer};
use crate::sys::rawlock::RawLock;
use crate::sys::sched;
use crate::sys::selfpage::Page;
use crate::sys::{msr, nmi};
use crate::target::Target;

/// What changes.
pub(crate) struct State {
    /// The active set, and the others.
    pub(crate) set: KBox<Set>,
    pub(crate) sets: Sets,
    pub(crate) target: Target,
    /// The thread that it is, or was, attached to.
    pub(crate) thread: Option<ARef<Task>>,
    /// Counting, whenever its thread runs.
    pub(crate) started: bool,
    /// The CPU in whose hardware it is.
    pub(crate) cpu: Option<u32>,
    /// What the session knows it to use. Changes under `SESSION` only.
    pub(crate) claims: Claims,
    page: Option<Page>,
    /// The thread's process may use RDPMC.
    rdpmc: bool,
    /// The time stamp counter when the page was last written.
    tsc: u64,
    pub(crate) sampling: Sampling,
}

/// A context.
#[pin_data]
pub(crate) struct Context {
    /// First: when it goes, nobody looks after the rest any more.
    pub(crate) bell: Bell,
    scope: Scope,
    /// It may see the kernel.
    pub(crate) privileged: bool,
    /// It queues no messages.
    pub(crate) silent: bool,
    /// Its thread waits for restarts.
    pub(crate) blocks: bool,
    pub(crate) registers: Arc<pmu::Registers>,
    global_ctrl: u64,
    /// The memory of its buffer.
    areas: Option<Arc<Areas>>,
    #[pin]
    pub(crate) state: RawLock<State>,
}

/// What a new context is.
pub(crate) struct Kind {
    /// What it is for.
    pub(crate) scope: Scope,
    /// No messages.
    pub(crate) silent: bool,
    /// The thread waits while its tool looks.
    pub(crate) blocks: bool,
    /// What it samples into.
    pub(crate) buffer: Option<(Buffer, Arc<Areas>)>,
}

/// Counters of whichever contexts are in this CPU's hardware.
#[inline]
pub(crate) fn all_counting() -> u64 {
    sched::counting(Scope::Thread) | sched::counting(Scope::System)
}

impl Context {
    /// A new context. `EBUSY` if no PMU is described.
    pub(crate) fn new(kind: Kind) -> Result<Arc<Self>> {
        let registers = pmu::Registers::now()?;
        let global_ctrl = registers.map().global_ctrl;
        let Kind {
            scope,
            silent,
            blocks,
            buffer,
        } = kind;
        let (buffer, areas) = match buffer {
            Some((buffer, areas)) => (Some(KBox::new(buffer, GFP_KERNEL_ACCOUNT)?), Some(areas)),
            None => (None, None),
        };
        let (set, sets, sampling) = (Set::new(0)?, Sets::new()?, Sampling::new(buffer)?);
        let context = Arc::pin_init(
            try_pin_init!(Self {
                bell: Bell::new()?,
                scope,
                privileged: sched::is_kernel_open(),
                silent,
                blocks,
                areas,
                registers,
                global_ctrl,
                state <- RawLock::new(init!(State {
                    set,
                    sets,
                    target: Target::None,
                    thread: None,
                    started: false,
                    cpu: None,
                    claims: Claims::NONE,
                    page: None,
                    rdpmc: false,
                    tsc: 0,
                    sampling,
                })),
            }? kernel::error::Error),
            GFP_KERNEL_ACCOUNT,
        )?;
        context.bell.hang(&context);
        Ok(context)
    }

    /// The memory of its buffer.
    pub(crate) fn areas(&self) -> Option<&Areas> {
        self.areas.as_deref()
    }

    /// What it is for.
    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    /// Its registers' descriptions.
    pub(crate) fn described(&self) -> &pmu::Registers {
        &self.registers
    }

    /// A virtual counter, now.
    #[inline]
    fn grown(&self, growth: &Growth, thread: Option<&ARef<Task>>) -> u64 {
        self.value_now(growth.pmd, growth.address, growth.control, thread)
    }

    /// A virtual register, now.
    #[inline]
    pub(crate) fn value_now(
        &self,
        pmd: u16,
        address: u64,
        control: u64,
        thread: Option<&ARef<Task>>,
    ) -> u64 {
        let thread = thread.filter(|_| self.scope == Scope::Thread);
        self.registers
            .read(pmd, address, control, thread.map(|t| &**t))
    }

    /// Does it use the hardware? Then the PMU is ours.
    pub(crate) fn has_hardware(&self) -> bool {
        !self.state.lock().claims.is_none()
    }

    /// Into this CPU's hardware. Interrupts off.
    #[inline]
    pub(crate) fn enter(&self, state: &mut State) {
        let thread = state.thread.as_ref();
        state.set.enter(nmi::now());
        state
            .set
            .registers
            .set_out(false, |g| self.grown(g, thread));
        state
            .set
            .registers
            .begin(|c| msr::write(c.address, c.start));
        state.cpu = Some(sched::this_cpu());
        self.set_timer(state);
        state.publish(false);
        let program = &state.set.registers.program;
        sched::set_loaded(self.scope, Some(self));
        for control in program.controls() {
            msr::write(control.address, control.on);
        }
        sched::set_counting(self.scope, program.global);
        // Who has no counter has no PMU: the register may be perf's. In an NMI nothing
        // counts, until it is over.
        if self.global_ctrl != 0 && program.global != 0 && !sched::in_nmi() {
            self.let_count();
        }
    }

    /// Lets those counters count that do. An NMI between the two may have taken some out.
    #[inline]
    fn let_count(&self) {
        loop {
            let all = all_counting();
            msr::write(self.global_ctrl, all);
            if all_counting() == all {
                return;
            }
        }
    }

    /// Into this CPU's hardware, unless it is there or something holds it.
    #[inline]
    pub(crate) fn enter_if_it_counts(&self, state: &mut State) {
        if state.started && state.cpu.is_none() && !state.sampling.is_quiet() {
            self.enter(state);
        }
    }

    /// Out of this CPU's hardware; what overflowed is told. Interrupts off; it is in it.
    #[inline]
    fn leave(&self, state: &mut State) {
        self.take_out(state);
        if state.set.registers.program.carries {
            self.settle_carried(state);
        }
        self.tell(state, None);
        // The timer may never have had the time to say so.
        if state.sets.due || state.set.turns.left(0) == Some(0) {
            if !state.sets.due {
                costs::count(Cost::SetsLate);
            }
            self.switch(state);
        }
    }

    /// Out of this CPU's hardware, no more.
    #[inline]
    pub(crate) fn take_out(&self, state: &mut State) {
        sched::set_counting(self.scope, 0);
        if self.global_ctrl != 0 && state.set.registers.program.global != 0 {
            // In an NMI nothing counts, until it is over.
            if !sched::in_nmi() {
                self.let_count();
            }
        } else {
            for control in state.set.registers.program.controls() {
                msr::write(control.address, control.off);
            }
        }
        state.set.registers.fold(|c| msr::read_counter(c.rdpmc));
        for counter in state.set.registers.program.counters() {
            msr::write(counter.address, 0);
        }
        let thread = state.thread.as_ref();
        state.set.registers.grow(false, |g| self.grown(g, thread));
        state.set.turns.leave(nmi::now());
        if state.is_timed() && !sched::in_nmi() {
            self.bell.hush();
        }
        state.cpu = None;
        state.publish(true);
        // A CPU's context keeps the CPU.
        if self.scope == Scope::Thread {
            sched::set_loaded(self.scope, None);
        }
    }

    /// All values are of now; what overflowed is told. Where its registers are.
    pub(crate) fn look(&self, state: &mut State) {
        self.catch_up(state);
        // Elsewhere it is told when its thread is there.
        if state.cpu.is_some() {
            self.tell(state, None);
            self.go_on(state);
        }
        state.publish(state.cpu.is_some());
    }

    /// All values are of now.
    #[inline]
    pub(crate) fn catch_up(&self, state: &mut State) {
        let thread = state.thread.as_ref();
        if state.cpu.is_some() {
            state.set.registers.fold(|c| msr::read_counter(c.rdpmc));
            state.set.registers.grow(false, |g| self.grown(g, thread));
        }
        self.settle_carried(state);
    }

    /// What its thread carries is of now.
    #[inline]
    pub(crate) fn settle_carried(&self, state: &mut State) {
        let thread = state.thread.as_ref();
        if state.started && !state.sampling.masked {
            state.set.registers.grow(true, |g| self.grown(g, thread));
        }
    }

    /// It begins now.
    pub(crate) fn set_out_carried(&self, state: &mut State) {
        let thread = state.thread.as_ref();
        state.set.registers.set_out(true, |g| self.grown(g, thread));
    }

    /// The same, if it is in this CPU's hardware. Interrupts off.
    pub(crate) fn look_here(&self) {
        let mut state = self.state.lock();
        if state.cpu == Some(sched::this_cpu()) {
            self.look(&mut state);
        }
    }

    /// Counting ends, for now.
    pub(crate) fn halt(&self, state: &mut State) {
        if state.cpu.is_some() {
            self.leave(state);
        }
        self.settle_carried(state);
        state.started = false;
    }

    /// Who it is for runs here now: into the hardware, if it counts.
    #[inline]
    pub(crate) fn arrive(&self, target: Target) {
        let mut state = self.state.lock();
        if state.started && state.cpu.is_none() && state.target == target {
            self.calm(&mut state);
            self.enter_if_it_counts(&mut state);
        }
    }

    /// Out of this CPU's hardware, if it is in it: its thread goes.
    #[inline]
    pub(crate) fn depart(&self) {
        let mut state = self.state.lock();
        if state.cpu == Some(sched::this_cpu()) {
            self.leave(&mut state);
        }
    }

    /// Calls a function with the state, where its registers are: on the CPU that it
    /// is attached to or in whose hardware it is, else here. Process context.
    pub(crate) fn with(&self, function: &mut dyn FnMut(&mut State)) {
        loop {
            let elsewhere = {
                let mut state = self.state.lock();
                match state.place().filter(|cpu| *cpu != sched::this_cpu()) {
                    Some(cpu) => cpu,
                    None => return function(&mut state),
                }
            };
            let mut done = false;
            sched::call_on(elsewhere, &mut || {
                let mut state = self.state.lock();
                // It may have gone on, or to rest, in the meantime.
                if state.place().is_none_or(|cpu| cpu == sched::this_cpu()) {
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
    pub(crate) fn call(&self, function: &mut dyn FnMut(&mut State)) -> Result<(), Error> {
        if self.scope == Scope::Thread {
            self.with(function);
            return Ok(());
        }
        let mut state = self.state.lock();
        match state.place() {
            Some(cpu) if cpu != sched::this_cpu() => Err(Error::OtherCpu),
            _ => {
                function(&mut state);
                Ok(())
            }
        }
    }

    /// Counting begins, whenever its thread runs.
    pub(crate) fn resume(&self, state: &mut State) {
        self.set_out_carried(state);
        state.started = true;
    }

    /// Counts from now on, with that set or the active one.
    pub(crate) fn start(&self, set: Option<u16>) -> Result {
        let mut done = Ok(Target::None);
        self.call(&mut |state| {
            done = match state.target {
                Target::None => Err(Error::NotLoaded),
                Target::Ended => Err(Error::Ended),
                target => Ok(target),
            };
            if let (Ok(_), Some(set)) = (done, set) {
                if let Err(error) = self.choose(state, set) {
                    done = Err(error);
                }
            }
            if done.is_ok() && !state.started {
                self.resume(state);
            }
            if let (Ok(_), Target::Cpu(_)) = (done, state.target) {
                self.enter_if_it_counts(state);
            }
        })
        .map_err(refused)?;
        if let Target::Thread(task) = done.map_err(refused)? {
            self.find_running(task);
        }
        Ok(())
    }

    /// If its thread runs now, its context has to be put into the hardware there;
    /// the next time the scheduler does it.
    pub(crate) fn find_running(&self, task: usize) {
        if task == sched::current() {
            return self.arrive(Target::Thread(task));
        }
        sched::call_on_all(&|| {
            if sched::current() == task {
                self.arrive(Target::Thread(task));
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
            self.halt(state);
        })
        .and(done)
        .map_err(refused)
    }

    /// The frame of its self page, made when it is first asked for. `EINVAL` if it
    /// is not a thread's.
    pub(crate) fn self_page(&self) -> Result<usize> {
        if self.scope != Scope::Thread {
            return Err(EINVAL);
        }
        // Each page fault asks: none shall need memory that is there.
        if let Some(page) = &self.state.lock().page {
            return Ok(page.frame());
        }
        let mut new = Some(Page::new()?);
        let mut frame = 0;
        self.with(&mut |state| {
            if state.page.is_none() {
                state.page = new.take();
                state.tsc = msr::time_stamp();
                self.look(state);
            }
            frame = state.page.as_ref().map_or(0, Page::frame);
        });
        Ok(frame)
    }

    /// Its process may use RDPMC, or may no more.
    pub(crate) fn set_rdpmc(&self, may: bool) {
        self.with(&mut |state| {
            state.rdpmc = may;
            self.look(state);
        });
    }
}

impl State {
    /// Does the timer have to look after it?
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.set.registers.program.clocks || self.set.turns.terms.is_timed()
    }

    /// The CPU where its registers are.
    fn place(&self) -> Option<u32> {
        match self.target {
            Target::Cpu(cpu) => Some(cpu),
            _ => self.cpu,
        }
    }

    /// Writes the self page, if there is one. `counted`: it was in the hardware
    /// since the last time.
    #[inline(always)]
    pub(crate) fn publish(&mut self, counted: bool) {
        if self.page.is_some() {
            self.write_page(counted);
        }
    }

    #[inline(never)]
    fn write_page(&mut self, counted: bool) {
        let Some(page) = &self.page else { return };
        let tsc = msr::time_stamp();
        let ran = if counted {
            tsc.wrapping_sub(self.tsc)
        } else {
            0
        };
        self.tsc = tsc;
        let flags = match (self.cpu, self.rdpmc) {
            (None, _) => 0,
            (Some(_), false) => selfpage::COUNTING,
            (Some(_), true) => selfpage::COUNTING | selfpage::RDPMC,
        };
        page.update(&self.set, flags, tsc, ran);
    }
}
