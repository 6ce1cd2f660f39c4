// SPDX-License-Identifier: GPL-2.0

//! The only program in the guest (virtual machine). The program measures all operations one after
//! the other in the same boot, and prints a line of JSON for each operation.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::thread::sleep;
use std::time::Duration;

use perfcounters::{Counters, Pattern, Selection, Stamp};
use perfmon::Pmd;
use rustix::thread::{sched_setaffinity, CpuSet};

use crate::count::{count, MOST_OPERATIONS};
use crate::events::Traced;
use crate::operations::{Operation, Run, Stage, OPERATIONS};
use crate::peers::{cpus, PerfEvent, PerfGroup, PerfSelf, ProcFile, INSTRUCTIONS};
use crate::record::{tell, Adds, Count, Failure, Record};
use crate::sample;
use crate::switch::{context, PingPong, Turns, COUNTERS};
use crate::sys::{close_nothing, first_in_line, getppid, nops, PerCpuArray};
use crate::trace::{Job, Way};

/// Number of rounds of [`nops`] during which event sets are switched; a round takes a microsecond.
/// In a guest with several CPUs, timers expire only at clock ticks, every 4 ms, so event sets are
/// switched 50 times during 200,000 rounds. Each switch of event sets is one measurement. 50
/// measurements are enough: the other operations are measured in 41 windows.
const TURNS: u32 = 200_000;
/// Number of calls of close(-1) that count as one operation.
const CLOSES: u32 = 100;
/// The CPU on which all measurements run. The groups of perf events that [`Guest::perf`] reads
/// count the events of this CPU.
const CPU: usize = 0;
/// Maximum number of measurements of one operation. If too few windows have the same length in each
/// measurement, the report leaves the operation out.
const TRIES: u32 = 5;
/// Sleep between two measurements of opening and closing a context: longer than an RCU grace period
/// with the deferred work that follows the grace period.
const LIFE_REST: Duration = Duration::from_millis(60);
/// Number of keys of the BPF map, equal to the number of counters that are read.
const KEYS: u32 = 1000;
/// Number of keys that one system call, a batch, looks up in a BPF map: in guests with 1 to 3 CPUs,
/// with 4 to 31 CPUs, and with more CPUs. The map has a value for each key and CPU. The more CPUs a
/// guest has, the fewer keys a batch has, so that one batch fits into a window (`count.rs`).
const BATCH: [usize; 3] = [1000, 200, 50];

/// Repeats a measurement until enough windows have the same length, at most [`TRIES`] times. Prints
/// the record of the last measurement.
fn tried(mut measure: impl FnMut() -> io::Result<Count>) -> io::Result<()> {
    let mut last = measure()?;
    for _ in 1..TRIES {
        if last.doubt().is_none() {
            break;
        }
        last = measure()?;
    }
    tell(&Record::Count(last));
    Ok(())
}

/// The guest (virtual machine) in which the operations are measured. Each method measures an
/// operation and prints the record; `name` is the name of the operation.
#[derive(Clone, Copy)]
pub struct Guest {
    cpus: u32,
    /// Maximum number of operations in a window.
    most: u32,
    traced: Traced,
}

impl Guest {
    fn operation(
        &self,
        name: &str,
        values: u64,
        run: &mut dyn FnMut(u32) -> io::Result<()>,
    ) -> io::Result<()> {
        tried(|| count(name, self.cpus, values, self.most, &|| {}, run))
    }

    fn failed(&self, what: &str, why: &dyn ToString) {
        tell(&Record::Failure(Failure {
            what: what.into(),
            cpus: self.cpus,
            why: why.to_string(),
        }));
    }

    /// Measures an operation, which `run` executes as often as its argument says.
    pub fn simple(&self, name: &str, run: impl Fn(u32)) -> io::Result<()> {
        self.operation(name, 1, &mut |n| {
            run(n);
            Ok(())
        })
    }

