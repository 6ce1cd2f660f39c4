// SPDX-License-Identifier: GPL-2.0

//! Checks of the device files: whether each device file exists, and whether this user may open it.

use std::fs;
use std::io;
use std::path::Path;

use super::modules::Modules;
use super::{note, ok, problem, Check};
use crate::permissions::DevicePermissions;

pub fn check_counters_device(modules: &Modules) -> Check {
    check_device(
        modules,
        "perfcounters",
        "device",
        perfcounters::DEVICE,
        false,
    )
}

pub fn check_names_device(modules: &Modules) -> Check {
    check_device(
        modules,
        "perfcounters",
        "names",
        "/dev/perfcounters_names",
        false,
    )
}

pub fn check_contexts_device(modules: &Modules) -> Check {
    match is_wanted(modules, "perfmon", perfmon::DEVICE) {
        true => check_device(modules, "perfmon", "device", perfmon::DEVICE, true),
        false => note("device", "perfmon is not loaded; there are no PMU counters")
            .with_remedy("modprobe perfmon"),
    }
}

pub fn check_accounting_device(modules: &Modules) -> Check {
    match is_wanted(modules, "ppa", ppa::DEVICE) {
        true => check_device(modules, "ppa", "device", ppa::DEVICE, false),
        false => note("device", "ppa is not loaded; tasks cannot be accounted")
            .with_remedy("modprobe ppa"),
    }
}

pub fn check_tracing_device(modules: &Modules) -> Check {
    match is_wanted(modules, "perftrace", perftrace_reader::DEVICE) {
        true => check_device(
            modules,
            "perftrace",
            "device",
            perftrace_reader::DEVICE,
            true,
        ),
        false => note(
            "device",
            "perftrace is not loaded; programs cannot be traced",
        )
        .with_remedy("modprobe perftrace"),
    }
}

/// Returns true if the module `name` is loaded or its device file exists. A device without a loaded
/// module and without a device file is not checked, because not every machine loads the module.
fn is_wanted(modules: &Modules, name: &str, device: &str) -> bool {
    modules.has((name, true)) || Path::new(device).exists()
}

/// Checks a device of the module `name`.
fn check_device(
    modules: &Modules,
    name: &str,
    subject: &'static str,
    path: &str,
    write: bool,
) -> Check {
    let Some(permissions) = DevicePermissions::read(path) else {
        return match modules.has((name, true)) {
            true => problem(
                subject,
                format!("{path} does not exist, although the module is loaded"),
                "/dev must be a devtmpfs, and not of a container; udevadm trigger creates its files again",
            ),
            false => note(subject, format!("{path} is created when {name} is loaded")),
        };
    };
    let device = format!("{path} ({})", permissions.describe());
    match fs::File::options().read(true).write(write).open(path) {
        Ok(_) => ok(subject, format!("{device} can be opened")),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => problem(
            subject,
            format!("{device}: permission denied"),
            permissions.remedy(path, write),
        ),
        Err(e) => problem(
            subject,
            format!("{device}: {e}"),
            format!("see dmesg; load the module again: modprobe -r {name}, modprobe {name}"),
        ),
    }
}
