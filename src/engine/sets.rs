// SPDX-License-Identifier: GPL-2.0

//! Event sets: whose turn it is, for how long, and how the turns of one differed.
//!
//! A turn lasts from one switch to the next; its time is what its context spends in the
//! hardware meanwhile, so it goes on over the switches of threads.

use crate::context::Error;
use crate::pmu::Rows;

/// `PFM_SETFL_OVFL_SWITCH`.
pub const OVFL_SWITCH: u32 = 0x01;
/// `PFM_SETFL_TIME_SWITCH`.
pub const TIME_SWITCH: u32 = 0x02;
/// `PFM_SETFL_EXPL_NEXT`.
pub const EXPL_NEXT: u32 = 0x04;
/// Sets of a context, at most.
pub const MOST: usize = 1024;
/// Nanoseconds of a turn, at least: less would be all that the processor does.
pub const LEAST: u64 = 10_000;

/// When a set's turn ends, and whose is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    flags: u32,
    next: u16,
    timeout: u64,
}

impl Terms {
    /// What a user asks for; `resolution` is the timer's, in nanoseconds.
    pub fn new(flags: u32, next: u16, timeout: u64, resolution: u64) -> Result<Self, Error> {
        let timed = flags & TIME_SWITCH != 0;
        if flags & !(OVFL_SWITCH | TIME_SWITCH | EXPL_NEXT) != 0
            || (flags & EXPL_NEXT == 0 && next != 0)
            || timed == (timeout == 0)
            || timeout > i64::MAX as u64 / 2
        {
            return Err(Error::Flags);
        }
        let whole = timeout
            .max(LEAST)
            .checked_next_multiple_of(resolution.max(1));
        Ok(Self {
            flags,
            next,
            timeout: match timed {
                true => whole.unwrap_or(timeout),
                false => 0,
            },
        })
    }

    /// `PFM_SETFL_*`.
    pub const fn flags(&self) -> u32 {
        self.flags
    }

    /// Nanoseconds of a turn, rounded up; 0: any number.
    pub const fn timeout(&self) -> u64 {
        self.timeout
    }

    /// The set that is next, if it is not the one with the next higher number.
    pub fn next(&self) -> Option<u16> {
        (self.flags & EXPL_NEXT != 0).then_some(self.next)
    }

    /// Is it over after some time?
    #[inline]
    pub const fn is_timed(&self) -> bool {
        self.flags & TIME_SWITCH != 0
    }

    /// Is it over after overflows?
    #[inline]
    pub const fn counts_down(&self) -> bool {
        self.flags & OVFL_SWITCH != 0
    }
}

/// The place of the set after the one at `at`, of so many in the order of their numbers;
/// `place` finds a number's.
pub fn after(
    terms: &Terms,
    at: usize,
    nr: usize,
    place: impl FnOnce(u16) -> Option<usize>,
) -> Result<usize, Error> {
    match terms.next() {
        Some(next) => place(next).ok_or(Error::NoSet),
        None => Ok(at.wrapping_add(1).checked_rem(nr).unwrap_or(0)),
    }
}

/// The product, in full.
const fn times(a: u64, b: u64) -> u128 {
    (a as u128).wrapping_mul(b as u128)
}

/// A set's turns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turns {
    /// How they end.
    pub terms: Terms,
    /// PMDs whose overflow ended the last one.
    pub ended_by: Rows,
    runs: u64,
    /// Nanoseconds of those that are over, and the sum of their squares.
    over: u64,
    squares: u128,
    /// Nanoseconds of this one, up to `since`.
    spent: u64,
    /// In the hardware since then.
    since: Option<u64>,
    /// There is this one.
    begun: bool,
}

impl Turns {
    /// Into the hardware: does a turn begin?
    #[inline]
    pub fn enter(&mut self, now: u64) -> bool {
        self.since = Some(now);
        let begins = !self.begun;
        if begins {
            self.begun = true;
            self.runs = self.runs.wrapping_add(1);
        }
        begins
    }

    /// Out of the hardware.
    #[inline]
    pub fn leave(&mut self, now: u64) {
        self.spent = self.spent(now);
        self.since = None;
    }

    /// The turn is over, if there is one: its nanoseconds. It is out of the hardware.
    pub fn end(&mut self) -> u64 {
        let spent = core::mem::take(&mut self.spent);
        self.over = self.over.wrapping_add(spent);
        self.squares = self.squares.wrapping_add(times(spent, spent));
        self.begun = false;
        spent
    }

    /// Nanoseconds of this turn.
    #[inline]
    pub fn spent(&self, now: u64) -> u64 {
        let more = self.since.map_or(0, |since| now.saturating_sub(since));
        self.spent.wrapping_add(more)
    }

    /// Nanoseconds that are left of it, of one that is over after some time.
    #[inline]
    pub fn left(&self, now: u64) -> Option<u64> {
        let timeout = self.terms.timeout();
        (timeout != 0).then(|| timeout.saturating_sub(self.spent(now)))
    }

    /// Turns that have begun.
    pub const fn runs(&self) -> u64 {
        self.runs
    }

    /// Nanoseconds of all turns, and the sum of their squares.
    pub fn duration(&self, now: u64) -> (u64, u128) {
        let spent = self.spent(now);
        let squares = self.squares.wrapping_add(times(spent, spent));
        (self.over.wrapping_add(spent), squares)
    }
}

/// How much a PMD counted in each turn of its set: sums, for its variance.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moments {
    /// The PMD.
    pub pmd: u16,
    /// Its value when this turn began.
    begin: u64,
    /// What it counted in this turn, up to then.
    carried: u64,
    over: u64,
    squares: u128,
    /// Of the products with a turn's nanoseconds.
    products: u128,
}

impl Moments {
    /// Of a PMD that has just been set.
    pub fn new(pmd: u16, value: u64) -> Self {
        Self {
            pmd,
            begin: value,
            ..Self::default()
        }
    }

    /// It was written, in this turn: what it had counted in it is not known any more.
    pub fn set(&mut self, value: u64) {
        self.begin = value;
        self.carried = 0;
    }

    /// It goes on with another value, as one that overflowed says.
    pub fn reset(&mut self, before: u64, value: u64) {
        self.carried = self.counted(before);
        self.begin = value;
    }

    /// What it counted in this turn.
    fn counted(&self, value: u64) -> u64 {
        self.carried.wrapping_add(value.wrapping_sub(self.begin))
    }

    /// A turn of so many nanoseconds is over.
    pub fn end(&mut self, value: u64, time: u64) {
        (self.over, self.squares, self.products) = self.totals(value, time);
        self.set(value);
    }

    /// What it counted in all turns, this one of so many nanoseconds included; the sum of
    /// the squares; and of the products with the time.
    pub fn totals(&self, value: u64, time: u64) -> (u64, u128, u128) {
        let counted = self.counted(value);
        (
            self.over.wrapping_add(counted),
            self.squares.wrapping_add(times(counted, counted)),
            self.products.wrapping_add(times(counted, time)),
        )
    }
}
