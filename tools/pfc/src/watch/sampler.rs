// SPDX-License-Identifier: GPL-2.0

//! From counters to rows: one frame per interval.

use std::path::{Path, PathBuf};

use perfcounters::{Change, Counters, Error, Kind, Pattern, Since, Snapshot, State};

use crate::units::Measure;

/// What became of all selected instances in one interval.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    pub generation: u64,
    /// CLOCK_REALTIME in nanoseconds.
    pub realtime_ns: u64,
    /// How long the interval really was; 0 for the first look.
    pub seconds: f64,
    /// The CPUs, in the order of the rows' `per_cpu`; `true` if online.
    pub cpus: Vec<(u32, bool)>,
    /// Do the values of each CPU belong together?
    pub consistent: bool,
    /// Was the module loaded anew since the last frame?
    pub reloaded: bool,
    pub rows: Vec<Row>,
}

/// One instance.
#[derive(Clone, Debug)]
pub struct Row {
    pub number: u32,
    pub name: String,
    pub help: String,
    pub kind: Kind,
    pub kind_name: std::borrow::Cow<'static, str>,
    pub measure: Measure,
    /// What the buckets of a histogram measure.
    pub inside: Measure,
    pub live: bool,
    pub incarnation: u32,
    pub since: Since,
    /// Per second; `None` where there is no such thing.
    pub rate: Option<f64>,
    pub total: i64,
    /// The interval's part of each CPU; of gauges and peaks: the value.
    pub per_cpu: Vec<i64>,
    /// A histogram's buckets in the interval.
    pub buckets: Vec<i64>,
}

impl Row {
    fn new(change: &Change<'_>) -> Self {
        let instance = change.instance();
        let level = matches!(instance.kind, Kind::Gauge | Kind::Peak);
        let per_cpu = if level {
            change.after().per_cpu().map(|(_, s)| s[0]).collect()
        } else {
            change.per_cpu().into_iter().map(|(_, v)| v).collect()
        };
        Self {
            number: instance.number,
            name: instance.name.clone(),
            help: instance.help.clone(),
            kind: instance.kind,
            kind_name: instance.kind_name(),
            measure: Measure::of(instance),
            inside: Measure::inside(instance),
            live: instance.state == State::Live,
            incarnation: instance.incarnation,
            since: change.since(),
            rate: change.rate(),
            total: change.after().total(),
            per_cpu,
            buckets: match instance.is_histogram() {
                true => change.combined(),
                false => Vec::new(),
            },
        }
    }

    /// Did this life of it begin within the interval?
    pub fn is_new(&self) -> bool {
        self.since == Since::Birth
    }

    /// Something to sort by: how busy it is, whichever way it goes.
    pub fn busyness(&self) -> f64 {
        self.measure.weight() * self.rate.unwrap_or(0.0).abs()
    }

    /// Something to sort by: how much there is.
    pub fn bulk(&self) -> f64 {
        self.measure.weight() * (self.total as f64).abs()
    }
}

/// Looks at the counters again and again.
pub struct Sampler {
    device: PathBuf,
    pattern: Pattern,
    counters: Counters,
    last: Snapshot,
}

impl Sampler {
    /// Opens the counters and takes the first look.
    pub fn open(device: &Path, pattern: Pattern) -> Result<Self, Error> {
        let mut counters = Counters::open_path(device)?;
        let last = counters.snapshot_any(&pattern)?;
        Ok(Self {
            device: device.into(),
            pattern,
            counters,
            last,
        })
    }

    /// Was nothing selected by the last look?
    pub fn is_empty(&self) -> bool {
        self.last.selection().is_empty()
    }

    /// What happened since the last look.
    pub fn frame(&mut self) -> Result<Frame, Error> {
        let mut reloaded = false;
        let now = match self.counters.snapshot_any(&self.pattern) {
            Err(Error::OtherBoot) => {
                self.counters = Counters::open_path(&self.device)?;
                reloaded = true;
                self.counters.snapshot_any(&self.pattern)?
            }
            other => other?,
        };
        let frame = Frame {
            generation: now.stamp().generation,
            realtime_ns: now.stamp().realtime_ns,
            seconds: now
                .stamp()
                .monotonic_ns
                .saturating_sub(self.last.stamp().monotonic_ns) as f64
                / 1e9,
            cpus: now
                .cpus()
                .iter()
                .map(|cpu| (*cpu, now.online().contains(cpu)))
                .collect(),
            consistent: now.stamp().consistent,
            reloaded,
            rows: now
                .since(&self.last)
                .map(|change| Row::new(&change))
                .collect(),
        };
        self.last = now;
        Ok(frame)
    }
}
