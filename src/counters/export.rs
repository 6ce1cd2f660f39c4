// SPDX-License-Identifier: GPL-2.0

//! The C interface for drivers, `include/linux/perfcounters.h`. Functions that add or delete
//! instances convert C arguments to Rust types and call [`crate::instances`]. `perf_adjust()`
//! updates an instance by its number, in any context.

#![expect(unsafe_code, reason = "called by drivers in C, and updates slots")]

use core::mem::size_of;

use counters_rules::abi::{MAX_INSTANCES, NAME_MAX};
use counters_rules::error::Error;
use counters_rules::spec::Spec;
use kernel::ffi::{c_char, c_int, c_void};
use kernel::prelude::*;
use kernel::str::CStr;

use crate::driver::{Counter, RawSpec, UpdateGroup};
use crate::helpers;
use crate::instances;
use crate::owner::ModuleOwner;
use crate::tables::{is_live, slot_address};

// src/counters/helpers/counters.c asserts that `struct perf_counter_spec` in C has this size.
const _: () = assert!(size_of::<RawSpec>() == 32);

/// Returns at most the first [`NAME_MAX`] bytes of a C string. A longer string is cut to
/// [`NAME_MAX`] bytes. `counters_rules` refuses a name or a help text of this length as too long.
///
/// # Safety
///
/// `text` is NULL or NUL-terminated, and is valid for `'a`.
unsafe fn c_string_bytes<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: By the function's requirement every byte up to the NUL may be read, and `strnlen`
    // reads no byte behind the NUL.
    let len = unsafe { kernel::bindings::strnlen(text, NAME_MAX) };
    // SAFETY: `strnlen` has just read `len` bytes of `text`.
    unsafe { core::slice::from_raw_parts(text.cast(), len) }
}

/// Adds an instance that counts events and belongs to module `owner`. Called in process context;
/// may sleep.
///
/// Returns the instance's number, or -EINVAL (empty name, atomic context), -ENAMETOOLONG, -EILSEQ
/// (not UTF-8, control characters), -EEXIST (the name is live), -ENOSPC, -ENOMEM, -ENODEV (the
/// registry is not initialised). If a dormant instance has the same name, it becomes live again,
/// with its old number and values of zero.
///
/// # Safety
///
/// `name` is NULL or a C string.
#[no_mangle]
pub(crate) unsafe extern "C" fn __perf_add(name: *const c_char, owner: ModuleOwner) -> c_int {
    // SAFETY: By the function's requirement `name` is NULL or a C string; it is used during this
    // call only.
    instances::add(&Spec::counter(unsafe { c_string_bytes(name) }), owner)
}

/// Adds an instance of any kind (counter, gauge, peak, time, histogram). Called in process context;
/// may sleep.
///
/// Returns the same values as `__perf_add`, and -EINVAL also for an invalid size, kind, unit,
/// exponent or number of slots. If a dormant instance has the same name and enough slots, the new
/// instance takes over its number; otherwise the new instance gets a new number.
///
/// # Safety
///
/// `spec` is NULL or points to a `struct perf_counter_spec`. `name` and `help` in `spec` are each
/// NULL or a C string.
#[no_mangle]
pub(crate) unsafe extern "C" fn __perf_add_desc(spec: *const RawSpec, owner: ModuleOwner) -> c_int {
    // SAFETY: `spec` is not NULL, and `size` is the first field of every version of the structure.
    if spec.is_null() || unsafe { (*spec).size } as usize != size_of::<RawSpec>() {
        return instances::log_refused_add(&[], Error::BadSpec);
    }
    // SAFETY: By the function's requirement `spec` is valid, and it has the size of `RawSpec`.
    let raw = unsafe { &*spec };
    // SAFETY: By the function's requirement `name` is NULL or a C string; it is used during this
    // call only.
    let name = unsafe { c_string_bytes(raw.name) };
    if raw.reserved != 0 {
        return instances::log_refused_add(name, Error::BadSpec);
    }
    let spec = Spec {
        name,
        // SAFETY: By the function's requirement `help` is NULL or a C string; it is used during
        // this call only.
        help: unsafe { c_string_bytes(raw.help) },
        kind: raw.kind,
        unit: raw.unit,
        exponent: raw.exponent,
        nr_slots: raw.nr_slots,
    };
    instances::add(&spec, owner)
}

/// Makes an instance dormant: the number and the last values of the instance remain readable.
/// Called in process context.
///
/// Before a driver calls perf_del(), it must have stopped all updates that use a handle of the
/// instance. If no live instance has the number `instance`, perf_del() only writes a line to the
/// kernel log. If `instance` is negative, that is, an error of perf_add(), perf_del() does nothing.
#[no_mangle]
pub(crate) extern "C" fn perf_del(instance: c_int) {
    instances::del(instance);
}

/// Adds `delta` to this CPU's value of an instance, and counts the update in this CPU's sequence
/// word (seqflag). May be called in any context, including NMIs. Does nothing if `instance` is
/// negative, out of range or not the number of a live instance.
///
/// Preemption is off while this function checks that the instance is live and updates the instance.
/// Before perf_add() revives a deleted instance, it waits for an RCU grace period: all calls of
/// perf_adjust() that found the instance live before perf_del() have then completed their updates.
#[no_mangle]
pub(crate) extern "C" fn perf_adjust(instance: c_int, delta: i64) {
    let slot = instance as u32;
    if slot >= MAX_INSTANCES {
        return;
    }
    let _group = UpdateGroup::begin();
    if is_live(slot) {
        // SAFETY: The page of a live slot stays allocated until the module is unloaded, and the
        // caller's module holds a reference to this module.
        unsafe { Counter::from_raw(slot_address(slot) as *mut i64) }.add(delta);
    }
}

/// Returns the per-CPU address of a live instance's value, for the inline functions of the header.
/// If `instance` is not the number of a live instance, returns `perf_counter_nowhere`, whose values
/// are never read. Callable in any context. The returned address is valid until perf_del().
#[no_mangle]
pub(crate) extern "C" fn perf_counter_handle(instance: c_int) -> *mut i64 {
    match u32::try_from(instance) {
        Ok(slot) if slot < MAX_INSTANCES && is_live(slot) => slot_address(slot) as *mut i64,
        // SAFETY: The pointer `perf_counter_nowhere` is statically initialised and never written.
        _ => unsafe { helpers::perf_counter_nowhere },
    }
}

/// Makes dormant all instances that an unloaded module has added and not deleted.
///
/// # Safety
///
/// `name` is a C string. Called in process context.
#[no_mangle]
unsafe extern "C" fn pfc_delete_instances_of_module(module: *const c_void, name: *const c_char) {
    // SAFETY: By the function's requirement `name` is a C string; it is used during this call only.
    instances::make_module_instances_dormant(ModuleOwner::of_module(module), unsafe {
        CStr::from_char_ptr(name)
    });
}
