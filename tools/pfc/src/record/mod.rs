// SPDX-License-Identifier: GPL-2.0

//! `pfc record`: samples of a command, threads or CPUs, in a file as perf record makes
//! it.
//!
//! | file | holds |
//! |---|---|
//! | `contexts.rs` | the contexts of threads or CPUs, with their rings |
//! | `pace.rs` | periods for a frequency |
//! | `tasks.rs` | names of processes, and the code that they have mapped |
//! | `task_events.rs` | the kernel's own records of processes |
//! | `perf_event.rs` | perf_event_open(2), rings; unsafe |

mod contexts;
mod pace;
mod perf_event;
mod task_events;
mod tasks;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use perfmon::Scope;
use ring::Argument;
use rustix::thread::gettid;

use crate::cli::{RecordArgs, Whom};
use crate::data::{self, Attribute, Writer};
use crate::failure::Failure;
use crate::stat::command::{beside, Child};
use crate::stat::counting::{is_busy, is_gone};
use crate::stat::events::{Event, Machine, What};
use crate::stat::place::{place, Place, Plan};
use crate::stat::wait::{Waiter, Wake};
use crate::stat::{exit_code, refused, target, Target};
pub use contexts::Contexts;
use contexts::{Recipe, Sampler};
pub use tasks::now;

/// Rings are looked at so often at least.
const TURN: Duration = Duration::from_millis(100);
/// Samples per second, if nothing is said.
const FREQUENCY: u64 = 4000;
const PAGE: u64 = 4096;
/// Between two words of progress.
const SECOND: Duration = Duration::from_secs(1);

/// PERF_TYPE_*.
const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const RAW: u32 = 4;

pub fn run(device: &Path, args: &RecordArgs, file: Option<&Path>) -> Result<ExitCode, Failure> {
    let target = target(&args.whom, "record", !args.command.is_empty())?;
    let scope = match target {
        Target::Cpus(_) => Scope::System,
        _ => Scope::Thread,
    };
    // From now on signals are heard, however long the rest takes.
    let waiter = match args.switch_output || args.overwrite {
        true => Waiter::with_switch()?,
        false => Waiter::new()?,
    };
    let (attributes, contexts) = prepare(device, args, scope, &target)?;
    let mut run = Run {
        args,
        contexts,
        waiter,
        attributes,
        path: file.unwrap_or(Path::new(data::DEFAULT)).to_owned(),
        file: None,
        files: 0,
        turns: 0,
        // A command has the terminal for itself.
        progress: (io::stderr().is_terminal() && args.command.is_empty()).then(Instant::now),
    };
    run.begin_file()?;
    let status = match &target {
        Target::Command => run.command()?,
        _ => {
            attach(&mut run.contexts, &target, &args.whom)?;
            run.others()?
        }
    };
    run.end()?;
    Ok(status.map_or(ExitCode::SUCCESS, exit_code))
}

/// What is sampled, and contexts for it: none yet.
pub fn prepare(
    device: &Path,
    args: &RecordArgs,
    scope: Scope,
    target: &Target,
) -> Result<(Vec<Attribute>, Contexts), Failure> {
    let machine = Machine::here(target.cpus());
    let (events, recipe) = recipe(device, args, scope, &machine, target)?;
    let attributes = attributes(&events, &recipe, args);
    Ok((
        attributes,
        Contexts::new(recipe, args.overwrite, args.stacks),
    ))
}

/// Contexts for threads or CPUs, not sampling yet.
pub fn attach(contexts: &mut Contexts, target: &Target, whom: &Whom) -> Result<(), Failure> {
    match target {
        Target::Command => {}
        Target::Threads(threads) => {
            contexts.watch(Some(threads));
            for thread in threads {
                match contexts.load(*thread) {
                    // Of a process, some may have ended since it was looked at.
                    Err(e) if is_gone(&e) && whom.threads.is_empty() => {}
                    done => done.map_err(|e| refused(&format!("sample thread {thread}"), &e))?,
                }
            }
        }
        Target::Cpus(cpus) => {
            contexts.watch(None);
            for cpu in cpus {
                contexts
                    .load(*cpu)
                    .map_err(|e| refused(&format!("sample CPU {cpu}"), &e))?;
            }
        }
    }
    Ok(())
}

