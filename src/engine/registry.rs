// SPDX-License-Identifier: GPL-2.0

//! Names to numbers: adding, deleting and reviving instances.
//!
//! ```text
//!            add                    del
//!   (name) -------> LIVE(1) ------------------> DORMANT(1)
//!                   LIVE(2) <------------------
//!                             add, same name:
//!                             same number, next incarnation, values zero
//! ```
//!
//! A name that comes back with more slots than its number has room for gets another number, and
//! the old one is nobody's. A number is never given to another name. The rules are here; where the
//! descriptors lie, how counters are zeroed and where memory comes from is the
//! [`Store`]'s business: the kernel's pages, or a test's vectors.
//!
//! All of this runs under one lock, in process context. Readers run without it,
//! under [`crate::generation`].

use core::hash::Hasher;
#[expect(
    deprecated,
    reason = "the only keyed hash in core; it is complete and frozen"
)]
use core::hash::SipHasher;

use crate::abi::{Desc, DORMANT, FREE, LIVE, MAX_INSTANCES};
use crate::error::Error;
use crate::layout::Layout;
use crate::spec::Spec;

/// Heads of the hash chains: as many as there can be names, so that a chain has
/// one of them on average when all are taken, and the 60,000th name costs what
/// the 10th did. That few names share a bucket whoever chooses them is the
/// keyed hash's doing; `tools/engine/tests/probes.rs` counts.
pub const BUCKETS: u32 = MAX_INSTANCES;

/// Where a registry keeps things.
///
/// Slots below the count last given to [`Store::grow`] exist; the registry asks
/// for no others. Chain links are 0 where nothing was stored, which is no
/// instance's number.
pub trait Store {
    /// Makes counters, descriptors and links exist for slots `0..slots`, all
    /// zero. On failure nothing has changed.
    fn grow(&mut self, slots: u32) -> Result<(), Error>;
    /// First instance of a chain, for `bucket < BUCKETS`.
    fn head(&self, bucket: u32) -> u32;
    /// Sets what [`Store::head`] gives.
    fn set_head(&mut self, bucket: u32, instance: u32);
    /// The instance after this one in its chain.
    fn next(&self, instance: u32) -> u32;
    /// Sets what [`Store::next`] gives.
    fn set_next(&mut self, instance: u32, next: u32);
    /// A descriptor.
    fn desc(&self, instance: u32) -> Desc;
    /// Writes a descriptor; readers may be looking.
    fn set_desc(&mut self, instance: u32, desc: &Desc);
    /// Lets [`crate::seqflag`]-guarded updates by number through, or not.
    fn set_live(&mut self, instance: u32, nr_slots: u16, live: bool);
    /// Is no update by number still running that began before the last
    /// `set_live(.., false)` of this instance?
    fn is_settled(&self, instance: u32) -> bool;
    /// Zeroes the slots on every CPU. They are not live.
    fn zero(&mut self, instance: u32, nr_slots: u16);
    /// Publishes how many slots are in use.
    fn set_nr_slots(&mut self, slots: u32);
    /// gen1 up: readers discard what they copy from here on.
    fn begin_change(&mut self);
    /// gen2 follows.
    fn end_change(&mut self);
    /// CLOCK_REALTIME in nanoseconds.
    fn now_ns(&self) -> u64;
}

/// The set of instances.
///
/// # Invariants
///
/// - `next_slot` is at least 1: slot 0 is the seqflag.
/// - Every instance below `next_slot` that was ever added is on the chain of
///   its name's bucket, and stays there until its name gets another number.
pub struct Registry<S> {
    layout: Layout,
    key: (u64, u64),
    next_slot: u32,
    store: S,
}

impl<S: Store> Registry<S> {
    /// An empty set. The key makes chains unpredictable: names come from
    /// devices, and those may come from people.
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

    /// The store, for those who read it under the same lock.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The store, to change what is not the registry's.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Slots in use; every instance's number is below.
    pub fn nr_slots(&self) -> u32 {
        self.next_slot
    }

    /// Adds an instance, or gives a dormant one its next life. Its values are
    /// zero on every CPU. [`Error::Unsettled`]: updates of the old life may still run; nobody need
    /// hold the lock while waiting for them.
    pub fn add(&mut self, spec: &Spec<'_>) -> Result<u32, Error> {
        let wanted = spec.check()?;
        let bucket = self.bucket(wanted.name());
        match self.find_in(bucket, wanted.name()) {
            Some((_, old)) if old.state == LIVE => Err(Error::Exists),
            Some((instance, _)) if !self.store.is_settled(instance) => {
                Err(Error::Unsettled(instance))
            }
            Some((instance, old)) if self.has_room(instance, &old, wanted.nr_slots) => {
                Ok(self.revive(instance, &old, wanted))
            }
            Some((instance, old)) => self.reshape(bucket, instance, &old, wanted),
            None => self.create(bucket, wanted),
        }
    }

