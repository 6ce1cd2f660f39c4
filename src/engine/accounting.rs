// SPDX-License-Identifier: GPL-2.0

//! Process accounting: where the time of each task and CPU goes, from time stamps.
//!
//! Whatever happens on a CPU is written down by that CPU: in the task's context with
//! preemption off, in interrupts, in the scheduler. Nobody turns interrupts off for it:
//! interrupts have words of their own, which whoever they interrupt only reads.
//!
//! A task's *own* time is what passes between its switch in and its switch out, without
//! interrupts; a CPU's times are those of its tasks. So user, system, interrupts and idle
//! of a CPU are all of the time between two readings, whatever is between them.
//!
//! ```text
//!   own = now - run - (interrupts - interrupts then)      since the switch in
//!   system += own - own at the call                       at a call's end, or a switch
//! ```
//!
//! Readers are elsewhere and do not disturb: each change of several words counts in
//! `begins`, and then in `ends`, which agree in what was read whole.

use core::array::from_fn;
use core::num::NonZeroU32;
use core::ops::Deref;

use crate::sync::{fence_acquire, fence_release, Word};

/// Values of a task for each group of CPUs: `PPA_*`.
pub const NR_VALUES: usize = 11;
/// Values of a CPU: `PPA_CPU_*`.
pub const NR_CPU_VALUES: usize = 18;
/// Lengths of latencies that are told apart.
pub const NR_LATENCIES: usize = 8;
/// Signals, 0 included.
pub const NR_SIGNALS: usize = 65;

/// Indices of a task's values.
pub mod value {
    #![allow(missing_docs, reason = "documented in the C header")]
    pub const SCHED: usize = 0;
    pub const SYSTEM: usize = 1;
    pub const INTERRUPTS: usize = 2;
    pub const RESCHEDULED: usize = 3;
    pub const BLOCKED: usize = 4;
    pub const EXPIRED: usize = 5;
    pub const PREEMPTED: usize = 6;
    pub const LATENCY: usize = 7;
    pub const CALLS: usize = 8;
    pub const INTERRUPT_COUNT: usize = 9;
    pub const SWITCHING: usize = 10;
}

/// Softirqs that `/proc/rawsysppa` tells apart, by the kernel's number: HI, TASKLET,
/// TIMER, NET_TX, NET_RX.
const SHOWN: [usize; 5] = [0, 6, 1, 2, 3];
/// Softirqs of the kernel.
const NR_SOFTIRQS: usize = 10;

#[inline(always)]
fn add(word: &Word, more: u64) {
    word.store_relaxed(word.load_relaxed().wrapping_add(more));
}

/// How a task leaves its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It waits, or ends.
    Blocked,
    /// Another task's turn.
    Expired,
    /// A more urgent one came.
    Preempted,
}

/// What runs on a CPU.
const USER: u64 = 0;
const SYSTEM: u64 = 1;
const IDLE: u64 = 2;

/// Changes of several words that are read as one.
#[derive(Default)]
struct Changes {
    begins: Word,
    ends: Word,
}

impl Changes {
    #[inline(always)]
    fn begin(&self) {
        add(&self.begins, 1);
        // The reader's fence: who sees a new word sees this one.
        fence_release();
    }

    #[inline(always)]
    fn end(&self) {
        // The reader's acquire: who sees this sees all new words.
        let ends = self.ends.load_relaxed().wrapping_add(1);
        self.ends.store_release(ends);
    }

    /// To read from here on.
    fn start(&self) -> u64 {
        self.ends.load_acquire()
    }

    /// Was what was read since then read whole? After a fence.
    fn is_whole(&self, start: u64) -> bool {
        self.begins.load_relaxed() == start
    }
}

/// How often a reader tries before it lets others run: the writer may have lost its
/// processor in between.
const TRIES: u32 = 1000;

/// Tries until it succeeds; not for ever.
fn tried<T>(mut read: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..TRIES {
        if let Some(found) = read() {
            return Some(found);
        }
        core::hint::spin_loop();
    }
    None
}

/// Interrupt time in one word, so that it is always whole: twice the sum of ends minus
/// beginnings, and whether one is on.
#[derive(Default)]
struct Span(Word);

