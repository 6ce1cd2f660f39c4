// SPDX-License-Identifier: GPL-2.0

//! The cache of a trace's glob matches. For each marker name the cache stores whether the name
//! matches the globs of the trace.
//!
//! Processes that run the same program register the same names. With the cache each name is matched
//! with the globs only once.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KVVec;
use kernel::prelude::*;
use protocols::filter;
use trace_rules::abi::{flag, FIELDS_MAX, NAME_MAX, NR_MARKERS};

use crate::base::account::Charge;
use crate::tracing::trace::Trace;

/// A copy of a trace's globs, for matching without `TRACING`.
pub(crate) struct TraceGlobs {
    pub(crate) id: u64,
    globs: [u8; FIELDS_MAX],
    paused: bool,
}

impl TraceGlobs {
    pub(crate) fn of(trace: &Trace) -> Self {
        Self {
            id: trace.id,
            globs: trace.globs,
            paused: trace.has_flag(flag::PAUSED),
        }
    }

    /// Returns whether the trace was paused when the copy was made.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns whether a name matches the globs. A paused trace does not record a marker's events
    /// even if the marker's name matches.
    pub(crate) fn matches(&self, marker: &[u8]) -> bool {
        filter::globs(filter::text(&self.globs).unwrap_or(b""), marker)
    }
}

/// Maximum number of names in the cache, as many as a process can register. Names that are not in
/// the cache are matched each time.
const MAX_ENTRIES: usize = NR_MARKERS;
/// Number of buckets of the first table, and the factor by which the table grows.
const INITIAL_BUCKETS: usize = 64;
const GROWTH_FACTOR: usize = 4;
/// Maximum number of buckets that a lookup probes.
const MAX_PROBES: usize = 16;

/// A bucket of the table, which is free if `length` is 0.
#[derive(Clone, Copy)]
struct Bucket {
    length: u8,
    wanted: bool,
    name: [u8; NAME_MAX],
}

impl Bucket {
    const FREE: Self = Self {
        length: 0,
        wanted: false,
        name: [0; NAME_MAX],
    };

    fn name(&self) -> &[u8] {
        self.name.get(..usize::from(self.length)).unwrap_or(&[])
    }
}

/// The cache of glob matches: a hash table of 2^n buckets, of which at most half are used. Its
/// memory is charged to the trace's user.
#[derive(Default)]
pub(crate) struct GlobCache {
    buckets: KVVec<Bucket>,
    used: usize,
    /// Set if a larger table could not be allocated, so that the table keeps its size.
    is_fixed: bool,
    /// The charge for the memory of the table. Dropping the cache removes the charge.
    _charge: Option<Charge>,
}

impl GlobCache {
    /// Allocates an empty table of `places` buckets. May sleep.
    ///
    /// # Errors
    ///
    /// `EDQUOT` beyond the user's limit, `ENOMEM`.
    pub(crate) fn new(places: usize, payer: &Charge) -> Result<Self> {
        let charge = payer.charge(places.wrapping_mul(size_of::<Bucket>()))?;
        let mut table = KVVec::with_capacity(places, GFP_KERNEL_ACCOUNT)?;
        table.resize(places, Bucket::FREE, GFP_KERNEL_ACCOUNT)?;
        Ok(Self {
            buckets: table,
            _charge: Some(charge),
            ..Self::default()
        })
    }

    /// Returns the indices of the buckets to probe for a name.
    fn probes(&self, name: &[u8]) -> impl Iterator<Item = usize> {
        let start = name.iter().fold(0x811c_9dc5u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        });
        let mask = self.buckets.len().wrapping_sub(1);
        let nr = MAX_PROBES.min(self.buckets.len());
        (0..nr).map(move |n| (start as usize).wrapping_add(n) & mask)
    }

    /// Returns whether this name matches the globs, or `None` if the name is not in the cache.
    pub(crate) fn find(&self, name: &[u8]) -> Option<bool> {
        let mut places = self.probes(name).filter_map(|at| self.buckets.get(at));
        let found = places.find(|place| place.length == 0 || place.name() == name)?;
        (found.length != 0).then_some(found.wanted)
    }

    /// Adds a name and the result of its match. Returns the size of the next table if the present
    /// table is too small.
    pub(crate) fn put(&mut self, name: &[u8], wanted: bool) -> Option<usize> {
        if self.used.wrapping_mul(2) >= self.buckets.len() {
            let larger = match self.buckets.len() {
                0 => INITIAL_BUCKETS,
                nr => nr
                    .wrapping_mul(GROWTH_FACTOR)
                    .min(MAX_ENTRIES.wrapping_mul(2)),
            };
            return (!self.is_fixed && larger > self.buckets.len()).then_some(larger);
        }
        if self.find(name).is_some() {
            // A concurrent call has already added the same name.
            return None;
        }
        let free = |at: &usize| self.buckets.get(*at).is_some_and(|place| place.length == 0);
        let at = self.probes(name).find(free)?;
        if let Some(place) = self.buckets.get_mut(at) {
            for (to, byte) in place.name.iter_mut().zip(name) {
                *to = *byte;
            }
            (place.length, place.wanted) = (name.len() as u8, wanted);
            self.used = self.used.wrapping_add(1);
        }
        None
    }

    /// Moves all entries to a larger table. Returns the old table, which the caller frees after it
    /// has released `TRACING`.
    pub(crate) fn grow(&mut self, larger: Self) -> Self {
        if larger.buckets.len() <= self.buckets.len() {
            return larger;
        }
        let before = core::mem::replace(self, larger);
        for place in before.buckets.iter().filter(|place| place.length != 0) {
            self.put(place.name(), place.wanted);
        }
        before
    }

    /// Keeps the table at its size, after a larger table could not be allocated.
    pub(crate) fn fix_size(&mut self) {
        self.is_fixed = true;
    }
}
