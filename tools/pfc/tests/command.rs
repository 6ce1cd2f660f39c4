// SPDX-License-Identifier: GPL-2.0

//! Tests that run `pfc` as a user does, on a fake device file.
#![allow(clippy::disallowed_methods, reason = "texts of a test")]

mod device;

use std::io::{BufRead, BufReader};

use counters_rules::abi::{Kind, Unit};
use device::{assert_refused, pfc, read_stderr, wait_for_exit, Device, KillOnDrop};

#[test]
fn pfc_list_shows_what_there_is() {
    let device = Device::with_instances();
    let out = device.run(&["list"]).ok();
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("NUMBER  NAME"));
    assert_eq!(lines.len(), 7, "{out}");
    assert!(lines[1].contains("1  sched/context_switches  counter    events"));
    assert!(lines[3].contains(" ns "));
    assert!(!out.contains("sdb"), "dormant ones only with --all");
    let out = device.run(&["list", "--all", "sdb"]).ok();
    assert!(out.contains("dormant"));
    let out = device.run(&["list", "-v", "sda1"]).ok();
    assert!(out.contains("what it counts"));
    assert_eq!(device.run(&["list", "sched/*"]).ok().lines().count(), 4);
    let out = device.run(&["list", "getpid", "run"]).ok();
    assert_eq!(out.lines().count(), 3);
}

#[test]
fn pfc_list_and_read_are_exact_in_json() {
    let device = Device::with_instances();
    let list = device.run(&["list", "--json", "--all"]).json();
    let all = list["instances"].as_array().expect("a list");
    assert_eq!(all.len(), 7);
    assert_eq!(all[6]["state"], "dormant");
    assert_eq!(all[0]["ended_ns"], 0);
    assert!(all[6]["ended_ns"].as_u64().expect("a time") > 0);
    assert_eq!(list["generation"], 8);

    let read = device.run(&["read", "--json", "sched", "latency"]).json();
    let value = |name: &str| {
        let all = read["instances"].as_array().expect("a list");
        all.iter().find(|i| i["name"] == name).expect(name).clone()
    };
    assert_eq!(value("sched/context_switches")["value"], 42);
    assert_eq!(value("sched/run_time")["value"], 1_500_000_000);
    assert_eq!(value("sched/run_time")["exponent"], -9);
    assert_eq!(value("sched/latency_max")["value"], 12_345);
    assert_eq!(value("block/sda1/latency")["buckets"][3], 5);
    assert_eq!(read["consistent"], true);
    assert!(value("sched/run_time").get("per_cpu").is_none());
}

/// If pfc does not know the kind of an instance, because a later kernel has added the kind, the
/// kind is shown as a number.
#[test]
fn pfc_kind_that_is_not_known_is_a_number() {
    let device = Device::with_instances();
    let n = device.fake.find("sched/run_time").expect("there");
    let at = counters_rules::abi::DESC_OFFSET + u64::from(n) * 256 + 8;
    // The descriptor of the instance gets kind 9, unit 77 and one slot.
    device.fake.write_word(at, 9 | (77 << 16) | (1 << 48));
    let list = device.run(&["list", "run_time"]).ok();
    let row = list.lines().nth(1).expect("a row");
    let row = Vec::from_iter(row.split_whitespace());
    assert_eq!(row[1..4], ["sched/run_time", "9", "-"]);
    let read = device.run(&["read", "--json", "run_time"]).json();
    assert_eq!(read["instances"][0]["kind"], "9");
    assert_eq!(read["instances"][0]["value"], 1_500_000_000);
    let out = device.run(&["read", "--csv", "run_time"]).ok();
    assert!(out.contains(",9,none,"));
}

#[test]
fn pfc_read_is_for_people() {
    let device = Device::with_instances();
    let out = device.run(&["read"]).ok();
    for part in "42  events|3 MiB|1.50 s|12.3 us|6  events|4 ns .. 8 ns".split('|') {
        assert!(out.contains(part), "{part} in\n{out}");
    }
    assert!(out.contains("getpid"));
    assert!(!device.run(&["read", "-z"]).ok().contains("getpid"));
    let cpus = device.run(&["read", "--per-cpu", "switches"]).ok();
    let has_both = cpus.contains("CPU0  CPU1") && cpus.contains("40     2");
    assert!(has_both, "{cpus}");
    device.fake.set_online(1, false);
    let cpus = device.run(&["read", "--per-cpu", "switches"]).ok();
    assert!(cpus.contains("CPU1(off)") && cpus.contains("42"), "{cpus}");
}

