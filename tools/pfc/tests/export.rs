// SPDX-License-Identifier: GPL-2.0

//! Tests of `pfc export`: the OpenMetrics text, and the files that contain the text.
#![allow(clippy::disallowed_methods, reason = "texts of a test")]

mod device;

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use counters_rules::abi::{Kind, Unit};
use counters_rules::spec::Spec;
use device::{pfc, send_signal, wait_for_exit, wait_until, Device, KillOnDrop};
use fuzz::scale_timeout;

/// Returns the lines of the OpenMetrics text that `pfc export` prints, in order.
fn exported_lines(device: &Device, args: &[&str]) -> Vec<String> {
    let text = device.run(&[&["export", "--openmetrics"], args].concat());
    let text = text.ok();
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    text.lines().map(str::to_owned).collect()
}

fn has_line_with(lines: &[String], part: &str) -> bool {
    lines.iter().any(|line| line.contains(part))
}

/// Returns the lines that begin with `begin`. Lines of `_created` metrics are left out, because
/// their values depend on the clock.
fn lines_of(lines: &[String], begin: &str) -> Vec<String> {
    let wanted = |l: &&String| l.starts_with(begin) && !l.contains("_created{");
    lines.iter().filter(wanted).cloned().collect()
}

#[test]
fn pfc_export_counters_have_type_unit_help_and_birth() {
    let device = Device::with_instances();
    let all = exported_lines(&device, &["switches", "read_bytes"]);
    assert_eq!(
        all[..3],
        [
            "# TYPE perfcounters_sched_context_switches counter",
            "# HELP perfcounters_sched_context_switches what it counts",
            "perfcounters_sched_context_switches_total{cpu=\"0\",name=\"sched/context_switches\"} 40",
        ]
    );
    let (name, created) = all[3].rsplit_once(' ').expect("two words");
    assert_eq!(
        name,
        "perfcounters_sched_context_switches_created{cpu=\"0\",name=\"sched/context_switches\"}"
    );
    let created: f64 = created.parse().expect("a number");
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).expect("late");
    assert!((now.as_secs_f64() - created).abs() < 600.0, "{created}");
    assert_eq!(
        all[6..10],
        [
            "# TYPE perfcounters_block_read_bytes counter",
            "# UNIT perfcounters_block_read_bytes bytes",
            "# HELP perfcounters_block_read_bytes what it counts",
            "perfcounters_block_read_bytes_total{cpu=\"0\",device=\"sda1\",name=\"block/sda1/read_bytes\"} 3145728",
        ]
    );
}

#[test]
fn pfc_export_time_is_in_exact_seconds() {
    let device = Device::with_instances();
    let all = exported_lines(&device, &["run_time", "--sum"]);
    assert_eq!(all[0], "# TYPE perfcounters_sched_run_time_seconds counter");
    assert_eq!(all[1], "# UNIT perfcounters_sched_run_time_seconds seconds");
    assert_eq!(
        all[3],
        "perfcounters_sched_run_time_seconds_total{name=\"sched/run_time\"} 1.5"
    );
    let peak = lines_of(&exported_lines(&device, &["latency_max"]), "perfcounters_");
    assert_eq!(
        peak,
        [
            "perfcounters_sched_latency_max_seconds{cpu=\"0\",name=\"sched/latency_max\"} 0",
            "perfcounters_sched_latency_max_seconds{cpu=\"1\",name=\"sched/latency_max\"} 0.000012345",
        ]
    );
}

