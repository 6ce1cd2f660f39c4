// SPDX-License-Identifier: GPL-2.0

//! The table of all operations and comparisons, in the order of the report. A row has the name and
//! the label of the operation, and the program that runs it. The program also determines the unit
//! of the result. `bars.rs` has the limits for the results.

use std::io;

use perfcounters::Counters;
use perfmon::Context as PerfmonContext;
use rustix::time::{clock_gettime, ClockId};

use crate::events::{
    record_text_events, record_three_u64_events, record_two_events_per_round,
    record_u32_u64_events, FLIGHT,
};
use crate::guest::Guest;
use crate::host::{
    compare_checked_with_plain_read, compare_loads_with_perf_read, compare_plain_update_with,
    compare_with_bpf_batch, compare_with_bpf_lookup, compare_with_perf_read, compare_with_vmstat,
    PERF_GROUP_EVENTS,
};
use crate::peers::{PerfGroup, INSTRUCTIONS_EVENT, PAGE_FAULTS_EVENT};
use crate::record::TimeRatio;
use crate::sample;
use crate::switch::{start_counting_context, TwoEventSets, TwoPerfGroups, COUNTERS_PER_THREAD};
use crate::sys::{run_nop_rounds, CounterCacheLines};
use crate::trace::KernelOperation::{Calls, Interrupts, Switches};
use crate::trace::{BPF_TOOL, EMPTY_PROBES_TOOL, FTRACE_TOOL, PERF_TOOL};

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
    Tools,
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
pub enum OperationRunner {
    /// bench.ko measures the operation in a guest.
    Module,
    /// The program in a guest calls this function in this stage.
    InGuest(GuestStage, fn(&Guest) -> io::Result<()>),
    /// The operation is the interrupt handler of another operation, and the two are measured
    /// together. If the name of the other operation is `NAME`, the name of the handler is
    /// `NAME_handler`.
    Handler,
    /// The program compares a pair of loops on this machine.
    Host(fn() -> io::Result<TimeRatio>),
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
    pub runner: OperationRunner,
}

impl Operation {
    /// Returns the unit of the results.
    pub fn unit(&self) -> ResultUnit {
        match self.runner {
            OperationRunner::Module => ResultUnit::Write,
            OperationRunner::Host(_) | OperationRunner::Lttng => ResultUnit::Ratio,
            OperationRunner::InGuest(..) | OperationRunner::Handler => ResultUnit::Read,
        }
    }
}

/// Returns the operations whose results have the unit `unit`, and which have a row in the report.
pub fn reported_operations(unit: ResultUnit) -> impl Iterator<Item = &'static Operation> {
    let shown = move |row: &&Operation| row.unit() == unit && !row.label.is_empty();
    OPERATIONS.iter().filter(shown)
}

const fn row(name: &'static str, label: &'static str, runner: OperationRunner) -> Operation {
    Operation {
        name,
        label,
        runner,
    }
}

