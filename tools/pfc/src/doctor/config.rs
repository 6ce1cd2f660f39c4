// SPDX-License-Identifier: GPL-2.0

//! Checks the configuration of the running kernel, if a file with the configuration can be read.

use std::fs;
use std::process::Command;

use super::{machine, note_check, ok_check, problem_check, Check};
use crate::text_file;

/// Kernel options that the modules need, each with the feature that needs the option. `pfc doctor`
/// reports a missing option as a problem.
const REQUIRED_KERNEL_OPTIONS: &[(&str, &str)] = &[
    ("MODULES", "loadable modules"),
    ("RUST", "Rust modules"),
    ("TRACEPOINTS", "probes for counting, accounting and tracing"),
    ("PERF_EVENTS", "sharing the PMU with perf"),
    ("X86_LOCAL_APIC", "overflow interrupts of counters"),
    ("HIGH_RES_TIMERS", "sampling clocks"),
];

/// Kernel options that the modules do not require. Each option is listed with the feature that it
/// provides.
const RECOMMENDED_KERNEL_OPTIONS: &[(&str, &str)] = &[
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

pub fn check_kernel_config() -> Check {
    let subject = "config";
    let Some((path, config)) = read_kernel_config() else {
        return note_check(
            subject,
            "kernel configuration not found",
        )
        .with_remedy("Debian's package linux-image installs it in /boot; the modules report themselves what they miss");
    };
    let is_set = |name: &str| {
        let line = format!("CONFIG_{name}=");
        config
            .lines()
            .any(|l| l.strip_prefix(&line).is_some_and(|v| v == "y" || v == "m"))
    };
    let missing = |options: &[(&str, &str)]| -> Vec<String> {
        let missing = options.iter().filter(|(name, _)| !is_set(name));
        missing
            .map(|(name, why)| format!("CONFIG_{name} ({why})"))
            .collect()
    };
    let (required, recommended) = (
        missing(REQUIRED_KERNEL_OPTIONS),
        missing(RECOMMENDED_KERNEL_OPTIONS),
    );
    if !required.is_empty() {
        return problem_check(
            subject,
            format!("{path} lacks {}", required.join(", ")),
            "use a kernel with these options, such as Debian's",
        );
    }
    match recommended.is_empty() {
        true => ok_check(
            subject,
            format!("{path} has all options that the modules use"),
        ),
        false => note_check(subject, format!("{path} lacks {}", recommended.join(", ")))
            .with_remedy("everything else works without them"),
    }
}

/// Returns the path and the text of the kernel's configuration, from the first file that can be
/// read.
fn read_kernel_config() -> Option<(String, String)> {
    let release = machine::running_kernel_release();
    let compressed = "/proc/config.gz";
    if fs::metadata(compressed).is_ok() {
        let output = Command::new("gzip").args(["-dc", compressed]).output().ok();
        if let Some(output) = output.filter(|output| output.status.success()) {
            let text = visible::decode(&output.stdout).into_owned();
            return Some((compressed.to_owned(), text));
        }
    }
    let candidates = [
        format!("/boot/config-{release}"),
        format!("/lib/modules/{release}/config"),
        format!("/lib/modules/{release}/build/.config"),
    ];
    candidates.into_iter().find_map(|path| {
        let text = text_file::read(&path).ok()?;
        Some((path, text))
    })
}
