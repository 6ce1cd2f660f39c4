// SPDX-License-Identifier: GPL-2.0

//! Loads a kernel module that a command needs.

use std::path::Path;
use std::process::Command;

/// Loads the module `name` if `device`, the module's device, does not exist and the caller is root.
/// Returns true if the module was loaded. If modprobe fails, modprobe prints the reason, and the
/// caller then finds no device.
pub fn load(name: &str, device: &str) -> bool {
    if Path::new(device).exists() || !rustix::process::geteuid().is_root() {
        return false;
    }
    let status = Command::new("modprobe").arg(name).status();
    let is_loaded = status.is_ok_and(|status| status.success());
    if is_loaded {
        message!("pfc: loaded {name}.ko, the module of {device}");
    }
    is_loaded
}
