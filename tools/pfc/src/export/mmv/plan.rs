// SPDX-License-Identifier: GPL-2.0

//! Assigns metrics to files, and gives them their numbers in PCP.
//!
//! A metric's number in PCP consists of a cluster, of which MMV can use 2,047, and an item, of
//! which a cluster has 1,024. Both are computed from the number of the instance, which is below
//! 65,536. A metric therefore keeps its number as long as the instance does, even if others are
//! added or removed:
//!
//! | cluster | metrics |
//! |---|---|
//! | 1022 | `NAME.tasks.*`: the busiest tasks (`tasks.rs`) |
//! | 1023 | `NAME.control.*`: time and generation of the values |
//! | 1024 + number / 1024 | `NAME.all.*`: totals over all CPUs; each bucket of a histogram |
//! | 1088 + number / 1024 | `NAME.percpu.*`: the value of each CPU; not for histograms |
//!
//! Each file contains metrics of one cluster and at most [`VALUES_MAX`] values. PCP ignores files
//! with more, and searches a file from its beginning for every value that it reads.

use perfcounters::{Instance, Kind, Reading, Snapshot, Unit};

use super::names::{units, Names};
use super::page::{Indom, Metric, Page, Semantics};

/// Number of metrics of one cluster.
const ITEMS: u32 = 1024;
const CONTROL: u32 = 1023;
const ALL: u32 = 1024;
const PERCPU: u32 = ALL + 64;
/// pmdammv accepts 10,000 values. That is enough for one metric with 8,192 CPUs.
const VALUES_MAX: usize = 10_000;
/// Serial number of the indom of CPUs. The buckets of a histogram of n buckets have number 1 + n.
const CPUS: u32 = 1;

/// The kind of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    All,
    PerCpu,
    /// The time when the values were read, in nanoseconds since 1970.
    Time,
    /// The generation of the set of instances.
    Generation,
}

/// The source of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub number: u32,
    pub part: Part,
    /// The factor by which values are multiplied to get PCP's unit; see [`units`].
    pub factor: i64,
}

impl Origin {
    /// Returns the values in the order of the metric's indom.
    pub fn values(&self, snapshot: &Snapshot) -> Vec<u64> {
        let stamp = snapshot.stamp();
        let reading = snapshot.reading(self.number);
        let values: Vec<i64> = match (self.part, reading) {
            (Part::Time, _) => return vec![stamp.realtime_ns],
            (Part::Generation, _) => return vec![stamp.generation],
            (Part::All, Some(reading)) => reading.combined(),
            (Part::PerCpu, Some(reading)) => per_cpu(&reading),
            (_, None) => Vec::new(),
        };
        let scaled = |value: i64| value.wrapping_mul(self.factor) as u64;
        values.into_iter().map(scaled).collect()
    }
}

fn per_cpu(reading: &Reading<'_>) -> Vec<i64> {
    reading
        .per_cpu()
        .filter_map(|(_, slots)| slots.first().copied())
        .collect()
}

/// The content of a file that is to be written.
#[derive(Debug)]
pub struct Planned {
    /// The part of the file's name after the exporter's name.
    pub suffix: String,
    pub page: Page,
    /// The source of each metric of the page.
    pub sources: Vec<Origin>,
}

/// Returns the files for the selected instances of a snapshot. With `sum` they contain only totals
/// over all CPUs.
pub fn plan(name: &str, snapshot: &Snapshot, sum: bool) -> Vec<Planned> {
    let names = Names::of(snapshot.selection().instances());
    let cpus = Indom {
        serial: CPUS,
        instances: snapshot
            .cpus()
            .iter()
            .map(|cpu| (*cpu, format!("cpu{cpu}")))
            .collect(),
    };
    let mut files = vec![control(name)];
    for (part, word, base) in [(Part::All, "all", ALL), (Part::PerCpu, "percpu", PERCPU)] {
        let mut open: Option<Planned> = None;
        let mut used = 0;
        // Instances of an unknown kind are left out: it is not known how their values combine.
        let instances = snapshot.selection().instances();
        for instance in instances.filter(|i| i.unknown_kind.is_none()) {
            let histogram = instance.kind == Kind::Histogram;
            let indom = match part {
                Part::PerCpu if sum || histogram => continue,
                Part::PerCpu => Some(cpus.clone()),
                _ => histogram.then(|| buckets(instance.slots)),
            };
            let width = indom.as_ref().map_or(1, |i| i.instances.len());
            let cluster = base + instance.number / ITEMS;
            let same = open.as_ref().is_some_and(|f| f.page.cluster == cluster);
            if !same || used + width > VALUES_MAX {
                files.extend(open.take());
                used = 0;
            }
            used += width;
            let file = open.get_or_insert_with(|| Planned {
                // The number of the first instance, which is in no other file, makes the suffix
                // unique.
                suffix: format!("{word}.{}", instance.number),
                page: Page {
                    cluster,
                    ..Page::default()
                },
                sources: Vec::new(),
            });
            let prefix = format!("{name}.{word}");
            file.add(part, names.metric(&prefix, instance), instance, indom);
        }
        files.extend(open);
    }
    files
}