#[test]
fn pfc_export_sums_add_up_and_peaks_do_not() {
    let mut device = Device::with_instances();
    let gauge = device.add("pool/used", Kind::Gauge, Unit::Pages, 0, 1);
    device.fake.cpu(0).adjust_if_live(gauge, -5);
    device.fake.cpu(1).adjust_if_live(gauge, 2);
    let peak = device.add("pool/most", Kind::Peak, Unit::None, 0, 1);
    device.fake.cpu(0).adjust_if_live(peak, 7);
    device.fake.cpu(1).adjust_if_live(peak, 9);
    let all = exported_lines(&device, &["--sum", "pool", "switches"]);
    for line in [
        "# TYPE perfcounters_pool_used_pages gauge",
        "# UNIT perfcounters_pool_used_pages pages",
        "perfcounters_pool_used_pages{name=\"pool/used\"} -3",
        "# TYPE perfcounters_pool_most gauge",
        "perfcounters_pool_most{name=\"pool/most\"} 9",
        "perfcounters_sched_context_switches_total{name=\"sched/context_switches\"} 42",
    ] {
        assert!(all.iter().any(|l| l == line), "{line} in {all:#?}");
    }
    assert!(!has_line_with(&all, "perfcounters_pool_used_pages_created"));
    assert!(!has_line_with(&all, "cpu="));
}

#[test]
fn pfc_export_histograms_cumulate_to_inf_without_a_sum() {
    let device = Device::with_instances();
    let all = exported_lines(&device, &["sda1/latency", "--sum"]);
    let at = |le: &str, n: u32| {
        format!("perfcounters_block_latency_seconds_bucket{{device=\"sda1\",name=\"block/sda1/latency\",le=\"{le}\"}} {n}")
    };
    assert_eq!(
        all[0],
        "# TYPE perfcounters_block_latency_seconds histogram"
    );
    assert_eq!(
        lines_of(&all, "perfcounters_block"),
        [
            at("0.0", 0),
            at("1e-09", 0),
            at("3e-09", 0),
            at("7e-09", 5),
            at("1.5e-08", 5),
            at("3.1e-08", 5),
            at("6.3e-08", 5),
            at("+Inf", 6),
        ]
    );
    assert!(has_line_with(&all, "latency_seconds_created{"));
    assert!(!has_line_with(&all, "_sum") && !has_line_with(&all, "_count"));
}

#[test]
fn pfc_export_hostile_names_stay_apart_and_quoted() {
    let mut device = Device::new(1);
    let help = "a \"help\" with a back\\slash";
    for (n, name) in ["a-b/c", "a_b/c", "a.b/c", "q\"{}\\ #é/x"]
        .iter()
        .enumerate()
    {
        let spec = Spec {
            help: help.as_bytes(),
            ..Spec::counter(name.as_bytes())
        };
        let number = device.fake.add(&spec).expect("room");
        device.fake.cpu(0).adjust_if_live(number, n as i64);
    }
    let all = exported_lines(&device, &["--sum"]);
    assert_eq!(
        lines_of(&all, "perfcounters_"),
        [
            "perfcounters_a_b_c_total{name=\"a-b/c\"} 0",
            "perfcounters_a_b_c_total{name=\"a_b/c\"} 1",
            "perfcounters_a_b_c_total{name=\"a.b/c\"} 2",
            "perfcounters_q________x_total{name=\"q\\\"{}\\\\ #é/x\"} 3",
        ]
    );
    assert_eq!(
        all[1],
        "# HELP perfcounters_a_b_c a \\\"help\\\" with a back\\\\slash"
    );
}

#[test]
fn pfc_export_names_do_not_depend_on_what_is_selected() {
    let mut device = Device::new(1);
    device.add("x/a/v", Kind::Counter, Unit::None, 0, 1);
    device.add("x/b/v", Kind::Gauge, Unit::None, 0, 1);
    device.add("x/c/v", Kind::Counter, Unit::None, 0, 1);
    let all = exported_lines(&device, &["--sum"]);
    let one = exported_lines(&device, &["--sum", "x/b/*"]);
    let gauge = "perfcounters_x_v_gauge{id=\"b\",name=\"x/b/v\"} 0".to_owned();
    assert!(all.contains(&gauge) && one.contains(&gauge), "{all:#?}");
    assert_eq!(lines_of(&all, "# TYPE perf").len(), 2, "{all:#?}");
    assert_eq!(lines_of(&all, "perfcounters_x_v_total").len(), 2);
}

