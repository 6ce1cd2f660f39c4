// SPDX-License-Identifier: GPL-2.0

//! Tests how a reader reads a trace in rounds, and the contents of each output.
#![allow(clippy::disallowed_methods, reason = "texts of a test")]

mod fake;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use fake::{FakeTrace, RecordBytes, NOW_REALTIME_NS, NOW_TICKS};
use perftrace_reader::output::{CtfOutput, Output, PerfettoOutput, TextOutput, TraceProperties};
use perftrace_reader::{Clock, Error, Reader, KEY_KERNEL};
use serde_json::Value;
use tempfile::TempDir;

fn fake_with_two_processes() -> FakeTrace {
    FakeTrace::new()
        .process(17, 100, "app")
        .process(18, 200, "other")
        .marker(17, 0, "app:event", "n:u8 name:str")
        .marker(18, 0, "other:event", "x:x16")
}

/// The path of the output file of a test. The file is in a temporary directory, which is removed
/// when the `OutputPath` is dropped.
struct OutputPath {
    path: PathBuf,
    _directory: TempDir,
}

impl OutputPath {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("output");
        Self {
            path,
            _directory: directory,
        }
    }
}

fn create_ctf(fake: &FakeTrace, output: &OutputPath) -> CtfOutput {
    let properties = TraceProperties::new(&fake.info, Vec::new());
    CtfOutput::create(&output.path, &properties).expect("a directory")
}

