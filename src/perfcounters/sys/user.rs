// SPDX-License-Identifier: GPL-2.0

//! Structures that come from user space, or go there.

use core::mem::{size_of, size_of_val, MaybeUninit};

use kernel::error::Result;
use kernel::uaccess::{UserPtr, UserSlice};

/// A structure of numbers, so that any bytes are one.
///
/// # Safety
///
/// All bit patterns are values, and there is no padding.
pub(crate) unsafe trait Given: Copy {}

// SAFETY: A number.
unsafe impl Given for u32 {}
// SAFETY: A number.
unsafe impl Given for u8 {}

/// Its bytes.
pub(crate) fn bytes_of<T: Given>(all: &[T]) -> &[u8] {
    // SAFETY: Without padding, by the trait.
    unsafe { core::slice::from_raw_parts(all.as_ptr().cast(), size_of_val(all)) }
}

/// One that user space gives. May sleep; `EFAULT`.
pub(super) fn read<T: Given>(at: UserPtr) -> Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: Its bytes, which are initialised.
    let bytes =
        unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    UserSlice::new(at, size_of::<T>())
        .reader()
        .read_slice(bytes)?;
    // SAFETY: Initialised, and any bytes are a value.
    Ok(unsafe { value.assume_init() })
}

/// Some of them, in one copy.
pub(super) fn read_into<T: Given>(at: UserPtr, all: &mut [T]) -> Result {
    let size = size_of_val(all);
    // SAFETY: Their bytes; any are values, by the trait.
    let bytes = unsafe { core::slice::from_raw_parts_mut(all.as_mut_ptr().cast::<u8>(), size) };
    UserSlice::new(at, size).reader().read_slice(bytes)
}

/// Gives one out. The same.
pub(super) fn write<T: Given>(at: UserPtr, value: &T) -> Result {
    let bytes = bytes_of(core::slice::from_ref(value));
    UserSlice::new(at, bytes.len()).writer().write_slice(bytes)
}
