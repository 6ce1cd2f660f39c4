// SPDX-License-Identifier: GPL-2.0

//! Checks the configuration of the running kernel, if it can be read.

use std::fs;
use std::process::Command;

use super::{machine, note, problem, well, Check};

/// Options that the modules need, each with what needs it. A missing one is a problem.
const NEEDED: &[(&str, &str)] = &[
    ("MODULES", "loadable modules"),
    ("RUST", "Rust modules"),
    ("TRACEPOINTS", "probes for counting, accounting and tracing"),
    ("PERF_EVENTS", "sharing the PMU with perf"),
    ("X86_LOCAL_APIC", "overflow interrupts of counters"),
    ("HIGH_RES_TIMERS", "sampling clocks"),
];

/// Options that the modules can do without, each with what it improves.
const WANTED: &[(&str, &str)] = &[
    ("RSEQ", "events of programs without a locked instruction"),
    (
        "HAVE_SYSCALL_TRACEPOINTS",
        "counting and accounting of system calls",
    ),
    (
        "DEBUG_FS",
        "debugfs files of registers and of the modules' own cost",
    ),
    ("UNWINDER_ORC", "kernel call stacks in samples"),
];

pub fn check() -> Check {
    let what = "config";
    let Some((path, all)) = read() else {
        return note(
            what,
            "kernel configuration not found",
        )
        .or("Debian's package linux-image installs it in /boot; the modules report themselves what they miss");
    };
    let is_set = |name: &str| {
        let line = format!("CONFIG_{name}=");
        all.lines()
            .any(|l| l.strip_prefix(&line).is_some_and(|v| v == "y" || v == "m"))
    };
    let missing = |of: &[(&str, &str)]| -> Vec<String> {
        let missing = of.iter().filter(|(name, _)| !is_set(name));
        missing
            .map(|(name, why)| format!("CONFIG_{name} ({why})"))
            .collect()
    };
    let (needed, wanted) = (missing(NEEDED), missing(WANTED));
    if !needed.is_empty() {
        return problem(
            what,
            format!("{path} lacks {}", needed.join(", ")),
            "use a kernel with these options, such as Debian's",
        );
    }
    match wanted.is_empty() {
        true => well(what, format!("{path} has all options that the modules use")),
        false => note(what, format!("{path} lacks {}", wanted.join(", ")))
            .or("everything else works without them"),
    }
}

/// Returns the path and the text of the kernel's configuration, from the first place that has it.
fn read() -> Option<(String, String)> {
    let release = machine::release();
    let packed = "/proc/config.gz";
    if fs::metadata(packed).is_ok() {
        let done = Command::new("gzip").args(["-dc", packed]).output().ok();
        if let Some(done) = done.filter(|done| done.status.success()) {
            let text = String::from_utf8_lossy(&done.stdout).into_owned();
            return Some((packed.to_owned(), text));
        }
    }
    let plain = [
        format!("/boot/config-{release}"),
        format!("/lib/modules/{release}/config"),
        format!("/lib/modules/{release}/build/.config"),
    ];
    plain.into_iter().find_map(|path| {
        let text = fs::read_to_string(&path).ok()?;
        Some((path, text))
    })
}
