// SPDX-License-Identifier: GPL-2.0

//! Statistics about perfcounters.ko itself. Programs read the statistics as instances
//! `perfcounters/...` of the counter pages, or from files in debugfs. The statistics start at 0
//! when perfcounters.ko is loaded.
//!
//! `sys::costs` updates the statistics. To count an event takes a load and an add instruction. To
//! measure a time also takes two reads of the time stamp counter.

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KVec;
use kernel::ffi::CStr;
use kernel::prelude::*;

use crate::provider::{Instance, InstanceSpec};
use crate::sys::costs::{self, File};

/// The statistics of perfcounters.ko. Each variant is one instance of the counter pages. [`LIST`]
/// has the statistics in the order of the variants.
#[derive(Clone, Copy)]
#[repr(u16)]
pub(crate) enum SelfStat {
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
    RecordsLost,
    EventsLost,
}

/// The number of statistics.
pub(crate) const NR_STATS: usize = 26;

const fn events(
    cost: SelfStat,
    name: &'static str,
    help: &'static CStr,
) -> (SelfStat, &'static str, InstanceSpec) {
    (cost, name, InstanceSpec::events(help))
}

const fn time(
    cost: SelfStat,
    name: &'static str,
    help: &'static CStr,
) -> (SelfStat, &'static str, InstanceSpec) {
    (cost, name, InstanceSpec::nanoseconds(help))
}

/// Each statistic with the name of its instance (without the prefix `perfcounters/`) and the
/// description of its instance.
const LIST: [(SelfStat, &str, InstanceSpec); NR_STATS] = {
    use SelfStat::*;
    [
        events(
            NmiHandled,
            "interrupts/regular",
            c"NMIs with a counter overflow",
        ),
        events(
            NmiSpurious,
            "interrupts/spurious",
            c"NMIs without a counter overflow, while the PMU was reserved",
        ),
        events(
            NmiDeferred,
            "interrupts/again",
            c"NMIs deferred because the lock of a context was held",
        ),
        time(NmiTime, "interrupts/time", c"Time in the NMI handler"),
        events(
            Timers,
            "timers/fired",
            c"Timers fired, for sampling clocks, event sets and throttling",
        ),
        time(
            TimerTime,
            "timers/time",
            c"Time in timers for sampling clocks, event sets and throttling",
        ),
        events(
            Samples,
            "samples/taken",
            c"Overflows passed to sampling formats",
        ),
        time(SampleTime, "samples/time", c"Time in sampling formats"),
        events(
            SamplesLost,
            "samples/lost",
            c"Samples lost: ring full or paused, or context throttled",
        ),
        events(
            Messages,
            "messages/sent",
            c"Overflow notifications, queued as messages or sent as signals",
        ),
        events(
            MessagesLost,
            "messages/lost",
            c"Overflow messages lost because the queue was full",
        ),
        events(
            Resets,
            "sampling/resets",
            c"Resets of PMDs to a new period, at an overflow or a restart",
        ),
        events(
            Restarts,
            "sampling/restarts",
            c"Successful PERFMON_RESTART calls",
        ),
        events(
            Waits,
            "sampling/waits",
            c"Threads blocked until a PERFMON_RESTART",
        ),
        events(
            Throttles,
            "sampling/throttles",
            c"Times a context was throttled",
        ),
        events(
            SchedIn,
            "switches/in",
            c"Switches to threads with a context",
        ),
        time(
            SchedInTime,
            "switches/in_time",
            c"Time to load contexts at switches to their threads",
        ),
        events(
            SchedOut,
            "switches/out",
            c"Switches from threads with a loaded context",
        ),
        time(
            SchedOutTime,
            "switches/out_time",
            c"Time to unload contexts at switches from their threads",
        ),
        events(SetSwitches, "sets/switches", c"Switches of event sets"),
        time(SetSwitchTime, "sets/time", c"Time to switch event sets"),
        events(
            SetSwitchLate,
            "sets/late",
            c"Set switches that the timer did not do in time",
        ),
        events(
            Faults,
            "faults/served",
            c"Page faults in mappings of the devices of this module",
        ),
        time(
            FaultTime,
            "faults/time",
            c"Time in page faults of the devices of this module",
        ),
        events(
            RecordsLost,
            "accounting/lost",
            c"Records of ended tasks dropped before they were read",
        ),
        events(
            EventsLost,
            "tracing/lost",
            c"Kernel events lost because the buffer of a trace was full",
        ),
    ]
};

/// The debugfs files `perfmon/cpuN/NAME`, which have the names of perfmon2's files. Each file shows
/// one statistic or the sum of two statistics.
static FILES: [File; 20] = {
    use SelfStat::*;
    [
        File::sum(c"ovfl_intr_all_count", NmiHandled, NmiSpurious),
        File::single(c"ovfl_intr_regular_count", NmiHandled),
        File::single(c"ovfl_intr_spurious_count", NmiSpurious),
        File::single(c"ovfl_intr_replay_count", NmiDeferred),
        // ovfl_intr_nmi_count equals ovfl_intr_all_count, because all overflow interrupts are NMIs.
        File::sum(c"ovfl_intr_nmi_count", NmiHandled, NmiSpurious),
        File::single(c"ovfl_intr_ns", NmiTime),
        File::single(c"ovfl_notify_count", Messages),
        File::single(c"handle_work_count", Waits),
        File::single(c"handle_timeout_count", Timers),
        File::single(c"reset_pmds_count", Resets),
        File::single(c"pfm_restart_count", Restarts),
        File::single(c"fmt_handler_calls", Samples),
        File::single(c"fmt_handler_ns", SampleTime),
        File::single(c"set_switch_count", SetSwitches),
        File::single(c"set_switch_ns", SetSwitchTime),
        File::single(c"set_switch_exp", SetSwitchLate),
        File::single(c"ctxswin_count", SchedIn),
        File::single(c"ctxswin_ns", SchedInTime),
        File::single(c"ctxswout_count", SchedOut),
        File::single(c"ctxswout_ns", SchedOutTime),
    ]
};

/// The instances of the statistics. Dropping `SelfStats` makes the instances dormant. `SelfStats`
/// is dropped after all code that updates the statistics has stopped.
pub(crate) struct SelfStats {
    _instances: KVec<Instance>,
}

impl SelfStats {
    /// Adds the instances of all statistics. Called once, from module init, before any code can
    /// update the statistics.
    pub(crate) fn new() -> Result<Self> {
        costs::init();
        let mut instances = KVec::with_capacity(NR_STATS, GFP_KERNEL)?;
        for (cost, name, what) in &LIST {
            let instance = what.add(fmt!("perfcounters/{name}"))?;
            costs::publish(*cost, instance.counter());
            instances.push(instance, GFP_KERNEL)?;
        }
        Ok(Self {
            _instances: instances,
        })
    }
}

/// Creates the debugfs files with the statistics of a CPU that has come online. Called in process
/// context.
pub(crate) fn cpu_online(cpu: u32) {
    costs::show(cpu, &FILES);
}
