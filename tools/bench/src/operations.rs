// SPDX-License-Identifier: GPL-2.0

//! The table of all operations and comparisons, in the order of the report. A row has the name and
//! the label of the operation, and the program that runs it. The program also determines the unit
//! of the result. `bars.rs` has the limits for the results.

use std::io;

use perfcounters::Counters;
use rustix::time::{clock_gettime, ClockId};

use crate::events::{
    self, record_text_events, record_three_u64_events, record_two_events_per_round,
    record_u32_u64_events, FLIGHT,
};
use crate::guest::Guest;
use crate::host::{
    compare_checked_with_plain_read, compare_counter_updates, compare_loads_with_perf_read,
    compare_with_bpf_batch, compare_with_bpf_lookup, compare_with_perf_read, compare_with_vmstat,
    PERF_GROUP_EVENTS,
};
use crate::peers::{PerfGroup, INSTRUCTIONS_EVENT, PAGE_FAULTS_EVENT};
use crate::record::TimeRatio;
use crate::sample;
use crate::switch::{start_counting_context, TwoEventSets, TwoPerfGroups, COUNTERS_PER_THREAD};
use crate::sys::{run_nop_rounds, CounterCacheLines};
use crate::trace::ObservedJob::{self, Calls, Interrupts, Switches};
use crate::trace::{ObservingTool, BPF_TOOL, EMPTY_PROBES, FTRACE_TOOL, PERF_TOOL};

/// The unit of an operation, which also selects the operation's table in the report.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ResultUnit {
    /// Number of instructions of a whole operation.
    Write,
    /// Number of instructions per value, and number of instructions of the whole operation.
    Read,
    /// Ratio of the times of two implementations.
    Ratio,
}

impl Runner {
    /// Returns the stage in which the program in a guest runs the operation, or `None` if another
    /// program runs the operation.
    pub fn guest_stage(&self) -> Option<GuestStage> {
        match self {
            Self::Guest(stage, _) => Some(*stage),
            Self::Proc | Self::Event(..) => Some(GuestStage::First),
            Self::Accounted(..) | Self::Observed(..) => Some(GuestStage::Observed),
            Self::Module | Self::Handler | Self::Host(_) | Self::Lttng => None,
        }
    }
}

/// Stages of the measurement in a guest. Each stage runs its operations in the order of the table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum GuestStage {
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
pub enum Runner {
    /// bench.ko measures the operation in a guest.
    Module,
    /// The program in a guest calls this function.
    Guest(GuestStage, fn(&Guest, &str) -> io::Result<()>),
    /// The program in a guest reads the file of /proc that has this name.
    Proc,
    /// The program in a guest runs this loop of events. If there are flags, a trace with these
    /// flags records the events; otherwise no trace records them.
    Event(events::EventLoop, Option<u32>),
    /// The program in a guest repeats this operation (`ObservedJob`) while process accounting is
    /// on. The second field contains, as text, the sum of the accounting levels: the scheduler (1),
    /// interrupts (2), system calls (4), the time of switches (8).
    Accounted(ObservedJob, &'static str),
    /// The program in a guest repeats this operation (`ObservedJob`) while another tool observes
    /// the operation.
    Observed(ObservedJob, ObservingTool),
    /// The operation is an interrupt handler that runs as a part of another operation. The two are
    /// measured together. If the name of the other operation is `NAME`, the name of the handler is
    /// `NAME_handler`.
    Handler,
    /// The program compares a pair of loops on this machine.
    Host(fn(&str) -> io::Result<TimeRatio>),
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
    pub runner: Runner,
}

impl Operation {
    /// Returns the unit of the results.
    pub fn unit(&self) -> ResultUnit {
        match self.runner {
            Runner::Module => ResultUnit::Write,
            Runner::Host(_) | Runner::Lttng => ResultUnit::Ratio,
            _ => ResultUnit::Read,
        }
    }
}

/// Returns the operations whose results have the unit `unit`, and which have a row in the report.
pub fn reported_operations(unit: ResultUnit) -> impl Iterator<Item = &'static Operation> {
    let shown = move |row: &&Operation| row.unit() == unit && !row.label.is_empty();
    OPERATIONS.iter().filter(shown)
}

const fn table_row(name: &'static str, label: &'static str, runner: Runner) -> Operation {
    Operation {
        name,
        label,
        runner,
    }
}

use GuestStage::{Context, ContextSwitch, First, Last, PerfGroups, PerfSample, PerfSwitch};
use Runner::{Accounted, Event, Guest as In, Handler, Host, Lttng, Module, Observed, Proc};

