// SPDX-License-Identifier: GPL-2.0

//! Tracepoint probes of process accounting.
//!
//! Most probes read a time stamp and update two groups of counters: those of the current CPU
//! ([`Here`]) and those of the task that runs on it ([`Record`]); a wakeup updates the record of
//! the task that is woken. The arithmetic is in `engine::accounting`, which `tools/engine` tests
//! against a model.
//!
//! Some probes run under the run-queue lock or in hard interrupts. The frequent ones (switch,
//! wakeup, system call, interrupt) take no lock and allocate nothing. Three rare ones do more:
//!
//! - `task_newtask` allocates the record of the new task, in process context, charges the user of
//!   the task under `users_lock`, and inserts the record under `index_lock`, a raw spinlock that is
//!   taken with interrupts off;
//! - the last `sched_switch` of a task removes its record under `index_lock`;
//! - `sched_process_exit` queues a worker if the task is accounted individually.

use engine::accounting::{Bounds, Cpu, Leave};
use engine::sync::Word;
use kernel::alloc::KBox;
use kernel::prelude::*;

use crate::costs::Cost;
use crate::provider::probe::{self, *};
use crate::provider::{Handler, Probes};
use crate::sys::costs;
use crate::sys::ppa::{self, Clock, Here, Heres};
use crate::sys::proc;
use crate::sys::records::{Index, List, Record};
use crate::sys::sched::{self, CpusStay, NoPreempt};
use crate::sys::task::TaskRef;

/// The levels that can be measured: `PPA_LEVEL_*`.
pub(crate) mod level {
    pub(crate) const SCHED: u32 = 1;
    pub(crate) const IRQ: u32 = 2;
    pub(crate) const CALLS: u32 = 4;
    pub(crate) const SWITCHES: u32 = 8;
    pub(crate) const ALL: u32 = SCHED | IRQ | CALLS | SWITCHES;
}

/// Limits for the list of ended tasks: records, and bytes. Beyond them records are dropped and
/// counted in `lost`.
const ENDED: u64 = 16384;
const ENDED_BYTES: u64 = 64 << 20;

/// The state of accounting while it is on, shared by all probes.
pub(crate) struct Accounts {
    /// The values of each CPU.
    pub(crate) heres: Heres,
    /// The records of living tasks, by the addresses of the tasks.
    pub(crate) index: Index,
    /// The clock of all time stamps.
    pub(crate) clock: Clock,
    /// The bounds of the latency histogram.
    pub(crate) bounds: Bounds,
    /// CPUs per group: a task has one set of values for each group.
    pub(crate) scaling: u32,
    /// The levels that are measured.
    pub(crate) levels: u32,
    /// Every task is accounted; otherwise only those with an entry in `/proc/ppa`.
    everyone: bool,
    /// New records also count wakeup latencies by length, in a histogram.
    pub(crate) latencies: Word,
    /// Records of tasks that have ended and were not read from `/dev/ppa` yet.
    pub(crate) ended: List,
    /// Records that were removed from the index and that no reader will get: replaced or dropped
    /// ones. [`sweep`](Self::sweep) frees them after a grace period.
    spent: List,
    /// Number of records in the index.
    pub(crate) nr_tasks: Word,
    /// Number of records of ended tasks, in `ended` and on their way to a reader.
    pub(crate) nr_ended: Word,
    /// Bytes of these records.
    ended_bytes: Word,
    /// Number of records of ended tasks that were dropped.
    pub(crate) lost: Word,
    /// Number of tasks that got no record for lack of memory, or by the limit of their user.
    pub(crate) refused: Word,
}

/// Calls a function on each CPU, with interrupts off. Repeats this until it returns true on all.
fn on_all(function: &dyn Fn() -> bool) {
    loop {
        let late = Word::new(0);
        sched::call_on_all(&|| {
            if !function() {
                count(&late, 1);
            }
        });
        if late.load_relaxed() == 0 {
            return;
        }
    }
}

