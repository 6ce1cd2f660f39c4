// SPDX-License-Identifier: GPL-2.0

//! The only program in the guest: measures each way to read, one after the other, in the same boot.
//! Prints a line of JSON for each.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::thread::sleep;
use std::time::Duration;

use perfcounters::{Counters, Pattern};
use perfmon::Pmd;
use rustix::thread::{sched_setaffinity, CpuSet};
use rustix::time::{clock_gettime, ClockId};

use crate::count::{count, MOST_OPERATIONS};
use crate::events::Traced;
use crate::peers::{cpus, PerfEvent, PerfGroup, PerfSelf, ProcFile, INSTRUCTIONS, PAGE_FAULTS};
use crate::record::{Adds, Count, Failure, Record};
use crate::sample;
use crate::switch::{context, PingPong, Turns, TwoGroups, TwoSets, COUNTERS};
use crate::sys::{close_nothing, first_in_line, getppid, nops, PerCpuArray};
use crate::trace::{Job, WAYS};

/// Rounds of [`nops`], of a microsecond each, during which event sets are switched. In a guest with
/// several CPUs timers run at clock ticks only, every 4 ms. The rounds then have 50 switches, more
/// than the number of windows of other operations.
const TURNS: u32 = 200_000;
/// Calls of close(-1) in one operation.
const CLOSES: u32 = 100;
/// Name and levels: the scheduler; interrupts as well; system calls as well; the time of switches
/// as well.
const ACCOUNTING: [(&str, &str); 4] = [("sched", "1"), ("irq", "3"), ("calls", "7"), ("all", "15")];
/// CPU of all measurements: perf events of this CPU are read.
const CPU: usize = 0;
/// Limit of measurements of one operation until enough windows agree. If they never do, the report
/// leaves the operation out.
const TRIES: u32 = 5;
/// Sleep between two lives of a context: longer than a grace period and the work after it.
const LIFE_REST: Duration = Duration::from_millis(60);
/// Keys of the BPF map: as many as there are counters to read.
const KEYS: u32 = 1000;
/// Keys per batch, for few, more and many CPUs, so that a batch fits into a window.
const BATCH: [usize; 3] = [1000, 200, 50];

fn tell(record: &Record) {
    match serde_json::to_string(record) {
        Ok(line) => println!("{line}"),
        Err(error) => eprintln!("bench: {error}"),
    }
}

struct Guest {
    cpus: u32,
    /// Limit of operations in a window.
    most: u32,
}

impl Guest {
    fn operation(&self, name: &str, values: u64, run: &mut dyn FnMut(u32) -> io::Result<()>) {
        self.rested(name, values, self.most, &|| {}, run);
    }

    /// Measures like [`operation`](Self::operation), with a limit of `most` operations and with
    /// `rest` called before each window.
    fn rested(
        &self,
        name: &str,
        values: u64,
        most: u32,
        rest: &dyn Fn(),
        run: &mut dyn FnMut(u32) -> io::Result<()>,
    ) {
        for again in (0..TRIES).rev() {
            match count(name, self.cpus, values, most, rest, run) {
                Ok(count) if again > 0 && count.doubt().is_some() => continue,
                Ok(count) => tell(&Record::Count(count)),
                Err(error) => self.failed(name, &error),
            }
            break;
        }
    }

    fn failed(&self, what: &str, why: &dyn ToString) {
        tell(&Record::Failure(Failure {
            what: what.into(),
            cpus: self.cpus,
            why: why.to_string(),
        }));
    }

    /// Measures the library's reader with a whole snapshot of 1,000 counters.
    fn reader(&self) -> Result<(), perfcounters::Error> {
        let mut counters = Counters::open()?;
        let selection = counters.select(&Pattern::new(["bench/*"]))?;
        let mut values = Vec::new();
        counters.fill(&selection, &mut values)?;
        let nr = values.len() as u64;
        let broke = |e: perfcounters::Error| io::Error::other(e.to_string());
        self.operation("snapshot", nr, &mut |n| {
            (0..n)
                .try_for_each(|_| counters.fill(&selection, &mut values).map(drop))
                .map_err(broke)
        });
        self.operation("snapshot_unchecked", nr, &mut |n| {
            (0..n)
                .try_for_each(|_| counters.fill_each(&selection, &mut values).map(drop))
                .map_err(broke)
        });
        Ok(())
    }

