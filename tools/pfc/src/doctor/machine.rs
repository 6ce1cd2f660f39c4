// SPDX-License-Identifier: GPL-2.0

//! Checks of the machine: kernel, module signatures, lockdown, limits, clock.

use std::fs;
use std::path::Path;

use super::modules::CheckedModules;
use super::{note_check, ok_check, problem_check, read_trimmed_file, Check};

/// The kernel series on which the modules are tested, one series per line. `#` begins a comment.
const SUPPORTED_KERNEL_SERIES: &str = include_str!("../../../rig/kernels");

pub fn run_machine_checks(modules: &CheckedModules) -> Vec<Check> {
    let is_loaded = modules.is_loaded("perfcounters");
    let mut checks = vec![check_kernel_release()];
    checks.extend(check_proc_is_mounted());
    checks.extend([
        check_module_signatures(is_loaded),
        check_lockdown(is_loaded),
        check_perf_event_paranoid(),
        check_memlock_limit(),
    ]);
    checks
}

/// Returns the release of the running kernel.
pub fn running_kernel_release() -> String {
    let uname = rustix::system::uname();
    uname.release().to_string_lossy().into_owned()
}

/// Checks that /proc is mounted. Without /proc, most other checks find no files, and report modules
/// and devices as missing.
fn check_proc_is_mounted() -> Option<Check> {
    (!Path::new("/proc/self").exists()).then(|| {
        problem_check(
            "proc",
            "/proc is not mounted; most checks need it",
            "mount -t proc proc /proc",
        )
    })
}

/// Returns the supported kernel series, such as 7.3.
fn supported_kernel_series() -> impl Iterator<Item = &'static str> {
    let rows = SUPPORTED_KERNEL_SERIES
        .lines()
        .filter_map(|line| line.split('#').next());
    rows.flat_map(str::split_whitespace)
}

/// Returns whether a kernel release, such as 7.3.4+deb13-amd64, belongs to a supported series.
fn is_supported_release(release: &str) -> bool {
    let ends_series = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_digit());
    supported_kernel_series().any(|series| release.strip_prefix(series).is_some_and(ends_series))
}

fn check_kernel_release() -> Check {
    let subject = "kernel";
    let found = running_kernel_release();
    match (cfg!(target_arch = "x86_64"), is_supported_release(&found)) {
        (true, true) => ok_check(subject, found),
        (true, false) => {
            let tested: Vec<&str> = supported_kernel_series().collect();
            note_check(subject, found).with_remedy(format!(
                "the modules are tested on {}; for another kernel they must be built, which may fail",
                tested.join(" and ")
            ))
        }
        (false, _) => problem_check(subject, found, "the modules support x86-64 only"),
    }
}

/// The remedy if the kernel accepts signed modules only.
const SIGN_MODULES_REMEDY: &str =
    "if the kernel rejects them, sign them with a key that the machine trusts; to enrol a key of \
     your own: mokutil --import CERTIFICATE, then reboot";

/// Checks whether the kernel requires signed modules.
fn check_module_signatures(is_loaded: bool) -> Check {
    let subject = "signatures";
    let enforced =
        read_trimmed_file("/sys/module/module/parameters/sig_enforce").as_deref() == Some("Y");
    if !is_sysfs_mounted() {
        return make_sysfs_not_mounted_check(subject);
    }
    match (enforced, is_loaded) {
        (false, _) => ok_check(subject, "not required"),
        (true, true) => ok_check(subject, "required; the loaded modules were accepted"),
        (true, false) => note_check(subject, "required; unsigned modules are rejected")
            .with_remedy(SIGN_MODULES_REMEDY),
    }
}

/// Checks the kernel's lockdown. In the kernel's file `lockdown`, brackets enclose the current
/// mode.
fn check_lockdown(is_loaded: bool) -> Check {
    let subject = "lockdown";
    let modes = read_trimmed_file("/sys/kernel/security/lockdown").unwrap_or_default();
    let mode = modes.split('[').nth(1).and_then(|m| m.split(']').next());
    let kernel = "the kernel cannot be counted, sampled or traced";
    if !is_sysfs_mounted() {
        return make_sysfs_not_mounted_check(subject);
    }
    match (mode, is_loaded) {
        (None | Some("none"), _) => ok_check(subject, "off"),
        (Some("integrity"), true) => note_check(subject, "integrity: the modules are loaded"),
        (Some(mode), true) => note_check(subject, format!("{mode}: {kernel}; programs can"))
            .with_remedy("to end lockdown, boot without lockdown="),
        (Some(mode), false) => note_check(subject, format!("{mode}: modules must be signed"))
            .with_remedy(format!("{SIGN_MODULES_REMEDY}; or turn off Secure Boot")),
    }
}

fn check_perf_event_paranoid() -> Check {
    let subject = "paranoid";
    match read_trimmed_file("/proc/sys/kernel/perf_event_paranoid") {
        None => ok_check(subject, "no perf in this kernel"),
        Some(level) => ok_check(
            subject,
            format!("perf_event_paranoid is {level}; contexts follow it in kernel mode"),
        ),
    }
}

