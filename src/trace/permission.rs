// SPDX-License-Identifier: GPL-2.0

//! Checks whether the creator of a trace may trace a process, and whether a caller may open a trace
//! or trace a process. The permission of the creator is checked when the process joins the trace,
//! and again when the credentials or the dumpability of the process have changed.
//!
//! No function asks the security modules while it holds `TRACING`.

use kernel::cred::Credential;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;
use trace_rules::abi::{flag, KEY_KERNEL};
use trace_rules::sorted::{search_limited, LimitedSearch, MAX_VISITS_PER_LOCK_HOLD};

use crate::buffer_set::BufferSet;
use crate::lock_yielder::LockYielder;
use crate::log::log_unchecked_permission;
use crate::process::Process;
use crate::process_memory::LiveProcess;
use crate::registry::{Tracing, TRACING};
use crate::trace::Trace;
use base::access::{self, AccessTargetSnapshot, Identity};
use base::task::has_fatal_signal;

/// A check whether the creator of a trace may trace a process.
pub(crate) struct PermissionCheck {
    pub(crate) id: u64,
    /// The credentials of the trace's creator.
    pub(crate) creator_credentials: ARef<Credential>,
    /// True if the trace's creator may trace all processes, so that nothing is checked.
    pub(crate) allows_all: bool,
    /// True if the permission to stop the process (ptrace attach) is needed too, because threads of
    /// the process wait for room in full buffers.
    pub(crate) needs_ptrace_attach: bool,
}

/// A permission check that a trace requires, and the thread-group leader of the process to check.
pub(super) type PermissionQuery = (PermissionCheck, ARef<Task>);

impl PermissionCheck {
    /// Checks whether the trace's creator may trace the process and, with `needs_ptrace_attach`,
    /// stop it. May sleep; the caller does not hold `TRACING`.
    ///
    /// # Errors
    ///
    /// `EPERM` if the creator has no permission; `ESRCH` if the process exits, and `EINTR` or
    /// `ENOMEM` if the check could not be made.
    pub(crate) fn check(&self, leader: &Task) -> Result {
        if self.allows_all {
            return Ok(());
        }
        access::check_access_as(&self.creator_credentials, leader, self.needs_ptrace_attach)
    }

    /// Returns whether the trace's creator may still read a process that is in the trace. Returns
    /// `EINTR` or `ENOMEM` if the check could not be made. May sleep; the caller does not hold
    /// `TRACING`.
    ///
    /// The security modules are not asked for the permission to stop the process. The task that
    /// makes this check may be any process that reads the trace, or a kernel worker: while its
    /// threads wait, the traced process has a worker make the check. Yama would require this task
    /// to be an ancestor of the traced process, instead of the trace's creator.
    pub(crate) fn may_still_read(&self, leader: &Task) -> Result<bool> {
        if self.allows_all {
            return Ok(true);
        }
        access::access_result_to_bool(access::check_access_as(
            &self.creator_credentials,
            leader,
            false,
        ))
    }

    /// Returns whether the trace's creator may trace the program that the process ran at the last
    /// permission check. Only the rules of ptrace are applied, and the security modules are not
    /// asked. Used after the process has ended or has executed another program.
    pub(crate) fn allows_by_ptrace_rule(&self, alive: &LiveProcess) -> bool {
        self.allows_all
            || access::ptrace_rule_allows_read_as(
                &self.creator_credentials,
                &alive.leader,
                &alive.access_snapshot,
            )
    }
}

impl Trace {
    /// Returns whether the caller may use the trace without `CAP_PERFMON`. The caller must have all
    /// rights of the trace's creator. The trace must not record the processes of all users, and
    /// must have no buffers for kernel events.
    fn allows_unprivileged_caller(&self) -> bool {
        access::caller_has_rights_of(self.memory_charge().user())
            && !self.has_flag(flag::ALL_USERS)
            && self.buffer_set(KEY_KERNEL).is_none()
    }

    /// Returns the permission check to make before the trace records a process.
    pub(crate) fn permission_check(&self) -> PermissionCheck {
        PermissionCheck {
            id: self.id,
            creator_credentials: self.creator_credentials(),
            // `CAP_PERFMON` does not include the right to make other processes wait.
            allows_all: self.has_flag(flag::ALL_USERS) && !self.has_flag(flag::WAIT),
            needs_ptrace_attach: self.has_flag(flag::WAIT),
        }
    }
}

