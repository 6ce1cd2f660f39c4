// SPDX-License-Identifier: GPL-2.0

//! Replaces the record of a task when the individual accounting of the task begins, changes or ends.

use kernel::alloc::KBox;
use kernel::prelude::*;
use protocols::sync::Word;

use crate::state::{add_return, retry_on_each_cpu, AccountingState};
use crate::task_record::TaskRecord;
use base::cpu::CpusReadGuard;
use base::preempt::NoPreempt;
use base::task::TaskRef;

impl AccountingState {
    /// Gives a task a new record with settings of its own. The new record continues the values of
    /// the present one. May sleep. Returns `ENOMEM`, or `EDQUOT` if the user of the task would
    /// exceed the limit `user_kb`. The caller holds `ACCOUNTING`.
    pub(crate) fn account_individually(
        &self,
        task: TaskRef<'_>,
        scaling: u32,
        latencies: bool,
    ) -> Result {
        let mut record = self.new_record(task, scaling, latencies)?;
        record.individually_accounted = Word::new(1);
        self.replace_record(task, Some(record));
        Ok(())
    }

    /// Creates the first or a further record of a task. May sleep; returns `ENOMEM`, `EDQUOT`.
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
            true => TaskRecord::new_replacement(task, scaling, latencies, now),
            false => TaskRecord::new(task, scaling, latencies, now),
        }
    }

    /// Ends the individual accounting of a task. If all tasks are accounted, a new record with the
    /// common settings continues the task's values. If the task's user would exceed the limit
    /// `user_kb` or memory is short, the task keeps its record, in which the groups of CPUs may
    /// have another size. May sleep. The caller holds `ACCOUNTING`.
    pub(crate) fn end_individual_accounting(&self, task: TaskRef<'_>) {
        if task.has_exit_state() {
            // The probe of the task's last switch moves its record to the ended tasks.
            return;
        }
        if !self.all_tasks {
            return self.replace_record(task, None);
        }
        let latencies = self.latency_hist.load_relaxed() != 0;
        if let Ok(record) = self.new_record(task, self.cpus_per_group, latencies) {
            return self.replace_record(task, Some(record));
        }
        let _preempt = NoPreempt::new();
        if let Some(record) = self.record_of(task) {
            record.individually_accounted.store_relaxed(0);
            record.task_state.set_latency_hist(latencies);
        }
    }

    /// Replaces the record of a task, or removes it if `record` is `None`. May sleep. The caller
    /// holds `ACCOUNTING`, which excludes readers while the history of `record` is not complete.
    fn replace_record(&self, task: TaskRef<'_>, record: Option<KBox<TaskRecord>>) {
        // With the hotplug lock held, retry_on_each_cpu() reaches every CPU that may use the old
        // record. cpu_dead() has cleared the record of each offline CPU.
        let _cpus = CpusReadGuard::new();
        let history = record.as_ref().and_then(|record| record.history.clone());
        let (mut began, mut waits_since) = (0, 0);
        let mut charge = None;
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
                    began = record.task_state.began();
                    if let Some(old) = self.record_of(task) {
                        waits_since = record
                            .task_state
                            .copy_cpu_mode_and_wait_start(&old.task_state);
                    }
                    let before = self.index.replace(record);
                    if before.is_none() {
                        add_return(&self.nr_tasks, 1);
                        // If there was an old record, remove_if_dead() need not be called: even if
                        // the task is dead, its last switch is still to come. The probe of that
                        // switch moves the new record to the ended tasks.
                        self.remove_if_dead(task);
                    }
                    charge = self.end_charge_if_exiting(task);
                    self.mark_if_in_syscall(task);
                    before
                }
            }
        };
        drop(charge);
        // If the task is running, its CPU still uses the old record: let each CPU look up the
        // record of its current task. If the task is not running, the probe of the next switch to
        // the task looks up the record.
        retry_on_each_cpu(&|| self.refresh_current_record());
        if let Some(before) = before {
            // No CPU uses the old record any more.
            let old = before.get();
            old.task_state.end(began);
            if let Some(history) = history {
                history.add_record(&old.task_state, old.history.as_deref());
                let _preempt = NoPreempt::new();
                if let Some(record) = self.record_of(task) {
                    record
                        .task_state
                        .recopy_wait_start(waits_since, &old.task_state);
                }
                // The task may have been switched out in a system call with the old record.
                self.mark_if_in_syscall(task);
            }
            self.retired_records.push(before);
            self.free_retired();
        }
    }
}