fn read_text_lines(fake: &FakeTrace, rounds: usize) -> Vec<String> {
    let mut text = Vec::new();
    let mut output = TextOutput::new(&mut text, Clock::new(&fake.info), false);
    let mut reader = Reader::new(&fake.info);
    for _ in 0..rounds {
        reader.read_round(fake, &mut output).expect("it is read");
    }
    output.finish().expect("it is written");
    let text = String::from_utf8(text).expect("text");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn r3_11_lines_of_several_buffers_are_in_order() {
    let mut fake = fake_with_two_processes();
    let zero = RecordBytes::default()
        .event(0, 101, NOW_TICKS - 200, b"\x05a b\0")
        .event(0, 101, NOW_TICKS, b"\x06\0");
    let one =
        RecordBytes::default()
            .lost(NOW_TICKS - 100, 3)
            .event(0, 201, NOW_TICKS - 100, &[0xff, 0]);
    fake.add_round(&[(17, 0, &zero.0, 0), (18, 1, &one.0, 3)]);
    assert_eq!(
        read_text_lines(&fake, 1),
        [
            "app 100/101 [000] 1700000004.999999900: app:event: n=5 name=\"a b\"",
            "# 3 events lost [001] 1700000004.999999950",
            "other 200/201 [001] 1700000004.999999950: other:event: x=0xff",
            "app 100/101 [000] 1700000005.000000000: app:event: n=6 name=\"\"",
        ]
    );
}

/// Returns a trace with system call 20 of each ABI, and with a number that is not a system call.
fn fake_with_system_calls() -> FakeTrace {
    let mut fake = FakeTrace::new().marker(KEY_KERNEL, 1, "kernel:sys_enter", "number:s64 abi:str");
    let event = |bytes: RecordBytes, number: i64, abi: &[u8]| {
        let payload = [&number.to_ne_bytes()[..], abi].concat();
        bytes.event(1, 7, NOW_TICKS, &payload)
    };
    let bytes = event(RecordBytes::default(), 20, b"x86_64\0");
    let bytes = event(bytes, 20, b"i386\0");
    let bytes = event(bytes, (1 << 30) + 20, b"x32\0");
    let bytes = event(bytes, -1, b"i386\0");
    fake.add_round(&[(KEY_KERNEL, 0, &bytes.0, 0)]);
    fake
}

#[test]
fn r3_11_text_system_calls_have_the_name_in_their_abi() {
    let all = read_text_lines(&fake_with_system_calls(), 1);
    let shown = all
        .iter()
        .filter_map(|line| Some(line.split_once("sys_enter: ")?.1));
    let expected = [
        "number=20 abi=\"x86_64\" name=\"writev\"",
        "number=20 abi=\"i386\" name=\"getpid\"",
        // writev() has another number in x32.
        "number=1073741844 abi=\"x32\"",
        "number=-1 abi=\"i386\"",
    ];
    assert!(shown.eq(expected), "{all:?}");
}

#[test]
fn r3_11_ctf_a_process_that_joins_the_trace_again_gets_a_second_stream() {
    let (mut fake, output) = (fake_with_two_processes(), OutputPath::new());
    for time in [NOW_TICKS - 200, NOW_TICKS] {
        let event = RecordBytes::default().event(0, 101, time, b"\x05a b\0");
        fake.add_round(&[(17, 0, &event.0, 0)]);
    }
    let mut ctf = create_ctf(&fake, &output);
    let mut reader = Reader::new(&fake.info);
    reader.read_round(&fake, &mut ctf).expect("it is read");
    ctf.note_process_exit(17).expect("the stream is closed");
    reader.read_round(&fake, &mut ctf).expect("it is read");
    ctf.finish().expect("it is written");
    for name in ["stream_17_0", "stream_17_0_1"] {
        let bytes = fs::read(output.path.join(name)).expect("a stream");
        assert!(bytes.windows(4).any(|w| w == b"a b\0"), "{name}");
    }
}

#[test]
fn r3_11_ctf_and_perfetto_system_calls_have_the_name_in_their_abi() {
    let (fake, output) = (fake_with_system_calls(), OutputPath::new());
    let mut ctf = create_ctf(&fake, &output);
    fake.read_into(&mut ctf);
    ctf.finish().expect("it is written");
    let metadata = fs::read_to_string(output.path.join("metadata")).expect("metadata");
    let class = metadata.lines().last().expect("a class");
    let class: Value = serde_json::from_str(class.trim_start_matches('\x1e')).expect("JSON");
    let members = class["payload-field-class"]["member-classes"].as_array();
    let members = members.into_iter().flatten();
    let names: Vec<&str> = members.filter_map(|m| m["name"].as_str()).collect();
    assert_eq!(names, ["number", "abi", "name"]);
    let stream = format!("stream_{KEY_KERNEL}_0");
    let bytes = fs::read(output.path.join(stream)).expect("a stream");
    for wanted in [
        &b"x86_64\0writev\0"[..],
        b"i386\0getpid\0",
        b"x32\0\0",
        b"i386\0\0",
    ] {
        let count = bytes.windows(wanted.len()).filter(|w| *w == wanted).count();
        assert_eq!(count, 1, "{wanted:?}");
    }
    let (fake, json_path) = (fake_with_system_calls(), OutputPath::new());
    let file = File::create(&json_path.path).expect("a file");
    let properties = TraceProperties::new(&fake.info, Vec::new());
    let mut perfetto = PerfettoOutput::new(file, properties).expect("a trace");
    fake.read_into(&mut perfetto);
    perfetto.finish().expect("it is written");
    let json = read_json(&json_path.path);
    let events = json["traceEvents"].as_array().into_iter().flatten();
    let names: Vec<Option<&str>> = events
        .filter(|e| e["ph"] == "i")
        .map(|e| e["args"]["name"].as_str())
        .collect();
    assert_eq!(names, [Some("writev"), Some("getpid"), None, None]);
}

#[test]
fn r3_11_older_event_of_a_later_round_comes_first() {
    // The event that the reader finds in its second pass over the buffers is older than the event
    // of the first pass.
    let mut fake = fake_with_two_processes();
    let late = NOW_TICKS - 1000;
    let first = RecordBytes::default().event(0, 1, late + 10, b"\x02\0");
    let second = RecordBytes::default().event(0, 2, late, &[1, 0]);
    fake.add_round(&[(17, 0, &first.0, 0)]);
    fake.add_round(&[(18, 0, &second.0, 0)]);
    let all = read_text_lines(&fake, 2);
    assert!(
        all[0].starts_with("other") && all[1].starts_with("app"),
        "{all:?}"
    );
}

#[test]
fn r3_11_a_flight_recorder_gives_each_event_once() {
    let mut fake = FakeTrace::flight()
        .process(17, 100, "app")
        .marker(17, 0, "app:event", "n:u8");
    let event = |n: u8| RecordBytes::default().event(0, 1, 5000 + u64::from(n), &[n]);
    let all: Vec<RecordBytes> = (0..6).map(event).collect();
    let [first, second] = [&all[..3], &all[1..6]].map(RecordBytes::newest_first);
    fake.add_round_at(17, 0, &first, first.len() as u64);
    fake.add_round_at(17, 0, &second, 6 * 24);
    fake.add_round_at(17, 0, &second, 6 * 24);
    let numbers: Vec<String> = read_text_lines(&fake, 3)
        .iter()
        .filter_map(|l| l.split("n=").nth(1).map(str::to_owned))
        .collect();
    assert_eq!(numbers, ["0", "1", "2", "3", "4", "5"]);
}

#[test]
fn r3_8_stream_of_an_exited_process_is_closed() {
    let mut fake = fake_with_two_processes();
    let bytes = RecordBytes::default().event(0, 1, 2000, b"\x01\0");
    fake.add_round(&[(17, 0, &bytes.0, 7)]);
    let output = OutputPath::new();
    let mut ctf = create_ctf(&fake, &output);
    let mut reader = Reader::new(&fake.info);
    reader.read_round(&fake, &mut ctf).expect("it is read");
    fake.remove_process(17);
    let before = ctf.bytes_written();
    for _ in 0..200 {
        reader.read_round(&fake, &mut ctf).expect("it is read");
    }
    // A packet was written that reports the lost events of the process.
    let after = ctf.bytes_written();
    assert!(after > before, "{before} {after}");
    ctf.finish().expect("it is written");
    assert_eq!(ctf.bytes_written(), after);
}

#[test]
fn r3_11_json_has_control_characters_as_escape_sequences() {
    let odd = "\u{9b}31m\u{202e}";
    let escaped = r"\u009b31m\u202e";
    let (json_path, ctf_path) = (OutputPath::new(), OutputPath::new());
    let payload = [&[1][..], odd.as_bytes(), &[0]].concat();
    let event = RecordBytes::default().event(0, 101, NOW_TICKS, &payload);
    let mut fake = FakeTrace::new().process(17, 100, odd);
    fake = fake.marker(17, 0, "app:event", "n:u8 text:str");
    fake.add_round(&[(17, 0, &event.0, 0)]);
    let environment = vec![("program".to_owned(), odd.to_owned())];
    let properties = TraceProperties::new(&fake.info, environment);
    CtfOutput::create(&ctf_path.path, &properties).expect("a directory");
    let file = File::create(&json_path.path).expect("a file");
    let mut perfetto = PerfettoOutput::new(file, properties).expect("a trace");
    fake.read_into(&mut perfetto);
    perfetto.finish().expect("it is written");
    let metadata = ctf_path.path.join("metadata");
    for (path, nr_names) in [(&json_path.path, 3), (&metadata, 1)] {
        let text = fs::read_to_string(path).expect("text");
        assert_eq!(text.matches(escaped).count(), nr_names, "{text}");
        assert!(!text.contains(['\u{9b}', '\u{202e}']), "{text}");
    }
    let json = read_json(&json_path.path);
    assert_eq!(json["otherData"]["program"], odd);
    assert_eq!(json["traceEvents"][0]["args"]["name"], odd);
    assert_eq!(json["traceEvents"][1]["args"]["text"], odd);
}

#[test]
fn r3_7_buffer_returned_twice_is_an_error() {
    let mut fake = fake_with_two_processes();
    fake.add_round(&[(17, 0, &[], 0), (17, 0, &[], 0)]);
    let mut text = TextOutput::new(Vec::new(), Clock::new(&fake.info), false);
    let result = Reader::new(&fake.info).read_round(&fake, &mut text);
    assert!(matches!(result, Err(Error::Corrupt(_))), "{result:?}");
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("the file")).expect("JSON")
}