/// Returns the permission check to make before a process joins a trace, or `None` if the process
/// has ended.
pub(super) fn permission_query((trace, process): (&Trace, &Process)) -> Option<PermissionQuery> {
    Some((trace.permission_check(), process.leader()?.clone()))
}

/// Returns whether a trace's creator may trace the process `key`, whose thread-group leader is
/// `leader`. A process whose check could not be made does not join the trace: the process is logged,
/// and counted in the trace. A process that the creator may not stop is counted too, because a user
/// may expect that it joins: Yama may refuse the permission for the user's own processes. May sleep;
/// the caller does not hold `TRACING`.
pub(super) fn may_trace_or_count_untraced(asks: &PermissionCheck, key: u64, leader: &Task) -> bool {
    let checked = asks.check(leader);
    if asks.needs_ptrace_attach && checked == Err(EPERM) {
        if let Some((trace, process)) = TRACING.lock().trace_and_process(asks.id, key) {
            trace.count_denied_process(process);
        }
    }
    access::access_result_to_bool(checked).unwrap_or_else(|error| {
        // After `EINTR` the current task is being killed, and either the traced process ends or the
        // creation of the trace ends early.
        if error != EINTR {
            if let Ok(trace) = TRACING.lock().trace(asks.id) {
                trace.count_untraced();
            }
            log_unchecked_permission(leader, error);
        }
        false
    })
}

/// Returns whether the reader of a trace is still permitted to get the data of the process `key`.
/// Called after the data were copied from the buffer.
///
/// If the credentials or the dumpability of the process have changed since the permission was last
/// checked, the permission is checked once more. The data were copied before this check, so changes
/// after the check do not matter. Returns `EINTR` or `ENOMEM` if the check could not be made.
pub(crate) fn may_read_after_recheck(id: u64, key: u64) -> Result<bool> {
    let mut from = 0u64;
    let mut call = LockYielder::new();
    loop {
        let found = TRACING.lock().find_changed_credentials(id, key, from);
        from = match found {
            LimitedSearch::Found((changed, leader)) => {
                recheck_all_traces_of_process(changed, &leader)?;
                changed.wrapping_add(1)
            }
            LimitedSearch::From(next) => next,
            LimitedSearch::End => break,
        };
        if has_fatal_signal() {
            return Err(EINTR);
        }
        call.sleep_if_busy();
    }
    Ok(TRACING.lock().trace(id)?.buffer_set(key).is_some())
}

/// Checks again, for all traces that a process is in, whether the trace's creator may trace the
/// process. Called when the credentials or the dumpability of the process have changed, so that a
/// trace's creator may have lost the permission for new data. The caller does not hold `TRACING`.
/// Returns `EINTR` or `ENOMEM` if the check could not be made.
fn recheck_all_traces_of_process(key: u64, leader: &Task) -> Result {
    // Take the snapshot of the credentials before the check, so that
    // [`Tracing::find_changed_credentials`] notices a change during the check.
    let seen = AccessTargetSnapshot::of_task(leader)?;
    let mut after = 0u64;
    loop {
        let found = TRACING
            .lock()
            .next_trace_with_process(key, after)
            .map(|(trace, _)| trace.permission_check());
        let Some(asks) = found else { break };
        after = asks.id;
        if !asks.may_still_read(leader)? {
            TRACING.lock().remove_denied_process(asks.id, key);
        }
    }
    TRACING.lock().record_check_and_remove_denied(key, seen);
    Ok(())
}

/// Checks whether the creator of a trace still has the permission to read the calling process. When
/// the process joined the trace, the creator had the permission to stop the process. If `anyhow` is
/// false, the permission is checked only if the credentials or the dumpability of the process have
/// changed.
///
/// # Errors
///
/// `ENOENT` if the creator has lost the permission (the process is then removed from the trace),
/// `EINTR`, `ENOMEM`.
pub(super) fn recheck_or_remove_process(key: u64, id: u64, anyhow: bool) -> Result {
    let (asks, leader) = {
        let mut all = TRACING.lock();
        let (trace, process) = all.trace_and_process(id, key).ok_or(ENOENT)?;
        if !trace.has_live(process) {
            return Err(ENOENT);
        }
        if !anyhow && !process.have_credentials_changed() {
            return Ok(());
        }
        (
            trace.permission_check(),
            process.leader().ok_or(ENOENT)?.clone(),
        )
    };
    if asks.may_still_read(&leader)? {
        return Ok(());
    }
    TRACING.lock().remove_denied_process(id, key);
    Err(ENOENT)
}

