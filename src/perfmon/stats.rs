// SPDX-License-Identifier: GPL-2.0

//! Statistics about perfmon itself: their per-CPU counters, and their files in debugfs. Programs
//! read the statistics as instances `perfcounters/...` of the counter pages, or from the files in
//! debugfs. The statistics start at 0 each time perfmon.ko is loaded.

#![expect(unsafe_code, reason = "calls of C, and the callback of a file")]

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KVec;
use kernel::ffi::CStr;
use kernel::prelude::*;

use crate::driver::{CounterSpec, Instance};
use crate::helpers::{self, CostFile};
use base::self_stat::{CostTimer, ModuleStats};

/// The statistics of perfmon. Each variant is one instance of the counter pages. [`STATISTIC_ROWS`]
/// has the statistics in the order of the variants.
#[derive(Clone, Copy)]
#[repr(u16)]
pub(crate) enum PerfmonStatistic {
    NmiHandled,
    NmiSpurious,
    NmiDeferred,
    NmiTime,
    Timers,
    TimerTime,
    Samples,
    SampleTime,
    SamplesLost,
    Messages,
    MessagesLost,
    Resets,
    Restarts,
    Waits,
    Throttles,
    SchedIn,
    SchedInTime,
    SchedOut,
    SchedOutTime,
    SetSwitches,
    SetSwitchTime,
    SetSwitchLate,
    Faults,
    FaultTime,
}

/// The number of statistics in [`STATISTIC_ROWS`].
const NR_STATS: usize = 24;

type StatisticRow = (PerfmonStatistic, &'static CStr, bool, &'static CStr);

const fn event_row(
    cost: PerfmonStatistic,
    name: &'static CStr,
    help: &'static CStr,
) -> StatisticRow {
    (cost, name, false, help)
}

const fn time_row(
    cost: PerfmonStatistic,
    name: &'static CStr,
    help: &'static CStr,
) -> StatisticRow {
    (cost, name, true, help)
}

/// The list of the statistics. An element contains the statistic, the name and the help text of its
/// instance, and whether its value is a time in nanoseconds.
#[rustfmt::skip]
const STATISTIC_ROWS: [StatisticRow; NR_STATS] = {
    use PerfmonStatistic::*;
    [
        event_row(NmiHandled, c"perfcounters/interrupts/regular", c"NMIs with a counter overflow"),
        event_row(NmiSpurious, c"perfcounters/interrupts/spurious",
            c"NMIs without a counter overflow, while the PMU was reserved"),
        event_row(NmiDeferred, c"perfcounters/interrupts/again",
            c"NMIs deferred because the lock of a context was held"),
        time_row(NmiTime, c"perfcounters/interrupts/time", c"Time in the NMI handler"),
        event_row(Timers, c"perfcounters/timers/fired",
            c"Timers fired, for sampling clocks, event sets and throttling"),
        time_row(TimerTime, c"perfcounters/timers/time",
            c"Time in timers for sampling clocks, event sets and throttling"),
        event_row(Samples, c"perfcounters/samples/taken", c"Overflows passed to sampling formats"),
        time_row(SampleTime, c"perfcounters/samples/time", c"Time in sampling formats"),
        event_row(SamplesLost, c"perfcounters/samples/lost",
            c"Samples lost: ring full or paused, or context throttled"),
        event_row(Messages, c"perfcounters/messages/sent",
            c"Overflow notifications, queued as messages or sent as signals"),
        event_row(MessagesLost, c"perfcounters/messages/lost",
            c"Overflow messages lost because the queue was full"),
        event_row(Resets, c"perfcounters/sampling/resets",
            c"Resets of PMDs to a new period, at an overflow or a restart"),
        event_row(Restarts, c"perfcounters/sampling/restarts", c"Successful PERFMON_RESTART calls"),
        event_row(Waits, c"perfcounters/sampling/waits",
            c"Threads blocked until a PERFMON_RESTART"),
        event_row(Throttles, c"perfcounters/sampling/throttles", c"Times a context was throttled"),
        event_row(SchedIn, c"perfcounters/switches/in", c"Switches to threads with a context"),
        time_row(SchedInTime, c"perfcounters/switches/in_time",
            c"Time to load contexts at switches to their threads"),
        event_row(SchedOut, c"perfcounters/switches/out",
            c"Switches from threads with a loaded context"),
        time_row(SchedOutTime, c"perfcounters/switches/out_time",
            c"Time to unload contexts at switches from their threads"),
        event_row(SetSwitches, c"perfcounters/sets/switches", c"Switches of event sets"),
        time_row(SetSwitchTime, c"perfcounters/sets/time", c"Time to switch event sets"),
        event_row(SetSwitchLate, c"perfcounters/sets/late",
            c"Set switches that the timer did not do in time"),
        event_row(Faults, c"perfcounters/self_pages/faults",
            c"Page faults in mappings of self pages"),
        time_row(FaultTime, c"perfcounters/self_pages/fault_time",
            c"Time in page faults of mappings of self pages"),
    ]
};

const fn file_of_sum(
    name: &'static CStr,
    first: PerfmonStatistic,
    second: PerfmonStatistic,
) -> DebugfsFile {
    DebugfsFile(CostFile {
        name: name.to_bytes_with_nul().as_ptr().cast(),
        first: first as u16,
        second: second as u16,
    })
}

const fn file_of_statistic(name: &'static CStr, cost: PerfmonStatistic) -> DebugfsFile {
    file_of_sum(name, cost, cost)
}

