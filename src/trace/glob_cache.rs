// SPDX-License-Identifier: GPL-2.0

//! The cache of a trace's glob matches: whether a marker name matches the globs of the trace.
//!
//! Processes that run the same program register the same marker names. Without the cache, each name
//! would be matched with the globs again for each process.

use kernel::alloc::KVVec;
use kernel::prelude::*;
use protocols::filter;
use trace_rules::abi::{MAX_FIELDS_BYTES, MAX_NAME_BYTES, NR_MARKERS};

use crate::page::GFP_NO_OOM;
use base::account::MemoryCharge;

/// A copy of a trace's globs, with which names are matched while `TRACING` is not held.
pub(crate) struct TraceGlobs {
    pub(crate) id: u64,
    globs: [u8; MAX_FIELDS_BYTES],
    was_paused: bool,
}

impl TraceGlobs {
    /// Creates a copy of the globs of the trace `id`. `paused` is set if the trace is paused.
    pub(crate) fn new(id: u64, globs: [u8; MAX_FIELDS_BYTES], paused: bool) -> Self {
        Self {
            id,
            globs,
            was_paused: paused,
        }
    }

    /// Returns whether the trace was paused when its globs were copied.
    pub(crate) fn was_paused(&self) -> bool {
        self.was_paused
    }

    /// Returns whether a marker's name matches the globs, even if the trace was paused.
    pub(crate) fn matches(&self, marker: &[u8]) -> bool {
        filter::matches_any_glob_or_default(
            filter::text_before_nul(&self.globs).unwrap_or(b""),
            marker,
        )
    }
}

/// Maximum number of names in the cache: the number of markers that one process can register. A
/// name for which the cache has no room is matched with the globs each time.
const MAX_CACHED_NAMES: usize = NR_MARKERS;
/// Number of buckets of the first hash table, and the factor by which a full hash table grows.
const INITIAL_BUCKETS: usize = 64;
const GROWTH_FACTOR: usize = 4;
/// Maximum number of buckets that the lookup of one name probes.
const MAX_PROBES: usize = 16;

/// A bucket of the hash table. The bucket is free if `name_length` is 0.
#[derive(Clone, Copy)]
struct Bucket {
    name_length: u8,
    wanted: bool,
    name: [u8; MAX_NAME_BYTES],
}

impl Bucket {
    const FREE_BUCKET: Self = Self {
        name_length: 0,
        wanted: false,
        name: [0; MAX_NAME_BYTES],
    };

    fn name(&self) -> &[u8] {
        self.name
            .get(..usize::from(self.name_length))
            .unwrap_or(&[])
    }
}

/// The cache of glob matches: a hash table of 2^n buckets, of which at most half are used. The
/// memory of the hash table is charged to the user that created the trace.
#[derive(Default)]
pub(crate) struct GlobCache {
    buckets: KVVec<Bucket>,
    nr_used_buckets: usize,
    /// Set if a larger hash table could not be allocated, so that the present one keeps its size.
    is_fixed: bool,
    /// The charge for the memory of the hash table, until the cache is dropped.
    _charge: Option<MemoryCharge>,
}

impl GlobCache {
    /// Allocates an empty hash table of `places` buckets. May sleep.
    ///
    /// # Errors
    ///
    /// `EDQUOT` if the memory limit of the user that created the trace would be exceeded, `ENOMEM`.
    pub(crate) fn new(places: usize, payer: &MemoryCharge) -> Result<Self> {
        let charge = payer.charge_same_user(places.wrapping_mul(size_of::<Bucket>()))?;
        let mut table = KVVec::with_capacity(places, GFP_NO_OOM)?;
        table.resize(places, Bucket::FREE_BUCKET, GFP_NO_OOM)?;
        Ok(Self {
            buckets: table,
            _charge: Some(charge),
            ..Self::default()
        })
    }

    /// Returns the indices of the buckets to probe for a name.
    fn probed_buckets(&self, name: &[u8]) -> impl Iterator<Item = usize> {
        let start = name.iter().fold(0x811c_9dc5u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        });
        let mask = self.buckets.len().wrapping_sub(1);
        let nr = MAX_PROBES.min(self.buckets.len());
        (0..nr).map(move |n| (start as usize).wrapping_add(n) & mask)
    }

    /// Returns whether this name matches the globs, or `None` if the name is not in the cache.
    pub(crate) fn find(&self, name: &[u8]) -> Option<bool> {
        let mut places = self
            .probed_buckets(name)
            .filter_map(|at| self.buckets.get(at));
        let found = places.find(|place| place.name_length == 0 || place.name() == name)?;
        (found.name_length != 0).then_some(found.wanted)
    }

    /// Adds a name, and whether it matches the globs. If half of the buckets are used, adds nothing
    /// and returns the number of buckets that a larger table needs.
    pub(crate) fn insert_name(&mut self, name: &[u8], wanted: bool) -> Option<usize> {
        if self.nr_used_buckets.wrapping_mul(2) >= self.buckets.len() {
            let larger = match self.buckets.len() {
                0 => INITIAL_BUCKETS,
                nr => nr
                    .wrapping_mul(GROWTH_FACTOR)
                    .min(MAX_CACHED_NAMES.wrapping_mul(2)),
            };
            return (!self.is_fixed && larger > self.buckets.len()).then_some(larger);
        }
        if self.find(name).is_some() {
            // A concurrent call has already added the same name.
            return None;
        }
        let free = |at: &usize| {
            self.buckets
                .get(*at)
                .is_some_and(|place| place.name_length == 0)
        };
        let at = self.probed_buckets(name).find(free)?;
        if let Some(place) = self.buckets.get_mut(at) {
            for (to, byte) in place.name.iter_mut().zip(name) {
                *to = *byte;
            }
            (place.name_length, place.wanted) = (name.len() as u8, wanted);
            self.nr_used_buckets = self.nr_used_buckets.wrapping_add(1);
        }
        None
    }

    /// Moves all entries to the table `larger`, and returns the old table. If `larger` does not
    /// have more buckets than the old table, moves nothing and returns `larger`. The caller frees
    /// the returned table after it has released `TRACING`.
    pub(crate) fn grow(&mut self, larger: Self) -> Self {
        if larger.buckets.len() <= self.buckets.len() {
            return larger;
        }
        let before = core::mem::replace(self, larger);
        for place in before.buckets.iter().filter(|place| place.name_length != 0) {
            self.insert_name(place.name(), place.wanted);
        }
        before
    }

    /// Prevents further growth of the hash table, because a larger table could not be allocated.
    pub(crate) fn stop_growing(&mut self) {
        self.is_fixed = true;
    }
}
