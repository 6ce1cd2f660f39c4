// SPDX-License-Identifier: GPL-2.0

//! Which metric is in which file.
//!
//! A metric's number in PCP is a cluster (of which MMV can use 2,047) and an
//! item (1,024 to a cluster). An instance's own number, below 65,536, gives
//! both, so a metric keeps its number as long as the instance does, whatever
//! comes and goes around it:
//!
//! | cluster | metrics |
//! |---|---|
//! | 1022 | `NAME.tasks.*`: the busiest tasks (`tasks.rs`) |
//! | 1023 | `NAME.control.*`: what and when |
//! | 1024 + number / 1024 | `NAME.all.*`: over all CPUs; of a histogram: each bucket |
//! | 1088 + number / 1024 | `NAME.percpu.*`: each CPU's part; histograms have none |
//!
//! Each file is of one cluster and holds at most [`VALUES_MAX`] values: PCP
//! ignores larger ones, and looks through a file from its beginning for every
//! value that it wants.

use perfcounters::{Instance, Kind, Reading, Snapshot, Unit};

use super::names::{units, Names};
use super::page::{Indom, Metric, Page, Semantics};

/// Metrics of one cluster.
const ITEMS: u32 = 1024;
const CONTROL: u32 = 1023;
const ALL: u32 = 1024;
const PERCPU: u32 = ALL + 64;
/// pmdammv takes 10,000; a CPU for each of 8,192 fits.
const VALUES_MAX: usize = 10_000;
/// Indoms of a cluster: 1 are the CPUs, 1 + n the buckets of a histogram of n.
const CPUS: u32 = 1;

/// What a metric's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    All,
    PerCpu,
    /// Nanoseconds since 1970 of the values' look.
    Time,
    /// The generation of the set of instances.
    Generation,
}

/// Where a metric's values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub number: u32,
    pub part: Part,
    /// PCP has a unit of this many of ours; see [`units`].
    pub factor: i64,
}

impl Origin {
    /// The values, in the order of the metric's indom.
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

/// One file to be.
#[derive(Debug)]
pub struct Planned {
    /// What comes behind the name in the file's name.
    pub suffix: String,
    pub page: Page,
    /// Of each metric of the page.
    pub sources: Vec<Origin>,
}

/// The files for what a snapshot has. `sum`: only values over all CPUs.
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
        // How values of a kind that is not known combine is not known, either.
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
                // The first instance's number: it is in no other file.
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
        // The bucket of a histogram counts, whatever is in it.
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

/// The long help text: the name as this project has it, and the unit.
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

/// The buckets of a histogram, by the values that they count.
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

/// What tells a client how old the values are.
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
                metric(1, "time", ns, "When the values were read, since 1970"),
                metric(2, "generation", 0, "Generation of the set of instances"),
            ],
        },
        sources: vec![source(Part::Time), source(Part::Generation)],
    }
}
