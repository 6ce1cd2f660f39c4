// SPDX-License-Identifier: GPL-2.0

//! The OpenMetrics 1.0 text format, which Prometheus reads.
//!
//! The text is written without the crate `prometheus-client`: that crate has no `_created`,
//! requires a sum for each histogram, and would keep a copy of every value.

use std::io::{self, Write};

use perfcounters::{Instance, Reading, Snapshot};
use ppa::Task;

use crate::export::accept::Media;
use crate::export::names::{place, Families, Family, Type};
use crate::export::tasks::{Tasks, Value, VALUES};
use crate::export::{Format, Look, Options, Writer};
use crate::units::{bucket_bounds, format_canonical, format_decimal};

pub const FORMAT: Format = Format {
    flag: "openmetrics",
    help: "Write OpenMetrics 1.0 text, for Prometheus and compatible systems",
    media: Some(Media {
        kind: "application",
        subtype: "openmetrics-text",
        versions: &["1.0.0", "0.0.1"],
        content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8",
    }),
    writer: |options| {
        Box::new(Text {
            options: options.clone(),
            families: None,
        })
    },
};

struct Text {
    options: Options,
    /// The families, with the boot ID and the generation of the catalogue that they were made from.
    families: Option<([u8; 16], u64, Families)>,
}

impl Writer for Text {
    fn write(&mut self, look: &Look, out: &mut dyn Write) -> io::Result<()> {
        let snapshot = &look.snapshot;
        let catalogue = snapshot.catalogue();
        let now = (catalogue.boot_id(), catalogue.generation());
        let families = match self.families.take() {
            Some((boot, generation, families)) if (boot, generation) == now => families,
            _ => Families::new(catalogue),
        };
        // The format requires that the samples of a family follow each other.
        let mut readings: Vec<(usize, Reading<'_>)> = snapshot
            .readings()
            .filter_map(|r| Some((families.of(r.instance())?, r)))
            .collect();
        readings.sort_by_key(|(family, _)| *family);
        let mut last = None;
        let mut left_out = 0u64;
        for (at, reading) in readings {
            let family = families.get(at);
            if last.replace(at) != Some(at) {
                describe(&family.name, family.kind, family.unit, &family.help, out)?;
            }
            left_out += self.samples(family, &reading, snapshot.stamp().realtime_ns, out)?;
        }
        if let Some(tasks) = &look.tasks {
            busiest(tasks, out)?;
        }
        about(snapshot, left_out, out)?;
        self.families = Some((now.0, now.1, families));
        writeln!(out, "# EOF")
    }
}

impl Text {
    /// Writes the samples of one instance. Returns the number of values that the format cannot
    /// represent.
    fn samples(
        &self,
        family: &Family,
        reading: &Reading<'_>,
        now_ns: u64,
        out: &mut dyn Write,
    ) -> io::Result<u64> {
        let instance = reading.instance();
        let labels = labels(instance);
        let created = created(instance, now_ns);
        let mut left_out = 0;
        let mut one = |labels: &str, slots: &[i64]| -> io::Result<()> {
            if family.kind != Type::Gauge && slots.iter().any(|v| *v < 0) {
                // A counter cannot be negative. A reader would reject the whole text because of one
                // such value.
                left_out += 1;
                return Ok(());
            }
            sample(family, instance.exponent, labels, slots, out)?;
            match (&created, family.kind) {
                (Some(created), Type::Counter | Type::Histogram) => {
                    writeln!(out, "{}_created{{{labels}}} {created}", family.name)
                }
                _ => Ok(()),
            }
        };
        if self.options.sum {
            one(&labels, &reading.combined())?;
        } else {
            for (cpu, slots) in reading.per_cpu() {
                one(&format!("cpu=\"{cpu}\",{labels}"), slots)?;
            }
        }
        Ok(left_out)
    }
}

fn sample(
    family: &Family,
    exponent: i8,
    labels: &str,
    slots: &[i64],
    out: &mut dyn Write,
) -> io::Result<()> {
    let name = &family.name;
    match (family.kind, slots) {
        (Type::Counter, [value]) => {
            let value = format_decimal((*value).into(), exponent);
            writeln!(out, "{name}_total{{{labels}}} {value}")
        }
        (Type::Gauge, [value]) => {
            let value = format_decimal((*value).into(), exponent);
            writeln!(out, "{name}{{{labels}}} {value}")
        }
        (_, buckets) => {
            let mut below: i128 = 0;
            for (b, n) in buckets.iter().enumerate() {
                below += i128::from(*n);
                // The bound `le` is inclusive. Values are integers, so it is one less than the end.
                if let (_, Some(end)) = bucket_bounds(b, buckets.len()) {
                    let le = format_canonical((end - 1).unsigned_abs(), exponent);
                    writeln!(out, "{name}_bucket{{{labels},le=\"{le}\"}} {below}")?;
                }
            }
            // The sum of the values is not known, so there is no _sum; without it _count is not
            // allowed.
            writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {below}")
        }
    }
}

/// Returns the time when the current incarnation of the instance began. Returns `None` if that time
/// is in the future, because the clock was set back since then.
fn created(instance: &Instance, now_ns: u64) -> Option<String> {
    let ns = instance.created_ns;
    (ns != 0 && ns <= now_ns).then(|| format_decimal(ns.into(), -9))
}

fn labels(instance: &Instance) -> String {
    let mut text = String::new();
    for (label, value) in place(&instance.name).labels {
        text.push_str(&format!("{label}=\"{}\",", escaped(&value)));
    }
    text.push_str(&format!("name=\"{}\"", escaped(&instance.name)));
    text
}

fn describe(
    name: &str,
    kind: Type,
    unit: Option<&str>,
    help: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "# TYPE {name} {}", kind.name())?;
    if let Some(unit) = unit {
        writeln!(out, "# UNIT {name} {unit}")?;
    }
    let help = match help {
        "" => "no description",
        help => help,
    };
    writeln!(out, "# HELP {name} {}", escaped(help))
}

