// SPDX-License-Identifier: GPL-2.0

//! Loads perftrace.ko if `pfc trace` needs it.

use std::io::ErrorKind;
use std::process::Command;

use perftrace_reader::{Device, Error};

use crate::error::Failure;
use crate::trace::arm;

/// Opens the device `/dev/perftrace`. If there is no device and the caller is root, loads
/// perftrace.ko before, and announces the device to running programs.
pub fn open_device() -> Result<Device, Failure> {
    match Device::open() {
        Err(Error::Open(e))
            if e.kind() == ErrorKind::NotFound && rustix::process::geteuid().is_root() =>
        {
            load();
            Ok(Device::open()?)
        }
        device => Ok(device?),
    }
}

/// Runs modprobe. If modprobe fails, it prints the reason, and the caller then finds no device.
fn load() {
    let status = Command::new("modprobe").arg("perftrace").status();
    if status.is_ok_and(|status| status.success()) {
        message!("pfc: loaded perftrace.ko, the module of /dev/perftrace");
        // Programs that found no device when they started attach only after this. The error of a
        // directory that cannot be written concerns these programs only.
        if let Err(error) = arm::arm() {
            message!("pfc: programs that began before are not traced: {error}");
        }
    }
}
