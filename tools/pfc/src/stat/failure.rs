// SPDX-License-Identifier: GPL-2.0

//! Messages of failed system calls on contexts, with advice.

use std::io;
use std::path::Path;

use perfmon::RegisterMap;

use crate::error::Failure;
use crate::limits;
use crate::permissions;
use crate::target::{is_eexist, is_esrch};

/// Returns true if this process may open a device for reading and writing.
fn may_read_and_write_device(device: &str) -> bool {
    use rustix::fs::{access, Access};
    access(device, Access::READ_OK | Access::WRITE_OK).is_ok()
}

/// Returns the possible causes of EBUSY: perfmon.ko does not report which of them applies.
fn describe_causes_of_ebusy() -> String {
    match RegisterMap::load_pmus_and_read() {
        Ok(map) if map.descriptions().next().is_none() => "no PMU description is registered; load one: modprobe pfm_intel or pfm_amd, or pfm_soft for software events",
        _ => "perf, the NMI watchdog or another context uses the registers or the CPU; see pfc doctor",
    }
    .to_owned()
}

/// Makes the error for a failed system call. `action` is the action that failed. The error's
/// message names the action and the cause, and in most cases gives advice.
pub fn syscall_failure(action: &str, error: &io::Error) -> Failure {
    use io::ErrorKind::{NotFound, PermissionDenied, ResourceBusy};
    let device = perfmon::PERFMON_DEVICE_PATH;
    let has_device = Path::new(device).exists();
    let remedy = match (error.kind(), error.raw_os_error()) {
        (NotFound, _) if !has_device => format!("{device}: no such device; load the module: modprobe perfmon"),
        (_, Some(libc::EACCES)) if !may_read_and_write_device(device) => {
            format!(
                "{device}: permission denied; {}",
                permissions::device_access_remedy(device, true)
            )
        }
        (PermissionDenied, _) => "permission denied; kernel mode, CPUs and other users' tasks need CAP_PERFMON; kernel threads cannot be counted; try EVENT:u with your own command".to_owned(),
        (ResourceBusy, _) => describe_causes_of_ebusy(),
        (_, Some(libc::EDQUOT)) => format!("{error}: the contexts of this user take too much memory, or are more than 16,384; end some of them, or raise the parameter user_kb of perfcounters.ko"),
        _ if is_esrch(error) => "no such thread".to_owned(),
        _ if is_eexist(error) => "the thread already has a context; end the program that uses it".to_owned(),
        _ => match limits::advice_on_resource_error(error) {
            advice if advice.is_empty() => format!("{error}; see pfc doctor"),
            advice => format!("{error}{advice}"),
        },
    };
    Failure::Refused(format!("cannot {action}: {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_16_errors_of_contexts_name_causes_that_apply() {
        let message = |errno| {
            let error = io::Error::from_raw_os_error(errno);
            syscall_failure("count CPU 1", &error).to_string()
        };
        // EBUSY has causes other than the PMU, for example another context of the CPU.
        let busy = message(libc::EBUSY);
        assert!(busy.starts_with("cannot count CPU 1: "), "{busy}");
        assert!(busy.contains("another context") || busy.contains("no PMU description"));
        // EDQUOT of a context is not the quota of a file system.
        let quota = message(libc::EDQUOT);
        assert!(
            quota.contains("user_kb") && !quota.contains("-o FILE"),
            "{quota}"
        );
    }
}
