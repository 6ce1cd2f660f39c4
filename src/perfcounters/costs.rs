// SPDX-License-Identifier: GPL-2.0

//! Statistics about this module itself: instances `perfcounters/...` of the counter pages, and the
//! same numbers as files in debugfs. They count from load to unload.
//!
//! `sys::costs` updates them. An event costs a load and an add instruction. A time needs two reads
//! of the time stamp counter as well.

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KVec;
use kernel::ffi::CStr;
use kernel::prelude::*;

use crate::provider::{Instance, What};
use crate::sys::costs::{self, File};

/// The statistics, each of which is an instance. The order is that of [`LIST`].
#[derive(Clone, Copy)]
#[repr(u16)]
pub(crate) enum Cost {
    Regular,
    Spurious,
    Again,
    InterruptTime,
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
    SwitchesIn,
    InTime,
    SwitchesOut,
    OutTime,
    SetSwitches,
    SetTime,
    SetsLate,
    Faults,
    FaultTime,
    RecordsLost,
    EventsLost,
}

/// The number of statistics.
pub(crate) const NR: usize = 26;

const fn events(cost: Cost, name: &'static str, help: &'static CStr) -> (Cost, &'static str, What) {
    (cost, name, What::events(help))
}

const fn time(cost: Cost, name: &'static str, help: &'static CStr) -> (Cost, &'static str, What) {
    (cost, name, What::nanoseconds(help))
}

/// The names of the instances, without the prefix `perfcounters/`.
const LIST: [(Cost, &str, What); NR] = {
    use Cost::*;
    [
        events(
            Regular,
            "interrupts/regular",
            c"NMIs that told of an overflow",
        ),
        events(
            Spurious,
            "interrupts/spurious",
            c"NMIs, while the PMU was ours, that told of none",
        ),
        events(
            Again,
            "interrupts/again",
            c"NMIs that found a lock held: looked at once more",
        ),
        time(InterruptTime, "interrupts/time", c"In the handler of NMIs"),
        events(
            Timers,
            "timers/fired",
            c"Timers of clocks that sample and of event sets",
        ),
        time(TimerTime, "timers/time", c"In these timers"),
        events(
            Samples,
            "samples/taken",
            c"Overflows handed to sampling formats",
        ),
        time(SampleTime, "samples/time", c"In the formats"),
        events(
            SamplesLost,
            "samples/lost",
            c"Records for which rings had no room",
        ),
        events(
            Messages,
            "messages/sent",
            c"Messages of overflows, queued or by a signal",
        ),
        events(
            MessagesLost,
            "messages/lost",
            c"Messages for which the queue had no room",
        ),
        events(
            Resets,
            "sampling/resets",
            c"Times that PMDs began another period",
        ),
        events(
            Restarts,
            "sampling/restarts",
            c"PERFMON_RESTART that went through",
        ),
        events(
            Waits,
            "sampling/waits",
            c"Threads made to wait for a restart",
        ),
        events(
            Throttles,
            "sampling/throttles",
            c"Storms: times that a context was held",
        ),
        events(
            SwitchesIn,
            "switches/in",
            c"Threads with a context that came to a CPU",
        ),
        time(
            InTime,
            "switches/in_time",
            c"Putting contexts into the hardware then",
        ),
        events(
            SwitchesOut,
            "switches/out",
            c"Threads with a context in the hardware that left",
        ),
        time(
            OutTime,
            "switches/out_time",
            c"Taking contexts out of the hardware then",
        ),
        events(
            SetSwitches,
            "sets/switches",
            c"Turns of event sets that were over",
        ),
        time(
            SetTime,
            "sets/time",
            c"Putting the next event set in its place",
        ),
        events(
            SetsLate,
            "sets/late",
            c"Turns found to be over when their thread left",
        ),
        events(
            Faults,
            "faults/served",
            c"Page faults of mappings of our devices",
        ),
        time(FaultTime, "faults/time", c"In these page faults"),
        events(
            RecordsLost,
            "accounting/lost",
            c"Records of ended tasks that nobody read in time",
        ),
        events(
            EventsLost,
            "tracing/lost",
            c"Events of the kernel's that found a buffer full",
        ),
    ]
};

/// The files that perfmon2 had in debugfs, `perfmon/cpuN/NAME`. Each shows one statistic or the sum
/// of two.
static FILES: [File; 20] = {
    use Cost::*;
    [
        File::sum(c"ovfl_intr_all_count", Regular, Spurious),
        File::of(c"ovfl_intr_regular_count", Regular),
        File::of(c"ovfl_intr_spurious_count", Spurious),
        File::of(c"ovfl_intr_replay_count", Again),
        // All overflow interrupts are NMIs.
        File::sum(c"ovfl_intr_nmi_count", Regular, Spurious),
        File::of(c"ovfl_intr_ns", InterruptTime),
        File::of(c"ovfl_notify_count", Messages),
        File::of(c"handle_work_count", Waits),
        File::of(c"handle_timeout_count", Timers),
        File::of(c"reset_pmds_count", Resets),
        File::of(c"pfm_restart_count", Restarts),
        File::of(c"fmt_handler_calls", Samples),
        File::of(c"fmt_handler_ns", SampleTime),
        File::of(c"set_switch_count", SetSwitches),
        File::of(c"set_switch_ns", SetTime),
        File::of(c"set_switch_exp", SetsLate),
        File::of(c"ctxswin_count", SwitchesIn),
        File::of(c"ctxswin_ns", InTime),
        File::of(c"ctxswout_count", SwitchesOut),
        File::of(c"ctxswout_ns", OutTime),
    ]
};

/// The instances. Dropping them makes them dormant; nothing updates them by then.
pub(crate) struct Costs {
    _instances: KVec<Instance>,
}

impl Costs {
    /// Adds all instances, before anything can update them. Called once, from module init.
    pub(crate) fn new() -> Result<Self> {
        costs::init();
        let mut instances = KVec::with_capacity(NR, GFP_KERNEL)?;
        for (cost, name, what) in &LIST {
            let instance = what.named(fmt!("perfcounters/{name}"))?;
            costs::publish(*cost, instance.counter());
            instances.push(instance, GFP_KERNEL)?;
        }
        Ok(Self {
            _instances: instances,
        })
    }
}

/// Creates the debugfs files of a CPU that comes online. Process context.
pub(crate) fn cpu_online(cpu: u32) {
    costs::show(cpu, &FILES);
}
