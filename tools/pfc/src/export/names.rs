// SPDX-License-Identifier: GPL-2.0

//! Makes the names of OpenMetrics metrics from the names of instances. For example,
//! `block/sda/reads` becomes `perfcounters_block_reads_total{device="sda",name="block/sda/reads"}`.
//!
//! Every sample has the name of its instance as a label, so two instances can never become one
//! series, even if their metrics have the same name.
//!
//! Two metric families must not have the same name. If two families would have the same name, the
//! family whose first instance has the lower number gets the name. A family whose name is already
//! used gets a name that contains its metric type, such as `perfcounters_x_gauge`. Families are
//! made from all instances of the catalogue, so the name of a family does not depend on the
//! instances that the user selects.

use std::collections::{HashMap, HashSet};

use perfcounters::{Instance, InstanceCatalogue, Kind, Unit};

/// The OpenMetrics metric types that pfc uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

impl MetricType {
    pub fn of_instance_kind(kind: Kind) -> Self {
        match kind {
            Kind::Counter | Kind::Time => Self::Counter,
            Kind::Gauge | Kind::Peak => Self::Gauge,
            Kind::Histogram => Self::Histogram,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }

    /// Returns the suffixes that the names of a family's samples may have.
    fn sample_name_suffixes(self) -> &'static [&'static str] {
        match self {
            Self::Counter => &["", "_total", "_created"],
            Self::Gauge => &[""],
            Self::Histogram => &["", "_bucket", "_count", "_sum", "_created"],
        }
    }
}

/// An OpenMetrics metric family: the instances that are exported under one metric name.
#[derive(Debug)]
pub struct MetricFamily {
    pub name: String,
    pub metric_type: MetricType,
    pub unit: Option<&'static str>,
    pub help: String,
}

/// All metric families of a catalogue of instances, in the order of their first instances.
#[derive(Debug, Default)]
pub struct MetricFamilies {
    families: Vec<MetricFamily>,
    index_by_instance_number: HashMap<u32, usize>,
}

