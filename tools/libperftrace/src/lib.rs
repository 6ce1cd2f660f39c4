// SPDX-License-Identifier: GPL-2.0

//! Events of C and C++ programs: `include/perftrace/perftrace.h` says what each function does. The
//! library is the crate `perftrace`; here are its C names.
//!
//! Programs get it without std: it wants nothing of them but their C library, and brings no
//! other symbols. Where a panic would unwind, which is in builds for lints only, that is not
//! possible; nor in builds for tests.
//!
//! | file | holds |
//! |---|---|
//! | `panic.rs` | the end of the program, if it came to that; unsafe |

#![cfg_attr(all(panic = "abort", not(feature = "simulate")), no_std)]
#![expect(unsafe_code, reason = "C")]

#[cfg(all(panic = "abort", not(feature = "simulate")))]
mod panic;

use perftrace::{c, Module, Site, Value};

/// A program or library has been loaded.
///
/// # Safety
///
/// It is as the header says, until it is given to [`perftrace_unregister`].
#[no_mangle]
pub unsafe extern "C" fn perftrace_register(module: *mut Module) {
    // SAFETY: By the caller's word.
    unsafe { c::register(module) }
}

/// It is about to be unloaded.
///
/// # Safety
///
/// It was given to [`perftrace_register`].
#[no_mangle]
pub unsafe extern "C" fn perftrace_unregister(module: *mut Module) {
    // SAFETY: By the caller's word.
    unsafe { c::unregister(module) }
}

/// An event without fields.
///
/// # Safety
///
/// As for [`perftrace_write_2`].
#[no_mangle]
pub unsafe extern "C" fn perftrace_write_0(site: *const Site) {
    // SAFETY: By the caller's word.
    unsafe { c::write_0(site) }
}

/// An event with at most 8 bytes of fields.
///
/// # Safety
///
/// As for [`perftrace_write_2`].
#[no_mangle]
pub unsafe extern "C" fn perftrace_write_1(site: *const Site, first: u64) {
    // SAFETY: By the caller's word.
    unsafe { c::write_1(site, first) }
}

/// An event with 9 to 16 bytes of fields.
///
/// # Safety
///
/// The site is one of a registered module, and its fields have that size.
#[no_mangle]
pub unsafe extern "C" fn perftrace_write_2(site: *const Site, first: u64, second: u64) {
    // SAFETY: By the caller's word.
    unsafe { c::write_2(site, first, second) }
}

/// An event with more, but no text.
///
/// # Safety
///
/// As for [`perftrace_write_2`]; there are so many words of fields, at least one.
#[no_mangle]
pub unsafe extern "C" fn perftrace_write(site: *const Site, fields: *const u64, words: usize) {
    // SAFETY: By the caller's word.
    unsafe { c::write(site, fields, words) }
}

/// An event with texts.
///
/// # Safety
///
/// As for [`perftrace_write_2`]; there is a value for each field.
#[no_mangle]
pub unsafe extern "C" fn perftrace_write_values(
    site: *const Site,
    values: *const Value<'_>,
    n: usize,
) {
    // SAFETY: By the caller's word.
    unsafe { c::write_values(site, values, n) }
}
