// SPDX-License-Identifier: GPL-2.0

//! Tracepoint probes of process accounting.
//!
//! Most probes read a time stamp and update two groups of counters: the counters of the current CPU
//! ([`PerCpu`]), and the counters of the task that runs on this CPU ([`TaskRecord`]). A wakeup
//! updates the record of the task that is woken. The arithmetic is in `ppa_rules`, which
//! `tools/ppa-rules` tests against a model.
//!
//! Some probes run under the run-queue lock or in hard interrupts. The frequent probes (switch,
//! wakeup, system call, interrupt) take no lock and allocate nothing. Three probes of rare events
//! do more:
//!
//! - `task_newtask` allocates the record of the new task, in process context, charges the user of
//!   the task under `users_lock`, and inserts the record under `index_lock`, a raw spinlock that is
//!   taken with interrupts off;
//! - the last `sched_switch` of a task removes its record under `index_lock`;
//! - `sched_process_exit` queues a worker if the task is accounted individually.

mod task_records;

use kernel::alloc::KBox;
use kernel::prelude::*;
use ppa_rules::{Cpu, LatencyBounds, SwitchReason};
use protocols::sync::Word;

use crate::costs::SelfStat;
use crate::provider::probe::{self, *};
use crate::provider::{Handler, Probes};
use crate::sys::costs;
use crate::sys::ppa::{self, Clock, PerCpu, PerCpuTable};
use crate::sys::proc;
use crate::sys::records::{RetireList, TaskIndex, TaskRecord};
use crate::sys::sched::{self, CpusReadGuard, NoPreempt};
use crate::sys::task::TaskRef;

/// The levels of accounting that can be measured (`PPA_LEVEL_*`).
pub(crate) mod level {
    pub(crate) const SCHED: u32 = 1;
    pub(crate) const IRQ: u32 = 2;
    pub(crate) const CALLS: u32 = 4;
    pub(crate) const SWITCHES: u32 = 8;
    pub(crate) const ALL: u32 = SCHED | IRQ | CALLS | SWITCHES;
}

/// Maximum number of records of ended tasks that are not read yet. Further records are dropped and
/// counted in `lost`. [`MAX_ENDED_BYTES`] limits the bytes of the records of ended tasks in the
/// same way.
const MAX_ENDED_RECORDS: u64 = 16384;
const MAX_ENDED_BYTES: u64 = 64 << 20;

/// The state of accounting while it is on, shared by all probes.
pub(crate) struct AccountingState {
    /// The values of each CPU.
    pub(crate) per_cpu: PerCpuTable,
    /// The records of living tasks, indexed by the addresses of the tasks.
    pub(crate) index: TaskIndex,
    /// The clock of all time stamps.
    pub(crate) clock: Clock,
    /// The bounds of the latency histogram.
    pub(crate) bounds: LatencyBounds,
    /// Number of CPUs per group: a task has separate values for each group.
    pub(crate) cpus_per_group: u32,
    /// The levels that are measured.
    pub(crate) levels: u32,
    /// True if all tasks are accounted, false if only tasks with an entry in `/proc/ppa` are.
    all_tasks: bool,
    /// Nonzero if new records also count wakeup latencies in a histogram.
    pub(crate) latency_hist: Word,
    /// Records of tasks that have ended and were not read from `/dev/ppa` yet.
    pub(crate) ended: RetireList,
    /// Replaced or dropped records, which were removed from the index and which no reader will get.
    /// [`free_retired`](Self::free_retired) frees these records after a grace period.
    retired: RetireList,
    /// Number of records in the index.
    pub(crate) nr_tasks: Word,
    /// Number of records of ended tasks, in `ended` and in `Accounting::unread`.
    pub(crate) nr_ended: Word,
    /// Number of bytes of the records that `nr_ended` counts.
    ended_bytes: Word,
    /// Number of records of ended tasks that were dropped before they were read.
    pub(crate) lost: Word,
    /// Number of tasks that got no record, because memory was short or because their user would
    /// have exceeded `user_kb`.
    pub(crate) refused: Word,
}

/// Calls a function on each CPU, with interrupts off. Repeats the calls until the function returns
/// true on all CPUs.
fn retry_on_each_cpu(function: &dyn Fn() -> bool) {
    loop {
        let late = Word::new(0);
        sched::call_on_all(&|| {
            if !function() {
                add_return(&late, 1);
            }
        });
        if late.load_relaxed() == 0 {
            return;
        }
    }
}

