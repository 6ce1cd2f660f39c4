// SPDX-License-Identifier: GPL-2.0

//! The records of living tasks: their insertion, and their replacement when a task is selected for
//! individual accounting or its settings change.

use kernel::alloc::KBox;
use kernel::prelude::*;

use super::{add_return, level, retry_on_each_cpu, AccountingState};
use crate::sys::ppa::{self, PerCpu};
use crate::sys::records::TaskRecord;
use crate::sys::sched::{CpusReadGuard, NoPreempt};
use crate::sys::task::TaskRef;

impl AccountingState {
    /// Creates and inserts the record of a task. May sleep. Returns `ENOMEM`, or `EDQUOT` if the
    /// user of the task would exceed `user_kb`.
    pub(crate) fn add(&self, task: TaskRef<'_>, calling: bool) -> Result {
        let latencies = self.latency_hist.load_relaxed() != 0;
        let record = TaskRecord::new(
            task,
            calling,
            self.cpus_per_group,
            latencies,
            self.clock.now(),
        )
        .inspect_err(|_| {
            add_return(&self.refused, 1);
        })?;
        let rejected = {
            let _preempt = NoPreempt::new();
            self.insert(record, task)
        };
        drop(rejected);
        Ok(())
    }

    /// Adds a record to the index. If the task already has a record, returns `record` to the
    /// caller.
    ///
    /// Context: preemption off, or inside an RCU read-side critical section.
    fn insert(&self, record: KBox<TaskRecord>, task: TaskRef<'_>) -> Option<KBox<TaskRecord>> {
        let rejected = self.index.insert(record);
        if rejected.is_some() {
            return rejected;
        }
        add_return(&self.nr_tasks, 1);
        self.remove_if_dead(task);
        None
    }

    /// Removes the record of a task that was inserted after the task's last switch.
    ///
    /// Context: preemption off, or inside an RCU read-side critical section.
    fn remove_if_dead(&self, task: TaskRef<'_>) {
        // If the task's last sched_switch came before the insertion, no probe removes this record:
        // remove the record here. If the last sched_switch is still to come, its probe and this
        // code both call take(), which gives the record to one of them only. The CPU of a dead task
        // may still use the record, but has preemption off until the task's last switch, so the
        // grace period ends after this use. A task that is exiting but not dead keeps its record,
        // because the task's CPU uses the record with preemption on.
        if task.is_dead() {
            if let Some(record) = self.index.take(task.address()) {
                add_return(&self.nr_tasks, u64::MAX);
                self.retired.push(record);
            }
        }
    }

    /// Adds the record of a task that may be in a system call, in the same way as
    /// [`insert`](Self::insert).
    ///
    /// Whether the task is in a system call is determined after the insertion. A running task is
    /// not examined, because a running task may leave the call at any time.
    pub(crate) fn insert_running(
        &self,
        record: KBox<TaskRecord>,
        task: TaskRef<'_>,
    ) -> Option<KBox<TaskRecord>> {
        let rejected = self.insert(record, task);
        self.find_syscall(task);
        rejected
    }

    /// Determines whether a task whose record was just inserted is in a system call. Preemption
    /// off.
    fn find_syscall(&self, task: TaskRef<'_>) {
        if self.levels & level::CALLS != 0 && task.is_in_syscall() {
            if let Some(record) = self.record_of(task) {
                record.words.set_in_syscall();
            }
        }
    }

    /// Gives a task a new record of its own settings, which continues the values of its present
    /// record. May sleep. `ENOMEM`, or `EDQUOT` if the user of the task would exceed `user_kb`.
    /// The caller holds `ACCOUNTING`.
    pub(crate) fn account_individually(
        &self,
        task: TaskRef<'_>,
        scaling: u32,
        latencies: bool,
    ) -> Result {
        let mut record = self.new_record(task, scaling, latencies)?;
        record.individually_accounted = true;
        self.replace_record(task, Some(record));
        Ok(())
    }

