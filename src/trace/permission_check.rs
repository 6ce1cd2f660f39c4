// SPDX-License-Identifier: GPL-2.0

//! Checks whether the creator of a trace may trace a process.

use kernel::cred::Credential;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use crate::process_memory::LiveProcess;
use base::access;

/// A check whether the creator of a trace may trace a process.
pub(crate) struct PermissionCheck {
    pub(crate) id: u64,
    /// The credentials of the trace's creator.
    pub(crate) maker: ARef<Credential>,
    /// True if the trace's creator may trace all processes, so that nothing is checked.
    pub(crate) allows_all: bool,
    /// True if the permission to stop the process (ptrace attach) is needed too, because threads of
    /// the process wait for room in full buffers.
    pub(crate) attach: bool,
}

impl PermissionCheck {
    /// Returns whether the trace's creator may trace the process and, with `attach`, stop it.
    /// Returns `EINTR` or `ENOMEM` if the check could not be made. May sleep; the caller does not
    /// hold `TRACING`.
    pub(crate) fn check(&self, leader: &Task) -> Result<bool> {
        if self.allows_all {
            return Ok(true);
        }
        access::is_access_allowed(access::check_access_as(&self.maker, leader, self.attach))
    }

    /// Returns whether the trace's creator may still read a process that is in the trace. Returns
    /// the same errors as [`check`](Self::check).
    ///
    /// The security modules are not asked for the permission to stop the process. A process itself
    /// makes this check while its threads wait, by a kernel worker, and any process may read the
    /// trace. Yama would require that the worker or the reader, and not the trace's creator, is an
    /// ancestor of the process.
    pub(crate) fn recheck(&self, leader: &Task) -> Result<bool> {
        if self.allows_all {
            return Ok(true);
        }
        access::is_access_allowed(access::check_access_as(&self.maker, leader, false))
    }

    /// Returns whether the ptrace rule lets the trace's creator trace the program that the process
    /// ran at the last permission check. The security modules are not asked. Used after the process
    /// has ended or has executed another program.
    pub(crate) fn may_permission_still_hold(&self, alive: &LiveProcess) -> bool {
        self.allows_all || access::ptrace_rule_allows_cred(&self.maker, &alive.leader, &alive.seen)
    }
}
