// SPDX-License-Identifier: GPL-2.0

//! The JSON of list, read and snapshot. Values are exact.

use std::io::{self, Write};

use perfcounters::{Catalogue, Instance, Kind, Reading, Snapshot};
use serde::Serialize;

use crate::time;

/// Instances, and perhaps their values, of one generation.
#[derive(Serialize)]
pub struct Document<'a> {
    generation: u64,
    boot_id: String,
    #[serde(flatten)]
    moment: Option<Moment<'a>>,
    instances: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Moment<'a> {
    realtime_ns: u64,
    monotonic_ns: u64,
    /// Do the values of each CPU belong together?
    consistent: bool,
    /// The CPUs, in the order of `per_cpu`.
    cpus: &'a [u32],
    online: &'a [u32],
}

#[derive(Serialize)]
struct Entry<'a> {
    number: u32,
    name: &'a str,
    kind: &'static str,
    unit: &'static str,
    exponent: i8,
    state: &'static str,
    incarnation: u32,
    created_ns: u64,
    #[serde(skip_serializing_if = "is_zero")]
    ended_ns: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    help: &'a str,
    #[serde(flatten)]
    values: Option<Values>,
}

#[derive(Serialize)]
struct Values {
    /// Of a histogram: how many values it has counted.
    value: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<Vec<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_cpu: Option<PerCpu>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum PerCpu {
    Plain(Vec<i64>),
    Buckets(Vec<Vec<i64>>),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl<'a> Entry<'a> {
    fn new(i: &'a Instance, values: Option<Values>) -> Self {
        Self {
            number: i.number,
            name: &i.name,
            kind: i.kind.name(),
            unit: i.unit.name(),
            exponent: i.exponent,
            state: i.state.name(),
            incarnation: i.incarnation,
            created_ns: i.created_ns,
            ended_ns: i.ended_ns,
            help: &i.help,
            values,
        }
    }
}

impl Values {
    fn new(reading: &Reading<'_>, per_cpu: bool) -> Self {
        let histogram = reading.instance().kind == Kind::Histogram;
        let per_cpu = per_cpu.then(|| {
            if histogram {
                PerCpu::Buckets(reading.per_cpu().map(|(_, s)| s.to_vec()).collect())
            } else {
                PerCpu::Plain(reading.per_cpu().map(|(_, s)| s[0]).collect())
            }
        });
        Self {
            value: reading.total(),
            buckets: histogram.then(|| reading.combined()),
            per_cpu,
        }
    }
}

impl<'a> Document<'a> {
    /// Instances without values.
    pub fn list(catalogue: &Catalogue, instances: impl Iterator<Item = &'a Instance>) -> Self {
        Self {
            generation: catalogue.generation(),
            boot_id: time::boot_id(&catalogue.boot_id()),
            moment: None,
            instances: instances.map(|i| Entry::new(i, None)).collect(),
        }
    }

    /// Instances with their values.
    pub fn values(
        snapshot: &'a Snapshot,
        readings: impl Iterator<Item = Reading<'a>>,
        per_cpu: bool,
    ) -> Self {
        let stamp = snapshot.stamp();
        Self {
            generation: stamp.generation,
            boot_id: time::boot_id(&stamp.boot_id),
            moment: Some(Moment {
                realtime_ns: stamp.realtime_ns,
                monotonic_ns: stamp.monotonic_ns,
                consistent: stamp.consistent,
                cpus: snapshot.cpus(),
                online: snapshot.online(),
            }),
            instances: readings
                .map(|r| Entry::new(r.instance(), Some(Values::new(&r, per_cpu))))
                .collect(),
        }
    }

    /// Prints it, a line for each instance.
    pub fn print(mut self, out: &mut impl Write) -> io::Result<()> {
        let entries = std::mem::take(&mut self.instances);
        let head = serde_json::to_string(&self)?;
        // The list comes last, and is empty.
        write!(out, "{}", head.trim_end_matches("]}"))?;
        for (n, entry) in entries.iter().enumerate() {
            write!(out, "{}", if n == 0 { "\n  " } else { ",\n  " })?;
            serde_json::to_writer(&mut *out, entry)?;
        }
        writeln!(out, "\n]}}")
    }
}