/// The debugfs files `perfmon/cpuN/NAME`, which have the names of perfmon2's files. Each file shows
/// one statistic or the sum of two statistics.
static DEBUGFS_FILES: [DebugfsFile; 20] = {
    use PerfmonStatistic::*;
    [
        file_of_sum(c"ovfl_intr_all_count", NmiHandled, NmiSpurious),
        file_of_statistic(c"ovfl_intr_regular_count", NmiHandled),
        file_of_statistic(c"ovfl_intr_spurious_count", NmiSpurious),
        file_of_statistic(c"ovfl_intr_replay_count", NmiDeferred),
        // ovfl_intr_nmi_count equals ovfl_intr_all_count, because all overflow interrupts are NMIs.
        file_of_sum(c"ovfl_intr_nmi_count", NmiHandled, NmiSpurious),
        file_of_statistic(c"ovfl_intr_ns", NmiTime),
        file_of_statistic(c"ovfl_notify_count", Messages),
        file_of_statistic(c"handle_work_count", Waits),
        file_of_statistic(c"handle_timeout_count", Timers),
        file_of_statistic(c"reset_pmds_count", Resets),
        file_of_statistic(c"pfm_restart_count", Restarts),
        file_of_statistic(c"fmt_handler_calls", Samples),
        file_of_statistic(c"fmt_handler_ns", SampleTime),
        file_of_statistic(c"set_switch_count", SetSwitches),
        file_of_statistic(c"set_switch_ns", SetSwitchTime),
        file_of_statistic(c"set_switch_exp", SetSwitchLate),
        file_of_statistic(c"ctxswin_count", SchedIn),
        file_of_statistic(c"ctxswin_ns", SchedInTime),
        file_of_statistic(c"ctxswout_count", SchedOut),
        file_of_statistic(c"ctxswout_ns", SchedOutTime),
    ]
};

/// The instances of the statistics. Dropping `StatInstances` deletes the instances, whose last
/// values stay readable. `StatInstances` is dropped after all code that updates the statistics has
/// stopped.
pub(crate) struct StatInstances {
    _instances: KVec<Instance>,
}

impl StatInstances {
    /// Adds the instances of all statistics. Called once, from module init, before any code can
    /// update the statistics.
    pub(crate) fn new() -> Result<Self> {
        let mut instances = KVec::with_capacity(NR_STATS, GFP_KERNEL)?;
        for (cost, name, is_time, help) in STATISTIC_ROWS {
            let spec = match is_time {
                true => CounterSpec::nanoseconds(name),
                false => CounterSpec::counter(name),
            };
            let instance = Instance::add_even_if_full(&CounterSpec { help, ..spec })?;
            // SAFETY: No code can update a statistic yet. The per-CPU words of the counter exist
            // until the module is unloaded.
            unsafe { MODULE_STATS.set_per_cpu_slot(cost as usize, instance.counter().raw()) };
            instances.push(instance, GFP_KERNEL)?;
        }
        Ok(Self {
            _instances: instances,
        })
    }
}

/// Adds one to a statistic. Callable in any context.
#[inline(always)]
pub(crate) fn count(stat: PerfmonStatistic) {
    MODULE_STATS.count(stat as usize);
}

/// Adds `delta` to a statistic. Callable in any context.
#[inline(always)]
pub(crate) fn add(stat: PerfmonStatistic, delta: u64) {
    MODULE_STATS.add(stat as usize, delta);
}

/// Adds the time since the time stamp `began` (low 32 bits of the TSC) to a statistic. Since
/// `began`, preemption must have been off and fewer than 2^32 TSC ticks must have passed.
#[inline(always)]
pub(crate) fn add_elapsed(stat: PerfmonStatistic, began: u32) {
    MODULE_STATS.add_elapsed(stat as usize, began);
}

/// Adds one to the statistic `nr`, and returns a timer. When the timer is dropped, the time since
/// its creation is added to the statistic `time`. Callable in any context.
#[inline(always)]
pub(crate) fn count_and_time(nr: PerfmonStatistic, time: PerfmonStatistic) -> CostTimer<NR_SLOTS> {
    MODULE_STATS.count_and_time(nr as usize, time as usize)
}

const _: () = assert!(PerfmonStatistic::FaultTime as usize == NR_STATS - 1);
const _: () = assert!(NR_STATS <= NR_SLOTS);

pub(crate) const NR_SLOTS: usize = 32;

/// The addresses of the per-CPU counters of all statistics, indexed by `PerfmonStatistic` variants.
pub(crate) static MODULE_STATS: ModuleStats<NR_SLOTS> = ModuleStats::new();

/// A debugfs file in the directory perfmon/cpuN.
#[repr(transparent)]
pub(crate) struct DebugfsFile(CostFile);

// SAFETY: A `DebugfsFile` is a constant with pointers to static strings only.
unsafe impl Sync for DebugfsFile {}

/// Creates the debugfs files with the statistics of a CPU that has come online, unless they exist
/// already. Called in process context.
pub(crate) fn cpu_online(cpu: u32) {
    // SAFETY: `DEBUGFS_FILES` and `MODULE_STATS` are static, and `DebugfsFile` has the layout of
    // `CostFile`.
    unsafe {
        helpers::pfc_costs_show(
            cpu,
            DEBUGFS_FILES.as_ptr().cast(),
            DEBUGFS_FILES.len() as u32,
            MODULE_STATS.slots(),
        )
    }
}
