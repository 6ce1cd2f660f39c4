// SPDX-License-Identifier: GPL-2.0

//! Checks of the machine: kernel, module signatures, lockdown, limits, clock.

use std::fs;
use std::path::Path;

use super::module::Unread;
use super::modules::{Modules, Signature};
use super::{config, note, problem, text, well, Check};

/// The table of the kernel series that the modules are tested on: one series in a line, comments
/// behind `#`.
const SERIES: &str = include_str!("../../../rig/kernels");

pub fn checks(modules: &Modules) -> Vec<Check> {
    let mut checks = vec![kernel()];
    checks.extend(proc(Path::new("/proc/self").exists()));
    checks.push(config::check());
    checks.extend(match has_sys() {
        true => vec![signatures(modules), secure_boot(), lockdown(modules)],
        false => ["signatures", "Secure Boot", "lockdown"].map(no_sys).into(),
    });
    checks.extend([paranoid(), memlock()]);
    checks
}

/// Returns the release of the running kernel.
pub fn release() -> String {
    let uname = rustix::system::uname();
    uname.release().to_string_lossy().into_owned()
}

/// Checks that /proc is mounted. Without it most other checks see nothing and report that things
/// are missing.
fn proc(there: bool) -> Option<Check> {
    (!there).then(|| {
        problem(
            "proc",
            "/proc is not mounted; most checks need it",
            "mount -t proc proc /proc",
        )
    })
}

fn has_sys() -> bool {
    Path::new("/sys/kernel").exists()
}

fn no_sys(what: &'static str) -> Check {
    note(what, "unknown: /sys is not mounted").or("mount -t sysfs sysfs /sys")
}

/// Returns the supported kernel series, such as 7.3.
fn series() -> impl Iterator<Item = &'static str> {
    let rows = SERIES.lines().filter_map(|line| line.split('#').next());
    rows.flat_map(str::split_whitespace)
}

/// Returns whether a kernel release, such as 7.3.4+deb13-amd64, belongs to a supported series.
fn is_supported(release: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_digit());
    series().any(|series| release.strip_prefix(series).is_some_and(ends))
}

fn kernel() -> Check {
    let what = "kernel";
    let found = release();
    match (cfg!(target_arch = "x86_64"), is_supported(&found)) {
        (true, true) => well(what, found),
        (true, false) => {
            let tested: Vec<&str> = series().collect();
            note(what, found).or(format!(
                "the modules are tested on {}; for another kernel they must be built, which may fail",
                tested.join(" and ")
            ))
        }
        (false, _) => problem(what, found, "the modules support x86-64 only"),
    }
}

/// Checks whether modules must be signed, and whether these are.
fn signatures(modules: &Modules) -> Check {
    let enforced = text("/sys/module/module/parameters/sig_enforce").as_deref() == Some("Y");
    match (enforced, modules.is_loaded()) {
        (false, _) => well("signatures", "not required"),
        (true, true) => well("signatures", "required; the loaded modules were accepted"),
        (true, false) => wanted(modules.signature()),
    }
}

/// Makes the check of a module's signature for a machine that requires one.
fn wanted(signature: Signature) -> Check {
    let what = "signatures";
    let enrol = "mokutil --import CERTIFICATE, then reboot";
    let unseen = |why: &str| {
        let found = "required; unknown whether the installed modules are signed";
        note(what, format!("{found}: {why}"))
    };
    match signature {
        Signature::There => note(
            what,
            "required; the installed modules are signed, maybe by a key that the kernel does not trust",
        )
        .or(format!("if the kernel rejects them, enrol the key: {enrol}")),
        Signature::None => problem(
            what,
            "required, but the installed modules are not signed",
            format!("sign them with a key of your own, and enrol it: {enrol}"),
        ),
        Signature::NotInstalled => note(what, "required; the modules are not installed")
            .or(format!(
                "after the installation, sign them with a key of your own, and enrol it: {enrol}"
            )),
        Signature::Unseen(Unread::NoModinfo) => {
            unseen("modinfo is missing").or("install Debian's package kmod")
        }
        Signature::Unseen(Unread::Closed) => {
            unseen("this user may not read the file").or("run this as root")
        }
        Signature::Unseen(Unread::NoModule) => unseen("the file is not a module"),
    }
}

fn secure_boot() -> Check {
    let what = "Secure Boot";
    let variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    match fs::read(variable).ok().as_deref() {
        // The variable has four bytes of attributes and one byte of value.
        Some([_, _, _, _, 1]) => note(what, "on: Debian's kernel then enables lockdown"),
        Some(_) => well(what, "off"),
        None => well(
            what,
            "none: the machine was not booted by UEFI, or its variables are not visible",
        ),
    }
}

fn lockdown(modules: &Modules) -> Check {
    let what = "lockdown";
    let modes = text("/sys/kernel/security/lockdown").unwrap_or_default();
    let mode = modes.split('[').nth(1).and_then(|m| m.split(']').next());
    let signed = "modules must be signed";
    let kernel = "the kernel cannot be counted, sampled or traced";
    match (mode, modules.is_loaded()) {
        (None | Some("none"), _) => well(what, "off"),
        (Some("integrity"), true) => note(what, "integrity: the modules are loaded"),
        (Some(mode), true) => note(what, format!("{mode}: {kernel}; programs can"))
            .or("to end lockdown, boot without lockdown="),
        (Some(mode), false) => problem(
            what,
            format!("{mode}: {signed}"),
            "sign them with a key that the machine trusts, or turn off Secure Boot",
        ),
    }
}

