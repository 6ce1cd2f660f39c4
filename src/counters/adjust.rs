// SPDX-License-Identifier: GPL-2.0

//! `perf_adjust()`: updates an instance by its number, in any context.

#![expect(unsafe_code, reason = "exports perf_adjust(), and updates slots")]

use counters_rules::abi::MAX_INSTANCES;
use kernel::ffi::c_int;

use crate::driver::{Counter, Group};
use crate::tables::{is_live, slot_address};

/// Adds `delta` to this CPU's value of an instance, and counts the update in this CPU's sequence
/// word (seqflag). May be called in any context, including NMIs. Does nothing if `instance` is
/// negative, out of range or not the number of a live instance.
///
/// Preemption is off from the check that the instance is live to the end of the update. Before
/// perf_add() revives a deleted instance, it waits for an RCU grace period: all calls of
/// perf_adjust() that found the instance live before perf_del() have then completed their updates.
#[no_mangle]
pub(crate) extern "C" fn perf_adjust(instance: c_int, delta: i64) {
    let slot = instance as u32;
    if slot >= MAX_INSTANCES {
        return;
    }
    let _group = Group::begin();
    if is_live(slot) {
        // SAFETY: The page of a live slot stays allocated until the module is unloaded, and the
        // caller's module holds a reference to this module.
        unsafe { Counter::from_raw(slot_address(slot) as *mut i64) }.add(delta);
    }
}
