// SPDX-License-Identifier: GPL-2.0

//! Contexts that sample: what happens when a counter overflows.
//!
//! An overflow is seen in the counter's own value, whoever looks: the NMI, which takes
//! the context's lock if it is free; the timer, for clocks; or whoever takes the
//! registers out of the hardware first. An NMI that finds the lock held has this CPU
//! look again as soon as interrupts are on. So no overflow is told twice or not at all,
//! however late its interrupt is.

use engine::context::Error;
use engine::pmu::{Rows, Scope};
use engine::sampling::{self, action, Attr, Message, Queue, VALUES};
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KBox, KVec};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};

use crate::contexts::{Context, State, Target};
use crate::description;
use crate::pmu::{self, refused};
use crate::sys::format::Buffer;
use crate::sys::nmi::{self, Interrupted, Place};
use crate::sys::{msr, sched};

/// `PERFMON_RECORD_THROTTLE`, `PERFMON_RECORD_UNTHROTTLE`.
const THROTTLE: u16 = 3;
const UNTHROTTLE: u16 = 4;

/// What a context has, when it samples, besides its registers.
pub(crate) struct Sampling {
    attrs: KVec<Attr>,
    /// Of the sample that is being taken; an NMI's stack is small.
    values: KBox<[u64; VALUES]>,
    pub(crate) buffer: Option<KBox<Buffer>>,
    pub(crate) queue: Queue,
    /// Nothing counts until a restart.
    pub(crate) masked: bool,
    /// PMDs that the restart sets.
    ended: Rows,
    /// Nothing counts until then: a storm.
    throttled: Option<u64>,
    /// Its own thread loaded it.
    pub(crate) own: bool,
}

impl Sampling {
    /// What is there at first.
    pub(crate) fn new(buffer: Option<KBox<Buffer>>) -> Result<Self> {
        let mut queue = Queue::default();
        queue.set_depth(buffer.as_ref().map_or(8, |b| b.format().queue_depth()));
        Ok(Self {
            attrs: KVec::new(),
            values: KBox::new([0; VALUES], GFP_KERNEL_ACCOUNT)?,
            buffer,
            queue,
            masked: false,
            ended: Rows::default(),
            throttled: None,
            own: false,
        })
    }

    /// May its registers be in the hardware?
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.masked || self.throttled.is_some()
    }

    /// It does not sample any more, for now: it is detached.
    pub(crate) fn rest(&mut self) {
        self.masked = false;
        self.throttled = None;
        self.ended = Rows::default();
        self.queue.clear();
    }

    /// How a PMD overflows.
    pub(crate) fn attr(&self, pmd: u16) -> Option<&Attr> {
        self.attrs.iter().find(|attr| attr.pmd == pmd)
    }

    #[inline]
    fn attr_mut(&mut self, pmd: u16) -> Option<&mut Attr> {
        self.attrs.iter_mut().find(|attr| attr.pmd == pmd)
    }

    /// How many PMDs have attributes.
    pub(crate) fn len(&self) -> usize {
        self.attrs.len()
    }

    /// Takes a table with room for all that come, and gives the old one back; what is in
    /// it is copied.
    pub(crate) fn grow(&mut self, mut larger: KVec<Attr>) -> KVec<Attr> {
        for attr in &self.attrs {
            let _ = larger.push_within_capacity(*attr);
        }
        core::mem::replace(&mut self.attrs, larger)
    }

    /// Sets how a PMD overflows.
    pub(crate) fn set(&mut self, new: Attr) {
        match self.attr_mut(new.pmd) {
            Some(old) => *old = new,
            None => {
                let _ = self.attrs.push_within_capacity(new);
            }
        }
        self.ended.clear(new.pmd);
    }
}

/// The PMU's MSRs for an NMI, which can take no lock: the control of all counters, the
/// status, its reset, and the bits of counters in these. 0: there is none.
///
/// Relaxed everywhere: they are set before the NMI's handler is registered, and its
/// going waits for the last NMI.
static GLOBAL: [Atomic<u64>; 4] = [const { Atomic::new(0) }; 4];

/// The PMU is ours.
pub(crate) fn set_out(registers: &pmu::Registers) {
    let map = registers.map();
    let bit = |rdpmc: u32| 1u64.wrapping_shl((rdpmc & 31) | (((rdpmc >> 30) & 1) << 5));
    let bits = registers.counters().fold(0, |bits, r| bits | bit(r.rdpmc));
    let all = [map.global_ctrl, map.global_status, map.global_clear, bits];
    for (word, value) in GLOBAL.iter().zip(all) {
        word.store(value, Relaxed);
    }
}

/// No register says which counters overflowed.
fn has_no_status() -> bool {
    let [_, status, _, _] = &GLOBAL;
    status.load(Relaxed) == 0
}