/// All operations.
#[rustfmt::skip]
pub const OPERATIONS: &[Operation] = &[
    table_row("inline_add", "**perf_counter_add**, inline, C", Module),
    table_row("rust_add", "**Counter::add**, inline, Rust", Module),
    table_row("perf_adjust", "**perf_adjust**, by number, call and return included", Module),
    table_row("group_1", "**a group** of 1", Module),
    table_row("group_2", "a group of 2", Module),
    table_row("rust_group_2", "a group of 2, Rust", Module),
    table_row("group_4", "a group of 4", Module),
    table_row("group_8", "a group of 8", Module),
    table_row("perf_counter_handle", "perf_counter_handle", Module),
    table_row("ring_forward", "a record of 64 bytes into a forward ring, overwritten", Module),
    table_row("ring_backward", "a record of 64 bytes into a backward ring, overwritten", Module),
    table_row("percpu_counter_add", "the kernel's percpu_counter_add", Module),
    table_row("atomic64_add", "the kernel's atomic64_add (the cost of its lock is not seen)",
        Module),

    table_row("self_check_user", "", In(First, |g, name| g.measure_loop(name, run_nop_rounds))),
    table_row("snapshot", "**snapshot** of 1,000 counters on all CPUs, checked",
        In(First, |g, name| g.measure_snapshot(name, Counters::fill))),
    table_row("snapshot_unchecked", "snapshot without the seqflag check",
        In(First, |g, name| g.measure_snapshot(name, Counters::fill_each))),
    table_row("bpf_batch", "BPF per-CPU array, batch lookup",
        In(Last, |g, name| g.measure_bpf_batch_lookup(name))),
    table_row("bpf_lookup", "BPF per-CPU array, one lookup",
        In(Last, |g, name| g.measure_bpf_lookup(name))),
    table_row("perf_read_16", "perf_event read(), own CPU, a group of 16",
        In(First, |g, name| g.measure_perf_group_read(name, PAGE_FAULTS_EVENT, 16))),
    table_row("perf_read_8", "perf_event read(), own CPU, a group of 8",
        In(First, |g, name| g.measure_perf_group_read(name, PAGE_FAULTS_EVENT, 8))),
    table_row("perf_read_1", "perf_event read(), own CPU, one counter",
        In(First, |g, name| g.measure_perf_group_read(name, PAGE_FAULTS_EVENT, 1))),
    table_row("perf_pmu_4", "perf_event read(), own CPU, a group of 4 PMU events",
        In(Last, |g, name| g.measure_perf_group_read(name, INSTRUCTIONS_EVENT, 4))),
    table_row("perf_pmu_1", "perf_event read(), own CPU, one PMU event",
        In(Last, |g, name| g.measure_perf_group_read(name, INSTRUCTIONS_EVENT, 1))),
    table_row("perf_rdpmc", "perf_event by RDPMC, own thread, one PMU event",
        In(Last, |g, name| g.measure_perf_rdpmc_read(name))),
    table_row("context_read_4", "a context of /dev/perfmon, four PMDs by one call",
        In(Context, |g, name| g.measure_pmd_reads(name, COUNTERS_PER_THREAD))),
    table_row("context_read_1", "a context of /dev/perfmon, one PMD by one call",
        In(Context, |g, name| g.measure_pmd_reads(name, 1))),
    table_row("self_read", "a context of /dev/perfmon, one PMD by self page and RDPMC",
        In(Context, |g, name| g.measure_self_page_read(name))),
    table_row("switch", "two thread switches: a byte to another thread and back",
        In(ContextSwitch, |g, name| g.measure_job(name, Switches))),
    table_row("switch_context_4", "two thread switches, each thread with a context of 4 counters",
        In(ContextSwitch, |g, name| {
            g.measure_thread_switches(name, || start_counting_context(COUNTERS_PER_THREAD))
        })),
    table_row("switch_perf_4", "two thread switches, each thread with a group of 4 perf events",
        In(PerfSwitch, |g, name| g.measure_thread_switches(name, open_thread_perf_group))),
    table_row("sample_forward", "20,040 instructions with one sample, into a forward ring",
        In(Context, |g, name| g.measure_samples(name, || sample::start_user_sampling("ring")))),
    table_row("sample_backward", "20,040 instructions with one sample, into a backward ring",
        In(Context, |g, name| {
            g.measure_samples(name, || sample::start_user_sampling("flight-recorder"))
        })),
    table_row("sample_perf", "20,040 instructions with one sample, by perf",
        In(PerfSample, |g, name| g.measure_samples(name, sample::open_perf_sampling))),
    table_row("sample_forward_handler", "interrupt handler of a sample, into a forward ring",
        Handler),
    table_row("sample_backward_handler", "interrupt handler of a sample, into a backward ring",
        Handler),
    table_row("sample_perf_handler", "interrupt handler of a sample, by perf", Handler),
    table_row("turns_context", "a switch of event sets of 4 counters: its timer callback",
        In(ContextSwitch, |g, name| g.measure_event_set_switches::<TwoEventSets>(name))),
    table_row("turns_perf", "perf's rotation of groups of 4 events: its timer callback",
        In(PerfGroups, |g, name| g.measure_event_set_switches::<TwoPerfGroups>(name))),
    table_row("life_context", "",
        In(ContextSwitch, |g, name| {
            g.measure_open_and_close(name, || start_counting_context(COUNTERS_PER_THREAD))
        })),
    table_row("life_perf", "",
        In(PerfGroups, |g, name| g.measure_open_and_close(name, open_thread_perf_group))),
    table_row("close_forward", "close(-1), sampled every 20,000 instructions, into a forward ring",
        In(Context, |g, name| {
            let context = sample::start_kernel_and_user_sampling("ring")?;
            g.measure_close_calls(name, context, sample::restart_sampling_period)
        })),
    table_row("close_backward",
        "close(-1), sampled every 20,000 instructions, into a backward ring",
        In(Context, |g, name| {
            let context = sample::start_kernel_and_user_sampling("flight-recorder")?;
            g.measure_close_calls(name, context, sample::restart_sampling_period)
        })),
    table_row("close", "close(-1), not sampled",
        In(Context, |g, name| g.measure_close_calls(name, (), |()| Ok(())))),
    table_row("event", "**an event** of a program, u32 + u64 and the time, with its loop",
        Event(record_u32_u64_events, Some(0))),
    table_row("event_three", "an event of a program, three u64, with its loop",
        Event(record_three_u64_events, Some(0))),
    table_row("event_text", "an event of a program, u32 and a text of 24 characters, with its loop",
        Event(record_text_events, Some(0))),
    table_row("event_flight",
        "an event of a program, u32 + u64, into a flight recorder, with its loop",
        Event(record_u32_u64_events, Some(FLIGHT))),
    table_row("event_off", "an event that no trace wants, with its loop",
        Event(record_u32_u64_events, None)),
    table_row("event_off_2", "two events that no trace wants, with their loop",
        Event(record_two_events_per_round, None)),
    table_row("proc_stat", "/proc/stat, read only", Proc),
    table_row("proc_stat_parsed", "/proc/stat, read and parsed", Proc),
    table_row("proc_interrupts", "/proc/interrupts, read only", Proc),
    table_row("proc_interrupts_parsed", "/proc/interrupts, read and parsed", Proc),
    table_row("proc_softirqs", "/proc/softirqs, read only", Proc),
    table_row("proc_softirqs_parsed", "/proc/softirqs, read and parsed", Proc),
    table_row("proc_vmstat", "/proc/vmstat, read only", Proc),
    table_row("proc_vmstat_parsed", "/proc/vmstat, read and parsed", Proc),
    table_row("clock_gettime", "clock_gettime(), which a snapshot calls twice",
        In(First, |g, name| g.measure_loop(name, |n| {
            (0..n).for_each(|_| _ = clock_gettime(ClockId::Monotonic));
        }))),
    table_row("getppid", "getppid(), for comparison",
        In(First, |g, name| g.measure_job(name, Calls))),
    table_row("getppid_sched", "getppid(), with accounting of the scheduler",
        Accounted(Calls, "1")),
    table_row("getppid_irq", "getppid(), with accounting of the scheduler and interrupts",
        Accounted(Calls, "3")),
    table_row("getppid_calls",
        "getppid(), with accounting of the scheduler, interrupts and system calls",
        Accounted(Calls, "7")),
    table_row("getppid_all", "getppid(), with all accounting", Accounted(Calls, "15")),
    table_row("switch_sched", "a thread switch, with accounting of the scheduler",
        Accounted(Switches, "1")),
    table_row("switch_irq", "a thread switch, with accounting of the scheduler and interrupts",
        Accounted(Switches, "3")),
    table_row("switch_calls",
        "a thread switch, with accounting of the scheduler, interrupts and system calls",
        Accounted(Switches, "7")),
    table_row("switch_all", "a thread switch, with all accounting", Accounted(Switches, "15")),
    table_row("interrupt", "an interrupt that a CPU sends to itself, for comparison",
        In(GuestStage::Observed, |g, name| g.measure_job(name, Interrupts))),
    table_row("interrupt_sched", "an interrupt, with accounting of the scheduler",
        Accounted(Interrupts, "1")),
    table_row("interrupt_irq", "an interrupt, with accounting of the scheduler and interrupts",
        Accounted(Interrupts, "3")),
    table_row("interrupt_calls",
        "an interrupt, with accounting of the scheduler, interrupts and system calls",
        Accounted(Interrupts, "7")),
    table_row("interrupt_all", "an interrupt, with all accounting", Accounted(Interrupts, "15")),
    table_row("getppid_empty", "getppid(), with empty probes at entry and exit",
        Observed(Calls, EMPTY_PROBES)),
    table_row("getppid_ftrace", "getppid(), traced by ftrace", Observed(Calls, FTRACE_TOOL)),
    table_row("getppid_perf", "getppid(), traced by perf", Observed(Calls, PERF_TOOL)),
    table_row("getppid_bpf", "getppid(), timed by BPF", Observed(Calls, BPF_TOOL)),
    table_row("switch_empty", "a thread switch, with empty probes",
        Observed(Switches, EMPTY_PROBES)),
    table_row("switch_ftrace", "a thread switch, traced by ftrace",
        Observed(Switches, FTRACE_TOOL)),
    table_row("switch_perf", "a thread switch, traced by perf", Observed(Switches, PERF_TOOL)),
    table_row("switch_bpf", "a thread switch, timed by BPF", Observed(Switches, BPF_TOOL)),
    table_row("interrupt_empty", "an interrupt, with empty probes at entry and exit",
        Observed(Interrupts, EMPTY_PROBES)),
    table_row("interrupt_ftrace", "an interrupt, traced by ftrace",
        Observed(Interrupts, FTRACE_TOOL)),
    table_row("interrupt_perf", "an interrupt, traced by perf", Observed(Interrupts, PERF_TOOL)),
    table_row("interrupt_bpf", "an interrupt, timed by BPF", Observed(Interrupts, BPF_TOOL)),

    table_row("perf_read_16", "perf_event, a group of 16, per counter",
        Host(|name| compare_with_perf_read(name, PERF_GROUP_EVENTS))),
    table_row("perf_read_1", "perf_event, one counter",
        Host(|name| compare_with_perf_read(name, 1))),
    table_row("loads_perf_read_16",
        "perf_event, a group of 16, against plain loads, summed, not copied",
        Host(compare_loads_with_perf_read)),
    table_row("bpf_batch_key", "BPF per-CPU array, batch of 1,000, per key (all CPUs of it)",
        Host(|name| compare_with_bpf_batch(name, false))),
    table_row("bpf_batch_value", "BPF per-CPU array, batch of 1,000, per value (one CPU of a key)",
        Host(|name| compare_with_bpf_batch(name, true))),
    table_row("bpf_lookup_key", "BPF per-CPU array, one lookup, per key",
        Host(compare_with_bpf_lookup)),
    table_row("proc_vmstat_token", "/proc/vmstat, read and parsed, per number",
        Host(compare_with_vmstat)),
    table_row("lttng_event",
        "an event of a program, u32 + u64, by LTTng-UST into a snapshot session",
        Lttng),
    table_row("lttng_flight", "an event by LTTng-UST, against perftrace into a flight recorder",
        Lttng),
    table_row("flag_check_1", "snapshot of 1 CPU: with the check, against plain loads",
        Host(|name| compare_checked_with_plain_read(name, 1))),
    table_row("flag_check_2", "snapshot of 2 CPUs: with the check, against plain loads",
        Host(|name| compare_checked_with_plain_read(name, 2))),
    table_row("flag_check_64", "snapshot of 64 CPUs: with the check, against plain loads",
        Host(|name| compare_checked_with_plain_read(name, 64))),
    table_row("write_flagged", "writing: flag, add, flag (as perf_adjust), against one add",
        Host(|name| compare_counter_updates(name, CounterCacheLines::add_with_seqflag_to_each))),
    table_row("write_locked", "writing: lock add (a shared counter), against one add",
        Host(|name| compare_counter_updates(name, CounterCacheLines::add_locked_to_each))),
];

fn open_thread_perf_group() -> io::Result<PerfGroup> {
    PerfGroup::of_thread(INSTRUCTIONS_EVENT, COUNTERS_PER_THREAD.into())
}
