// SPDX-License-Identifier: GPL-2.0

//! Tests that run `pfc record`, `pfc report` and related commands as a user does. No test takes
//! samples.
#![allow(clippy::disallowed_methods, reason = "texts of a test")]

mod device;

use device::assert_refused;

#[test]
fn r1_9_a_file_that_is_not_there_is_said() {
    for command in ["report", "script", "flamegraph"] {
        assert_refused(&[command, "-i", "/nowhere"], "pfc record COMMAND");
    }
}

#[test]
fn r1_9_a_file_that_is_no_perf_data_is_refused() {
    let exe = std::env::current_exe().expect("a path");
    let exe = exe.to_string_lossy();
    assert_refused(&["report", "-i", &exe], "not a perf.data");
    assert_refused(
        &["script", "--folded", "-i", "/dev/null"],
        "not a perf.data",
    );
    assert_refused(&["report", "-i", "/"], "cannot read /: Is a directory");
}

#[test]
fn r1_9_options_that_do_not_go_together_are_refused() {
    assert_refused(&["record"], "give a command");
    assert_refused(&["record", "-F", "1", "-c", "1", "true"], "cannot be used");
    assert_refused(&["record", "-m", "3", "true"], "power of two");
    assert_refused(&["record", "-p", "1", "-a", "true"], "cannot be used");
    assert_refused(&["report", "--json", "--pprof"], "cannot be used");
    assert_refused(&["script", "--json", "--folded"], "cannot be used");
    assert_refused(&["report", "--sort", "colour"], "comm, dso, sym");
}