impl Span {
    #[inline(always)]
    fn is_on(&self) -> bool {
        self.0.load_relaxed() & 1 != 0
    }

    /// What has been, up to now: 63 bits.
    #[inline(always)]
    fn total(&self, now: u64) -> u64 {
        let word = self.0.load_relaxed();
        let on = word & 1;
        (word >> 1).wrapping_add(now.wrapping_mul(on)) & (u64::MAX >> 1)
    }

    /// The same, and a time that it is of: where interrupts come.
    #[inline(always)]
    fn total_now(&self, clock: &impl Fn() -> u64) -> (u64, u64) {
        loop {
            let before = self.0.load_relaxed();
            let now = clock();
            let total = self.total(now);
            if self.0.load_relaxed() == before {
                return (now, total);
            }
        }
    }

    /// Begins or ends.
    #[inline(always)]
    fn turn(word: u64, now: u64) -> u64 {
        match word & 1 {
            0 => (word >> 1).wrapping_sub(now).wrapping_shl(1) | 1,
            _ => (word >> 1).wrapping_add(now).wrapping_shl(1),
        }
    }
}

/// Interrupts' time at the beginning of a turn; of one that has not begun, what it never is.
struct Since(Word);

impl Default for Since {
    fn default() -> Self {
        Self(Word::new(u64::MAX))
    }
}

/// A CPU's words. It alone writes them, and only the functions of `Interrupts` in
/// interrupts.
#[derive(Default)]
#[repr(C)]
pub struct Cpu {
    changes: Changes,
    /// `USER`, `SYSTEM`, `IDLE`.
    mode: Word,
    /// Own time of this turn when that began.
    mode_own: Word,
    /// When this turn began, and how much interrupts had had then, twice: as their word has
    /// it while none is on.
    run: Word,
    run_span: Since,
    run_count: Word,
    /// Ticks that are over: of all tasks; of that in system calls; of the idle task.
    all: Word,
    system: Word,
    idle: Word,
    calls: Word,
    /// It is going, or gone.
    away: Word,
    /// A call's probe is at work.
    looking: Word,
    /// Interrupts: time, in softirqs too; a time for that is taken, and not written yet; how
    /// deep inside; hard ones, their time.
    span: Span,
    turning: Word,
    depth: Word,
    count: Word,
    hard: Span,
    hard_depth: Word,
    /// The softirq that is on: its number and one, above that whether its time is that of
    /// interrupts; when it began.
    softirq: Word,
    softirq_since: Word,
    softirq_hard: Word,
    softirq_time: [Word; NR_SOFTIRQS],
    softirq_count: [Word; NR_SOFTIRQS],
}

/// What a later number is above an earlier one; clocks of two CPUs may differ a little.
#[inline(always)]
fn above(later: u64, earlier: u64) -> u64 {
    match later.wrapping_sub(earlier) as i64 {
        ticks if ticks < 0 => 0,
        ticks => ticks as u64,
    }
}

/// The same of 63 bits.
#[inline(always)]
fn above_63(later: u64, earlier: u64) -> u64 {
    above(later.wrapping_shl(1), earlier.wrapping_shl(1)) >> 1
}

/// Of a turn: ticks without interrupts, and those of interrupts.
#[derive(Clone, Copy)]
struct Turn {
    own: u64,
    interrupts: u64,
}

impl Cpu {
    /// This turn, up to now; `total` of its interrupts.
    #[inline(always)]
    fn turn(&self, now: u64, total: u64) -> Turn {
        let interrupts = above(total.wrapping_shl(1), self.run_span.0.load_relaxed()) >> 1;
        Turn {
            own: self.own(now, interrupts),
            interrupts,
        }
    }

    /// Of this turn, without interrupts.
    #[inline(always)]
    fn own(&self, now: u64, interrupts: u64) -> u64 {
        match self.run.load_relaxed() {
            // It has not begun.
            0 => 0,
            run => above(now, run.wrapping_add(interrupts)),
        }
    }

    /// The same in the task's own context, where interrupts come: of one moment.
    #[inline(always)]
    fn own_now(&self, clock: impl Fn() -> u64) -> u64 {
        let (now, total) = self.span.total_now(&clock);
        self.turn(now, total).own
    }

