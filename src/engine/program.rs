// SPDX-License-Identifier: GPL-2.0

//! What a set's registers make the hardware do, and the memory of both: as much of it as there
//! are registers, got by who may wait for it.

use core::mem::size_of;
use core::ops::{Deref, DerefMut};

use crate::pmu::{Numbers, Register, FIRST_SOFT};

/// A control register as it is programmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// The MSR.
    pub address: u64,
    /// While it counts.
    pub on: u64,
    /// While it does not.
    pub off: u64,
}

/// A counter of the hardware as it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// The MSR.
    pub address: u64,
    /// For RDPMC.
    pub rdpmc: u32,
    /// The PMD.
    pub pmd: u16,
    /// Its bits.
    pub mask: u64,
    /// It is not made 64 bits wide.
    pub narrow: bool,
    /// Its overflow is waited for.
    pub armed: bool,
    /// Where it was when it was last looked at.
    pub start: u64,
}

impl Counter {
    /// Sets where it begins, so that it overflows when `value` does, or before: the
    /// hardware takes 31 bits and their sign.
    #[inline]
    pub(crate) fn arm(&mut self, value: u64) {
        let shown = if self.narrow { self.mask } else { u64::MAX };
        // 0 is a whole turn away.
        let left = value.wrapping_neg().wrapping_sub(1) & shown;
        let reach = (self.mask >> 1).min(0x7fff_ffff);
        // Some processors do not take the very last count.
        let left = left.saturating_add(1).clamp(2, reach.max(2));
        self.start = left.wrapping_neg() & self.mask;
    }

    /// It has turned over in the hardware, or not been set to.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.start & (self.mask ^ (self.mask >> 1)) == 0
    }
}

/// A virtual counter as it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// What its description's read() understands.
    pub address: u64,
    /// The value of its PMC.
    pub control: u64,
    /// The PMD.
    pub pmd: u16,
    /// It grows wherever its thread is, and not by turns on a CPU.
    pub carried: bool,
    /// It is time, in nanoseconds.
    pub clock: bool,
    pub(crate) mask: u64,
    pub(crate) start: u64,
}

/// What a counter of so many bits moved since it was at `start`; which it is at
/// `now` from here on.
#[inline]
pub(crate) fn moved(start: &mut u64, now: u64, mask: u64) -> u64 {
    let moved = now.wrapping_sub(*start) & mask;
    *start = now & mask;
    moved
}

/// Memory of whoever has registers: slices of values, as long as there was need.
pub trait Memory: Default {
    /// Of one kind of them; none by default.
    type Of<T: Copy + Default>: DerefMut<Target = [T]> + Default;
}

/// Room for whatever may be written, in place: for tests.
#[cfg(not(engine_kernel))]
#[derive(Default)]
pub struct Whole;

#[cfg(not(engine_kernel))]
impl Memory for Whole {
    type Of<T: Copy + Default> = WholeOf<T>;
}

/// Of one kind.
#[cfg(not(engine_kernel))]
pub struct WholeOf<T>([T; crate::pmu::ROWS]);

#[cfg(not(engine_kernel))]
impl<T: Copy + Default> Default for WholeOf<T> {
    fn default() -> Self {
        Self([T::default(); crate::pmu::ROWS])
    }
}

#[cfg(not(engine_kernel))]
impl<T> Deref for WholeOf<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

#[cfg(not(engine_kernel))]
impl<T> DerefMut for WholeOf<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

/// How many of each kind a set's registers need; of values, as many as there are numbers up to
/// the last one that is used: the hardware's, and the kernel's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Values of PMCs.
    pub pmcs: [usize; 2],
    /// Values of PMDs.
    pub pmds: [usize; 2],
    /// Registers to write.
    pub controls: usize,
    /// Registers to read.
    pub counters: usize,
    /// Virtual ones.
    pub growths: usize,
}

impl Needs {
    /// Values of these numbers.
    pub(crate) fn values(numbers: &Numbers) -> [usize; 2] {
        [0, usize::from(FIRST_SOFT) / 64].map(|word| {
            let word = numbers.0.get(word).copied().unwrap_or(0);
            64usize.wrapping_sub(word.leading_zeros() as usize)
        })
    }

    /// In bytes.
    pub fn bytes(&self) -> usize {
        let sum = |all: usize, one: &usize| all.wrapping_add(*one);
        let values = self.pmcs.iter().chain(&self.pmds).fold(0, sum);
        [
            values.wrapping_mul(size_of::<u64>()),
            self.controls.wrapping_mul(size_of::<Control>()),
            self.counters.wrapping_mul(size_of::<Counter>()),
            self.growths.wrapping_mul(size_of::<Growth>()),
        ]
        .iter()
        .fold(0, sum)
    }
}