#[test]
fn r3_11_perfetto_file_is_complete_json_after_each_round() {
    let json_path = OutputPath::new();
    let mut fake = fake_with_two_processes();
    fake.info.began = NOW_TICKS - 2_000_000;
    fs::write(&json_path.path, "an older file").expect("room");
    let file = File::options().write(true).open(&json_path.path);
    let environment = vec![("tracer".to_owned(), "pfc".to_owned())];
    let properties = TraceProperties::new(&fake.info, environment);
    let mut output = PerfettoOutput::new(file.expect("a file"), properties).expect("a file");
    let older = fs::read(&json_path.path).expect("the file");
    assert_eq!(older, b"an older file");
    output.end_round(0).expect("it is written");
    let empty = read_json(&json_path.path);
    assert_eq!(empty["traceEvents"], Value::Array(Vec::new()));
    let mut reader = Reader::new(&fake.info);
    for n in 0..3_u8 {
        let time = NOW_TICKS - 1 + u64::from(n);
        let bytes = RecordBytes::default().event(0, 101, time, &[n, b'"', 0]);
        fake.add_round(&[(17, 2, &bytes.0, 0)]);
        reader.read_round(&fake, &mut output).expect("it is read");
        let all = read_json(&json_path.path);
        let events = all["traceEvents"].as_array().expect("events");
        // The first item of `traceEvents` is the name of the process.
        assert_eq!(events.len(), usize::from(n) + 2);
        let last = &events[usize::from(n) + 1];
        assert_eq!(last["args"]["n"], n);
        assert_eq!(last["args"]["name"], "\"");
        assert_eq!(last["args"]["$cpu"], 2);
        assert_eq!((&last["pid"], &last["tid"]), (&100.into(), &101.into()));
    }
    output.finish().expect("it is written");
    let all = read_json(&json_path.path);
    assert_eq!(all["otherData"]["tracer"], "pfc");
    assert_eq!(all["traceEvents"][1]["ts"], 999.999);
    assert_eq!(all["traceEvents"][0]["args"]["name"], "app");
    let metadata = fs::metadata(&json_path.path).expect("the file");
    assert_eq!(output.bytes_written(), metadata.len());
}