/// Nothing on this CPU has overflowed.
pub(crate) fn forget_overflows() {
    let [_, _, clear, bits] = &GLOBAL;
    match clear.load(Relaxed) {
        0 => {}
        clear => msr::write(clear, bits.load(Relaxed)),
    }
    nmi::unmask();
}

/// An NMI: how many overflows of ours it tells of; 0: it is somebody else's.
pub(crate) fn interrupt(interrupted: Interrupted) -> u32 {
    let began = msr::time_stamp();
    let [control, status, clear, bits] = &GLOBAL;
    let control = control.load(Relaxed);
    if control != 0 {
        msr::write(control, 0);
    }
    let status = status.load(Relaxed);
    let over = match status {
        0 => 0,
        status => msr::read(status) & bits.load(Relaxed),
    };
    let mut handled = 0u32;
    let loaded = [sched::loaded(Scope::Thread), sched::loaded(Scope::System)];
    let mut busy = [false; 2];
    for (context, busy) in loaded.iter().zip(&mut busy) {
        if let Some(context) = context {
            let (told, interrupts) = context.overflowed(interrupted);
            handled = handled.wrapping_add(interrupts);
            *busy = told != 0;
        }
    }
    // Where a register says which it were, nothing else does.
    if status != 0 {
        handled = over.count_ones();
        if over != 0 {
            msr::write(clear.load(Relaxed), over);
        }
    } else if handled == 0 && nmi::was_expected() {
        handled = 1;
    } else if handled > 1 {
        nmi::expect();
    }
    if busy != [false; 2] {
        let pause = nmi::storm(began);
        if pause != 0 {
            for (context, busy) in loaded.iter().zip(busy) {
                if let Some(context) = context.filter(|_| busy) {
                    context.throttle(pause);
                }
            }
        }
    }
    // The processor masks it whenever it interrupts. Late, when the overflow is
    // cleared, or it would be told again; but before anything counts.
    nmi::unmask();
    if control != 0 {
        let counting = sched::counting(Scope::Thread) | sched::counting(Scope::System);
        msr::write(control, counting);
    }
    handled
}

/// An NMI found a lock held: now it is not. Interrupts off.
pub(crate) fn look_again() {
    for scope in [Scope::Thread, Scope::System] {
        if let Some(context) = sched::loaded(scope) {
            context.look_here();
        }
    }
}

impl Context {
    /// The NMI's part for this context: how many PMDs overflowed, and how many counters
    /// of the hardware have interrupted.
    #[inline]
    fn overflowed(&self, interrupted: Interrupted) -> (u32, u32) {
        let Some(mut state) = self.state.try_lock() else {
            nmi::miss(interrupted);
            return (0, 1);
        };
        if state.cpu != Some(sched::this_cpu()) {
            return (0, 0);
        }
        self.catch_up(&mut state);
        let turned = state.registers.take_turned();
        let told = self.tell(&mut state, Some(interrupted));
        self.go_on(&mut state);
        (told, turned)
    }

    /// Takes this context out of the hardware for so many nanoseconds, if its counters
    /// interrupt. In an NMI or with interrupts off.
    fn throttle(&self, nanoseconds: u64) {
        let Some(mut state) = self.state.try_lock() else {
            return;
        };
        if state.cpu != Some(sched::this_cpu()) || state.sampling.is_quiet() {
            return;
        }
        self.take_out(&mut state);
        self.tell(&mut state, None);
        let now = nmi::now();
        state.sampling.throttled = Some(now.wrapping_add(nanoseconds));
        if let Some(buffer) = &mut state.sampling.buffer {
            buffer.tell(THROTTLE, now);
        }
        // Which sets the timer, as an NMI cannot.
        self.bell.call();
    }

    /// The storm is over, if there was one; else the timer says when. Interrupts off, no NMI.
    pub(crate) fn calm(&self, state: &mut State) {
        if let Some(until) = state.sampling.throttled {
            let now = nmi::now();
            if now >= until {
                state.sampling.throttled = None;
                if let Some(buffer) = &mut state.sampling.buffer {
                    buffer.tell(UNTHROTTLE, now);
                }
            } else {
                self.bell.ring_after(until.wrapping_sub(now));
            }
        }
    }

    /// The bell's part: the timer of a clock or of a storm, or what an NMI could not do.
    /// Interrupts off.
    pub(crate) fn tick(&self, timer: bool) {
        let mut state = self.state.lock();
        if state.sampling.throttled.is_some() {
            let here = match state.target {
                Target::Thread(task) => task == sched::current(),
                Target::Cpu(cpu) => cpu == sched::this_cpu(),
                Target::None | Target::Ended => return,
            };
            if here {
                self.calm(&mut state);
                self.enter_if_it_counts(&mut state);
            }
        } else if timer && state.cpu == Some(sched::this_cpu()) {
            let began = msr::time_stamp();
            self.catch_up(&mut state);
            self.tell(&mut state, nmi::of_interrupt());
            self.go_on(&mut state);
            drop(state);
            let pause = nmi::storm(began);
            if pause != 0 {
                self.throttle(pause);
            }
        }
    }

