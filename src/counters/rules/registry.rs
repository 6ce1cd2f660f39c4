// SPDX-License-Identifier: GPL-2.0

//! The registry of instances, which are named counters: adds, deletes and revives them by name. The
//! number of an instance is the number of its first slot. A slot is a 64-bit word in the counters
//! of each CPU.
//!
//! ```text
//!            add                    del
//!   (name) -------> LIVE(1) ------------------> DORMANT(1)
//!                   LIVE(2) <------------------
//!                             add, same name:
//!                             same number, next incarnation, values zero
//! ```
//!
//! If a name is added again and its slots do not fit at its old number, the name gets another
//! number, and the old number stays without an instance. A number that one name has had is never
//! given to another name. This module implements the rules for names and numbers. A
//! [`RegistryStore`] holds the descriptors, zeroes counters and allocates memory. The kernel
//! implements `RegistryStore` with pages, and the tests with vectors.
//!
//! All functions of the registry are called in process context, with the lock of the registry held.
//! Readers take no lock; they detect changes by `protocols::generation`.

use core::hash::Hasher;
#[expect(deprecated, reason = "the only keyed hash in core, and frozen")]
use core::hash::SipHasher;

use crate::abi::{Desc, DORMANT, FREE, LIVE, MAX_INSTANCES};
use crate::error::Error;
use crate::layout::Layout;
use crate::spec::Spec;

/// Number of hash chains, which is the maximum number of names. If all names are in use, a chain
/// has one name on average, so adding the 60,000th name takes no longer than adding the 10th. The
/// hash has a secret key, so that users cannot choose names that share a chain.
/// `tools/counters-rules/tests/probes.rs` counts the steps of a search.
pub const NR_HASH_BUCKETS: u32 = MAX_INSTANCES;

/// The storage of a registry.
///
/// The registry uses only slots for which [`RegistryStore::grow`] has provided memory. A chain link
/// that was never stored is 0, which ends the chain: no instance has the number 0.
pub trait RegistryStore {
    /// Provides counters, descriptors and chain links for the slots `0..slots`. New counters,
    /// descriptors and links are zero. On failure the existing slots are unchanged.
    fn grow(&mut self, slots: u32) -> Result<(), Error>;
    /// Returns the number of the first instance in the hash chain `bucket`; 0 if the chain is
    /// empty. `bucket` is below [`NR_HASH_BUCKETS`].
    fn head(&self, bucket: u32) -> u32;
    /// Sets the first instance of the hash chain `bucket`.
    fn set_head(&mut self, bucket: u32, instance: u32);
    /// Returns the number of the instance that follows `instance` in its hash chain; 0 at the end.
    fn next(&self, instance: u32) -> u32;
    /// Sets the instance that follows `instance` in its hash chain.
    fn set_next(&mut self, instance: u32, next: u32);
    /// Returns the descriptor of an instance.
    fn desc(&self, instance: u32) -> Desc;
    /// Writes the descriptor of an instance. Readers may be reading the descriptor at the same
    /// time.
    fn set_desc(&mut self, instance: u32, desc: &Desc);
    /// Sets whether perf_adjust() may update an instance: `live` is false for a deleted instance.
    fn set_live(&mut self, instance: u32, nr_slots: u16, live: bool);
    /// Returns true if no call of perf_adjust() that began before the last `set_live(.., false)` of
    /// this instance is still running.
    fn is_quiescent(&self, instance: u32) -> bool;
    /// Zeroes the slots of an instance on every CPU. Called while the instance is not live.
    fn zero_slots(&mut self, instance: u32, nr_slots: u16);
    /// Publishes the number of slots in use in the header page.
    fn set_nr_slots(&mut self, slots: u32);
    /// Increments gen1: readers discard values that they copy after this call.
    fn begin_change(&mut self);
    /// Sets gen2 to gen1, which marks the change as complete.
    fn end_change(&mut self);
    /// Returns `CLOCK_REALTIME` in nanoseconds.
    fn realtime_ns(&self) -> u64;
}

