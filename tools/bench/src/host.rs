// SPDX-License-Identifier: GPL-2.0

//! Compares times on this machine, in pairs of loops that run alternately. Only the median of the
//! ratios of times is evaluated, because times vary from run to run far more than their ratios.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::time::Instant;

use perfcounters::fake::Fake;
use perfcounters::{Counters, Pattern};
use protocols::sync::Word;
use rustix::thread::{sched_getcpu, sched_setaffinity, CpuSet};

use crate::operations::{Run, OPERATIONS};
use crate::peers::{cpus, PerfGroup, ProcFile, PAGE_FAULTS};
use crate::record::{median, tell, Failure, Ratio, Record};
use crate::sys::{map_words, Lines, PerCpuArray};

/// Number of runs of each comparison. Each run gives one ratio of times.
const RUNS: usize = 15;
/// Number of turns (timed loops) of each of the two sides in a run. The ratio of a run is the
/// second side's time per value divided by the first side's, each in its fastest turn.
const TURNS: usize = 31;
/// Intended duration of a turn (a timed loop) in nanoseconds.
const TURN_NS: f64 = 100_000.0;
/// Number of counters that are read, and number of keys of the BPF map.
const COUNTERS: u32 = 1000;
/// Number of events in a group of perf.
pub const GROUP: usize = 16;
/// Number of times that one execution of a side (the code to measure) updates the 16 counters. With
/// 64 updates of each counter, the cost of calling the code does not matter.
const ROUNDS: usize = 64;

/// One side of a comparison: the code to measure, and the number of values that one execution of
/// the code reads or writes.
struct Side<'a> {
    values: f64,
    run: &'a mut dyn FnMut() -> io::Result<()>,
    /// Number of times that one turn (a timed loop) executes the code.
    times: u32,
}

impl<'a> Side<'a> {
    fn new(values: usize, run: &'a mut dyn FnMut() -> io::Result<()>) -> io::Result<Self> {
        let mut side = Self {
            values: values as f64,
            run,
            times: 1,
        };
        while side.turn()? * f64::from(side.times) * side.values < TURN_NS {
            side.times *= 2;
        }
        Ok(side)
    }

    /// Runs one turn (a timed loop that executes the code) and returns the time of the loop in
    /// nanoseconds per value.
    fn turn(&mut self) -> io::Result<f64> {
        let start = Instant::now();
        for _ in 0..self.times {
            (self.run)()?;
        }
        Ok(start.elapsed().as_nanos() as f64 / f64::from(self.times) / self.values)
    }
}

fn pair(name: &str, mut ours: Side<'_>, mut theirs: Side<'_>) -> io::Result<Ratio> {
    let (mut ours_ns, mut theirs_ns, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (mut a, mut b) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..TURNS {
            a = a.min(ours.turn()?);
            b = b.min(theirs.turn()?);
        }
        ours_ns.push(a);
        theirs_ns.push(b);
        ratios.push(b / a);
    }
    Ok(Ratio {
        name: name.into(),
        ours_ns: median(&ours_ns),
        theirs_ns: median(&theirs_ns),
        ratios,
    })
}

/// The library's reader on simulated counter pages. The simulated counter pages are an anonymous
/// file in memory (memfd), which the registry code of the kernel modules maintains.
struct Ours {
    _fake: Fake,
    counters: Counters,
    selection: std::sync::Arc<perfcounters::Selection>,
    values: Vec<i64>,
}

impl Ours {
    fn new(nr_cpus: u32) -> io::Result<Self> {
        let (mut fake, path) = Fake::in_memory(nr_cpus, 1)?;
        for n in 0..COUNTERS {
            let instance = fake
                .add_counter(&format!("bench/c{n:05}"))
                .map_err(|e| io::Error::other(e.advice()))?;
            for cpu in 0..nr_cpus {
                fake.cpu(cpu).adjust(instance, i64::from(n * cpu));
            }
        }
        let broke = |e: perfcounters::Error| io::Error::other(e.to_string());
        let mut counters = Counters::open_path(path).map_err(broke)?;
        let selection = counters.select(&Pattern::all()).map_err(broke)?;
        let mut values = Vec::new();
        counters.fill(&selection, &mut values).map_err(broke)?;
        Ok(Self {
            _fake: fake,
            counters,
            selection,
            values,
        })
    }

    fn len(&self) -> usize {
        self.values.len()
    }

    fn read(&mut self) -> io::Result<()> {
        self.counters
            .fill(&self.selection, &mut self.values)
            .map_err(|e| io::Error::other(e.to_string()))?;
        black_box(&self.values);
        Ok(())
    }

    fn read_each(&mut self) -> io::Result<()> {
        self.counters
            .fill_each(&self.selection, &mut self.values)
            .map_err(|e| io::Error::other(e.to_string()))?;
        black_box(&self.values);
        Ok(())
    }
}

