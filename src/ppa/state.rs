// SPDX-License-Identifier: GPL-2.0

//! The state of process accounting while it is on: the values of each CPU, and the records of
//! tasks. After its task has ended, a record stays in the state until `/dev/ppa` is read. The
//! tracepoint probes in `probes.rs` update the state.

use kernel::alloc::KBox;
use kernel::prelude::*;
use ppa_rules::{Cpu, LatencyBounds};
use protocols::sync::Word;

use crate::per_cpu::{PerCpu, PerCpuTable};
use crate::retire_list::RemovedRecordList;
use crate::stats;
use crate::task_record::{TaskIndex, TaskRecord};
use base::account::MemoryCharge;
use base::clock::Clock;
use base::cpu;
use base::preempt::NoPreempt;
use base::task::{self, TaskRef};

/// The levels of accounting that can be measured (`PPA_LEVEL_*`).
pub(crate) mod level {
    pub(crate) const SCHED: u32 = 1;
    pub(crate) const IRQ: u32 = 2;
    pub(crate) const CALLS: u32 = 4;
    pub(crate) const SWITCHES: u32 = 8;
    pub(crate) const ALL: u32 = SCHED | IRQ | CALLS | SWITCHES;
}

/// Maximum number of records in [`AccountingState::ended_records`]. If this number or
/// [`MAX_ENDED_BYTES_PER_LIST`] would be exceeded, the record of the task that has just ended is
/// dropped and counted in `lost`. `MAX_ENDED_RECORDS_PER_LIST` and `MAX_ENDED_BYTES_PER_LIST` also
/// limit the records in `EndedTasks`.
pub(crate) const MAX_ENDED_RECORDS_PER_LIST: u64 = 16384;
pub(crate) const MAX_ENDED_BYTES_PER_LIST: u64 = 64 << 20;

/// The state of accounting while it is on, shared by all probes.
pub(crate) struct AccountingState {
    /// The values of each CPU.
    pub(crate) per_cpu: PerCpuTable,
    /// The records of living tasks, indexed by the addresses of the tasks.
    pub(crate) index: TaskIndex,
    /// The clock of all time stamps.
    pub(crate) clock: Clock,
    /// The bounds of the latency histogram.
    pub(crate) latency_bounds: LatencyBounds,
    /// Number of CPUs per group: a task has separate values for each group.
    pub(crate) cpus_per_group: u32,
    /// The levels that are measured.
    pub(crate) levels: u32,
    /// True if all tasks are accounted, false if only tasks with an entry in `/proc/ppa` are.
    pub(crate) all_tasks: bool,
    /// Nonzero if new records also count wakeup latencies in a histogram.
    pub(crate) latency_hist: Word,
    /// Records of tasks that have ended since `/dev/ppa` was last read.
    pub(crate) ended_records: RemovedRecordList,
    /// Replaced or dropped records, which were removed from the index and which no reader will get.
    /// [`free_retired`](Self::free_retired) frees these records after a grace period.
    pub(crate) retired_records: RemovedRecordList,
    /// Number of records in the index.
    pub(crate) nr_tasks: Word,
    /// Number of records in `ended_records`.
    pub(crate) nr_ended: Word,
    /// Number of bytes of the records that `nr_ended` counts.
    pub(crate) ended_bytes: Word,
    /// Number of records of ended tasks that were dropped before they were read.
    pub(crate) lost: Word,
    /// Number of tasks that got no record, because memory was short or because the user of the task
    /// would have exceeded the limit `user_kb`.
    pub(crate) refused: Word,
}

/// Calls `function` on each CPU, with interrupts off. Calls `function` on all CPUs again until it
/// has returned true on each of them.
pub(crate) fn retry_on_each_cpu(function: &dyn Fn() -> bool) {
    loop {
        let late = Word::new(0);
        cpu::call_on_all_cpus(&|| {
            if !function() {
                add_return(&late, 1);
            }
        });
        if late.load_relaxed() == 0 {
            return;
        }
    }
}

/// Adds `more`, modulo 2^64, to a number that several CPUs change. Returns the new value.
pub(crate) fn add_return(word: &Word, more: u64) -> u64 {
    loop {
        let old = word.load_relaxed();
        let new = old.wrapping_add(more);
        if word.try_cmpxchg_release(old, new) {
            return new;
        }
    }
}

