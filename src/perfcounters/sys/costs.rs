// SPDX-License-Identifier: GPL-2.0

//! What this module itself costs: adding, in any context, and the files of debugfs.

use core::arch::asm;

use kernel::ffi::{c_char, CStr};

use super::{msr, shim};
use crate::costs::{Cost, NR};
use crate::driver::Counter;

/// A file of perfmon/cpuN in debugfs: `struct pfc_cost_file`.
#[repr(C)]
pub(crate) struct File {
    name: *const c_char,
    first: u16,
    second: u16,
}

// SAFETY: Constants.
unsafe impl Sync for File {}

impl File {
    /// A cost.
    pub(crate) const fn of(name: &'static CStr, cost: Cost) -> Self {
        Self::sum(name, cost, cost)
    }

    /// The sum of two different ones.
    pub(crate) const fn sum(name: &'static CStr, first: Cost, second: Cost) -> Self {
        Self {
            name: name.to_bytes_with_nul().as_ptr().cast(),
            first: first as u16,
            second: second as u16,
        }
    }
}

/// The clock of times is known. From module init, before anything can cost.
pub(crate) fn init() {
    // SAFETY: Nobody reads it yet.
    unsafe { shim::pfc_costs_init() }
}

/// Where a cost is counted from now on. The same.
pub(crate) fn publish(cost: Cost, counter: Counter) {
    // SAFETY: Nobody reads it yet. The slots stay until the module goes.
    unsafe { shim::pfc_costs[cost as usize] = counter.raw() }
}

/// Shows a CPU's, once. Process context.
pub(crate) fn show(cpu: u32, files: &'static [File]) {
    // SAFETY: As many files as that, which stay.
    unsafe { shim::pfc_costs_show(cpu, files.as_ptr(), files.len() as u32) }
}

#[inline(always)]
fn slot(cost: Cost) -> *mut i64 {
    let all = (&raw const shim::pfc_costs).cast::<*mut i64>();
    // SAFETY: Below the array's end, as asserted; written before anything can cost.
    unsafe { all.add(cost as usize).read() }
}

/// One more. Any context.
#[inline(always)]
pub(crate) fn count(cost: Cost) {
    // SAFETY: The slot of an instance of ours.
    unsafe { asm!("incq %gs:({p})", p = in(reg) slot(cost), options(att_syntax, nostack)) }
}

/// Adds to a cost.
#[inline(always)]
pub(crate) fn add(cost: Cost, delta: u64) {
    // SAFETY: The slot of an instance of ours: one instruction, on this CPU's own word.
    unsafe {
        asm!("addq {d}, %gs:({p})", d = in(reg) delta, p = in(reg) slot(cost),
            options(att_syntax, nostack))
    }
}

/// The time since a time stamp was spent. Preemption off since then, and less than 2^32
/// ticks.
#[inline(always)]
pub(crate) fn spend(cost: Cost, began: u32) {
    let ticks = msr::time_stamp_low().wrapping_sub(began);
    // SAFETY: Set before anything can cost.
    let scale = unsafe { shim::pfc_costs_scale };
    add(cost, u64::from(ticks).wrapping_mul(u64::from(scale)) >> 24);
}

/// Counts, and tells the time until it goes. Any context; it may move to another CPU.
pub(crate) struct Span {
    time: Cost,
    began: u64,
}

impl Span {
    /// One more, which begins now.
    #[inline(always)]
    pub(crate) fn begin(nr: Cost, time: Cost) -> Self {
        count(nr);
        Self {
            time,
            began: msr::time_stamp(),
        }
    }
}

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        let ticks = msr::time_stamp().saturating_sub(self.began);
        // SAFETY: Set before anything can cost.
        let scale = unsafe { shim::pfc_costs_scale };
        add(
            self.time,
            (u128::from(ticks).wrapping_mul(u128::from(scale)) >> 24) as u64,
        );
    }
}

const _: () = assert!(NR == Cost::EventsLost as usize + 1);