    fn proc_file(&self, name: &str) -> io::Result<()> {
        let mut file = ProcFile::open(&format!("/proc/{name}"))?;
        let (values, _) = file.parse()?;
        self.operation(&format!("proc_{name}"), values, &mut |n| {
            (0..n).try_for_each(|_| file.read().map(drop))
        });
        self.operation(&format!("proc_{name}_parsed"), values, &mut |n| {
            (0..n).try_for_each(|_| file.parse().map(drop))
        });
        Ok(())
    }

    fn perf(&self, name: &str, event: PerfEvent, count: usize) {
        match PerfGroup::new(event, count, CPU as i32) {
            Ok(mut group) => self.operation(name, count as u64, &mut |n| {
                (0..n).try_for_each(|_| group.read())
            }),
            Err(error) => self.failed(name, &error),
        }
    }

    fn rdpmc(&self) {
        match PerfSelf::new(INSTRUCTIONS) {
            Ok(event) => self.operation("perf_rdpmc", 1, &mut |n| {
                (0..n).try_for_each(|_| event.read().map(drop))
            }),
            Err(error) => self.failed("perf_rdpmc", &error),
        }
    }

    /// Measures two threads that run alternately, each counted by what `counted` returns.
    fn switch<T: 'static>(&self, name: &str, counted: fn() -> io::Result<T>) {
        let first = first_in_line(true).and_then(|()| counted());
        let pair = first.and_then(|own| Ok((own, PingPong::new(counted)?)));
        match pair {
            Ok((_own, mut pair)) => {
                self.operation(name, 2, &mut |n| (0..n).try_for_each(|_| pair.turn()));
                let _ = pair.end();
            }
            Err(error) => self.failed(name, &error),
        }
        let _ = first_in_line(false);
    }

    /// Makes a record of the shortest call of a handler and the number of calls of the same length.
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

    /// Measures the part of a sample that the handler of the overflow interrupt takes.
    fn handler(&self, name: &str) {
        let name = format!("{name}_handler");
        match nmis() {
            Ok(nmi) => tell(&Record::Count(self.shortest(&name, nmi))),
            Err(error) => self.failed(&name, &error),
        }
    }

    /// Measures a loop of known length with one sample per round, taken by what `sampled` returns.
    fn samples<T>(&self, name: &str, sampled: impl FnOnce() -> io::Result<T>) {
        match sampled() {
            Ok(_sampled) => {
                let _ = nmis();
                self.operation(name, 1, &mut |n| {
                    sample::periods(n);
                    Ok(())
                });
                self.handler(name);
            }
            Err(error) => self.failed(name, &error),
        }
    }

    /// Measures one switch of event sets, or rotation of perf's groups, by the callback of its
    /// timer. The interrupt around it, other timers and other CPUs do not count.
    fn turns<T: Turns>(&self, name: &str) {
        match T::new().and_then(|mut turns| self.turn(name, &mut turns)) {
            Ok(count) => tell(&Record::Count(count)),
            Err(error) => self.failed(name, &error),
        }
    }

    fn turn<T: Turns>(&self, name: &str, turns: &mut T) -> io::Result<Count> {
        let mut tries = TRIES;
        loop {
            let before = turns.counts()?;
            callbacks()?;
            nops(TURNS);
            let callback = callbacks()?
                .into_iter()
                .find(|callback| T::is_callback(&callback.function));
            let callback = callback.ok_or_else(|| io::Error::other("no turn ended"))?;
            let after = turns.counts()?;
            let counts = [0, 1].map(|n: usize| after[n].wrapping_sub(before[n]));
            if !T::took_turns(callback.calls, counts) {
                let calls = callback.calls;
                return Err(io::Error::other(format!(
                    "{calls} callbacks of the timer, but the two counted {counts:?}"
                )));
            }
            let count = self.shortest(name, (callback.ticks, callback.agree));
            tries -= 1;
            if tries == 0 || count.doubt().is_none() {
                return Ok(count);
            }
        }
    }

    /// Measures a hundred calls of close(-1), the operation with which overwritten rings were
    /// measured first. `begin` is called before the calls of each window.
    fn closes<T>(
        &self,
        name: &str,
        sampled: impl FnOnce() -> io::Result<T>,
        begin: fn(&T) -> io::Result<()>,
    ) {
        match sampled() {
            Ok(sampled) => self.operation(name, CLOSES.into(), &mut |n| {
                begin(&sampled)?;
                (0..n * CLOSES).for_each(|_| close_nothing());
                Ok(())
            }),
            Err(error) => self.failed(name, &error),
        }
    }

    /// Measures reading a thread's context, by a call and by its self page.
    fn contexts(&self) -> io::Result<()> {
        let context = context(COUNTERS)?;
        for (name, count) in [("context_read_1", 1), ("context_read_4", COUNTERS)] {
            let mut pmds: Vec<Pmd> = (0..count)
                .map(|n| Pmd {
                    reg_num: n,
                    ..Pmd::default()
                })
                .collect();
            self.operation(name, count.into(), &mut |n| {
                (0..n).try_for_each(|_| context.read_pmds_in_place(&mut pmds))
            });
        }
        let page = selfpage::Mapping::new(context.as_fd().as_raw_fd())
            .map_err(io::Error::from_raw_os_error)?;
        self.operation("self_read", 1, &mut |n| {
            (0..n).try_for_each(|_| match page.counter(0) {
                Some(_) => Ok(()),
                None => Err(io::Error::other("the page does not allow RDPMC")),
            })
        });
        Ok(())
    }

    /// Measures the life of a context from open to close, with [`COUNTERS`] that count in between.
    /// Deferred work has ended before the next one begins, and does not count, neither for contexts
    /// nor for perf.
    fn life<T>(&self, name: &str, life: fn() -> io::Result<T>) {
        self.rested(name, 1, 1, &|| sleep(LIFE_REST), &mut |n| {
            (0..n).try_for_each(|_| life().map(drop))
        });
    }

    fn bpf(&self) -> io::Result<()> {
        let possible = cpus("possible")?;
        let mut map = PerCpuArray::new(KEYS, possible)?;
        self.operation("bpf_lookup", possible as u64, &mut |n| {
            (0..n).try_for_each(|k| map.lookup(k).map(drop))
        });
        let batch = match self.cpus {
            0..4 => BATCH[0],
            4..32 => BATCH[1],
            _ => BATCH[2],
        };
        self.operation("bpf_batch", (possible * batch) as u64, &mut |n| {
            (0..n).try_for_each(|_| map.batch(batch).map(drop))
        });
        Ok(())
    }

    /// Prints what bench.ko measured with interrupts off.
    fn module(&self) -> io::Result<()> {
        for line in std::fs::read_to_string("/proc/bench")?.lines() {
            match module_line(line, self.cpus) {
                Some(count) => tell(&Record::Count(count)),
                None => self.failed("bench.ko", &line),
            }
        }
        Ok(())
    }

    /// Measures what accounting adds to a system call, to a switch of threads and to an interrupt,
    /// level by level.
    fn accounting(&self) {
        for (name, level) in ACCOUNTING {
            let set = |on: &str| -> io::Result<()> {
                std::fs::write("/proc/sys/kernel/ppa_levels", level)?;
                std::fs::write("/proc/sys/kernel/ppa", on)
            };
            if let Err(error) = set("1 0 0 1") {
                self.failed(&format!("getppid_{name}"), &error);
                continue;
            }
            self.job(Job::Calls, name);
            self.job(Job::Switches, name);
            self.job(Job::Interrupts, name);
            if let Err(error) = set("0 0 0 1") {
                self.failed(name, &error);
            }
        }
    }

    /// Measures an operation while it is observed; `by` names the observer.
    fn job(&self, job: Job, by: &str) {
        match job {
            Job::Calls => self.operation(&format!("getppid_{by}"), 1, &mut |n| {
                (0..n).for_each(|_| getppid());
                Ok(())
            }),
            Job::Switches => self.switch(&format!("switch_{by}"), || Ok(())),
            Job::Interrupts => self.interrupt(&format!("interrupt_{by}")),
        }
    }

    /// Measures the operations while other tools observe them.
    fn others(&self) {
        let jobs = [
            (Job::Calls, "getppid"),
            (Job::Switches, "switch"),
            (Job::Interrupts, "interrupt"),
        ];
        // With 8 operations the records of most windows fit into one page of a ring, so the step to
        // the next page does not count.
        let few = Self {
            cpus: self.cpus,
            most: 8,
        };
        for (name, way) in WAYS {
            for (job, what) in jobs {
                let measures = if ["ftrace", "perf"].contains(&name) {
                    &few
                } else {
                    self
                };
                match way(job) {
                    Ok(_looks) => measures.job(job, name),
                    Err(error) => self.failed(&format!("{what}_{name}"), &error),
                }
                settle();
            }
        }
    }

    /// Measures an interrupt that bench.ko sends to its own CPU.
    fn interrupt(&self, name: &str) {
        for again in (0..TRIES).rev() {
            let line = std::fs::read_to_string("/proc/bench_interrupt");
            match line.map(|line| module_line(line.trim_end(), self.cpus)) {
                Ok(Some(count)) if again > 0 && count.doubt().is_some() => continue,
                Ok(Some(count)) => tell(&Record::Count(Count {
                    operation: name.into(),
                    ..count
                })),
                Ok(None) => self.failed(name, &"/proc/bench_interrupt cannot be understood"),
                Err(error) => self.failed(name, &error),
            }
            break;
        }
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
}