    /// Measures a snapshot of 1,000 counters by the library's reader.
    pub fn snapshot(
        &self,
        name: &str,
        fill: impl Fn(&Counters, &Selection, &mut Vec<i64>) -> Result<Stamp, perfcounters::Error>,
    ) -> io::Result<()> {
        let broke = |e: perfcounters::Error| io::Error::other(e.to_string());
        let mut counters = Counters::open().map_err(broke)?;
        let selection = counters.select(&Pattern::new(["bench/*"])).map_err(broke)?;
        let mut values = Vec::new();
        counters.fill(&selection, &mut values).map_err(broke)?;
        let nr = values.len() as u64;
        self.operation(name, nr, &mut |n| {
            (0..n)
                .try_for_each(|_| fill(&counters, &selection, &mut values).map(drop))
                .map_err(broke)
        })
    }

    /// Measures reading a file of /proc. The name of the operation contains the name of the file.
    fn proc_file(&self, name: &str) -> io::Result<()> {
        let file = name.trim_start_matches("proc_");
        let mut file = ProcFile::open(&format!("/proc/{}", file.trim_end_matches("_parsed")))?;
        let (values, _) = file.parse()?;
        if name.ends_with("_parsed") {
            self.operation(name, values, &mut |n| {
                (0..n).try_for_each(|_| file.parse().map(drop))
            })
        } else {
            self.operation(name, values, &mut |n| {
                (0..n).try_for_each(|_| file.read().map(drop))
            })
        }
    }

    /// Measures reading a group of `count` perf events.
    pub fn perf(&self, name: &str, event: PerfEvent, count: u16) -> io::Result<()> {
        let mut group = PerfGroup::new(event, count.into(), CPU as i32)?;
        self.operation(name, count.into(), &mut |n| {
            (0..n).try_for_each(|_| group.read())
        })
    }

    /// Measures reading a perf event by RDPMC.
    pub fn rdpmc(&self, name: &str) -> io::Result<()> {
        let event = PerfSelf::new(INSTRUCTIONS)?;
        self.operation(name, 1, &mut |n| {
            (0..n).try_for_each(|_| event.read().map(drop))
        })
    }

