// SPDX-License-Identifier: GPL-2.0

//! Values of one moment, and what changed between two.

use std::sync::Arc;

use engine::abi::Kind;

use crate::catalogue::{Catalogue, Instance, Pick, Selection};
use crate::counters::{combine, Stamp};

/// The values of a selection, of one generation.
#[derive(Debug)]
pub struct Snapshot {
    selection: Arc<Selection>,
    stamp: Stamp,
    /// A row of `selection.width` values for each possible CPU.
    values: Vec<i64>,
    online: Vec<u32>,
}

impl Snapshot {
    pub(crate) fn new(
        selection: Arc<Selection>,
        stamp: Stamp,
        values: Vec<i64>,
        online: Vec<u32>,
    ) -> Self {
        Self {
            selection,
            stamp,
            values,
            online,
        }
    }

    /// When and of what.
    pub fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    /// The instances it has values of.
    pub fn selection(&self) -> &Arc<Selection> {
        &self.selection
    }

    /// The set of instances that was selected from.
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.selection.catalogue
    }

    /// The possible CPUs, ascending.
    pub fn cpus(&self) -> &[u32] {
        self.catalogue().cpus()
    }

    /// The CPUs that were online, ascending. Values of the others stay and
    /// count.
    pub fn online(&self) -> &[u32] {
        &self.online
    }

    /// The values of each instance, by number.
    pub fn readings(&self) -> impl ExactSizeIterator<Item = Reading<'_>> + '_ {
        self.selection.picks.iter().map(|pick| self.at(*pick))
    }

    /// The values of one instance, if it was selected.
    pub fn reading(&self, number: u32) -> Option<Reading<'_>> {
        Some(self.at(self.selection.pick(number)?))
    }

    /// What became of each instance since an earlier snapshot.
    pub fn since<'a>(
        &'a self,
        earlier: &'a Snapshot,
    ) -> impl ExactSizeIterator<Item = Change<'a>> + 'a {
        self.readings().map(|after| Change::new(after, earlier))
    }

    fn at(&self, pick: Pick) -> Reading<'_> {
        Reading {
            snapshot: self,
            instance: &self.catalogue().instances()[pick.index],
            column: pick.column,
        }
    }
}

/// The values of one instance in one snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    snapshot: &'a Snapshot,
    instance: &'a Instance,
    column: usize,
}

impl<'a> Reading<'a> {
    /// What it is a value of.
    pub fn instance(&self) -> &'a Instance {
        self.instance
    }

    /// The slots of each possible CPU: one, or the buckets of a histogram.
    pub fn per_cpu(&self) -> impl ExactSizeIterator<Item = (u32, &'a [i64])> + 'a {
        let this = *self;
        let slots = usize::from(this.instance.slots);
        let rows = this
            .snapshot
            .values
            .chunks_exact(this.snapshot.selection.width);
        let cpus = this.snapshot.cpus().iter();
        cpus.zip(rows)
            .map(move |(cpu, row)| (*cpu, &row[this.column..this.column + slots]))
    }

    /// The values over all CPUs: their sum (wrapping, as the kernel counts),
    /// or the largest for a peak. One, or one per bucket of a histogram.
    pub fn combined(&self) -> Vec<i64> {
        let mut all = vec![0; usize::from(self.instance.slots)];
        for (cpu, slots) in self.per_cpu().enumerate() {
            for (sum, slot) in all.iter_mut().zip(slots.1) {
                *sum = match cpu {
                    0 => *slot,
                    _ => combine(self.instance.kind, *sum, *slot),
                };
            }
        }
        all
    }

    /// The value over all CPUs; of a histogram: how many it has counted.
    pub fn total(&self) -> i64 {
        self.combined().into_iter().fold(0, i64::wrapping_add)
    }
}

/// What the difference between two snapshots of an instance counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The earlier snapshot: it is the same life of the same instance.
    Before,
    /// Its birth: this life began between the two snapshots, at zero.
    Birth,
    /// Nothing: the earlier snapshot did not select it. There is no difference.
    Unknown,
}

/// What became of one instance between two snapshots.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    after: Reading<'a>,
    before: Option<Reading<'a>>,
    since: Since,
    seconds: f64,
}

impl<'a> Change<'a> {
    fn new(after: Reading<'a>, earlier: &'a Snapshot) -> Self {
        let (new, old) = (after.snapshot, earlier);
        let number = after.instance.number;
        let same_boot = new.stamp.boot_id == old.stamp.boot_id;
        let same_life = |i: &Instance| same_boot && i.incarnation == after.instance.incarnation;
        let before = old.reading(number).filter(|r| same_life(r.instance));
        let since = if before.is_some() {
            Since::Before
        } else if old.catalogue().get(number).is_some_and(same_life) {
            Since::Unknown
        } else {
            Since::Birth
        };
        let ns = new
            .stamp
            .monotonic_ns
            .saturating_sub(old.stamp.monotonic_ns);
        Self {
            after,
            before,
            since,
            seconds: ns as f64 / 1e9,
        }
    }

    /// What changed.
    pub fn instance(&self) -> &'a Instance {
        self.after.instance
    }

    /// The values of the later snapshot.
    pub fn after(&self) -> Reading<'a> {
        self.after
    }

    /// What [`Self::delta`] counts from.
    pub fn since(&self) -> Since {
        self.since
    }

    /// Seconds between the snapshots.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// How much was added over all CPUs. Of a histogram: how many values; of a
    /// peak: how much it rose.
    pub fn delta(&self) -> i64 {
        self.combined().into_iter().fold(0, i64::wrapping_add)
    }

    /// [`Self::delta`] slot by slot: one, or one per bucket.
    pub fn combined(&self) -> Vec<i64> {
        let mut after = self.after.combined();
        match (self.since, self.before) {
            (Since::Unknown, _) => after.fill(0),
            (_, None) => {}
            (_, Some(before)) => {
                for (new, old) in after.iter_mut().zip(before.combined()) {
                    *new = new.wrapping_sub(old);
                }
            }
        }
        after
    }

    /// [`Self::delta`] CPU by CPU.
    pub fn per_cpu(&self) -> Vec<(u32, i64)> {
        let sum = |slots: &[i64]| slots.iter().fold(0, |a: i64, b| a.wrapping_add(*b));
        let mut cpus: Vec<_> = self
            .after
            .per_cpu()
            .map(|(cpu, slots)| (cpu, sum(slots)))
            .collect();
        match (self.since, self.before) {
            (Since::Unknown, _) => cpus.iter_mut().for_each(|(_, value)| *value = 0),
            (_, None) => {}
            // The same boot has the same possible CPUs.
            (_, Some(before)) => {
                for ((_, value), (_, old)) in cpus.iter_mut().zip(before.per_cpu()) {
                    *value = value.wrapping_sub(sum(old));
                }
            }
        }
        cpus
    }

    /// [`Self::delta`] per second. `None` for a peak, which has no rate, and
    /// where there is no difference or no time between the snapshots.
    pub fn rate(&self) -> Option<f64> {
        if self.instance().kind == Kind::Peak || self.since == Since::Unknown || self.seconds <= 0.0
        {
            return None;
        }
        Some(self.delta() as f64 / self.seconds)
    }
}