    /// Has accounting begun here, by a switch or by [`begin`](Self::begin)?
    pub fn has_begun(&self) -> bool {
        self.run.load_relaxed() != 0
    }

    /// Accounting begins here, with what runs. Interrupts off.
    pub fn begin(&self, idle: bool, now: u64) {
        self.changes.begin();
        self.mode.store_relaxed(if idle { IDLE } else { USER });
        self.start_turn(now);
        self.changes.end();
    }

    #[inline(always)]
    fn start_turn(&self, now: u64) {
        self.mode_own.store_relaxed(0);
        self.run.store_relaxed(now);
        self.start_interrupts(now);
    }

    #[inline(always)]
    fn start_interrupts(&self, now: u64) {
        let total = self.span.total(now);
        self.run_span.0.store_relaxed(total.wrapping_shl(1));
        self.run_count.store_relaxed(self.count.load_relaxed());
    }

    /// It goes, or is back: what it does in between is not counted as idle.
    pub fn set_away(&self, away: bool) {
        self.away.store_relaxed(away.into());
    }

    /// It is off: of its last switches, to the idle task, the kernel does not tell, so what
    /// ran last would run on. From another CPU, when this one does nothing any more.
    pub fn die<V: Values>(&self, cpu: u32, last: Option<&Task<V>>, now: u64) {
        self.set_away(true);
        self.begin_switch();
        let bounds = Bounds::default();
        self.switch(cpu, (last, Leave::Blocked), (None, &bounds), || true, now);
    }

    /// A switch begins, for readers: the time that is taken then is later than any that they
    /// have told of. Interrupts off.
    #[inline(always)]
    pub fn begin_switch(&self) {
        self.changes.begin();
    }

    /// How long this turn is, if it has begun, no interrupt came since and no clock went back:
    /// then nothing else has to be worked out. Interrupts off.
    #[inline(always)]
    pub fn quiet_turn(&self, now: u64) -> Option<u64> {
        let run = self.run.load_relaxed();
        let quiet = self.span.0.load_relaxed() == self.run_span.0.load_relaxed()
            && self.count.load_relaxed() == self.run_count.load_relaxed();
        match quiet {
            true => now.checked_sub(run),
            false => None,
        }
    }

    /// From one task, and why it leaves, to another; `None`: one that is not accounted, or
    /// the idle task. After [`begin_switch`](Self::begin_switch). Interrupts off.
    #[inline]
    pub fn switch<V: Values>(
        &self,
        cpu: u32,
        prev: (Option<&Task<V>>, Leave),
        next: (Option<&Task<V>>, &Bounds),
        next_idle: impl FnOnce() -> bool,
        now: u64,
    ) {
        let interrupts = self.interrupted(prev.0, now);
        let own = self.own(now, interrupts);
        self.switch_quiet(own, cpu, prev, next, next_idle, now);
    }

    /// The same after a [`quiet_turn`](Self::quiet_turn), in fewer instructions.
    ///
    /// A task's words change in parts, each between its own two counts; this CPU's two are
    /// around all of them, and who reads a task that runs looks at both.
    #[inline(always)]
    pub fn switch_quiet<V: Values>(
        &self,
        own: u64,
        cpu: u32,
        (prev, leave): (Option<&Task<V>>, Leave),
        (next, bounds): (Option<&Task<V>>, &Bounds),
        next_idle: impl FnOnce() -> bool,
        now: u64,
    ) {
        let calling = self.end_turn(own, prev);
        if let Some(task) = prev {
            task.changes.begin();
            task.leave(calling, own, leave, now);
            task.changes.end();
        }
        let mode = match next {
            Some(task) => {
                task.changes.begin();
                let mode = task.come(cpu, bounds, now);
                task.changes.end();
                mode
            }
            None if next_idle() => IDLE,
            None => USER,
        };
        self.mode.store_relaxed(mode);
        self.mode_own.store_relaxed(0);
        self.run.store_relaxed(now);
        self.changes.end();
    }