    /// Creates a record for a task that may have one already. May sleep. `ENOMEM`, `EDQUOT`.
    fn new_record(
        &self,
        task: TaskRef<'_>,
        scaling: u32,
        latencies: bool,
    ) -> Result<KBox<TaskRecord>> {
        let has_record = {
            let _preempt = NoPreempt::new();
            self.record_of(task).is_some()
        };
        let now = self.clock.now();
        match has_record {
            true => TaskRecord::replacing(task, scaling, latencies, now),
            false => TaskRecord::new(task, false, scaling, latencies, now),
        }
    }

    /// Ends the individual accounting of a task. If all tasks are accounted, it gets a new record
    /// with the common settings, which continues the values of its present record, unless its user
    /// would exceed `user_kb`. May sleep. `ENOMEM`. The caller holds `ACCOUNTING`.
    pub(crate) fn end_individual(&self, task: TaskRef<'_>) -> Result {
        let latencies = self.latency_hist.load_relaxed() != 0;
        let record = match self.all_tasks && !task.has_ended() {
            true => match self.new_record(task, self.cpus_per_group, latencies) {
                Err(error) if error == EDQUOT => {
                    add_return(&self.refused, 1);
                    None
                }
                record => Some(record?),
            },
            false => None,
        };
        self.replace_record(task, record);
        Ok(())
    }

    /// Replaces the record of a task, or removes it if `record` is `None`. May sleep. The caller
    /// holds `ACCOUNTING`, which excludes readers while the history of `record` is not complete.
    fn replace_record(&self, task: TaskRef<'_>, record: Option<KBox<TaskRecord>>) {
        // With the hotplug lock held, retry_on_each_cpu() reaches every CPU that may use the old
        // record. cpu_dead() has dropped the reference of each CPU that is offline.
        let _cpus = CpusReadGuard::new();
        let history = record.as_ref().and_then(|record| record.history.clone());
        let (mut began, mut waits_since) = (0, 0);
        let before = {
            let _preempt = NoPreempt::new();
            match record {
                None => {
                    let before = self.index.take(task.address());
                    if before.is_some() {
                        add_return(&self.nr_tasks, u64::MAX);
                    }
                    before
                }
                Some(record) => {
                    began = record.words.began();
                    if let Some(old) = self.record_of(task) {
                        waits_since = record.words.copy_wait(&old.words);
                    }
                    let before = self.index.replace(record);
                    if before.is_none() {
                        add_return(&self.nr_tasks, 1);
                    }
                    self.remove_if_dead(task);
                    self.find_syscall(task);
                    before
                }
            }
        };
        // If the task is running, its CPU still uses the old record: let each CPU look up the
        // record of its current task. If the task is not running, the switch to it looks up the
        // record.
        retry_on_each_cpu(&|| self.refresh_current());
        if let Some(before) = before {
            // No CPU uses the old record any more.
            let old = before.get();
            old.words.end(began);
            if let Some(history) = history {
                history.append(&old.words, old.history.as_deref());
                let _preempt = NoPreempt::new();
                if let Some(record) = self.record_of(task) {
                    record.words.correct_wait(waits_since, &old.words);
                }
            }
            self.retired.push(before);
            self.free_retired();
        }
    }

    /// Looks up again the record of the task that runs on this CPU. Returns false if the record
    /// cannot be replaced now, because the system-call words of the CPU are being updated. Called
    /// with interrupts off.
    pub(super) fn refresh_current(&self) -> bool {
        let Some(here) = PerCpu::this_cpu() else {
            return true;
        };
        let found = self.record_of(ppa::running());
        let address = |record: Option<&TaskRecord>| record.map(core::ptr::from_ref);
        if address(found) == address(here.task()) {
            return true;
        }
        if here.words.is_updating() {
            return false;
        }
        let old = here.task().map(|record| &record.words);
        let new = found.map(|record| &record.words);
        here.words.begin_switch();
        here.words
            .replace_task(here.cpu, old, new, self.clock.now());
        here.set_task(found);
        true
    }
}