#[test]
fn r3_11_ctf_goes_into_a_directory_of_its_own() {
    let output = OutputPath::new();
    let about = TraceProperties::new(&FakeTrace::new().info, Vec::new());
    assert!(CtfOutput::create(&output.path, &about).is_ok());
    let error = CtfOutput::create(&output.path, &about).expect_err("there is one");
    assert_eq!(error.kind(), std::io::ErrorKind::DirectoryNotEmpty);
}

#[test]
fn r3_7_ctf_is_not_written_through_a_link() {
    let mut fake = fake_with_two_processes();
    let bytes = RecordBytes::default().event(0, 1, 2000, b"\x01\0");
    fake.add_round(&[(17, 0, &bytes.0, 0)]);
    let (output, link_target) = (OutputPath::new(), OutputPath::new());
    let mut ctf = create_ctf(&fake, &output);
    let mut reader = Reader::new(&fake.info);
    reader.read_round(&fake, &mut ctf).expect("it is written");
    let file = fs::read_dir(&output.path)
        .expect("the directory")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| !path.ends_with("metadata"))
        .expect("a stream");
    fs::rename(&file, &link_target.path).expect("it is moved away");
    std::os::unix::fs::symlink(&link_target.path, &file).expect("a link");
    let before = fs::read(&link_target.path).expect("the stream");
    let more = RecordBytes::default().event(0, 1, 3000, b"\x01\0");
    fake.add_round(&[(17, 0, &more.0, 0)]);
    let result = reader.read_round(&fake, &mut ctf);
    result.expect_err("a link is in its way");
    assert_eq!(fs::read(&link_target.path).expect("the stream"), before);
}

#[test]
fn r3_6_clock_converts_ticks_of_the_reader_to_realtime() {
    let clock = Clock::new(&FakeTrace::new().info);
    assert_eq!(clock.realtime_ns(NOW_TICKS), NOW_REALTIME_NS);
    assert_eq!(clock.offset_from_unix_epoch(), (1_700_000_000, 0));
}

/// A writer that accepts only `room` bytes, like a disk that becomes full.
struct SmallDisk {
    room: usize,
    text: Vec<u8>,
}

impl std::io::Write for SmallDisk {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = bytes.len().min(self.room - self.text.len());
        self.text.extend(&bytes[..n]);
        match n {
            0 => Err(std::io::ErrorKind::StorageFull.into()),
            n => Ok(n),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn r3_11_text_counts_the_events_that_were_written() {
    for room in 0..600 {
        let mut fake = fake_with_two_processes();
        let mut disk = SmallDisk {
            room,
            text: Vec::new(),
        };
        let mut output = TextOutput::new(&mut disk, Clock::new(&fake.info), false);
        let mut reader = Reader::new(&fake.info);
        let mut is_full = false;
        for n in 0..4_u8 {
            let bytes = RecordBytes::default()
                .event(0, 101, NOW_TICKS - 2 + u64::from(n), &[n, 0])
                .event(0, 101, NOW_TICKS - 1 + u64::from(n), &[n, 0]);
            fake.add_round(&[(17, 2, &bytes.0, 0)]);
            is_full |= reader.read_round(&fake, &mut output).is_err();
        }
        is_full |= output.finish().is_err();
        let (events, bytes) = (output.nr_events_written(), output.bytes_written());
        let complete = disk.text.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(events, complete as u64, "{room}");
        let end = disk.text.iter().rposition(|byte| *byte == b'\n');
        assert_eq!(bytes, end.map_or(0, |end| end as u64 + 1), "{room}");
        assert_eq!(is_full, events < 8, "{room}");
    }
}

#[test]
fn r3_11_ctf_is_not_written_to_a_directory_that_replaces_its_own() {
    let output = OutputPath::new();
    let event = RecordBytes::default().event(0, 101, NOW_TICKS, &[1, b'a', 0]);
    let mut fake = fake_with_two_processes();
    fake.add_round(&[(17, 0, &event.0, 0)]);
    let mut ctf = create_ctf(&fake, &output);
    let renamed = output.path.with_extension("renamed");
    fs::rename(&output.path, &renamed).expect("a directory");
    fs::create_dir(&output.path).expect("a directory");
    fake.read_into(&mut ctf);
    ctf.finish().expect("it is written");
    let nr_files = |path: &Path| fs::read_dir(path).expect("a directory").count();
    assert_eq!((nr_files(&output.path), nr_files(&renamed)), (0, 2));
}