/// Adds `more` to a number that several CPUs change, modulo 2^64. Returns the new value.
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
            bounds: LatencyBounds::new(clock.khz.into()),
            cpus_per_group: scaling,
            levels,
            all_tasks: everyone,
            latency_hist: Word::new(latencies.into()),
            ended: RetireList::new(),
            retired: RetireList::new(),
            nr_tasks: Word::new(0),
            nr_ended: Word::new(0),
            ended_bytes: Word::new(0),
            lost: Word::new(0),
            refused: Word::new(0),
        })
    }

    /// Attaches the probes of the selected levels (`PPA_LEVEL_*`), and the probes that all levels
    /// need.
    ///
    /// For interrupts, softirqs and system calls the exit probe is attached before the entry probe,
    /// so that every interval that is opened is also closed.
    pub(crate) fn attach(probes: &mut Probes<Self>) -> Result {
        let levels = probes.state().levels;
        if levels & level::IRQ != 0 {
            probes.attach::<IrqExit<'_>>()?;
            probes.attach::<SoftirqExit<'_>>()?;
            attach_vectors(probes)?;
            probes.attach::<IrqEntry<'_>>()?;
            probes.attach::<SoftirqEntry<'_>>()?;
        }
        if levels & level::CALLS != 0 {
            probes.attach::<SysExit<'_>>()?;
            probes.attach::<SysEnter<'_>>()?;
        }
        // Attach task_newtask last: once records are created, the sched_switch probe must be
        // attached to remove them.
        probes.attach::<SchedSwitch<'_>>()?;
        if levels & level::SWITCHES != 0 {
            probes.attach::<SchedExit<'_>>()?;
        }
        probes.attach::<ProcessExit<'_>>()?;
        probes.attach::<SignalDeliver<'_>>()?;
        probes.attach::<SchedWaking<'_>>()?;
        probes.attach::<SchedWakeupNew<'_>>()?;
        probes.attach::<TaskNew<'_>>()
    }

    /// Returns whether the task has a record, or has exited and needs none.
    pub(crate) fn is_tracked_or_exiting(&self, task: TaskRef<'_>) -> bool {
        task.has_ended() || self.record_of(task).is_some()
    }

    /// Returns the values of a CPU.
    pub(crate) fn cpu(&self, cpu: u32) -> Option<&Cpu> {
        self.per_cpu.cpu(cpu).map(|here| &here.words)
    }

    /// Starts accounting on each CPU, beginning with the task that runs on the CPU. May sleep.
    pub(crate) fn begin(&self) {
        retry_on_each_cpu(&|| self.begin_this_cpu());
    }

    /// Starts accounting on this CPU. Returns false if accounting cannot start now, because the
    /// system-call words of the CPU are being updated. Called with interrupts off.
    fn begin_this_cpu(&self) -> bool {
        let Some(here) = PerCpu::this_cpu() else {
            return true;
        };
        if here.words.has_begun() {
            return self.refresh_current();
        }
        if here.words.is_updating() {
            return false;
        }
        let (task, now) = (ppa::running(), self.clock.now());
        here.words.begin(task.pid() == 0, now);
        if let Some(record) = self.record_of(task) {
            record.words.attach_running(here.cpu, now);
            here.set_task(Some(record));
        }
        true
    }

    /// Frees the records in `retired` after a grace period. Must not be called under a run-queue
    /// lock.
    pub(crate) fn free_retired(&self) {
        self.retired.free_later();
    }

    /// Returns the record of a task; `None` if the task is not accounted.
    #[inline(always)]
    fn record_of(&self, task: TaskRef<'_>) -> Option<&TaskRecord> {
        self.index.get(task.address())
    }

    /// Subtracts the record of an ended task, which has `bytes` bytes, from `nr_ended` and
    /// `ended_bytes`.
    pub(crate) fn subtract_ended(&self, bytes: u64) {
        add_return(&self.nr_ended, u64::MAX);
        add_return(&self.ended_bytes, bytes.wrapping_neg());
    }

    /// Moves the record of a task to the list of ended tasks. Called at the task's last switch,
    /// with the run-queue lock held.
    ///
    /// The record is kept until `/dev/ppa` is read. If [`MAX_ENDED_RECORDS`] or [`MAX_ENDED_BYTES`]
    /// is exceeded, the record is dropped, and counted in `lost` and in the instance
    /// `perfcounters/accounting/lost`.
    #[cold]
    fn retire(&self, task: TaskRef<'_>, now: u64) {
        let Some(record) = self.index.take(task.address()) else {
            return;
        };
        record.get().words.end(now);
        add_return(&self.nr_tasks, u64::MAX);
        let bytes = record.get().bytes();
        let (nr, all) = (
            add_return(&self.nr_ended, 1),
            add_return(&self.ended_bytes, bytes),
        );
        if nr > MAX_ENDED_RECORDS || all > MAX_ENDED_BYTES {
            self.subtract_ended(bytes);
            add_return(&self.lost, 1);
            costs::count(SelfStat::RecordsLost);
            self.retired.push(record);
        } else {
            self.ended.push(record);
        }
    }
}

