// SPDX-License-Identifier: GPL-2.0

//! perf_adjust(): the seed's update, in any context.

use engine::abi::MAX_INSTANCES;
use kernel::ffi::c_int;

use super::tables::{is_live, slot_address};
use crate::driver::{Counter, Group};

/// Adds `delta` to this CPU's value of an instance, between the two halves of
/// the seqflag. Any context, NMI included. A number that is unknown, dormant or
/// out of range changes nothing.
///
/// The check for life comes after preemption is off, so that perf_add() can
/// wait, by an RCU grace period, for updates that still saw the last life.
#[no_mangle]
pub(crate) extern "C" fn perf_adjust(instance: c_int, delta: i64) {
    let slot = instance as u32;
    if slot >= MAX_INSTANCES {
        return;
    }
    let _group = Group::begin();
    if is_live(slot) {
        // SAFETY: A live slot's page exists and stays until the module goes,
        // which a caller of this function prevents.
        unsafe { Counter::from_raw(slot_address(slot) as *mut i64) }.add(delta);
    }
}
