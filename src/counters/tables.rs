// SPDX-License-Identifier: GPL-2.0

//! Tables that map numbers to addresses. Page faults, and perf_adjust() in any context, read the
//! tables without a lock.

#![expect(unsafe_code, reason = "addresses that are read without a lock")]

use core::cell::UnsafeCell;

use counters_rules::abi::MAX_INSTANCES;
use counters_rules::layout::{DESCS_PER_PAGE, MAX_SLOT_PAGES, SLOTS_PER_PAGE};

/// An array of `N` addresses, or a bitmap of `N` words. Only the holder of the registry's lock
/// writes the array; any thread may read it.
///
/// # Invariants
///
/// `N` is a power of two. Entries are written by [`Table::publish`] only.
pub(crate) struct Table<const N: usize>(UnsafeCell<[usize; N]>);

// SAFETY: Every access is a volatile access of one aligned word, and the registry's lock serialises
// writers.
unsafe impl<const N: usize> Sync for Table<N> {}

impl<const N: usize> Table<N> {
    const fn new() -> Self {
        assert!(N.is_power_of_two());
        Self(UnsafeCell::new([0; N]))
    }

    /// Returns the entry at `index`; 0 if the entry is not set. Callable in any context.
    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> usize {
        let entry = self.0.get().cast::<usize>().wrapping_add(index & (N - 1));
        // SAFETY: The masked index is within the array, by the type's invariant. The reader takes
        // the address of the memory from the entry, so this load needs no barrier: the address
        // dependency pairs with the barrier in `publish`.
        unsafe { entry.read_volatile() }
    }

    /// Sets an entry. The caller has initialised the memory to which `value` points, and holds the
    /// registry's lock.
    pub(crate) fn publish(&self, index: usize, value: usize) {
        base::kernel_version::smp_wmb();
        let entry = self.0.get().cast::<usize>().wrapping_add(index & (N - 1));
        // SAFETY: The masked index is within the array, by the type's invariant. The registry's
        // lock excludes other writers.
        unsafe { entry.write_volatile(value) }
    }
}

/// Table of the per-CPU addresses of the pages of slots.
pub(crate) static SLOT_PAGE_ADDRESSES: Table<{ MAX_SLOT_PAGES.next_power_of_two() as usize }> =
    Table::new();
/// Table of the addresses of the pages of descriptors.
pub(crate) static DESC_PAGE_ADDRESSES: Table<{ (MAX_INSTANCES / DESCS_PER_PAGE) as usize }> =
    Table::new();
/// One bit for each instance, which is set while the instance is live.
pub(crate) static LIVE_INSTANCE_BITS: Table<{ (MAX_INSTANCES / 64) as usize }> = Table::new();

/// Returns the per-CPU address of a slot. The slot's page must exist. The page of a slot exists if
/// an instance that has the slot is live or was live.
#[inline(always)]
pub(crate) fn slot_address(slot: u32) -> usize {
    SLOT_PAGE_ADDRESSES
        .get((slot / SLOTS_PER_PAGE) as usize)
        .wrapping_add((slot % SLOTS_PER_PAGE) as usize * 8)
}

/// Returns whether an instance is live: only updates of live instances are counted.
#[inline(always)]
pub(crate) fn is_live(instance: u32) -> bool {
    LIVE_INSTANCE_BITS.get((instance / 64) as usize) >> (instance % 64) & 1 != 0
}

/// Marks an instance as live or not live. The caller holds the registry's lock.
pub(crate) fn set_live(instance: u32, live: bool) {
    let bit = 1usize << (instance % 64);
    let word = LIVE_INSTANCE_BITS.get((instance / 64) as usize);
    let word = if live { word | bit } else { word & !bit };
    LIVE_INSTANCE_BITS.publish((instance / 64) as usize, word);
}
