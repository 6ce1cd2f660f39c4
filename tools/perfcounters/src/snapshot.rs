// SPDX-License-Identifier: GPL-2.0

//! The values of a snapshot, and the differences between two snapshots.

use std::sync::Arc;

use counters_rules::abi::Kind;

use crate::catalogue::{Instance, InstanceCatalogue, SelectedInstance, Selection};
use crate::counters::{combine_cpu_values, SnapshotStamp};

/// The values of a selection of instances, all of one generation of the set of instances.
#[derive(Debug)]
pub struct Snapshot {
    selection: Arc<Selection>,
    stamp: SnapshotStamp,
    /// The copied values, a row of `selection.values_per_cpu` values for each possible CPU.
    values: Vec<i64>,
    online_cpus: Vec<u32>,
}

impl Snapshot {
    pub(crate) fn new(
        selection: Arc<Selection>,
        stamp: SnapshotStamp,
        values: Vec<i64>,
        online_cpus: Vec<u32>,
    ) -> Self {
        Self {
            selection,
            stamp,
            values,
            online_cpus,
        }
    }

    /// Returns the time at which the values were copied, and their generation.
    pub fn stamp(&self) -> &SnapshotStamp {
        &self.stamp
    }

    /// Returns the selection of instances whose values were copied.
    pub fn selection(&self) -> &Arc<Selection> {
        &self.selection
    }

    /// Returns the catalogue from which the selection was made.
    pub fn catalogue(&self) -> &Arc<InstanceCatalogue> {
        &self.selection.catalogue
    }

    /// Returns the possible CPUs in ascending order.
    pub fn cpus(&self) -> &[u32] {
        self.catalogue().cpus()
    }

    /// Returns the CPUs that were online right after the values were copied, in ascending order. A
    /// CPU that is offline keeps its values, and all totals include them.
    pub fn online_cpus(&self) -> &[u32] {
        &self.online_cpus
    }

    /// Returns the values of each selected instance, in the order of the instance numbers.
    pub fn readings(&self) -> impl ExactSizeIterator<Item = Reading<'_>> + '_ {
        self.selection
            .selected
            .iter()
            .map(|selected| self.reading_of_selected(*selected))
    }

    /// Returns the values of one instance, or `None` if it was not selected.
    pub fn reading_by_number(&self, number: u32) -> Option<Reading<'_>> {
        Some(self.reading_of_selected(self.selection.find_by_number(number)?))
    }

    /// Returns the change of each instance since an earlier snapshot.
    pub fn changes_since<'a>(
        &'a self,
        earlier: &'a Snapshot,
    ) -> impl ExactSizeIterator<Item = Change<'a>> + 'a {
        self.readings().map(|after| Change::new(after, earlier))
    }

    fn reading_of_selected(&self, selected: SelectedInstance) -> Reading<'_> {
        Reading {
            snapshot: self,
            instance: &self.catalogue().instances()[selected.catalogue_index],
            first_column: selected.first_column,
        }
    }
}

/// The values of one instance in one snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    snapshot: &'a Snapshot,
    instance: &'a Instance,
    first_column: usize,
}

impl<'a> Reading<'a> {
    /// Returns the instance that has these values.
    pub fn instance(&self) -> &'a Instance {
        self.instance
    }

    /// Returns the slots of the instance on each possible CPU: one value, or the buckets of a
    /// histogram.
    pub fn per_cpu(&self) -> impl ExactSizeIterator<Item = (u32, &'a [i64])> + 'a {
        let this = *self;
        let slots = usize::from(this.instance.nr_slots);
        let rows = this
            .snapshot
            .values
            .chunks_exact(this.snapshot.selection.values_per_cpu);
        let cpus = this.snapshot.cpus().iter();
        cpus.zip(rows)
            .map(move |(cpu, row)| (*cpu, &row[this.first_column..this.first_column + slots]))
    }

    /// Combines the values of all CPUs: the largest value for a peak, otherwise their sum, which
    /// wraps like the kernel's counters. The result has one value, or one value per bucket of a
    /// histogram.
    pub fn combined_values(&self) -> Vec<i64> {
        let mut all = vec![0; usize::from(self.instance.nr_slots)];
        for (cpu, slots) in self.per_cpu().enumerate() {
            for (sum, slot) in all.iter_mut().zip(slots.1) {
                *sum = match cpu {
                    0 => *slot,
                    _ => combine_cpu_values(self.instance.effective_kind, *sum, *slot),
                };
            }
        }
        all
    }

    /// Returns the total of the instance's values over all CPUs. The total of a histogram is the
    /// number of values that its buckets have counted.
    pub fn total(&self) -> i64 {
        self.combined_values()
            .into_iter()
            .fold(0, i64::wrapping_add)
    }
}

