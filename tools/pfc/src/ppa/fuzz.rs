// SPDX-License-Identifier: GPL-2.0

//! Fuzzes `pfc ppa report` with damaged recordings and `pfc ppa on` with damaged control files.

use std::path::Path;

use fuzz::{changed_inputs, word_inputs, Fuzzer};
use ppa::{Info, Task};

use super::control::parse_cpus_per_group;
use super::record::{recording_header_json, task_record_json};
use super::report::{print_timeline_table, timeline_json};
use super::svg::render_timeline_svg;
use super::timeline::Timeline;
use crate::output::Out;

/// Maximum memory, in bytes, that pfc may use for each byte of a recording. A line of a recording
/// has at least 60 bytes, and is shown as seven cells of a table.
const MAX_MEMORY_PER_INPUT_BYTE: usize = 1024;
/// The stack size of the fuzzed code in bytes. `serde_json` parses up to 128 nested levels by
/// recursion, which overflows a stack of 256 KiB in a debug build.
const FUZZ_STACK_BYTES: usize = 1 << 20;

/// Parses the bytes as a control file and as a recording, and shows the recording in all formats.
fn parse_and_show_input(bytes: &[u8]) {
    let _ = parse_cpus_per_group(&visible::escape_invalid_utf8(bytes));
    let Ok(timeline) = Timeline::parse(bytes) else {
        return;
    };
    let mut out = Out::open_in_place(Some(Path::new("/dev/null"))).expect("a device");
    assert!(print_timeline_table(&timeline, &mut out).is_ok());
    let _ = timeline_json(&timeline).to_string();
    let _ = render_timeline_svg(&timeline);
}

#[test]
fn r4_2_fuzz_recordings() {
    let info = Info {
        khz: 1000,
        ..Info::default()
    };
    let mut task = Task {
        pid: 42,
        ..Task::default()
    };
    task.comm[..3].copy_from_slice(b"cat");
    let mut text = recording_header_json(&task, &info, 100).to_string();
    for n in 1..6 {
        task.counted = 1000 * n;
        task.values = std::array::from_fn(|value| n * (value as u64 + 1));
        text.push_str(&format!("\n{}", task_record_json(&task)));
    }
    text.push('\n');
    assert!(Timeline::parse(text.as_bytes()).is_ok());
    let fuzzer = Fuzzer::new("ppa recording").stack_size(FUZZ_STACK_BYTES);
    let fuzzer = fuzzer.memory_limit(64 << 20, MAX_MEMORY_PER_INPUT_BYTE);
    fuzzer.run(changed_inputs(&[text.into_bytes()]), parse_and_show_input);
}

#[test]
fn r4_2_fuzz_recordings_with_extreme_values() {
    let head = "{\"ppa\":1,\"khz\":1,\"pid\":1,\"name\":\"a\"}\n";
    let head = head.replace(":1,\"khz", &format!(":{},\"khz", ppa::VERSION));
    let record = "{\"counted\":";
    let values = ",\"runq\":9,\"latencies\":[1,2,3,4,5,6,7,8],\"values\":[18446744073709551615,\
                  1,2,3,18446744073709551615,5,6,7,8,9,10]}\n";
    let parts = [
        head.as_str(),
        record,
        values,
        "0",
        "1",
        "18446744073709551615",
        "9223372036854775808",
        "{",
        "[",
        "\"",
        "]",
        "}",
        ",",
        "\n",
    ];
    let fuzzer = Fuzzer::new("parts of a ppa recording").stack_size(FUZZ_STACK_BYTES);
    fuzzer.run(word_inputs(&parts), |bytes| {
        parse_and_show_input(bytes);
        parse_and_show_input(&[head.as_bytes(), bytes].concat());
    });
}
