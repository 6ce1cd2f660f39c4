// SPDX-License-Identifier: GPL-2.0

//! Structures that the kernel and programs copy byte by byte.

/// A type that consists of integers, so that any bytes are a valid value of the type. The macro
/// [`structures!`](crate::structures) implements this trait for structures.
///
/// # Safety
///
/// All bit patterns are valid values, and the type has no padding.
#[allow(unsafe_code, reason = "the kernel's copy functions rely on this trait")]
pub unsafe trait FromBytes: Copy {
    /// The value whose bytes are all zero.
    const ZERO: Self;
}

macro_rules! integers {
    ($($type:ty)*) => {
        $(
            #[allow(unsafe_code, reason = "see the comment")]
            // SAFETY: All bit patterns of an integer are valid, and an integer has no padding.
            unsafe impl FromBytes for $type {
                const ZERO: Self = 0;
            }
        )*
    };
}

integers! { u8 u16 u32 u64 }

#[allow(unsafe_code, reason = "see the comment")]
// SAFETY: The element type `T` implements `FromBytes`, and an array has no padding between its
// elements.
unsafe impl<T: FromBytes, const N: usize> FromBytes for [T; N] {
    const ZERO: Self = [T::ZERO; N];
}

/// Declares structures with the layout of C, and implements [`FromBytes`] for them. `Good(8)`
/// declares a structure of 8 bytes. The build fails if the declared size is wrong, if the structure
/// has padding, or if a field does not consist of integers. The trait `FromBytes` of the kernel
/// cannot be used, because programs outside the kernel also use this macro.
///
/// ```
/// protocols::structures! {
///     struct Good(8) { kind: u16, flags: [u16; 3], }
/// }
/// ```
///
/// The macro refuses a wrong size, padding, and a type for which some bytes are not a valid value:
///
/// ```compile_fail,E0080
/// protocols::structures! { struct Longer(16) { value: u64, } }
/// ```
/// ```compile_fail,E0080
/// protocols::structures! { struct Padded(16) { value: u64, kind: u32, } }
/// ```
/// ```compile_fail,E0277
/// protocols::structures! { struct Flag(1) { value: bool, } }
/// ```
///
/// [`FromBytes`]: crate::structure::FromBytes
#[macro_export]
macro_rules! structures {
    ($(
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident($size:expr) {
            $($(#[$field_meta:meta])* $field_visibility:vis $field:ident: $type:ty,)*
        }
    )*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            $visibility struct $name {
                $($(#[$field_meta])* $field_visibility $field: $type,)*
            }

            const _: () = {
                const fn from_bytes<T: $crate::structure::FromBytes>() -> usize {
                    ::core::mem::size_of::<T>()
                }
                assert!(::core::mem::size_of::<$name>() == $size);
                assert!(0 $(+ from_bytes::<$type>())* == $size);
            };

            #[allow(unsafe_code, reason = "see the comment")]
            // SAFETY: All fields implement the trait. The sizes of the fields add up to the size of
            // the structure, so there is no padding.
            unsafe impl $crate::structure::FromBytes for $name {
                const ZERO: Self = Self {
                    $($field: $crate::structure::FromBytes::ZERO,)*
                };
            }
        )*
    };
}

/// Declares a structure that has the layout of its only field, and implements [`FromBytes`] for the
/// structure.
///
/// [`FromBytes`]: crate::structure::FromBytes
#[macro_export]
macro_rules! transparent_structure {
    ($(#[$meta:meta])* $visibility:vis struct $name:ident($field_visibility:vis $type:ty);) => {
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy)]
        $visibility struct $name($field_visibility $type);

        const _: () = {
            const fn from_bytes<T: $crate::structure::FromBytes>() {}
            from_bytes::<$type>()
        };

        #[allow(unsafe_code, reason = "see the comment")]
        // SAFETY: The structure has the layout of its field, whose type implements the trait.
        unsafe impl $crate::structure::FromBytes for $name {
            const ZERO: Self = Self($crate::structure::FromBytes::ZERO);
        }
    };
}
