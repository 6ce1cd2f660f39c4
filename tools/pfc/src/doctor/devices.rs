// SPDX-License-Identifier: GPL-2.0

//! Checks of the device files: whether they exist and this user may open them.

use std::fs;
use std::io;

use super::modules::Modules;
use super::{note, problem, well, Check};
use crate::permissions::DevicePermissions;

pub fn counters(modules: &Modules) -> Check {
    check(modules, "device", perfcounters::DEVICE, false)
}

pub fn names(modules: &Modules) -> Check {
    check(modules, "names", "/dev/perfcounters_names", false)
}

pub fn contexts(modules: &Modules) -> Check {
    check(modules, "device", perfmon::DEVICE, true)
}

pub fn accounting(modules: &Modules) -> Check {
    check(modules, "device", ppa::DEVICE, false)
}

pub fn tracing(modules: &Modules) -> Check {
    check(modules, "device", perftrace_reader::DEVICE, true)
}

fn check(modules: &Modules, what: &'static str, path: &str, write: bool) -> Check {
    let Some(owners) = DevicePermissions::read(path) else {
        return match modules.is_loaded() {
            true => problem(
                what,
                format!("{path} does not exist, although the module is loaded"),
                "/dev must be a devtmpfs, and not of a container; udevadm trigger creates its files again",
            ),
            false => note(what, format!("{path} is created when perfcounters is loaded")),
        };
    };
    let who = format!("{path} ({})", owners.describe());
    match fs::File::options().read(true).write(write).open(path) {
        Ok(_) => well(what, format!("{who} can be opened")),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => problem(
            what,
            format!("{who}: permission denied"),
            owners.remedy(path, write),
        ),
        Err(e) => problem(
            what,
            format!("{who}: {e}"),
            "see dmesg; load the module again: modprobe -r perfcounters, modprobe perfcounters",
        ),
    }
}