    /// A turn is this CPU's, and its last call the task's: is that in one?
    #[inline(always)]
    fn end_turn<V: Values>(&self, own: u64, task: Option<&Task<V>>) -> u64 {
        add(&self.all, own);
        match self.mode.load_relaxed() {
            USER => 0,
            SYSTEM => {
                let called = own.wrapping_sub(self.mode_own.load_relaxed());
                add(&self.system, called);
                if let Some(task) = task {
                    task.add(value::SYSTEM, called);
                }
                1
            }
            _ => {
                match self.away.load_relaxed() {
                    0 => add(&self.idle, own),
                    _ => add(&self.all, own.wrapping_neg()),
                }
                0
            }
        }
    }

    /// What interrupts had of this turn, which is over; the next one's begins.
    #[inline(always)]
    fn interrupted<V: Values>(&self, task: Option<&Task<V>>, now: u64) -> u64 {
        let interrupts = self.turn(now, self.span.total(now)).interrupts;
        let count = self.count.load_relaxed();
        let count = count.wrapping_sub(self.run_count.load_relaxed());
        self.start_interrupts(now);
        if let Some(task) = task {
            task.add(value::INTERRUPTS, interrupts);
            task.add(value::INTERRUPT_COUNT, count);
        }
        interrupts
    }

    /// The task that runs here has other words from now on, or none. After
    /// [`begin_switch`](Self::begin_switch). Interrupts off.
    pub fn replace<V: Values>(&self, cpu: u32, task: Option<&Task<V>>, now: u64) {
        let interrupts = self.interrupted(None::<&Task<V>>, now);
        let _ = self.end_turn(self.own(now, interrupts), None::<&Task<V>>);
        if let Some(task) = task {
            task.adopt(cpu, now);
        }
        self.mode_own.store_relaxed(0);
        self.run.store_relaxed(now);
        self.changes.end();
    }

    /// The scheduler is done, and this task runs. Preemption off.
    #[inline(always)]
    pub fn switched<V: Values>(&self, task: &Task<V>, other: bool, now: u64) {
        let Some(values) = task.part() else { return };
        match other {
            true => add(
                &values[value::SWITCHING],
                above(now, self.run.load_relaxed()),
            ),
            false => add(&values[value::RESCHEDULED], 1),
        }
    }

    /// A system call begins. The task's context, preemption off.
    #[inline]
    pub fn call<V: Values>(&self, task: Option<&Task<V>>, clock: impl Fn() -> u64) {
        self.look();
        self.mode_own.store_relaxed(self.own_now(clock));
        // Release: who reads this mode reads that time, or a later one.
        self.mode.store_release(SYSTEM);
        add(&self.calls, 1);
        if let Some(values) = task.and_then(Task::part) {
            add(&values[value::CALLS], 1);
        }
        self.looked();
    }

    /// It returns.
    #[inline]
    pub fn call_ends<V: Values>(&self, task: Option<&Task<V>>, clock: impl Fn() -> u64) {
        if self.mode.load_relaxed() != SYSTEM {
            return;
        }
        self.look();
        // Of the task, too: who reads one that runs reads its CPU.
        self.changes.begin();
        let own = self.own_now(clock);
        let called = own.wrapping_sub(self.mode_own.load_relaxed());
        if let Some(values) = task.and_then(Task::part) {
            add(&values[value::SYSTEM], called);
        }
        add(&self.system, called);
        self.mode.store_relaxed(USER);
        self.changes.end();
        self.looked();
    }

    /// A call's words are looked at, and must not be changed by an interrupt here.
    #[inline(always)]
    fn look(&self) {
        self.looking.store_relaxed(1);
        // Of this CPU's own interrupts: in the order of the program.
        fence_release();
    }

    #[inline(always)]
    fn looked(&self) {
        self.looking.store_release(0);
    }

    /// Was what runs here interrupted where [`replace`](Self::replace) or
    /// [`begin`](Self::begin) would be wrong? In an interrupt on it.
    pub fn is_looked_at(&self) -> bool {
        self.looking.load_acquire() != 0
    }

    /// A hard interrupt begins. Interrupts off.
    #[inline]
    pub fn interrupt(&self, clock: impl Fn() -> u64) {
        add(&self.count, 1);
        add(&self.turning, 1);
        let now = clock();
        match self.span.is_on() {
            true => add(&self.depth, 1),
            false => turn(&self.span, now),
        }
        self.turned();
        match self.hard.is_on() {
            true => add(&self.hard_depth, 1),
            false => turn(&self.hard, now),
        }
    }

