// SPDX-License-Identifier: GPL-2.0

//! Loads a kernel module that a command needs.

use std::path::Path;
use std::process::Command;

/// Loads the module `name` if its device file `device` does not exist and the caller is root.
/// Returns true only if this call has made the device file appear. If modprobe fails, it prints the
/// reason. A module that modprobe's configuration blacklists is not loaded.
pub fn try_load_if_no_device(name: &str, device: &str) -> bool {
    if Path::new(device).exists() || !rustix::process::geteuid().is_root() {
        return false;
    }
    if let Err(error) = Command::new("modprobe").args(["-b", name]).status() {
        message!("pfc: cannot run modprobe to load {name}: {error}");
    }
    let is_loaded = Path::new(device).exists();
    if is_loaded {
        message!("pfc: loaded {name}.ko, the module of {device}");
    }
    is_loaded
}
