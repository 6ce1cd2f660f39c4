// SPDX-License-Identifier: GPL-2.0

//! Loads a kernel module that a command needs.

use std::path::Path;
use std::process::Command;

/// Loads the module `name` if `device`, the module's device, does not exist and the caller is root.
/// Returns true if the device exists then. If modprobe fails, modprobe prints the reason, and the
/// caller finds no device. A module that modprobe's configuration blacklists is not loaded.
pub fn load(name: &str, device: &str) -> bool {
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