/// Checks the limit of locked memory, which applies to the rings of samples.
fn check_memlock_limit() -> Check {
    use rustix::process::{getrlimit, Resource};
    use rustix::thread::{capabilities, CapabilitySet};
    /// The lowest sufficient limit on locked memory, in bytes: 512 KiB for the ring that
    /// `pfc record` uses for one CPU by default, and 512 KiB as a reserve.
    const MIN_MEMLOCK_BYTES: u64 = 1 << 20;
    let subject = "memlock";
    let is_unlimited =
        capabilities(None).is_ok_and(|c| c.effective.contains(CapabilitySet::IPC_LOCK));
    match getrlimit(Resource::Memlock).current {
        _ if is_unlimited => ok_check(subject, "no limit for this user (CAP_IPC_LOCK)"),
        None => ok_check(subject, "no limit"),
        Some(bytes) if bytes >= MIN_MEMLOCK_BYTES => {
            ok_check(subject, format!("{} KiB", bytes >> 10))
        }
        Some(bytes) => problem_check(
            subject,
            format!(
                "{} KiB of locked memory are too little for the rings of samples",
                bytes >> 10
            ),
            "raise the limit: ulimit -l 8192, or memlock in /etc/security/limits.conf",
        ),
    }
}

/// Checks whether the kernel announces restartable sequences in the auxiliary vector.
pub fn check_rseq_support() -> Check {
    /// The key AT_RSEQ_FEATURE_SIZE of the auxiliary vector.
    const AT_RSEQ_FEATURE_SIZE: u64 = 27;
    let subject = "rseq";
    let auxv = fs::read("/proc/self/auxv").unwrap_or_default();
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let has_rseq = auxv
        .chunks_exact(16)
        .any(|pair| word(&pair[..8]) == AT_RSEQ_FEATURE_SIZE && word(&pair[8..]) != 0);
    match has_rseq {
        true => ok_check(subject, "the kernel has restartable sequences"),
        false => note_check(subject, "the kernel has no restartable sequences").with_remedy(
            "each event needs a locked instruction more; use a kernel with CONFIG_RSEQ to avoid it",
        ),
    }
}

const CLOCKSOURCE_DIR: &str = "/sys/devices/system/clocksource/clocksource0/";

/// Returns the kernel's current clock source, and whether the time stamp counter is one of the
/// available clock sources. Returns `None` if the files of the clock source cannot be read.
fn read_clocksource_and_tsc() -> Option<(String, bool)> {
    let file = |name: &str| read_trimmed_file(format!("{CLOCKSOURCE_DIR}{name}"));
    let current = file("current_clocksource")?;
    let available = file("available_clocksource")?;
    let tsc = current == "tsc" || available.split_whitespace().any(|c| c == "tsc");
    Some((current, tsc))
}

fn make_unknown_clock_check() -> Check {
    match is_sysfs_mounted() {
        true => note_check("clock", format!("unknown: cannot read {CLOCKSOURCE_DIR}")),
        false => make_sysfs_not_mounted_check("clock"),
    }
}

fn is_sysfs_mounted() -> bool {
    Path::new("/sys/kernel").exists()
}

fn make_sysfs_not_mounted_check(subject: &'static str) -> Check {
    note_check(subject, "unknown: /sys is not mounted").with_remedy("mount -t sysfs sysfs /sys")
}

/// Advice for a time stamp counter that the kernel considers unstable.
const UNSTABLE_TSC_REMEDY: &str =
    "for the reason see dmesg | grep -i tsc; in a virtual machine, let the host provide an \
     invariant TSC; if the TSC is known to be reliable, boot with tsc=reliable";

pub fn check_accounting_clock() -> Check {
    let subject = "clock";
    match read_clocksource_and_tsc() {
        None => make_unknown_clock_check(),
        Some((source, true)) => ok_check(
            subject,
            format!("the time stamp counter (the kernel's clock source is {source})"),
        ),
        Some((source, false)) => note_check(
            subject,
            format!("{source}: the time stamp counter is unusable; the scheduler's clock is used, which costs more"),
        )
        .with_remedy(UNSTABLE_TSC_REMEDY),
    }
}

pub fn check_tracing_clock() -> Check {
    let subject = "clock";
    match read_clocksource_and_tsc() {
        None => make_unknown_clock_check(),
        Some((source, true)) if source == "tsc" => ok_check(subject, "the time stamp counter"),
        Some((source, true)) => note_check(
            subject,
            format!("the time stamp counter for events; as the kernel's clock source is {source}, a program needs a system call to read the time"),
        )
        .with_remedy(format!("echo tsc >{CLOCKSOURCE_DIR}current_clocksource")),
        Some((source, false)) => note_check(
            subject,
            format!("{source}: each event reads CLOCK_MONOTONIC by a system call"),
        )
        .with_remedy(UNSTABLE_TSC_REMEDY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doctor_accepts_releases_of_supported_series() {
        let all: Vec<&str> = supported_kernel_series().collect();
        assert!(!all.is_empty());
        for series in all {
            let (major, minor) = series.split_once('.').expect("two numbers");
            assert!(major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok());
            for release in ["", ".0", ".4+deb13-amd64", "-rc1", ".12"] {
                assert!(
                    is_supported_release(&format!("{series}{release}")),
                    "{release}"
                );
            }
            for release in [
                format!("{series}0.1"),
                format!("1{series}.1"),
                "7".to_owned(),
            ] {
                assert!(!is_supported_release(&release), "{release}");
            }
        }
    }
}