use GuestStage::{Context, ContextSwitch, First, Last, PerfGroups, PerfSample, PerfSwitch, Tools};
use OperationRunner::{Handler, Host, InGuest as In, Lttng, Module};

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

    row("self_check_user", "", In(First, |g| g.measure_infallible_operation(run_nop_rounds))),
    row("snapshot", "**snapshot** of 1,000 counters on all CPUs, checked",
        In(First, |g| g.measure_snapshot(Counters::copy_consistent_values))),
    row("snapshot_unchecked", "snapshot without the seqflag check",
        In(First, |g| g.measure_snapshot(Counters::copy_values_without_check))),
    row("bpf_batch", "BPF per-CPU array, batch lookup", In(Last, |g| g.measure_bpf_batch_lookup())),
    row("bpf_lookup", "BPF per-CPU array, one lookup", In(Last, |g| g.measure_bpf_lookup())),
    row("perf_read_16", "perf_event read(), own CPU, a group of 16",
        In(First, |g| g.measure_perf_group_read(PAGE_FAULTS_EVENT, 16))),
    row("perf_read_8", "perf_event read(), own CPU, a group of 8",
        In(First, |g| g.measure_perf_group_read(PAGE_FAULTS_EVENT, 8))),
    row("perf_read_1", "perf_event read(), own CPU, one counter",
        In(First, |g| g.measure_perf_group_read(PAGE_FAULTS_EVENT, 1))),
    row("perf_pmu_4", "perf_event read(), own CPU, a group of 4 PMU events",
        In(Last, |g| g.measure_perf_group_read(INSTRUCTIONS_EVENT, 4))),
    row("perf_pmu_1", "perf_event read(), own CPU, one PMU event",
        In(Last, |g| g.measure_perf_group_read(INSTRUCTIONS_EVENT, 1))),
    row("perf_rdpmc", "perf_event by RDPMC, own thread, one PMU event",
        In(Last, |g| g.measure_perf_rdpmc_read())),
    row("context_read_4", "a context of /dev/perfmon, four PMDs by one call",
        In(Context, |g| g.measure_pmd_reads(COUNTERS_PER_THREAD))),
    row("context_read_1", "a context of /dev/perfmon, one PMD by one call",
        In(Context, |g| g.measure_pmd_reads(1))),
    row("self_read", "a context of /dev/perfmon, one PMD by self page and RDPMC",
        In(Context, |g| g.measure_self_page_read())),
    row("switch", "two thread switches: a byte to another thread and back",
        In(ContextSwitch, |g| g.measure_kernel_operation(Switches))),
    row("switch_context_4", "two thread switches, each thread with a context of 4 counters",
        In(ContextSwitch, |g| g.measure_thread_switches(start_thread_context))),
    row("switch_perf_4", "two thread switches, each thread with a group of 4 perf events",
        In(PerfSwitch, |g| g.measure_thread_switches(open_thread_perf_group))),
    row("sample_forward", "20,040 instructions with one sample, into a forward ring",
        In(Context, |g| g.measure_samples(|| sample::start_user_sampling("ring")))),
    row("sample_backward", "20,040 instructions with one sample, into a backward ring",
        In(Context, |g| g.measure_samples(|| sample::start_user_sampling("flight-recorder")))),
    row("sample_perf", "20,040 instructions with one sample, by perf",
        In(PerfSample, |g| g.measure_samples(sample::open_perf_sampling))),
    row("sample_forward_handler", "interrupt handler of a sample, into a forward ring", Handler),
    row("sample_backward_handler", "interrupt handler of a sample, into a backward ring", Handler),
    row("sample_perf_handler", "interrupt handler of a sample, by perf", Handler),
    row("turns_context", "a switch of event sets of 4 counters: its timer callback",
        In(ContextSwitch, |g| g.measure_event_set_switches::<TwoEventSets>())),
    row("turns_perf", "perf's rotation of groups of 4 events: its timer callback",
        In(PerfGroups, |g| g.measure_event_set_switches::<TwoPerfGroups>())),
    row("life_context", "", In(ContextSwitch, |g| g.measure_open_and_close(start_thread_context))),
    row("life_perf", "", In(PerfGroups, |g| g.measure_open_and_close(open_thread_perf_group))),
    row("close_forward", "close(-1), sampled every 20,000 instructions, into a forward ring",
        In(Context, |g| g.measure_close_calls(Some("ring")))),
    row("close_backward", "close(-1), sampled every 20,000 instructions, into a backward ring",
        In(Context, |g| g.measure_close_calls(Some("flight-recorder")))),
    row("close", "close(-1), not sampled", In(Context, |g| g.measure_close_calls(None))),
    row("event", "**an event** of a program, u32 + u64 and the time, with its loop",
        In(First, |g| g.measure_events(record_u32_u64_events, Some(0)))),
    row("event_three", "an event of a program, three u64, with its loop",
        In(First, |g| g.measure_events(record_three_u64_events, Some(0)))),
    row("event_text", "an event of a program, u32 and a text of 24 characters, with its loop",
        In(First, |g| g.measure_events(record_text_events, Some(0)))),
    row("event_flight", "an event of a program, u32 + u64, into a flight recorder, with its loop",
        In(First, |g| g.measure_events(record_u32_u64_events, Some(FLIGHT)))),
    row("event_off", "an event that no trace wants, with its loop",
        In(First, |g| g.measure_events(record_u32_u64_events, None))),
    row("event_off_2", "two events that no trace wants, with their loop",
        In(First, |g| g.measure_events(record_two_events_per_round, None))),
    row("proc_stat", "/proc/stat, read only", In(First, Guest::measure_proc_file)),
    row("proc_stat_parsed", "/proc/stat, read and parsed", In(First, Guest::measure_proc_file)),
    row("proc_interrupts", "/proc/interrupts, read only", In(First, Guest::measure_proc_file)),
    row("proc_interrupts_parsed", "/proc/interrupts, read and parsed",
        In(First, Guest::measure_proc_file)),
    row("proc_softirqs", "/proc/softirqs, read only", In(First, Guest::measure_proc_file)),
    row("proc_softirqs_parsed", "/proc/softirqs, read and parsed",
        In(First, Guest::measure_proc_file)),
    row("proc_vmstat", "/proc/vmstat, read only", In(First, Guest::measure_proc_file)),
    row("proc_vmstat_parsed", "/proc/vmstat, read and parsed", In(First, Guest::measure_proc_file)),
    row("clock_gettime", "clock_gettime(), which a snapshot calls twice",
        In(First, |g| g.measure_infallible_operation(read_clock_repeatedly))),
    row("getppid", "getppid(), for comparison", In(First, |g| g.measure_kernel_operation(Calls))),
    row("getppid_sched", "getppid(), with accounting of the scheduler",
        In(Tools, |g| g.measure_with_accounting(Calls, "1"))),
    row("getppid_irq", "getppid(), with accounting of the scheduler and interrupts",
        In(Tools, |g| g.measure_with_accounting(Calls, "3"))),
    row("getppid_calls", "getppid(), with accounting of the scheduler, interrupts and system calls",
        In(Tools, |g| g.measure_with_accounting(Calls, "7"))),
    row("getppid_all", "getppid(), with all accounting",
        In(Tools, |g| g.measure_with_accounting(Calls, "15"))),
    row("switch_sched", "a thread switch, with accounting of the scheduler",
        In(Tools, |g| g.measure_with_accounting(Switches, "1"))),
    row("switch_irq", "a thread switch, with accounting of the scheduler and interrupts",
        In(Tools, |g| g.measure_with_accounting(Switches, "3"))),
    row("switch_calls",
        "a thread switch, with accounting of the scheduler, interrupts and system calls",
        In(Tools, |g| g.measure_with_accounting(Switches, "7"))),
    row("switch_all", "a thread switch, with all accounting",
        In(Tools, |g| g.measure_with_accounting(Switches, "15"))),
    row("interrupt", "an interrupt that a CPU sends to itself, for comparison",
        In(Tools, |g| g.measure_kernel_operation(Interrupts))),
    row("interrupt_sched", "an interrupt, with accounting of the scheduler",
        In(Tools, |g| g.measure_with_accounting(Interrupts, "1"))),
    row("interrupt_irq", "an interrupt, with accounting of the scheduler and interrupts",
        In(Tools, |g| g.measure_with_accounting(Interrupts, "3"))),
    row("interrupt_calls",
        "an interrupt, with accounting of the scheduler, interrupts and system calls",
        In(Tools, |g| g.measure_with_accounting(Interrupts, "7"))),
    row("interrupt_all", "an interrupt, with all accounting",
        In(Tools, |g| g.measure_with_accounting(Interrupts, "15"))),
    row("getppid_empty", "getppid(), with empty probes at entry and exit",
        In(Tools, |g| g.measure_with_tool(Calls, EMPTY_PROBES_TOOL))),
    row("getppid_ftrace", "getppid(), traced by ftrace",
        In(Tools, |g| g.measure_with_tool(Calls, FTRACE_TOOL))),
    row("getppid_perf", "getppid(), traced by perf",
        In(Tools, |g| g.measure_with_tool(Calls, PERF_TOOL))),
    row("getppid_bpf", "getppid(), timed by BPF",
        In(Tools, |g| g.measure_with_tool(Calls, BPF_TOOL))),
    row("switch_empty", "a thread switch, with empty probes",
        In(Tools, |g| g.measure_with_tool(Switches, EMPTY_PROBES_TOOL))),
    row("switch_ftrace", "a thread switch, traced by ftrace",
        In(Tools, |g| g.measure_with_tool(Switches, FTRACE_TOOL))),
    row("switch_perf", "a thread switch, traced by perf",
        In(Tools, |g| g.measure_with_tool(Switches, PERF_TOOL))),
    row("switch_bpf", "a thread switch, timed by BPF",
        In(Tools, |g| g.measure_with_tool(Switches, BPF_TOOL))),
    row("interrupt_empty", "an interrupt, with empty probes at entry and exit",
        In(Tools, |g| g.measure_with_tool(Interrupts, EMPTY_PROBES_TOOL))),
    row("interrupt_ftrace", "an interrupt, traced by ftrace",
        In(Tools, |g| g.measure_with_tool(Interrupts, FTRACE_TOOL))),
    row("interrupt_perf", "an interrupt, traced by perf",
        In(Tools, |g| g.measure_with_tool(Interrupts, PERF_TOOL))),
    row("interrupt_bpf", "an interrupt, timed by BPF",
        In(Tools, |g| g.measure_with_tool(Interrupts, BPF_TOOL))),

    row("perf_read_16", "perf_event, a group of 16, per counter",
        Host(|| compare_with_perf_read(PERF_GROUP_EVENTS))),
    row("perf_read_1", "perf_event, one counter", Host(|| compare_with_perf_read(1))),
    row("loads_perf_read_16", "perf_event, a group of 16, against plain loads, summed, not copied",
        Host(compare_loads_with_perf_read)),
    row("bpf_batch_key", "BPF per-CPU array, batch of 1,000, per key (all CPUs of it)",
        Host(|| compare_with_bpf_batch(false))),
    row("bpf_batch_value", "BPF per-CPU array, batch of 1,000, per value (one CPU of a key)",
        Host(|| compare_with_bpf_batch(true))),
    row("bpf_lookup_key", "BPF per-CPU array, one lookup, per key", Host(compare_with_bpf_lookup)),
    row("proc_vmstat_token", "/proc/vmstat, read and parsed, per number",
        Host(compare_with_vmstat)),
    row("lttng_event", "an event of a program, u32 + u64, by LTTng-UST into a snapshot session",
        Lttng),
    row("lttng_flight", "an event by LTTng-UST, against perftrace into a flight recorder", Lttng),
    row("flag_check_1", "snapshot of 1 CPU: with the check, against plain loads",
        Host(|| compare_checked_with_plain_read(1))),
    row("flag_check_2", "snapshot of 2 CPUs: with the check, against plain loads",
        Host(|| compare_checked_with_plain_read(2))),
    row("flag_check_64", "snapshot of 64 CPUs: with the check, against plain loads",
        Host(|| compare_checked_with_plain_read(64))),
    row("write_flagged", "writing: flag, add, flag (as perf_adjust), against one add",
        Host(|| compare_plain_update_with(CounterCacheLines::add_with_seqflag_to_each_line))),
    row("write_locked", "writing: lock add (a shared counter), against one add",
        Host(|| compare_plain_update_with(CounterCacheLines::add_locked_to_each_line))),
];

fn start_thread_context() -> io::Result<PerfmonContext> {
    start_counting_context(COUNTERS_PER_THREAD)
}

fn open_thread_perf_group() -> io::Result<PerfGroup> {
    PerfGroup::of_thread(INSTRUCTIONS_EVENT, COUNTERS_PER_THREAD.into())
}

fn read_clock_repeatedly(n: u32) {
    (0..n).for_each(|_| _ = clock_gettime(ClockId::Monotonic));
}
