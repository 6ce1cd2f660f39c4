// SPDX-License-Identifier: GPL-2.0

//! The table of all operations and comparisons, in the order of the report. A row has the name and
//! the label of the operation, and the program that runs it. The program also determines the unit
//! of the result. `bars.rs` has the limits for the results.

use std::io;

use perfcounters::Counters;
use rustix::time::{clock_gettime, ClockId};

use crate::events::{self, pair, text, three, two, FLIGHT};
use crate::guest::Guest;
use crate::host::{
    against_bpf_batch, against_bpf_lookup, against_perf, against_vmstat, flag_check,
    loads_against_perf, writers, GROUP,
};
use crate::peers::{PerfGroup, INSTRUCTIONS, PAGE_FAULTS};
use crate::record::Ratio;
use crate::sample;
use crate::switch::{context, TwoGroups, TwoSets, COUNTERS};
use crate::sys::{nops, Lines};
use crate::trace::Job::{self, Calls, Interrupts, Switches};
use crate::trace::{Way, BPF, EMPTY, FTRACE, PERF};

/// The unit of an operation, which also selects the operation's table in the report.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Number of instructions of a whole operation.
    Write,
    /// Number of instructions per value, and number of instructions of the whole operation.
    Read,
    /// Ratio of the times of two implementations.
    Ratio,
}

impl Run {
    /// Returns the stage in which the program in a guest runs the operation, or `None` if another
    /// program runs the operation.
    pub fn stage(&self) -> Option<Stage> {
        match self {
            Self::Guest(stage, _) => Some(*stage),
            Self::Proc | Self::Event(..) => Some(Stage::First),
            Self::Accounted(..) | Self::Observed(..) => Some(Stage::Observed),
            Self::Module | Self::Handler | Self::Host(_) | Self::Lttng => None,
        }
    }
}

/// Stages of the measurement in a guest. Each stage runs its operations in the order of the table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Operations that do not use the PMU. This stage runs before any other operation uses the PMU.
    First,
    /// Operations on contexts. This stage runs before the stages of perf, because perf releases the
    /// PMU only some time after the last perf event is closed.
    Context,
    /// Switches of threads and of event sets, with contexts or without.
    ContextSwitch,
    /// Switches of threads with perf events.
    PerfSwitch,
    /// Operations that are observed by accounting and by other tools.
    Observed,
    /// Operations that rotate perf's groups, or open and close them. This stage runs before the
    /// stages that sample with perf or read perf events: after those stages, opening and closing a
    /// group took a tenth more instructions.
    PerfGroups,
    /// Operations that record samples with perf.
    PerfSample,
    /// Operations that read perf events of the PMU, or BPF maps.
    Last,
}

/// The program that runs an operation, with the function that measures it.
#[derive(Clone, Copy)]
pub enum Run {
    /// bench.ko measures the operation in a guest.
    Module,
    /// The program in a guest calls this function.
    Guest(Stage, fn(&Guest, &str) -> io::Result<()>),
    /// The program in a guest reads the file of /proc that has this name.
    Proc,
    /// The program in a guest runs this loop of events. If there are flags, a trace with these
    /// flags records the events; otherwise no trace records them.
    Event(events::Run, Option<u32>),
    /// The program in a guest repeats this operation (`Job`) while process accounting is on. The
    /// second field contains, as text, the sum of the accounting levels: the scheduler (1),
    /// interrupts (2), system calls (4), the time of switches (8).
    Accounted(Job, &'static str),
    /// The program in a guest repeats this operation (`Job`) while another tool observes the
    /// operation.
    Observed(Job, Way),
    /// The operation is an interrupt handler that runs in another operation, and is measured
    /// together with the other operation. The handler that runs in the operation `NAME` has the
    /// name `NAME_handler`.
    Handler,
    /// The program compares a pair of loops on this machine.
    Host(fn(&str) -> io::Result<Ratio>),
    /// tests/bench/lttng.sh measures the comparison on this machine.
    Lttng,
}

/// An operation or a comparison.
pub struct Operation {
    /// Name of the operation in the records.
    pub name: &'static str,
    /// Label of the row in the report; empty if the report has no row for the operation.
    pub label: &'static str,
    /// The program that runs the operation, and the function that measures the operation.
    pub run: Run,
}

impl Operation {
    /// Returns the unit of the results.
    pub fn unit(&self) -> Unit {
        match self.run {
            Run::Module => Unit::Write,
            Run::Host(_) | Run::Lttng => Unit::Ratio,
            _ => Unit::Read,
        }
    }
}

/// Returns the operations whose results have the unit `unit`, and which have a row in the report.
pub fn rows(unit: Unit) -> impl Iterator<Item = &'static Operation> {
    let shown = move |row: &&Operation| row.unit() == unit && !row.label.is_empty();
    OPERATIONS.iter().filter(shown)
}