/// What is sampled, and how. Without anything said cycles, or time where there is no PMU
/// to be had.
fn recipe(
    device: &Path,
    args: &RecordArgs,
    scope: Scope,
    machine: &Machine,
    target: &Target,
) -> Result<(Vec<Event>, Recipe), Failure> {
    let on = match target {
        Target::Cpus(cpus) => cpus[0],
        _ => gettid().as_raw_nonzero().get().unsigned_abs(),
    };
    let named = |words: &[String]| -> Result<Vec<Event>, Failure> {
        words.iter().map(|w| machine.event(w, device)).collect()
    };
    let attempt = |events: Vec<Event>| -> Result<(Vec<Event>, Recipe), Failure> {
        let plan = place(&events, &machine.map);
        let recipe = plan_recipe(&events, &plan, args, scope, machine)?;
        match recipe.try_on(on) {
            Ok(()) => Ok((events, recipe)),
            Err(e) => Err(advice(&e, recipe.format)),
        }
    };
    if !args.events.is_empty() {
        return attempt(named(&args.events)?);
    }
    let clock = ["task-clock".to_owned()];
    if machine.vendor.is_some() {
        let cycles = named(&["cycles".to_owned()])?;
        let plan = place(&cycles, &machine.map);
        let recipe = plan_recipe(&cycles, &plan, args, scope, machine)?;
        match recipe.try_on(on) {
            Ok(()) => return Ok((cycles, recipe)),
            Err(e) if is_busy(&e) => {
                eprintln!("pfc: the PMU is in somebody else's hands ('pfc doctor' says whose): time is sampled, not cycles");
            }
            Err(e) => return Err(advice(&e, recipe.format)),
        }
    }
    attempt(named(&clock)?)
}

/// A format that is not there is a module that is not loaded.
fn advice(error: &io::Error, format: &str) -> Failure {
    let there = Path::new(perfmon::DEVICE).exists();
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::NotFound, _) if there => Failure::Refused(format!(
            "cannot record: there is no format '{format}'; load it: modprobe pfm_ring"
        )),
        (io::ErrorKind::OutOfMemory, _) => Failure::Refused(
            "cannot record: the ring is too large; take fewer pages (-m), or raise ulimit -l"
                .to_owned(),
        ),
        (_, Some(libc::ENOTTY)) => Failure::Refused(
            "cannot record: the module perfcounters that is loaded cannot sample; load a newer one"
                .to_owned(),
        ),
        _ => refused("record", error),
    }
}

fn plan_recipe(
    events: &[Event],
    plan: &Plan,
    args: &RecordArgs,
    scope: Scope,
    machine: &Machine,
) -> Result<Recipe, Failure> {
    let mut samplers = Vec::new();
    for ((event, place), id) in events.iter().zip(&plan.places).zip(1..) {
        let pmd = match place {
            Place::Pmd(pmd) => *pmd,
            Place::NotCounted => {
                return Err(Failure::Refused(
                    "there are more events than counters; take fewer at a time".to_owned(),
                ))
            }
            Place::NotSupported => {
                let why = match (machine.is_soft_name(&event.name), &event.why) {
                    (true, _) => "load the kernel's own events: modprobe pfm_soft",
                    (false, Some(why)) if machine.vendor.is_some() => why.as_str(),
                    (false, _) => "there is no counter for it; 'pfc doctor' looks for the cause",
                };
                return Err(Failure::Refused(format!(
                    "'{}' cannot be sampled: {why}",
                    event.name
                )));
            }
        };
        let (period, frequency) = period(event, args);
        samplers.push(Sampler {
            pmd,
            period,
            frequency,
            id,
        });
    }
    let pages = args.pages.unwrap_or(match scope {
        Scope::System => 128,
        Scope::Thread => 32,
    });
    let mut argument = Argument::new(pages * PAGE);
    let format = match (args.overwrite, args.stacks) {
        (true, stacks) => {
            argument.flags = ring::BACKWARD | ring::OVERWRITE;
            if stacks {
                argument.fields = ring::KERNEL_STACK | ring::USER_STACK;
            }
            "flight-recorder"
        }
        (false, true) => "call-stack",
        (false, false) => "ring",
    };
    Ok(Recipe {
        scope,
        format,
        argument,
        pmcs: plan.pmcs.clone(),
        samplers,
    })
}

/// Counts between two samples, and the frequency that they are to follow.
fn period(event: &Event, args: &RecordArgs) -> (u64, Option<u64>) {
    if let Some(period) = args.period {
        return (period, None);
    }
    let frequency = args.frequency.unwrap_or(FREQUENCY);
    match event.what {
        // Nanoseconds.
        What::Soft(perfmon::CPU_CLOCK | perfmon::TASK_CLOCK) => {
            ((1_000_000_000 / frequency).max(1), None)
        }
        // As if each came with each cycle; it follows soon.
        What::Hardware(_) => ((mhz() * 1_000_000 / frequency).max(1000), Some(frequency)),
        _ => (1, Some(frequency)),
    }
}