/// Compares the library's reader, on counter pages of 2 CPUs, with another interface that reads
/// `values` values.
fn against(
    name: &str,
    values: usize,
    other: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<Ratio> {
    let mut ours = Ours::new(2)?;
    let len = ours.len();
    pair(
        name,
        Side::new(len, &mut || ours.read())?,
        Side::new(values, other)?,
    )
}

pub fn against_perf(name: &str, count: usize) -> io::Result<Ratio> {
    let mut group = PerfGroup::new(PAGE_FAULTS, count, sched_getcpu() as i32)?;
    against(name, count, &mut || group.read())
}

/// Compares plain loads of the counter pages with perf. The measured loop adds the values up in a
/// register, and does not copy them as the library does.
pub fn loads_against_perf(name: &str) -> io::Result<Ratio> {
    let (mut fake, path) = Fake::in_memory(2, 1)?;
    for n in 0..COUNTERS {
        fake.add_counter(&format!("bench/c{n:05}"))
            .map_err(|e| io::Error::other(e.advice()))?;
    }
    // Map the header page and two chunks, and skip the header page. Each chunk has one page for
    // each of the two CPUs.
    let words = &map_words(&File::open(path)?, 5 * 512)?[512..];
    let mut group = PerfGroup::new(PAGE_FAULTS, GROUP, sched_getcpu() as i32)?;
    pair(
        name,
        Side::new(words.len(), &mut || {
            let values = black_box(words).iter().map(Word::load_relaxed);
            black_box(values.fold(0, u64::wrapping_add));
            Ok(())
        })?,
        Side::new(GROUP, &mut || group.read())?,
    )
}

pub fn against_bpf_batch(name: &str, per_value: bool) -> io::Result<Ratio> {
    let possible = cpus("possible")?;
    let mut map = PerCpuArray::new(COUNTERS, possible)?;
    let keys = COUNTERS as usize;
    let values = if per_value { keys * possible } else { keys };
    against(name, values, &mut || {
        map.batch(keys).map(|v| _ = black_box(v))
    })
}

pub fn against_bpf_lookup(name: &str) -> io::Result<Ratio> {
    let mut map = PerCpuArray::new(COUNTERS, cpus("possible")?)?;
    against(name, 1, &mut || map.lookup(7).map(|v| _ = black_box(v)))
}

pub fn against_vmstat(name: &str) -> io::Result<Ratio> {
    let mut file = ProcFile::open("/proc/vmstat")?;
    let tokens = file.parse()?.0 as usize;
    against(name, tokens, &mut || file.parse().map(|v| _ = black_box(v)))
}

/// Measures how much longer a read takes if it checks that no update of a group of counters was in
/// progress.
pub fn flag_check(name: &str, nr_cpus: u32) -> io::Result<Ratio> {
    let (mut plain, mut checked) = (Ours::new(nr_cpus)?, Ours::new(nr_cpus)?);
    let values = plain.len();
    pair(
        name,
        Side::new(values, &mut || plain.read_each())?,
        Side::new(values, &mut || checked.read())?,
    )
}

/// Compares the plain update of 16 counters with another instruction sequence.
pub fn writers(name: &str, other: impl Fn(&mut Lines)) -> io::Result<Ratio> {
    let lines = std::cell::RefCell::new(Lines::new()?);
    let ratio = pair(
        name,
        Side::new(16 * ROUNDS, &mut || {
            let mut lines = lines.borrow_mut();
            (0..ROUNDS).for_each(|_| lines.add());
            Ok(())
        })?,
        Side::new(16 * ROUNDS, &mut || {
            let mut lines = lines.borrow_mut();
            (0..ROUNDS).for_each(|_| other(&mut lines));
            Ok(())
        })?,
    )?;
    match lines.into_inner().sum() {
        0 => Err(io::Error::other("nothing was counted")),
        _ => Ok(ratio),
    }
}

fn place(what: &str, is: &str) {
    tell(&Record::Place {
        what: what.into(),
        name: is.into(),
    });
}

/// Measures all comparisons on this machine.
pub fn run() -> io::Result<()> {
    // Bind the process to one CPU, so that no thread migrates, and each perf event is read on the
    // CPU whose events it counts.
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here)?;

    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    place("host kernel", release.trim());
    let info = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    place(
        "host processor",
        model.map_or("unknown", |m| m.trim_start_matches([' ', '\t', ':'])),
    );

    for operation in OPERATIONS {
        if let Run::Host(run) = operation.run {
            let record = run(operation.name).map_or_else(
                |error| {
                    Record::Failure(Failure {
                        what: operation.name.into(),
                        cpus: 0,
                        why: error.to_string(),
                    })
                },
                Record::Ratio,
            );
            tell(&record);
        }
    }
    Ok(())
}