/// Waits after perf events: the kernel checks for them at each switch until one second after the
/// last event, which would be measured as part of the next operation. Idle time costs nothing here.
fn settle() {
    sleep(Duration::from_secs(2));
}

/// Waits after contexts: their probes stay attached for ten seconds, and would be measured in the
/// next switches.
fn rest() {
    sleep(Duration::from_secs(12));
}

/// Returns the length of the shortest NMI since the last call, and the number of NMIs of the same
/// length, as bench.ko recorded them.
fn nmis() -> io::Result<(u64, u32)> {
    let text = std::fs::read_to_string("/proc/bench_nmi")?;
    let mut words = text.split_whitespace().map(str::parse);
    match (words.next(), words.next()) {
        (Some(Ok(ticks)), Some(Ok(agree))) => Ok((ticks, agree as u32)),
        _ => Err(io::Error::other("/proc/bench_nmi says nothing")),
    }
}

/// The callbacks of one timer function, as bench.ko recorded them.
#[derive(Debug, PartialEq)]
struct Callback {
    /// Length of the shortest callback in ticks.
    ticks: u64,
    /// Number of callbacks of that length.
    agree: u32,
    calls: u32,
    /// Name of the function, with its module in brackets.
    function: String,
}

/// Returns the callbacks of timers on this CPU since the last call.
fn callbacks() -> io::Result<Vec<Callback>> {
    let text = std::fs::read_to_string("/proc/bench_timers")?;
    let callback = |line| {
        callback_line(line).ok_or_else(|| io::Error::other(format!("/proc/bench_timers: {line}")))
    };
    text.lines().map(callback).collect()
}

