// SPDX-License-Identifier: GPL-2.0

//! The functions of the crate `perftrace` under C names, for C and C++ programs.
//! `include/perftrace/perftrace.h` declares these functions.
//!
//! The library is built without std, so it needs only the C library and adds no symbols of std to a
//! program. Builds for tests use std. Builds by `cargo clippy` use std as well, because a panic
//! unwinds in these builds, and unwinding needs std.
//!
//! | file | contents |
//! |---|---|
//! | `panic.rs` | panic handler: aborts the program; unsafe |

#![cfg_attr(all(panic = "abort", not(feature = "simulate")), no_std)]
#![expect(unsafe_code, reason = "C")]

#[cfg(all(panic = "abort", not(feature = "simulate")))]
mod panic;

use perftrace::{c, FieldValue, MarkerModule, Site};

/// Registers a program or library that has been loaded.
///
/// # Safety
///
/// The module is valid, as described in `perftrace.h`, until it is passed to
/// [`perftrace_unregister`].
#[no_mangle]
pub unsafe extern "C" fn perftrace_register(module: *mut MarkerModule) {
    // SAFETY: The caller guarantees that the module is valid until it is unregistered.
    unsafe { c::register_module(module) }
}

/// Unregisters a program or library that is about to be unloaded.
///
/// # Safety
///
/// The module was passed to [`perftrace_register`].
#[no_mangle]
pub unsafe extern "C" fn perftrace_unregister(module: *mut MarkerModule) {
    // SAFETY: The caller guarantees that the module was registered.
    unsafe { c::unregister_module(module) }
}

/// Writes an event without fields.
///
/// # Safety
///
/// The site belongs to a registered module, and its event has no fields.
#[no_mangle]
pub unsafe extern "C" fn perftrace_write_0(site: *const Site) {
    // SAFETY: The caller guarantees that the site's module is registered, and that the event has no
    // fields.
    unsafe { c::write_event_0_words(site) }
}

/// Writes an event with at most 8 bytes of fields.
///
/// # Safety
///
/// The site belongs to a registered module, and its fields take 1 to 8 bytes.
#[no_mangle]
pub unsafe extern "C" fn perftrace_write_1(site: *const Site, first: u64) {
    // SAFETY: The caller guarantees that the site's module is registered, and that the fields of
    // the event take one word.
    unsafe { c::write_event_1_word(site, first) }
}

/// Writes an event with 9 to 16 bytes of fields.
///
/// # Safety
///
/// The site belongs to a registered module, and its fields take 9 to 16 bytes.
#[no_mangle]
pub unsafe extern "C" fn perftrace_write_2(site: *const Site, first: u64, second: u64) {
    // SAFETY: The caller guarantees that the site's module is registered, and that the fields of
    // the event take two words.
    unsafe { c::write_event_2_words(site, first, second) }
}

/// Writes an event with any number of fields that are not texts.
///
/// # Safety
///
/// The site belongs to a registered module. The fields of the event take `words` words, which can
/// be read at `fields`. `words` is not 0.
#[no_mangle]
pub unsafe extern "C" fn perftrace_write(site: *const Site, fields: *const u64, words: usize) {
    // SAFETY: The caller guarantees that the site's module is registered, and that the fields of
    // the event take `words` words, which can be read at `fields`.
    unsafe { c::write_event_words(site, fields, words) }
}

/// Writes an event with texts.
///
/// # Safety
///
/// The site belongs to a registered module. `values` has a value for each field of the event, and
/// the texts can be read.
#[no_mangle]
pub unsafe extern "C" fn perftrace_write_values(
    site: *const Site,
    values: *const FieldValue<'_>,
    n: usize,
) {
    // SAFETY: The caller guarantees that the site's module is registered, that `values` has a value
    // for each field of the event, and that the texts can be read.
    unsafe { c::write_event_values(site, values, n) }
}
