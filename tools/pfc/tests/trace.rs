// SPDX-License-Identifier: GPL-2.0

//! Tests that run `pfc trace` as a user does. The tests create no trace in the kernel.
#![allow(clippy::disallowed_methods, reason = "texts of a test")]

mod device;

use device::{assert_refused, pfc};

#[test]
fn r3_11_names_sizes_and_options_are_checked() {
    for name in ["", "a b", "a/b", "é", "*", &"x".repeat(64)] {
        assert_refused(&["trace", "start", name], "letters, digits and _.-");
    }
    for (line, message) in [
        ("trace", "Usage"),
        ("trace start", "NAME"),
        ("trace stop", "NAME"),
        ("trace snapshot", "NAME"),
        ("trace start a -s 3K", "a power of two from 4K to 4M"),
        ("trace start a -s 8M", "a power of two from 4K to 4M"),
        ("trace start a --kernel irq", "sched, syscalls"),
        ("trace start a --format svg", "ctf, text, perfetto"),
        ("trace start a --flight --wait", "cannot be used"),
        ("trace start a --flight -- true", "cannot be used"),
        ("trace start a --flight -o x", "cannot be used"),
        ("trace start a true", "unexpected argument"),
        ("trace live a -e b:c", "cannot be used"),
        ("trace live a --shared", "cannot be used"),
    ] {
        assert_refused(&line.split(' ').collect::<Vec<_>>(), message);
    }
}

#[test]
fn r3_10_a_bad_filter_has_a_caret_under_it() {
    let run = pfc(&["trace", "start", "a", "-f", "size > && x == 1"]);
    assert_eq!(run.exit_status, Some(2));
    let lines: Vec<&str> = run.err.lines().collect();
    let [what, text, caret] = lines[..] else {
        panic!("{}", run.err)
    };
    assert!(what.starts_with("pfc: invalid filter: "), "{what}");
    assert_eq!(text, "  size > && x == 1");
    assert_eq!(caret, "         ^");
    assert_refused(&["trace", "live", "-f", "size"], "invalid filter: ");
    assert_refused(&["trace", "start", "a", "-e", "a b"], "invalid marker name");
    let long = vec!["x".repeat(20); 13].join(",");
    assert_refused(&["trace", "start", "a", "-e", &long], "at most 255");
}

#[test]
fn r3_11_without_the_module_it_says_what_to_do() {
    if std::path::Path::new(perftrace_reader::PERFTRACE_DEVICE_PATH).exists() {
        return;
    }
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("trace");
    let directory = directory.to_str().expect("text");
    for args in [
        &["trace", "start", "a", "-o", directory][..],
        &["trace", "start", "a", "-o", directory, "--", "true"],
        &["trace", "start", "a", "--flight"],
        &["trace", "stop", "a"],
        &["trace", "snapshot", "a", "-o", directory],
        &["trace", "live"],
        &["trace", "live", "a"],
        &["trace", "list"],
        &["trace", "list", "--markers", "--json"],
    ] {
        assert_refused(args, "load the module: modprobe perftrace");
    }
    assert!(!std::path::Path::new(directory).exists());
}
