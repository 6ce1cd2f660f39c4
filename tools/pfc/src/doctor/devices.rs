// SPDX-License-Identifier: GPL-2.0

//! Checks of the device files: whether each device file exists, and whether this user may open it.

use std::fs;
use std::io;
use std::path::Path;

use super::modules::CheckedModules;
use super::{note_check, ok_check, problem_check, Check};
use crate::permissions::DevicePermissions;

/// A device file that `pfc doctor` checks.
pub struct DeviceFile {
    module: &'static str,
    subject: &'static str,
    path: &'static str,
    /// True if pfc opens the device for writing, too.
    opens_for_writing: bool,
    /// The consequence if the module is not loaded. `None` for the devices of perfcounters: the
    /// checks of the modules report whether perfcounters is loaded.
    consequence_if_not_loaded: Option<&'static str>,
}

pub const COUNTERS_DEVICE: DeviceFile = DeviceFile {
    module: "perfcounters",
    subject: "device",
    path: perfcounters::PERFCOUNTERS_DEVICE_PATH,
    opens_for_writing: false,
    consequence_if_not_loaded: None,
};

pub const COUNTER_NAMES_DEVICE: DeviceFile = DeviceFile {
    subject: "names",
    path: "/dev/perfcounters_names",
    ..COUNTERS_DEVICE
};

pub const CONTEXTS_DEVICE: DeviceFile = DeviceFile {
    module: "perfmon",
    subject: "device",
    path: perfmon::PERFMON_DEVICE_PATH,
    opens_for_writing: true,
    consequence_if_not_loaded: Some("there are no PMU counters"),
};

pub const ACCOUNTING_DEVICE: DeviceFile = DeviceFile {
    module: "ppa",
    subject: "device",
    path: ppa::PPA_DEVICE_PATH,
    opens_for_writing: false,
    consequence_if_not_loaded: Some("tasks cannot be accounted"),
};

pub const TRACING_DEVICE: DeviceFile = DeviceFile {
    module: "perftrace",
    subject: "device",
    path: perftrace_reader::PERFTRACE_DEVICE_PATH,
    opens_for_writing: true,
    consequence_if_not_loaded: Some("programs cannot be traced"),
};

impl DeviceFile {
    pub fn check(&self, modules: &CheckedModules) -> Check {
        let Self {
            module,
            subject,
            path,
            opens_for_writing,
            consequence_if_not_loaded: missing,
        } = *self;
        let is_loaded = modules.is_loaded(module);
        // Not every machine loads each module.
        if let Some(missing) = missing.filter(|_| !is_loaded && !Path::new(path).exists()) {
            return note_check(subject, format!("{module} is not loaded; {missing}"))
                .with_remedy(format!("modprobe {module}"));
        }
        let Some(permissions) = DevicePermissions::read(path) else {
            return match is_loaded {
                true => problem_check(
                    subject,
                    format!("{path} does not exist, although the module is loaded"),
                    "/dev must be a devtmpfs, and not of a container; udevadm trigger creates its files again",
                ),
                false => note_check(subject, format!("{path} is created when {module} is loaded")),
            };
        };
        let device = format!("{path} ({})", permissions.format_mode_and_owners());
        match fs::File::options()
            .read(true)
            .write(opens_for_writing)
            .open(path)
        {
            Ok(_) => ok_check(subject, format!("{device} can be opened")),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => problem_check(
                subject,
                format!("{device}: permission denied"),
                permissions.access_remedy(path, opens_for_writing),
            ),
            Err(e) => problem_check(
                subject,
                format!("{device}: {e}"),
                format!(
                    "see dmesg; load the module again: modprobe -r {module}, modprobe {module}"
                ),
            ),
        }
    }
}
