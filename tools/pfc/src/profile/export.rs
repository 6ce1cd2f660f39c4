// SPDX-License-Identifier: GPL-2.0

//! Writes profiles in the formats of other programs: the Firefox Profiler
//! (<https://profiler.firefox.com>) and pprof.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::time::SystemTime;

use fxprof_processed_profile::{
    CategoryColor, CpuDelta, Frame, FrameFlags, FrameInfo, SamplingInterval, Timestamp,
};
use prost::Message;

use super::Profile;

/// Writes the samples of all events in the processed format of the Firefox Profiler, as JSON.
pub fn write_firefox_profile(profile: &Profile, to: &mut impl Write) -> io::Result<()> {
    let first = profile.samples.first().map_or(0, |s| s.time_ns);
    let at = |time: u64| Timestamp::from_nanos_since_reference(time.saturating_sub(first));
    let mut output = fxprof_processed_profile::Profile::new(
        "pfc record",
        SystemTime::now().into(),
        SamplingInterval::from_nanos(median_sample_interval_ns(profile)),
    );
    output.set_os_name("Linux");
    output.set_symbolicated(true);
    let user = output.add_category("User", CategoryColor::Yellow);
    let kernel = output.add_category("Kernel", CategoryColor::Orange);
    let (mut processes, mut threads) = (HashMap::new(), HashMap::new());
    for sample in &profile.samples {
        // A process that has no ID in this PID namespace has the process ID -1 in samples.
        // Converted to u32, it is an ID that no process has.
        let (pid, tid) = (sample.pid as u32, sample.tid as u32);
        let process = *processes
            .entry(pid)
            .or_insert_with(|| output.add_process(&sample.command, pid, at(sample.time_ns)));
        // The thread name is part of the key. If an exec has changed the name, or if a later thread
        // with another name has the same ID, the samples are shown in a separate thread.
        let key = (pid, tid, &*sample.command);
        let thread = *threads.entry(key).or_insert_with(|| {
            let thread = output.add_thread(process, tid, at(sample.time_ns), pid == tid);
            output.set_thread_name(thread, &sample.command);
            thread
        });
        let frames: Vec<FrameInfo> = profile
            .frames_of_sample(sample)
            .rev()
            .map(|frame| {
                let name = match frame.has_known_symbol() {
                    true => frame.symbol_with_inlined_mark(),
                    false => format!("{:#x} ({})", frame.address, frame.object_file_name()),
                };
                FrameInfo {
                    frame: Frame::Label(output.intern_string(&name)),
                    category_pair: if frame.is_kernel { kernel } else { user }.into(),
                    flags: FrameFlags::empty(),
                }
            })
            .collect();
        let stack = output.intern_stack_frames(thread, frames.into_iter());
        output.add_sample(thread, at(sample.time_ns), stack, CpuDelta::ZERO, 1);
    }
    let json = serde_json::to_string(&output)?;
    to.write_all(visible::escape_json(&json).as_bytes())
}

/// Returns the median time between two consecutive samples, in nanoseconds. Returns at least 1.
fn median_sample_interval_ns(profile: &Profile) -> u64 {
    let mut gaps: Vec<u64> = profile
        .samples
        .windows(2)
        .map(|two| two[1].time_ns.saturating_sub(two[0].time_ns))
        .collect();
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied().unwrap_or(0).max(1)
}

/// The messages of `profile.proto` of <https://github.com/google/pprof>, reduced to the fields that
/// pfc uses.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub string_table: Vec<String>,
        #[prost(int64, tag = "10")]
        pub duration_nanos: i64,
    }

    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct ValueType {
        #[prost(int64, tag = "1")]
        pub kind: i64,
        #[prost(int64, tag = "2")]
        pub unit: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub label: Vec<Label>,
    }

    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct Label {
        #[prost(int64, tag = "1")]
        pub key: i64,
        #[prost(int64, tag = "2")]
        pub text: i64,
        #[prost(int64, tag = "3")]
        pub number: i64,
    }

    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct Mapping {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub memory_start: u64,
        #[prost(uint64, tag = "3")]
        pub memory_limit: u64,
        #[prost(int64, tag = "5")]
        pub filename: i64,
        #[prost(bool, tag = "7")]
        pub has_functions: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Location {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub mapping_id: u64,
        #[prost(uint64, tag = "3")]
        pub address: u64,
        #[prost(message, repeated, tag = "4")]
        pub line: Vec<Line>,
    }

    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct Line {
        #[prost(uint64, tag = "1")]
        pub function_id: u64,
    }

    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct Function {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "2")]
        pub name: i64,
        #[prost(int64, tag = "3")]
        pub system_name: i64,
        #[prost(int64, tag = "4")]
        pub filename: i64,
    }
}

/// The string table of a pprof profile: the index of each string, and the strings. The caller
/// interns the empty string first, because the format requires the index 0 for the empty string.
struct StringTable(HashMap<String, i64>, Vec<String>);

impl StringTable {
    fn intern(&mut self, text: &str) -> i64 {
        if let Some(n) = self.0.get(text) {
            return *n;
        }
        let n = self.1.len() as i64;
        self.1.push(text.to_owned());
        self.0.insert(text.to_owned(), n);
        n
    }
}

