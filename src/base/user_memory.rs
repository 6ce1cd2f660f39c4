// SPDX-License-Identifier: GPL-2.0

//! Copying of structures from and to user space.

use core::mem::{size_of, size_of_val, MaybeUninit};

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KVVec;
use kernel::error::Result;
use kernel::uaccess::{UserPtr, UserSlice};
use protocols::structure::FromBytes;

/// Returns the memory of values as a slice of bytes.
pub fn values_as_bytes<T: FromBytes>(all: &[T]) -> &[u8] {
    // SAFETY: By the trait's requirement the values have no padding, so that all bytes are
    // initialised.
    unsafe { core::slice::from_raw_parts(all.as_ptr().cast(), size_of_val(all)) }
}

/// Copies a value from user space. Returns `EFAULT` if the memory is not accessible. May sleep.
pub fn read<T: FromBytes>(at: UserPtr) -> Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: The slice covers exactly the value, and all bytes of the value are initialised with
    // zeros.
    let bytes =
        unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    UserSlice::new(at, size_of::<T>())
        .reader()
        .read_slice(bytes)?;
    // SAFETY: All bytes are initialised, and any bytes are a valid value by the trait's
    // requirement.
    Ok(unsafe { value.assume_init() })
}

/// Copies an array of `nr` values from user space, in one copy. Returns `EFAULT` or `ENOMEM`. May
/// sleep. The caller has checked that `nr` is not too large.
pub fn read_array<T: FromBytes>(address: u64, nr: usize) -> Result<KVVec<T>> {
    let mut all = KVVec::with_capacity(nr, GFP_KERNEL_ACCOUNT)?;
    let place = all.spare_capacity_mut().as_mut_ptr();
    let size = nr.wrapping_mul(size_of::<T>());
    // SAFETY: The vector has spare capacity for `nr` values.
    let bytes = unsafe { core::slice::from_raw_parts_mut(place.cast::<MaybeUninit<u8>>(), size) };
    let at = UserPtr::from_addr(usize::try_from(address)?);
    UserSlice::new(at, size).reader().read_raw(bytes)?;
    // SAFETY: The vector has capacity for `nr` values. The copy has initialised all bytes of `nr`
    // values. Any bytes are a valid `T`, as `T` implements `FromBytes`.
    unsafe { all.inc_len(nr) };
    Ok(all)
}

/// Copies a value to user space. Returns `EFAULT` if the memory is not accessible. May sleep.
pub fn write<T: FromBytes>(at: UserPtr, value: &T) -> Result {
    write_array(at, core::slice::from_ref(value))
}

/// Copies an array of values to user space, in one copy. Returns `EFAULT` if the memory is not
/// accessible. May sleep.
pub fn write_array<T: FromBytes>(at: UserPtr, all: &[T]) -> Result {
    let bytes = values_as_bytes(all);
    UserSlice::new(at, bytes.len()).writer().write_slice(bytes)
}
