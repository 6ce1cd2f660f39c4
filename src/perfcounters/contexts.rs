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

use engine::calls::Pmd;
use engine::claims::Claims;
use engine::context::{Error, Growth, Registers};
use engine::pmu::{kind, Scope};
use engine::sampling::Attr;
use engine::selfpage;
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KBox;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use kernel::task::Task;

use crate::pmu::{self, refused};
use crate::sampling::Sampling;
use crate::sys::bell::Bell;
use crate::sys::format::{Areas, Buffer};
use crate::sys::lock::SESSION;
use crate::sys::msr;
use crate::sys::rawlock::RawLock;
use crate::sys::sched::{self, THREADS};
use crate::sys::selfpage::Page;
use crate::sys::zeroed::zeroed_registers;

/// What a context is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
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
pub(crate) struct State {
    pub(crate) registers: Registers,
    pub(crate) target: Target,
    /// The thread that it is, or was, attached to.
    pub(crate) thread: Option<ARef<Task>>,
    /// Counting, whenever its thread runs.
    pub(crate) started: bool,
    /// The CPU in whose hardware it is.
    pub(crate) cpu: Option<u32>,
    /// What the session knows it to use. Changes under `SESSION` only.
    claims: Claims,
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
    registers: Arc<pmu::Registers>,
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
        let sampling = Sampling::new(buffer)?;
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
                    registers <- zeroed_registers(),
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
    fn enter(&self, state: &mut State) {
        let thread = state.thread.as_ref();
        state.registers.set_out(false, |g| self.grown(g, thread));
        state.registers.begin(|c| msr::write(c.address, c.start));
        state.cpu = Some(sched::this_cpu());
        self.set_timer(state);
        state.publish(false);
        let program = &state.registers.program;
        sched::set_loaded(self.scope, Some(self));
        for control in program.controls() {
            msr::write(control.address, control.on);
        }
        sched::set_counting(self.scope, program.global);
        // Who has no counter has no PMU: the register may be perf's.
        if self.global_ctrl != 0 && program.global != 0 {
            msr::write(self.global_ctrl, self.all_counting());
        }
    }

    /// Counters of whichever contexts are in this CPU's hardware.
    #[inline]
    fn all_counting(&self) -> u64 {
        sched::counting(Scope::Thread) | sched::counting(Scope::System)
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
        if state.registers.program.carries {
            self.settle_carried(state);
        }
        self.tell(state, None);
    }

