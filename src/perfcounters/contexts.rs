// SPDX-License-Identifier: GPL-2.0

//! Contexts: a PMU's registers for a thread or a CPU.
//!
//! A context that counts is *in the hardware* of one CPU, whose number `State`
//! has, or in none: its thread does not run. That CPU's words in `sys::sched` say
//! so, too; all change together, on that CPU, with interrupts off and the
//! context's lock held. So whoever wants the registers takes the lock; if they
//! are in another CPU's hardware it asks that CPU.
//!
//! A counter of the hardware is 0 unless a context is loaded that uses it: nothing of one thread is
//! there for another to read. What perf left in a CPU's registers is cleared when the first context
//! is loaded there (`session::quiet_first`), so that taking the PMU interrupts no CPU.
//!
//! Lock order: a context's `growing`, `SESSION`, `HELD`, a context's lock. Only the last
//! is taken by the probes; nothing is called under it that locks. CPU hotplug takes no
//! `SESSION`: under that, probes are attached, which waits for hotplug.

use engine::claims::Claims;
use engine::context::Error;
use engine::pmu::Scope;
use engine::program::Growth;
use engine::selfpage;
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KBox, KVec};
use kernel::new_mutex;
use kernel::pid_namespace::PidNamespace;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::{Arc, Mutex};
use kernel::task::Task;

use crate::costs::Cost;
use crate::kinds::Elsewhere;
use crate::pmu::{self, refused};
use crate::sampling::Sampling;
use crate::session;
use crate::sets::{Set, Sets};
use crate::sys::account::Charge;
use crate::sys::bell::Bell;
use crate::sys::costs;
use crate::sys::format::{Areas, Buffer};
use crate::sys::rawlock::RawLock;
use crate::sys::rights::Process;
use crate::sys::selfpage::Page;
use crate::sys::threads::Place;
use crate::sys::{msr, nmi, rights, sched};
use crate::target::Target;
use crate::watch::Watch;

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
    /// CPUs on which it does not count.
    pub(crate) elsewhere: Elsewhere,
    /// A register was not there; the bell ends it.
    pub(crate) broken: bool,
    /// What the session knows it to use. Changes under `SESSION` only.
    pub(crate) claims: Claims,
    page: Option<Page>,
    /// Mappings of that page, and whether the process that has them may use RDPMC.
    mapped: Mapped,
    /// The time stamp counter when the page was last written.
    tsc: u64,
    /// Where it is found by its thread.
    pub(crate) listed: Option<Place>,
    /// The process that has attached it, whose right it is to stop its thread.
    pub(crate) loader: Option<Process>,
    /// Their right to watch its thread, if that can be lost.
    pub(crate) watch: Option<Watch>,
    /// The bell has it asked for again.
    pub(crate) asks: bool,
    /// Somebody attaches it.
    pub(crate) loading: bool,
    /// Modules of its registers' descriptions.
    pins: pmu::Pins,
    /// The memory of its buffer.
    areas: Option<Arc<Areas>>,
    pub(crate) sampling: Sampling,
}

/// Bytes of a context beside its own: its file, its bell, what a sample is made of.
const BESIDE: usize = 2048;

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
    /// Of its memory.
    pub(crate) charge: Charge,
    /// Whose numbers for threads it tells.
    pub(crate) ns: ARef<PidNamespace>,
    global_ctrl: u64,
    /// Held while room for registers and sets is made: no other lock is held while memory is waited
    /// for.
    #[pin]
    pub(crate) growing: Mutex<()>,
    #[pin]
    pub(crate) state: RawLock<State>,
}

/// Mappings of the self page: of one process at a time.
#[derive(Default)]
struct Mapped {
    /// Its address space, by its address.
    by: usize,
    nr: usize,
    /// Its threads may use RDPMC.
    rdpmc: bool,
}

