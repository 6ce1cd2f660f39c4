// SPDX-License-Identifier: GPL-2.0

//! `pfc trace list`: lists traces, and the markers of running programs.

use std::collections::BTreeMap;

use perftrace_reader::{
    Clock, Device, MarkerInfo, ProcessInfo, TraceInfo, ALL_USERS, FILTERED, FLIGHT, KEEP,
    MAX_VISITED_MARKERS, PAUSED, SHARED, UNSTABLE, WAIT,
};
use serde_json::{json, Value};

use crate::error::Failure;
use crate::output::Out;
use crate::table::Table;
use crate::time;
use crate::trace::args::ListArgs;
use crate::units::format_byte_size;

/// Maximum number of processes that are named in the line of a marker.
const MAX_NAMED_PROCESSES: usize = 4;

pub fn run(args: &ListArgs, out: &mut Out) -> Result<(), Failure> {
    let device = Device::open()?;
    if args.markers {
        return print_markers(&device, args.json, out);
    }
    let traces = device.traces()?;
    if args.json {
        let list: Vec<Value> = traces.iter().map(trace_json).collect();
        return out.write_json(&json!({"traces": list}));
    }
    if traces.is_empty() {
        message!("pfc: there are no traces; create one with pfc trace start NAME");
        return Ok(());
    }
    build_trace_table(&traces).print(out)
}

fn build_trace_table(traces: &[TraceInfo]) -> Table {
    let mut table =
        Table::new().with_columns("NAME|>USER|SINCE|>BUFFER|>PROCESSES|>MEMORY|>LOST|MODE|MARKERS");
    for info in traces {
        let cells = vec![
            info.name.clone(),
            info.uid.to_string(),
            time::format_utc(created_realtime_ns(info), 0),
            format_byte_size(info.record_area_bytes.into()),
            info.nr_processes.to_string(),
            format_byte_size(info.memory),
            info.nr_lost_for_lack_of_room.to_string(),
            mode_names(info).join(","),
            match info.markers.as_str() {
                "" => "all".to_owned(),
                globs => globs.to_owned(),
            },
        ];
        table.add_row(cells, None);
    }
    table
}

/// Returns the time at which the trace was created, in nanoseconds since 1970.
fn created_realtime_ns(info: &TraceInfo) -> u64 {
    Clock::new(info).realtime_ns(info.began)
}

fn mode_names(info: &TraceInfo) -> Vec<&'static str> {
    let mode = if info.has_flag(FLIGHT) {
        "flight"
    } else {
        "stream"
    };
    let flags = [
        (WAIT, "wait"),
        (SHARED, "shared"),
        (FILTERED, "filter"),
        (KEEP, "keep"),
        (PAUSED, "paused"),
        (ALL_USERS, "all-users"),
        (UNSTABLE, "unstable-clock"),
    ];
    let flags = flags.iter().filter(|(flag, _)| info.has_flag(*flag));
    [mode]
        .into_iter()
        .chain(flags.map(|(_, word)| *word))
        .collect()
}

fn trace_json(info: &TraceInfo) -> Value {
    json!({
        "name": info.name,
        "slot": info.slot,
        "uid": info.uid,
        "modes": mode_names(info),
        "markers": info.markers,
        "bytes": info.record_area_bytes,
        "khz": info.khz,
        "began_ns": created_realtime_ns(info),
        "processes": info.nr_processes,
        "memory": info.memory,
        "lost": info.nr_lost_for_lack_of_room,
        "cut": info.invalid_bytes,
        "dropped": info.nr_unread_processes_dropped,
        "no_memory": info.nr_setup_failures,
        "denied": info.nr_untraceable_processes,
    })
}

/// A map from the name and the fields of a marker to the processes that have the marker.
type ProcessesByMarker = BTreeMap<(String, String), Vec<(u64, Option<ProcessInfo>)>>;

