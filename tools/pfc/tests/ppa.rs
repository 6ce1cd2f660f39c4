// SPDX-License-Identifier: GPL-2.0

//! Tests that run `pfc ppa` as a user does, without accounting in the kernel.
#![allow(clippy::disallowed_methods, reason = "texts of a test")]

mod device;

use std::fs;

use device::{assert_refused, pfc};
use tempfile::NamedTempFile;

/// A temporary file with the given lines, which stands for a file that `pfc ppa record` has
/// written. The file is removed when the test ends.
struct Recording(NamedTempFile);

impl Recording {
    fn new(lines: &[&str]) -> Self {
        let file = NamedTempFile::new().expect("a file");
        fs::write(&file, lines.join("\n")).expect("room");
        Self(file)
    }

    fn name(&self) -> &str {
        self.0.path().to_str().expect("text")
    }
}

const LINES: [&str; 3] = [
    r#"{"ppa":1,"khz":1000,"pid":42,"name":"cat"}"#,
    r#"{"counted":1000000,"values":[0,0,0,0,0,0,0,0,0,0,0],"runq":0,"latencies":[0,0,0,0,0,0,0,0]}"#,
    r#"{"counted":2000000,"values":[500000,100000,50000,0,0,0,0,20000,0,0,0],"runq":100000,"latencies":[0,0,0,0,0,0,0,0]}"#,
];

#[test]
fn r4_2_a_record_is_a_table_a_picture_and_json() {
    let file = Recording::new(&LINES);
    let text = pfc(&["ppa", "report", file.name()]).ok();
    let words: Vec<Vec<&str>> = text
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(words[0], ["42", "cat"]);
    assert_eq!(
        words[2],
        ["0.000", "1.000", "40.00", "10.00", "5.00", "12.00", "33.00"]
    );
    let json = pfc(&["ppa", "report", file.name(), "--json"]).json();
    assert_eq!(json["total"]["user"], 400_000);
    let svg = Recording::new(&[]);
    assert_eq!(
        pfc(&["ppa", "report", file.name(), "-o", svg.name()]).ok(),
        ""
    );
    let picture = fs::read_to_string(&svg.0).expect("a picture");
    assert!(
        picture.starts_with("<?xml") && picture.contains(">blocked 33.00%<"),
        "{picture}"
    );
}

#[test]
fn r4_4_what_is_no_record_leaves_the_picture_as_it_was() {
    let old = Recording::new(&["old"]);
    let exe = std::env::current_exe().expect("a path");
    let exe = exe.to_string_lossy();
    assert_refused(
        &["ppa", "report", &exe, "-o", old.name()],
        "not a file of pfc ppa record",
    );
    assert_refused(
        &["ppa", "report", "/dev/null"],
        "not a file of pfc ppa record",
    );
    assert_refused(&["ppa", "report", "/nowhere"], "pfc ppa record PID -o");
    assert_refused(&["ppa", "report", "/"], "cannot read");
    let torn = Recording::new(&[LINES[0], LINES[1], "{}", LINES[2]]);
    assert_refused(&["ppa", "report", torn.name(), "-o", old.name()], "line 3");
    assert_eq!(fs::read_to_string(&old.0).expect("the file"), "old");
}

#[test]
fn r4_2_tasks_options_and_commands_do_not_mix() {
    for (line, message) in [
        ("ppa foo", "expected the number of a task"),
        ("ppa 0", "expected the number of a task"),
        ("ppa 12 on", "as the first word"),
        ("ppa -p 1,x", "expected the number of a task"),
        ("ppa 1 -p 2", "cannot be used"),
        ("ppa --histogram", "PID"),
        ("ppa --histogram --top 1", "cannot be used"),
        ("ppa --top -d 0", "seconds"),
        ("ppa --top -d NaN", "seconds"),
        ("ppa -n 3", "--top"),
        ("ppa --sort colour", "latency"),
        ("ppa on --levels all", "sched, irq, syscall, switch"),
        ("ppa record", "PID"),
        ("ppa record 1 -d 0", "1..="),
    ] {
        assert_refused(&line.split(' ').collect::<Vec<_>>(), message);
    }
}

#[test]
fn r4_2_without_the_module_it_says_what_to_do() {
    if std::path::Path::new(ppa::PPA_DEVICE_PATH).exists() {
        return;
    }
    for args in [
        &["ppa"][..],
        &["ppa", "1"],
        &["ppa", "--top"],
        &["ppa", "--histogram", "1", "--json"],
        &["ppa", "on"],
        &["ppa", "off"],
        &["ppa", "status"],
        &["ppa", "record", "1"],
    ] {
        assert_refused(args, "modprobe ppa");
    }
}
