// SPDX-License-Identifier: GPL-2.0

//! Sets of register numbers, as bitmaps.

use crate::register_map::{FIRST_SOFT_REGISTER, NR_REGISTERS};

protocols::transparent_structure! {
    /// A set of register numbers, in the form that the ioctls use.
    #[derive(Debug, Default, PartialEq, Eq)]
    pub struct RegisterBitmap(pub [u64; NR_REGISTERS / 64]);
}

impl RegisterBitmap {
    /// Adds a register number to the set. Ignores a number that no register can have.
    pub fn set(&mut self, n: usize) {
        if let Some(word) = self.0.get_mut(n / 64) {
            *word |= 1 << (n % 64);
        }
    }

    /// Removes a register number from the set.
    pub fn clear(&mut self, n: usize) {
        if let Some(word) = self.0.get_mut(n / 64) {
            *word &= !(1 << (n % 64));
        }
    }

    /// Returns true if the register number is in the set.
    pub fn has(&self, n: usize) -> bool {
        self.0.get(n / 64).is_some_and(|w| (w >> (n % 64)) & 1 != 0)
    }

    /// Returns true if the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; NR_REGISTERS / 64]
    }

    /// Adds all register numbers of another set to this set.
    #[inline]
    pub fn add(&mut self, other: &Self) {
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    /// Calls a function with each register number in the set, in ascending order.
    pub fn for_each(&self, mut function: impl FnMut(u16)) {
        let mut first = 0u16;
        for word in &self.0 {
            let mut left = *word;
            while left != 0 {
                function(first.wrapping_add(left.trailing_zeros() as u16));
                left &= left.wrapping_sub(1);
            }
            first = first.wrapping_add(64);
        }
    }

    /// Returns the number of registers in the set.
    pub fn count(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Returns the register numbers in the set in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut left = *word;
            core::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.wrapping_sub(1);
                (bit < 64).then_some(at.wrapping_mul(64).wrapping_add(bit as usize))
            })
        })
    }
}

/// A set of PMDs, which can contain the first 64 hardware PMDs and the 64 soft PMDs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PmdSet {
    hardware: u64,
    soft: u64,
}

impl PmdSet {
    #[inline]
    fn bit(number: u16) -> Self {
        let bit = 1u64.wrapping_shl(number.into());
        match number & !63 {
            0 => Self {
                hardware: bit,
                soft: 0,
            },
            FIRST_SOFT_REGISTER => Self {
                hardware: 0,
                soft: bit,
            },
            _ => Self::default(),
        }
    }

    /// Adds the PMD `number` to the set. Does nothing if no table can have a row for this PMD.
    #[inline]
    pub fn set(&mut self, number: u16) {
        let bit = 1u64.wrapping_shl(number.into());
        match number & !63 {
            0 => self.hardware |= bit,
            FIRST_SOFT_REGISTER => self.soft |= bit,
            _ => {}
        }
    }

    /// Adds the hardware PMD `number`, which is less than 64. Takes fewer instructions than
    /// [`Self::set`].
    #[inline]
    pub(crate) fn set_hardware(&mut self, number: u16) {
        self.hardware |= 1u64.wrapping_shl(number.into());
    }

    /// Returns true if the hardware PMD `number`, which is less than 64, is in the set.
    #[inline]
    pub(crate) fn has_hardware(&self, number: u16) -> bool {
        self.hardware.wrapping_shr(number.into()) & 1 != 0
    }

    /// Removes a PMD from the set.
    pub fn clear(&mut self, number: u16) {
        let bit = Self::bit(number);
        self.hardware &= !bit.hardware;
        self.soft &= !bit.soft;
    }

    /// Returns true if the PMD is in the set.
    #[inline]
    pub fn has(&self, number: u16) -> bool {
        self.intersects(&Self::bit(number))
    }

    /// Returns true if the two sets have a PMD in common.
    #[inline]
    pub fn intersects(&self, other: &Self) -> bool {
        (self.hardware & other.hardware) | (self.soft & other.soft) != 0
    }

    /// Returns true if the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.hardware | self.soft == 0
    }

    /// Removes and returns the first PMD.
    #[inline]
    pub fn pop(&mut self) -> Option<u16> {
        let (bits, first) = match self.hardware {
            0 => (&mut self.soft, FIRST_SOFT_REGISTER),
            _ => (&mut self.hardware, 0),
        };
        if *bits == 0 {
            return None;
        }
        let number = bits.trailing_zeros() as u16 | first;
        *bits &= bits.wrapping_sub(1);
        Some(number)
    }

    /// Adds all PMDs of another set to this set.
    #[inline]
    pub fn add(&mut self, other: &Self) {
        self.hardware |= other.hardware;
        self.soft |= other.soft;
    }

    /// Returns the set in the form that the ioctls use.
    pub fn to_bitmap(mut self) -> RegisterBitmap {
        let mut numbers = RegisterBitmap::default();
        while let Some(number) = self.pop() {
            numbers.set(number.into());
        }
        numbers
    }
}