    /// It is over.
    #[inline]
    pub fn interrupt_ends(&self, clock: impl Fn() -> u64) {
        if !self.hard.is_on() {
            return;
        }
        add(&self.turning, 1);
        let now = clock();
        match self.hard_depth.load_relaxed() {
            0 => turn(&self.hard, now),
            depth => self.hard_depth.store_relaxed(depth.wrapping_sub(1)),
        }
        match self.depth.load_relaxed() {
            0 => turn(&self.span, now),
            depth => self.depth.store_relaxed(depth.wrapping_sub(1)),
        }
        self.turned();
    }

    /// The time that was taken is written.
    #[inline(always)]
    fn turned(&self) {
        // Release: with the acquire in `settled`, who sees this sees the word.
        let turning = self.turning.load_relaxed().wrapping_sub(1);
        self.turning.store_release(turning);
    }

    /// Interrupts' time, and a time that it is of, from anywhere. `None`: one just begins or
    /// ends. So no time is told that an interrupt's stamp turns out to be earlier than.
    fn settled(&self, clock: &impl Fn() -> u64) -> Option<(u64, u64)> {
        let turning = self.turning.load_acquire();
        let before = self.span.0.load_relaxed();
        let now = clock();
        let total = self.span.total(now);
        fence_acquire();
        let turning = turning | self.turning.load_relaxed();
        (turning == 0 && self.span.0.load_relaxed() == before).then_some((now, total))
    }

    /// A softirq begins; `own`: of a thread that is there for it, whose time it is.
    #[inline]
    pub fn softirq(&self, number: usize, own: bool, clock: impl Fn() -> u64) {
        if !own {
            self.try_turn(&clock, 0);
        }
        // Whose time it is, too: what runs here may get other words before its end.
        let ours = u64::from(!own).wrapping_shl(32);
        self.softirq
            .store_relaxed(number.wrapping_add(1) as u64 | ours);
        let (now, hard) = self.hard.total_now(&clock);
        self.softirq_since.store_relaxed(now);
        self.softirq_hard.store_relaxed(hard);
    }

    /// It is over.
    #[inline]
    pub fn softirq_ends(&self, clock: impl Fn() -> u64) {
        let on = self.softirq.load_relaxed();
        let number = (on as u32 as usize).wrapping_sub(1);
        let words = (
            self.softirq_time.get(number),
            self.softirq_count.get(number),
        );
        if let (Some(time), Some(count)) = words {
            let (now, hard) = self.hard.total_now(&clock);
            let inside = above_63(hard, self.softirq_hard.load_relaxed());
            add(
                time,
                above(now, self.softirq_since.load_relaxed().wrapping_add(inside)),
            );
            add(count, 1);
            self.softirq.store_relaxed(0);
        }
        if on >> 32 != 0 {
            self.try_turn(&clock, 1);
        }
    }

    /// Enters or leaves where interrupts come: those that came between are not
    /// written over.
    #[inline(always)]
    fn try_turn(&self, clock: &impl Fn() -> u64, on: u64) {
        add(&self.turning, 1);
        loop {
            let word = self.span.0.load_relaxed();
            let depth = self.depth.load_relaxed();
            if on == 0 && word & 1 != 0 {
                add(&self.depth, 1);
            } else if on == 1 && depth != 0 {
                self.depth.store_relaxed(depth.wrapping_sub(1));
            } else if word & 1 == on && !self.span.0.replace(word, Span::turn(word, clock())) {
                continue;
            }
            break;
        }
        self.turned();
    }