/// Writes a pprof profile without compression. An entry of the profile stands for all samples with
/// the same stack, thread name and thread ID. The values of an entry are the number of its samples
/// and, for each event, the sum of the samples' periods.
pub fn write_pprof_profile(profile: &Profile, to: &mut impl Write) -> io::Result<()> {
    let mut strings = StringTable(HashMap::new(), Vec::new());
    strings.intern("");
    let mut output = proto::Profile::default();
    let count = strings.intern("count");
    for name in ["samples"]
        .into_iter()
        .chain(profile.events.iter().map(String::as_str))
    {
        let kind = strings.intern(name);
        output
            .sample_type
            .push(proto::ValueType { kind, unit: count });
    }
    let mut mappings = HashMap::new();
    let mut functions = HashMap::new();
    for (id, frame) in (1..).zip(&profile.frames) {
        let object = strings.intern(&frame.object);
        let mapping_id = *mappings.entry(object).or_insert_with(|| {
            let id = output.mapping.len() as u64 + 1;
            output.mapping.push(proto::Mapping {
                id,
                filename: object,
                has_functions: true,
                ..proto::Mapping::default()
            });
            id
        });
        let name = strings.intern(&frame.symbol);
        let function_id = *functions.entry((object, name)).or_insert_with(|| {
            let id = output.function.len() as u64 + 1;
            output.function.push(proto::Function {
                id,
                name,
                system_name: name,
                filename: object,
            });
            id
        });
        output.location.push(proto::Location {
            id,
            mapping_id,
            address: frame.address,
            line: vec![proto::Line { function_id }],
        });
    }
    let (command, thread) = (strings.intern("command"), strings.intern("tid"));
    // Samples with the same stack, thread name and thread ID are added up.
    let mut merged: BTreeMap<(&[usize], &str, i32), Vec<i64>> = BTreeMap::new();
    for sample in &profile.samples {
        let values = merged
            .entry((&sample.stack, &sample.command, sample.tid))
            .or_insert_with(|| vec![0; 1 + profile.events.len()]);
        values[0] += 1;
        values[1 + sample.event] = values[1 + sample.event].saturating_add_unsigned(sample.period);
    }
    for ((stack, name, tid), value) in merged {
        let label = |key, text, number| proto::Label { key, text, number };
        output.sample.push(proto::Sample {
            location_id: stack.iter().map(|n| *n as u64 + 1).collect(),
            value,
            label: vec![
                label(command, strings.intern(name), 0),
                label(thread, 0, tid.into()),
            ],
        });
    }
    if let [first, .., last] = &profile.samples[..] {
        output.duration_nanos = last.time_ns.saturating_sub(first.time_ns) as i64;
    }
    output.string_table = strings.1;
    to.write_all(&output.encode_to_vec())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "texts of the tests")]
mod tests {
    use super::*;
    use crate::profile::tests::synthetic_profile;
    use crate::profile::Sample;

    #[test]
    fn r1_10_pprof_has_all_samples() {
        let mut bytes = Vec::new();
        write_pprof_profile(&synthetic_profile(), &mut bytes).expect("room");
        let output = proto::Profile::decode(&bytes[..]).expect("a profile");
        let text = |n: i64| output.string_table[n as usize].as_str();
        let kinds: Vec<&str> = output.sample_type.iter().map(|t| text(t.kind)).collect();
        assert_eq!(kinds, ["samples", "cycles", "faults"]);
        let sums = [0, 1, 2].map(|n| output.sample.iter().map(|s| s.value[n]).sum::<i64>());
        assert_eq!(sums, [5, 400, 100]);
        let most = output.sample.iter().max_by_key(|s| s.value[0]);
        let names = most.expect("one").location_id.iter().map(|id| {
            let location = &output.location[*id as usize - 1];
            assert_eq!(location.id, *id);
            let function = &output.function[location.line[0].function_id as usize - 1];
            text(function.name)
        });
        assert!(names.eq(["f", "main"]));
        assert_eq!(text(0), "");
    }

    #[test]
    fn r1_10_firefoxs_profile_has_control_characters_as_escape_sequences() {
        let mut profile = synthetic_profile();
        profile.samples[0].command = "\u{9b}31m".into();
        let mut bytes = Vec::new();
        write_firefox_profile(&profile, &mut bytes).expect("room");
        let text = String::from_utf8(bytes).expect("text");
        assert!(text.contains(r#""\u009b31m""#) && !text.contains('\u{9b}'));
    }

    #[test]
    fn r1_10_firefoxs_profile_has_threads_and_stacks() {
        let mut bytes = Vec::new();
        let mut profile = synthetic_profile();
        // A sample of process 1, and a sample of a process that has no ID.
        for id in [1, -1] {
            profile.samples.push(Sample {
                time_ns: 6_000_000,
                pid: id,
                tid: id,
                command: format!(":{id}").into(),
                ..profile.samples[0].clone()
            });
        }
        write_firefox_profile(&profile, &mut bytes).expect("room");
        let all: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!(all["meta"]["product"], "pfc record");
        let threads = all["threads"].as_array().expect("a list");
        for (thread, (name, pid, nr)) in threads.iter().zip([
            ("prog", "10", 4),
            ("other", "10", 1),
            (":1", "1", 1),
            (":-1", "4294967295", 1),
        ]) {
            assert_eq!(thread["name"], name);
            assert_eq!(thread["pid"], pid);
            assert_eq!(thread["samples"]["length"], nr);
        }
        assert_eq!(threads.len(), 4);
        assert!(String::from_utf8_lossy(&bytes).contains("sys_read"));
    }
}