#[test]
fn pfc_export_leaves_out_what_would_spoil_the_rest() {
    let mut device = Device::with_instances();
    let bad = device.add("bad/counter", Kind::Counter, Unit::None, 0, 1);
    let worse = device.add("bad/histogram", Kind::Histogram, Unit::None, 0, 4);
    device.fake.cpu(0).adjust_if_live(bad, -1);
    device.fake.cpu(1).add_without_seqflag(worse + 2, -7);
    let all = exported_lines(&device, &["bad", "switches"]);
    assert_eq!(
        lines_of(&all, "perfcounters_bad_counter_total"),
        ["perfcounters_bad_counter_total{cpu=\"1\",name=\"bad/counter\"} 0"]
    );
    let bad_bucket = "perfcounters_bad_histogram_bucket{cpu=\"1\"";
    assert!(!has_line_with(&all, bad_bucket));
    assert!(all.contains(&"pfc_snapshot_left_out 2".to_owned()));
    assert!(all.contains(&"pfc_snapshot_consistent 1".to_owned()));
    assert!(lines_of(&all, "perfcounters_sched").len() == 2);
    // The OpenMetrics text and a warning say that the values of a busy CPU are not consistent.
    device.fake.cpu(1).begin_update();
    let run = device.run(&["export", "--openmetrics", "switches"]);
    assert!(
        run.out.contains("pfc_snapshot_consistent 0\n")
            && run.err.contains("no consistent snapshot")
    );
}

#[test]
fn pfc_export_a_birth_to_come_is_not_told() {
    let mut device = Device::new(1);
    let number = device.add("x/y", Kind::Counter, Unit::None, 0, 1);
    assert!(has_line_with(&exported_lines(&device, &[]), "_created{"));
    let at = counters_rules::abi::DESC_OFFSET
        + u64::from(number) * size_of::<counters_rules::abi::Desc>() as u64
        + std::mem::offset_of!(counters_rules::abi::Desc, created_ns) as u64;
    for ns in [0, u64::MAX] {
        device.fake.write_word(at, ns);
        assert!(!has_line_with(&exported_lines(&device, &[]), "_created"));
    }
}

#[test]
fn pfc_export_takes_patterns_and_exit_codes_as_the_others() {
    let device = Device::with_instances();
    assert!(!has_line_with(&exported_lines(&device, &[]), "sdb"));
    assert!(has_line_with(&exported_lines(&device, &["--all"]), "sdb"));
    let run = device.run(&["export", "--openmetrics", "nothing-like-it"]);
    assert_eq!((run.exit_status, run.out.as_str()), (Some(1), ""));
    for wrong in [
        &["export"][..],
        &["export", "--json"],
        &["export", "--openmetrics", "--interval", "100"],
        &["export", "--openmetrics", "--listen", "here"],
        &["export", "--openmetrics", "--listen=[::1]:0", "-ox"],
        &["export", "--openmetrics", "--allow-remote"],
    ] {
        let run = device.run(wrong);
        assert_eq!(run.exit_status, Some(2), "{wrong:?}");
        assert!(!run.err.is_empty() && run.out.is_empty(), "{wrong:?}");
    }
    let run = pfc(&["export", "--openmetrics", "--device", "/nonexistent"]);
    assert!(run.exit_status == Some(2) && run.err.contains("modprobe perfcounters"));
}

#[test]
fn pfc_export_writes_its_file_anew_and_whole() {
    let device = Device::with_instances();
    let file = device.path.with_extension("prom");
    let name = file.to_str().expect("text");
    let number = device.fake.find("sched/context_switches").expect("known");
    let args = ["export", "--openmetrics", "-o", name, "-i", "20"];
    let mut child = KillOnDrop(device.spawn(&args));
    let begun = Instant::now();
    let mut inodes = std::collections::BTreeSet::new();
    while inodes.len() < 5 {
        assert!(begun.elapsed() < scale_timeout(60), "{inodes:?}");
        device.fake.cpu(0).adjust_if_live(number, 1);
        // The exported file is complete at any time.
        if let Ok(text) = std::fs::read_to_string(&file) {
            assert!(text.ends_with("# EOF\n"), "{text}");
            inodes.insert(std::fs::metadata(&file).map(|m| m.ino()).unwrap_or(0));
        }
    }
    send_signal(&child.0, "TERM");
    assert_eq!(wait_for_exit(&mut child.0), Some(0));
    let dir = file.parent().expect("a directory");
    let left = std::fs::read_dir(dir).expect("readable");
    let stem = file.file_name().and_then(|n| n.to_str()).expect("text");
    let left: Vec<_> = left
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|n| n.contains(stem))
        .collect();
    assert_eq!(left, [stem]);

    let args = [&args[..4], &["-i", "10", "--count", "3"]].concat();
    assert_eq!(device.run(&args).ok(), "");
    std::fs::remove_file(&file).expect("ours");
}