impl MetricFamilies {
    pub fn new(catalogue: &InstanceCatalogue) -> Self {
        let mut families = Self::default();
        let mut index_of_key: HashMap<(String, MetricType, Option<&'static str>), usize> =
            HashMap::new();
        let mut used_names = HashSet::new();
        let mut members: Vec<Vec<&Instance>> = Vec::new();
        // Instances of an unknown kind are left out, because pfc does not know how to combine the
        // values of several CPUs.
        let instances = catalogue.instances().iter();
        for instance in instances.filter(|i| i.unknown_kind.is_none()) {
            let parts = split_instance_name(&instance.name);
            let kind = MetricType::of_instance_kind(instance.effective_kind);
            let unit = metric_unit_suffix(instance.unit);
            let base = family_name_without_unit(&parts.metric_name, kind, unit);
            let index = *index_of_key
                .entry((base, kind, unit))
                .or_insert_with_key(|key| {
                    families.families.push(MetricFamily {
                        name: unique_family_name(&key.0, kind, unit, &mut used_names),
                        metric_type: kind,
                        unit,
                        help: String::new(),
                    });
                    members.push(Vec::new());
                    families.families.len() - 1
                });
            members[index].push(instance);
            families
                .index_by_instance_number
                .insert(instance.number, index);
        }
        for (family, all) in families.families.iter_mut().zip(&members) {
            let all = all.iter().map(|i| (i.name.as_str(), i.help.as_str()));
            family.help = compose_family_help(&all.collect::<Vec<_>>());
        }
        families
    }

    /// Returns the index of the family of an instance. Returns `None` for an instance of an unknown
    /// kind.
    pub fn find_family_index(&self, instance: &Instance) -> Option<usize> {
        self.index_by_instance_number.get(&instance.number).copied()
    }

    pub fn family_at(&self, index: usize) -> &MetricFamily {
        &self.families[index]
    }
}

/// Returns the help text of a metric family. `all` has the name and the help text of each instance
/// of the family. If the help texts differ, the result says what the names of the instances have in
/// common.
fn compose_family_help(all: &[(&str, &str)]) -> String {
    let [(name, text), others @ ..] = all else {
        return String::new();
    };
    if others.iter().all(|(_, other)| other == text) {
        return (*text).to_owned();
    }
    let first: Vec<&str> = name.split('/').collect();
    let mut nr_common = first.len() - 1;
    let mut last_part = first.last();
    for (other, _) in others {
        let other: Vec<&str> = other.split('/').collect();
        nr_common = nr_common.min(first.iter().zip(&other).take_while(|(a, b)| a == b).count());
        last_part = last_part.filter(|last_part| Some(*last_part) == other.last());
    }
    let mut text = "values".to_owned();
    if let Some(last_part) = last_part {
        text.push_str(&format!(" named {last_part}"));
    }
    if nr_common > 0 {
        text.push_str(&format!(" of {}/", first[..nr_common].join("/")));
    }
    format!("{text}; distinguished by the label name")
}

/// The name of an instance, split into the name of its metric and labels.
#[derive(Debug, PartialEq, Eq)]
pub struct SplitInstanceName {
    /// The name of the metric: the parts of the instance's name that are not labels, joined by
    /// underscores.
    pub metric_name: String,
    /// The labels that distinguish the instances of a metric.
    pub labels: Vec<(&'static str, String)>,
}

/// Splits the name of an instance into the name of a metric and labels. For names that begin with
/// `irq`, `softirq`, `syscalls`, `block` or `net`, special rules choose the labels. If a name has
/// no special rule and has three or more parts, the middle parts become the label `id`.
pub fn split_instance_name(name: &str) -> SplitInstanceName {
    let parts: Vec<&str> = name.split('/').collect();
    let (base, labels) = match parts.as_slice() {
        ["irq", "vector", rest @ ..] if !rest.is_empty() => {
            ("irq_vector".into(), vec![("vector", rest.join("/"))])
        }
        ["irq", line, rest @ ..] if !rest.is_empty() => (
            "irq".into(),
            vec![("line", (*line).into()), ("handler", rest.join("/"))],
        ),
        ["softirq", rest @ ..] if !rest.is_empty() => {
            ("softirq".into(), vec![("softirq", rest.join("/"))])
        }
        ["syscalls", rest @ ..] if !rest.is_empty() => {
            ("syscalls".into(), vec![("syscall", rest.join("/"))])
        }
        [first, middle @ .., last] if !middle.is_empty() => {
            let label = match *first {
                "block" => "device",
                "net" => "interface",
                // The label `instance` is reserved: Prometheus sets this label to the address from
                // which Prometheus reads the metrics.
                _ => "id",
            };
            (format!("{first}_{last}"), vec![(label, middle.join("/"))])
        }
        all => (all.join("_"), Vec::new()),
    };
    SplitInstanceName {
        metric_name: base,
        labels,
    }
}

/// Returns the unit suffix of a metric's name. Metrics in plain numbers or events have no unit
/// suffix.
fn metric_unit_suffix(unit: Unit) -> Option<&'static str> {
    match unit {
        Unit::None | Unit::Events => None,
        unit => Some(unit.name()),
    }
}

/// Returns the name of a family: the prefix `perfcounters_`, and `text` without the suffix of its
/// unit and, for a counter, without the suffix `_total`. Characters that OpenMetrics does not allow
/// in names are replaced by underscores.
fn family_name_without_unit(text: &str, kind: MetricType, unit: Option<&str>) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let text: String = text.chars().map(clean).collect();
    let mut stem = format!("perfcounters_{text}");
    let mut strip = |end: &str| {
        // The suffix `end` is kept if it is all that follows the prefix `perfcounters_`.
        if let Some(rest) = stem
            .strip_suffix(end)
            .filter(|r| r.len() > "perfcounters_".len())
        {
            stem.truncate(rest.len());
        }
    };
    if kind == MetricType::Counter {
        strip("_total");
    }
    if let Some(unit) = unit {
        strip(&format!("_{unit}"));
    }
    stem
}

