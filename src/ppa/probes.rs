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
//! take locks, allocate memory or queue a worker:
//!
//! - `task_newtask` allocates the record of the new task, in process context. The allocation does
//!   not sleep, because removing a probe of any tracepoint waits until no probe runs. The probe
//!   charges the record's memory to the user of the task under `users_lock`, and inserts the record
//!   under `index_lock`, a raw spinlock that is taken with interrupts off;
//! - the last `sched_switch` of a task removes its record under `index_lock`;
//! - `sched_process_exit` ends the charge of the record's memory under `users_lock`, and queues a
//!   worker if the task is accounted individually.
//!
//! The probes of page faults, signals and `sys_exit` may arm a notifier of the return to user mode
//! (`user_return.rs`).

use kernel::prelude::*;
use ppa_rules::SwitchReason;

use crate::per_cpu::PerCpu;
use crate::state::{level, AccountingState};
use crate::task_record::TaskRecord;
use crate::user_return::{self, arm_user_return_report};
use crate::worker;
use base::preempt::NoPreempt;
use base::task::{self, TaskRef};
use base::tracepoint::{self, *};
use base::tracepoint::{EventHandler, Probes};

impl AccountingState {
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
            attach_vector_probes(probes)?;
            probes.attach::<IrqEntry<'_>>()?;
            probes.attach::<SoftirqEntry<'_>>()?;
        }
        if levels & level::CALLS != 0 {
            probes.attach::<SysExit<'_>>()?;
            probes.attach::<SysEnter<'_>>()?;
            if user_return::is_supported() {
                probes.attach::<PageFaultUser<'_>>()?;
            }
        }
        // Attach task_newtask last: its probe creates records, which the sched_switch probe
        // removes, so the sched_switch probe must be attached before.
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
}

// The probes of `SchedSwitch`, `SchedExit` and `SchedWaking` are the most frequent probes. The fast
// paths of these probes call no function, so the compiler saves few registers. Each slow path is a
// separate function, which its fast path calls as the last statement.

impl EventHandler<SchedSwitch<'_>> for AccountingState {
    #[inline(always)]
    fn handle_event(&self, event: SchedSwitch<'_>) {
        let Some(here) = PerCpu::this_cpu() else {
            return;
        };
        if !event.prev_state.blocks_in_low_state() {
            return self.switch_from_other_task_state(here, event.next, event.prev_state);
        }
        match self.record_of(event.next) {
            Some(record) => self.switch_from_blocking(here, event.next, Some(record)),
            None => self.switch_from_blocking(here, event.next, None),
        }
    }
}

impl EventHandler<SchedExit<'_>> for AccountingState {
    #[inline(always)]
    fn handle_event(&self, event: SchedExit<'_>) {
        match self.clock.now_if_tsc() {
            Some(now) => self.end_schedule_call(event.is_switch, now),
            None => self.end_schedule_call_slow(event.is_switch),
        }
    }
}

impl EventHandler<SchedWaking<'_>> for AccountingState {
    #[inline(always)]
    fn handle_event(&self, event: SchedWaking<'_>) {
        match self.clock.now_if_tsc() {
            Some(now) => self.wake(event.task, now),
            None => self.wake_slow(event.task),
        }
    }
}

impl EventHandler<SchedWakeupNew<'_>> for AccountingState {
    #[inline]
    fn handle_event(&self, event: SchedWakeupNew<'_>) {
        self.wake_slow(event.task);
    }
}

impl AccountingState {
    /// Handles a switch from a task that blocks. `record` is the record of the next task, `after`.
    /// If the clock is not the TSC, or if interrupts occurred during the run, calls
    /// [`switch_slow`](Self::switch_slow).
    #[inline(always)]
    fn switch_from_blocking(&self, here: &PerCpu, after: TaskRef<'_>, record: Option<&TaskRecord>) {
        begin_switch(here, record);
        let now = self.clock.now_if_tsc();
        let turn = now.and_then(|now| Some((now, here.cpu_state.uninterrupted_run_ticks(now)?)));
        let Some((now, own)) = turn else {
            return self.switch_slow(here, (after, record), true, false);
        };
        let before = here.task();
        let in_kernel = here.cpu_state.switch_fast(
            own,
            (
                before.map(|record| &record.task_state),
                SwitchReason::Blocked,
            ),
            (
                record.map(|record| &record.task_state),
                &self.latency_bounds,
            ),
            || after.pid() == 0,
            now,
        );
        here.set_task(record);
        if in_kernel {
            arm_user_return_report();
        }
    }