impl Tracing {
    /// Searches for a process whose credentials or dumpability have changed since the permission to
    /// trace it was checked. In a shared trace, finds the process with the lowest key that is
    /// `from` or higher. In a trace that is not shared, only the process `key` can be the result.
    fn find_changed_credentials(
        &self,
        id: u64,
        key: u64,
        from: u64,
    ) -> LimitedSearch<(u64, ARef<Task>)> {
        let have_credentials_changed = |key: u64| {
            let process = self.processes.get(self.process_index(key)?)?;
            let changed = !process.has_ended() && process.have_credentials_changed();
            let leader = process.leader().filter(|_| changed)?;
            Some((key, leader.clone()))
        };
        let Some(trace) = self.traces.iter().find(|trace| trace.id == id) else {
            return LimitedSearch::End;
        };
        if trace.has_flag(flag::SHARED) {
            let changed = |set: &BufferSet| have_credentials_changed(set.key);
            let most = MAX_VISITS_PER_LOCK_HOLD;
            return search_limited(&trace.sets, from, most, |set| set.key, changed);
        }
        let changed = have_credentials_changed(key).filter(|_| key >= from);
        changed.map_or(LimitedSearch::End, LimitedSearch::Found)
    }

    /// Records the credentials and the dumpability that a process had when the permissions to trace
    /// the process were checked.
    ///
    /// If the process has executed another program since the previous check, the permissions were
    /// checked for the new program only. Permission for the previous program is checked by the
    /// rules of ptrace alone, with the present credentials of the process (see
    /// [`PermissionCheck::allows_by_ptrace_rule`]).
    fn record_check_and_remove_denied(&mut self, key: u64, seen: AccessTargetSnapshot) {
        if self
            .process(key)
            .is_ok_and(|process| !process.record_check_if_same_program(seen))
        {
            let mut after = 0u64;
            while let Some((trace, process)) = self.next_trace_with_process(key, after) {
                let might = process
                    .leader_and_access()
                    .is_some_and(|alive| trace.permission_check().allows_by_ptrace_rule(alive));
                after = trace.id;
                if !might {
                    self.remove_denied_process(after, key);
                }
            }
        }
    }

    /// Removes a process from a trace whose creator has no permission to trace the process any
    /// more.
    fn remove_denied_process(&mut self, id: u64, key: u64) {
        let Some((trace, process)) = self.trace_and_process(id, key) else {
            return;
        };
        // Several readers, and several waiting threads of the process, can find at the same time
        // that the permission is lost.
        if !trace.has_live(process) && trace.buffer_set(key).is_none() {
            return;
        }
        trace.remove_denied_process(process);
        if let Some(slot) = trace.state.slot() {
            process.clear_slot_bits(slot);
            process.record_in_slot(slot, false);
            // The pages of the buffers are no longer charged to the trace, so the process must not
            // keep them mapped.
            process.unmap_slot_pages(slot);
        }
        // If the process has ended and was in no other trace, remove the process from the list.
        self.take_unreferenced_process(key);
    }
}

/// The user and the rights of the calling process.
pub(super) struct Caller {
    /// The user ID of the caller in the initial namespace.
    pub(super) uid: u32,
    /// True if the caller has `CAP_PERFMON`.
    pub(super) is_perfmon_capable: bool,
}

impl Caller {
    pub(super) fn new() -> Self {
        Self {
            uid: Identity::of_current().uid,
            is_perfmon_capable: access::is_perfmon_capable(),
        }
    }

    /// Returns whether the caller may open a trace.
    pub(super) fn may_open_trace(&self, trace: &Trace) -> bool {
        self.is_perfmon_capable || trace.allows_unprivileged_caller()
    }

    /// Returns whether the caller may trace the process with this thread-group leader. Returns
    /// `EINTR` or `ENOMEM` if the check could not be made. May sleep; the caller does not hold
    /// `TRACING`.
    pub(super) fn may_trace(&self, leader: &Task) -> Result<bool> {
        match self.is_perfmon_capable {
            true => Ok(true),
            false => access::access_result_to_bool(access::check_access(leader, false)),
        }
    }
}