impl AccountingState {
    /// Creates the state for groups of `scaling` CPUs.
    pub(crate) fn new(everyone: bool, levels: u32, scaling: u32, latencies: bool) -> Result<Self> {
        let clock = Clock::choose();
        Ok(Self {
            per_cpu: PerCpuTable::new(clock)?,
            index: TaskIndex::new()?,
            clock,
            latency_bounds: LatencyBounds::new(clock.khz.into()),
            cpus_per_group: scaling,
            levels,
            all_tasks: everyone,
            latency_hist: Word::new(latencies.into()),
            ended_records: RemovedRecordList::new(),
            retired_records: RemovedRecordList::new(),
            nr_tasks: Word::new(0),
            nr_ended: Word::new(0),
            ended_bytes: Word::new(0),
            lost: Word::new(0),
            refused: Word::new(0),
        })
    }

    /// Creates and inserts the record of a new task. Does not sleep. Returns `ENOMEM`, or `EDQUOT`
    /// if the user of the task would exceed the limit `user_kb`.
    pub(crate) fn add(&self, task: TaskRef<'_>, calling: bool) -> Result {
        let latencies = self.latency_hist.load_relaxed() != 0;
        let record = TaskRecord::new_atomic(
            task,
            calling,
            self.cpus_per_group,
            latencies,
            self.clock.now(),
        )
        .inspect_err(|_| {
            add_return(&self.refused, 1);
        })?;
        let unused = {
            let _preempt = NoPreempt::new();
            self.insert(record, task)
        };
        drop(unused);
        Ok(())
    }

    /// Adds a record to the index. Returns `record` if the task already has a record. If the task
    /// is exiting, returns the memory charge of the inserted record. The caller drops the result
    /// with preemption on.
    ///
    /// Context: preemption off, or inside an RCU read-side critical section.
    fn insert(
        &self,
        record: KBox<TaskRecord>,
        task: TaskRef<'_>,
    ) -> (Option<KBox<TaskRecord>>, Option<MemoryCharge>) {
        let rejected = self.index.insert(record);
        if rejected.is_some() {
            return (rejected, None);
        }
        add_return(&self.nr_tasks, 1);
        let charge = self.end_charge_if_exiting(task);
        self.remove_if_dead(task);
        (None, charge)
    }

    /// Ends the charge of the record that was just inserted for a task, if the task is exiting: the
    /// probe of the exit, which ends charges, may have run before the insertion. Returns the
    /// charge, which the caller drops with preemption on.
    ///
    /// Context: preemption off, or inside an RCU read-side critical section.
    #[must_use]
    pub(crate) fn end_charge_if_exiting(&self, task: TaskRef<'_>) -> Option<MemoryCharge> {
        match task.is_exiting() {
            true => self.record_of(task)?.end_charge(),
            false => None,
        }
    }

    /// Removes the record that was just inserted for a task, if the task is dead.
    ///
    /// Context: preemption off, or inside an RCU read-side critical section.
    pub(crate) fn remove_if_dead(&self, task: TaskRef<'_>) {
        // If the task's last sched_switch came before the insertion, no probe removes this record:
        // remove the record here. If the last sched_switch is still to come, the probe of that
        // switch and this code both call take(), which gives the record to only one of the two
        // callers. A dead task has preemption off until its last switch. Until that switch, the CPU
        // of the task may use the record. The record is freed after a grace period, which ends
        // after that switch. A task that is exiting but not dead keeps its record, because the
        // task's CPU uses the record with preemption on.
        if task.is_task_dead() {
            if let Some(record) = self.index.take(task.address()) {
                add_return(&self.nr_tasks, u64::MAX);
                self.retired_records.push(record);
            }
        }
    }

    /// Adds a record like [`insert`](Self::insert), for a task that may be in a system call.
    ///
    /// Inserts the record first, and then checks whether the task is in a system call. The check
    /// leaves out a running task, which may leave its system call at any time.
    ///
    /// Context: inside an RCU read-side critical section, with preemption on.
    pub(crate) fn insert_record_of_existing_task(
        &self,
        record: KBox<TaskRecord>,
        task: TaskRef<'_>,
    ) -> Option<KBox<TaskRecord>> {
        let (rejected, _charge) = self.insert(record, task);
        self.mark_if_in_syscall(task);
        rejected
    }

    /// Sets the mode of the record that was just inserted for a task, if the task is in a system
    /// call.
    ///
    /// Context: preemption off, or inside an RCU read-side critical section.
    pub(crate) fn mark_if_in_syscall(&self, task: TaskRef<'_>) {
        if self.levels & level::CALLS != 0 && task.is_off_cpu_in_syscall() {
            if let Some(record) = self.record_of(task) {
                record.task_state.mark_in_kernel_unless_running();
            }
        }
    }