fn mhz() -> u64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("cpu MHz"));
    let value = line.and_then(|l| l.split_once(':')?.1.trim().parse::<f64>().ok());
    value.map_or(1000, |mhz| mhz as u64).clamp(100, 10_000)
}

/// As perf would have called them.
fn attributes(events: &[Event], recipe: &Recipe, args: &RecordArgs) -> Vec<Attribute> {
    let attribute = |(event, sampler): (&Event, &Sampler)| {
        let (kind, config) = match event.what {
            What::Soft(perfmon::CPU_CLOCK) => (SOFTWARE, 0),
            What::Soft(perfmon::TASK_CLOCK) => (SOFTWARE, 1),
            What::Soft(perfmon::PAGE_FAULTS) => (SOFTWARE, 2),
            What::Soft(perfmon::CONTEXT_SWITCHES) => (SOFTWARE, 3),
            What::Soft(perfmon::MIGRATIONS) => (SOFTWARE, 4),
            What::Soft(perfmon::MAJOR_FAULTS) => (SOFTWARE, 6),
            What::Hardware(code) => match generic(event.base()) {
                Some(config) => (HARDWARE, config),
                None => (RAW, code.select),
            },
            // PERF_COUNT_SW_DUMMY: perf knows none such.
            _ => (SOFTWARE, 9),
        };
        let modes = match event.what {
            What::Hardware(code) => (code.user, code.kernel),
            _ => (true, true),
        };
        Attribute {
            name: event.name.clone(),
            kind,
            config,
            period: match (args.period, args.frequency) {
                (Some(period), _) => period,
                (None, frequency) => frequency.unwrap_or(FREQUENCY),
            },
            is_frequency: args.period.is_none(),
            exclude_user: !modes.0,
            exclude_kernel: !modes.1,
            id: sampler.id,
        }
    };
    events.iter().zip(&recipe.samplers).map(attribute).collect()
}

/// PERF_COUNT_HW_*.
fn generic(name: &str) -> Option<u64> {
    Some(match name {
        "cycles" | "cpu-cycles" => 0,
        "instructions" => 1,
        "cache-references" => 2,
        "cache-misses" => 3,
        "branches" | "branch-instructions" => 4,
        "branch-misses" => 5,
        "bus-cycles" => 6,
        "ref-cycles" => 9,
        _ => return None,
    })
}

/// What a run needs.
struct Run<'a> {
    args: &'a RecordArgs,
    contexts: Contexts,
    waiter: Waiter,
    attributes: Vec<Attribute>,
    /// What was asked for.
    path: PathBuf,
    /// The one that is written now; a flight recorder has none until it is read.
    file: Option<Writer>,
    files: usize,
    turns: usize,
    /// When it was last said how far it is, to somebody who waits.
    progress: Option<Instant>,
}

