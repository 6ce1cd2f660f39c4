// SPDX-License-Identifier: GPL-2.0

//! Counters of the module's own overhead ("costs"), and their debugfs files. A cost may be updated
//! in any context.

use core::arch::asm;

use kernel::ffi::{c_char, CStr};

use super::shim;
use crate::base::clock;
use crate::costs::{SelfStat, NR_STATS};
use crate::driver::Counter;

/// A debugfs file in the directory perfmon/cpuN; in C, `struct pfc_cost_file`.
#[repr(C)]
pub(crate) struct File {
    name: *const c_char,
    first: u16,
    second: u16,
}

// SAFETY: A `File` is a constant with pointers to static strings only.
unsafe impl Sync for File {}

impl File {
    /// Creates a debugfs file that shows one cost.
    pub(crate) const fn single(name: &'static CStr, cost: SelfStat) -> Self {
        Self::sum(name, cost, cost)
    }

    /// Creates a debugfs file that shows the sum of two different costs.
    pub(crate) const fn sum(name: &'static CStr, first: SelfStat, second: SelfStat) -> Self {
        Self {
            name: name.to_bytes_with_nul().as_ptr().cast(),
            first: first as u16,
            second: second as u16,
        }
    }
}

/// Computes the scale from TSC ticks to nanoseconds. Called by module init, before any cost can be
/// counted.
pub(crate) fn init() {
    // SAFETY: `pfc_costs_init()` is called once, before anything reads the scale that it computes.
    unsafe { shim::pfc_costs_init() }
}

/// Sets the counter instance of a cost. Called by module init, before any cost can be counted.
pub(crate) fn publish(cost: SelfStat, counter: Counter) {
    // SAFETY: `cost` is below the array's length, and nothing reads the array yet. The per-CPU
    // slots of `counter` exist until module exit.
    unsafe { shim::pfc_costs[cost as usize] = counter.raw() }
}

/// Creates the debugfs files of a CPU, unless they exist already. Called in process context.
pub(crate) fn show(cpu: u32, files: &'static [File]) {
    // SAFETY: The pointer and length are those of a static slice.
    unsafe { shim::pfc_costs_show(cpu, files.as_ptr(), files.len() as u32) }
}

#[inline(always)]
fn slot(cost: SelfStat) -> *mut i64 {
    let all = (&raw const shim::pfc_costs).cast::<*mut i64>();
    // SAFETY: The index is below the array's length, as asserted at the end of this file. The array
    // `pfc_costs` is written before any cost can be counted.
    unsafe { all.add(cost as usize).read() }
}

/// Adds one to the counter of a cost. Callable in any context.
#[inline(always)]
pub(crate) fn count(cost: SelfStat) {
    // SAFETY: The slot is a per-CPU word of an instance that this module owns; one instruction
    // updates this CPU's copy.
    unsafe { asm!("incq %gs:({p})", p = in(reg) slot(cost), options(att_syntax, nostack)) }
}

/// Adds `delta` to the counter of a cost. Callable in any context.
#[inline(always)]
pub(crate) fn add(cost: SelfStat, delta: u64) {
    // SAFETY: The slot is a per-CPU word of an instance that this module owns; one instruction
    // updates this CPU's copy.
    unsafe {
        asm!("addq {d}, %gs:({p})", d = in(reg) delta, p = in(reg) slot(cost),
            options(att_syntax, nostack))
    }
}

/// Adds the time since the time stamp `began` (low 32 bits of the TSC) to a cost. Preemption must
/// have been off since `began`, and less than 2^32 TSC ticks may have passed.
#[inline(always)]
pub(crate) fn add_elapsed(cost: SelfStat, began: u32) {
    let ticks = clock::time_stamp_low().wrapping_sub(began);
    // SAFETY: The scale is written before any cost can be counted, and constant afterwards.
    let scale = unsafe { shim::pfc_costs_scale };
    add(cost, u64::from(ticks).wrapping_mul(u64::from(scale)) >> 24);
}

/// Counts an operation when created, and adds the operation's duration when dropped. May be used in
/// any context; the thread may move to another CPU during the operation.
pub(crate) struct CostTimer {
    time: SelfStat,
    began: u64,
}

impl CostTimer {
    /// Adds one to the cost `nr`, and starts to measure the duration that drop adds to the cost
    /// `time`.
    #[inline(always)]
    pub(crate) fn begin(nr: SelfStat, time: SelfStat) -> Self {
        count(nr);
        Self {
            time,
            began: clock::time_stamp(),
        }
    }
}

impl Drop for CostTimer {
    #[inline(always)]
    fn drop(&mut self) {
        let ticks = clock::time_stamp().saturating_sub(self.began);
        // SAFETY: The scale is written before any cost can be counted, and constant afterwards.
        let scale = unsafe { shim::pfc_costs_scale };
        add(
            self.time,
            (u128::from(ticks).wrapping_mul(u128::from(scale)) >> 24) as u64,
        );
    }
}

const _: () = assert!(NR_STATS == SelfStat::EventsLost as usize + 1);