    /// Handles a switch from a task that does not block, that is dead, or that blocks in a state
    /// other than those of [`PreviousState::blocks_in_low_state`].
    #[inline(never)]
    fn switch_from_other_task_state(
        &self,
        here: &PerCpu,
        after: TaskRef<'_>,
        state: PreviousState,
    ) {
        let record = self.record_of(after);
        begin_switch(here, record);
        self.switch_slow(
            here,
            (after, record),
            state.blocks_or_exits(),
            state.is_dead(),
        );
    }

    /// Handles a switch that [`switch_from_blocking`](Self::switch_from_blocking) cannot handle.
    /// The caller has called `begin_switch()`.
    #[inline(never)]
    fn switch_slow(
        &self,
        here: &PerCpu,
        (after, record): (TaskRef<'_>, Option<&TaskRecord>),
        blocks: bool,
        dies: bool,
    ) {
        // At the sched_switch tracepoint the previous task is still the current task.
        let (before, now) = (task::current_task_ref(), self.clock.now());
        let leave = if blocks {
            SwitchReason::Blocked
        } else if after.prio_without_nice() < before.prio_without_nice() {
            SwitchReason::Preempted
        } else if before.is_slice_over() || before.is_in_sched_yield() {
            SwitchReason::Expired
        } else {
            SwitchReason::Preempted
        };
        let task = here.task();
        let in_kernel = here.cpu_state.switch(
            (task.map(|record| &record.task_state), leave),
            (
                record.map(|record| &record.task_state),
                &self.latency_bounds,
            ),
            || after.pid() == 0,
            now,
        );
        here.set_task(record);
        if in_kernel {
            arm_user_return_report();
        }
        if dies {
            self.move_to_ended_tasks(before, now);
        }
    }

    /// Adds the duration of a switch to the values of the task that now runs, or counts a call of
    /// the scheduler that did not switch.
    #[inline(always)]
    fn end_schedule_call(&self, is_switch: bool, now: u64) {
        let Some(here) = PerCpu::this_cpu() else {
            return;
        };
        if let Some(record) = here.task() {
            here.cpu_state
                .end_schedule_call(&record.task_state, is_switch, now);
        }
    }

    #[inline(never)]
    fn end_schedule_call_slow(&self, is_switch: bool) {
        self.end_schedule_call(is_switch, self.clock.now());
    }

    /// Records the time at which a task is woken.
    #[inline(always)]
    fn wake(&self, task: TaskRef<'_>, now: u64) {
        if let Some(record) = self.record_of(task) {
            record.task_state.wake(now);
        }
    }

    #[inline(never)]
    fn wake_slow(&self, task: TaskRef<'_>) {
        self.wake(task, self.clock.now());
    }
}

impl EventHandler<TaskNew<'_>> for AccountingState {
    fn handle_event(&self, event: TaskNew<'_>) {
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

impl EventHandler<ProcessExit<'_>> for AccountingState {
    fn handle_event(&self, _: ProcessExit<'_>) {
        let preempt = NoPreempt::new();
        let Some(here) = PerCpu::this_cpu() else {
            return;
        };
        if here.cpu_state.is_user_time() && !task::current_task_ref().is_kernel() {
            self.enter_kernel(here);
        }
        // Search the index: while the record is being inserted or replaced, `here.task()` may not
        // be the record that readers will get.
        let record = self.record_of(task::current_task_ref());
        let charge = record.and_then(|record| {
            record.save_ids_and_name(task::current_task_ref());
            if record.individually_accounted.load_relaxed() != 0 {
                worker::queue_cleanup_worker();
            }
            record.end_charge()
        });
        drop(preempt);
        drop(charge);
    }
}

impl EventHandler<SignalDeliver<'_>> for AccountingState {
    fn handle_event(&self, event: SignalDeliver<'_>) {
        let Some(here) = PerCpu::this_cpu() else {
            return;
        };
        // `signal_deliver` also occurs for a fatal signal, so the time of the exit is system time.
        self.enter_kernel(here);
        if let Some(record) = here.task() {
            record.task_state.count_signal(event.number as usize);
        }
    }
}