    /// Measures the switches between two threads that run alternately. Each thread first calls the
    /// function `counted`, and keeps the returned object, for example a context that counts events
    /// of the thread, until the end of the measurement.
    pub fn switch<T: 'static>(&self, name: &str, counted: fn() -> io::Result<T>) -> io::Result<()> {
        first_in_line(true)?;
        let measured = counted().and_then(|_own| {
            let mut pair = PingPong::new(counted)?;
            let measured = self.operation(name, 2, &mut |n| (0..n).try_for_each(|_| pair.turn()));
            let _ = pair.end();
            measured
        });
        let _ = first_in_line(false);
        measured
    }

    /// Makes a record from the shortest time that a handler took and the number of calls that took
    /// this time.
    fn shortest(&self, name: &str, (ticks, agree): (u64, u32)) -> Count {
        Count {
            operation: name.into(),
            cpus: self.cpus,
            values: 1,
            operations: [0, 1],
            ticks: [0, ticks],
            agree: [agree, agree],
            why_not: None,
        }
    }

    /// Measures the cost of a sample by a loop whose rounds have a known number of instructions and
    /// cause one sample each. The object that `sampled` returns takes the samples. Also measures
    /// the part of the cost of a sample that is spent in the handler of the overflow interrupt.
    pub fn samples<T>(&self, name: &str, sampled: fn() -> io::Result<T>) -> io::Result<()> {
        let _sampled = sampled()?;
        let _ = nmis();
        let measured = self.simple(name, sample::periods);
        let handler = format!("{name}_handler");
        match nmis() {
            Ok(nmi) => tell(&Record::Count(self.shortest(&handler, nmi))),
            Err(error) => self.failed(&handler, &error),
        }
        measured
    }

    /// Measures one switch of event sets, or one rotation of perf's groups: the length of the timer
    /// callback that makes the switch or rotation. The length of the callback does not include the
    /// rest of the timer interrupt, callbacks of other timers, or work on other CPUs.
    pub fn turns<T: Turns>(&self, name: &str) -> io::Result<()> {
        let mut turns = T::new()?;
        tried(|| self.turn(name, &mut turns))
    }

    fn turn<T: Turns>(&self, name: &str, turns: &mut T) -> io::Result<Count> {
        let before = turns.counts()?;
        callbacks()?;
        nops(TURNS);
        let callback = callbacks()?
            .into_iter()
            .find(|callback| T::is_callback(&callback.function));
        let callback = callback.ok_or_else(|| {
            io::Error::other("no timer callback has switched event sets or groups")
        })?;
        let after = turns.counts()?;
        let counts = [0, 1].map(|n: usize| after[n].wrapping_sub(before[n]));
        if !T::took_turns(callback.calls, counts) {
            let calls = callback.calls;
            return Err(io::Error::other(format!(
                "{calls} timer callbacks do not match the counts of the two, {counts:?}"
            )));
        }
        Ok(self.shortest(name, (callback.ticks, callback.agree)))
    }

    /// Measures a hundred calls of close(-1), the system call with which Linux commit d1b26c70246b
    /// measured perf's backward rings. Each window calls `begin` before the calls of close(-1).
    pub fn closes<T>(
        &self,
        name: &str,
        sampled: T,
        begin: fn(&T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.operation(name, CLOSES.into(), &mut |n| {
            begin(&sampled)?;
            (0..n * CLOSES).for_each(|_| close_nothing());
            Ok(())
        })
    }

    /// Measures reading PMDs (data registers) of a thread's context by a system call.
    pub fn context_read(&self, name: &str, count: u16) -> io::Result<()> {
        let context = context(COUNTERS)?;
        let mut pmds: Vec<Pmd> = (0..count)
            .map(|n| Pmd {
                reg_num: n,
                ..Pmd::default()
            })
            .collect();
        self.operation(name, count.into(), &mut |n| {
            (0..n).try_for_each(|_| context.read_pmds_in_place(&mut pmds))
        })
    }

    /// Measures the read of a PMD of a thread's context from the context's self page, without a
    /// system call.
    pub fn self_read(&self, name: &str) -> io::Result<()> {
        let context = context(COUNTERS)?;
        let page = perfmon::selfpage::Mapping::new(context.as_fd().as_raw_fd())
            .map_err(io::Error::from_raw_os_error)?;
        self.operation(name, 1, &mut |n| {
            (0..n).try_for_each(|_| match page.counter(0) {
                Some(_) => Ok(()),
                None => Err(io::Error::other("the page does not allow RDPMC")),
            })
        })
    }

    /// Measures the life of a context or of perf events: they are opened, count with [`COUNTERS`]
    /// counters, and are closed. The work that the kernel defers at the close is not measured: the
    /// deferred work ends before the next context or event is opened.
    pub fn life<T>(&self, name: &str, life: fn() -> io::Result<T>) -> io::Result<()> {
        let mut lives = |n: u32| (0..n).try_for_each(|_| life().map(drop));
        tried(|| count(name, self.cpus, 1, 1, &|| sleep(LIFE_REST), &mut lives))
    }

    /// Measures the lookup of a key of a BPF per-CPU array.
    pub fn bpf_lookup(&self, name: &str) -> io::Result<()> {
        let possible = cpus("possible")?;
        let mut map = PerCpuArray::new(KEYS, possible)?;
        self.operation(name, possible as u64, &mut |n| {
            (0..n).try_for_each(|k| map.lookup(k).map(drop))
        })
    }

    /// Measures the lookup of a batch of keys of a BPF per-CPU array.
    pub fn bpf_batch(&self, name: &str) -> io::Result<()> {
        let possible = cpus("possible")?;
        let mut map = PerCpuArray::new(KEYS, possible)?;
        let batch = match self.cpus {
            0..4 => BATCH[0],
            4..32 => BATCH[1],
            _ => BATCH[2],
        };
        self.operation(name, (possible * batch) as u64, &mut |n| {
            (0..n).try_for_each(|_| map.batch(batch).map(drop))
        })
    }

    /// Prints the measurements that the kernel module bench.ko makes with interrupts off.
    fn module(&self) -> io::Result<()> {
        for line in std::fs::read_to_string("/proc/bench")?.lines() {
            match module_line(line, self.cpus) {
                Some(count) => tell(&Record::Count(count)),
                None => self.failed("bench.ko", &line),
            }
        }
        Ok(())
    }

    /// Measures a system call, a switch of threads or an interrupt.
    pub fn job(&self, name: &str, job: Job) -> io::Result<()> {
        match job {
            Job::Calls => self.simple(name, |n| (0..n).for_each(|_| getppid())),
            Job::Switches => self.switch(name, || Ok(())),
            Job::Interrupts => self.interrupt(name),
        }
    }

    /// Measures an operation while process accounting is on. `levels` is the sum of the accounting
    /// levels, as text.
    fn accounting(&self, name: &str, job: Job, levels: &str) -> io::Result<()> {
        std::fs::write("/proc/sys/kernel/ppa_levels", levels)?;
        std::fs::write("/proc/sys/kernel/ppa", "1 0 0 1")?;
        let measured = self.job(name, job);
        std::fs::write("/proc/sys/kernel/ppa", "0 0 0 1")?;
        measured
    }

    /// Measures an operation while another tool observes it.
    fn observed(&self, name: &str, job: Job, way: Way) -> io::Result<()> {
        let guest = Self {
            most: way.most.min(self.most),
            ..*self
        };
        let measured = (way.start)(job).and_then(|_looks| guest.job(name, job));
        settle();
        measured
    }

    /// Measures an interrupt that bench.ko sends to its own CPU.
    fn interrupt(&self, name: &str) -> io::Result<()> {
        tried(|| {
            let line = std::fs::read_to_string("/proc/bench_interrupt")?;
            let count = module_line(line.trim_end(), self.cpus);
            let count =
                count.ok_or_else(|| io::Error::other("cannot parse /proc/bench_interrupt"))?;
            Ok(Count {
                operation: name.into(),
                ..count
            })
        })
    }

    fn adds(&self) -> io::Result<()> {
        for line in std::fs::read_to_string("/proc/bench_add")?.lines() {
            let mut words = line.split(' ');
            let from = words.next().and_then(|word| word.parse().ok());
            tell(&Record::Adds(Adds {
                cpus: self.cpus,
                from: from.unwrap_or(0),
                ticks: words.filter_map(|word| word.parse().ok()).collect(),
                why_not: None,
            }));
        }
        Ok(())
    }

    /// Measures all operations of a stage in the order of the table.
    fn stage(&self, stage: Stage) {
        for &Operation { name, run, .. } in OPERATIONS {
            if run.stage() == Some(stage) {
                if let Err(error) = self.run(name, run) {
                    self.failed(name, &error);
                }
            }
        }
    }

    fn run(&self, name: &str, run: Run) -> io::Result<()> {
        match run {
            Run::Guest(_, run) => run(self, name),
            Run::Proc => self.proc_file(name),
            Run::Event(run, flags) => self
                .traced
                .measure(run, flags, |run| self.operation(name, 1, run)),
            Run::Accounted(job, levels) => self.accounting(name, job, levels),
            Run::Observed(job, way) => self.observed(name, job, way),
            Run::Module | Run::Handler | Run::Host(_) | Run::Lttng => Ok(()),
        }
    }
}