#[test]
fn pfc_read_csv_has_a_value_per_line() {
    let mut device = Device::with_instances();
    device.add("odd,\"name\"", Kind::Counter, Unit::None, 0, 1);
    let run = device.run(&["read", "--csv", "switches", "latency", "odd"]);
    let out = run.ok();
    let lines: Vec<&str> = out.lines().collect();
    let titles = "name,number,incarnation,kind,unit,exponent,cpu,bucket,value";
    assert_eq!(lines[0], titles);
    assert_eq!(lines[1], "sched/context_switches,1,1,counter,events,0,,,42");
    assert!(lines.contains(&"block/sda1/latency,5,1,histogram,seconds,-9,,3,5"));
    let last = lines[lines.len() - 1];
    assert!(last.starts_with("\"odd,\"\"name\"\"\","));
    let out = device.run(&["read", "--csv", "--per-cpu", "switches"]).ok();
    assert!(out.ends_with(",0,,40\nsched/context_switches,1,1,counter,events,0,1,,2\n"));
}

/// A name can contain characters that set the direction of writing.
#[test]
fn pfc_names_are_shown_with_escape_sequences() {
    let mut device = Device::new(1);
    device.add("a\u{202e}b\u{61c}", Kind::Counter, Unit::None, 0, 1);
    for command in [
        &["list"][..],
        &["read"],
        &["read", "--csv"],
        &["watch", "--count", "1", "-i", "10"],
        &["list", "--json"],
        &["read", "--json"],
        &["snapshot", "--json"],
    ] {
        let out = device.run(command).ok();
        // In JSON, a backslash is written twice.
        let shown = out.replace(r"\\", r"\");
        assert!(shown.contains(r"a\xe2\x80\xaeb\xd8\x9c"), "{out}");
        assert!(!out.contains(['\u{202e}', '\u{61c}']), "{out}");
    }
}

#[test]
fn pfc_messages_show_newlines_of_arguments_as_escape_sequences() {
    let device = Device::with_instances();
    let run = device.run(&["list", "a\nb"]);
    let message = "pfc: nothing matches 'a\\nb'; pfc list --all shows all names\n";
    assert_eq!((run.exit_status, &*run.err), (Some(1), message));
}

#[test]
fn pfc_snapshot_says_when_and_of_what() {
    let device = Device::with_instances();
    let out = device.run(&["snapshot"]).ok();
    assert!(out.starts_with("generation  8\nboot id     "), "{out}");
    assert!(out.contains("2 possible, 2 online"));
    let json = device.run(&["snapshot", "--json"]).json();
    assert_eq!(json["generation"], 8);
    assert_eq!(json["boot_id"].as_str().expect("an id").len(), 36);
    assert!(json["realtime_ns"].as_u64() > json["monotonic_ns"].as_u64());
    assert_eq!(json["instances"][0]["per_cpu"], serde_json::json!([40, 2]));
    assert_eq!(json["instances"][4]["per_cpu"][1][7], 1);
}

#[test]
fn pfc_snapshot_is_consistent_or_an_error() {
    let device = Device::with_instances();
    device.fake.cpu(1).begin_update();
    let run = device.run(&["snapshot"]);
    assert_eq!(run.exit_status, Some(2));
    assert!(run.err.contains("CPU 1"), "{}", run.err);
    assert_eq!(run.out, "");
    // `pfc read` prints values that are not consistent, with a warning.
    let run = device.run(&["read", "switches"]);
    assert_eq!(run.exit_status, Some(0));
    assert!(run.out.contains("42") && run.err.contains("no consistent snapshot"));
    let json = device.run(&["read", "--json", "switches"]);
    assert!(json.out.contains("\"consistent\":false"));
}

#[test]
fn pfc_exit_codes_tell_nothing_from_wrong() {
    let device = Device::with_instances();
    for command in ["list", "read", "watch", "snapshot"] {
        let run = device.run(&[command, "nothing-like-it"]);
        assert_eq!((run.exit_status, run.out.as_str()), (Some(1), ""));
        let why = "nothing matches 'nothing-like-it'";
        assert!(run.err.contains(why), "{}", run.err);

        let run = pfc(&[command, "--device", "/nonexistent"]);
        assert_eq!(run.exit_status, Some(2));
        assert!(run.err.contains("modprobe perfcounters"), "{}", run.err);
        assert_eq!(run.err.lines().count(), 1);

        let run = pfc(&[command, "--device", "/etc/passwd"]);
        assert_eq!(run.exit_status, Some(2));
        assert!(run.err.contains("not perfcounters data"), "{}", run.err);
    }
    let run = device.run(&["read", "-z", "getpid"]);
    assert_eq!((run.exit_status, run.out.as_str()), (Some(1), ""));
    assert!(run.err.contains("selected values are zero"), "{}", run.err);
    assert_eq!(Device::new(1).run(&["list"]).exit_status, Some(1));
    assert_eq!(pfc(&["bake"]).exit_status, Some(2));
    assert_eq!(pfc(&["read", "--json", "--csv"]).exit_status, Some(2));
    assert_eq!(pfc(&["watch", "-i", "0"]).exit_status, Some(2));
}

#[test]
fn pfc_prints_its_version_completions_and_manual_page() {
    assert!(pfc(&["--version"]).ok().starts_with("pfc "));
    for shell in ["bash", "zsh", "fish"] {
        let text = pfc(&["completions", shell]).ok();
        assert!(text.contains("snapshot") && text.contains("all-users"));
    }
    let page = pfc(&["man"]).ok();
    assert!(page.contains(".TH pfc 1") && page.contains("Exit status"));
}

#[test]
fn pfc_writes_to_files_and_into_closed_pipes() {
    let device = Device::with_instances();
    let file = device.path.with_extension("out");
    let name = file.to_str().expect("text");
    assert_eq!(device.run(&["read", "-o", name, "switches"]).ok(), "");
    let text = std::fs::read_to_string(&file).expect("it was written");
    std::fs::remove_file(&file).expect("ours");
    assert!(text.contains("42"));
    let run = device.run(&["read", "-o", "/nonexistent/x"]);
    assert_eq!(run.exit_status, Some(2));
    let why = "cannot write to /nonexistent/x";
    assert!(run.err.contains(why), "{}", run.err);

    let mut child = device.spawn(&["watch", "-i", "10"]);
    let mut first = String::new();
    let mut reader = BufReader::new(child.stdout.take().expect("piped"));
    reader.read_line(&mut first).expect("a line");
    drop(reader);
    assert_eq!(wait_for_exit(&mut child), Some(0));
    assert_eq!(read_stderr(&mut child), "");
}

#[test]
fn pfc_watch_in_lines_is_honest_about_what_begins_anew() {
    let mut device = Device::with_instances();
    let again = device.fake.find("syscalls/getpid").expect("known");
    device.fake.cpu(0).adjust_if_live(again, 1_000_000);
    let mut child = device.spawn(&["watch", "-i", "600", "--count", "3", "-n", "3", "--all"]);
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    // A table of `pfc watch` has a heading, titles and three rows. Empty lines separate the tables.
    let mut table = || -> Vec<String> {
        let text = lines.by_ref().map(|line| line.expect("text"));
        text.filter(|line| !line.is_empty()).take(5).collect()
    };
    let first = table();
    assert!(first[0].contains("3 of 7 instances"), "{first:?}");
    // The instance is removed and added again. The change of the new instance is its value (50),
    // and not the difference from the value of the removed instance (1000000).
    device.fake.del(again).expect("live");
    device.add("syscalls/getpid", Kind::Counter, Unit::Events, 0, 1);
    device.fake.cpu(1).adjust_if_live(again, 50);
    let second = table();
    let row = second.iter().find(|l| l.contains("getpid"));
    let row = row.expect("the busiest");
    assert!(row.contains(" 50 ") && row.ends_with("new"), "{second:?}");
    assert!(second[2].contains("getpid"), "{second:?}");
    let third = table();
    assert!(!third.iter().any(|l| l.ends_with("new")), "{third:?}");
    assert_eq!(child.wait().expect("ours").code(), Some(0));
}

#[test]
fn pfc_watch_survives_a_module_that_is_loaded_anew() {
    let device = Device::with_instances();
    let mut child = device.spawn(&["watch", "-i", "200", "--count", "3"]);
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let first = lines.next().expect("a line").expect("text");
    assert!(!first.contains("reloaded"));
    device.fake.set_boot_id([3; 16]);
    let rest: Vec<String> = lines.map(|l| l.expect("text")).collect();
    let anew = rest.iter().filter(|l| l.contains("module reloaded"));
    assert_eq!(anew.count(), 1, "{rest:?}");
    assert_eq!(child.wait().expect("ours").code(), Some(0));
}

#[test]
fn pfc_failing_leaves_the_file_alone() {
    let device = Device::with_instances();
    let file = device.path.with_extension("kept");
    let name = file.to_str().expect("text");
    std::fs::write(&file, "precious").expect("room");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
    std::fs::set_permissions(&file, mode).expect("ours");
    for command in [
        &["list", "nothing-like-it"][..],
        &["read", "nothing-like-it"],
        &["watch", "nothing-like-it"],
        &["snapshot", "nothing-like-it"],
        &["export", "--openmetrics", "nothing-like-it"],
    ] {
        let run = device.run(&[command, &["-o", name]].concat());
        assert_eq!(run.exit_status, Some(1), "{command:?} {}", run.err);
        let text = std::fs::read_to_string(&file).expect("there");
        assert_eq!(text, "precious", "{command:?}");
    }
    // A successful command replaces the output file in one step and keeps the mode of the file.
    for command in ["list", "read", "snapshot"] {
        let before = std::fs::metadata(&file).expect("there");
        assert_eq!(device.run(&[command, "-o", name]).ok(), "");
        let after = std::fs::metadata(&file).expect("there");
        use std::os::unix::fs::MetadataExt;
        assert_ne!(before.ino(), after.ino(), "{command} wrote into it");
        assert_eq!(after.mode() & 0o7777, 0o640);
    }
    assert_eq!(sibling_files(&file), Vec::<String>::new());
    std::fs::remove_file(&file).expect("ours");
}

/// Returns the names of files beside `file` whose names contain the name of `file`, such as
/// temporary files that were left behind. `file` itself is left out.
fn sibling_files(file: &std::path::Path) -> Vec<String> {
    let name = file.file_name().and_then(|n| n.to_str()).expect("a name");
    let all = std::fs::read_dir(file.parent().expect("a directory")).expect("readable");
    all.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|other| other.contains(name) && other != name)
        .collect()
}