impl EventHandler<PageFaultUser<'_>> for AccountingState {
    fn handle_event(&self, _: PageFaultUser<'_>) {
        let _preempt = NoPreempt::new();
        if let Some(here) = PerCpu::this_cpu() {
            self.enter_kernel(here);
        }
    }
}

/// Begins a switch to the task whose record is `after`: increments the counts by which readers of
/// the CPU's values and of the task's values detect the switch. Called before the clock is read.
#[inline(always)]
fn begin_switch(here: &PerCpu, after: Option<&TaskRecord>) {
    here.cpu_state.begin_switch();
    if let Some(record) = after {
        record.task_state.begin_switch_in();
    }
}

impl EventHandler<SysEnter<'_>> for AccountingState {
    #[inline]
    fn handle_event(&self, _: SysEnter<'_>) {
        let _preempt = NoPreempt::new();
        let Some(here) = PerCpu::this_cpu() else {
            return;
        };
        let task = || here.task().map(|record| &record.task_state);
        here.cpu_state.syscall_enter(task, || self.clock.now());
    }
}

impl EventHandler<SysExit<'_>> for AccountingState {
    #[inline]
    fn handle_event(&self, _: SysExit<'_>) {
        let _preempt = NoPreempt::new();
        let Some(here) = PerCpu::this_cpu() else {
            return;
        };
        // The kernel handles signals and task work before the task enters user mode.
        if user_return::has_exit_work() && self.enter_kernel(here) {
            return;
        }
        let task = || here.task().map(|record| &record.task_state);
        here.cpu_state.syscall_exit(task, || self.clock.now());
    }
}

impl EventHandler<IrqEntry<'_>> for AccountingState {
    #[inline]
    fn handle_event(&self, event: IrqEntry<'_>) {
        self.irq_enter(event.action.is_first_of_line(event.irq));
    }
}

impl EventHandler<IrqExit<'_>> for AccountingState {
    #[inline]
    fn handle_event(&self, _: IrqExit<'_>) {
        self.irq_exit();
    }
}

impl EventHandler<SoftirqEntry<'_>> for AccountingState {
    #[inline]
    fn handle_event(&self, event: SoftirqEntry<'_>) {
        let Some(here) = PerCpu::this_cpu() else {
            return;
        };
        let own = here.is_softirqd();
        here.cpu_state
            .softirq_enter(event.vector as usize, own, || self.clock.now());
    }
}

impl EventHandler<SoftirqExit<'_>> for AccountingState {
    #[inline]
    fn handle_event(&self, _: SoftirqExit<'_>) {
        let Some(here) = PerCpu::this_cpu() else {
            return;
        };
        here.cpu_state.softirq_exit(|| self.clock.now());
    }
}

impl AccountingState {
    #[inline]
    fn irq_enter(&self, is_first_of_line: bool) {
        if let Some(here) = PerCpu::this_cpu() {
            here.cpu_state
                .irq_enter(is_first_of_line, || self.clock.now());
        }
    }

    #[inline]
    fn irq_exit(&self) {
        if let Some(here) = PerCpu::this_cpu() {
            here.cpu_state.irq_exit(|| self.clock.now());
        }
    }
}

macro_rules! vectors {
    ($($entry:ident $exit:ident)*) => {
        $(
            impl EventHandler<$entry<'_>> for AccountingState {
                #[inline]
                fn handle_event(&self, _: $entry<'_>) {
                    self.irq_enter(true);
                }
            }
            impl EventHandler<$exit<'_>> for AccountingState {
                #[inline]
                fn handle_event(&self, _: $exit<'_>) {
                    self.irq_exit();
                }
            }
        )*

        fn attach_vector_probes(probes: &mut Probes<AccountingState>) -> Result {
            $(
                probes.attach::<tracepoint::$exit<'_>>()?;
                probes.attach::<tracepoint::$entry<'_>>()?;
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
