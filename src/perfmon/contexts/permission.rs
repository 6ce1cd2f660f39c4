// SPDX-License-Identifier: GPL-2.0

//! The permission to watch a thread of another process. The process that attaches a context to such
//! a thread needs this permission. The permission is checked when the context is attached to the
//! thread, and again when the credentials or the dumpability of the thread have changed.
//!
//! The kernel does not notify modules when the credentials or the dumpability of a thread change.
//! To notice a change, each permission check takes a snapshot of the thread's credentials and
//! dumpability. The thread is compared with the snapshot later:
//!
//! - The scheduler probes compare the thread with the snapshot when the thread is switched in, and
//!   when the thread has executed a program. If the thread has changed, a worker repeats the
//!   permission check, because the check can sleep.
//! - Each `read()` of the context's file and each ioctl except `PERFMON_UNLOAD` first compares the
//!   thread with the snapshot, and makes the permission check if the thread has changed.
//!
//! A context with `PFM_FL_NOTIFY_BLOCK` also needs the permission to stop the thread. The
//! permission to stop the thread is checked when the process that attached the context calls
//! `PERFMON_RESTART`. The permission is also checked before a blocked thread sleeps, and then once
//! a second (`Blocker::block_thread()`).
//!
//! A permission that cannot be lost is checked only at the attach. If the context does not block
//! the thread, a caller with `CAP_PERFMON` cannot lose the permission. A process that monitors its
//! own threads cannot lose the permission, even if another process has the context's file open.

use kernel::cred::Credential;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use base::access::{self, AccessSnapshot};
use base::task;

/// The permission to watch a thread, if the process that attached the context can lose it.
pub(crate) struct Permission {
    /// The credentials of the process that attached the context.
    pub(crate) cred: ARef<Credential>,
    /// The credentials and the dumpability that the thread had when the permission was last
    /// checked.
    pub(crate) seen: AccessSnapshot,
}

impl Permission {
    /// Checks that the caller is allowed to watch a thread and, if `blocks` is set, to stop the
    /// thread. Returns `None` if the caller cannot lose the permission.
    ///
    /// Context: may sleep; caller holds no lock of this module.
    ///
    /// # Errors
    ///
    /// `EPERM` if the caller has no permission, `ESRCH` if the thread has exited, `EINTR`,
    /// `ENOMEM`.
    pub(crate) fn check(task: &Task, blocks: bool) -> Result<Option<Self>> {
        if !blocks && access::has_perfmon_noaudit() {
            return Ok(None);
        }
        // Take the snapshot before the check, so that a change of credentials during the check is
        // noticed later.
        let seen = AccessSnapshot::of_task(task)?;
        access::check_access(task, blocks)?;
        if task::is_thread_of_caller(task) {
            return Ok(None);
        }
        Ok(Some(Self {
            cred: access::caller_credentials(),
            seen,
        }))
    }
}
