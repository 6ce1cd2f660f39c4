// SPDX-License-Identifier: GPL-2.0

//! The only program in the guest (virtual machine). The program measures all operations one after
//! the other in the same boot, and prints a line of JSON for each operation.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::thread::sleep;
use std::time::Duration;

use perfcounters::{Counters, InstancePattern, Selection, SnapshotStamp};
use perfmon::Pmd;
use rustix::thread::{sched_setaffinity, CpuSet};

use crate::count::{count_instructions, MAX_OPERATIONS_PER_WINDOW};
use crate::events::{EventLoop, SimulatedKernel};
use crate::operations::{GuestStage, OperationRunner, OPERATIONS};
use crate::peers::{read_cpu_count, PerfEvent, PerfGroup, ProcFile, INSTRUCTIONS_EVENT};
use crate::record::{
    print_property, print_record, Failure, InstanceAddTicks, InstructionCount, Record,
};
use crate::sample;
use crate::switch::{start_counting_context, AlternatingSets, PingPong, COUNTERS_PER_THREAD};
use crate::sys::{
    close_invalid_fd, getppid, perf_event_open, run_nop_rounds, set_fifo_scheduling,
    BpfPerCpuArray, RdpmcPerfEvent,
};
use crate::trace::{KernelOperation, ObservingTool};

/// Number of rounds of [`run_nop_rounds`] during which event sets are switched; a round takes a
/// microsecond. In a guest with several CPUs, timers expire only at clock ticks, every 4 ms, so
/// event sets are switched 50 times during 200,000 rounds. Each switch of event sets is one
/// measurement. 50 measurements are enough: the other operations are measured in 41 windows.
const NOP_ROUNDS_DURING_SET_SWITCHES: u32 = 200_000;
/// Number of calls of close(-1) that count as one operation.
const CLOSE_CALLS_PER_OPERATION: u32 = 100;
/// The CPU on which all measurements run. The groups of perf events that
/// [`Guest::measure_perf_group_read`] reads count the events of this CPU.
const MEASUREMENT_CPU: usize = 0;
/// Maximum number of measurements of one operation. If too few windows have the same length in each
/// measurement, the report leaves the operation out.
const MAX_MEASUREMENTS_PER_OPERATION: u32 = 5;
/// Duration of the sleep between two measurements of opening and closing a context. The sleep is
/// longer than an RCU grace period and the deferred work that follows it.
const SLEEP_BETWEEN_OPENINGS: Duration = Duration::from_millis(60);
/// Number of keys of the BPF map, equal to the number of counters that are read.
const NR_BPF_MAP_KEYS: u32 = 1000;
/// Number of keys in a batch, which is one system call that looks up several keys of a BPF map. The
/// three numbers are for guests with 1 to 3 CPUs, with 4 to 31 CPUs, and with more CPUs. The map
/// has a value for each key and CPU. The more CPUs a guest has, the fewer keys a batch has, so that
/// one batch fits into a window (`count.rs`).
const BPF_BATCH_KEYS_BY_CPUS: [usize; 3] = [1000, 200, 50];

/// The guest (virtual machine) in which the operations are measured. Each method measures the
/// operation `operation_name` and prints the record.
#[derive(Clone, Copy)]
pub struct Guest {
    operation_name: &'static str,
    cpus: u32,
    /// Maximum number of operations in a window.
    max_window_operations: u32,
    simulated_kernel: SimulatedKernel,
}

impl Guest {
    fn print_instruction_count(&self, operation: &str, count: InstructionCount) {
        print_record(&Record::Count(InstructionCount {
            operation: operation.into(),
            cpus: self.cpus,
            ..count
        }));
    }

    /// Repeats a measurement until enough windows have the same length, at most
    /// [`MAX_MEASUREMENTS_PER_OPERATION`] times. Prints the record of the last measurement.
    fn measure_until_reliable(
        &self,
        mut measure: impl FnMut() -> io::Result<InstructionCount>,
    ) -> io::Result<()> {
        let mut last = measure()?;
        for _ in 1..MAX_MEASUREMENTS_PER_OPERATION {
            if last.find_why_unreliable().is_none() {
                break;
            }
            last = measure()?;
        }
        self.print_instruction_count(self.operation_name, last);
        Ok(())
    }

