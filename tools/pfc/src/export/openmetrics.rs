// SPDX-License-Identifier: GPL-2.0

//! Writes the OpenMetrics 1.0 text format, which Prometheus reads.
//!
//! The crate `prometheus-client` is not used, because it cannot write `_created`, requires a sum
//! for each histogram, and keeps a copy of every value.

use std::io::{self, Write};

use perfcounters::{Instance, Reading, Snapshot};
use ppa::Task;

use crate::export::names::{split_instance_name, MetricFamilies, MetricFamily, MetricType};
use crate::export::tasks::{TaskMetric, TaskScrape, MISSING_TASK_METRICS, PER_TASK_METRICS};
use crate::export::Scrape;
use crate::units::{format_exact_decimal, format_openmetrics_bound, histogram_bucket_bounds};

/// The Content-Type header of an HTTP response with OpenMetrics text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The writer of the OpenMetrics text, which is called once for each scrape.
pub struct OpenMetricsWriter {
    /// True if only totals over all CPUs are written.
    totals_only: bool,
    /// The metric families. The boot ID and the generation identify the catalogue from which the
    /// families were made.
    cached_families: Option<([u8; 16], u64, MetricFamilies)>,
}

impl OpenMetricsWriter {
    pub fn new(totals_only: bool) -> Self {
        Self {
            totals_only,
            cached_families: None,
        }
    }

