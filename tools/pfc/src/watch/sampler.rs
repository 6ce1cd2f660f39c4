// SPDX-License-Identifier: GPL-2.0

//! Takes snapshots of counters and computes the rows of one frame per interval.

use std::path::Path;

use perfcounters::{
    Change, Counters, DeltaStart, Error, InstancePattern, InstanceState, Kind, Snapshot,
};

use crate::units::ScaledUnit;

/// The changes of all selected instances in one interval.
#[derive(Clone, Debug, Default)]
pub struct IntervalFrame {
    pub generation: u64,
    /// Time of the frame in nanoseconds, by CLOCK_REALTIME.
    pub realtime_ns: u64,
    /// Measured length of the interval in seconds; 0 in the empty frame before the first snapshot.
    pub interval_seconds: f64,
    /// The numbers of the CPUs, in the order of [`InstanceRow::changes_or_levels_per_cpu`], each
    /// with `true` if the CPU is online.
    pub cpus: Vec<(u32, bool)>,
    /// True if, for each CPU, the values were read at a time when the CPU did not update a counter.
    pub is_consistent_per_cpu: bool,
    /// True if the boot id of the counters has changed since the last frame.
    pub was_reloaded: bool,
    pub rows: Vec<InstanceRow>,
}

/// The values of one instance in one interval.
#[derive(Clone, Debug)]
pub struct InstanceRow {
    pub number: u32,
    pub name: String,
    pub help: String,
    pub kind: Kind,
    pub kind_name: std::borrow::Cow<'static, str>,
    pub value_unit: ScaledUnit,
    /// The unit of a histogram's bucket bounds. If the instance is not a histogram,
    /// `descriptor_unit` is the same as `value_unit`.
    pub descriptor_unit: ScaledUnit,
    pub is_live: bool,
    pub incarnation: u32,
    pub change_start: DeltaStart,
    /// The change of the instance's value per second. The rate is `None` in three cases: for a
    /// peak, if the start of the interval is unknown, and if no time passed between the snapshots.
    pub rate_per_second: Option<f64>,
    pub total: i64,
    /// The change on each CPU in the interval; for gauges and peaks, the value on each CPU.
    pub changes_or_levels_per_cpu: Vec<i64>,
    /// The change of each bucket in the interval. The vector is empty if the instance is not a
    /// histogram.
    pub bucket_changes: Vec<i64>,
}

impl InstanceRow {
    fn new(change: &Change<'_>) -> Self {
        let instance = change.instance();
        let level = matches!(instance.effective_kind, Kind::Gauge | Kind::Peak);
        let changes_or_levels_per_cpu = if level {
            change.after().per_cpu().map(|(_, s)| s[0]).collect()
        } else {
            change.per_cpu().into_iter().map(|(_, v)| v).collect()
        };
        Self {
            number: instance.number,
            name: instance.name.clone(),
            help: instance.help.clone(),
            kind: instance.effective_kind,
            kind_name: instance.kind_name(),
            value_unit: ScaledUnit::of_instance_value(instance),
            descriptor_unit: ScaledUnit::of_instance_descriptor(instance),
            is_live: instance.state == InstanceState::Live,
            incarnation: instance.incarnation,
            change_start: change.delta_start(),
            rate_per_second: change.rate(),
            total: change.after().total(),
            changes_or_levels_per_cpu,
            bucket_changes: match instance.has_log2_buckets() {
                true => change.combined_deltas(),
                false => Vec::new(),
            },
        }
    }

    /// Returns true if the current incarnation of the instance began in the interval.
    pub fn is_new(&self) -> bool {
        self.change_start == DeltaStart::Created
    }

    /// Returns a sort key: the absolute rate, weighted by unit.
    pub fn rate_sort_key(&self) -> f64 {
        self.value_unit.sort_weight() * self.rate_per_second.unwrap_or(0.0).abs()
    }

    /// Returns a sort key: the absolute total, weighted by unit.
    pub fn total_sort_key(&self) -> f64 {
        self.value_unit.sort_weight() * (self.total as f64).abs()
    }
}

/// Reads the selected counters again for each frame, and keeps the last snapshot.
pub struct CounterSampler {
    pattern: InstancePattern,
    counters: Counters,
    last_snapshot: Snapshot,
}

impl CounterSampler {
    /// Opens the counters and takes the first snapshot.
    pub fn open(device: &Path, pattern: InstancePattern) -> Result<Self, Error> {
        let mut counters = Counters::open_path(device)?;
        let last_snapshot = counters.snapshot_even_if_busy(&pattern)?;
        Ok(Self {
            pattern,
            counters,
            last_snapshot,
        })
    }

    /// Returns true if the last snapshot has no instances.
    pub fn is_empty(&self) -> bool {
        self.last_snapshot.selection().is_empty()
    }

    /// Takes a snapshot and returns the changes since the last snapshot.
    pub fn take_frame(&mut self) -> Result<IntervalFrame, Error> {
        let (now, reloaded) = self.counters.snapshot_or_reopen(&self.pattern)?;
        let frame = IntervalFrame {
            generation: now.stamp().generation,
            realtime_ns: now.stamp().realtime_ns,
            interval_seconds: now
                .stamp()
                .monotonic_ns
                .saturating_sub(self.last_snapshot.stamp().monotonic_ns)
                as f64
                / 1e9,
            cpus: now
                .cpus()
                .iter()
                .map(|cpu| (*cpu, now.online_cpus().contains(cpu)))
                .collect(),
            is_consistent_per_cpu: now.stamp().consistent,
            was_reloaded: reloaded,
            rows: now
                .changes_since(&self.last_snapshot)
                .map(|change| InstanceRow::new(&change))
                .collect(),
        };
        self.last_snapshot = now;
        Ok(frame)
    }
}