fn print_markers(device: &Device, json: bool, out: &mut Out) -> Result<(), Failure> {
    let mut groups = MarkerGroups::default();
    let is_complete = device.visit_markers(|marker| {
        groups.add_marker(marker, |key| device.process(key));
        true
    })?;
    let groups = groups.processes_by_marker;
    if !is_complete {
        message!(
            "pfc: only the first {MAX_VISITED_MARKERS} markers of running programs are listed; \
             there are more"
        );
    }
    if json {
        let list: Vec<Value> = groups
            .iter()
            .map(|(kind, processes)| marker_json(kind, processes))
            .collect();
        return out.write_json(&json!({"markers": list}));
    }
    if groups.is_empty() {
        message!("pfc: no running program that you may trace has markers");
        return Ok(());
    }
    let mut table = Table::new().with_columns("MARKER|>PROCESSES|OF|FIELDS");
    for ((name, fields), processes) in &groups {
        let cells = vec![
            name.clone(),
            processes.len().to_string(),
            format_process_names(processes),
            fields.clone(),
        ];
        table.add_row(cells, None);
    }
    table.print(out)
}

/// The markers of running programs.
#[derive(Default)]
struct MarkerGroups {
    processes_by_marker: ProcessesByMarker,
    process_infos: BTreeMap<u64, Option<ProcessInfo>>,
}

impl MarkerGroups {
    /// Adds a marker. `process` converts the key of a marker to the process that has the marker.
    fn add_marker(&mut self, marker: MarkerInfo, process: impl FnOnce(u64) -> Option<ProcessInfo>) {
        if marker.refs == 0 {
            return;
        }
        let key = marker.key;
        let info = self
            .process_infos
            .entry(key)
            .or_insert_with(|| process(key));
        let name = (marker.name, marker.fields);
        let processes = self.processes_by_marker.entry(name).or_default();
        processes.push((key, info.clone()));
    }
}

/// Returns the names and ids of the first processes, at most [`MAX_NAMED_PROCESSES`].
fn format_process_names(processes: &[(u64, Option<ProcessInfo>)]) -> String {
    let tasks = processes.iter().filter_map(|(_, task)| task.as_ref());
    let mut words: Vec<String> = tasks
        .take(MAX_NAMED_PROCESSES)
        .map(|task| format!("{}/{}", task.comm, task.pid))
        .collect();
    if processes.len() > MAX_NAMED_PROCESSES && !words.is_empty() {
        words.push("...".to_owned());
    }
    words.join(" ")
}

fn marker_json(
    (name, fields): &(String, String),
    processes: &[(u64, Option<ProcessInfo>)],
) -> Value {
    let process = |(key, task): &(u64, Option<ProcessInfo>)| match task {
        Some(task) => json!({"key": key, "pid": task.pid, "uid": task.uid, "name": task.comm}),
        None => json!({"key": key}),
    };
    let processes: Vec<Value> = processes.iter().map(process).collect();
    json!({"name": name, "fields": fields, "processes": processes})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r3_11_trace_json_has_modes_and_start() {
        let info = TraceInfo {
            name: "box".to_owned(),
            flags: FLIGHT | KEEP,
            khz: 1000,
            now_ticks: 3_000_000,
            now_realtime_ns: 5_000_000_000,
            began: 1_000_000,
            nr_lost_for_lack_of_room: 4,
            ..TraceInfo::default()
        };
        assert_eq!(mode_names(&info), ["flight", "keep"]);
        let json = trace_json(&info);
        assert_eq!(json["began_ns"], 3_000_000_000_u64);
        assert_eq!((&json["name"], &json["lost"]), (&json!("box"), &json!(4)));
    }

    #[test]
    fn r3_8_equal_markers_of_processes_are_grouped() {
        let one = |key, name: &str, refs| MarkerInfo {
            key,
            name: name.to_owned(),
            refs,
            ..MarkerInfo::default()
        };
        let all = vec![
            one(5, "a:b", 1),
            one(6, "a:b", 2),
            one(6, "a:c", 1),
            one(7, "a:d", 0),
        ];
        let task = |key| {
            (key == 6).then(|| ProcessInfo {
                pid: 60,
                comm: "app".to_owned(),
                ..ProcessInfo::default()
            })
        };
        let mut groups = MarkerGroups::default();
        for marker in all {
            groups.add_marker(marker, task);
        }
        let counts: Vec<usize> = groups.processes_by_marker.values().map(Vec::len).collect();
        assert_eq!(counts, [2, 1]);
        let first = groups.processes_by_marker.values().next().expect("two");
        assert_eq!(format_process_names(first), "app/60");
    }
}