    /// Writes a complete scrape as text.
    pub fn write_scrape(&mut self, scrape: &Scrape, out: &mut dyn Write) -> io::Result<()> {
        let snapshot = &scrape.snapshot;
        let catalogue = snapshot.catalogue();
        let catalogue_id = (catalogue.boot_id(), catalogue.generation());
        let families = match self.cached_families.take() {
            Some((boot, generation, families)) if (boot, generation) == catalogue_id => families,
            _ => MetricFamilies::new(catalogue),
        };
        // OpenMetrics requires that all samples of a family are adjacent, so the readings are
        // sorted by family.
        let mut readings: Vec<(usize, Reading<'_>)> = snapshot
            .readings()
            .filter_map(|r| Some((families.find_family_index(r.instance())?, r)))
            .collect();
        readings.sort_by_key(|(family, _)| *family);
        let mut last = None;
        let mut omitted = 0u64;
        for (index, reading) in readings {
            let family = families.family_at(index);
            if last.replace(index) != Some(index) {
                write_metric_metadata(
                    &family.name,
                    family.metric_type,
                    family.unit,
                    &family.help,
                    out,
                )?;
            }
            omitted +=
                self.write_instance_samples(family, &reading, snapshot.stamp().realtime_ns, out)?;
        }
        if let Some(tasks) = &scrape.task_scrape {
            write_task_metrics(tasks, out)?;
        }
        write_snapshot_metrics(snapshot, omitted, out)?;
        self.cached_families = Some((catalogue_id.0, catalogue_id.1, families));
        writeln!(out, "# EOF")
    }

    /// Writes the OpenMetrics samples of one instance. Returns the number of values that were left
    /// out because OpenMetrics cannot represent them.
    fn write_instance_samples(
        &self,
        family: &MetricFamily,
        reading: &Reading<'_>,
        now_ns: u64,
        out: &mut dyn Write,
    ) -> io::Result<u64> {
        let instance = reading.instance();
        let labels = format_instance_labels(instance);
        let created = format_created_time(instance, now_ns);
        let mut omitted = 0;
        let mut write_values = |labels: &str, slots: &[i64]| -> io::Result<()> {
            if family.metric_type != MetricType::Gauge && slots.iter().any(|v| *v < 0) {
                // An OpenMetrics counter cannot be negative. If the text contained one negative
                // counter, a reader would reject the whole text.
                omitted += 1;
                return Ok(());
            }
            write_slot_samples(family, instance.exponent, labels, slots, out)?;
            match (&created, family.metric_type) {
                (Some(created), MetricType::Counter | MetricType::Histogram) => {
                    writeln!(out, "{}_created{{{labels}}} {created}", family.name)
                }
                _ => Ok(()),
            }
        };
        if self.totals_only {
            write_values(&labels, &reading.combined_values())?;
        } else {
            for (cpu, slots) in reading.per_cpu() {
                write_values(&format!("cpu=\"{cpu}\",{labels}"), slots)?;
            }
        }
        Ok(omitted)
    }
}

fn write_slot_samples(
    family: &MetricFamily,
    exponent: i8,
    labels: &str,
    slots: &[i64],
    out: &mut dyn Write,
) -> io::Result<()> {
    let name = &family.name;
    match (family.metric_type, slots) {
        (MetricType::Counter, [value]) => {
            let value = format_exact_decimal((*value).into(), exponent);
            writeln!(out, "{name}_total{{{labels}}} {value}")
        }
        (MetricType::Gauge, [value]) => {
            let value = format_exact_decimal((*value).into(), exponent);
            writeln!(out, "{name}{{{labels}}} {value}")
        }
        (_, buckets) => {
            let mut cumulative: i128 = 0;
            for (b, n) in buckets.iter().enumerate() {
                cumulative += i128::from(*n);
                // OpenMetrics' bound `le` of a bucket is inclusive, and `end` is exclusive. Values
                // are integers, so `le` is one less than `end`.
                if let (_, Some(end)) = histogram_bucket_bounds(b, buckets.len()) {
                    let le = format_openmetrics_bound((end - 1).unsigned_abs(), exponent);
                    writeln!(out, "{name}_bucket{{{labels},le=\"{le}\"}} {cumulative}")?;
                }
            }
            // The sum of a histogram's values is not known, so the text has no sample `_sum`.
            // OpenMetrics does not allow a sample `_count` without `_sum`.
            writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {cumulative}")
        }
    }
}

/// Returns the time when the current incarnation of the instance began, in seconds since 1970.
/// Returns `None` if the time is unknown, or is in the future because the clock was set back.
fn format_created_time(instance: &Instance, now_ns: u64) -> Option<String> {
    let ns = instance.created_ns;
    (ns != 0 && ns <= now_ns).then(|| format_exact_decimal(ns.into(), -9))
}

fn format_instance_labels(instance: &Instance) -> String {
    let mut text = String::new();
    for (label, value) in split_instance_name(&instance.name).labels {
        text.push_str(&format!("{label}=\"{}\",", escape_openmetrics_text(&value)));
    }
    text.push_str(&format!(
        "name=\"{}\"",
        escape_openmetrics_text(&instance.name)
    ));
    text
}

fn write_metric_metadata(
    name: &str,
    kind: MetricType,
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
    writeln!(out, "# HELP {name} {}", escape_openmetrics_text(help))
}

/// Writes the metrics of the busiest tasks. Each sample has the task's name as a label in addition
/// to the task ID, because task IDs are reused. The counters of a later task with the same ID start
/// at 0.
fn write_task_metrics(tasks: &TaskScrape, out: &mut dyn Write) -> io::Result<()> {
    let help = "number of accounted tasks, of which the busiest are exported";
    write_metric_metadata("pfc_tasks", MetricType::Gauge, None, help, out)?;
    writeln!(out, "pfc_tasks {}", tasks.nr_living_tasks())?;
    for ((name, help), count) in MISSING_TASK_METRICS.iter().zip(tasks.missing_tasks) {
        let name = format!("pfc_tasks_{name}");
        write_metric_metadata(&name, MetricType::Counter, None, help, out)?;
        writeln!(out, "{name}_total {count}")?;
    }
    for (total, sum) in tasks.metric_totals() {
        let (name, exponent) = write_task_metric_metadata("pfc_tasks", total, out)?;
        writeln!(
            out,
            "{name}_total {}",
            format_exact_decimal(sum.into(), exponent)
        )?;
    }
    for value in &PER_TASK_METRICS {
        let (name, exponent) = write_task_metric_metadata("pfc_task", value, out)?;
        for task in tasks.busiest_tasks() {
            let labels = format_task_labels(task);
            let value =
                format_exact_decimal(value.value_of_task(task, tasks.tick_khz).into(), exponent);
            writeln!(out, "{name}_total{{{labels}}} {value}")?;
        }
    }
    Ok(())
}

/// Writes the `# TYPE`, `# UNIT` and `# HELP` lines of a task metric. Returns the name of the
/// metric and the exponent of its unit.
fn write_task_metric_metadata(
    prefix: &str,
    value: &TaskMetric,
    out: &mut dyn Write,
) -> io::Result<(String, i8)> {
    let (unit, end, exponent) = match value.is_time {
        true => (Some("seconds"), "_seconds", -9),
        false => (None, "", 0),
    };
    let name = format!("{prefix}_{}{end}", value.name);
    write_metric_metadata(&name, MetricType::Counter, unit, value.help, out)?;
    Ok((name, exponent))
}

fn format_task_labels(task: &Task) -> String {
    let (pid, tgid, comm) = (
        task.pid,
        task.tgid,
        escape_openmetrics_text(&visible::escape(&task.name())),
    );
    format!("pid=\"{pid}\",tgid=\"{tgid}\",comm=\"{comm}\"")
}

/// Writes metrics about the scrape itself. The names of metrics about the scrape have the prefix
/// `pfc_`. The names of metrics of instances have the prefix `perfcounters_`.
fn write_snapshot_metrics(
    snapshot: &Snapshot,
    omitted: u64,
    out: &mut dyn Write,
) -> io::Result<()> {
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
            omitted,
        ),
    ] {
        write_metric_metadata(name, MetricType::Gauge, None, help, out)?;
        writeln!(out, "{name} {value}")?;
    }
    Ok(())
}

/// Escapes a label value or a help text for OpenMetrics.
fn escape_openmetrics_text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use ppa::TASK_ENDED;

    #[test]
    fn pfc_export_counts_living_lost_and_refused_tasks() {
        let task = |pid, flags| Task {
            pid,
            flags,
            ..Task::default()
        };
        let mut tasks = TaskScrape::default();
        tasks.all_tasks = vec![task(1, TASK_ENDED), task(2, 0), task(3, TASK_ENDED)];
        tasks.missing_tasks = [3, 5];
        let mut text = Vec::new();
        write_task_metrics(&tasks, &mut text).expect("room");
        let text = String::from_utf8(text).expect("UTF-8");
        for line in [
            "pfc_tasks 1",
            "# TYPE pfc_tasks_lost counter",
            "pfc_tasks_lost_total 3",
            "# TYPE pfc_tasks_refused counter",
            "pfc_tasks_refused_total 5",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
    }
}