/// What a new context is.
pub(crate) struct Kind {
    /// What it is for.
    pub(crate) scope: Scope,
    /// No messages.
    pub(crate) silent: bool,
    /// The thread waits while its tool looks.
    pub(crate) blocks: bool,
    /// The type of core that it counts on; 0: any.
    pub(crate) core: u32,
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
        let charge = Charge::of_caller(size_of::<Self>().wrapping_add(BESIDE))?;
        let ns = ARef::from(current!().active_pid_ns().ok_or(ESRCH)?);
        let (registers, pins) = pmu::Registers::now()?;
        let global_ctrl = registers.map().global_ctrl;
        let (buffer, areas) = match kind.buffer {
            Some((buffer, areas)) => (Some(KBox::new(buffer, GFP_KERNEL_ACCOUNT)?), Some(areas)),
            None => (None, None),
        };
        let set = Set::new(0, &charge)?;
        let (sets, sampling) = (Sets::new()?, Sampling::new(buffer)?);
        let context = Arc::pin_init(
            try_pin_init!(Self {
                bell: Bell::new()?,
                scope: kind.scope,
                privileged: rights::is_kernel_open(),
                silent: kind.silent,
                blocks: kind.blocks,
                registers,
                charge,
                ns,
                global_ctrl,
                growing <- new_mutex!(()),
                state <- RawLock::new(init!(State {
                    set,
                    sets,
                    target: Target::None,
                    thread: None,
                    started: false,
                    cpu: None,
                    elsewhere: Elsewhere::new(kind.core),
                    broken: false,
                    claims: Claims::NONE,
                    page: None,
                    mapped: Mapped::default(),
                    tsc: 0,
                    listed: None,
                    loader: None,
                    watch: None,
                    asks: false,
                    loading: false,
                    pins,
                    areas,
                    sampling,
                })),
            }? kernel::error::Error),
            GFP_KERNEL_ACCOUNT,
        )?;
        context.bell.hang(&context);
        Ok(context)
    }

    /// The memory of its buffer.
    pub(crate) fn areas(&self) -> Option<Arc<Areas>> {
        self.state.lock().areas.clone()
    }

    /// Its file is closed, it is detached: what is others' is given back now, the rest goes when
    /// nobody looks at it any more who found it before. Process context.
    pub(crate) fn close(self: Arc<Self>) {
        let given = {
            let mut state = self.state.lock();
            (
                core::mem::replace(&mut state.pins, KVec::new()),
                state.areas.take(),
                state.sampling.buffer.take(),
            )
        };
        drop(given);
        let context = Arc::into_raw(self);
        // SAFETY: Ours, and given away: nobody else has one, as the file is closed.
        unsafe { (*context).bell.leave() }
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
            .read(pmd, address, control, thread.map(|t| &**t), &self.ns)
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
        let mut there = true;
        if !state.set.registers.program.controls().is_empty() {
            session::quiet_first(&self.registers);
        }
        let held = state.sampling.is_throttled();
        state.set.registers.set_held(held);
        state
            .set
            .registers
            .begin(|c| there &= msr::write(c.address, c.start));
        state.cpu = Some(sched::this_cpu());
        self.set_timer(state);
        state.publish(false);
        let program = &state.set.registers.program;
        sched::set_loaded(self.scope, Some(self));
        for control in program.controls() {
            there &= msr::write(control.address, control.on);
        }
        sched::set_counting(self.scope, program.global);
        // Who has no counter has no PMU: the register may be perf's. In an NMI nothing
        // counts, until it is over.
        if self.global_ctrl != 0 && program.global != 0 && !sched::in_nmi() {
            there &= self.let_count();
        }
        if !there {
            state.set.registers.distrust();
            self.take_out(state);
            self.break_down(state);
        }
    }

    /// Lets those counters count that do. An NMI between the two may have taken some out.
    /// False: it cannot.
    #[inline]
    fn let_count(&self) -> bool {
        loop {
            let all = all_counting();
            let there = msr::write(self.global_ctrl, all);
            if all_counting() == all {
                return there;
            }
        }
    }

    /// A register that it uses is not there, on this CPU: it counts no more, and ends as soon
    /// as the bell can. It is out of the hardware. Any context.
    #[cold]
    fn break_down(&self, state: &mut State) {
        state.started = false;
        state.broken = true;
        self.bell.call();
    }

    /// Into this CPU's hardware, unless it is there or something holds it.
    #[inline]
    pub(crate) fn enter_if_it_counts(&self, state: &mut State) {
        if state.started && state.cpu.is_none() && !state.sampling.masked && self.fits_here(state) {
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
        }
        // Also with a global register: perf writes that for what is not ours (PT, BTS).
        for control in state.set.registers.program.controls() {
            msr::write(control.address, control.off);
        }
        let there = state.set.registers.fold(|c| msr::read_counter(c.rdpmc));
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
        if !there {
            self.break_down(state);
        }
    }

    /// All values are of now; what overflowed is told: how many. Where its registers are.
    pub(crate) fn look(&self, state: &mut State) -> u32 {
        self.catch_up(state);
        let mut told = 0;
        // Elsewhere it is told when its thread is there.
        if state.cpu.is_some() {
            told = self.tell(state, None);
            self.go_on(state);
        }
        state.publish(state.cpu.is_some());
        told
    }

    /// All values are of now.
    #[inline(always)]
    pub(crate) fn catch_up(&self, state: &mut State) {
        let thread = state.thread.as_ref();
        if state.cpu.is_some() {
            let there = state.set.registers.fold(|c| msr::read_counter(c.rdpmc));
            state.set.registers.grow(false, |g| self.grown(g, thread));
            if !there {
                self.take_out(state);
            }
        } else if state.elsewhere.is_now() {
            self.settle_elsewhere(state);
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
    pub(crate) fn look_here(&self) -> u32 {
        let mut state = self.state.lock();
        match state.cpu == Some(sched::this_cpu()) {
            true => self.look(&mut state),
            false => 0,
        }
    }

    /// Counting ends, for now.
    pub(crate) fn halt(&self, state: &mut State) {
        if state.cpu.is_some() {
            self.leave(state);
        }
        self.settle_elsewhere(state);
        self.settle_carried(state);
        state.started = false;
    }

    /// Who it is for runs here now: into the hardware, if it counts.
    #[inline]
    pub(crate) fn arrive(&self, target: Target) {
        let mut state = self.state.lock();
        if state.started && state.cpu.is_none() && state.target == target {
            self.doubt(&mut state);
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
        self.is_here(&state)?;
        function(&mut state);
        Ok(())
    }

    /// Would [`call`](Self::call) be refused? The answer holds while preemption is off.
    pub(crate) fn is_callable(&self) -> Result<(), Error> {
        self.is_here(&self.state.lock())
    }

    /// `OtherCpu` for the context of a CPU that the caller is not on.
    fn is_here(&self, state: &State) -> Result<(), Error> {
        match state.place() {
            Some(cpu) if self.scope == Scope::System && cpu != sched::this_cpu() => {
                Err(Error::OtherCpu)
            }
            _ => Ok(()),
        }
    }

    /// Counting begins, whenever its thread runs.
    pub(crate) fn resume(&self, state: &mut State) {
        // Time before the start is not missing.
        self.settle_elsewhere(state);
        self.set_out_carried(state);
        state.started = true;
        self.settle_elsewhere(state);
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
        let mut new = Some(Page::new(&self.charge)?);
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

    /// The caller's process maps its page: `EACCES` if its thread is another's, `EBUSY` while
    /// another has it mapped.
    pub(crate) fn map(&self) -> Result {
        let mut state = self.state.lock();
        let memory = sched::memory();
        let thread = state.thread.as_ref();
        if thread.is_some_and(|thread| sched::memory_of(thread) != memory) {
            return Err(EACCES);
        }
        if state.mapped.nr != 0 && state.mapped.by != memory {
            return Err(EBUSY);
        }
        state.mapped.by = memory;
        state.mapped.nr = state.mapped.nr.wrapping_add(1);
        Ok(())
    }

    /// A mapping of the page moves: its process has one more until the old one goes.
    pub(crate) fn map_again(&self) {
        let mut state = self.state.lock();
        state.mapped.nr = state.mapped.nr.wrapping_add(1);
    }

    /// One mapping less.
    pub(crate) fn unmap(&self) {
        let mut state = self.state.lock();
        state.mapped.nr = state.mapped.nr.wrapping_sub(1);
        if state.mapped.nr == 0 {
            state.mapped = Mapped::default();
        }
    }

    /// Threads of the process that has it mapped may use RDPMC, or may no more.
    pub(crate) fn set_rdpmc(&self, may: bool) {
        self.with(&mut |state| {
            state.mapped.rdpmc = may;
            self.look(state);
        });
    }
}

impl State {
    /// Does the timer have to look after it?
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.set.registers.program.clocks
            || self.set.turns.terms.is_timed()
            || self.sampling.is_throttled()
    }

    /// Nanoseconds until the timer may end the active set's turn, if it does.
    pub(crate) fn turn_left(&self, now: u64) -> Option<u64> {
        let left = self.set.turns.left(now)?;
        Some(left.max(self.sets.held.saturating_sub(now)))
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
        // Where its registers are, there its thread runs.
        let flags = match (
            self.cpu,
            self.mapped.rdpmc && self.mapped.by == sched::memory(),
        ) {
            (None, _) => (0, 0),
            (Some(_), false) => (selfpage::COUNTING, 0),
            (Some(_), true) => {
                let flags = selfpage::COUNTING | selfpage::RDPMC;
                (flags, sched::thread_pointer())
            }
        };
        page.update(&self.set, flags, tsc, ran);
    }
}