#[test]
fn pfc_export_to_a_pipe_that_nobody_reads_ends_when_told_to() {
    let device = Device::with_instances();
    let fifo = device.path.with_extension("fifo");
    let name = fifo.to_str().expect("text");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo runs").success());
    // In the first round, the pipe never has a reader. In the second round, a reader reads one
    // export from the pipe and then closes the pipe.
    for reads in [0, 1] {
        let args = ["export", "--openmetrics", "-o", name, "-i", "20"];
        let mut child = KillOnDrop(device.spawn(&args));
        for _ in 0..reads {
            let text = std::fs::read_to_string(&fifo).expect("ours");
            assert!(text.ends_with("# EOF\n"), "{text}");
        }
        std::thread::sleep(Duration::from_millis(500));
        send_signal(&child.0, "TERM");
        wait_for_exit(&mut child.0);
    }
    std::fs::remove_file(&fifo).expect("ours");
}

/// Returns true if a process has a handler for SIGTERM.
fn catches_term(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.expect("a mask").trim(), 16);
    caught.expect("a number") & (1 << 14) != 0
}

#[test]
fn pfc_export_signal_during_first_write_stops_the_export() {
    // The first write takes much longer than the test needs to send a signal.
    let mut device = Device::new(255);
    for n in 0..300 {
        device.add(&format!("many/n{n}"), Kind::Counter, Unit::Events, 0, 1);
    }
    let file = device.path.with_extension("first");
    let name = file.to_str().expect("text");
    let args = ["export", "--openmetrics", "-o", name, "-i", "3600000"];
    let mut child = KillOnDrop(device.spawn(&args));
    wait_until("it catches no signal", || catches_term(child.0.id()));
    send_signal(&child.0, "TERM");
    assert_eq!(wait_for_exit(&mut child.0), Some(0));
    let text = std::fs::read_to_string(&file).expect("ours");
    assert!(text.ends_with("# EOF\n"), "{} bytes", text.len());
    std::fs::remove_file(&file).expect("ours");
}

#[test]
fn pfc_export_that_is_killed_leaves_nothing_but_its_file() {
    let mut device = Device::new(2);
    for n in 0..2000 {
        device.add(&format!("many/n{n}"), Kind::Counter, Unit::Events, 0, 1);
    }
    let directory = device.path.with_extension("kept");
    std::fs::create_dir(&directory).expect("a directory");
    let file = directory.join("pfc.prom");
    let name = file.to_str().expect("text");
    for round in 0..8 {
        let args = ["export", "--openmetrics", "-o", name, "-i", "10"];
        let inode = || std::fs::metadata(&file).map_or(0, |m| m.ino());
        let before = inode();
        let child = KillOnDrop(device.spawn(&args));
        // Wait until the file has been written once, so that SIGKILL probably interrupts the next
        // write.
        wait_until("it writes nothing", || inode() != before);
        std::thread::sleep(Duration::from_millis(7 * round));
        send_signal(&child.0, "KILL");
    }
    let left = std::fs::read_dir(&directory).expect("ours").count();
    // The temporary file gets its name just before the rename. If pfc is killed between the naming
    // and the rename, the temporary file is left. A kill at this moment is rare, so the test allows
    // only one temporary file.
    assert!(left <= 2, "{left} files");
    std::fs::remove_dir_all(&directory).expect("ours");
}