/// Adds to a number that several CPUs change, modulo 2^64. Returns the new value.
pub(crate) fn count(word: &Word, more: u64) -> u64 {
    loop {
        let old = word.load_relaxed();
        let new = old.wrapping_add(more);
        if word.replace(old, new) {
            return new;
        }
    }
}

impl Accounts {
    /// Creates the state for groups of `scaling` CPUs.
    pub(crate) fn new(everyone: bool, levels: u32, scaling: u32, latencies: bool) -> Result<Self> {
        let clock = Clock::choose();
        Ok(Self {
            heres: Heres::new(clock)?,
            index: Index::new()?,
            clock,
            bounds: Bounds::new(clock.khz.into()),
            scaling,
            levels,
            everyone,
            latencies: Word::new(latencies.into()),
            ended: List::new(),
            spent: List::new(),
            nr_tasks: Word::new(0),
            nr_ended: Word::new(0),
            ended_bytes: Word::new(0),
            lost: Word::new(0),
            refused: Word::new(0),
        })
    }

    /// Attaches the probes of the selected levels (`PPA_LEVEL_*`), and those that all levels need.
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
        // task_newtask last: once records are created, sched_switch must be there to remove them.
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

    /// Creates and inserts the record of a task. May sleep. `ENOMEM`, `EDQUOT`.
    pub(crate) fn add(&self, task: TaskRef<'_>, calling: bool) -> Result {
        let latencies = self.latencies.load_relaxed() != 0;
        let record = Record::new(task, calling, self.scaling, latencies, self.clock.now())
            .inspect_err(|_| {
                count(&self.refused, 1);
            })?;
        let rejected = {
            let _preempt = NoPreempt::new();
            self.enter(record, task)
        };
        drop(rejected);
        Ok(())
    }

    /// Adds a record to the index. Returns it to the caller if the task already has one.
    ///
    /// Context: preemption off, or inside an RCU read-side critical section.
    fn enter(&self, record: KBox<Record>, task: TaskRef<'_>) -> Option<KBox<Record>> {
        let rejected = self.index.insert(record);
        if rejected.is_some() {
            return rejected;
        }
        count(&self.nr_tasks, 1);
        // If the task's last sched_switch came before the insertion, no probe will remove this
        // record; remove it here. If that switch is still to come, either side may win: take()
        // gives the record to one of them only. A CPU may still use the record for a dead task, but
        // with preemption off until the task's last switch, so the grace period waits for that. A
        // task that is exiting but not dead keeps its record, which its CPU uses with preemption
        // on.
        if task.is_dead() {
            if let Some(record) = self.index.take(task.address()) {
                count(&self.nr_tasks, u64::MAX);
                self.spent.push(record);
            }
        }
        None
    }

    /// Adds the record of a task that may be in a system call, like [`enter`](Self::enter).
    ///
    /// Whether it is in a system call is found out after the insertion, and only for a task that
    /// does not run: a running one may leave the call at any time.
    pub(crate) fn enter_found(
        &self,
        record: KBox<Record>,
        task: TaskRef<'_>,
    ) -> Option<KBox<Record>> {
        let rejected = self.enter(record, task);
        if self.levels & level::CALLS != 0 && task.is_in_call() {
            if let Some(record) = self.record_of(task) {
                record.words.set_calling();
            }
        }
        rejected
    }

    /// Returns whether the task has a record, or has exited and needs none.
    pub(crate) fn knows(&self, task: TaskRef<'_>) -> bool {
        task.has_ended() || self.record_of(task).is_some()
    }

    /// Returns the values of a CPU.
    pub(crate) fn words_of(&self, cpu: u32) -> Option<&Cpu> {
        self.heres.of(cpu).map(|here| &here.words)
    }