/// The set of instances.
///
/// # Invariants
///
/// - `next_slot` is at least 1, because slot 0 is the sequence word (seqflag).
/// - Each name that was ever added is on its hash chain, with the last number that the name got.
///   Every instance number that a name has got is below `next_slot`.
pub struct Registry<S> {
    layout: Layout,
    key: (u64, u64),
    next_slot: u32,
    store: S,
}

impl<S: RegistryStore> Registry<S> {
    /// Creates an empty registry. `key` is a random hash key. A user who can choose the name of a
    /// device, and thereby of an instance, cannot predict the hash chain of the name without `key`.
    pub fn new(layout: Layout, key: (u64, u64), mut store: S) -> Result<Self, Error> {
        store.grow(1)?;
        store.set_nr_slots(1);
        // INVARIANT: the first instance gets slot 1.
        Ok(Self {
            layout,
            key,
            next_slot: 1,
            store,
        })
    }

    /// Returns a shared reference to the registry's store. The caller holds the lock of the
    /// registry.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Returns a mutable reference to the registry's store. The caller may only change data that
    /// the registry does not use, such as the owner of an instance. The caller holds the lock of
    /// the registry.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Returns the number of slots in use. The numbers of all instances are below this number.
    pub fn nr_slots(&self) -> u32 {
        self.next_slot
    }

    /// Adds an instance, or revives the dormant (deleted) instance of this name. The instance
    /// starts with the value zero on every CPU. Returns the number of the instance.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`], [`Error::Full`], and the errors of [`Spec::to_checked_desc`] and
    /// [`RegistryStore::grow`]. [`Error::UpdatesInFlight`] if updates of the dormant instance may
    /// still be running. After `UpdatesInFlight` the caller may release the registry's lock, wait
    /// for the end of the updates, and try again.
    pub fn add(&mut self, spec: &Spec<'_>) -> Result<u32, Error> {
        let wanted = spec.to_checked_desc()?;
        let bucket = self.bucket_of_name(wanted.name());
        match self.find_in_bucket(bucket, wanted.name()) {
            Some((_, old)) if old.state == LIVE => Err(Error::Exists),
            Some((instance, _)) if !self.store.is_quiescent(instance) => {
                Err(Error::UpdatesInFlight(instance))
            }
            Some((instance, old)) if self.has_room_at_number(instance, &old, wanted.nr_slots) => {
                Ok(self.revive_with_old_number(instance, &old, wanted))
            }
            Some((instance, old)) => self.revive_with_new_number(bucket, instance, &old, wanted),
            None => self.create(bucket, wanted),
        }
    }

    /// Deletes a live instance, which becomes dormant. [`Error::Unknown`] if no live instance has
    /// this number.
    pub fn del(&mut self, instance: u32) -> Result<(), Error> {
        let mut desc = self.live_desc(instance).ok_or(Error::Unknown)?;
        desc.state = DORMANT;
        desc.ended_ns = self.store.realtime_ns();
        self.store.begin_change();
        self.store.set_live(instance, desc.nr_slots, false);
        self.store.set_desc(instance, &desc);
        self.store.end_change();
        Ok(())
    }

    /// Returns the descriptor of an instance; `None` if no live instance has this number.
    fn live_desc(&self, instance: u32) -> Option<Desc> {
        if instance == 0 || instance >= self.next_slot {
            return None;
        }
        let desc = self.store.desc(instance);
        (desc.state == LIVE).then_some(desc)
    }

    /// Returns the number of the live or dormant instance with this name. Used by the simulated
    /// device (`perfcounters::fake`) and by tests, not by the kernel.
    #[cfg(not(in_kernel))]
    pub fn find(&self, name: &[u8]) -> Option<u32> {
        self.find_in_bucket(self.bucket_of_name(name), name)
            .map(|(n, _)| n)
    }

    /// Returns true if there is room for `nr_slots` slots at the number `instance`: no other
    /// instance has one of these slots, and each CPU's slots are contiguous.
    fn has_room_at_number(&self, instance: u32, old: &Desc, nr_slots: u16) -> bool {
        let end = instance.wrapping_add(u32::from(nr_slots));
        let mut more = instance.wrapping_add(u32::from(old.nr_slots))..end;
        let run = self
            .layout
            .next_slot_run_within_chunk(instance, u32::from(nr_slots));
        run == Some(instance)
            && end <= self.next_slot
            && more.all(|slot| self.store.desc(slot).state == FREE)
    }

