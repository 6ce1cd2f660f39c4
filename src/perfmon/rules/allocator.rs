// SPDX-License-Identifier: GPL-2.0

//! The allocator for the memory of an event set's registers. A caller that may sleep allocates this
//! memory.

#[cfg(not(in_kernel))]
use core::ops::Deref;
use core::ops::DerefMut;

/// The allocator for the memory of registers. The allocator provides slices with the number of
/// elements that the registers need.
pub trait Allocator: Default {
    /// A slice of elements of one type. By default the slice is empty.
    type Slice<T: Copy + Default>: DerefMut<Target = [T]> + Default;
}

/// An allocator for tests: each slice is an array with room for all registers.
#[cfg(not(in_kernel))]
#[derive(Default)]
pub struct FixedArrays;

#[cfg(not(in_kernel))]
impl Allocator for FixedArrays {
    type Slice<T: Copy + Default> = FixedArray<T>;
}

/// An array with room for all registers, with elements of one type.
#[cfg(not(in_kernel))]
pub struct FixedArray<T>([T; crate::register_map::MAX_TABLE_ROWS]);

#[cfg(not(in_kernel))]
impl<T: Copy + Default> Default for FixedArray<T> {
    fn default() -> Self {
        Self([T::default(); crate::register_map::MAX_TABLE_ROWS])
    }
}

#[cfg(not(in_kernel))]
impl<T> Deref for FixedArray<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

#[cfg(not(in_kernel))]
impl<T> DerefMut for FixedArray<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

/// Copies the elements of `old` to the larger slice `new`, and swaps the two slices.
pub(crate) fn copy_to_larger_and_swap<T: Copy, S: DerefMut<Target = [T]>>(
    old: &mut S,
    new: &mut S,
) {
    for (to, from) in new.iter_mut().zip(old.iter()) {
        *to = *from;
    }
    core::mem::swap(old, new);
}