// The probes of `SchedSwitch`, `SchedExit` and `SchedWaking` are the most frequent probes. The fast
// paths of these probes call no function, so the compiler saves few registers. The slow paths are
// separate functions, which are called as the last statement.

impl Handler<SchedSwitch<'_>> for AccountingState {
    #[inline(always)]
    fn on(&self, event: SchedSwitch<'_>) {
        let Some(here) = PerCpu::this_cpu() else {
            return;
        };
        let after = self.record_of(event.next);
        here.words.begin_switch();
        if let Some(record) = after {
            record.words.begin_switch_in();
        }
        if !event.blocks {
            return self.switch_slow(here, (event.next, after), false, event.is_dead);
        }
        if event.is_dead {
            return self.switch_slow(here, (event.next, after), true, true);
        }
        let now = self.clock.now_fast();
        let turn = now.and_then(|now| Some((now, here.words.uninterrupted_run(now)?)));
        let Some((now, own)) = turn else {
            return self.switch_slow(here, (event.next, after), true, false);
        };
        let before = here.task();
        here.words.switch_fast(
            own,
            here.cpu,
            (before.map(|record| &record.words), SwitchReason::Blocked),
            (after.map(|record| &record.words), &self.bounds),
            || event.next.pid() == 0,
            now,
        );
        here.set_task(after);
    }
}

impl Handler<SchedExit<'_>> for AccountingState {
    #[inline(always)]
    fn on(&self, event: SchedExit<'_>) {
        match self.clock.now_fast() {
            Some(now) => self.switched(event.is_switch, now),
            None => self.switched_slow(event.is_switch),
        }
    }
}

impl Handler<SchedWaking<'_>> for AccountingState {
    #[inline(always)]
    fn on(&self, event: SchedWaking<'_>) {
        match self.clock.now_fast() {
            Some(now) => self.wake(event.task, now),
            None => self.wake_slow(event.task),
        }
    }
}

impl Handler<SchedWakeupNew<'_>> for AccountingState {
    #[inline]
    fn on(&self, event: SchedWakeupNew<'_>) {
        self.wake_slow(event.task);
    }
}

impl AccountingState {
    /// Handles a switch for which the fast path of the `SchedSwitch` probe does not suffice.
    /// `begin_switch()` was called before.
    #[inline(never)]
    fn switch_slow(
        &self,
        here: &PerCpu,
        (after, record): (TaskRef<'_>, Option<&TaskRecord>),
        blocks: bool,
        dies: bool,
    ) {
        // At the sched_switch tracepoint the previous task is still the current task.
        let (before, now) = (ppa::running(), self.clock.now());
        let leave = if blocks {
            SwitchReason::Blocked
        } else if after.urgency() < before.urgency() {
            SwitchReason::Preempted
        } else if before.is_slice_over() || before.yields() {
            SwitchReason::Expired
        } else {
            SwitchReason::Preempted
        };
        let task = here.task();
        here.words.switch(
            here.cpu,
            (task.map(|record| &record.words), leave),
            (record.map(|record| &record.words), &self.bounds),
            || after.pid() == 0,
            now,
        );
        here.set_task(record);
        if dies {
            self.retire(before, now);
        }
    }

    /// Adds the duration of a switch to the values of the task that now runs, or counts a call of
    /// the scheduler that did not switch.
    #[inline(always)]
    fn switched(&self, is_switch: bool, now: u64) {
        let Some(here) = PerCpu::this_cpu() else {
            return;
        };
        if let Some(record) = here.task() {
            here.words.switched(&record.words, is_switch, now);
        }
    }

    #[inline(never)]
    fn switched_slow(&self, is_switch: bool) {
        self.switched(is_switch, self.clock.now());
    }

    /// Records the time at which a task is woken.
    #[inline(always)]
    fn wake(&self, task: TaskRef<'_>, now: u64) {
        if let Some(record) = self.record_of(task) {
            record.words.wake(now);
        }
    }

    #[inline(never)]
    fn wake_slow(&self, task: TaskRef<'_>) {
        self.wake(task, self.clock.now());
    }
}

impl Handler<TaskNew<'_>> for AccountingState {
    fn on(&self, event: TaskNew<'_>) {
        self.free_retired();
        if !self.all_tasks {
            return;
        }
        // A new user task starts inside a system call, because it first returns from its parent's
        // fork.
        let calls = self.levels & level::CALLS != 0;
        let _ = self.add(event.task, calls && !event.task.is_kernel());
    }
}

