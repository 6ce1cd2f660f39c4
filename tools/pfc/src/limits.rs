// SPDX-License-Identifier: GPL-2.0

//! The limits of this process on the number of open files and on the size of a file.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use signal_hook::consts::SIGXFSZ;

/// The limits on the number of open files before [`set_up_fd_limit_and_sigxfsz`] changed them; not
/// set if [`set_up_fd_limit_and_sigxfsz`] did not change them.
static FORMER_OPEN_FILE_LIMITS: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit on the number of open files to the hard limit, because each thread that is
/// counted or sampled needs a descriptor. After this call, a write beyond the maximum size of a
/// file fails with EFBIG, and does not kill the process by SIGXFSZ.
pub fn set_up_fd_limit_and_sigxfsz() {
    let former = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: former.maximum,
        maximum: former.maximum,
    };
    // If the limit on open files cannot be raised, pfc continues. If a later system call of pfc
    // fails because of the limit on open files, the error message has advice about the limit.
    if former.current != former.maximum && setrlimit(Resource::Nofile, raised).is_ok() {
        let _ = FORMER_OPEN_FILE_LIMITS.set(former);
    }
    // SIGXFSZ gets a handler and is not ignored. The user's commands need the default action: exec
    // resets a handled signal to it, but keeps an ignored signal ignored.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Restores the limits that were in force before [`set_up_fd_limit_and_sigxfsz`] changed them.
/// Called in a child process before it executes a command of the user: a program that uses
/// select(2) must not get descriptors above 1023.
pub fn restore_open_file_limit() -> io::Result<()> {
    match FORMER_OPEN_FILE_LIMITS.get() {
        Some(former) => Ok(setrlimit(Resource::Nofile, *former)?),
        None => Ok(()),
    }
}

/// Returns advice for an error that was caused by a limit or by a full file system. For any other
/// error, the advice is empty.
pub fn advice_on_resource_error(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EMFILE) => {
            let limit = getrlimit(Resource::Nofile).current;
            let limit = limit.map_or("without a limit".to_owned(), |n| n.to_string());
            format!("; the limit of open files is {limit}: raise it (ulimit -Hn), or take fewer threads or CPUs")
        }
        Some(libc::ENFILE) => {
            "; the limit of the system is reached: raise it (sysctl fs.file-max)".to_owned()
        }
        Some(libc::ENOSPC | libc::EDQUOT) => {
            "; make room, or choose another place: -o FILE".to_owned()
        }
        Some(libc::EFBIG) => "; raise the limit on the size of a file (ulimit -f)".to_owned(),
        _ => String::new(),
    }
}
