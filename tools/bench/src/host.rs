// SPDX-License-Identifier: GPL-2.0

//! Compares times on this machine, in pairs of loops that run alternately. Only the median of the
//! ratios of times is evaluated, because times vary from run to run far more than their ratios.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::time::Instant;

use perfcounters::fake::FakeCounters;
use perfcounters::{Counters, InstancePattern};
use protocols::sync::Word;
use rustix::thread::{sched_getcpu, sched_setaffinity, CpuSet};

use crate::operations::{OperationRunner, OPERATIONS};
use crate::peers::{read_cpu_count, PerfGroup, ProcFile, PAGE_FAULTS_EVENT};
use crate::record::{median, print_property, print_record, Failure, Record, TimeRatio};
use crate::sys::{map_file_words, BpfPerCpuArray, CounterCacheLines};

/// Number of runs of each comparison. Each run gives one ratio of times.
const RUNS_PER_COMPARISON: usize = 15;
/// Number of timed loops of each of the two sides in a run. The ratio of a run is the second side's
/// time per value divided by the first side's time per value. The time of a side is the time of its
/// fastest loop.
const TIMED_LOOPS_PER_RUN: usize = 31;
/// Intended duration of a timed loop in nanoseconds.
const TIMED_LOOP_NS: f64 = 100_000.0;
/// Number of counters that are read, and number of keys of the BPF map.
const NR_COUNTERS: u32 = 1000;
/// Number of events in a group of perf.
pub const PERF_GROUP_EVENTS: usize = 16;
/// Number of times that one execution of a side (the code to measure) updates the 16 counters. With
/// 64 updates of each counter, the cost of calling the code does not matter.
const UPDATES_PER_COUNTER: usize = 64;

/// One side of a comparison: the code to measure, and the number of values that one execution of
/// the code reads or writes.
struct ComparedSide<'a> {
    values_per_execution: f64,
    run: &'a mut dyn FnMut() -> io::Result<()>,
    /// Number of times that one timed loop executes the code.
    executions_per_loop: u32,
}

impl<'a> ComparedSide<'a> {
    fn new(values: usize, run: &'a mut dyn FnMut() -> io::Result<()>) -> io::Result<Self> {
        let mut side = Self {
            values_per_execution: values as f64,
            run,
            executions_per_loop: 1,
        };
        while side.time_ns_per_value()?
            * f64::from(side.executions_per_loop)
            * side.values_per_execution
            < TIMED_LOOP_NS
        {
            side.executions_per_loop *= 2;
        }
        Ok(side)
    }

    /// Runs one timed loop that executes the code, and returns the time of the loop in nanoseconds
    /// per value.
    fn time_ns_per_value(&mut self) -> io::Result<f64> {
        let start = Instant::now();
        for _ in 0..self.executions_per_loop {
            (self.run)()?;
        }
        Ok(start.elapsed().as_nanos() as f64
            / f64::from(self.executions_per_loop)
            / self.values_per_execution)
    }
}

