// SPDX-License-Identifier: GPL-2.0

//! The list of the tasks that are accounted individually, and their directories in `/proc/ppa`.

#![expect(unsafe_code, reason = "calls of C")]

use core::ptr::NonNull;

use kernel::alloc::KVec;
use kernel::ffi::c_void;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use crate::config::AccountingConfig;
use crate::helpers;
use crate::state::{add_return, AccountingState};
use crate::worker;
use base::errno;
use base::task::{self, TaskRef};

/// The directory `/proc/ppa/PID` with a task's files.
///
/// # Invariants
///
/// The directory exists until the `TaskDirectory` is dropped.
pub(crate) struct TaskDirectory(NonNull<c_void>);

// SAFETY: A `TaskDirectory` is only used to remove the directory, which any thread may do.
unsafe impl Send for TaskDirectory {}

impl TaskDirectory {
    /// Creates a task's directory `/proc/ppa/PID` and the files in it, which identify the task by
    /// `id`. May sleep.
    pub(crate) fn create(pid: u32, id: usize) -> Result<Self> {
        // SAFETY: `create` is called while the directory `/proc/ppa` exists.
        let directory = unsafe { helpers::ppa_entry_create(pid, id) };
        // INVARIANT: The callee has created the directory.
        NonNull::new(directory).map(Self).ok_or(ENOMEM)
    }
}

impl Drop for TaskDirectory {
    fn drop(&mut self) {
        // SAFETY: The directory exists by the type's invariant. The callee waits for readers.
        unsafe { helpers::ppa_entry_remove(self.0.as_ptr()) }
    }
}

/// A task that is accounted individually.
pub(crate) struct TaskEntry {
    /// The number by which the files in `/proc/ppa/PID` refer to the entry. No other entry ever
    /// gets the same number.
    pub(crate) id: usize,
    /// The PID of the task in the initial namespace, which is the name of the directory.
    pub(crate) pid: u32,
    /// The task that is accounted.
    pub(crate) task: ARef<Task>,
    /// The accounting settings of the task.
    pub(crate) config: AccountingConfig,
    /// True if the entry is being removed.
    pub(crate) removing: bool,
    /// The directory of the task, or `None` after the worker has taken it out for removal. The
    /// entry is kept until the directory is removed, so that no directory with the same name is
    /// created.
    pub(crate) directory: Option<TaskDirectory>,
}

impl TaskEntry {
    /// Starts to account the task with the settings of the entry.
    pub(crate) fn start_accounting(&self, accounts: &AccountingState) -> Result {
        let AccountingConfig {
            cpus_per_group: scaling,
            latency_hist: latencies,
            ..
        } = self.config;
        accounts.account_individually(TaskRef::of_task(&self.task), scaling, latencies)
    }

    /// Returns whether the task is exiting or has exited.
    pub(crate) fn is_task_exiting(&self) -> bool {
        task::is_exiting(&self.task)
    }
}

/// All entries, and the number that the next new entry will get.
pub(crate) struct TaskEntries {
    pub(crate) all: KVec<Option<TaskEntry>>,
    pub(crate) next_id: usize,
}

impl TaskEntries {
    /// An empty list of entries.
    pub(crate) const NONE: Self = Self {
        all: KVec::new(),
        next_id: 1,
    };

    /// Returns whether no entry exists, not counting entries that are being removed or whose tasks
    /// have exited.
    pub(crate) fn has_no_active_entries(&self) -> bool {
        !self
            .iter()
            .any(|entry| !entry.removing && !entry.is_task_exiting())
    }

    /// Returns the number of entries, including those that are being removed.
    pub(crate) fn nr(&self) -> usize {
        self.iter().fold(0, |n: usize, _| n.wrapping_add(1))
    }

    /// Iterates over the entries, including those that are being removed.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &TaskEntry> {
        self.all.iter().flatten()
    }

    /// Adds an entry to the list. The caller has reserved memory for one more entry.
    pub(crate) fn put(&mut self, entry: TaskEntry) {
        match self.all.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(entry),
            None => {
                let _ = self.all.push_within_capacity(Some(entry));
            }
        }
    }

    /// Starts to account the tasks of all entries when accounting is started. If the user of a task
    /// would exceed the limit `user_kb`, sets `removing` in the entry of the task and continues: an
    /// error for one task would prevent the start for all users.
    pub(crate) fn start_accounting(&mut self, accounts: &AccountingState) -> Result {
        for entry in self.all.iter_mut().flatten() {
            if entry.removing || entry.is_task_exiting() {
                continue;
            }
            match entry.start_accounting(accounts) {
                Err(error) if error == errno::edquot() => {
                    add_return(&accounts.refused, 1);
                    entry.removing = true;
                    worker::queue_cleanup_worker();
                }
                done => done?,
            }
        }
        Ok(())
    }

    /// Finds the entry with this number. Returns `ESRCH` if the entry does not exist, is being
    /// removed, or its task has exited.
    pub(crate) fn find(&self, id: usize) -> Result<&TaskEntry> {
        self.iter()
            .find(|entry| entry.id == id && !entry.removing && !entry.is_task_exiting())
            .ok_or(ESRCH)
    }

    /// Finds the entry with this number, even if the entry is being removed.
    pub(crate) fn find_even_if_removing(&mut self, id: usize) -> Option<&mut TaskEntry> {
        let mut there = self.all.iter_mut().flatten();
        there.find(|entry| entry.id == id)
    }

    /// Finds an entry that is being removed or whose task has exited, and sets `removing` in it.
    /// Returns the number of the entry, and its directory.
    pub(crate) fn take_directory_to_remove(&mut self) -> Option<(usize, Option<TaskDirectory>)> {
        let goes = |entry: &&mut TaskEntry| entry.removing || entry.is_task_exiting();
        let entry = self.all.iter_mut().flatten().find(goes)?;
        entry.removing = true;
        Some((entry.id, entry.directory.take()))
    }

    /// Removes the entry with this number from the list and returns it.
    pub(crate) fn remove(&mut self, id: usize) -> Option<TaskEntry> {
        let mut places = self.all.iter_mut();
        places
            .find(|place| place.as_ref().is_some_and(|entry| entry.id == id))
            .and_then(Option::take)
    }
}
