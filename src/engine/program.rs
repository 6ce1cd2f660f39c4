// SPDX-License-Identifier: GPL-2.0

//! The program of an event set: the control registers to write, and the counters to read. Also the
//! memory of an event set's registers, which is allocated in the size that they need by a caller
//! that may sleep.

use core::mem::size_of;
use core::ops::{Deref, DerefMut};

use crate::pmu::{Numbers, Register, FIRST_SOFT};

/// A control register to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// The MSR.
    pub address: u64,
    /// Value while the context counts.
    pub on: u64,
    /// Value while the context does not count.
    pub off: u64,
}

/// A hardware counter to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// The MSR.
    pub address: u64,
    /// Number of the counter for RDPMC.
    pub rdpmc: u32,
    /// Number of the PMD.
    pub pmd: u16,
    /// Mask of the bits that the counter has.
    pub mask: u64,
    /// The PMD shows only the counter's bits, not 64.
    pub narrow: bool,
    /// The PMD samples: its overflows are handled.
    pub armed: bool,
    /// Value of the hardware counter when it was last started or read.
    pub start: u64,
}

impl Counter {
    /// Sets the start value so that the hardware counter overflows when a PMD with this `value`
    /// does, or before: a write to the counter has 31 bits and a sign.
    #[inline]
    pub(crate) fn arm(&mut self, value: u64) {
        let shown = if self.narrow { self.mask } else { u64::MAX };
        // The overflow of a PMD of 0 is a whole turn away.
        let left = value.wrapping_neg().wrapping_sub(1) & shown;
        let reach = (self.mask >> 1).min(0x7fff_ffff);
        // Some processors do not accept a counter that is one count before its overflow.
        let left = left.saturating_add(1).clamp(2, reach.max(2));
        self.start = left.wrapping_neg() & self.mask;
    }

    /// Returns true if the hardware counter has wrapped since it was started, or was not started
    /// near an overflow.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.start & (self.mask ^ (self.mask >> 1)) == 0
    }
}

/// A virtual counter to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// Argument of the description's read().
    pub address: u64,
    /// Value of the PMC that controls the counter.
    pub control: u64,
    /// Number of the PMD.
    pub pmd: u16,
    /// The counter follows its thread: it also counts while the context is in no PMU.
    pub carried: bool,
    /// The counter counts nanoseconds.
    pub clock: bool,
    pub(crate) mask: u64,
    pub(crate) start: u64,
}

/// Returns the increment of a counter from `start` to `now`, modulo the width that `mask` gives,
/// and sets `start` to `now`.
#[inline]
pub(crate) fn moved(start: &mut u64, now: u64, mask: u64) -> u64 {
    let moved = now.wrapping_sub(*start) & mask;
    *start = now & mask;
    moved
}

/// The allocator for the memory of registers: slices of values, of the size that was needed.
pub trait Memory: Default {
    /// A slice of one type; empty by default.
    type Of<T: Copy + Default>: DerefMut<Target = [T]> + Default;
}

/// Arrays with room for all registers, for tests.
#[cfg(not(engine_kernel))]
#[derive(Default)]
pub struct Whole;

#[cfg(not(engine_kernel))]
impl Memory for Whole {
    type Of<T: Copy + Default> = WholeOf<T>;
}

/// An array of one type.
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

/// Number of elements of each type that an event set's registers need. Values are needed up to the
/// highest number in use, in two arrays: of the hardware's registers and of soft ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Values of PMCs.
    pub pmcs: [usize; 2],
    /// Values of PMDs.
    pub pmds: [usize; 2],
    /// Control registers to write.
    pub controls: usize,
    /// Hardware counters to read.
    pub counters: usize,
    /// Virtual counters to read.
    pub growths: usize,
}

impl Needs {
    /// Returns the number of values that these registers need: hardware registers, soft ones.
    pub(crate) fn values(numbers: &Numbers) -> [usize; 2] {
        [0, usize::from(FIRST_SOFT) / 64].map(|word| {
            let word = numbers.0.get(word).copied().unwrap_or(0);
            64usize.wrapping_sub(word.leading_zeros() as usize)
        })
    }

    /// Returns the size in bytes.
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

/// Memory for an event set's registers, filled with default values.
pub struct Room<M: Memory> {
    /// Values of PMCs: of the hardware, and of soft ones.
    pub pmcs: [M::Of<u64>; 2],
    /// Values of PMDs: of the hardware, and of soft ones.
    pub pmds: [M::Of<u64>; 2],
    /// Control registers to write.
    pub controls: M::Of<Control>,
    /// Hardware counters to read.
    pub counters: M::Of<Counter>,
    /// Virtual counters to read.
    pub growths: M::Of<Growth>,
}

/// Copies `old` to the larger memory `new`, and swaps the two.
pub(crate) fn replace<T: Copy, S: DerefMut<Target = [T]>>(old: &mut S, new: &mut S) {
    for (to, from) in new.iter_mut().zip(old.iter()) {
        *to = *from;
    }
    core::mem::swap(old, new);
}

/// Index of a number in the table of soft registers. A number below that table wraps to an index
/// past the end of any table.
#[inline]
fn soft_index(number: u16) -> usize {
    number.wrapping_sub(FIRST_SOFT).into()
}

/// Returns the value of a register; 0 if the tables have no room for it.
#[inline]
pub(crate) fn value<S: Deref<Target = [u64]>>([hardware, soft]: &[S; 2], number: u16) -> u64 {
    let value = match number < 64 {
        true => hardware.get(usize::from(number)),
        false => soft.get(soft_index(number)),
    };
    value.copied().unwrap_or(0)
}

/// Returns the value of a register to change it, if the tables have room for it.
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

/// The program of an event set: its registers in the PMU, in the order in which they are used.
#[derive(Default)]
pub struct Program<M: Memory> {
    controls: M::Of<Control>,
    nr_controls: usize,
    counters: M::Of<Counter>,
    nr_counters: usize,
    growths: M::Of<Growth>,
    pub(crate) nr_growths: usize,
    /// Bits of the counters in the global control, if the PMU has one.
    pub global: u64,
    /// Some virtual counter that follows its thread is armed.
    pub carries: bool,
    /// Some clock is armed, so a timer is needed.
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

    /// Returns the control registers to write.
    pub fn controls(&self) -> &[Control] {
        self.controls.get(..self.nr_controls).unwrap_or(&[])
    }

    /// Returns the hardware counters to read.
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
    /// Moves the program to larger memory, and leaves the old memory in `room`.
    pub(crate) fn move_into(&mut self, room: &mut Room<M>) {
        replace(&mut self.controls, &mut room.controls);
        replace(&mut self.counters, &mut room.counters);
        replace(&mut self.growths, &mut room.growths);
    }

    /// Returns the number of elements that the memory has room for.
    pub(crate) fn room(&self) -> [usize; 3] {
        [self.controls.len(), self.counters.len(), self.growths.len()]
    }
}