impl Run<'_> {
    fn begin_file(&mut self) -> Result<(), Failure> {
        if self.args.overwrite {
            return Ok(());
        }
        let path = match self.args.switch_output {
            true => stamped(&self.path),
            false => self.path.clone(),
        };
        self.open(&path)
    }

    fn open(&mut self, path: &Path) -> Result<(), Failure> {
        let words: Vec<String> = std::env::args().collect();
        let file = Writer::begin(path, &self.attributes, self.args.stacks, &words)
            .map_err(|e| Failure::Create(path.to_owned(), e))?;
        self.file = Some(file);
        Ok(())
    }

    /// What came is written.
    fn write(&mut self) -> Result<(), Failure> {
        let is_kept = self.args.overwrite || self.args.switch_output;
        let contexts = &mut self.contexts;
        if !is_kept {
            // Files that follow need no records of processes.
            let told = contexts.tasks.take();
            contexts.harvest.records.bytes.extend(told);
        }
        let bytes = &mut contexts.harvest.records.bytes;
        if let (Some(file), false) = (&mut self.file, bytes.is_empty()) {
            let done = file.write(bytes);
            bytes.clear();
            done.map_err(|e| Failure::Create(file.path().to_owned(), e))?;
        }
        Ok(())
    }

    /// The file is made whole.
    fn finish_file(&mut self, is_last: bool) -> Result<(), Failure> {
        if self.args.overwrite {
            let path = match self.args.switch_output || !is_last {
                true => stamped(&self.path),
                false => self.path.clone(),
            };
            self.open(&path)?;
        }
        self.contexts.drain_all();
        self.contexts.tasks.names();
        self.write()?;
        let Some(mut file) = self.file.take() else {
            return Ok(());
        };
        let path = file.path().to_owned();
        let bytes = file
            .write(self.contexts.tasks.bytes())
            .and_then(|()| file.finish(&[]))
            .map_err(|e| Failure::Create(path.clone(), e))?;
        let harvest = &mut self.contexts.harvest;
        eprintln!(
            "[ pfc record: Captured and wrote {:.3} MB {} ({} samples), {} lost ]",
            bytes as f64 / f64::from(1 << 20),
            path.display(),
            harvest.samples,
            harvest.lost,
        );
        (harvest.samples, harvest.lost) = (0, 0);
        let throttled = self.contexts.take_throttled();
        if !throttled.is_none() {
            eprintln!(
                "[ pfc record: {throttled}: too many samples; take fewer (-c, -F), or raise max_sample_rate and max_sample_percent in /sys/module/perfcounters/parameters ]"
            );
        }
        self.files += 1;
        Ok(())
    }

    /// SIGUSR2: what there is goes to a file of its own.
    fn switch(&mut self) -> Result<(), Failure> {
        eprintln!("[ pfc record: dump data: file {} ]", self.files + 1);
        self.finish_file(false)?;
        self.begin_file()
    }

    fn end(&mut self) -> Result<(), Failure> {
        if self.progress.is_some() {
            eprintln!();
        }
        eprintln!(
            "[ pfc record: Woken up {} times to write data ]",
            self.turns
        );
        self.finish_file(true)?;
        self.contexts.finish();
        if let (n @ 1.., Some(error)) = (self.contexts.missed, &self.contexts.trouble) {
            let why = refused("record", error);
            eprintln!("pfc: {n} threads are missing; of the first: {why}");
        }
        Ok(())
    }

    /// Waits, and does what is to be done each time.
    fn turn(&mut self) -> Result<Wake, Failure> {
        let until = Some(Instant::now() + TURN);
        let wake = self.waiter.wait_for(until, &self.contexts.files())?;
        self.contexts.turn()?;
        if !self.contexts.harvest.records.bytes.is_empty() {
            self.turns += 1;
        }
        self.write()?;
        if wake == Wake::Switch {
            self.switch()?;
        }
        self.say_progress();
        Ok(wake)
    }

    /// On a terminal, each second.
    fn say_progress(&mut self) {
        let harvest = &self.contexts.harvest;
        if let Some(last) = self.progress.as_mut().filter(|t| t.elapsed() >= SECOND) {
            *last = Instant::now();
            eprint!(
                "\r[ pfc record: {} samples, {} lost so far; Ctrl-C ends ] ",
                harvest.samples, harvest.lost
            );
        }
    }

    fn command(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let words = &self.args.command;
        let alone = |contexts: &mut Contexts| -> Result<Child, Failure> {
            let before = now();
            let child = Child::alone(words, contexts)?;
            contexts.tasks.exec(child.pid(), before);
            Ok(child)
        };
        let mut child = match self.args.no_inherit {
            false => match Child::traced(words, &mut self.contexts) {
                Err(error) => {
                    eprintln!("pfc: children and threads are not followed: {error}; is ptrace forbidden (sysctl kernel.yama.ptrace_scope)?");
                    alone(&mut self.contexts)?
                }
                child => child?,
            },
            true => alone(&mut self.contexts)?,
        };
        loop {
            if let Some(status) = child.look(&mut self.contexts)? {
                self.contexts.turn()?;
                return Ok(Some(status));
            }
            if self.turn()? == Wake::Terminated {
                child.signal(libc::SIGTERM);
            }
        }
    }

    /// While the command runs, or until the user says so.
    fn others(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.contexts.start().map_err(|e| refused("record", &e))?;
        let mut child = beside(&self.args.command)?;
        let mut status = None;
        loop {
            match self.turn()? {
                Wake::Interrupted | Wake::Terminated => break,
                Wake::Child => {
                    if let Some(child) = &mut child {
                        status = child.try_wait()?;
                        if status.is_some() {
                            break;
                        }
                    }
                }
                Wake::Time | Wake::Ready | Wake::Switch => {
                    // All threads have ended.
                    if child.is_none() && self.contexts.is_over() {
                        break;
                    }
                }
            }
        }
        self.contexts.stop();
        if let (Some(mut child), None) = (child, status) {
            let _ = child.kill();
            status = child.wait().ok();
        }
        Ok(status)
    }
}

/// As perf has it: the name, and the time to hundredths of a second.
fn stamped(path: &Path) -> PathBuf {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let stamp: String = crate::time::utc(since.as_nanos() as u64, 2)
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{stamp}"));
    name.into()
}