/// Memory of a set's registers, all of it default.
pub struct Room<M: Memory> {
    /// Values of PMCs: the hardware's, the kernel's own.
    pub pmcs: [M::Of<u64>; 2],
    /// Values of PMDs.
    pub pmds: [M::Of<u64>; 2],
    /// Registers to write.
    pub controls: M::Of<Control>,
    /// Registers to read.
    pub counters: M::Of<Counter>,
    /// Virtual ones.
    pub growths: M::Of<Growth>,
}

/// Larger memory takes a smaller one's place, and has what that has.
pub(crate) fn replace<T: Copy, S: DerefMut<Target = [T]>>(old: &mut S, new: &mut S) {
    for (to, from) in new.iter_mut().zip(old.iter()) {
        *to = *from;
    }
    core::mem::swap(old, new);
}

/// Index of a number in the kernel's own table. A number below that table wraps to an index
/// past the end of any table.
#[inline]
fn soft_index(number: u16) -> usize {
    number.wrapping_sub(FIRST_SOFT).into()
}

/// The value of a number; 0 if the tables have no room for it.
#[inline]
pub(crate) fn value<S: Deref<Target = [u64]>>([hardware, soft]: &[S; 2], number: u16) -> u64 {
    let value = match number < 64 {
        true => hardware.get(usize::from(number)),
        false => soft.get(soft_index(number)),
    };
    value.copied().unwrap_or(0)
}

/// The place of a number's value, if the tables have room for it.
#[inline]
pub(crate) fn value_mut<S: DerefMut<Target = [u64]>>(
    [hardware, soft]: &mut [S; 2],
    number: u16,
) -> Option<&mut u64> {
    match number < 64 {
        true => hardware.get_mut(usize::from(number)),
        false => soft.get_mut(soft_index(number)),
    }
}

/// Registers of a context that are in the hardware, in the order of their use.
#[derive(Default)]
pub struct Program<M: Memory> {
    controls: M::Of<Control>,
    nr_controls: usize,
    counters: M::Of<Counter>,
    nr_counters: usize,
    growths: M::Of<Growth>,
    pub(crate) nr_growths: usize,
    /// Value of the MSR that lets counters count, if there is one.
    pub global: u64,
    /// Something that its thread carries is waited for.
    pub carries: bool,
    /// A clock is waited for.
    pub clocks: bool,
}

impl<M: Memory> Program<M> {
    pub(crate) fn clear(&mut self) {
        self.nr_controls = 0;
        self.nr_counters = 0;
        self.nr_growths = 0;
        self.global = 0;
        self.carries = false;
        self.clocks = false;
    }

    /// To write.
    pub fn controls(&self) -> &[Control] {
        self.controls.get(..self.nr_controls).unwrap_or(&[])
    }

    /// To read.
    pub fn counters(&self) -> &[Counter] {
        self.counters.get(..self.nr_counters).unwrap_or(&[])
    }

    pub(crate) fn counters_mut(&mut self) -> &mut [Counter] {
        self.counters.get_mut(..self.nr_counters).unwrap_or(&mut [])
    }

    pub(crate) fn growths(&self) -> &[Growth] {
        self.growths.get(..self.nr_growths).unwrap_or(&[])
    }

    pub(crate) fn growths_mut(&mut self, carried: bool) -> impl Iterator<Item = &mut Growth> {
        let all = self.growths.get_mut(..self.nr_growths).unwrap_or(&mut []);
        all.iter_mut().filter(move |g| g.carried == carried)
    }

    pub(crate) fn control(&mut self, register: &Register, value: u64, interrupts: u64) {
        let interrupt = match value & register.enable {
            0 => 0,
            _ => interrupts,
        };
        if let Some(free) = self.controls.get_mut(self.nr_controls) {
            *free = Control {
                address: register.address,
                on: value | interrupt,
                off: value & !register.enable,
            };
            self.nr_controls = self.nr_controls.wrapping_add(1);
        }
    }

    pub(crate) fn counter(&mut self, register: &Register, pmd: u16, narrow: bool, armed: bool) {
        if let Some(free) = self.counters.get_mut(self.nr_counters) {
            *free = Counter {
                address: register.address,
                rdpmc: register.rdpmc,
                pmd,
                mask: register.mask(),
                narrow,
                armed,
                start: 0,
            };
            self.nr_counters = self.nr_counters.wrapping_add(1);
            self.global |= register.global_bit();
        }
    }

    pub(crate) fn growth(&mut self, growth: Growth) {
        if let Some(free) = self.growths.get_mut(self.nr_growths) {
            *free = growth;
            self.nr_growths = self.nr_growths.wrapping_add(1);
        }
    }
    /// Takes larger memory, and leaves its own.
    pub(crate) fn move_into(&mut self, room: &mut Room<M>) {
        replace(&mut self.controls, &mut room.controls);
        replace(&mut self.counters, &mut room.counters);
        replace(&mut self.growths, &mut room.growths);
    }

    /// How much of it there is.
    pub(crate) fn room(&self) -> [usize; 3] {
        [self.controls.len(), self.counters.len(), self.growths.len()]
    }
}
