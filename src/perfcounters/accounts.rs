// SPDX-License-Identifier: GPL-2.0

//! Process accounting's probes: what the kernel does, told to the engine's words of this
//! CPU and of the task that runs. Nothing is allocated, no lock is taken, no interrupt
//! turned off in them, but that a new task's record is made where it is forked.

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

/// What is measured: `PPA_LEVEL_*`.
pub(crate) mod level {
    pub(crate) const SCHED: u32 = 1;
    pub(crate) const IRQ: u32 = 2;
    pub(crate) const CALLS: u32 = 4;
    pub(crate) const SWITCHES: u32 = 8;
    pub(crate) const ALL: u32 = SCHED | IRQ | CALLS | SWITCHES;
}

/// Records of tasks that have ended, at most: until they are read; and their bytes.
const ENDED: u64 = 16384;
const ENDED_BYTES: u64 = 64 << 20;

/// What the probes know.
pub(crate) struct Accounts {
    pub(crate) heres: Heres,
    pub(crate) index: Index,
    pub(crate) clock: Clock,
    pub(crate) bounds: Bounds,
    /// CPUs of a group.
    pub(crate) scaling: u32,
    pub(crate) levels: u32,
    /// All tasks are accounted.
    everyone: bool,
    /// New tasks' latencies are told apart.
    pub(crate) latencies: Word,
    /// They ended, and were not read yet.
    pub(crate) ended: List,
    /// They are not needed any more.
    spent: List,
    pub(crate) nr_tasks: Word,
    pub(crate) nr_ended: Word,
    ended_bytes: Word,
    pub(crate) lost: Word,
    pub(crate) refused: Word,
}

/// Calls a function on each CPU, with interrupts off, until all of them say that it is done.
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

/// Changes a number that several CPUs change; 64 bits, modulo 2^64.
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
    /// For CPUs in groups of so many.
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

    /// The probes of its levels: the ends first, so that nothing begins without an end.
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
        // New tasks last: what takes a record out when its task ends is there before.
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

    /// A new record of a task. May sleep.
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

    /// Puts a record in, or gives it back if its task has one. Preemption off, or under RCU.
    fn enter(&self, record: KBox<Record>, task: TaskRef<'_>) -> Option<KBox<Record>> {
        let rejected = self.index.insert(record);
        if rejected.is_some() {
            return rejected;
        }
        count(&self.nr_tasks, 1);
        // Nobody buries one that had run for the last time before: then it is ours still.
        if task.has_ended() {
            if let Some(record) = self.index.take(task.address()) {
                count(&self.nr_tasks, u64::MAX);
                self.spent.push(record);
            }
        }
        None
    }

    /// The same of a task that may be in a system call. As it may run and leave it
    /// meanwhile, this is told afterwards, and only to one that does not run.
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

    /// Has it a record, or needs none any more?
    pub(crate) fn knows(&self, task: TaskRef<'_>) -> bool {
        task.has_ended() || self.record_of(task).is_some()
    }

    /// A CPU's words.
    pub(crate) fn words_of(&self, cpu: u32) -> Option<&Cpu> {
        self.heres.of(cpu).map(|here| &here.words)
    }

    /// A task is accounted anew, by itself. May sleep.
    pub(crate) fn account(&self, task: TaskRef<'_>, scaling: u32, latencies: bool) -> Result {
        let mut record = Record::new(task, false, scaling, latencies, self.clock.now())?;
        record.own = true;
        self.change(task, Some(record));
        Ok(())
    }

    /// It is no longer accounted by itself, but as all are. May sleep.
    pub(crate) fn release(&self, task: TaskRef<'_>) -> Result {
        let latencies = self.latencies.load_relaxed() != 0;
        let record = match self.everyone && !task.has_ended() {
            true => {
                let now = self.clock.now();
                Some(Record::new(task, false, self.scaling, latencies, now)?)
            }
            false => None,
        };
        self.change(task, record);
        Ok(())
    }

    fn change(&self, task: TaskRef<'_>, record: Option<KBox<Record>>) {
        // What a CPU that goes has last is taken from it when it is gone.
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
        // Where it runs, its CPU has the one before; elsewhere it is found anew.
        on_all(&|| self.look_again());
        if let Some(before) = before {
            self.spent.push(before);
            self.sweep();
        }
    }

    /// A CPU looks again for the record of what runs there. On it, interrupts off.
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

    /// Each CPU's accounting begins with what runs there. May sleep.
    pub(crate) fn begin(&self) {
        on_all(&|| self.begin_here());
    }

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

    /// Has freed what nobody needs any more. Not under a run-queue lock.
    pub(crate) fn sweep(&self) {
        self.spent.free_later();
    }

    #[inline(always)]
    fn record_of(&self, task: TaskRef<'_>) -> Option<&Record> {
        self.index.get(task.address())
    }

    /// One that has ended, of so many bytes, is kept no longer.
    pub(crate) fn forget(&self, bytes: u64) {
        count(&self.nr_ended, u64::MAX);
        count(&self.ended_bytes, bytes.wrapping_neg());
    }

    /// Its task has run for the last time.
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

// The kernel calls these three at each switch. What they do most often calls nothing, and so
// saves few registers; all else is a function of its own, called at their ends.

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
    /// Any switch, which has begun.
    #[inline(never)]
    fn switch_else(
        &self,
        here: &Here,
        (after, record): (TaskRef<'_>, Option<&Record>),
        blocks: bool,
        dies: bool,
    ) {
        // At this tracepoint the task before is still the one that runs.
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
        // A user's task begins at the end of its parent's call.
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
