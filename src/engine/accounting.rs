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

mod span;
mod task;

pub use task::{Bounds, Read, Task, Values};

use crate::sync::{fence_acquire, fence_release, Word};
use span::{above, above_63, tried, turn, Changes, Since, Span};

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

/// A CPU's words. It alone writes them; in interrupts only the functions that are for those.
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
    /// the idle task. After [`begin_switch`](Self::begin_switch), and [`Task::comes`] of the other
    /// one. Interrupts off.
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
            Some(task) => task.come(cpu, bounds, now),
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

    /// What is done here since before a clock was read: that comes first. `None`: a call that
    /// has read the clock, too, is just about to say so. Its time would be told twice.
    #[inline]
    fn mode_now(&self) -> Option<u64> {
        let is_quiet = !self.is_looked_at();
        // Acquire: with the release in `call`, of the time since when.
        let mode = self.mode.load_acquire();
        is_quiet.then_some(mode)
    }

    /// Was what runs here interrupted where [`replace`](Self::replace) or
    /// [`begin`](Self::begin) would be wrong? In an interrupt on it.
    pub fn is_looked_at(&self) -> bool {
        self.looking.load_acquire() != 0
    }

    /// A hard interrupt begins, or the next handler of one. Interrupts off.
    #[inline]
    pub fn interrupt(&self, is_first: bool, clock: impl Fn() -> u64) {
        add(&self.count, is_first.into());
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
            match self.mode_now()? {
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
            // D: pairs with the release in `Span::begin`.
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