    /// Gives a task a new record of its own settings. May sleep. `ENOMEM`, or `EDQUOT` if the user
    /// of the task would exceed `user_kb`.
    pub(crate) fn account(&self, task: TaskRef<'_>, scaling: u32, latencies: bool) -> Result {
        let mut record = Record::new(task, false, scaling, latencies, self.clock.now())?;
        record.own = true;
        self.change(task, Some(record));
        Ok(())
    }

    /// Ends the individual accounting of a task. If all tasks are accounted, it gets a new record
    /// with the common settings, unless its user would exceed `user_kb`. May sleep. `ENOMEM`.
    pub(crate) fn release(&self, task: TaskRef<'_>) -> Result {
        let latencies = self.latencies.load_relaxed() != 0;
        let record = match self.everyone && !task.has_ended() {
            true => {
                let now = self.clock.now();
                match Record::new(task, false, self.scaling, latencies, now) {
                    Err(error) if error == EDQUOT => {
                        count(&self.refused, 1);
                        None
                    }
                    record => Some(record?),
                }
            }
            false => None,
        };
        self.change(task, record);
        Ok(())
    }

    /// Replaces or removes the record of a task. May sleep.
    fn change(&self, task: TaskRef<'_>, record: Option<KBox<Record>>) {
        // With the hotplug lock held, on_all() reaches every CPU that may use the old record. A CPU
        // that is offline has dropped its reference in cpu_is_gone().
        let _cpus = CpusStay::new();
        let before = self.index.take(task.address());
        if before.is_some() {
            count(&self.nr_tasks, u64::MAX);
        }
        let rejected = record.and_then(|record| {
            let _preempt = NoPreempt::new();
            self.enter_found(record, task)
        });
        drop(rejected);
        // A CPU on which the task runs still uses the old record; elsewhere the next switch looks
        // the record up.
        on_all(&|| self.look_again());
        if let Some(before) = before {
            self.spent.push(before);
            self.sweep();
        }
    }

    /// Looks up the record of the task that runs on this CPU again. Returns false if that is not
    /// possible now, as the CPU's system-call values are being updated. Interrupts off.
    fn look_again(&self) -> bool {
        let Some(here) = Here::get() else { return true };
        let found = self.record_of(ppa::running());
        let address = |record: Option<&Record>| record.map(core::ptr::from_ref);
        if address(found) == address(here.task()) {
            return true;
        }
        if here.words.is_looked_at() {
            return false;
        }
        let words = found.map(|record| &record.words);
        here.words.begin_switch();
        here.words.replace(here.cpu, words, self.clock.now());
        here.set_task(found);
        true
    }

    /// Starts accounting on each CPU, with the task that runs there. May sleep.
    pub(crate) fn begin(&self) {
        on_all(&|| self.begin_here());
    }

    /// Starts accounting on this CPU. Returns false if that is not possible now. Interrupts off.
    fn begin_here(&self) -> bool {
        let Some(here) = Here::get() else { return true };
        if here.words.has_begun() {
            return self.look_again();
        }
        if here.words.is_looked_at() {
            return false;
        }
        let (task, now) = (ppa::running(), self.clock.now());
        here.words.begin(task.pid() == 0, now);
        if let Some(record) = self.record_of(task) {
            record.words.adopt(here.cpu, now);
            here.set_task(Some(record));
        }
        true
    }

    /// Frees the records in `spent` after a grace period. Not under a run-queue lock.
    pub(crate) fn sweep(&self) {
        self.spent.free_later();
    }

    /// Returns the record of a task.
    #[inline(always)]
    fn record_of(&self, task: TaskRef<'_>) -> Option<&Record> {
        self.index.get(task.address())
    }

    /// Subtracts the record of an ended task, which has this many bytes, from the totals.
    pub(crate) fn forget(&self, bytes: u64) {
        count(&self.nr_ended, u64::MAX);
        count(&self.ended_bytes, bytes.wrapping_neg());
    }