    /// All values up to now, from anywhere; `online`: it is there. `None`: it is just being
    /// changed. The clock is read after what it is to be later than.
    pub fn values(&self, online: bool, clock: impl Fn() -> u64) -> Option<[u64; NR_CPU_VALUES]> {
        let mut all = tried(|| {
            let start = self.changes.start();
            let (now, total) = self.settled(&clock)?;
            let own = self.turn(now, total).own;
            let mut idle = self.idle.load_relaxed();
            let mut busy = self.all.load_relaxed().wrapping_sub(idle);
            let mut system = self.system.load_relaxed();
            match self.mode.load_acquire() {
                IDLE if online && self.away.load_relaxed() == 0 => idle = idle.wrapping_add(own),
                IDLE => {}
                mode => {
                    busy = busy.wrapping_add(own);
                    if mode == SYSTEM {
                        let since = self.mode_own.load_relaxed();
                        system = system.wrapping_add(own.saturating_sub(since));
                    }
                }
            }
            let mut all = [0; NR_CPU_VALUES];
            all[0] = busy.saturating_sub(system);
            all[1] = system;
            all[2] = total;
            all[3] = idle;
            all[4] = self.calls.load_relaxed();
            all[5] = self.count.load_relaxed();
            fence_acquire();
            self.changes.is_whole(start).then_some(all)
        })?;
        for (time, count) in self.softirq_time.iter().zip(&self.softirq_count) {
            all[6] = all[6].wrapping_add(time.load_relaxed());
            all[7] = all[7].wrapping_add(count.load_relaxed());
        }
        let mut rest = all.iter_mut().skip(8);
        for number in SHOWN {
            for words in [&self.softirq_time, &self.softirq_count] {
                if let (Some(to), Some(word)) = (rest.next(), words.get(number)) {
                    *to = word.load_relaxed();
                }
            }
        }
        Some(all)
    }
}

#[inline(always)]
fn turn(span: &Span, now: u64) {
    let word = span.0.load_relaxed();
    span.0.store_relaxed(Span::turn(word, now));
}

/// Where the values of a task are: [`NR_VALUES`] for each group of CPUs.
pub trait Values: Deref<Target = [Word]> {}
impl<T: Deref<Target = [Word]>> Values for T {}

/// Where one length of latencies ends and the next begins, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds([u64; NR_LATENCIES - 1]);

impl Bounds {
    /// For a clock of so many ticks a millisecond.
    pub const fn new(khz: u64) -> Self {
        Self([
            khz / 100,
            khz / 10,
            khz,
            khz.wrapping_mul(10),
            khz.wrapping_mul(100),
            khz.wrapping_mul(1_000),
            khz.wrapping_mul(10_000),
        ])
    }

    /// Which of them is this?
    #[inline(always)]
    pub fn place(&self, ticks: u64) -> usize {
        let mut place = 0usize;
        for bound in &self.0 {
            if ticks < *bound {
                break;
            }
            place = place.wrapping_add(1);
        }
        place
    }
}

/// A task's words. The CPU that it runs on writes them; whoever wakes it, `woken`.
#[repr(C)]
pub struct Task<V> {
    changes: Changes,
    /// The CPU that it is on, and one; 0: none. The one that it was on last, as well.
    on: Word,
    last: Word,
    /// In a system call, when it left its CPU.
    calling: Word,
    woken: Word,
    ready: Word,
    runq: Word,
    began: Word,
    over: Word,
    /// CPUs of a group; where the values of the group are that it is in.
    scaling: NonZeroU32,
    part: Word,
    /// Are latencies told apart?
    told_apart: Word,
    latencies: [Word; NR_LATENCIES],
    signals: [Word; NR_SIGNALS],
    values: V,
}

fn add_all(sums: &mut [u64; NR_VALUES], more: &[u64; NR_VALUES]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum = sum.wrapping_add(*more);
    }
}

/// What a task has had.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Of all CPUs.
    pub values: [u64; NR_VALUES],
    /// Ready to run, but not since a wakeup.
    pub runq: u64,
    /// Since it is accounted.
    pub counted: u64,
    /// Of each length.
    pub latencies: [u64; NR_LATENCIES],
    /// Where it ran last.
    pub cpu: u32,
    /// It is there now.
    pub running: bool,
}

impl<V: Values> Task<V> {
    /// A task with values that are 0, as many as there are groups of so many CPUs.
    pub fn new(values: V, scaling: u32) -> Self {
        Self {
            changes: Changes::default(),
            on: Word::new(0),
            last: Word::new(0),
            calling: Word::new(0),
            woken: Word::new(0),
            ready: Word::new(0),
            runq: Word::new(0),
            began: Word::new(0),
            over: Word::new(0),
            scaling: NonZeroU32::new(scaling).unwrap_or(NonZeroU32::MIN),
            part: Word::new(0),
            told_apart: Word::new(0),
            latencies: from_fn(|_| Word::new(0)),
            signals: from_fn(|_| Word::new(0)),
            values,
        }
    }