/// Writes the busiest tasks. Task IDs are used again: the same ID may stand for another task whose
/// counters start at 0. Therefore the name of the task is a label, too.
fn busiest(tasks: &Tasks, out: &mut dyn Write) -> io::Result<()> {
    let all = tasks.all.len();
    let help = "number of accounted tasks, of which the busiest are exported";
    describe("pfc_tasks", Type::Gauge, None, help, out)?;
    writeln!(out, "pfc_tasks {all}")?;
    for (total, sum) in tasks.totals() {
        let (name, exponent) = describe_task("pfc_tasks", total, out)?;
        writeln!(out, "{name}_total {}", format_decimal(sum.into(), exponent))?;
    }
    for value in &VALUES {
        let (name, exponent) = describe_task("pfc_task", value, out)?;
        for task in tasks.busiest() {
            let labels = task_labels(task);
            let value = format_decimal(value.get(task, tasks.khz).into(), exponent);
            writeln!(out, "{name}_total{{{labels}}} {value}")?;
        }
    }
    Ok(())
}

/// Writes the description of a task metric. Returns its name and the exponent of its unit.
fn describe_task(prefix: &str, value: &Value, out: &mut dyn Write) -> io::Result<(String, i8)> {
    let (unit, end, exponent) = match value.time {
        true => (Some("seconds"), "_seconds", -9),
        false => (None, "", 0),
    };
    let name = format!("{prefix}_{}{end}", value.name);
    describe(&name, Type::Counter, unit, value.help, out)?;
    Ok((name, exponent))
}

fn task_labels(task: &Task) -> String {
    let (pid, tgid, comm) = (task.pid, task.tgid, escaped(&task.name()));
    format!("pid=\"{pid}\",tgid=\"{tgid}\",comm=\"{comm}\"")
}

/// Writes metrics about the sample itself. Their prefix `pfc_` is not used for instances.
fn about(snapshot: &Snapshot, left_out: u64, out: &mut dyn Write) -> io::Result<()> {
    let stamp = snapshot.stamp();
    for (name, help, value) in [
        (
            "pfc_snapshot_consistent",
            "1: the values of each CPU are consistent; 0: a CPU was updating its counters at every attempt",
            u64::from(stamp.consistent),
        ),
        (
            "pfc_snapshot_generation",
            "changes of the set of instances since the module was loaded",
            stamp.generation,
        ),
        (
            "pfc_snapshot_left_out",
            "values omitted because they are negative, although their driver declared a counter",
            left_out,
        ),
    ] {
        describe(name, Type::Gauge, None, help, out)?;
        writeln!(out, "{name} {value}")?;
    }
    Ok(())
}

/// Escapes a label value or a help text.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => safe.push_str("\\\\"),
            '"' => safe.push_str("\\\""),
            '\n' => safe.push_str("\\n"),
            c => safe.push(c),
        }
    }
    safe
}