    /// Moves the record of a task to the list of ended tasks. Called at the task's last switch,
    /// with the run-queue lock held.
    ///
    /// The record is kept until `/dev/ppa` is read. If [`ENDED`] or [`ENDED_BYTES`] is exceeded it
    /// is dropped, and counted in `lost` and in the instance `perfcounters/accounting/lost`.
    #[cold]
    fn bury(&self, task: TaskRef<'_>, now: u64) {
        let Some(record) = self.index.take(task.address()) else {
            return;
        };
        record.get().words.end(now);
        count(&self.nr_tasks, u64::MAX);
        let bytes = record.get().bytes();
        let (nr, all) = (count(&self.nr_ended, 1), count(&self.ended_bytes, bytes));
        if nr > ENDED || all > ENDED_BYTES {
            self.forget(bytes);
            count(&self.lost, 1);
            costs::count(Cost::RecordsLost);
            self.spent.push(record);
        } else {
            self.ended.push(record);
        }
    }
}

// The next three probes are the most frequent ones. Their fast paths call no function, so the
// compiler saves few registers. All other work is in separate functions, which are called last.

impl Handler<SchedSwitch<'_>> for Accounts {
    #[inline(always)]
    fn on(&self, event: SchedSwitch<'_>) {
        let Some(here) = Here::get() else { return };
        let after = self.record_of(event.after);
        here.words.begin_switch();
        if let Some(record) = after {
            record.words.comes();
        }
        if !event.blocks {
            return self.switch_else(here, (event.after, after), false, event.dies);
        }
        if event.dies {
            return self.switch_else(here, (event.after, after), true, true);
        }
        let now = self.clock.quick();
        let turn = now.and_then(|now| Some((now, here.words.quiet_turn(now)?)));
        let Some((now, own)) = turn else {
            return self.switch_else(here, (event.after, after), true, false);
        };
        let before = here.task();
        here.words.switch_quiet(
            own,
            here.cpu,
            (before.map(|record| &record.words), Leave::Blocked),
            (after.map(|record| &record.words), &self.bounds),
            || event.after.pid() == 0,
            now,
        );
        here.set_task(after);
    }
}

impl Handler<SchedExit<'_>> for Accounts {
    #[inline(always)]
    fn on(&self, event: SchedExit<'_>) {
        match self.clock.quick() {
            Some(now) => self.switched(event.is_switch, now),
            None => self.switched_else(event.is_switch),
        }
    }
}

impl Handler<SchedWaking<'_>> for Accounts {
    #[inline(always)]
    fn on(&self, event: SchedWaking<'_>) {
        match self.clock.quick() {
            Some(now) => self.wake(event.task, now),
            None => self.wake_else(event.task),
        }
    }
}

impl Handler<SchedWakeupNew<'_>> for Accounts {
    #[inline]
    fn on(&self, event: SchedWakeupNew<'_>) {
        self.wake_else(event.task);
    }
}

impl Accounts {
    /// Handles every switch that is not on the fast path. `begin_switch()` was called before.
    #[inline(never)]
    fn switch_else(
        &self,
        here: &Here,
        (after, record): (TaskRef<'_>, Option<&Record>),
        blocks: bool,
        dies: bool,
    ) {
        // At this tracepoint the previous task is still the current one.
        let (before, now) = (ppa::running(), self.clock.now());
        let leave = if blocks {
            Leave::Blocked
        } else if after.urgency() < before.urgency() {
            Leave::Preempted
        } else if before.is_slice_over() || before.yields() {
            Leave::Expired
        } else {
            Leave::Preempted
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
            self.bury(before, now);
        }
    }

    /// Adds the time of a switch to the next task's values, or counts a call of the scheduler that
    /// did not switch.
    #[inline(always)]
    fn switched(&self, is_switch: bool, now: u64) {
        let Some(here) = Here::get() else { return };
        if let Some(record) = here.task() {
            here.words.switched(&record.words, is_switch, now);
        }
    }

    #[inline(never)]
    fn switched_else(&self, is_switch: bool) {
        self.switched(is_switch, self.clock.now());
    }

    /// Notes the time at which a task is woken.
    #[inline(always)]
    fn wake(&self, task: TaskRef<'_>, now: u64) {
        if let Some(record) = self.record_of(task) {
            record.words.wake(now);
        }
    }

    #[inline(never)]
    fn wake_else(&self, task: TaskRef<'_>) {
        self.wake(task, self.clock.now());
    }
}

impl Handler<TaskNew<'_>> for Accounts {
    fn on(&self, event: TaskNew<'_>) {
        self.sweep();
        if !self.everyone {
            return;
        }
        // A new user task starts inside a system call, as it returns from its parent's fork.
        let calls = self.levels & level::CALLS != 0;
        let _ = self.add(event.task, calls && !event.task.is_kernel());
    }
}