/// The start of the interval that [`Change::delta`] covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaStart {
    /// The interval starts at the earlier snapshot. The earlier snapshot has values of the
    /// instance, and the instance was not deleted and added again since the earlier snapshot.
    EarlierSnapshot,
    /// The interval starts when the instance was added, with the value 0. The instance was added,
    /// or the module was loaded again, after the earlier snapshot.
    Created,
    /// The start of the interval is unknown: the instance existed at the time of the earlier
    /// snapshot, but was not among the instances that were selected for the earlier snapshot. All
    /// differences of an instance with an unknown start are 0.
    Unknown,
}

/// The change of one instance between two snapshots.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    after: Reading<'a>,
    before: Option<Reading<'a>>,
    delta_start: DeltaStart,
    seconds: f64,
}

impl<'a> Change<'a> {
    fn new(after: Reading<'a>, earlier: &'a Snapshot) -> Self {
        let (new, old) = (after.snapshot, earlier);
        let number = after.instance.number;
        let same_boot = new.stamp.boot_id == old.stamp.boot_id;
        let same_life = |i: &Instance| same_boot && i.incarnation == after.instance.incarnation;
        let before = old
            .reading_by_number(number)
            .filter(|r| same_life(r.instance));
        let delta_start = if before.is_some() {
            DeltaStart::EarlierSnapshot
        } else if old.catalogue().get(number).is_some_and(same_life) {
            DeltaStart::Unknown
        } else {
            DeltaStart::Created
        };
        let ns = new
            .stamp
            .monotonic_ns
            .saturating_sub(old.stamp.monotonic_ns);
        Self {
            after,
            before,
            delta_start,
            seconds: ns as f64 / 1e9,
        }
    }

    /// Returns the instance that changed.
    pub fn instance(&self) -> &'a Instance {
        self.after.instance
    }

    /// Returns the values of the later snapshot.
    pub fn after(&self) -> Reading<'a> {
        self.after
    }

    /// Returns the start of the interval that [`Self::delta`] covers.
    pub fn delta_start(&self) -> DeltaStart {
        self.delta_start
    }

    /// Returns the time between the two snapshots in seconds.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Returns the increment of the total over all CPUs. The increment of a histogram is the number
    /// of values that were added; the increment of a peak is the amount by which the peak rose.
    pub fn delta(&self) -> i64 {
        self.combined_deltas()
            .into_iter()
            .fold(0, i64::wrapping_add)
    }

    /// Returns [`Self::delta`] for each slot: one increment, or one increment per bucket of a
    /// histogram.
    pub fn combined_deltas(&self) -> Vec<i64> {
        let mut after = self.after.combined_values();
        match (self.delta_start, self.before) {
            (DeltaStart::Unknown, _) => after.fill(0),
            (_, None) => {}
            (_, Some(before)) => {
                for (new, old) in after.iter_mut().zip(before.combined_values()) {
                    *new = new.wrapping_sub(old);
                }
            }
        }
        after
    }

    /// Returns the increment of the instance on each CPU. Each CPU has a peak of its own, so the
    /// increments of a peak on the CPUs do not add up to [`Self::delta`].
    pub fn per_cpu(&self) -> Vec<(u32, i64)> {
        let sum = |slots: &[i64]| slots.iter().fold(0, |a: i64, b| a.wrapping_add(*b));
        let mut cpus: Vec<_> = self
            .after
            .per_cpu()
            .map(|(cpu, slots)| (cpu, sum(slots)))
            .collect();
        match (self.delta_start, self.before) {
            (DeltaStart::Unknown, _) => cpus.iter_mut().for_each(|(_, value)| *value = 0),
            (_, None) => {}
            // Two snapshots with the same boot id have the same possible CPUs.
            (_, Some(before)) => {
                for ((_, value), (_, old)) in cpus.iter_mut().zip(before.per_cpu()) {
                    *value = value.wrapping_sub(sum(old));
                }
            }
        }
        cpus
    }

    /// Returns [`Self::delta`] per second. Returns `None` in three cases: for a peak, which has no
    /// rate; if the start of the interval is unknown; and if no time passed between the two
    /// snapshots.
    pub fn rate(&self) -> Option<f64> {
        if self.instance().effective_kind == Kind::Peak
            || self.delta_start == DeltaStart::Unknown
            || self.seconds <= 0.0
        {
            return None;
        }
        Some(self.delta() as f64 / self.seconds)
    }
}