#[test]
fn pfc_output_goes_through_links_and_into_what_is_no_file() {
    let device = Device::with_instances();
    let file = device.path.with_extension("real");
    let link = device.path.with_extension("link");
    std::fs::write(&file, "old").expect("room");
    std::os::unix::fs::symlink(&file, &link).expect("room");
    let name = link.to_str().expect("text");
    assert_eq!(device.run(&["read", "-o", name]).ok(), "");
    assert!(link.is_symlink());
    let text = std::fs::read_to_string(&file).expect("there");
    assert!(text.contains("42"));
    std::fs::remove_file(&file).expect("ours");
    // The symbolic link is dangling now. `pfc` creates the file to which the link points.
    assert_eq!(device.run(&["read", "-o", name]).ok(), "");
    let text = std::fs::read_to_string(&file).expect("there");
    assert!(text.contains("42"));
    std::fs::remove_file(&file).expect("ours");
    std::fs::remove_file(&link).expect("ours");
    assert_eq!(device.run(&["read", "-o", "/dev/null"]).ok(), "");
    assert!(!std::fs::metadata("/dev/null").expect("there").is_file());
    let out = device.run(&["read", "-o", "/dev/stdout"]).ok();
    assert!(out.contains("42"));
}

#[test]
fn pfc_device_that_is_no_device_is_said_at_once() {
    let device = Device::with_instances();
    let fifo = device.path.with_extension("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo runs").success());
    for (path, why) in [
        (fifo.to_str().expect("text"), "it is a pipe"),
        ("/dev/shm", "it is a directory"),
        ("/dev/null", "map"),
    ] {
        let child = std::process::Command::new(env!("CARGO_BIN_EXE_pfc"))
            .args(["list", "--device", path])
            .stderr(std::process::Stdio::piped())
            .spawn();
        let mut child = KillOnDrop(child.expect("pfc runs"));
        assert_eq!(wait_for_exit(&mut child.0), Some(2), "{path}");
        let err = read_stderr(&mut child.0);
        assert!(err.contains(why), "{path}: {err}");
        assert_eq!(err.lines().count(), 1, "{path}: {err}");
    }
    std::fs::remove_file(&fifo).expect("ours");
}

#[test]
fn pfc_stat_without_the_module_says_what_to_do() {
    if std::path::Path::new("/dev/perfmon").exists() {
        return;
    }
    for args in [
        &["stat", "true"][..],
        &["stat", "-e", "cycles", "true"],
        &["stat", "-e", "page-faults", "-x,", "true"],
        &["stat", "--no-inherit", "no_such_command"],
    ] {
        assert_refused(args, "modprobe perfmon");
    }
}
