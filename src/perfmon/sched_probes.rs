// SPDX-License-Identifier: GPL-2.0

//! The probes of the scheduler's tracepoints, which program the contexts of threads into the PMU
//! and remove them.

use perfmon_rules::register_map::Scope;

use crate::contexts::context::{context_of_task, loaded_or_attached_context};
use crate::contexts::phase::Target;
use crate::stats::{self, PerfmonStatistic};
use base::tracepoint::{EventHandler, ProcessExec, ProcessExit, SchedExit, SchedSwitch};
use base::{preempt, task};

/// The handler of the scheduler probes.
pub(crate) struct SchedProbes;

impl EventHandler<SchedSwitch<'_>> for SchedProbes {
    /// Removes the context of the current thread from this CPU's PMU, because the thread is being
    /// switched out. Called with interrupts off and the run-queue lock held.
    #[inline]
    fn handle_event(&self, _: SchedSwitch<'_>) {
        if let Some(context) = loaded_or_attached_context(Scope::Thread) {
            let _span =
                stats::count_and_time(PerfmonStatistic::SchedOut, PerfmonStatistic::SchedOutTime);
            context.sched_out();
        }
    }
}

impl EventHandler<SchedExit<'_>> for SchedProbes {
    /// Programs the context of the current thread, which was switched in, into this CPU's PMU.
    /// Called with preemption off.
    #[inline]
    fn handle_event(&self, event: SchedExit<'_>) {
        if event.is_switch {
            if let Some(context) = context_of_task(task::current_task_address()) {
                let _span =
                    stats::count_and_time(PerfmonStatistic::SchedIn, PerfmonStatistic::SchedInTime);
                context.sched_in(Target::Thread(task::current_task_address()));
            }
        }
    }
}

impl EventHandler<ProcessExit<'_>> for SchedProbes {
    /// Ends the context of the current thread, which is exiting.
    fn handle_event(&self, _: ProcessExit<'_>) {
        let task = task::current_task_address();
        let _preempt = preempt::NoPreempt::new();
        if let Some(context) = context_of_task(task) {
            context.handle_end_of_target(Target::Thread(task));
        }
    }
}

impl EventHandler<ProcessExec<'_>> for SchedProbes {
    /// Called when the current thread has executed a program. Ends the context of the thread if the
    /// program has more privileges than the user who executed it, or if that user may not read the
    /// program. Otherwise calls `Context::handle_exec_of_target()`.
    fn handle_event(&self, event: ProcessExec<'_>) {
        let task = task::current_task_address();
        let _preempt = preempt::NoPreempt::new();
        if let Some(context) = context_of_task(task) {
            match event.secret {
                true => context.end_at_exec(Target::Thread(task)),
                false => context.handle_exec_of_target(Target::Thread(task)),
            }
        }
    }
}
