// SPDX-License-Identifier: GPL-2.0

//! Writes the JSON format of `pfc list`, `pfc read` and `pfc snapshot`: one object, with one line
//! per instance. All values in the JSON format are exact integers.

use std::io::{self, Write};

use perfcounters::{Instance, InstanceCatalogue, Kind, Reading, Snapshot};
use serde_json::{json, Value};

use crate::time;

/// Writes the JSON object of `pfc list`, which has the instances without their values.
pub fn write_list_document<'a>(
    catalogue: &InstanceCatalogue,
    instances: impl Iterator<Item = &'a Instance>,
    out: &mut impl Write,
) -> io::Result<()> {
    let head = json!({
        "generation": catalogue.generation(),
        "boot_id": time::format_boot_id(&catalogue.boot_id()),
    });
    write_object_with_instances(&head, instances.map(instance_json), out)
}

/// Writes the JSON object of `pfc read` and `pfc snapshot`, which has the instances with their
/// values. The JSON object also has the time stamps of the snapshot, and the possible and online
/// CPUs.
pub fn write_values_document<'a>(
    snapshot: &Snapshot,
    readings: impl Iterator<Item = Reading<'a>>,
    per_cpu: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let stamp = snapshot.stamp();
    let head = json!({
        "generation": stamp.generation,
        "boot_id": time::format_boot_id(&stamp.boot_id),
        "realtime_ns": stamp.realtime_ns,
        "monotonic_ns": stamp.monotonic_ns,
        "consistent": stamp.consistent,
        "cpus": snapshot.cpus(),
        "online": snapshot.online_cpus(),
    });
    // The field `value` of an instance is the total over all CPUs. For a histogram, `value` is the
    // number of values that were counted, and the field `buckets` has the count of each bucket.
    let instance = |r: Reading<'_>| {
        let histogram = r.instance().effective_kind == Kind::Histogram;
        let mut object = instance_json(r.instance());
        object["value"] = json!(r.total());
        if histogram {
            object["buckets"] = json!(r.combined_values());
        }
        if per_cpu {
            let values = r.per_cpu().map(|(_, slots)| match slots {
                [value] if !histogram => json!(value),
                slots => json!(slots),
            });
            object["per_cpu"] = values.collect();
        }
        object
    };
    write_object_with_instances(&head, readings.map(instance), out)
}

/// Writes the object `head` with the additional member `instances`, an array with one line for each
/// instance.
fn write_object_with_instances(
    head: &Value,
    instances: impl Iterator<Item = Value>,
    out: &mut impl Write,
) -> io::Result<()> {
    let head = head.to_string();
    let members = head.strip_suffix('}').unwrap_or(&head);
    write!(out, "{members},\"instances\":[")?;
    for (n, instance) in instances.enumerate() {
        let comma = if n == 0 { "" } else { "," };
        write!(out, "{comma}\n  {instance}")?;
    }
    writeln!(out, "\n]}}")
}

fn instance_json(instance: &Instance) -> Value {
    json!({
        "number": instance.number,
        "name": instance.name,
        "kind": instance.kind_name(),
        "unit": instance.unit.name(),
        "exponent": instance.exponent,
        "state": instance.state.name(),
        "incarnation": instance.incarnation,
        "created_ns": instance.created_ns,
        "ended_ns": instance.ended_ns,
        "help": instance.help,
    })
}
