// SPDX-License-Identifier: GPL-2.0

//! Checks of the device files: whether each device file exists, and whether this user may open it.

use std::fs;
use std::io;
use std::path::Path;

use super::modules::CheckedModules;
use super::{note_check, ok_check, problem_check, Check};
use crate::permissions::DevicePermissions;

pub fn check_counters_device(modules: &CheckedModules) -> Check {
    check_device_access(
        modules,
        "perfcounters",
        "device",
        perfcounters::DEVICE,
        false,
    )
}

pub fn check_counter_names_device(modules: &CheckedModules) -> Check {
    check_device_access(
        modules,
        "perfcounters",
        "names",
        "/dev/perfcounters_names",
        false,
    )
}

pub fn check_contexts_device(modules: &CheckedModules) -> Check {
    match should_check_device(modules, "perfmon", perfmon::DEVICE) {
        true => check_device_access(modules, "perfmon", "device", perfmon::DEVICE, true),
        false => note_check("device", "perfmon is not loaded; there are no PMU counters")
            .with_remedy("modprobe perfmon"),
    }
}

pub fn check_accounting_device(modules: &CheckedModules) -> Check {
    match should_check_device(modules, "ppa", ppa::DEVICE) {
        true => check_device_access(modules, "ppa", "device", ppa::DEVICE, false),
        false => note_check("device", "ppa is not loaded; tasks cannot be accounted")
            .with_remedy("modprobe ppa"),
    }
}

pub fn check_tracing_device(modules: &CheckedModules) -> Check {
    match should_check_device(modules, "perftrace", perftrace_reader::DEVICE) {
        true => check_device_access(
            modules,
            "perftrace",
            "device",
            perftrace_reader::DEVICE,
            true,
        ),
        false => note_check(
            "device",
            "perftrace is not loaded; programs cannot be traced",
        )
        .with_remedy("modprobe perftrace"),
    }
}

/// Returns true if the module `name` is loaded or its device file exists. A device without a loaded
/// module and without a device file is not checked, because not every machine loads the module.
fn should_check_device(modules: &CheckedModules, name: &str, device: &str) -> bool {
    modules.has_module((name, true)) || Path::new(device).exists()
}

/// Checks a device of the module `name`.
fn check_device_access(
    modules: &CheckedModules,
    name: &str,
    subject: &'static str,
    path: &str,
    write: bool,
) -> Check {
    let Some(permissions) = DevicePermissions::read(path) else {
        return match modules.has_module((name, true)) {
            true => problem_check(
                subject,
                format!("{path} does not exist, although the module is loaded"),
                "/dev must be a devtmpfs, and not of a container; udevadm trigger creates its files again",
            ),
            false => note_check(subject, format!("{path} is created when {name} is loaded")),
        };
    };
    let device = format!("{path} ({})", permissions.format_mode_and_owners());
    match fs::File::options().read(true).write(write).open(path) {
        Ok(_) => ok_check(subject, format!("{device} can be opened")),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => problem_check(
            subject,
            format!("{device}: permission denied"),
            permissions.access_remedy(path, write),
        ),
        Err(e) => problem_check(
            subject,
            format!("{device}: {e}"),
            format!("see dmesg; load the module again: modprobe -r {name}, modprobe {name}"),
        ),
    }
}
