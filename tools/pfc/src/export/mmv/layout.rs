// SPDX-License-Identifier: GPL-2.0

//! Assigns metrics to files, and gives each metric its number in Performance Co-Pilot (PCP).
//!
//! A metric's number in PCP consists of a cluster and an item. Memory-mapped values can use 2,047
//! clusters, and a cluster has 1,024 items. For a counter instance, cluster and item are computed
//! from the instance number in the counter pages, which is below 65,536. Because the number of a
//! metric depends only on its own instance, the metric keeps its number even if other instances are
//! added or removed. The clusters are:
//!
//! | cluster | metrics |
//! |---|---|
//! | 1022 | `NAME.tasks.*`: the busiest tasks (`tasks.rs`) |
//! | 1023 | `NAME.control.*`: time and generation of the values |
//! | 1024 + number / 1024 | `NAME.all.*`: totals over all CPUs; each bucket of a histogram |
//! | 1088 + number / 1024 | `NAME.percpu.*`: the value of each CPU; not for histograms |
//!
//! Each file contains metrics of one cluster and at most [`MAX_VALUES_PER_FILE`] values. pmdammv
//! ignores a file with more values, and searches a file from its beginning for each value that it
//! reads.

use perfcounters::{Instance, Kind, Reading, Snapshot, Unit};

use super::encode::{Indom, Metric, MetricSemantics, MmvFileContents};
use super::names::{convert_to_pcp_units, MetricNamer};

/// Maximum number of metrics in one cluster.
const ITEMS_PER_CLUSTER: u32 = 1024;
const CONTROL_METRICS_CLUSTER: u32 = 1023;
const FIRST_ALL_CPUS_CLUSTER: u32 = 1024;
const FIRST_PERCPU_CLUSTER: u32 = FIRST_ALL_CPUS_CLUSTER + 64;
/// Maximum number of values in a file; pmdammv ignores files with more. 10,000 values suffice for a
/// metric that has a value for each of 8,192 CPUs.
const MAX_VALUES_PER_FILE: usize = 10_000;
/// The serial number of the instance domain (indom) of CPUs. For a histogram with n buckets, the
/// indom whose instances are the buckets has the serial number 1 + n.
const CPU_INDOM_SERIAL: u32 = 1;

/// The values that a metric exports: totals over all CPUs, the value of each CPU, or a property of
/// the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricValueKind {
    All,
    PerCpu,
    /// The time when the values were read, in nanoseconds since 1970.
    Time,
    /// The generation number of the set of instances.
    Generation,
}

/// Says which values of a snapshot a metric exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricValueSource {
    pub instance_number: u32,
    pub kind: MetricValueKind,
    /// The factor by which values are multiplied to get PCP's unit; see [`convert_to_pcp_units`].
    pub unit_factor: i64,
}

impl MetricValueSource {
    /// Returns the values of the metric, in the order of its indom.
    pub fn read_values(&self, snapshot: &Snapshot) -> Vec<u64> {
        let stamp = snapshot.stamp();
        let reading = snapshot.reading_by_number(self.instance_number);
        let values: Vec<i64> = match (self.kind, reading) {
            (MetricValueKind::Time, _) => return vec![stamp.realtime_ns],
            (MetricValueKind::Generation, _) => return vec![stamp.generation],
            (MetricValueKind::All, Some(reading)) => reading.combined_values(),
            (MetricValueKind::PerCpu, Some(reading)) => per_cpu_values(&reading),
            (_, None) => Vec::new(),
        };
        let scaled = |value: i64| value.wrapping_mul(self.unit_factor) as u64;
        values.into_iter().map(scaled).collect()
    }
}

fn per_cpu_values(reading: &Reading<'_>) -> Vec<i64> {
    reading
        .per_cpu()
        .filter_map(|(_, slots)| slots.first().copied())
        .collect()
}

/// The layout of one MMV file: its contents, and where each metric's values come from.
#[derive(Debug)]
pub struct MmvFileLayout {
    /// The part of the file's name that follows the exporter's name and a dot.
    pub name_suffix: String,
    pub contents: MmvFileContents,
    /// The source of each metric's values. The order is the order of the metrics in `contents`.
    pub value_sources: Vec<MetricValueSource>,
}