    /// It is accounted from now on. `calling`: its first return to user mode is from a
    /// system call.
    pub fn set_out(&self, calling: bool, told_apart: bool, now: u64) {
        self.calling.store_relaxed(calling.into());
        self.told_apart.store_relaxed(told_apart.into());
        self.began.store_relaxed(now);
    }

    /// It was found in a system call, and does not run.
    pub fn set_calling(&self) {
        if self.on.load_relaxed() == 0 {
            self.calling.store_relaxed(1);
        }
    }

    /// The values of the group of CPUs that it is in.
    #[inline(always)]
    fn part(&self) -> Option<&[Word; NR_VALUES]> {
        // Of 32 bits, so that one comparison is enough.
        let from = self.part.load_relaxed() as u32 as usize;
        let values = self.values.get(from..from.wrapping_add(NR_VALUES))?;
        values.first_chunk()
    }

    /// Adds to a value, of a task that runs. Within its CPU's changes.
    #[inline(always)]
    fn add(&self, index: usize, more: u64) {
        if let Some(word) = self.part().and_then(|values| values.get(index)) {
            self.changes.begin();
            add(word, more);
            self.changes.end();
        }
    }

    #[inline(always)]
    fn enter(&self, cpu: u32) {
        let on = u64::from(cpu).wrapping_add(1);
        self.on.store_relaxed(on);
        if self.last.load_relaxed() != on {
            self.last.store_relaxed(on);
            let part = (cpu / self.scaling).wrapping_mul(NR_VALUES as u32);
            self.part.store_relaxed(part.into());
        }
    }

    /// It already runs, on that CPU. Interrupts off there.
    pub fn adopt(&self, cpu: u32, now: u64) {
        self.changes.begin();
        self.enter(cpu);
        self.woken.store_relaxed(0);
        self.ready.store_relaxed(0);
        self.began.store_relaxed(now);
        self.changes.end();
    }

    #[inline(always)]
    fn leave(&self, calling: u64, own: u64, leave: Leave, now: u64) {
        self.calling.store_relaxed(calling);
        self.on.store_relaxed(0);
        if let Some(values) = self.part() {
            add(&values[value::SCHED], own);
            let why = match leave {
                Leave::Blocked => value::BLOCKED,
                Leave::Expired => value::EXPIRED,
                Leave::Preempted => value::PREEMPTED,
            };
            add(&values[why], 1);
        }
        if leave != Leave::Blocked {
            self.ready.store_relaxed(now);
        }
    }

    /// In which mode is it? `USER` or `SYSTEM`, as `calling` has it.
    #[inline(always)]
    fn come(&self, cpu: u32, bounds: &Bounds, now: u64) -> u64 {
        self.enter(cpu);
        let woken = self.woken.load_relaxed();
        if woken != 0 {
            let latency = now.saturating_sub(woken);
            if let Some(values) = self.part() {
                add(&values[value::LATENCY], latency);
            }
            if self.told_apart.load_relaxed() != 0 {
                if let Some(word) = self.latencies.get(bounds.place(latency)) {
                    add(word, 1);
                }
            }
            self.woken.store_relaxed(0);
        } else {
            let ready = self.ready.load_relaxed();
            if ready != 0 {
                add(&self.runq, now.saturating_sub(ready));
            }
        }
        self.ready.store_relaxed(0);
        self.calling.load_relaxed()
    }

    /// It was woken, by anybody.
    #[inline(always)]
    pub fn wake(&self, now: u64) {
        if self.on.load_relaxed() == 0 {
            self.woken.store_relaxed(now);
        }
    }

    /// A signal was delivered to it.
    #[inline]
    pub fn signal(&self, number: usize) {
        if let Some(word) = self.signals.get(number) {
            add(word, 1);
        }
    }

    /// It is no more.
    #[inline]
    pub fn end(&self, now: u64) {
        self.over.store_relaxed(now);
    }

