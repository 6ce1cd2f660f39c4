// SPDX-License-Identifier: GPL-2.0

//! The machine: kernel, locks, limits, clock.

use std::fs;

use super::modules::Modules;
use super::{config, note, problem, text, well, Check};

/// The kernel that the modules are developed on: its first two numbers.
const KNOWN: &str = "7.2.";

pub fn checks(modules: &Modules) -> Vec<Check> {
    vec![
        kernel(),
        config::check(),
        signatures(modules),
        secure_boot(),
        lockdown(modules),
        paranoid(),
        memlock(),
    ]
}

/// The release that runs.
pub fn release() -> String {
    text("/proc/sys/kernel/osrelease").unwrap_or_default()
}

fn kernel() -> Check {
    let what = "kernel";
    let found = release();
    match (cfg!(target_arch = "x86_64"), found.starts_with(KNOWN)) {
        (true, true) => well(what, found),
        (true, false) => note(what, found).or(
            "the modules are tested on 7.2; on another kernel they have to be built for it, and may not build",
        ),
        (false, _) => problem(what, found, "there are modules for x86-64 only"),
    }
}

/// Must modules be signed?
fn signatures(modules: &Modules) -> Check {
    let what = "signatures";
    let enforced = text("/sys/module/module/parameters/sig_enforce").as_deref() == Some("Y");
    match (enforced, modules.is_loaded(), modules.is_signed()) {
        (false, _, _) => well(what, "modules need none"),
        (true, true, _) => well(what, "modules must be signed, and ours were taken"),
        (true, false, Some(true)) => note(
            what,
            "modules must be signed, and ours are: by a key that the kernel knows?",
        )
        .or("if it refuses them, enrol that key: mokutil --import CERTIFICATE, then boot"),
        (true, false, _) => problem(
            what,
            "modules must be signed, and ours are not",
            "sign them with a key of your own and enrol it: mokutil --import CERTIFICATE, then boot",
        ),
    }
}

fn secure_boot() -> Check {
    let what = "Secure Boot";
    let variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    match fs::read(variable).ok().as_deref() {
        // Four bytes of attributes, one of value.
        Some([_, _, _, _, 1]) => note(what, "on: Debian's kernel locks itself down then"),
        Some(_) => well(what, "off"),
        None => well(
            what,
            "none: the machine was not booted by UEFI, or does not show it",
        ),
    }
}

fn lockdown(modules: &Modules) -> Check {
    let what = "lockdown";
    let modes = text("/sys/kernel/security/lockdown").unwrap_or_default();
    let mode = modes.split('[').nth(1).and_then(|m| m.split(']').next());
    let signed = "modules must be signed";
    let kernel = "of the kernel nothing is counted, sampled or traced";
    match (mode, modules.is_loaded()) {
        (None | Some("none"), _) => well(what, "off"),
        (Some("integrity"), true) => note(what, "integrity; the modules are loaded nevertheless"),
        (Some(mode), true) => note(what, format!("{mode}: {kernel}; programs are as ever"))
            .or("it lasts until the machine is booted without lockdown="),
        (Some(mode), false) => problem(
            what,
            format!("{mode}: {signed}"),
            "sign them with a key that the machine trusts, or turn Secure Boot off",
        ),
    }
}

fn paranoid() -> Check {
    let what = "paranoid";
    match text("/proc/sys/kernel/perf_event_paranoid") {
        None => well(what, "there is no perf"),
        Some(level) => well(
            what,
            format!(
                "perf_event_paranoid is {level}, which is perf's; contexts ask for CAP_PERFMON"
            ),
        ),
    }
}

/// Rings of samples are locked memory.
fn memlock() -> Check {
    use rustix::process::{getrlimit, Resource};
    use rustix::thread::{capabilities, CapabilitySet};
    /// What `pfc record` takes on a CPU, and some more.
    const LEAST: u64 = 1 << 20;
    let what = "memlock";
    let free = capabilities(None).is_ok_and(|c| c.effective.contains(CapabilitySet::IPC_LOCK));
    match getrlimit(Resource::Memlock).current {
        _ if free => well(what, "no limit for this user (CAP_IPC_LOCK)"),
        None => well(what, "no limit"),
        Some(bytes) if bytes >= LEAST => well(what, format!("{} KiB", bytes >> 10)),
        Some(bytes) => problem(
            what,
            format!(
                "{} KiB of locked memory: too little for rings of samples",
                bytes >> 10
            ),
            "ulimit -l 8192, or memlock in /etc/security/limits.conf",
        ),
    }
}

/// Restartable sequences, as the kernel tells each program of them.
pub fn rseq() -> Check {
    /// AT_RSEQ_FEATURE_SIZE.
    const SIZE: u64 = 27;
    let what = "rseq";
    let auxv = fs::read("/proc/self/auxv").unwrap_or_default();
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let there = auxv
        .chunks_exact(16)
        .any(|pair| word(&pair[..8]) == SIZE && word(&pair[8..]) != 0);
    match there {
        true => well(what, "the kernel has restartable sequences"),
        false => note(what, "the kernel has no restartable sequences")
            .or("events take a locked instruction more; a kernel with CONFIG_RSEQ spares it"),
    }
}

const CLOCKS: &str = "/sys/devices/system/clocksource/clocksource0/";

/// The clock source, and whether the time stamp counter could be it.
fn clock() -> (String, bool) {
    let file = |name: &str| text(format!("{CLOCKS}{name}")).unwrap_or_default();
    let now = file("current_clocksource");
    let all = file("available_clocksource");
    let tsc = now == "tsc" || all.split_whitespace().any(|c| c == "tsc");
    (now, tsc)
}

/// What a time stamp counter that the kernel does not trust can be helped with.
const UNSTABLE: &str =
    "dmesg | grep -i tsc says why; in a virtual machine have its host show an invariant TSC, \
     on a machine whose TSC is known to be right boot with tsc=reliable";

pub fn clock_of_accounting() -> Check {
    let what = "clock";
    match clock() {
        (now, true) => well(
            what,
            format!("the time stamp counter (the kernel's own clock is {now})"),
        ),
        (now, false) => note(
            what,
            format!("{now}: the time stamp counter cannot be used, so the scheduler's clock is, which costs more"),
        )
        .or(UNSTABLE),
    }
}

pub fn clock_of_tracing() -> Check {
    let what = "clock";
    match clock() {
        (now, true) if now == "tsc" => well(what, "the time stamp counter"),
        (now, true) => note(
            what,
            format!("the time stamp counter for events; the kernel's own clock is {now}, so programs that ask for the time make system calls"),
        )
        .or(format!("echo tsc >{CLOCKS}current_clocksource")),
        (now, false) => note(
            what,
            format!("{now}: each event asks the kernel for CLOCK_MONOTONIC, by a system call"),
        )
        .or(UNSTABLE),
    }
}