impl Planned {
    fn add(&mut self, part: Part, name: String, instance: &Instance, indom: Option<Indom>) {
        let indoms = &mut self.page.indoms;
        let indom = indom.map(|indom| match indoms.iter().position(|i| *i == indom) {
            Some(at) => at,
            None => {
                indoms.push(indom);
                indoms.len() - 1
            }
        });
        // The value of a histogram's bucket is a count, independent of the histogram's unit.
        let histogram = instance.kind == Kind::Histogram;
        let known = match histogram {
            true => units(Unit::Events, 0),
            false => units(instance.unit, instance.exponent),
        };
        let (units, factor) = known.unwrap_or((0, 1));
        self.page.metrics.push(Metric {
            item: instance.number % ITEMS,
            name,
            semantics: match instance.kind {
                Kind::Counter | Kind::Time | Kind::Histogram => Semantics::Counter,
                Kind::Gauge | Kind::Peak => Semantics::Instant,
            },
            units,
            indom,
            short: match instance.help.as_str() {
                "" => instance.name.clone(),
                help => help.to_owned(),
            },
            long: describe(instance, known.is_some() && !histogram),
        });
        self.sources.push(Origin {
            number: instance.number,
            part,
            factor,
        });
    }
}

/// Returns the long help text: the name, kind and unit of the instance, and its help text.
fn describe(instance: &Instance, unit_known: bool) -> String {
    let kind = instance.kind_name();
    let mut text = format!("{}: {kind}, {}", instance.name, instance.unit.name());
    if instance.exponent != 0 && !unit_known {
        text.push_str(&format!(" * 10^{}", instance.exponent));
    }
    if !instance.help.is_empty() {
        text.push_str(&format!(". {}", instance.help));
    }
    text
}

/// Makes the indom of a histogram's buckets, each named by the range of its values.
fn buckets(slots: u16) -> Indom {
    let last = slots.saturating_sub(1);
    let bucket = |n: u16| match n {
        0 => "<=0".to_owned(),
        n if n == last => format!(">={}", 1u64 << (n - 1)),
        n => format!("{}-{}", 1u64 << (n - 1), (1u64 << n) - 1),
    };
    Indom {
        serial: CPUS + u32::from(slots),
        instances: (0..slots).map(|n| (u32::from(n), bucket(n))).collect(),
    }
}

/// Plans the file with the time and the generation of the values, by which clients see how old they
/// are.
fn control(name: &str) -> Planned {
    let metric = |item, word, units, long: &str| Metric {
        item,
        name: format!("{name}.control.{word}"),
        semantics: Semantics::Instant,
        units,
        indom: None,
        short: long.to_owned(),
        long: long.to_owned(),
    };
    let ns = units(Unit::Seconds, -9).map_or(0, |u| u.0);
    let source = |part| Origin {
        number: 0,
        part,
        factor: 1,
    };
    Planned {
        suffix: "control".into(),
        page: Page {
            cluster: CONTROL,
            indoms: Vec::new(),
            metrics: vec![
                metric(
                    1,
                    "time",
                    ns,
                    "Time at which the values were read, since 1970",
                ),
                metric(2, "generation", 0, "Generation of the set of instances"),
            ],
        },
        sources: vec![source(Part::Time), source(Part::Generation)],
    }
}
