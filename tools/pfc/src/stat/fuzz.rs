// SPDX-License-Identifier: GPL-2.0

//! Fuzzers of the command-line parsers: for options, event names and CPU lists.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use clap::Parser;
use fuzz::{word_inputs, Fuzzer};

use super::event_code::Vendor;
use super::events::tests::make_test_machine;
use super::groups::parse_event_groups;
use super::parse_cpu_list;
use crate::cli::Cli;

/// The stack size of the fuzzer's thread. In a debug build, clap needs more than 256 KiB of stack
/// for the commands of pfc.
const CLAP_STACK_BYTES: usize = 2 << 20;

#[test]
fn r1_16_fuzz_event_name_parsers() {
    let parts = [
        "cycles",
        "instructions",
        "INSTRUCTIONS",
        "perf::",
        "cs",
        "faults",
        "r",
        "1c2",
        "5301b7",
        ":u",
        ":k",
        ":",
        ":uk",
        "{",
        "}",
        ",",
        "-",
        "0",
        "65535",
        "65536",
        "4294967295",
        "=",
        "/",
        "MEM_LOAD_RETIRED",
        "L1_HIT",
        "skl::",
        "c=1",
        "i=1",
        "u=0xff",
        "0x",
        "counter:",
        "a*",
    ];
    let machines = [
        make_test_machine(Vendor::Intel, 4, true),
        make_test_machine(Vendor::Amd, 6, true),
    ];
    Fuzzer::new("names of events").run(word_inputs(&parts), |bytes| {
        let text = visible::escape_invalid_utf8(bytes);
        let _ = parse_cpu_list(&text);
        let names: Vec<String> = text.split(',').map(str::to_owned).collect();
        let _ = parse_event_groups(&names);
        for name in names.iter().take(20) {
            for machine in &machines {
                // The device does not exist, so each name `counter:NAME` is refused.
                let _ = machine.resolve_event_name(name, Path::new("/nowhere"));
            }
        }
    });
}

#[test]
fn pfc_fuzz_command_line_parser() {
    let parts = [
        "stat",
        "record",
        "report",
        "script",
        "trace",
        "start",
        "ppa",
        "watch",
        "list",
        "export",
        "-e",
        "-F",
        "-c",
        "-p",
        "-o",
        "-a",
        "-g",
        "-i",
        "-I",
        "-C",
        "--sort",
        "--json",
        "--filter",
        "--size",
        "--blocking-timeout",
        "--percent-limit",
        "--listen",
        "--",
        "1",
        "4M",
        "64K",
        "0",
        "-1",
        "1e999",
        "nan",
        "inf",
        "0.5",
        "18446744073709551615",
        "cycles",
        "comm,dso",
        "::1",
        "a == 1",
    ];
    let parts: Vec<String> = parts.iter().map(|part| format!("{part}\0")).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let fuzzer = Fuzzer::new("command line").stack_size(CLAP_STACK_BYTES);
    fuzzer
        .memory_limit(64 << 20, 1024)
        .run(word_inputs(&parts), |bytes| {
            let arguments = bytes.split(|byte| *byte == 0).take(40);
            let arguments = arguments.map(|word| OsString::from_vec(word.to_vec()));
            let _ = Cli::try_parse_from([OsString::from("pfc")].into_iter().chain(arguments));
        });
}