/// Compares the times of two sides. The caller sets the name of the comparison.
fn compare_sides(
    mut ours: ComparedSide<'_>,
    mut theirs: ComparedSide<'_>,
) -> io::Result<TimeRatio> {
    let (mut ours_ns, mut theirs_ns, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS_PER_COMPARISON {
        let (mut a, mut b) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..TIMED_LOOPS_PER_RUN {
            a = a.min(ours.time_ns_per_value()?);
            b = b.min(theirs.time_ns_per_value()?);
        }
        ours_ns.push(a);
        theirs_ns.push(b);
        ratios.push(b / a);
    }
    Ok(TimeRatio {
        name: String::new(),
        ours_ns: median(&ours_ns),
        theirs_ns: median(&theirs_ns),
        ratios,
    })
}

/// The library's reader on simulated counter pages. The simulated counter pages are an anonymous
/// file in memory (memfd), which the registry code of the kernel modules maintains.
struct SimulatedPageReader {
    _fake_counters: FakeCounters,
    counters: Counters,
    selection: std::sync::Arc<perfcounters::Selection>,
    values: Vec<i64>,
}

impl SimulatedPageReader {
    fn new(nr_cpus: u32) -> io::Result<Self> {
        let (mut fake, path) = FakeCounters::in_memory(nr_cpus, 1)?;
        for n in 0..NR_COUNTERS {
            let instance = fake
                .add_counter(&format!("bench/c{n:05}"))
                .map_err(|e| io::Error::other(e.explanation()))?;
            for cpu in 0..nr_cpus {
                fake.cpu(cpu).adjust_if_live(instance, i64::from(n * cpu));
            }
        }
        let mut counters = Counters::open_path(path).map_err(convert_to_io_error)?;
        let selection = counters
            .select(&InstancePattern::all_live())
            .map_err(convert_to_io_error)?;
        let mut values = Vec::new();
        counters
            .copy_consistent_values(&selection, &mut values)
            .map_err(convert_to_io_error)?;
        Ok(Self {
            _fake_counters: fake,
            counters,
            selection,
            values,
        })
    }

    fn len(&self) -> usize {
        self.values.len()
    }

    fn read_with_seqflag_check(&mut self) -> io::Result<()> {
        let read = self
            .counters
            .copy_consistent_values(&self.selection, &mut self.values);
        read.map_err(convert_to_io_error)?;
        black_box(&self.values);
        Ok(())
    }

    fn read_without_seqflag_check(&mut self) -> io::Result<()> {
        let read = self
            .counters
            .copy_values_without_check(&self.selection, &mut self.values);
        read.map_err(convert_to_io_error)?;
        black_box(&self.values);
        Ok(())
    }
}

fn convert_to_io_error(error: perfcounters::Error) -> io::Error {
    io::Error::other(error.to_string())
}

/// Compares the library's reader, on counter pages of 2 CPUs, with another interface that reads
/// `values` values.
fn compare_page_reader_with(
    values: usize,
    other: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<TimeRatio> {
    let mut ours = SimulatedPageReader::new(2)?;
    let len = ours.len();
    compare_sides(
        ComparedSide::new(len, &mut || ours.read_with_seqflag_check())?,
        ComparedSide::new(values, other)?,
    )
}

pub fn compare_with_perf_read(count: usize) -> io::Result<TimeRatio> {
    let mut group = PerfGroup::new(PAGE_FAULTS_EVENT, count, sched_getcpu() as i32)?;
    compare_page_reader_with(count, &mut || group.read())
}

/// Compares plain loads of the counter pages with perf. The measured loop adds the values up in a
/// register, and does not copy them as the library does.
pub fn compare_loads_with_perf_read() -> io::Result<TimeRatio> {
    let (mut fake, path) = FakeCounters::in_memory(2, 1)?;
    for n in 0..NR_COUNTERS {
        fake.add_counter(&format!("bench/c{n:05}"))
            .map_err(|e| io::Error::other(e.explanation()))?;
    }
    // Map the header page and two chunks, and skip the header page. Each chunk has one page for
    // each of the two CPUs.
    let words = &map_file_words(&File::open(path)?, 5 * 512)?[512..];
    let mut group = PerfGroup::new(PAGE_FAULTS_EVENT, PERF_GROUP_EVENTS, sched_getcpu() as i32)?;
    compare_sides(
        ComparedSide::new(words.len(), &mut || {
            let values = black_box(words).iter().map(Word::load_relaxed);
            black_box(values.fold(0, u64::wrapping_add));
            Ok(())
        })?,
        ComparedSide::new(PERF_GROUP_EVENTS, &mut || group.read())?,
    )
}

pub fn compare_with_bpf_batch(per_value: bool) -> io::Result<TimeRatio> {
    let possible = read_cpu_count("possible")?;
    let mut map = BpfPerCpuArray::new(NR_COUNTERS, possible)?;
    let keys = NR_COUNTERS as usize;
    let values = if per_value { keys * possible } else { keys };
    compare_page_reader_with(values, &mut || {
        map.lookup_first_keys(keys).map(|v| _ = black_box(v))
    })
}

pub fn compare_with_bpf_lookup() -> io::Result<TimeRatio> {
    let mut map = BpfPerCpuArray::new(NR_COUNTERS, read_cpu_count("possible")?)?;
    compare_page_reader_with(1, &mut || map.lookup(7).map(|v| _ = black_box(v)))
}

pub fn compare_with_vmstat() -> io::Result<TimeRatio> {
    let mut file = ProcFile::open("/proc/vmstat")?;
    let tokens = file.read_and_parse()?.0 as usize;
    compare_page_reader_with(tokens, &mut || {
        file.read_and_parse().map(|v| _ = black_box(v))
    })
}

/// Measures how much longer a read takes if it checks that no update of a group of counters was in
/// progress.
pub fn compare_checked_with_plain_read(nr_cpus: u32) -> io::Result<TimeRatio> {
    let mut plain = SimulatedPageReader::new(nr_cpus)?;
    let mut checked = SimulatedPageReader::new(nr_cpus)?;
    let values = plain.len();
    compare_sides(
        ComparedSide::new(values, &mut || plain.read_without_seqflag_check())?,
        ComparedSide::new(values, &mut || checked.read_with_seqflag_check())?,
    )
}

/// Compares the plain update of 16 counters with another instruction sequence.
pub fn compare_plain_update_with(other: impl Fn(&mut CounterCacheLines)) -> io::Result<TimeRatio> {
    let lines = std::cell::RefCell::new(CounterCacheLines::new()?);
    let ratio = compare_sides(
        ComparedSide::new(16 * UPDATES_PER_COUNTER, &mut || {
            let mut lines = lines.borrow_mut();
            (0..UPDATES_PER_COUNTER).for_each(|_| lines.add_to_each_line());
            Ok(())
        })?,
        ComparedSide::new(16 * UPDATES_PER_COUNTER, &mut || {
            let mut lines = lines.borrow_mut();
            (0..UPDATES_PER_COUNTER).for_each(|_| other(&mut lines));
            Ok(())
        })?,
    )?;
    match lines.into_inner().sum() {
        0 => Err(io::Error::other("nothing was counted")),
        _ => Ok(ratio),
    }
}

/// Measures all comparisons on this machine.
pub fn measure_all_comparisons() -> io::Result<()> {
    // Bind the process to one CPU, so that no thread migrates, and each perf event is read on the
    // CPU whose events it counts.
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here)?;

    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    print_property("host kernel", release.trim());
    let info = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    print_property(
        "host processor",
        model.map_or("unknown", |m| m.trim_start_matches([' ', '\t', ':'])),
    );

    for operation in OPERATIONS {
        let name = operation.name.to_owned();
        if let OperationRunner::Host(run) = operation.runner {
            print_record(&match run() {
                Ok(ratio) => Record::Ratio(TimeRatio { name, ..ratio }),
                Err(error) => Record::Failure(Failure {
                    what: name,
                    cpus: 0,
                    why: error.to_string(),
                }),
            });
        }
    }
    Ok(())
}