    /// Revives an instance under its old number.
    fn revive_with_old_number(&mut self, instance: u32, old: &Desc, mut desc: Desc) -> u32 {
        desc.instance = instance;
        desc.state = LIVE;
        desc.incarnation = old.incarnation.wrapping_add(1);
        desc.created_ns = self.store.realtime_ns();
        self.store.begin_change();
        self.store.zero_slots(instance, desc.nr_slots);
        self.store.set_desc(instance, &desc);
        self.store.set_live(instance, desc.nr_slots, true);
        self.store.end_change();
        instance
    }

    /// Revives an instance under a new number, because its slots do not fit at the old number.
    fn revive_with_new_number(
        &mut self,
        bucket: u32,
        instance: u32,
        old: &Desc,
        mut desc: Desc,
    ) -> Result<u32, Error> {
        let first = self.grow_for_next_slots(desc.nr_slots)?;
        desc.incarnation = old.incarnation.wrapping_add(1);
        self.remove(bucket, instance);
        self.store.begin_change();
        self.store.set_desc(instance, &Desc::FREE);
        self.publish(bucket, first, desc);
        self.store.end_change();
        Ok(first)
    }

    fn create(&mut self, bucket: u32, mut desc: Desc) -> Result<u32, Error> {
        let first = self.grow_for_next_slots(desc.nr_slots)?;
        desc.incarnation = 1;
        self.store.begin_change();
        self.publish(bucket, first, desc);
        self.store.end_change();
        Ok(first)
    }

    /// Grows the memory so that it contains the next `nr_slots` consecutive slots, and returns the
    /// number of the first one. The slots stay free until [`Self::publish`] takes them. On failure
    /// no slot is taken.
    fn grow_for_next_slots(&mut self, nr_slots: u16) -> Result<u32, Error> {
        let count = u32::from(nr_slots);
        let first = self
            .layout
            .next_slot_run_within_chunk(self.next_slot, count)
            .ok_or(Error::Full)?;
        self.store.grow(first.wrapping_add(count))?;
        Ok(first)
    }

    /// Gives an instance the number `first`, which [`Self::grow_for_next_slots`] returned. Called
    /// between [`RegistryStore::begin_change`] and [`RegistryStore::end_change`].
    fn publish(&mut self, bucket: u32, first: u32, mut desc: Desc) {
        self.next_slot = first.wrapping_add(u32::from(desc.nr_slots));
        desc.instance = first;
        desc.state = LIVE;
        desc.created_ns = self.store.realtime_ns();
        self.store.set_desc(first, &desc);
        self.store.set_nr_slots(self.next_slot);
        self.store.set_live(first, desc.nr_slots, true);
        // INVARIANT: the instance is on its hash chain before the caller releases the lock of the
        // registry.
        self.store.set_next(first, self.store.head(bucket));
        self.store.set_head(bucket, first);
    }

    /// Removes an instance from its hash chain.
    fn remove(&mut self, bucket: u32, instance: u32) {
        let behind = self.store.next(instance);
        let mut at = self.store.head(bucket);
        if at == instance {
            return self.store.set_head(bucket, behind);
        }
        while at != 0 {
            let next = self.store.next(at);
            if next == instance {
                return self.store.set_next(at, behind);
            }
            at = next;
        }
    }

    fn find_in_bucket(&self, bucket: u32, name: &[u8]) -> Option<(u32, Desc)> {
        let mut instance = self.store.head(bucket);
        while instance != 0 {
            let desc = self.store.desc(instance);
            if desc.name() == name {
                return Some((instance, desc));
            }
            instance = self.store.next(instance);
        }
        None
    }

    fn bucket_of_name(&self, name: &[u8]) -> u32 {
        #[expect(deprecated, reason = "as for the import: the only keyed hash in core")]
        let mut hasher = SipHasher::new_with_keys(self.key.0, self.key.1);
        hasher.write(name);
        (hasher.finish() % u64::from(NR_HASH_BUCKETS)) as u32
    }
}