    fn measure_operation(
        &self,
        values: u64,
        run: &mut dyn FnMut(u32) -> io::Result<()>,
    ) -> io::Result<()> {
        self.measure_until_reliable(|| {
            count_instructions(values, self.max_window_operations, &|| {}, run)
        })
    }

    fn print_failure(&self, what: &str, why: &dyn ToString) {
        print_record(&Record::Failure(Failure {
            what: what.into(),
            cpus: self.cpus,
            why: why.to_string(),
        }));
    }

    /// Measures an operation, which `run` executes as often as its argument says.
    pub fn measure_infallible_operation(&self, run: impl Fn(u32)) -> io::Result<()> {
        self.measure_operation(1, &mut |n| {
            run(n);
            Ok(())
        })
    }

    /// Measures a snapshot of 1,000 counters by the library's reader.
    pub fn measure_snapshot(
        &self,
        fill: impl Fn(
            &Counters,
            &Selection,
            &mut Vec<i64>,
        ) -> Result<SnapshotStamp, perfcounters::Error>,
    ) -> io::Result<()> {
        let broke = |e: perfcounters::Error| io::Error::other(e.to_string());
        let mut counters = Counters::open().map_err(broke)?;
        let selection = counters
            .select(&InstancePattern::new(["bench/*"]))
            .map_err(broke)?;
        let mut values = Vec::new();
        counters
            .copy_consistent_values(&selection, &mut values)
            .map_err(broke)?;
        let nr = values.len() as u64;
        self.measure_operation(nr, &mut |n| {
            (0..n)
                .try_for_each(|_| fill(&counters, &selection, &mut values).map(drop))
                .map_err(broke)
        })
    }

    /// Measures reading a file of /proc. The name of the operation contains the name of the file.
    pub fn measure_proc_file(&self) -> io::Result<()> {
        let file = self.operation_name.trim_start_matches("proc_");
        let mut file = ProcFile::open(&format!("/proc/{}", file.trim_end_matches("_parsed")))?;
        let (values, _) = file.read_and_parse()?;
        if self.operation_name.ends_with("_parsed") {
            self.measure_operation(values, &mut |n| {
                (0..n).try_for_each(|_| file.read_and_parse().map(drop))
            })
        } else {
            self.measure_operation(values, &mut |n| {
                (0..n).try_for_each(|_| file.read().map(drop))
            })
        }
    }

    /// Measures reading a group of `count` perf events.
    pub fn measure_perf_group_read(&self, event: PerfEvent, count: u16) -> io::Result<()> {
        let mut group = PerfGroup::new(event, count.into(), MEASUREMENT_CPU as i32)?;
        self.measure_operation(count.into(), &mut |n| (0..n).try_for_each(|_| group.read()))
    }

    /// Measures reading a perf event by RDPMC.
    pub fn measure_perf_rdpmc_read(&self) -> io::Result<()> {
        let event = perf_event_open(&INSTRUCTIONS_EVENT.counting_attr(0), 0, -1, None)?;
        let event = RdpmcPerfEvent::new(event)?;
        self.measure_operation(1, &mut |n| {
            (0..n).try_for_each(|_| match event.read() {
                Some(_) => Ok(()),
                None => Err(io::Error::other("the event cannot be read with RDPMC")),
            })
        })
    }

