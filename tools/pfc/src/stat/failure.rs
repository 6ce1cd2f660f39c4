// SPDX-License-Identifier: GPL-2.0

//! Messages of failed system calls on contexts, with advice.

use std::io;
use std::path::Path;

use crate::error::Failure;
use crate::limits;
use crate::permissions;
use crate::target::{is_eexist, is_esrch};

/// Returns true if this process may open a device for reading and writing.
fn may_open_device(device: &str) -> bool {
    use rustix::fs::{access, Access};
    access(device, Access::READ_OK | Access::WRITE_OK).is_ok()
}

/// Makes the error for a failed system call. `action` is the action that failed. The error's
/// message names the action and the cause, and in most cases gives advice.
pub fn syscall_failure(action: &str, error: &io::Error) -> Failure {
    use io::ErrorKind::{NotFound, PermissionDenied, ResourceBusy};
    let device = perfmon::DEVICE;
    let has_device = Path::new(device).exists();
    let remedy = match (error.kind(), error.raw_os_error()) {
        (NotFound, _) if !has_device => format!("{device}: no such device; load the module: modprobe perfmon"),
        (_, Some(libc::EACCES)) if !may_open_device(device) => {
            format!("{device}: permission denied; {}", permissions::remedy(device, true))
        }
        (PermissionDenied, _) => "permission denied; kernel mode, CPUs and other users' tasks need CAP_PERFMON; kernel threads cannot be counted; try EVENT:u with your own command".to_owned(),
        (ResourceBusy, _) => "the PMU is in use; see pfc doctor".to_owned(),
        _ if is_esrch(error) => "no such thread".to_owned(),
        _ if is_eexist(error) => "the thread already has a context; end the program that uses it".to_owned(),
        _ => match limits::advice(error) {
            advice if advice.is_empty() => format!("{error}; see pfc doctor"),
            advice => format!("{error}{advice}"),
        },
    };
    Failure::Refused(format!("cannot {action}: {remedy}"))
}
