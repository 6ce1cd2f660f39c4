// SPDX-License-Identifier: GPL-2.0

//! Numbers to addresses, for those who may take no lock: perf_adjust() in any
//! context and page faults.

use core::cell::UnsafeCell;

use engine::abi::MAX_INSTANCES;
use engine::layout::{DESCS_PER_PAGE, MAX_SLOT_PAGES, SLOTS_PER_PAGE};

/// A table of words that only the holder of the registry's lock writes and
/// anyone reads.
///
/// # Invariants
///
/// `N` is a power of two. Entries are written with [`Table::publish`] only.
pub(crate) struct Table<const N: usize>(UnsafeCell<[usize; N]>);

// SAFETY: Every access is a volatile access of one aligned word; writers are
// serialised by the registry's lock.
unsafe impl<const N: usize> Sync for Table<N> {}

impl<const N: usize> Table<N> {
    const fn new() -> Self {
        assert!(N.is_power_of_two());
        Self(UnsafeCell::new([0; N]))
    }

    /// An entry, 0 where there is none. Any context.
    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> usize {
        let entry = self.0.get().cast::<usize>().wrapping_add(index & (N - 1));
        // SAFETY: Masked, so within the array, by the type's invariant. What
        // hangs off an entry is reached through it: an address dependency,
        // which pairs with the barrier in `publish`.
        unsafe { entry.read_volatile() }
    }

    /// Sets an entry; what hangs off it was initialised before. The caller
    /// holds the registry's lock.
    pub(crate) fn publish(&self, index: usize, value: usize) {
        crate::sys::release::smp_wmb();
        let entry = self.0.get().cast::<usize>().wrapping_add(index & (N - 1));
        // SAFETY: As in `get`.
        unsafe { entry.write_volatile(value) }
    }
}

/// Per-CPU address of each page of slots.
pub(crate) static SLOT_PAGES: Table<{ MAX_SLOT_PAGES.next_power_of_two() as usize }> = Table::new();
/// Address of each page of descriptors.
pub(crate) static DESC_PAGES: Table<{ (MAX_INSTANCES / DESCS_PER_PAGE) as usize }> = Table::new();
/// A bit for each instance that counts.
pub(crate) static LIVE: Table<{ (MAX_INSTANCES / 64) as usize }> = Table::new();

/// Per-CPU address of a slot whose page exists: one that is or was live.
#[inline(always)]
pub(crate) fn slot_address(slot: u32) -> usize {
    SLOT_PAGES
        .get((slot / SLOTS_PER_PAGE) as usize)
        .wrapping_add((slot % SLOTS_PER_PAGE) as usize * 8)
}

/// Does this instance count?
#[inline(always)]
pub(crate) fn is_live(instance: u32) -> bool {
    LIVE.get((instance / 64) as usize) >> (instance % 64) & 1 != 0
}

/// Lets an instance count, or not. The caller holds the registry's lock.
pub(crate) fn set_live(instance: u32, live: bool) {
    let bit = 1usize << (instance % 64);
    let word = LIVE.get((instance / 64) as usize);
    let word = if live { word | bit } else { word & !bit };
    LIVE.publish((instance / 64) as usize, word);
}