const fn row(name: &'static str, label: &'static str, run: Run) -> Operation {
    Operation { name, label, run }
}

use Run::{Accounted, Event, Guest as In, Handler, Host, Lttng, Module, Observed, Proc};
use Stage::{Context, ContextSwitch, First, Last, PerfGroups, PerfSample, PerfSwitch};

/// All operations.
#[rustfmt::skip]
pub const OPERATIONS: &[Operation] = &[
    row("inline_add", "**perf_counter_add**, inline, C", Module),
    row("rust_add", "**Counter::add**, inline, Rust", Module),
    row("perf_adjust", "**perf_adjust**, by number, call and return included", Module),
    row("group_1", "**a group** of 1", Module),
    row("group_2", "a group of 2", Module),
    row("rust_group_2", "a group of 2, Rust", Module),
    row("group_4", "a group of 4", Module),
    row("group_8", "a group of 8", Module),
    row("perf_counter_handle", "perf_counter_handle", Module),
    row("ring_forward", "a record of 64 bytes into a forward ring, overwritten", Module),
    row("ring_backward", "a record of 64 bytes into a backward ring, overwritten", Module),
    row("percpu_counter_add", "the kernel's percpu_counter_add", Module),
    row("atomic64_add", "the kernel's atomic64_add (the cost of its lock is not seen)", Module),

    row("self_check_user", "", In(First, |g, name| g.simple(name, nops))),
    row("snapshot", "**snapshot** of 1,000 counters on all CPUs, checked",
        In(First, |g, name| g.snapshot(name, Counters::fill))),
    row("snapshot_unchecked", "snapshot without the seqflag check",
        In(First, |g, name| g.snapshot(name, Counters::fill_each))),
    row("bpf_batch", "BPF per-CPU array, batch lookup", In(Last, |g, name| g.bpf_batch(name))),
    row("bpf_lookup", "BPF per-CPU array, one lookup", In(Last, |g, name| g.bpf_lookup(name))),
    row("perf_read_16", "perf_event read(), own CPU, a group of 16",
        In(First, |g, name| g.perf(name, PAGE_FAULTS, 16))),
    row("perf_read_8", "perf_event read(), own CPU, a group of 8",
        In(First, |g, name| g.perf(name, PAGE_FAULTS, 8))),
    row("perf_read_1", "perf_event read(), own CPU, one counter",
        In(First, |g, name| g.perf(name, PAGE_FAULTS, 1))),
    row("perf_pmu_4", "perf_event read(), own CPU, a group of 4 PMU events",
        In(Last, |g, name| g.perf(name, INSTRUCTIONS, 4))),
    row("perf_pmu_1", "perf_event read(), own CPU, one PMU event",
        In(Last, |g, name| g.perf(name, INSTRUCTIONS, 1))),
    row("perf_rdpmc", "perf_event by RDPMC, own thread, one PMU event",
        In(Last, |g, name| g.rdpmc(name))),
    row("context_read_4", "a context of /dev/perfmon, four PMDs by one call",
        In(Context, |g, name| g.context_read(name, COUNTERS))),
    row("context_read_1", "a context of /dev/perfmon, one PMD by one call",
        In(Context, |g, name| g.context_read(name, 1))),
    row("self_read", "a context of /dev/perfmon, one PMD by self page and RDPMC",
        In(Context, |g, name| g.self_read(name))),
    row("switch", "two thread switches: a byte to another thread and back",
        In(ContextSwitch, |g, name| g.job(name, Switches))),
    row("switch_context_4", "two thread switches, each thread with a context of 4 counters",
        In(ContextSwitch, |g, name| g.switch(name, || context(COUNTERS)))),
    row("switch_perf_4", "two thread switches, each thread with a group of 4 perf events",
        In(PerfSwitch, |g, name| g.switch(name, perf_group))),
    row("sample_forward", "20,040 instructions with one sample, into a forward ring",
        In(Context, |g, name| g.samples(name, || sample::context("ring")))),
    row("sample_backward", "20,040 instructions with one sample, into a backward ring",
        In(Context, |g, name| g.samples(name, || sample::context("flight-recorder")))),
    row("sample_perf", "20,040 instructions with one sample, by perf",
        In(PerfSample, |g, name| g.samples(name, sample::events))),
    row("sample_forward_handler", "interrupt handler of a sample, into a forward ring", Handler),
    row("sample_backward_handler", "interrupt handler of a sample, into a backward ring", Handler),
    row("sample_perf_handler", "interrupt handler of a sample, by perf", Handler),
    row("turns_context", "a switch of event sets of 4 counters: its timer callback",
        In(ContextSwitch, |g, name| g.turns::<TwoSets>(name))),
    row("turns_perf", "perf's rotation of groups of 4 events: its timer callback",
        In(PerfGroups, |g, name| g.turns::<TwoGroups>(name))),
    row("life_context", "", In(ContextSwitch, |g, name| g.life(name, || context(COUNTERS)))),
    row("life_perf", "", In(PerfGroups, |g, name| g.life(name, perf_group))),
    row("close_forward", "close(-1), sampled every 20,000 instructions, into a forward ring",
        In(Context, |g, name| g.closes(name, sample::deep_context("ring")?, sample::begin_again))),
    row("close_backward", "close(-1), sampled every 20,000 instructions, into a backward ring",
        In(Context, |g, name| {
            g.closes(name, sample::deep_context("flight-recorder")?, sample::begin_again)
        })),
    row("close", "close(-1), not sampled", In(Context, |g, name| g.closes(name, (), |()| Ok(())))),
    row("event", "**an event** of a program, u32 + u64 and the time, with its loop",
        Event(pair, Some(0))),
    row("event_three", "an event of a program, three u64, with its loop", Event(three, Some(0))),
    row("event_text", "an event of a program, u32 and a text of 24 characters, with its loop",
        Event(text, Some(0))),
    row("event_flight", "an event of a program, u32 + u64, into a flight recorder, with its loop",
        Event(pair, Some(FLIGHT))),
    row("event_off", "an event that no trace wants, with its loop", Event(pair, None)),
    row("event_off_2", "two events that no trace wants, with their loop", Event(two, None)),
    row("proc_stat", "/proc/stat, read only", Proc),
    row("proc_stat_parsed", "/proc/stat, read and parsed", Proc),
    row("proc_interrupts", "/proc/interrupts, read only", Proc),
    row("proc_interrupts_parsed", "/proc/interrupts, read and parsed", Proc),
    row("proc_softirqs", "/proc/softirqs, read only", Proc),
    row("proc_softirqs_parsed", "/proc/softirqs, read and parsed", Proc),
    row("proc_vmstat", "/proc/vmstat, read only", Proc),
    row("proc_vmstat_parsed", "/proc/vmstat, read and parsed", Proc),
    row("clock_gettime", "clock_gettime(), which a snapshot calls twice",
        In(First, |g, name| g.simple(name, |n| {
            (0..n).for_each(|_| _ = clock_gettime(ClockId::Monotonic));
        }))),
    row("getppid", "getppid(), for comparison", In(First, |g, name| g.job(name, Calls))),
    row("getppid_sched", "getppid(), with accounting of the scheduler", Accounted(Calls, "1")),
    row("getppid_irq", "getppid(), with accounting of the scheduler and interrupts",
        Accounted(Calls, "3")),
    row("getppid_calls", "getppid(), with accounting of the scheduler, interrupts and system calls",
        Accounted(Calls, "7")),
    row("getppid_all", "getppid(), with all accounting", Accounted(Calls, "15")),
    row("switch_sched", "a thread switch, with accounting of the scheduler",
        Accounted(Switches, "1")),
    row("switch_irq", "a thread switch, with accounting of the scheduler and interrupts",
        Accounted(Switches, "3")),
    row("switch_calls", "a thread switch, with accounting of the scheduler, interrupts and system calls",
        Accounted(Switches, "7")),
    row("switch_all", "a thread switch, with all accounting", Accounted(Switches, "15")),
    row("interrupt", "an interrupt that a CPU sends to itself, for comparison",
        In(Stage::Observed, |g, name| g.job(name, Interrupts))),
    row("interrupt_sched", "an interrupt, with accounting of the scheduler",
        Accounted(Interrupts, "1")),
    row("interrupt_irq", "an interrupt, with accounting of the scheduler and interrupts",
        Accounted(Interrupts, "3")),
    row("interrupt_calls", "an interrupt, with accounting of the scheduler, interrupts and system calls",
        Accounted(Interrupts, "7")),
    row("interrupt_all", "an interrupt, with all accounting", Accounted(Interrupts, "15")),
    row("getppid_empty", "getppid(), with empty probes at entry and exit",
        Observed(Calls, EMPTY)),
    row("getppid_ftrace", "getppid(), traced by ftrace", Observed(Calls, FTRACE)),
    row("getppid_perf", "getppid(), traced by perf", Observed(Calls, PERF)),
    row("getppid_bpf", "getppid(), timed by BPF", Observed(Calls, BPF)),
    row("switch_empty", "a thread switch, with empty probes",
        Observed(Switches, EMPTY)),
    row("switch_ftrace", "a thread switch, traced by ftrace", Observed(Switches, FTRACE)),
    row("switch_perf", "a thread switch, traced by perf", Observed(Switches, PERF)),
    row("switch_bpf", "a thread switch, timed by BPF", Observed(Switches, BPF)),
    row("interrupt_empty", "an interrupt, with empty probes at entry and exit",
        Observed(Interrupts, EMPTY)),
    row("interrupt_ftrace", "an interrupt, traced by ftrace", Observed(Interrupts, FTRACE)),
    row("interrupt_perf", "an interrupt, traced by perf", Observed(Interrupts, PERF)),
    row("interrupt_bpf", "an interrupt, timed by BPF", Observed(Interrupts, BPF)),

    row("perf_read_16", "perf_event, a group of 16, per counter",
        Host(|name| against_perf(name, GROUP))),
    row("perf_read_1", "perf_event, one counter", Host(|name| against_perf(name, 1))),
    row("loads_perf_read_16", "perf_event, a group of 16, against plain loads, summed, not copied",
        Host(loads_against_perf)),
    row("bpf_batch_key", "BPF per-CPU array, batch of 1,000, per key (all CPUs of it)",
        Host(|name| against_bpf_batch(name, false))),
    row("bpf_batch_value", "BPF per-CPU array, batch of 1,000, per value (one CPU of a key)",
        Host(|name| against_bpf_batch(name, true))),
    row("bpf_lookup_key", "BPF per-CPU array, one lookup, per key", Host(against_bpf_lookup)),
    row("proc_vmstat_token", "/proc/vmstat, read and parsed, per number", Host(against_vmstat)),
    row("lttng_event", "an event of a program, u32 + u64, by LTTng-UST into a snapshot session",
        Lttng),
    row("lttng_flight", "an event by LTTng-UST, against perftrace into a flight recorder", Lttng),
    row("flag_check_1", "snapshot of 1 CPU: with the check, against plain loads",
        Host(|name| flag_check(name, 1))),
    row("flag_check_2", "snapshot of 2 CPUs: with the check, against plain loads",
        Host(|name| flag_check(name, 2))),
    row("flag_check_64", "snapshot of 64 CPUs: with the check, against plain loads",
        Host(|name| flag_check(name, 64))),
    row("write_flagged", "writing: flag, add, flag (as perf_adjust), against one add",
        Host(|name| writers(name, Lines::flagged))),
    row("write_locked", "writing: lock add (a shared counter), against one add",
        Host(|name| writers(name, Lines::locked))),
];

fn perf_group() -> io::Result<PerfGroup> {
    PerfGroup::of_thread(INSTRUCTIONS, COUNTERS.into())
}
