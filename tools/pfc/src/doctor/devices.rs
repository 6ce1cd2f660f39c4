// SPDX-License-Identifier: GPL-2.0

//! Checks of the device files: whether they exist and this user may open them.

use std::fs;
use std::io;

use super::modules::Modules;
use super::{note, problem, well, Check};
use crate::rights::Owners;

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
    let Some(owners) = Owners::of(path) else {
        return match modules.is_loaded() {
            true => problem(
                what,
                format!("{path} is not there, though the module is loaded"),
                "is /dev a devtmpfs, and this no container? udevadm trigger makes its files anew",
            ),
            false => note(what, format!("{path} comes with perfcounters")),
        };
    };
    let who = format!("{path} ({})", owners.shown());
    match fs::File::options().read(true).write(write).open(path) {
        Ok(_) => well(what, format!("{who} can be opened")),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => problem(
            what,
            format!("{who}: not for this user"),
            owners.remedy(path, write),
        ),
        Err(e) => problem(
            what,
            format!("{who}: {e}"),
            "dmesg may say why; modprobe -r perfcounters, modprobe perfcounters",
        ),
    }
}