    /// Measures the switches between two threads that run alternately. Each thread first calls the
    /// function `counted`, and keeps the returned object, for example a context that counts events
    /// of the thread, until the end of the measurement.
    pub fn measure_thread_switches<T: 'static>(
        &self,
        counted: fn() -> io::Result<T>,
    ) -> io::Result<()> {
        set_fifo_scheduling(true)?;
        let measured = counted().and_then(|_own| {
            let mut pair = PingPong::new(counted)?;
            let measured = self.measure_operation(2, &mut |n| {
                (0..n).try_for_each(|_| pair.switch_to_partner_and_back())
            });
            let _ = pair.end_partner();
            measured
        });
        let _ = set_fifo_scheduling(false);
        measured
    }

    /// Measures the cost of a sample by a loop whose rounds have a known number of instructions and
    /// cause one sample each. The object that `sampled` returns takes the samples. Also measures
    /// the part of the cost of a sample that is spent in the handler of the overflow interrupt.
    pub fn measure_samples<T>(&self, sampled: fn() -> io::Result<T>) -> io::Result<()> {
        let _sampled = sampled()?;
        let _ = take_shortest_nmi();
        let measured = self.measure_infallible_operation(sample::run_sampling_periods);
        let handler = format!("{}_handler", self.operation_name);
        match take_shortest_nmi() {
            Ok(nmi) => self.print_instruction_count(&handler, nmi),
            Err(error) => self.print_failure(&handler, &error),
        }
        measured
    }

    /// Measures one switch of event sets, or one rotation of perf's groups: the length of the timer
    /// callback that makes the switch or rotation. The length of the callback does not include the
    /// rest of the timer interrupt, callbacks of other timers, or work on other CPUs.
    pub fn measure_event_set_switches<T: AlternatingSets>(&self) -> io::Result<()> {
        let mut turns = T::new()?;
        self.measure_until_reliable(|| measure_one_event_set_switch(&mut turns))
    }

    /// Measures a hundred calls of close(-1), the system call with which Linux commit d1b26c70246b
    /// measured perf's backward rings. If there is a sampling format, a context with this format
    /// samples the calls, and each window first restarts the sampling period.
    pub fn measure_close_calls(&self, format: Option<&str>) -> io::Result<()> {
        let sampled = format
            .map(sample::start_kernel_and_user_sampling)
            .transpose()?;
        self.measure_operation(CLOSE_CALLS_PER_OPERATION.into(), &mut |n| {
            if let Some(context) = &sampled {
                sample::restart_first_period(context)?;
            }
            (0..n * CLOSE_CALLS_PER_OPERATION).for_each(|_| close_invalid_fd());
            Ok(())
        })
    }

    /// Measures a loop of events of a program. If `flags` is not `None`, a trace with these flags
    /// records the events.
    pub fn measure_events(&self, run: EventLoop, flags: Option<u32>) -> io::Result<()> {
        self.simulated_kernel
            .measure_events(run, flags, |run| self.measure_operation(1, run))
    }

    /// Measures reading PMDs (data registers) of a thread's context by a system call.
    pub fn measure_pmd_reads(&self, count: u16) -> io::Result<()> {
        let context = start_counting_context(COUNTERS_PER_THREAD)?;
        let mut pmds: Vec<Pmd> = (0..count)
            .map(|n| Pmd {
                reg_num: n,
                ..Pmd::default()
            })
            .collect();
        self.measure_operation(count.into(), &mut |n| {
            (0..n).try_for_each(|_| context.read_pmds_in_place(&mut pmds))
        })
    }

    /// Measures the read of a PMD of a thread's context from the context's self page, without a
    /// system call.
    pub fn measure_self_page_read(&self) -> io::Result<()> {
        let context = start_counting_context(COUNTERS_PER_THREAD)?;
        let page = perfmon::selfpage::SelfPageMapping::new(context.as_fd().as_raw_fd())
            .map_err(io::Error::from_raw_os_error)?;
        self.measure_operation(1, &mut |n| {
            (0..n).try_for_each(|_| match page.counter(0) {
                Some(_) => Ok(()),
                None => Err(io::Error::other("the page does not allow RDPMC")),
            })
        })
    }

    /// Measures the cost of opening a context or perf events, counting with [`COUNTERS_PER_THREAD`]
    /// counters, and closing the context or the events. The work that the kernel defers at the
    /// close is not measured: the deferred work ends before the next context or event is opened.
    pub fn measure_open_and_close<T>(&self, life: fn() -> io::Result<T>) -> io::Result<()> {
        let mut lives = |n: u32| (0..n).try_for_each(|_| life().map(drop));
        self.measure_until_reliable(|| {
            count_instructions(1, 1, &|| sleep(SLEEP_BETWEEN_OPENINGS), &mut lives)
        })
    }

    /// Measures the lookup of a key of a BPF per-CPU array.
    pub fn measure_bpf_lookup(&self) -> io::Result<()> {
        let possible = read_cpu_count("possible")?;
        let mut map = BpfPerCpuArray::new(NR_BPF_MAP_KEYS, possible)?;
        self.measure_operation(possible as u64, &mut |n| {
            (0..n).try_for_each(|k| map.lookup(k).map(drop))
        })
    }

    /// Measures the lookup of a batch of keys of a BPF per-CPU array.
    pub fn measure_bpf_batch_lookup(&self) -> io::Result<()> {
        let possible = read_cpu_count("possible")?;
        let mut map = BpfPerCpuArray::new(NR_BPF_MAP_KEYS, possible)?;
        let batch = match self.cpus {
            0..4 => BPF_BATCH_KEYS_BY_CPUS[0],
            4..32 => BPF_BATCH_KEYS_BY_CPUS[1],
            _ => BPF_BATCH_KEYS_BY_CPUS[2],
        };
        self.measure_operation((possible * batch) as u64, &mut |n| {
            (0..n).try_for_each(|_| map.lookup_first_keys(batch).map(drop))
        })
    }

    /// Prints the measurements that the kernel module bench.ko makes with interrupts off.
    fn print_module_measurements(&self) -> io::Result<()> {
        for line in std::fs::read_to_string("/proc/bench")?.lines() {
            match parse_bench_module_line(line) {
                Some(count) => self.print_instruction_count(&count.operation.clone(), count),
                None => self.print_failure("bench.ko", &line),
            }
        }
        Ok(())
    }

    /// Measures a system call, a switch of threads or an interrupt.
    pub fn measure_kernel_operation(&self, job: KernelOperation) -> io::Result<()> {
        match job {
            KernelOperation::Calls => {
                self.measure_infallible_operation(|n| (0..n).for_each(|_| getppid()))
            }
            KernelOperation::Switches => self.measure_thread_switches(|| Ok(())),
            KernelOperation::Interrupts => self.measure_until_reliable(|| {
                // bench.ko sends the interrupt to its own CPU.
                let line = std::fs::read_to_string("/proc/bench_interrupt")?;
                parse_bench_module_line(line.trim_end())
                    .ok_or_else(|| io::Error::other("cannot parse /proc/bench_interrupt"))
            }),
        }
    }

    /// Measures an operation while process accounting is on. `levels` is, as text, the sum of the
    /// accounting levels: the scheduler (1), interrupts (2), system calls (4), the time of switches
    /// (8).
    pub fn measure_with_accounting(&self, job: KernelOperation, levels: &str) -> io::Result<()> {
        std::fs::write("/proc/sys/kernel/ppa_levels", levels)?;
        std::fs::write("/proc/sys/kernel/ppa", "1 0 0 1")?;
        let measured = self.measure_kernel_operation(job);
        std::fs::write("/proc/sys/kernel/ppa", "0 0 0 1")?;
        measured
    }

    /// Measures an operation while another tool observes it.
    pub fn measure_with_tool(&self, job: KernelOperation, tool: ObservingTool) -> io::Result<()> {
        let guest = Self {
            max_window_operations: tool.max_window_operations.min(self.max_window_operations),
            ..*self
        };
        let measured = (tool.start)(job).and_then(|_observes| guest.measure_kernel_operation(job));
        sleep_until_perf_hooks_are_off();
        measured
    }

    fn print_instance_add_ticks(&self) -> io::Result<()> {
        for line in std::fs::read_to_string("/proc/bench_add")?.lines() {
            let mut words = line.split(' ');
            let from = words.next().and_then(|word| word.parse().ok());
            print_record(&Record::Adds(InstanceAddTicks {
                cpus: self.cpus,
                from: from.unwrap_or(0),
                ticks: words.filter_map(|word| word.parse().ok()).collect(),
                why_not: None,
            }));
        }
        Ok(())
    }

    /// Measures all operations of a stage in the order of the table.
    fn measure_operations_of_stage(&self, stage: GuestStage) {
        for operation in OPERATIONS {
            let name = operation.name;
            match operation.runner {
                OperationRunner::InGuest(at, measure) if at == stage => {
                    if let Err(error) = measure(&Self {
                        operation_name: name,
                        ..*self
                    }) {
                        self.print_failure(name, &error);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Makes the result of a handler from the shortest time that a call of the handler took, and the
/// number of calls that took this time.
fn make_handler_instruction_count(ticks: u64, agree: u32) -> InstructionCount {
    InstructionCount {
        values: 1,
        operations: [0, 1],
        ticks: [0, ticks],
        agree: [agree, agree],
        ..InstructionCount::default()
    }
}

fn measure_one_event_set_switch<T: AlternatingSets>(turns: &mut T) -> io::Result<InstructionCount> {
    let before = turns.read_set_counts()?;
    take_timer_callbacks()?;
    run_nop_rounds(NOP_ROUNDS_DURING_SET_SWITCHES);
    let callback = take_timer_callbacks()?
        .into_iter()
        .find(|callback| {
            callback
                .function_name
                .ends_with(T::TIMER_CALLBACK_NAME_SUFFIX)
        })
        .ok_or_else(|| io::Error::other("no timer callback has switched event sets or groups"))?;
    let after = turns.read_set_counts()?;
    let counts = [0, 1].map(|n: usize| after[n].wrapping_sub(before[n]));
    if !T::has_switched_in_each_callback(callback.nr_calls, counts) {
        let calls = callback.nr_calls;
        return Err(io::Error::other(format!(
            "{calls} timer callbacks do not match the counts of the two, {counts:?}"
        )));
    }
    Ok(make_handler_instruction_count(
        callback.shortest_ticks,
        callback.nr_shortest_calls,
    ))
}

/// Waits until the kernel no longer checks for perf events at each context switch. For one second
/// after the last perf event is closed, the kernel still checks for perf events at each context
/// switch, and the next operation would include the cost of the checks. The wait is cheap, because
/// the guest's clock skips idle time.
fn sleep_until_perf_hooks_are_off() {
    sleep(Duration::from_secs(2));
}

/// Waits until the modules have detached the tracepoint probes of contexts. The modules keep the
/// probes attached for ten seconds after the last use of contexts, and attached probes would add to
/// the cost of the next context switches.
fn wait_until_probes_are_detached() {
    sleep(Duration::from_secs(12));
}

/// Returns the length of the shortest NMI since the last call of this function, with the number of
/// NMIs of this length. bench.ko records both numbers.
fn take_shortest_nmi() -> io::Result<InstructionCount> {
    let text = std::fs::read_to_string("/proc/bench_nmi")?;
    let mut words = text.split_whitespace().map(str::parse);
    match (words.next(), words.next()) {
        (Some(Ok(ticks)), Some(Ok(agree))) => {
            Ok(make_handler_instruction_count(ticks, agree as u32))
        }
        _ => Err(io::Error::other("cannot parse /proc/bench_nmi")),
    }
}

/// The callbacks of one timer function, as bench.ko recorded them.
#[derive(Debug, PartialEq)]
struct TimerCallbacks {
    /// Length of the shortest callback in ticks.
    shortest_ticks: u64,
    /// Number of callbacks that had the shortest length.
    nr_shortest_calls: u32,
    nr_calls: u32,
    /// Name of the function, with its module in brackets.
    function_name: String,
}

/// Returns the timer callbacks that ran on this CPU since the last call of this function.
fn take_timer_callbacks() -> io::Result<Vec<TimerCallbacks>> {
    let text = std::fs::read_to_string("/proc/bench_timers")?;
    let callback = |line| {
        parse_timer_callback_line(line).ok_or_else(|| {
            io::Error::other(format!("cannot parse a line of /proc/bench_timers: {line}"))
        })
    };
    text.lines().map(callback).collect()
}

/// Parses a line of /proc/bench_timers; bench_main.c describes the format.
fn parse_timer_callback_line(line: &str) -> Option<TimerCallbacks> {
    let mut words = line.splitn(4, ' ');
    Some(TimerCallbacks {
        shortest_ticks: words.next()?.parse().ok()?,
        nr_shortest_calls: words.next()?.parse().ok()?,
        nr_calls: words.next()?.parse().ok()?,
        function_name: words.next()?.into(),
    })
}

/// Parses a line of /proc/bench; bench_main.c describes the format.
fn parse_bench_module_line(line: &str) -> Option<InstructionCount> {
    let mut words = line.split(' ');
    let operation = words.next()?.to_owned();
    let mut next = || words.next()?.parse::<u64>().ok();
    let [few, many, short, long] = [next()?, next()?, next()?, next()?];
    let agree = [next()? as u32, next()? as u32];
    // The name of an operation on a group of counters ends with `group_` and the number of
    // counters.
    let values = match operation.rsplit_once("group_") {
        Some((_, k)) => k.parse().ok()?,
        None => 1,
    };
    Some(InstructionCount {
        operation,
        values,
        operations: [few as u32, many as u32],
        ticks: [short, long],
        agree,
        ..InstructionCount::default()
    })
}

/// Measures all operations of the guest, after a loop of `late` microseconds. If `adds` is true,
/// bench.ko also adds 60,000 instances (counters), and measures some of the calls of perf_add()
/// that add them.
pub fn measure_all_operations(adds: bool, late: u32) -> io::Result<()> {
    let mut here = CpuSet::new();
    here.set(MEASUREMENT_CPU);
    sched_setaffinity(None, &here)?;
    run_nop_rounds(late);
    let cpus = read_cpu_count("online")? as u32;
    let guest = Guest {
        operation_name: "",
        cpus,
        max_window_operations: MAX_OPERATIONS_PER_WINDOW,
        simulated_kernel: SimulatedKernel::new(cpus),
    };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    print_property("guest kernel", release.trim());
    if let Err(error) = guest.print_module_measurements() {
        guest.print_failure("bench.ko", &error);
    }
    guest.measure_operations_of_stage(GuestStage::First);
    guest.measure_operations_of_stage(GuestStage::Context);
    wait_until_probes_are_detached();
    guest.measure_operations_of_stage(GuestStage::ContextSwitch);
    wait_until_probes_are_detached();
    guest.measure_operations_of_stage(GuestStage::PerfSwitch);
    sleep_until_perf_hooks_are_off();
    wait_until_probes_are_detached();
    guest.measure_operations_of_stage(GuestStage::Tools);
    guest.measure_operations_of_stage(GuestStage::PerfGroups);
    guest.measure_operations_of_stage(GuestStage::PerfSample);
    guest.measure_operations_of_stage(GuestStage::Last);
    if adds {
        if let Err(error) = guest.print_instance_add_ticks() {
            guest.print_failure("perf_add", &error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{parse_bench_module_line, parse_timer_callback_line};

    #[test]
    fn bench_module_line_is_parsed() {
        let count = parse_bench_module_line("group_4 16 64 200 632 41 40").expect("a line");
        assert_eq!((&*count.operation, count.values), ("group_4", 4));
        assert_eq!(count.instructions(), 9.0);
        assert_eq!(count.find_why_unreliable(), None);
        assert!(parse_bench_module_line("group_4 16 64 200").is_none());
    }
    #[test]
    fn timer_callback_line_is_parsed() {
        let line = parse_timer_callback_line("812 47 50 deferral_timer [perfmon]").expect("a line");
        assert_eq!(
            (line.shortest_ticks, line.nr_shortest_calls, line.nr_calls),
            (812, 47, 50)
        );
        assert_eq!(line.function_name, "deferral_timer [perfmon]");
        let line =
            parse_timer_callback_line("5001 40 50 perf_mux_hrtimer_handler").expect("a line");
        assert_eq!(line.function_name, "perf_mux_hrtimer_handler");
        assert_eq!(parse_timer_callback_line("5001 40 50"), None);
    }
}
