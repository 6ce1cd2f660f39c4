// SPDX-License-Identifier: GPL-2.0

//! The C interface for drivers, `include/linux/perfcounters.h`. Everything here
//! turns C's arguments into Rust's and asks [`crate::counters`].

use core::mem::size_of;

use engine::abi::NAME_MAX;
use engine::error::Error;
use engine::spec::Spec;
use kernel::ffi::{c_char, c_int};

use super::tables::{is_live, slot_address};
use crate::counters;

/// `struct perf_counter_spec`.
#[repr(C)]
pub(crate) struct RawSpec {
    size: u32,
    kind: u16,
    unit: u16,
    exponent: i8,
    reserved: u8,
    nr_slots: u16,
    name: *const c_char,
    help: *const c_char,
}

/// Text of at most [`NAME_MAX`] bytes; longer ones come back cut to that
/// length, which is too long for every field, so they are refused and not read
/// to their end.
///
/// # Safety
///
/// `text` is NULL or NUL-terminated, and stays for `'a`.
unsafe fn text<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: By the function's requirement every byte up to the NUL may be
    // read, and none behind it is.
    let len = unsafe { kernel::bindings::strnlen(text, NAME_MAX) };
    // SAFETY: `len` bytes were just read.
    unsafe { core::slice::from_raw_parts(text.cast(), len) }
}

/// Adds a counter of events. Process context; may sleep.
///
/// Returns its number, or -EINVAL (empty name, atomic context), -ENAMETOOLONG,
/// -EILSEQ (not UTF-8, control characters), -EEXIST (the name is live),
/// -ENOSPC, -ENOMEM. A dormant name gets its old number and zero values.
///
/// # Safety
///
/// `name` is NULL or a C string.
#[no_mangle]
pub(crate) unsafe extern "C" fn perf_add(name: *const c_char) -> c_int {
    // SAFETY: By the function's requirement; used during this call only.
    counters::add(&Spec::counter(unsafe { text(name) }))
}

/// Adds an instance of any kind. As perf_add(), and -EINVAL for a size, kind,
/// unit, exponent or number of slots that make no sense.
///
/// # Safety
///
/// `spec` is NULL or a `struct perf_counter_spec` with C strings or NULL.
#[no_mangle]
pub(crate) unsafe extern "C" fn perf_add_desc(spec: *const RawSpec) -> c_int {
    // SAFETY: `size` is the first field of every version of the structure.
    if spec.is_null() || unsafe { (*spec).size } as usize != size_of::<RawSpec>() {
        return Error::BadSpec.errno().wrapping_neg();
    }
    // SAFETY: By the function's requirement, and it is of our size.
    let raw = unsafe { &*spec };
    if raw.reserved != 0 {
        return Error::BadSpec.errno().wrapping_neg();
    }
    counters::add(&Spec {
        // SAFETY: By the function's requirement; used during this call only.
        name: unsafe { text(raw.name) },
        // SAFETY: As above.
        help: unsafe { text(raw.help) },
        kind: raw.kind,
        unit: raw.unit,
        exponent: raw.exponent,
        nr_slots: raw.nr_slots,
    })
}

/// Makes an instance dormant: its number and last values stay. Process context.
/// The caller has stopped its own updates through handles. A number that is not
/// live changes nothing and is reported in the kernel log.
#[no_mangle]
pub(crate) extern "C" fn perf_del(instance: c_int) {
    counters::del(instance);
}

/// Where each CPU's value of a live instance is, for the inlines; NULL for a
/// number that is not live. Any context. Valid until perf_del().
#[no_mangle]
pub(crate) extern "C" fn perf_counter_handle(instance: c_int) -> *mut i64 {
    match u32::try_from(instance) {
        Ok(slot) if slot < engine::abi::MAX_INSTANCES && is_live(slot) => {
            slot_address(slot) as *mut i64
        }
        _ => core::ptr::null_mut(),
    }
}