    /// Out of this CPU's hardware, no more.
    #[inline]
    pub(crate) fn take_out(&self, state: &mut State) {
        sched::set_counting(self.scope, 0);
        if self.global_ctrl != 0 && state.registers.program.global != 0 {
            // In an NMI nothing counts, until it is over.
            if !sched::in_nmi() {
                msr::write(self.global_ctrl, self.all_counting());
            }
        } else {
            for control in state.registers.program.controls() {
                msr::write(control.address, control.off);
            }
        }
        state.registers.fold(|c| msr::read_counter(c.rdpmc));
        for counter in state.registers.program.counters() {
            msr::write(counter.address, 0);
        }
        let thread = state.thread.as_ref();
        state.registers.grow(false, |g| self.grown(g, thread));
        if state.registers.program.clocks && !sched::in_nmi() {
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
    fn look(&self, state: &mut State) {
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
            state.registers.fold(|c| msr::read_counter(c.rdpmc));
            state.registers.grow(false, |g| self.grown(g, thread));
        }
        self.settle_carried(state);
    }

    /// What its thread carries is of now.
    #[inline]
    pub(crate) fn settle_carried(&self, state: &mut State) {
        let thread = state.thread.as_ref();
        if state.started && !state.sampling.masked {
            state.registers.grow(true, |g| self.grown(g, thread));
        }
    }

    /// It begins now.
    pub(crate) fn set_out_carried(&self, state: &mut State) {
        let thread = state.thread.as_ref();
        state.registers.set_out(true, |g| self.grown(g, thread));
    }

    /// The same, if it is in this CPU's hardware. Interrupts off.
    pub(crate) fn look_here(&self) {
        let mut state = self.state.lock();
        if state.cpu == Some(sched::this_cpu()) {
            self.look(&mut state);
        }
    }

    /// Counting ends, for now.
    fn halt(&self, state: &mut State) {
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

    /// What it is attached to ends, here and now.
    pub(crate) fn end(&self, target: Target) {
        let mut state = self.state.lock();
        if state.target == target {
            self.halt(&mut state);
            self.forget(&mut state);
            state.target = Target::Ended;
            self.tell_end(&mut state);
            self.bell.let_go();
        }
        drop(state);
        self.bell.go();
    }

    /// Nobody finds it by its target any more. On its CPU, if that is one.
    fn forget(&self, state: &mut State) {
        match state.target {
            Target::Thread(task) => THREADS.remove(task),
            Target::Cpu(_) => sched::set_loaded(Scope::System, None),
            Target::None | Target::Ended => {}
        }
        state.target = Target::None;
    }

    /// Calls a function with the state, where its registers are: on the CPU that it
    /// is attached to or in whose hardware it is, else here. Process context.
    fn with(&self, function: &mut dyn FnMut(&mut State)) {
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

    /// Writes PMCs: numbers, flags, and values that `Registers::check_pmc` gave.
    pub(crate) fn write_pmcs(&self, values: &[(u16, u32, u64)]) -> Result {
        let mut more = Claims::NONE;
        for (number, _, _) in values {
            more.pmcs |= 1u64.checked_shl((*number).into()).unwrap_or(0);
        }
        self.write(more, 0, &mut |state| {
            for (number, flags, value) in values {
                state.registers.set_pmc(*number, *flags, *value);
            }
        })
    }

    /// Writes PMDs: numbers that exist.
    pub(crate) fn write_pmds(&self, values: &[Pmd]) -> Result {
        let map = self.registers.map();
        let mut more = Claims::NONE;
        for pmd in values {
            more.pmds |= 1u64.checked_shl(pmd.reg_num.into()).unwrap_or(0);
            for others in [&pmd.reg_smpl_pmds, &pmd.reg_reset_pmds] {
                more.pmds |= others.0.first().copied().unwrap_or(0);
            }
        }
        let in_format = self.areas.is_some();
        self.write(more, values.len(), &mut |state| {
            for pmd in values {
                let State {
                    registers,
                    sampling,
                    ..
                } = state;
                registers.set_pmd(&map, pmd.reg_num, pmd.reg_value);
                let counts = map.pmd(pmd.reg_num).is_some_and(|r| r.is(kind::COUNTER));
                let samples = counts && (in_format || pmd.samples());
                registers.set_armed(pmd.reg_num, samples);
                if samples || sampling.attr(pmd.reg_num).is_some() {
                    sampling.set(Attr::new(&map, pmd));
                }
                registers.use_pmds(&pmd.reg_smpl_pmds);
                registers.use_pmds(&pmd.reg_reset_pmds);
            }
        })
    }

    /// Changes its registers, with them out of the hardware, and into it again after.
    /// There is room for so many PMDs that sample.
    fn write(&self, more: Claims, sampling: usize, function: &mut dyn FnMut(&mut State)) -> Result {
        let map = self.registers.map();
        let mut session = SESSION.lock();
        self.make_room(sampling)?;
        let (attached, old, new) = {
            let state = self.state.lock();
            let new = state.registers.claims(&map, more);
            (state.target != Target::None, state.claims, new)
        };
        let counted = if attached { new } else { old };
        session.claim(self.scope, &self.registers, &old, &counted)?;
        self.call(&mut |state| {
            let (started, inside) = (state.started, state.cpu.is_some());
            self.halt(state);
            function(state);
            state.registers.plan(&map, self.scope);
            state.claims = counted;
            if started {
                self.resume(state);
            }
            match inside && !state.sampling.is_quiet() {
                true => self.enter(state),
                false => state.publish(false),
            }
        })
        .inspect_err(|_| {
            // What was there before cannot be refused.
            let _ = session.claim(self.scope, &self.registers, &counted, &old);
        })
        .map_err(refused)
    }

    /// Counting begins, whenever its thread runs.
    fn resume(&self, state: &mut State) {
        self.set_out_carried(state);
        state.started = true;
    }

    /// Reads PMDs: numbers that exist, into their values.
    pub(crate) fn read_pmds(&self, pmds: &mut [Pmd]) -> Result {
        let map = self.registers.map();
        let value_of = |number| {
            map.pmd(number)
                .filter(|r| r.is(kind::VIRTUAL) && !r.is(kind::COUNTER))
        };
        let any = pmds.iter().any(|pmd| value_of(pmd.reg_num).is_some());
        let mut thread = None;
        self.call(&mut |state| {
            self.look(state);
            if any && self.scope == Scope::Thread {
                thread = state.thread.clone();
            }
            for pmd in pmds.iter_mut() {
                if let Some(attr) = state.sampling.attr(pmd.reg_num) {
                    pmd.reg_last_reset_val = attr.last;
                }
                pmd.reg_value = match value_of(pmd.reg_num) {
                    // What it is now takes longer: below, without the lock.
                    Some(register) => state.registers.control_of(&map, register),
                    None => state.registers.pmd(&map, pmd.reg_num),
                };
            }
        })
        .map_err(refused)?;
        if any {
            for pmd in pmds.iter_mut() {
                if let Some(register) = value_of(pmd.reg_num) {
                    let _preempt = sched::NoPreempt::new();
                    let (address, control) = (register.address, pmd.reg_value);
                    pmd.reg_value =
                        self.registers
                            .read(pmd.reg_num, address, control, thread.as_deref());
                }
            }
        }
        Ok(())
    }

    /// Attaches it, not yet counting: to a thread, or to the CPU of that number,
    /// on which the caller must be.
    pub(crate) fn load(&self, number: u32) -> Result {
        let mut session = SESSION.lock();
        let claims = {
            let state = self.state.lock();
            if state.target != Target::None {
                return Err(refused(Error::Loaded));
            }
            state.registers.claims(&self.registers.map(), Claims::NONE)
        };
        let task = match self.scope {
            Scope::Thread => Some(permitted(number)?),
            Scope::System if sched::is_perfmon_capable() => None,
            Scope::System => return Err(EPERM),
        };
        session.claim(self.scope, &self.registers, &Claims::NONE, &claims)?;
        let attached = match task {
            Some(task) => session
                .watch()
                .and_then(|()| self.attach(task, claims).inspect_err(|_| session.unwatch())),
            None => self.take_cpu(number, claims),
        };
        attached.inspect_err(|_| {
            let _ = session.claim(self.scope, &self.registers, &claims, &Claims::NONE);
        })
    }

    fn attach(&self, task: ARef<Task>, claims: Claims) -> Result {
        let address = sched::address(&task);
        if self.blocks && address == sched::current() {
            return Err(EINVAL);
        }
        let again = task.clone();
        let ended = {
            let mut state = self.state.lock();
            THREADS.insert(address, self)?;
            state.target = Target::Thread(address);
            state.claims = claims;
            state.sampling.own = address == sched::current();
            // It may have ended since it was found, unseen.
            let ended = sched::has_ended(&task);
            if ended {
                self.forget(&mut state);
                state.claims = Claims::NONE;
            }
            // The old one is let go when the lock is.
            (ended, state.thread.replace(task))
        };
        if ended.0 {
            return Err(ESRCH);
        }
        // It may have become another program since it was looked at, before it was
        // found here at its exec.
        if let Err(error) = may_watch(&again) {
            let mut state = self.state.lock();
            if state.target == Target::Thread(address) {
                self.forget(&mut state);
            }
            (state.target, state.claims) = (Target::None, Claims::NONE);
            return Err(error);
        }
        Ok(())
    }

    fn take_cpu(&self, number: u32, claims: Claims) -> Result {
        let mut state = self.state.lock();
        if sched::this_cpu() != number {
            return Err(EINVAL);
        }
        if sched::loaded(Scope::System).is_some() {
            return Err(EBUSY);
        }
        state.target = Target::Cpu(number);
        state.claims = claims;
        sched::set_loaded(Scope::System, Some(self));
        Ok(())
    }

    /// Detaches it; values stay. Nothing if it is not attached.
    pub(crate) fn unload(&self) -> Result {
        let mut session = SESSION.lock();
        let (mut was, mut thread, mut claims) = (Target::None, None, Claims::NONE);
        self.with(&mut |state| {
            was = state.target;
            self.halt(state);
            self.forget(state);
            thread = state.thread.take();
            state.sampling.rest();
            let _ = state.registers.take_pending();
            self.bell.let_go();
            claims = core::mem::replace(&mut state.claims, Claims::NONE);
        });
        self.bell.go();
        session.claim(self.scope, &self.registers, &claims, &Claims::NONE)?;
        if was != Target::None && self.scope == Scope::Thread {
            session.unwatch();
        }
        Ok(())
    }

    /// Counts from now on.
    pub(crate) fn start(&self) -> Result {
        let mut done = Ok(Target::None);
        self.call(&mut |state| {
            done = match state.target {
                Target::None => Err(Error::NotLoaded),
                Target::Ended => Err(Error::Ended),
                target => Ok(target),
            };
            if done.is_ok() && !state.started {
                self.resume(state);
                if let Target::Cpu(_) = state.target {
                    self.enter_if_it_counts(state);
                }
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
    /// The CPU where its registers are.
    fn place(&self) -> Option<u32> {
        match self.target {
            Target::Cpu(cpu) => Some(cpu),
            _ => self.cpu,
        }
    }

    /// Writes the self page, if there is one. `counted`: it was in the hardware
    /// since the last time.
    #[inline]
    pub(crate) fn publish(&mut self, counted: bool) {
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
        page.update(&self.registers, flags, tsc, ran);
    }
}

/// The thread of that number, if the caller may monitor it.
fn permitted(number: u32) -> Result<ARef<Task>> {
    let task = sched::find(number).ok_or(ESRCH)?;
    may_watch(&task)?;
    Ok(task)
}

/// May the caller monitor this thread?
fn may_watch(task: &Task) -> Result {
    let may =
        !sched::is_kernel_thread(task) && (sched::may_watch(task) || sched::is_perfmon_capable());
    match may {
        true => Ok(()),
        false => Err(EPERM),
    }
}