/// Waits until the kernel no longer checks for perf events at each context switch. For one second
/// after the last perf event is closed, the kernel still checks for perf events at each context
/// switch, and the next operation would include the cost of the checks. The wait is cheap, because
/// the guest's clock skips idle time.
fn settle() {
    sleep(Duration::from_secs(2));
}

/// Waits until the modules have detached the tracepoint probes of contexts. The modules keep the
/// probes attached for ten seconds after the last use of contexts, and attached probes would add to
/// the cost of the next context switches.
fn rest() {
    sleep(Duration::from_secs(12));
}

/// Returns the length of the shortest NMI since the last call of this function, and the number of
/// NMIs of this length. bench.ko records both numbers.
fn nmis() -> io::Result<(u64, u32)> {
    let text = std::fs::read_to_string("/proc/bench_nmi")?;
    let mut words = text.split_whitespace().map(str::parse);
    match (words.next(), words.next()) {
        (Some(Ok(ticks)), Some(Ok(agree))) => Ok((ticks, agree as u32)),
        _ => Err(io::Error::other("cannot parse /proc/bench_nmi")),
    }
}

/// The callbacks of one timer function, as bench.ko recorded them.
#[derive(Debug, PartialEq)]
struct Callback {
    /// Length of the shortest callback in ticks.
    ticks: u64,
    /// Number of callbacks that had the shortest length.
    agree: u32,
    calls: u32,
    /// Name of the function, with its module in brackets.
    function: String,
}