/// Returns the layouts of the files for the selected instances of a snapshot. If `sum` is true, the
/// files have no values of single CPUs.
pub fn plan_mmv_files(name: &str, snapshot: &Snapshot, sum: bool) -> Vec<MmvFileLayout> {
    let names = MetricNamer::new(snapshot.selection().instances());
    let cpus = Indom {
        serial: CPU_INDOM_SERIAL,
        instances: snapshot
            .cpus()
            .iter()
            .map(|cpu| (*cpu, format!("cpu{cpu}")))
            .collect(),
    };
    let mut files = vec![plan_control_file(name)];
    for (kind, scope, base) in [
        (MetricValueKind::All, "all", FIRST_ALL_CPUS_CLUSTER),
        (MetricValueKind::PerCpu, "percpu", FIRST_PERCPU_CLUSTER),
    ] {
        let mut file: Option<MmvFileLayout> = None;
        let mut nr_values = 0;
        // Instances of an unknown kind are left out, because pfc does not know how to combine the
        // values of several CPUs.
        let instances = snapshot.selection().instances();
        for instance in instances.filter(|i| i.unknown_kind.is_none()) {
            let is_histogram = instance.effective_kind == Kind::Histogram;
            let indom = match kind {
                MetricValueKind::PerCpu if sum || is_histogram => continue,
                MetricValueKind::PerCpu => Some(cpus.clone()),
                _ => is_histogram.then(|| make_bucket_indom(instance.nr_slots)),
            };
            let width = indom.as_ref().map_or(1, |i| i.instances.len());
            let cluster = base + instance.number / ITEMS_PER_CLUSTER;
            let is_same_cluster = file.as_ref().is_some_and(|f| f.contents.cluster == cluster);
            if !is_same_cluster || nr_values + width > MAX_VALUES_PER_FILE {
                files.extend(file.take());
                nr_values = 0;
            }
            nr_values += width;
            let file = file.get_or_insert_with(|| MmvFileLayout {
                // The suffix of the file's name contains the number of the file's first instance.
                // No instance is in two `all` files or in two `percpu` files, so no two files have
                // the same suffix.
                name_suffix: format!("{scope}.{}", instance.number),
                contents: MmvFileContents {
                    cluster,
                    ..MmvFileContents::default()
                },
                value_sources: Vec::new(),
            });
            let prefix = format!("{name}.{scope}");
            file.add_instance_metric(kind, names.metric_name(&prefix, instance), instance, indom);
        }
        files.extend(file);
    }
    files
}

impl MmvFileLayout {
    fn add_instance_metric(
        &mut self,
        kind: MetricValueKind,
        name: String,
        instance: &Instance,
        indom: Option<Indom>,
    ) {
        let indoms = &mut self.contents.indoms;
        let indom = indom.map(|indom| match indoms.iter().position(|i| *i == indom) {
            Some(index) => index,
            None => {
                indoms.push(indom);
                indoms.len() - 1
            }
        });
        // The value of a histogram's bucket is a count, independent of the histogram's unit.
        let is_histogram = instance.effective_kind == Kind::Histogram;
        let known_units = match is_histogram {
            true => convert_to_pcp_units(Unit::Events, 0),
            false => convert_to_pcp_units(instance.unit, instance.exponent),
        };
        let (units, factor) = known_units.unwrap_or((0, 1));
        self.contents.metrics.push(Metric {
            item_number: instance.number % ITEMS_PER_CLUSTER,
            name,
            semantics: match instance.effective_kind {
                Kind::Counter | Kind::Time | Kind::Histogram => MetricSemantics::Counter,
                Kind::Gauge | Kind::Peak => MetricSemantics::Instant,
            },
            packed_units: units,
            indom_index: indom,
            short_help: match instance.help.as_str() {
                "" => instance.name.clone(),
                help => help.to_owned(),
            },
            long_help: format_long_help(instance, known_units.is_some() && !is_histogram),
        });
        self.value_sources.push(MetricValueSource {
            instance_number: instance.number,
            kind,
            unit_factor: factor,
        });
    }
}

/// Returns the long help text of the metric that shows the values of `instance`: the name, kind,
/// unit and help text of `instance`.
fn format_long_help(instance: &Instance, unit_known: bool) -> String {
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

/// Makes the indom whose instances are the buckets of a histogram. A bucket's name is its range of
/// values, for example `4-7`.
fn make_bucket_indom(slots: u16) -> Indom {
    let last = slots.saturating_sub(1);
    let bucket = |n: u16| match n {
        0 => "<=0".to_owned(),
        n if n == last => format!(">={}", 1u64 << (n - 1)),
        n => format!("{}-{}", 1u64 << (n - 1), (1u64 << n) - 1),
    };
    Indom {
        serial: CPU_INDOM_SERIAL + u32::from(slots),
        instances: (0..slots).map(|n| (u32::from(n), bucket(n))).collect(),
    }
}

/// Returns the layout of the control file, which contains the time at which the values were read
/// and the generation of the set of instances. The time in the control file tells clients how old
/// the values are.
fn plan_control_file(name: &str) -> MmvFileLayout {
    let metric = |item, word, units, long: &str| Metric {
        item_number: item,
        name: format!("{name}.control.{word}"),
        semantics: MetricSemantics::Instant,
        packed_units: units,
        indom_index: None,
        short_help: long.to_owned(),
        long_help: long.to_owned(),
    };
    let ns = convert_to_pcp_units(Unit::Seconds, -9).map_or(0, |u| u.0);
    let source = |kind| MetricValueSource {
        instance_number: 0,
        kind,
        unit_factor: 1,
    };
    MmvFileLayout {
        name_suffix: "control".into(),
        contents: MmvFileContents {
            cluster: CONTROL_METRICS_CLUSTER,
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
        value_sources: vec![
            source(MetricValueKind::Time),
            source(MetricValueKind::Generation),
        ],
    }
}
