// SPDX-License-Identifier: GPL-2.0

//! Structures that come from user space, or go there.

use core::mem::{size_of, size_of_val, MaybeUninit};

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KVVec;
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
unsafe impl Given for u64 {}
// SAFETY: A number.
unsafe impl Given for u8 {}
// SAFETY: As its elements.
unsafe impl<T: Given, const N: usize> Given for [T; N] {}

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

/// So many of them, in one copy. The same; `ENOMEM`. The caller has limited the number.
pub(super) fn read_all<T: Given>(address: u64, nr: usize) -> Result<KVVec<T>> {
    let mut all = KVVec::with_capacity(nr, GFP_KERNEL_ACCOUNT)?;
    let place = all.spare_capacity_mut().as_mut_ptr();
    let size = nr.wrapping_mul(size_of::<T>());
    // SAFETY: There is room for `nr` elements.
    let bytes = unsafe { core::slice::from_raw_parts_mut(place.cast::<MaybeUninit<u8>>(), size) };
    let at = UserPtr::from_addr(usize::try_from(address)?);
    UserSlice::new(at, size).reader().read_raw(bytes)?;
    // SAFETY: So many are initialised, as any bytes are one, and there is room.
    unsafe { all.inc_len(nr) };
    Ok(all)
}

/// Gives one out. The same.
pub(super) fn write<T: Given>(at: UserPtr, value: &T) -> Result {
    write_all(at, core::slice::from_ref(value))
}

/// Gives some out.
pub(super) fn write_all<T: Given>(at: UserPtr, all: &[T]) -> Result {
    let bytes = bytes_of(all);
    UserSlice::new(at, bytes.len()).writer().write_slice(bytes)
}
