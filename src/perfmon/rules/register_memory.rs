// SPDX-License-Identifier: GPL-2.0

//! The memory for the registers of an event set: its size, and the values of registers in it.

use core::mem::size_of;
use core::ops::{Deref, DerefMut};

use crate::allocator::Allocator;
use crate::program::{Control, Counter, VirtualCounter};
use crate::register_bitmap::RegisterBitmap;
use crate::register_map::FIRST_SOFT_REGISTER;

/// Lengths of the arrays in which an event set keeps its registers. The values of hardware
/// registers and the values of soft registers (registers that the kernel provides) are in separate
/// arrays. Each array of values extends up to the highest register number in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterMemorySize {
    /// Lengths of the value arrays of hardware PMCs (control registers) and of soft PMCs.
    pub pmcs: [usize; 2],
    /// Lengths of the value arrays of hardware PMDs (data registers) and of soft PMDs.
    pub pmds: [usize; 2],
    /// Control registers to write.
    pub controls: usize,
    /// Hardware counters to read.
    pub counters: usize,
    /// Virtual counters to read.
    pub virtual_counters: usize,
}

impl RegisterMemorySize {
    /// Returns the lengths of the two value arrays that the registers `numbers` need: of the array
    /// for hardware registers, and of the array for soft registers.
    pub(crate) fn value_array_lengths(numbers: &RegisterBitmap) -> [usize; 2] {
        [0, usize::from(FIRST_SOFT_REGISTER) / 64].map(|word| {
            let word = numbers.0.get(word).copied().unwrap_or(0);
            64usize.wrapping_sub(word.leading_zeros() as usize)
        })
    }

    /// Returns the size of the memory in bytes.
    pub fn bytes(&self) -> usize {
        let sum = |all: usize, one: &usize| all.wrapping_add(*one);
        let values = self.pmcs.iter().chain(&self.pmds).fold(0, sum);
        [
            values.wrapping_mul(size_of::<u64>()),
            self.controls.wrapping_mul(size_of::<Control>()),
            self.counters.wrapping_mul(size_of::<Counter>()),
            self.virtual_counters
                .wrapping_mul(size_of::<VirtualCounter>()),
        ]
        .iter()
        .fold(0, sum)
    }
}

/// Memory for an event set's registers, filled with default values.
pub struct RegisterMemory<M: Allocator> {
    /// Values of the hardware PMCs, and of the soft PMCs.
    pub pmcs: [M::Slice<u64>; 2],
    /// Values of the hardware PMDs, and of the soft PMDs.
    pub pmds: [M::Slice<u64>; 2],
    /// Control registers to write.
    pub controls: M::Slice<Control>,
    /// Hardware counters to read.
    pub counters: M::Slice<Counter>,
    /// Virtual counters to read.
    pub virtual_counters: M::Slice<VirtualCounter>,
}

/// Returns the index of a register number in the table of soft registers. A number below
/// [`FIRST_SOFT_REGISTER`] wraps to an index past the end of any table.
#[inline]
fn soft_table_index(number: u16) -> usize {
    number.wrapping_sub(FIRST_SOFT_REGISTER).into()
}

/// Returns the value of the register `number`; 0 if the arrays have no room for this register.
#[inline]
pub(crate) fn register_value<S: Deref<Target = [u64]>>(
    [hardware, soft]: &[S; 2],
    number: u16,
) -> u64 {
    let value = match number < 64 {
        true => hardware.get(usize::from(number)),
        false => soft.get(soft_table_index(number)),
    };
    value.copied().unwrap_or(0)
}

/// Returns a mutable reference to the value of a register; `None` if the arrays have no room for
/// the register.
#[inline]
pub(crate) fn register_value_mut<S: DerefMut<Target = [u64]>>(
    [hardware, soft]: &mut [S; 2],
    number: u16,
) -> Option<&mut u64> {
    match number < 64 {
        true => hardware.get_mut(usize::from(number)),
        false => soft.get_mut(soft_table_index(number)),
    }
}