    /// How many of a signal it got.
    pub fn signals(&self, number: usize) -> u32 {
        self.signals
            .get(number)
            .map_or(0, |word| word.load_relaxed() as u32)
    }

    /// Are latencies told apart?
    pub fn tells_latencies(&self) -> bool {
        self.told_apart.load_relaxed() != 0
    }

    /// From now on they are, or not.
    pub fn tell_latencies(&self, on: bool) {
        self.told_apart.store_relaxed(on.into());
    }

    /// Groups of CPUs whose values are apart.
    pub fn nr_groups(&self) -> usize {
        self.values.len() / NR_VALUES
    }

    /// What it has had up to now, from anywhere; `cpu` finds a CPU's words. `None`: it is
    /// just being changed.
    pub fn read<'a>(
        &self,
        clock: impl Fn() -> u64,
        cpu: impl Fn(u32) -> Option<&'a Cpu>,
    ) -> Option<Read> {
        self.read_groups(clock, cpu, &mut [])
    }

    /// The same, and the values of each group of CPUs.
    pub fn read_groups<'a>(
        &self,
        clock: impl Fn() -> u64,
        cpu: impl Fn(u32) -> Option<&'a Cpu>,
        groups: &mut [[u64; NR_VALUES]],
    ) -> Option<Read> {
        tried(|| {
            let start = self.changes.start();
            let live = match self.on.load_relaxed() {
                0 => None,
                on => cpu(on.wrapping_sub(1) as u32),
            };
            let start_there = live.map_or(0, |cpu| cpu.changes.start());
            let read = self.read_once(&clock, live, groups)?;
            fence_acquire();
            let whole = self.changes.is_whole(start)
                && live.is_none_or(|cpu| cpu.changes.is_whole(start_there));
            whole.then_some(read)
        })
    }

    fn read_once(
        &self,
        clock: &impl Fn() -> u64,
        live: Option<&Cpu>,
        apart: &mut [[u64; NR_VALUES]],
    ) -> Option<Read> {
        let on = self.on.load_relaxed();
        let (now, total) = match live {
            Some(cpu) => cpu.settled(clock)?,
            None => (clock(), 0),
        };
        let mut read = Read {
            values: [0; NR_VALUES],
            runq: self.runq.load_relaxed(),
            counted: 0,
            latencies: [0; NR_LATENCIES],
            cpu: (self.last.load_relaxed() as u32).saturating_sub(1),
            running: on != 0,
        };
        let over = match self.over.load_relaxed() {
            0 => now,
            over => over,
        };
        read.counted = over.saturating_sub(self.began.load_relaxed());
        for (to, word) in read.latencies.iter_mut().zip(&self.latencies) {
            *to = word.load_relaxed();
        }
        let mut groups: &[Word] = &self.values;
        let mut to = apart.iter_mut();
        while let Some((words, others)) = groups.split_first_chunk::<NR_VALUES>() {
            let values = from_fn(|n| words.get(n).map_or(0, Word::load_relaxed));
            if let Some(to) = to.next() {
                *to = values;
            }
            add_all(&mut read.values, &values);
            groups = others;
        }
        if let Some(cpu) = live {
            let mut more = [0u64; NR_VALUES];
            let turn = cpu.turn(now, total);
            more[value::SCHED] = turn.own;
            if cpu.mode.load_acquire() == SYSTEM {
                more[value::SYSTEM] = turn.own.saturating_sub(cpu.mode_own.load_relaxed());
            }
            more[value::INTERRUPTS] = turn.interrupts;
            let count = cpu.count.load_relaxed();
            more[value::INTERRUPT_COUNT] = count.wrapping_sub(cpu.run_count.load_relaxed());
            add_all(&mut read.values, &more);
            let group = self.part.load_relaxed() as usize / NR_VALUES;
            if let Some(values) = apart.get_mut(group) {
                add_all(values, &more);
            }
        }
        // Ready, and not on a CPU yet.
        if on == 0 && self.over.load_relaxed() == 0 {
            let (woken, ready) = (self.woken.load_relaxed(), self.ready.load_relaxed());
            if woken == 0 && ready != 0 {
                read.runq = read.runq.wrapping_add(now.saturating_sub(ready));
            }
        }
        Some(read)
    }
}