/// Parses a line of /proc/bench_timers; its format is in bench_main.c.
fn callback_line(line: &str) -> Option<Callback> {
    let mut words = line.splitn(4, ' ');
    Some(Callback {
        ticks: words.next()?.parse().ok()?,
        agree: words.next()?.parse().ok()?,
        calls: words.next()?.parse().ok()?,
        function: words.next()?.into(),
    })
}

/// Parses a line of /proc/bench; its format is in bench_main.c.
fn module_line(line: &str, cpus: u32) -> Option<Count> {
    let mut words = line.split(' ');
    let operation = words.next()?.to_owned();
    let mut next = || words.next()?.parse::<u64>().ok();
    let [few, many, short, long] = [next()?, next()?, next()?, next()?];
    let agree = [next()? as u32, next()? as u32];
    // The name of a group says how many values it changes.
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

/// Measures everything, after a loop of `late` microseconds. With `adds` bench.ko also adds 60,000
/// instances, and measures some of these calls of perf_add().
pub fn run(adds: bool, late: u32) -> io::Result<()> {
    let mut here = CpuSet::new();
    here.set(CPU);
    sched_setaffinity(None, &here)?;
    nops(late);
    let guest = Guest {
        cpus: cpus("online")? as u32,
        most: MOST_OPERATIONS,
    };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    tell(&Record::Place {
        what: "guest kernel".into(),
        name: release.trim().into(),
    });
    guest.operation("self_check_user", 1, &mut |n| {
        nops(n);
        Ok(())
    });
    if let Err(error) = guest.module() {
        guest.failed("bench.ko", &error);
    }
    guest.operation("getppid", 1, &mut |n| {
        (0..n).for_each(|_| getppid());
        Ok(())
    });
    guest.operation("clock_gettime", 1, &mut |n| {
        (0..n).for_each(|_| _ = clock_gettime(ClockId::Monotonic));
        Ok(())
    });
    if let Err(error) = guest.reader() {
        guest.failed("snapshot", &error);
    }
    let measured = Traced::new(guest.cpus).each(&mut |name, run| guest.operation(name, 1, run));
    if let Err(error) = measured {
        guest.failed("event", &error);
    }
    for name in ["stat", "interrupts", "softirqs", "vmstat"] {
        if let Err(error) = guest.proc_file(name) {
            guest.failed(&format!("proc_{name}"), &error);
        }
    }
    for count in [1, 8, 16] {
        guest.perf(&format!("perf_read_{count}"), PAGE_FAULTS, count);
    }
    // perf releases the PMU some time after its last event, so contexts are measured first.
    guest.samples("sample_forward", || sample::context("ring"));
    guest.samples("sample_backward", || sample::context("flight-recorder"));
    let deep = |format| move || sample::deep_context(format);
    guest.closes("close_forward", deep("ring"), sample::begin_again);
    guest.closes(
        "close_backward",
        deep("flight-recorder"),
        sample::begin_again,
    );
    guest.closes("close", || Ok(()), |()| Ok(()));
    if let Err(error) = guest.contexts() {
        guest.failed("context_read_1", &error);
    }
    rest();
    guest.switch("switch", || Ok(()));
    guest.switch("switch_context_4", || context(COUNTERS));
    guest.life("life_context", || context(COUNTERS));
    rest();
    guest.switch("switch_perf_4", || {
        PerfGroup::of_thread(INSTRUCTIONS, COUNTERS.into())
    });
    settle();
    rest();
    guest.interrupt("interrupt");
    guest.accounting();
    guest.others();
    guest.turns::<TwoSets>("turns_context");
    guest.turns::<TwoGroups>("turns_perf");
    guest.life("life_perf", || {
        PerfGroup::of_thread(INSTRUCTIONS, COUNTERS.into())
    });
    guest.samples("sample_perf", sample::events);
    for count in [1, 4] {
        guest.perf(&format!("perf_pmu_{count}"), INSTRUCTIONS, count);
    }
    guest.rdpmc();
    if let Err(error) = guest.bpf() {
        guest.failed("bpf_lookup", &error);
    }
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
        let line = callback_line("812 47 50 bell_timer [perfcounters]").expect("a line");
        assert_eq!((line.ticks, line.agree, line.calls), (812, 47, 50));
        assert_eq!(line.function, "bell_timer [perfcounters]");
        let line = callback_line("5001 40 50 perf_mux_hrtimer_handler").expect("a line");
        assert_eq!(line.function, "perf_mux_hrtimer_handler");
        assert_eq!(callback_line("5001 40 50"), None);
    }
}