/// Returns the timer callbacks that ran on this CPU since the last call of this function.
fn callbacks() -> io::Result<Vec<Callback>> {
    let text = std::fs::read_to_string("/proc/bench_timers")?;
    let callback = |line| {
        callback_line(line).ok_or_else(|| {
            io::Error::other(format!("cannot parse a line of /proc/bench_timers: {line}"))
        })
    };
    text.lines().map(callback).collect()
}

/// Parses a line of /proc/bench_timers; bench_main.c describes the format.
fn callback_line(line: &str) -> Option<Callback> {
    let mut words = line.splitn(4, ' ');
    Some(Callback {
        ticks: words.next()?.parse().ok()?,
        agree: words.next()?.parse().ok()?,
        calls: words.next()?.parse().ok()?,
        function: words.next()?.into(),
    })
}

/// Parses a line of /proc/bench; bench_main.c describes the format.
fn module_line(line: &str, cpus: u32) -> Option<Count> {
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
    Some(Count {
        operation,
        cpus,
        values,
        operations: [few as u32, many as u32],
        ticks: [short, long],
        agree,
        why_not: None,
    })
}

/// Measures all operations of the guest, after a loop of `late` microseconds. If `adds` is true,
/// bench.ko also adds 60,000 instances (counters), and measures some of the calls of perf_add()
/// that add them.
pub fn run(adds: bool, late: u32) -> io::Result<()> {
    let mut here = CpuSet::new();
    here.set(CPU);
    sched_setaffinity(None, &here)?;
    nops(late);
    let cpus = cpus("online")? as u32;
    let guest = Guest {
        cpus,
        most: MOST_OPERATIONS,
        traced: Traced::new(cpus),
    };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    tell(&Record::Place {
        what: "guest kernel".into(),
        name: release.trim().into(),
    });
    if let Err(error) = guest.module() {
        guest.failed("bench.ko", &error);
    }
    guest.stage(Stage::First);
    guest.stage(Stage::Context);
    rest();
    guest.stage(Stage::ContextSwitch);
    rest();
    guest.stage(Stage::PerfSwitch);
    settle();
    rest();
    guest.stage(Stage::Observed);
    guest.stage(Stage::PerfGroups);
    guest.stage(Stage::PerfSample);
    guest.stage(Stage::Last);
    if adds {
        if let Err(error) = guest.adds() {
            guest.failed("perf_add", &error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{callback_line, module_line};

    #[test]
    fn a_line_of_the_module_is_read() {
        let count = module_line("group_4 16 64 200 632 41 40", 2).expect("a line");
        assert_eq!((count.values, count.cpus), (4, 2));
        assert_eq!(count.instructions(), 9.0);
        assert_eq!(count.doubt(), None);
        assert!(module_line("group_4 16 64 200", 2).is_none());
    }
    #[test]
    fn a_callback_and_its_module_are_read() {
        let line = callback_line("812 47 50 deferral_timer [perfmon]").expect("a line");
        assert_eq!((line.ticks, line.agree, line.calls), (812, 47, 50));
        assert_eq!(line.function, "deferral_timer [perfmon]");
        let line = callback_line("5001 40 50 perf_mux_hrtimer_handler").expect("a line");
        assert_eq!(line.function, "perf_mux_hrtimer_handler");
        assert_eq!(callback_line("5001 40 50"), None);
    }
}