    /// Makes a live instance dormant.
    pub fn del(&mut self, instance: u32) -> Result<(), Error> {
        let mut desc = self.live(instance).ok_or(Error::Unknown)?;
        desc.state = DORMANT;
        desc.ended_ns = self.store.now_ns();
        self.store.begin_change();
        self.store.set_live(instance, desc.nr_slots, false);
        self.store.set_desc(instance, &desc);
        self.store.end_change();
        Ok(())
    }

    /// The descriptor of a live instance.
    fn live(&self, instance: u32) -> Option<Desc> {
        if instance == 0 || instance >= self.next_slot {
            return None;
        }
        let desc = self.store.desc(instance);
        (desc.state == LIVE).then_some(desc)
    }

    /// The number of a name, live or dormant. For the stand-in device; the
    /// kernel's side never asks.
    #[cfg(not(engine_kernel))]
    pub fn find(&self, name: &[u8]) -> Option<u32> {
        self.find_in(self.bucket(name), name).map(|(n, _)| n)
    }

    /// Are so many slots at this number nobody else's, and contiguous for each CPU?
    fn has_room(&self, instance: u32, old: &Desc, nr_slots: u16) -> bool {
        let end = instance.wrapping_add(u32::from(nr_slots));
        let mut more = instance.wrapping_add(u32::from(old.nr_slots))..end;
        self.layout.place(instance, u32::from(nr_slots)) == Some(instance)
            && end <= self.next_slot
            && more.all(|slot| self.store.desc(slot).state == FREE)
    }

    /// The next life, in its old place.
    fn revive(&mut self, instance: u32, old: &Desc, mut desc: Desc) -> u32 {
        desc.instance = instance;
        desc.state = LIVE;
        desc.incarnation = old.incarnation.wrapping_add(1);
        desc.created_ns = self.store.now_ns();
        self.store.begin_change();
        self.store.zero(instance, desc.nr_slots);
        self.store.set_desc(instance, &desc);
        self.store.set_live(instance, desc.nr_slots, true);
        self.store.end_change();
        instance
    }

    /// The next life, in another place: the old one is too small.
    fn reshape(
        &mut self,
        bucket: u32,
        instance: u32,
        old: &Desc,
        mut desc: Desc,
    ) -> Result<u32, Error> {
        let first = self.make_room(desc.nr_slots)?;
        desc.incarnation = old.incarnation.wrapping_add(1);
        self.remove(bucket, instance);
        self.store.begin_change();
        self.store.set_desc(instance, &Desc::FREE);
        self.place(bucket, first, desc);
        self.store.end_change();
        Ok(first)
    }

    fn create(&mut self, bucket: u32, mut desc: Desc) -> Result<u32, Error> {
        let first = self.make_room(desc.nr_slots)?;
        desc.incarnation = 1;
        self.store.begin_change();
        self.place(bucket, first, desc);
        self.store.end_change();
        Ok(first)
    }

    /// Where so many slots can be. On failure nothing has changed.
    fn make_room(&mut self, nr_slots: u16) -> Result<u32, Error> {
        let count = u32::from(nr_slots);
        let first = self
            .layout
            .place(self.next_slot, count)
            .ok_or(Error::Full)?;
        self.store.grow(first.wrapping_add(count))?;
        Ok(first)
    }

    /// A new number, from [`Self::make_room`], in a change.
    fn place(&mut self, bucket: u32, first: u32, mut desc: Desc) {
        self.next_slot = first.wrapping_add(u32::from(desc.nr_slots));
        desc.instance = first;
        desc.state = LIVE;
        desc.created_ns = self.store.now_ns();
        self.store.set_desc(first, &desc);
        self.store.set_nr_slots(self.next_slot);
        self.store.set_live(first, desc.nr_slots, true);
        // INVARIANT: on its chain before anyone else can hold the lock.
        self.store.set_next(first, self.store.head(bucket));
        self.store.set_head(bucket, first);
    }

    /// Takes a number off its chain.
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

    fn find_in(&self, bucket: u32, name: &[u8]) -> Option<(u32, Desc)> {
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

    fn bucket(&self, name: &[u8]) -> u32 {
        #[expect(deprecated, reason = "see the import")]
        let mut hasher = SipHasher::new_with_keys(self.key.0, self.key.1);
        hasher.write(name);
        (hasher.finish() % u64::from(BUCKETS)) as u32
    }
}
