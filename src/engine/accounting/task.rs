// SPDX-License-Identifier: GPL-2.0

//! A task's words, and what is read of them.

use core::array::from_fn;
use core::num::NonZeroU32;
use core::ops::Deref;

use super::span::{above, tried, Changes};
use super::{add, value, Cpu, Leave, NR_LATENCIES, NR_SIGNALS, NR_VALUES, SYSTEM};
use crate::sync::{fence_acquire, Word};

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

/// A task's words. The CPU that it runs on writes them; whoever wakes it, `since`.
#[repr(C)]
pub struct Task<V> {
    pub(super) changes: Changes,
    /// The CPU that it is on, and one; 0: none. The one that it was on last, as well.
    on: Word,
    last: Word,
    /// In a system call, when it left its CPU.
    calling: Word,
    /// Since when it waits to run, and why: [`stamp`]; 0: it does not, as far as was told.
    since: Word,
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

/// Why a task waits to run, in the two bits below the time since when: it had to leave its CPU.
const READY: u64 = 1;
/// It was woken before it had left its CPU: it may sleep.
const WOKEN_MAYBE: u64 = 2;
/// It was woken.
const WOKEN: u64 = 3;

#[inline(always)]
fn stamp(now: u64, why: u64) -> u64 {
    now.wrapping_shl(2) | why
}

/// Ticks since a stamp.
#[inline(always)]
fn waited(now: u64, since: u64) -> u64 {
    above(stamp(now, 3), since) >> 2
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
            since: Word::new(0),
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
    pub(super) fn part(&self) -> Option<&[Word; NR_VALUES]> {
        // Of 32 bits, so that one comparison is enough.
        let from = self.part.load_relaxed() as u32 as usize;
        let values = self.values.get(from..from.wrapping_add(NR_VALUES))?;
        values.first_chunk()
    }

    /// Adds to a value, of a task that runs. Within its CPU's changes.
    #[inline(always)]
    pub(super) fn add(&self, index: usize, more: u64) {
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
        self.since.store_relaxed(0);
        self.began.store_relaxed(now);
        self.changes.end();
    }

    #[inline(always)]
    pub(super) fn leave(&self, calling: u64, own: u64, leave: Leave, now: u64) {
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
            self.since.store_relaxed(stamp(now, READY));
        }
    }

    /// It is the next one on a CPU: before the clock is read, so that nothing later is told of its
    /// wait than what it will have been.
    #[inline(always)]
    pub fn comes(&self) {
        self.changes.begin();
    }

    /// In which mode is it? `USER` or `SYSTEM`, as `calling` has it. After [`comes`](Self::comes).
    #[inline(always)]
    pub(super) fn come(&self, cpu: u32, bounds: &Bounds, now: u64) -> u64 {
        // Of the group that it was in while it waited, as it was told meanwhile.
        let since = self.since.load_relaxed();
        if since & WOKEN_MAYBE != 0 {
            let latency = waited(now, since);
            if let Some(values) = self.part() {
                add(&values[value::LATENCY], latency);
            }
            if self.told_apart.load_relaxed() != 0 {
                if let Some(word) = self.latencies.get(bounds.place(latency)) {
                    add(word, 1);
                }
            }
        } else if since != 0 {
            add(&self.runq, waited(now, since));
        }
        self.since.store_relaxed(0);
        self.enter(cpu);
        self.changes.end();
        self.calling.load_relaxed()
    }

    /// It is about to be woken, by anybody. One that had to leave its CPU is ready, whatever it
    /// was about to do. One that runs may be on its way off: then this is when its wait began, if
    /// nobody wakes it later.
    #[inline(always)]
    pub fn wake(&self, now: u64) {
        if self.since.load_relaxed() & 3 != READY {
            let why = match self.on.load_relaxed() {
                0 => WOKEN,
                _ => WOKEN_MAYBE,
            };
            self.since.store_relaxed(stamp(now, why));
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
            // D: pairs with the release in `Span::begin`.
            fence_acquire();
            let whole = self.changes.is_whole(start)
                && live.is_none_or(|cpu| cpu.changes.is_whole(start_there));
            whole.then_some(read)
        })
    }

    /// What is not over yet, to what is read.
    fn add_now(&self, read: &mut Read, apart: &mut [[u64; NR_VALUES]], more: &[u64; NR_VALUES]) {
        add_all(&mut read.values, more);
        let group = self.part.load_relaxed() as usize / NR_VALUES;
        if let Some(values) = apart.get_mut(group) {
            add_all(values, more);
        }
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
            if cpu.mode_now()? == SYSTEM {
                more[value::SYSTEM] = turn.own.saturating_sub(cpu.mode_own.load_relaxed());
            }
            more[value::INTERRUPTS] = turn.interrupts;
            let count = cpu.count.load_relaxed();
            more[value::INTERRUPT_COUNT] = count.wrapping_sub(cpu.run_count.load_relaxed());
            self.add_now(&mut read, apart, &more);
        }
        // Ready, and not on a CPU yet.
        if on == 0 && self.over.load_relaxed() == 0 {
            let since = self.since.load_relaxed();
            let waits = waited(now, since);
            match since & 3 {
                WOKEN => {
                    let mut more = [0u64; NR_VALUES];
                    more[value::LATENCY] = waits;
                    self.add_now(&mut read, apart, &more);
                }
                READY => read.runq = read.runq.wrapping_add(waits),
                _ => {}
            }
        }
        Some(read)
    }
}