    /// Tells of all overflows that were seen, and does what is to be done then: how many.
    /// Its values are of now.
    pub(crate) fn tell(&self, state: &mut State, interrupted: Option<Interrupted>) -> u32 {
        // Its own interrupt comes later, and nothing says then whose it is.
        if state.registers.take_turned() != 0 && has_no_status() {
            nmi::expect();
        }
        if !state.registers.has_pending() {
            return 0;
        }
        let pending = state.registers.take_pending();
        let place = nmi::place(interrupted, self.privileged);
        if let Some(pmd) = pending.only() {
            let todo = self.sample(state, pmd, &place);
            self.follow(state, &place, &pending, todo);
            return 1;
        }
        let mut nr = 0u32;
        let mut todo = 0;
        let mut told = Rows::default();
        pending.each(|pmd| {
            nr = nr.wrapping_add(1);
            let wants = self.sample(state, pmd, &place);
            if wants & action::NOTIFY != 0 {
                told.set(pmd);
            }
            todo |= wants;
        });
        if !told.is_empty() {
            todo |= self.notify(state, &place, &told);
        } else if todo & action::WAKE != 0 && state.sampling.queue.is_empty() {
            todo |= self.notify(state, &place, &pending);
        }
        self.act(state, &pending, todo);
        nr
    }

    /// Does what is to be done about PMDs that overflowed.
    #[inline]
    fn follow(&self, state: &mut State, place: &Place, pending: &Rows, mut todo: u32) {
        let wake = todo & action::WAKE != 0 && state.sampling.queue.is_empty();
        if todo & action::NOTIFY != 0 || wake {
            todo |= self.notify(state, place, pending);
        }
        self.act(state, pending, todo);
    }

    /// The same, once it is told.
    #[inline]
    fn act(&self, state: &mut State, pending: &Rows, todo: u32) {
        if todo & action::MASK != 0 {
            state.sampling.ended.add(pending);
            self.mask(state);
            let own = state.target == Target::Thread(sched::current());
            if self.blocks && own && todo & action::NOTIFY != 0 {
                self.bell.block();
            }
        } else {
            self.reset(state, pending, false);
        }
    }

    /// A sample of one PMD: what is to be done. NOTIFY only if it tells of overflows.
    #[inline]
    fn sample(&self, state: &mut State, pmd: u16, place: &Place) -> u32 {
        let State {
            registers,
            sampling,
            thread,
            ..
        } = state;
        let Sampling {
            attrs,
            values,
            buffer,
            ..
        } = sampling;
        let Some(attr) = attrs.iter().find(|attr| attr.pmd == pmd) else {
            return action::RESET;
        };
        let notify = attr.flags & sampling::NOTIFY != 0;
        let Some(buffer) = buffer else {
            return match notify {
                true => action::NOTIFY | action::MASK,
                false => action::RESET,
            };
        };
        let mut nr = 0usize;
        for (value, (number, is_virtual)) in values.iter_mut().zip(attr.values()) {
            nr = nr.wrapping_add(1);
            *value = match is_virtual {
                false => registers.shown(|| self.described().map(), number),
                true => {
                    let map = self.described().map();
                    map.pmd(number).map_or(0, |r| {
                        let control = registers.control_of(&map, r);
                        self.value_now(number, r.address, control, thread.as_ref())
                    })
                }
            };
        }
        let mut flags = 0;
        if notify {
            flags |= description::OVERFLOW_NOTIFY;
        }
        if self.privileged {
            flags |= description::OVERFLOW_KERNEL;
        }
        let values = values.get(..nr).unwrap_or(&[]);
        let wants = buffer.overflow(place, pmd, attr.last, attr.eventid, flags, values);
        match notify {
            true => wants,
            false => wants & !action::NOTIFY,
        }
    }

    /// A message of these PMDs; what else is to be done if there is no room for it.
    #[cold]
    fn notify(&self, state: &mut State, place: &Place, pmds: &Rows) -> u32 {
        let message = Message {
            msg_type: sampling::OVFL,
            msg_ovfl_pid: place.pid,
            msg_active_set: 0,
            msg_ovfl_cpu: place.cpu as u16,
            msg_ovfl_tid: place.tid,
            msg_ovfl_ip: place.ip,
            msg_ovfl_pmds: pmds.numbers(),
        };
        let kept = self.silent || state.sampling.queue.push(&message);
        self.bell.ring();
        match kept {
            true => 0,
            false => action::MASK,
        }
    }

