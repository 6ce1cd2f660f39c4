// SPDX-License-Identifier: GPL-2.0

//! Our devices: who may open them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use super::modules::Modules;
use super::{note, problem, text, well, Check};

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
    let Ok(file) = fs::metadata(path) else {
        return match modules.is_loaded() {
            true => problem(
                what,
                format!("{path} is not there, though the module is loaded"),
                "is /dev a devtmpfs, and this no container? udevadm trigger makes its files anew",
            ),
            false => note(what, format!("{path} comes with perfcounters")),
        };
    };
    let group = name_of("/etc/group", file.gid());
    let who = format!(
        "{path} ({:04o} {}:{group})",
        file.mode() & 0o7777,
        name_of("/etc/passwd", file.uid())
    );
    match fs::File::options().read(true).write(write).open(path) {
        Ok(_) => well(what, format!("{who} can be opened")),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => problem(
            what,
            format!("{who}: not for this user"),
            remedy(path, &group, file.gid()),
        ),
        Err(e) => problem(
            what,
            format!("{who}: {e}"),
            "dmesg may say why; modprobe -r perfcounters, modprobe perfcounters",
        ),
    }
}

fn remedy(path: &str, group: &str, number: u32) -> String {
    let member = rustix::process::getgroups().is_ok_and(|all| {
        let mut all = all.iter().map(|g| g.as_raw());
        all.any(|g| g == number)
    });
    match (number, member) {
        (0, _) => format!(
            "run this as root, or give a group the file by a udev rule; until the next boot: chgrp perfcounters {path}"
        ),
        (_, false) => format!("join its group: adduser USER {group}, and log in anew; or run this as root"),
        (_, true) => format!("its group {group} is yours, but may not; have root do: chmod g+r {path}"),
    }
}

/// A user's or a group's name, by a file of them.
fn name_of(file: &str, number: u32) -> String {
    let all = text(file).unwrap_or_default();
    let found = all.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    });
    found.unwrap_or_else(|| number.to_string())
}