impl Handler<ProcessExit<'_>> for Accounts {
    fn on(&self, _: ProcessExit<'_>) {
        let _preempt = NoPreempt::new();
        if let Some(record) = Here::get().and_then(Here::task) {
            record.keep(ppa::running());
            if record.own {
                proc::queue_worker();
            }
        }
    }
}

impl Handler<SignalDeliver<'_>> for Accounts {
    fn on(&self, event: SignalDeliver<'_>) {
        if let Some(record) = Here::get().and_then(Here::task) {
            record.words.signal(event.number as usize);
        }
    }
}

impl Handler<SysEnter<'_>> for Accounts {
    #[inline]
    fn on(&self, _: SysEnter<'_>) {
        let _preempt = NoPreempt::new();
        let Some(here) = Here::get() else { return };
        let task = here.task().map(|record| &record.words);
        here.words.call(task, || self.clock.now());
    }
}

impl Handler<SysExit<'_>> for Accounts {
    #[inline]
    fn on(&self, _: SysExit<'_>) {
        let _preempt = NoPreempt::new();
        let Some(here) = Here::get() else { return };
        let task = here.task().map(|record| &record.words);
        here.words.call_ends(task, || self.clock.now());
    }
}

impl Handler<IrqEntry<'_>> for Accounts {
    #[inline]
    fn on(&self, event: IrqEntry<'_>) {
        self.interrupt(event.action.is_first(event.irq));
    }
}

impl Handler<IrqExit<'_>> for Accounts {
    #[inline]
    fn on(&self, _: IrqExit<'_>) {
        self.interrupt_ends();
    }
}

impl Handler<SoftirqEntry<'_>> for Accounts {
    #[inline]
    fn on(&self, event: SoftirqEntry<'_>) {
        let Some(here) = Here::get() else { return };
        let own = here.is_softirqd();
        here.words
            .softirq(event.vector as usize, own, || self.clock.now());
    }
}

impl Handler<SoftirqExit<'_>> for Accounts {
    #[inline]
    fn on(&self, _: SoftirqExit<'_>) {
        let Some(here) = Here::get() else { return };
        here.words.softirq_ends(|| self.clock.now());
    }
}

impl Accounts {
    #[inline]
    fn interrupt(&self, is_first: bool) {
        if let Some(here) = Here::get() {
            here.words.interrupt(is_first, || self.clock.now());
        }
    }

    #[inline]
    fn interrupt_ends(&self) {
        if let Some(here) = Here::get() {
            here.words.interrupt_ends(|| self.clock.now());
        }
    }
}

macro_rules! vectors {
    ($($entry:ident $exit:ident)*) => {
        $(
            impl Handler<$entry<'_>> for Accounts {
                #[inline]
                fn on(&self, _: $entry<'_>) {
                    self.interrupt(true);
                }
            }
            impl Handler<$exit<'_>> for Accounts {
                #[inline]
                fn on(&self, _: $exit<'_>) {
                    self.interrupt_ends();
                }
            }
        )*

        fn attach_vectors(probes: &mut Probes<Accounts>) -> Result {
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
