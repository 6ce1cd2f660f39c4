// SPDX-License-Identifier: GPL-2.0

//! Writes the JSON format of `pfc list`, `pfc read` and `pfc snapshot`: one object, with one line
//! per instance. All values in the JSON format are exact integers.

use std::fmt::Display;
use std::io::{self, Write};

use perfcounters::{Catalogue, Instance, Kind, Reading, Snapshot};
use serde_json::json;

use crate::time;

/// Writes the JSON object of `pfc list`, which has the instances without their values.
pub fn write_instance_list<'a>(
    catalogue: &Catalogue,
    instances: impl Iterator<Item = &'a Instance>,
    out: &mut impl Write,
) -> io::Result<()> {
    write!(out, "{{{}", format_catalogue_identity(catalogue))?;
    write_instance_entries(instances.map(format_instance_fields), out)
}

/// Writes the JSON object of `pfc read` and `pfc snapshot`, which has the instances with their
/// values. The JSON object also has the time stamps of the snapshot, and the possible and online
/// CPUs.
pub fn write_instance_values<'a>(
    snapshot: &Snapshot,
    readings: impl Iterator<Item = Reading<'a>>,
    per_cpu: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let stamp = snapshot.stamp();
    write!(
        out,
        "{{{},\"realtime_ns\":{},\"monotonic_ns\":{},\"consistent\":{},\"cpus\":{},\"online\":{}",
        format_catalogue_identity(snapshot.catalogue()),
        stamp.realtime_ns,
        stamp.monotonic_ns,
        stamp.consistent,
        format_json_array(snapshot.cpus()),
        format_json_array(snapshot.online()),
    )?;
    let entry = |r: Reading<'_>| {
        format!(
            "{}{}",
            format_instance_fields(r.instance()),
            format_value_fields(&r, per_cpu)
        )
    };
    write_instance_entries(readings.map(entry), out)
}

fn write_instance_entries(
    entries: impl Iterator<Item = String>,
    out: &mut impl Write,
) -> io::Result<()> {
    write!(out, ",\"instances\":[")?;
    for (n, entry) in entries.enumerate() {
        let comma = if n == 0 { "" } else { "," };
        write!(out, "{comma}\n  {{{entry}}}")?;
    }
    writeln!(out, "\n]}}")
}

fn format_catalogue_identity(catalogue: &Catalogue) -> String {
    format!(
        "\"generation\":{},\"boot_id\":\"{}\"",
        catalogue.generation(),
        time::format_boot_id(&catalogue.boot_id())
    )
}

fn format_instance_fields(instance: &Instance) -> String {
    format!(
        "\"number\":{},\"name\":{},\"kind\":\"{}\",\"unit\":\"{}\",\"exponent\":{},\
         \"state\":\"{}\",\"incarnation\":{},\"created_ns\":{},\"ended_ns\":{},\"help\":{}",
        instance.number,
        json!(instance.name),
        instance.kind_name(),
        instance.unit.name(),
        instance.exponent,
        instance.state.name(),
        instance.incarnation,
        instance.created_ns,
        instance.ended_ns,
        json!(instance.help)
    )
}

/// Formats the values of one instance as JSON. The field `value` of an instance is the total over
/// all CPUs. For a histogram, `value` is the number of values that were counted, and the field
/// `buckets` has the count of each bucket.
fn format_value_fields(r: &Reading<'_>, per_cpu: bool) -> String {
    let histogram = r.instance().kind == Kind::Histogram;
    let mut text = format!(",\"value\":{}", r.total());
    if histogram {
        text.push_str(&format!(
            ",\"buckets\":{}",
            format_json_array(&r.combined())
        ));
    }
    if per_cpu {
        let cpus: Vec<String> = r
            .per_cpu()
            .map(|(_, slots)| match slots {
                [value] if !histogram => value.to_string(),
                slots => format_json_array(slots),
            })
            .collect();
        text.push_str(&format!(",\"per_cpu\":{}", format_json_array(&cpus)));
    }
    text
}

fn format_json_array<T: Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    format!("[{}]", items.join(","))
}
