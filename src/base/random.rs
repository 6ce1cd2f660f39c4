// SPDX-License-Identifier: GPL-2.0

//! Random bytes.

use kernel::bindings;

/// Returns `N` random bytes.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0u8; N];
    // SAFETY: The buffer `bytes` is `N` bytes long.
    unsafe { bindings::get_random_bytes(bytes.as_mut_ptr().cast(), N) };
    bytes
}