    /// Nothing counts until a restart.
    #[cold]
    fn mask(&self, state: &mut State) {
        if state.cpu.is_some() {
            self.take_out(state);
        }
        self.settle_carried(state);
        // What came meanwhile is not told.
        let more = state.registers.take_pending();
        state.sampling.ended.add(&more);
        state.sampling.masked = true;
    }

    /// PMDs begin another period, and those that go with them.
    #[inline]
    fn reset(&self, state: &mut State, pmds: &Rows, long: bool) {
        let State {
            registers,
            sampling,
            ..
        } = state;
        let mut others = Rows::default();
        let mut one = |pmd| {
            if let Some(attr) = sampling.attr_mut(pmd) {
                let value = attr.next(long);
                others.add(&attr.reset_pmds);
                match long {
                    true => registers.set_value(pmd, value),
                    false => registers.reset(|| self.described().map(), pmd, value),
                }
            }
        };
        match pmds.only() {
            Some(pmd) => one(pmd),
            None => pmds.each(one),
        }
        if others.is_empty() {
            return;
        }
        others.each(|pmd| {
            if !pmds.has(pmd) {
                let value = sampling.attr_mut(pmd).map_or(0, |attr| attr.next(long));
                registers.set_value(pmd, value);
            }
        });
    }

    /// Counters and timers wait for the next overflows, if it is still in the hardware.
    pub(crate) fn go_on(&self, state: &mut State) {
        if state.cpu.is_some() {
            state.registers.rearm(|c| msr::write(c.address, c.start));
            self.set_timer(state);
            state.publish(true);
        }
    }

    /// The timer of clocks that are waited for. Interrupts off; it is in the hardware. In
    /// an NMI there is one already.
    #[inline]
    pub(crate) fn set_timer(&self, state: &mut State) {
        if state.registers.program.clocks && !sched::in_nmi() {
            self.start_timer(state);
        }
    }

    fn start_timer(&self, state: &mut State) {
        if let Some(left) = state.registers.clock_left() {
            // Shorter ones would be all that the processor does.
            self.bell.ring_after(left.max(10_000));
        }
    }

    /// Goes on after a notification.
    pub(crate) fn restart(&self) -> Result {
        let mut done = Ok(Target::None);
        self.call(&mut |state| {
            let active = match &state.sampling.buffer {
                Some(buffer) => buffer.format().restarts_active(),
                None => false,
            };
            done = match (state.target, state.sampling.masked) {
                (Target::None, _) => Err(Error::NotMasked),
                (_, false) if !active => Err(Error::NotMasked),
                (Target::Ended, _) => Err(Error::Ended),
                (target, _) => Ok(target),
            };
            self.bell.let_go();
            if done.is_err() {
                return;
            }
            let todo = match &mut state.sampling.buffer {
                Some(buffer) => buffer.restart(),
                None => 0,
            };
            if !state.sampling.masked {
                done = Ok(Target::None);
                return;
            }
            let ended = core::mem::take(&mut state.sampling.ended);
            self.reset(state, &ended, true);
            if todo & action::MASK == 0 {
                state.sampling.masked = false;
                if state.started {
                    self.set_out_carried(state);
                }
                if let Target::Cpu(_) = state.target {
                    self.enter_if_it_counts(state);
                }
            }
        })
        .map_err(refused)?;
        self.bell.go();
        if let Target::Thread(task) = done.map_err(refused)? {
            self.find_running(task);
        }
        Ok(())
    }

    /// Its thread has ended: who monitors another one is told.
    pub(crate) fn tell_end(&self, state: &mut State) {
        if !state.sampling.own {
            let message = Message {
                msg_type: sampling::END,
                ..Message::default()
            };
            state.sampling.queue.push(&message);
        }
        self.bell.ring();
    }

    /// The oldest message.
    pub(crate) fn message(&self) -> Option<Message> {
        self.state.lock().sampling.queue.pop()
    }

    /// Is there one?
    pub(crate) fn has_message(&self) -> bool {
        !self.state.lock().sampling.queue.is_empty()
    }

    /// Holds its ring, or lets it go on.
    pub(crate) fn pause(&self, paused: bool) -> Result {
        let state = self.state.lock();
        state.sampling.buffer.as_ref().ok_or(EINVAL)?.pause(paused)
    }

    /// Room for the attributes of so many more PMDs.
    pub(crate) fn make_room(&self, more: usize) -> Result {
        loop {
            let nr = self.state.lock().sampling.len();
            let larger = KVec::with_capacity(nr.saturating_add(more), GFP_KERNEL_ACCOUNT)?;
            let mut state = self.state.lock();
            if state.sampling.len() == nr {
                let old = state.sampling.grow(larger);
                // Freed without the lock.
                drop(state);
                drop(old);
                return Ok(());
            }
            drop(state);
        }
    }
}
