// SPDX-License-Identifier: GPL-2.0

//! Statistics about a module itself: per-CPU counters that may be updated in any context. Counting
//! an event costs a load and an add instruction. Measuring a duration also costs two reads of the
//! time stamp counter.

use core::arch::asm;
use core::cell::UnsafeCell;

use super::{clock, helpers};

/// The per-CPU addresses of `N` statistics. A statistic is identified by its index, which is less
/// than `N`.
///
/// # Invariants
///
/// `N` is a power of two. `slots` and `tsc_to_ns_mult` are written by module init only, before any
/// statistic can be updated. As long as a statistic can be updated, its slot (its element of
/// `slots`) is the per-CPU address of an existing word.
pub struct ModuleStats<const N: usize> {
    slots: UnsafeCell<[*mut i64; N]>,
    /// The number of nanoseconds per 2^24 ticks of the time stamp counter. 0 if the rate of the
    /// counter is unknown; all times then stay 0.
    tsc_to_ns_mult: UnsafeCell<u32>,
}

// SAFETY: By the type's invariant nothing writes the fields while other threads read them. The
// elements of `slots` are per-CPU addresses, which any thread may use.
unsafe impl<const N: usize> Sync for ModuleStats<N> {}

impl<const N: usize> ModuleStats<N> {
    /// Creates `N` statistics, whose per-CPU addresses are not set yet (NULL).
    pub const fn new() -> Self {
        assert!(N.is_power_of_two());
        Self {
            slots: UnsafeCell::new([core::ptr::null_mut(); N]),
            tsc_to_ns_mult: UnsafeCell::new(0),
        }
    }

    /// Sets the slot of the statistic `stat`.
    ///
    /// # Safety
    ///
    /// Called by module init, before any statistic can be updated. `slot` is the per-CPU address of
    /// a word that exists as long as the statistic can be updated.
    pub unsafe fn set_per_cpu_slot(&self, stat: usize, slot: *mut i64) {
        // SAFETY: By the function's requirement nothing else accesses the fields. The masked index
        // is within the array.
        unsafe {
            self.slots_element_ptr(stat).write(slot);
            *self.tsc_to_ns_mult.get() = helpers::pfc_tsc_ns_scale();
        }
    }

    /// Returns the array of the per-CPU addresses of all statistics, for C code.
    pub fn slots(&self) -> *const *mut i64 {
        self.slots.get().cast_const().cast()
    }

    #[inline(always)]
    fn slots_element_ptr(&self, stat: usize) -> *mut *mut i64 {
        let first = self.slots.get().cast::<*mut i64>();
        // `N` is a power of two, so the mask does not change an index below `N`.
        first.wrapping_add(stat & (N - 1))
    }

    #[inline(always)]
    fn slot(&self, stat: usize) -> *mut i64 {
        // SAFETY: The masked index is within the array, which is not written any more, by the
        // type's invariant.
        unsafe { self.slots_element_ptr(stat).read() }
    }

    /// Adds one to the statistic `stat`. Callable in any context.
    #[inline(always)]
    pub fn count(&self, stat: usize) {
        // SAFETY: By the type's invariant the slot is the per-CPU address of a word; one
        // instruction updates this CPU's copy.
        unsafe { asm!("incq %gs:({p})", p = in(reg) self.slot(stat), options(att_syntax, nostack)) }
    }

    /// Adds `delta` to the statistic `stat`. Callable in any context.
    #[inline(always)]
    pub fn add(&self, stat: usize, delta: u64) {
        // SAFETY: By the type's invariant the slot is the per-CPU address of a word; one
        // instruction updates this CPU's copy.
        unsafe {
            asm!("addq {d}, %gs:({p})", d = in(reg) delta, p = in(reg) self.slot(stat),
                options(att_syntax, nostack))
        }
    }

    /// Adds the time since the time stamp `began` (low 32 bits of the TSC) to the statistic `stat`.
    /// Since `began`, preemption must have been off and fewer than 2^32 TSC ticks must have passed.
    #[inline(always)]
    pub fn add_elapsed(&self, stat: usize, began: u32) {
        let ticks = clock::read_tsc_low_bits().wrapping_sub(began);
        let nanoseconds = u64::from(ticks).wrapping_mul(u64::from(self.tsc_to_ns_mult())) >> 24;
        self.add(stat, nanoseconds);
    }

    #[inline(always)]
    fn tsc_to_ns_mult(&self) -> u32 {
        // SAFETY: The multiplier is not written any more, by the type's invariant.
        unsafe { *self.tsc_to_ns_mult.get() }
    }

    /// Adds one to the statistic `nr`, and starts to measure a time. The drop of the result adds
    /// the measured time to the statistic `time_stat`. Callable in any context.
    #[inline(always)]
    pub fn count_and_time(&'static self, nr: usize, time_stat: usize) -> CostTimer<N> {
        self.count(nr);
        CostTimer {
            stats: self,
            time_stat,
            start_tsc: clock::read_tsc(),
        }
    }
}

/// A timer, whose drop adds the time since its creation to a statistic. The thread may move to
/// another CPU between the creation and the drop of the timer.
pub struct CostTimer<const N: usize> {
    stats: &'static ModuleStats<N>,
    time_stat: usize,
    start_tsc: u64,
}

impl<const N: usize> Drop for CostTimer<N> {
    #[inline(always)]
    fn drop(&mut self) {
        let ticks = clock::read_tsc().saturating_sub(self.start_tsc);
        let mult = u128::from(self.stats.tsc_to_ns_mult());
        let nanoseconds = (u128::from(ticks).wrapping_mul(mult) >> 24) as u64;
        self.stats.add(self.time_stat, nanoseconds);
    }
}