impl Handler<ProcessExit<'_>> for AccountingState {
    fn on(&self, _: ProcessExit<'_>) {
        let _preempt = NoPreempt::new();
        if let Some(record) = PerCpu::this_cpu().and_then(PerCpu::task) {
            record.save_ids(ppa::running());
            if record.individually_accounted {
                proc::queue_worker();
            }
        }
    }
}

impl Handler<SignalDeliver<'_>> for AccountingState {
    fn on(&self, event: SignalDeliver<'_>) {
        if let Some(record) = PerCpu::this_cpu().and_then(PerCpu::task) {
            record.words.count_signal(event.number as usize);
        }
    }
}

impl Handler<SysEnter<'_>> for AccountingState {
    #[inline]
    fn on(&self, _: SysEnter<'_>) {
        let _preempt = NoPreempt::new();
        let Some(here) = PerCpu::this_cpu() else {
            return;
        };
        let task = here.task().map(|record| &record.words);
        here.words.syscall_enter(task, || self.clock.now());
    }
}

impl Handler<SysExit<'_>> for AccountingState {
    #[inline]
    fn on(&self, _: SysExit<'_>) {
        let _preempt = NoPreempt::new();
        let Some(here) = PerCpu::this_cpu() else {
            return;
        };
        let task = here.task().map(|record| &record.words);
        here.words.syscall_exit(task, || self.clock.now());
    }
}

impl Handler<IrqEntry<'_>> for AccountingState {
    #[inline]
    fn on(&self, event: IrqEntry<'_>) {
        self.irq_enter(event.action.is_first(event.irq));
    }
}

impl Handler<IrqExit<'_>> for AccountingState {
    #[inline]
    fn on(&self, _: IrqExit<'_>) {
        self.irq_exit();
    }
}

impl Handler<SoftirqEntry<'_>> for AccountingState {
    #[inline]
    fn on(&self, event: SoftirqEntry<'_>) {
        let Some(here) = PerCpu::this_cpu() else {
            return;
        };
        let own = here.is_softirqd();
        here.words
            .softirq_enter(event.vector as usize, own, || self.clock.now());
    }
}

impl Handler<SoftirqExit<'_>> for AccountingState {
    #[inline]
    fn on(&self, _: SoftirqExit<'_>) {
        let Some(here) = PerCpu::this_cpu() else {
            return;
        };
        here.words.softirq_exit(|| self.clock.now());
    }
}

impl AccountingState {
    #[inline]
    fn irq_enter(&self, is_first: bool) {
        if let Some(here) = PerCpu::this_cpu() {
            here.words.irq_enter(is_first, || self.clock.now());
        }
    }

    #[inline]
    fn irq_exit(&self) {
        if let Some(here) = PerCpu::this_cpu() {
            here.words.irq_exit(|| self.clock.now());
        }
    }
}

macro_rules! vectors {
    ($($entry:ident $exit:ident)*) => {
        $(
            impl Handler<$entry<'_>> for AccountingState {
                #[inline]
                fn on(&self, _: $entry<'_>) {
                    self.irq_enter(true);
                }
            }
            impl Handler<$exit<'_>> for AccountingState {
                #[inline]
                fn on(&self, _: $exit<'_>) {
                    self.irq_exit();
                }
            }
        )*

        fn attach_vectors(probes: &mut Probes<AccountingState>) -> Result {
            $(
                probes.attach::<probe::$exit<'_>>()?;
                probes.attach::<probe::$entry<'_>>()?;
            )*
            Ok(())
        }
    };
}

vectors! {
    LocalTimer LocalTimerExit
    Reschedule RescheduleExit
    CallFunction CallFunctionExit
    CallFunctionSingle CallFunctionSingleExit
    IrqWork IrqWorkExit
    PlatformIpi PlatformIpiExit
    ErrorApic ErrorApicExit
    SpuriousApic SpuriousApicExit
    ThermalApic ThermalApicExit
    ThresholdApic ThresholdApicExit
    DeferredErrorApic DeferredErrorApicExit
}
