// SPDX-License-Identifier: GPL-2.0

//! `perf_adjust()`: updates an instance by its number, in any context.

use counters_rules::abi::MAX_INSTANCES;
use kernel::ffi::c_int;

use super::tables::{is_live, slot_address};
use crate::driver::{Counter, Group};

/// Adds `delta` to this CPU's value of an instance, as one update of the CPU's sequence word
/// (seqflag). May be called in any context, including NMIs. Does nothing if `instance` is negative,
/// out of range or not the number of a live instance.
///
/// Liveness is checked with preemption off, so that perf_add() can wait, by an RCU grace period,
/// for updates that began before the instance was deleted.
#[no_mangle]
pub(crate) extern "C" fn perf_adjust(instance: c_int, delta: i64) {
    let slot = instance as u32;
    if slot >= MAX_INSTANCES {
        return;
    }
    let _group = Group::begin();
    if is_live(slot) {
        // SAFETY: A live slot's page exists and stays until the module is unloaded, which a caller
        // of this function prevents.
        unsafe { Counter::from_raw(slot_address(slot) as *mut i64) }.add(delta);
    }
}