fn paranoid() -> Check {
    let what = "paranoid";
    match text("/proc/sys/kernel/perf_event_paranoid") {
        None => well(what, "no perf in this kernel"),
        Some(level) => well(
            what,
            format!("perf_event_paranoid is {level}; contexts follow it in kernel mode"),
        ),
    }
}

/// Checks the limit of locked memory, which applies to the rings of samples.
fn memlock() -> Check {
    use rustix::process::{getrlimit, Resource};
    use rustix::thread::{capabilities, CapabilitySet};
    /// A ring of `pfc record` for a CPU has 512 KiB by default; this leaves some room.
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
                "{} KiB of locked memory are too little for the rings of samples",
                bytes >> 10
            ),
            "raise the limit: ulimit -l 8192, or memlock in /etc/security/limits.conf",
        ),
    }
}

/// Checks whether the kernel announces restartable sequences in the auxiliary vector.
pub fn rseq() -> Check {
    /// The key AT_RSEQ_FEATURE_SIZE of the auxiliary vector.
    const SIZE: u64 = 27;
    let what = "rseq";
    let auxv = fs::read("/proc/self/auxv").unwrap_or_default();
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let there = auxv
        .chunks_exact(16)
        .any(|pair| word(&pair[..8]) == SIZE && word(&pair[8..]) != 0);
    match there {
        true => well(what, "the kernel has restartable sequences"),
        false => note(what, "the kernel has no restartable sequences").or(
            "each event needs a locked instruction more; use a kernel with CONFIG_RSEQ to avoid it",
        ),
    }
}

const CLOCKS: &str = "/sys/devices/system/clocksource/clocksource0/";

/// Returns the current clock source, and whether the time stamp counter is an available one.
/// Returns `None` if /sys is not mounted.
fn clock() -> Option<(String, bool)> {
    has_sys().then(clock_seen)
}

fn clock_seen() -> (String, bool) {
    let file = |name: &str| text(format!("{CLOCKS}{name}")).unwrap_or_default();
    let now = file("current_clocksource");
    let all = file("available_clocksource");
    let tsc = now == "tsc" || all.split_whitespace().any(|c| c == "tsc");
    (now, tsc)
}

/// Advice for a time stamp counter that the kernel considers unstable.
const UNSTABLE: &str =
    "for the reason see dmesg | grep -i tsc; in a virtual machine, let the host provide an \
     invariant TSC; if the TSC is known to be reliable, boot with tsc=reliable";

pub fn clock_of_accounting() -> Check {
    let what = "clock";
    match clock() {
        None => no_sys(what),
        Some((now, true)) => well(
            what,
            format!("the time stamp counter (the kernel's clock source is {now})"),
        ),
        Some((now, false)) => note(
            what,
            format!("{now}: the time stamp counter is unusable; the scheduler's clock is used, which costs more"),
        )
        .or(UNSTABLE),
    }
}

pub fn clock_of_tracing() -> Check {
    let what = "clock";
    match clock() {
        None => no_sys(what),
        Some((now, true)) if now == "tsc" => well(what, "the time stamp counter"),
        Some((now, true)) => note(
            what,
            format!("the time stamp counter for events; as the kernel's clock source is {now}, a program needs a system call to read the time"),
        )
        .or(format!("echo tsc >{CLOCKS}current_clocksource")),
        Some((now, false)) => note(
            what,
            format!("{now}: each event reads CLOCK_MONOTONIC by a system call"),
        )
        .or(UNSTABLE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn doctor_calls_unsigned_what_it_has_seen_to_be_so() {
        let of = |signature| {
            let check = wanted(signature);
            (check.state, check.found)
        };
        let (state, found) = of(Signature::Unseen(Unread::NoModinfo));
        assert_eq!(state, State::Note);
        assert!(
            found.contains("unknown whether the installed modules are signed: modinfo is missing")
        );
        assert_eq!(of(Signature::There).0, State::Note);
        assert_eq!(of(Signature::NotInstalled).0, State::Note);
        let (state, found) = of(Signature::None);
        assert_eq!(state, State::Problem);
        assert!(found.contains("are not signed"));
    }

    #[test]
    fn doctor_supports_the_series_of_the_table() {
        let all: Vec<&str> = series().collect();
        assert!(!all.is_empty());
        for series in all {
            let (major, minor) = series.split_once('.').expect("two numbers");
            assert!(major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok());
            for release in ["", ".0", ".4+deb13-amd64", "-rc1", ".12"] {
                assert!(is_supported(&format!("{series}{release}")), "{release}");
            }
            for release in [
                format!("{series}0.1"),
                format!("1{series}.1"),
                "7".to_owned(),
            ] {
                assert!(!is_supported(&release), "{release}");
            }
        }
    }

    #[test]
    fn doctor_says_what_is_not_mounted() {
        let check = proc(false).expect("a problem");
        assert_eq!(check.state, State::Problem);
        assert!(check.found.contains("/proc is not mounted"));
        assert!(proc(true).is_none());
        let check = no_sys("lockdown");
        assert_eq!(check.state, State::Note);
        assert_eq!(check.found, "unknown: /sys is not mounted");
    }
}