/// Returns the shortest family name that makes all sample names of the family different from those
/// in `used_names`. Adds the sample names of the family to `used_names`.
fn unique_family_name(
    base: &str,
    kind: MetricType,
    unit: Option<&str>,
    used_names: &mut HashSet<String>,
) -> String {
    let unit = unit.map_or(String::new(), |unit| format!("_{unit}"));
    let mut nr_tries = 0u32;
    loop {
        let name = match nr_tries {
            0 => format!("{base}{unit}"),
            1 => format!("{base}_{}{unit}", kind.name()),
            n => format!("{base}_{}_{n}{unit}", kind.name()),
        };
        let all: Vec<String> = kind
            .sample_name_suffixes()
            .iter()
            .map(|s| format!("{name}{s}"))
            .collect();
        if all
            .iter()
            .all(|sample_name| !used_names.contains(sample_name))
        {
            used_names.extend(all);
            return name;
        }
        nr_tries += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels_as_str_pairs(parts: &SplitInstanceName) -> Vec<(&str, &str)> {
        parts.labels.iter().map(|(k, v)| (*k, v.as_str())).collect()
    }

    #[test]
    fn pfc_export_instance_names_split_into_labels() {
        for (name, base, wanted) in [
            ("sched/wakeups", "sched_wakeups", &[][..]),
            ("syscalls/read", "syscalls", &[("syscall", "read")]),
            ("softirq/net_rx", "softirq", &[("softirq", "net_rx")]),
            ("irq/vector/nmi", "irq_vector", &[("vector", "nmi")]),
            ("irq/24/a/b", "irq", &[("line", "24"), ("handler", "a/b")]),
            ("irq/unnamed", "irq_unnamed", &[]),
            ("block/sda/reads", "block_reads", &[("device", "sda")]),
            ("block/unnamed", "block_unnamed", &[]),
            (
                "net/eth0/rx_bytes",
                "net_rx_bytes",
                &[("interface", "eth0")],
            ),
            ("disk/a/b/reads", "disk_reads", &[("id", "a/b")]),
            ("alone", "alone", &[]),
            ("", "", &[]),
            ("a//b", "a_b", &[("id", "")]),
        ] {
            let parts = split_instance_name(name);
            assert_eq!(
                (
                    parts.metric_name.as_str(),
                    labels_as_str_pairs(&parts).as_slice()
                ),
                (base, wanted),
                "{name}"
            );
        }
    }

    #[test]
    fn pfc_export_family_names_have_unit_once() {
        use MetricType::{Counter, Gauge};
        for (text, kind, unit, name) in [
            ("net_rx_bytes", Counter, Some("bytes"), "net_rx_bytes"),
            ("run_time", Counter, Some("seconds"), "run_time_seconds"),
            ("x_bytes_total", Counter, Some("bytes"), "x_bytes"),
            ("bytes", Gauge, Some("bytes"), "bytes_bytes"),
            ("tötal-1:2", Gauge, None, "t_tal_1_2"),
            ("total", Counter, None, "total"),
        ] {
            let base = family_name_without_unit(text, kind, unit);
            let full = unique_family_name(&base, kind, unit, &mut HashSet::new());
            assert_eq!(full, format!("perfcounters_{name}"));
        }
    }

    #[test]
    fn pfc_export_family_help_fits_all_instances() {
        let help_of = |all: &[(&str, &str)]| {
            compose_family_help(all).replace("; distinguished by the label name", "")
        };
        let own = [
            ("perfcounters/interrupts/time", "Time in the NMI handler"),
            ("perfcounters/faults/time", "Time in page faults"),
        ];
        assert_eq!(help_of(&own), "values named time of perfcounters/");
        assert_eq!(compose_family_help(&own[..1]), "Time in the NMI handler");
        let disks = [("block/sda/reads", "Done"), ("block/sdb/reads", "Done")];
        assert_eq!(compose_family_help(&disks), "Done");
        let some = [("a/x/n", "one"), ("a/y/n", "")];
        assert_eq!(help_of(&some), "values named n of a/");
        let vectors = [("irq/vector/nmi", "a"), ("irq/vector/mce", "b")];
        assert_eq!(help_of(&vectors), "values of irq/vector/");
        assert_eq!(help_of(&[("a-b", "x"), ("a_b", "y")]), "values");
        assert_eq!(help_of(&[("a/b", "x"), ("a_b", "y")]), "values");
        assert_eq!(compose_family_help(&[("a", ""), ("b", "")]), "");
        assert_eq!(compose_family_help(&[]), "");
    }

    #[test]
    fn pfc_export_family_names_are_unique() {
        let mut taken = HashSet::new();
        for (stem, kind, unique) in [
            ("x", MetricType::Counter, "x"),
            ("x", MetricType::Gauge, "x_gauge"),
            ("x_total", MetricType::Gauge, "x_total_gauge"),
            ("x", MetricType::Histogram, "x_histogram"),
            (
                "x_histogram_sum",
                MetricType::Gauge,
                "x_histogram_sum_gauge",
            ),
            ("x_gauge", MetricType::Gauge, "x_gauge_gauge"),
            ("x", MetricType::Gauge, "x_gauge_2"),
        ] {
            assert_eq!(unique_family_name(stem, kind, None, &mut taken), unique);
        }
    }
}