    /// Looks up again the record of the task that runs on this CPU. Returns false if the record
    /// cannot be replaced now, because this CPU is updating its mode and system time. Called with
    /// interrupts off.
    pub(crate) fn refresh_current_record(&self) -> bool {
        let Some(here) = PerCpu::this_cpu() else {
            return true;
        };
        let found = self.record_of(task::current_task_ref());
        let address = |record: Option<&TaskRecord>| record.map(core::ptr::from_ref);
        if address(found) == address(here.task()) {
            return true;
        }
        if here.cpu_state.is_updating_mode() {
            return false;
        }
        let old = here.task().map(|record| &record.task_state);
        let new = found.map(|record| &record.task_state);
        here.cpu_state.begin_switch();
        here.cpu_state.replace_task(old, new, self.clock.now());
        here.set_task(found);
        true
    }

    /// Returns whether the task has a record, or has exited and needs none.
    pub(crate) fn has_record_or_exit_state(&self, task: TaskRef<'_>) -> bool {
        task.has_exit_state() || self.record_of(task).is_some()
    }

    /// Returns the values of a CPU.
    pub(crate) fn cpu(&self, cpu: u32) -> Option<&Cpu> {
        self.per_cpu.cpu(cpu).map(|here| &here.cpu_state)
    }

    /// Starts accounting on each CPU, beginning with the task that runs on the CPU. May sleep.
    pub(crate) fn begin(&self) {
        retry_on_each_cpu(&|| self.begin_on_this_cpu());
    }

    /// Starts accounting on this CPU. Returns false if accounting cannot start now, because the CPU
    /// is updating its mode and system time. Called with interrupts off.
    fn begin_on_this_cpu(&self) -> bool {
        let Some(here) = PerCpu::this_cpu() else {
            return true;
        };
        if here.cpu_state.has_begun() {
            return self.refresh_current_record();
        }
        if here.cpu_state.is_updating_mode() {
            return false;
        }
        let (task, now) = (task::current_task_ref(), self.clock.now());
        here.cpu_state.begin(task.pid() == 0, now);
        if let Some(record) = self.record_of(task) {
            here.cpu_state.attach_running(&record.task_state, now);
            here.set_task(Some(record));
        }
        true
    }

    /// Frees the records in `retired_records` after a grace period. Must not be called under a
    /// run-queue lock.
    pub(crate) fn free_retired(&self) {
        self.retired_records.free_later();
    }

    /// Returns the record of a task; `None` if the task is not accounted.
    #[inline(always)]
    pub(crate) fn record_of(&self, task: TaskRef<'_>) -> Option<&TaskRecord> {
        self.index.get(task.address())
    }

    /// Subtracts the record of an ended task, which has `bytes` bytes, from `nr_ended` and
    /// `ended_bytes`.
    pub(crate) fn subtract_ended_record(&self, bytes: u64) {
        add_return(&self.nr_ended, u64::MAX);
        add_return(&self.ended_bytes, bytes.wrapping_neg());
    }

    /// Moves the record of a task to the list of ended tasks. Called at the task's last switch,
    /// with the run-queue lock held.
    ///
    /// The record is kept until `/dev/ppa` is read. If [`MAX_ENDED_RECORDS_PER_LIST`] or
    /// [`MAX_ENDED_BYTES_PER_LIST`] is exceeded, the record is dropped, and counted in `lost` and
    /// in the instance `perfcounters/accounting/lost`.
    #[cold]
    pub(crate) fn move_to_ended_tasks(&self, task: TaskRef<'_>, now: u64) {
        let Some(record) = self.index.take(task.address()) else {
            return;
        };
        record.get().task_state.end(now);
        let bytes = record.get().bytes();
        let (nr, all) = (
            add_return(&self.nr_ended, 1),
            add_return(&self.ended_bytes, bytes),
        );
        // After `nr_ended`: otherwise `stop_if_done` could find neither a task nor a record of an
        // ended task, and free the record.
        add_return(&self.nr_tasks, u64::MAX);
        if nr > MAX_ENDED_RECORDS_PER_LIST || all > MAX_ENDED_BYTES_PER_LIST {
            self.subtract_ended_record(bytes);
            add_return(&self.lost, 1);
            stats::count_lost_record();
            self.retired_records.push(record);
        } else {
            self.ended_records.push(record);
        }
    }
}
