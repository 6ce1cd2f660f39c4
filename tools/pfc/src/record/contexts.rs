// SPDX-License-Identifier: GPL-2.0

//! Contexts that sample: one for each thread or CPU, alike, each with its ring.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use perfmon::{sampled, Context, Message, Scope, Value};
use ring::{Argument, Record, Ring};

use super::pace::Pace;
use super::task_events::TaskEvents;
use super::tasks::{now, numbers, BuildIds, Tasks};
use crate::data::{Common, Encoder};
use crate::stat::command::FollowHandler;
use crate::stat::counting::on_target;
use crate::stat::short_counts::{ShortCauses, ShortCounts};
use crate::stat::throttling::Throttling;

/// Threads are looked at for their processes' names in /proc.
fn process(thread: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("Tgid:"));
    line.and_then(|l| l.trim().parse().ok()).unwrap_or(thread)
}

/// A counter that samples.
#[derive(Clone, Debug)]
pub struct Sampler {
    pub pmd: u16,
    /// To begin with.
    pub period: u64,
    /// Samples per second, where the period is to follow them.
    pub frequency: Option<u64>,
    /// In its samples.
    pub id: u64,
}

/// What each context is made of.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub scope: Scope,
    pub format: &'static str,
    pub argument: Argument,
    pub pmcs: Vec<Value>,
    pub samplers: Vec<Sampler>,
}

impl Recipe {
    /// Written, not attached.
    pub fn open(&self) -> io::Result<Context> {
        let context = Context::create_format(self.scope, self.format, &self.argument.to_bytes())?;
        context.write_pmcs(&self.pmcs)?;
        let pmds: Vec<_> = self
            .samplers
            .iter()
            .map(|s| sampled(s.pmd, s.period, s.id))
            .collect();
        context.write(&pmds)?;
        Ok(context)
    }

    /// Can it be had, of this thread or that CPU?
    pub fn try_on(&self, target: u32) -> io::Result<()> {
        on_target(self.scope, target, || {
            let context = self.open()?;
            context.load(target)?;
            Ring::open(&context)?;
            context.unload()
        })
    }
}

struct Live {
    context: Context,
    ring: Ring,
    /// Those of [`Recipe::samplers`] that follow a frequency.
    paces: Vec<Option<Pace>>,
    /// Records, so far.
    lost: u64,
    ended: bool,
}

impl Live {
    /// Reads its messages: why it has ended before its target, if it has.
    fn look(&mut self, scope: Scope) -> ShortCauses {
        while !self.ended {
            match self.context.message() {
                Ok(None) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => break,
                Ok(Some(Message::Overflow { .. } | Message::Other(_))) => {}
                Ok(Some(message)) => {
                    self.ended = true;
                    return ShortCauses::from_message(message, scope);
                }
                // Without messages there is nothing to wait for; the ring stays.
                Err(_) => self.ended = true,
            }
        }
        ShortCauses::NONE
    }
}

/// What came out of the rings, until it is written.
#[derive(Default)]
pub struct Harvest {
    pub records: Encoder,
    pub samples: u64,
    pub lost: u64,
    /// Samples of idle CPUs or of processes outside of this pid name space.
    pub outside: u64,
}

/// All of them.
pub struct Contexts {
    recipe: Recipe,
    live: BTreeMap<u32, Live>,
    pub tasks: Tasks,
    /// The kernel's records of processes, where it gives them.
    events: Option<TaskEvents>,
    pub harvest: Harvest,
    /// Threads that could not be sampled, and why the first could not.
    pub missed: usize,
    pub trouble: Option<io::Error>,
    /// Threads and CPUs that were not sampled to their end.
    shorts: ShortCounts,
    /// Storms of contexts that were closed; and what the files before this one told.
    closed: Throttling,
    told: Throttling,
    /// Rings that are read only when a file is to be made.
    is_recorder: bool,
    is_broken: bool,
    /// This program runs in a pid name space that is not the first one, so CPUs also run processes
    /// without a number in it.
    is_nested: bool,
}

/// The link of the first pid name space, by the kernel's PROC_PID_INIT_INO.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

fn is_nested() -> bool {
    let own = std::fs::read_link("/proc/self/ns/pid");
    own.is_ok_and(|own| own.as_os_str() != FIRST_PID_NAMESPACE)
}

impl Contexts {
    pub fn new(recipe: Recipe, is_recorder: bool, stacks: bool) -> Self {
        let id = recipe.samplers.first().map_or(0, |s| s.id);
        let mut harvest = Harvest::default();
        harvest.records.stacks = stacks;
        Self {
            recipe,
            live: BTreeMap::new(),
            tasks: Tasks::new(id),
            events: None,
            harvest,
            missed: 0,
            trouble: None,
            shorts: ShortCounts::default(),
            closed: Throttling::default(),
            told: Throttling::default(),
            is_recorder,
            is_broken: false,
            is_nested: is_nested(),
        }
    }

    /// Attached, not yet sampling.
    pub fn load(&mut self, target: u32) -> io::Result<()> {
        let recipe = &self.recipe;
        let context = on_target(recipe.scope, target, || {
            let context = recipe.open()?;
            context.load(target)?;
            Ok(context)
        })?;
        self.insert_attached(target, context)
    }

    fn start_one(&self, target: u32) -> io::Result<()> {
        match self.live.get(&target) {
            Some(live) => on_target(self.recipe.scope, target, || live.context.start()),
            None => Ok(()),
        }
    }

    /// All sample. A thread that has ended meanwhile is no fault.
    pub fn start(&self) -> io::Result<()> {
        for target in self.live.keys() {
            match self.start_one(*target) {
                Err(e) if crate::stat::counting::is_esrch(&e) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// None samples any more.
    pub fn stop(&self) {
        for (target, live) in &self.live {
            // What has ended samples no more, either.
            let _ = on_target(self.recipe.scope, *target, || live.context.stop());
        }
    }

    /// Those that have something to say.
    pub fn files(&self) -> Vec<BorrowedFd<'_>> {
        let live = self.live.values().filter(|live| !live.ended);
        let mut files: Vec<_> = live.map(|live| live.context.as_fd()).collect();
        files.extend(self.events.iter().flat_map(TaskEvents::files));
        files
    }

    /// Reads messages, and the rings if they are not kept for later.
    pub fn turn(&mut self) -> io::Result<()> {
        let targets: Vec<u32> = self.live.keys().copied().collect();
        for target in targets {
            let Some(live) = self.live.get_mut(&target) else {
                continue;
            };
            let causes = live.look(self.recipe.scope);
            self.shorts.add(target, causes);
            if !self.is_recorder {
                self.drain(target);
                self.adjust(target)?;
            }
        }
        self.drain_events();
        Ok(())
    }

    /// Reads the kernel's records of processes. The caller has read the samples before, so the
    /// records that precede a sample are read with it.
    fn drain_events(&mut self) {
        if let Some(events) = &mut self.events {
            self.tasks.drain(events);
        }
    }

    /// Reads all rings, whatever they are.
    pub fn drain_all(&mut self) {
        let targets: Vec<u32> = self.live.keys().copied().collect();
        for target in &targets {
            self.pause(*target, true);
        }
        for target in &targets {
            self.drain(*target);
        }
        self.drain_events();
        for target in &targets {
            self.pause(*target, false);
        }
        if self.is_recorder {
            let ended: Vec<u32> = self
                .live
                .iter()
                .filter(|(_, live)| live.ended)
                .map(|(target, _)| *target)
                .collect();
            for target in ended {
                self.close(target);
            }
        }
    }

    fn close(&mut self, target: u32) {
        if let Some(live) = self.live.remove(&target) {
            if let Ok(status) = live.context.status() {
                self.closed.add(&status);
                self.shorts.add(target, ShortCauses::from_status(&status));
            }
        }
    }

    /// Storms since this was asked last.
    pub fn take_throttled(&mut self) -> Throttling {
        let mut all = self.closed;
        for status in self
            .live
            .values()
            .filter_map(|live| live.context.status().ok())
        {
            all.add(&status);
        }
        let before = std::mem::replace(&mut self.told, all);
        all.since(&before)
    }

    fn pause(&self, target: u32, paused: bool) {
        if let (true, Some(live)) = (self.is_recorder, self.live.get(&target)) {
            // While it is not paused the oldest records may go while they are read.
            let _ = on_target(self.recipe.scope, target, || live.context.pause(paused));
        }
    }

    fn drain(&mut self, target: u32) {
        let Some(live) = self.live.get_mut(&target) else {
            return;
        };
        let samplers = &self.recipe.samplers;
        let first = samplers.first().map_or(0, |s| s.id);
        let harvest = &mut self.harvest;
        for record in live.ring.records() {
            let common = |time| Common {
                time,
                id: first,
                ..Common::default()
            };
            match record {
                Record::Sample(mut sample) => {
                    if self.is_nested && sample.pid == 0 {
                        (sample.pid, sample.tid) = (u32::MAX, u32::MAX);
                        harvest.outside += 1;
                    }
                    self.tasks.seen(&sample);
                    let which = samplers.iter().position(|s| s.id == sample.eventid);
                    if let Some(pace) = which.and_then(|n| live.paces[n].as_mut()) {
                        pace.sample(sample.time);
                    }
                    let id = which.map_or(first, |_| sample.eventid);
                    harvest.records.sample(&sample, id);
                    harvest.samples += 1;
                }
                Record::Lost(lost) => harvest.records.lost(lost, &common(now())),
                Record::Throttle(time) => harvest.records.throttle(true, &common(time)),
                Record::Unthrottle(time) => harvest.records.throttle(false, &common(time)),
                Record::Exec(time) => self.tasks.exec_of_thread(target, time),
                // Of a later kernel side.
                Record::Other { .. } => {}
            }
        }
        self.tasks.check_all();
        // The last that were lost are told by no record.
        let lost = live.ring.lost();
        harvest.lost += lost.saturating_sub(live.lost);
        live.lost = lost;
        self.is_broken |= live.ring.is_broken();
    }

    /// Periods that are to be others.
    fn adjust(&mut self, target: u32) -> io::Result<()> {
        let Some(live) = self.live.get_mut(&target) else {
            return Ok(());
        };
        let mut pmds = Vec::new();
        for (sampler, pace) in self.recipe.samplers.iter().zip(&mut live.paces) {
            if let Some(period) = pace.as_mut().and_then(Pace::adjust) {
                pmds.push(sampled(sampler.pmd, period, sampler.id));
            }
        }
        if pmds.is_empty() || live.ended {
            return Ok(());
        }
        // Where it cannot be done while it runs, the period stays.
        let _ = on_target(self.recipe.scope, target, || live.context.write(&pmds));
        Ok(())
    }

    /// Is there nobody left to sample?
    pub fn is_over(&self) -> bool {
        self.live.values().all(|live| live.ended)
    }

    /// Says what went wrong on the way.
    pub fn finish(&mut self) {
        for (target, live) in &mut self.live {
            let causes = live.look(self.recipe.scope);
            self.shorts.add(*target, causes);
            if let Ok(status) = live.context.status() {
                self.shorts.add(*target, ShortCauses::from_status(&status));
            }
        }
        if let lost @ 1.. = self.events.as_ref().map_or(0, |events| events.lost) {
            eprintln!("pfc: {lost} records of processes were lost: some names may be missing, or those of an earlier program");
        }
        if self.harvest.outside > 0 {
            eprintln!(
                "pfc: {} samples are of idle CPUs or of processes outside of this pid name space; they have no names (:-1)",
                self.harvest.outside
            );
        }
        if self.is_broken {
            eprintln!("pfc: a ring held what is no record; is pfc as new as the module?");
        }
        for sentence in self.shorts.sentences(self.recipe.scope, "sampling") {
            eprintln!("pfc: {sentence}");
        }
    }
}

impl FollowHandler for Contexts {
    const STOP_AT_EXIT: bool = true;

    fn process_forked(&mut self, process: u32) {
        // Where the kernel gives no records, /proc is read at the exec.
        let time = now();
        if self.open_events(Some(&[process])) {
            self.tasks.there(process, time, &mut BuildIds::new());
        }
    }

    fn create_context(&self) -> io::Result<Option<Context>> {
        self.recipe.open().map(Some)
    }

    fn insert_attached(&mut self, thread: u32, context: Context) -> io::Result<()> {
        let ring = Ring::open(&context)?;
        let pace = |s: &Sampler| s.frequency.map(|f| Pace::new(f, s.period));
        let live = Live {
            ring,
            paces: self.recipe.samplers.iter().map(pace).collect(),
            context,
            lost: 0,
            ended: false,
        };
        self.live.insert(thread, live);
        Ok(())
    }

    fn attach_new_thread(&mut self, thread: u32) {
        self.tasks.born(thread, now());
        self.sample(thread);
    }

    fn command_executed(&mut self, thread: u32) {
        self.tasks.exec(thread, now());
        self.sample(thread);
    }

    fn thread_executed(&mut self, former: u32, now_thread: u32) -> io::Result<()> {
        if former != now_thread {
            self.thread_exited(now_thread)?;
            if let Some(live) = self.live.remove(&former) {
                self.live.insert(now_thread, live);
            }
        }
        // What was sampled before is of the former program.
        if !self.is_recorder {
            self.drain(now_thread);
        }
        self.tasks.exec(now_thread, now());
        Ok(())
    }

    fn before_thread_exit(&mut self, thread: u32) {
        // The last moment at which its code can be known.
        self.tasks.leaving(thread, now());
    }

    fn thread_exited(&mut self, thread: u32) -> io::Result<()> {
        if let Some(live) = self.live.get_mut(&thread) {
            let causes = live.look(self.recipe.scope);
            self.shorts.add(thread, causes);
            // What it did last may be what is wanted.
            live.ended = true;
        }
        if !self.is_recorder {
            self.drain(thread);
            self.close(thread);
        }
        Ok(())
    }
}

impl Contexts {
    fn sample(&mut self, thread: u32) {
        let started = self.load(thread).and_then(|()| self.start_one(thread));
        if let Err(error) = started {
            self.live.remove(&thread);
            self.missed += 1;
            self.trouble.get_or_insert(error);
        }
    }

    /// Opens the kernel's records of the threads' processes, or of all processes, and reads from
    /// /proc the names and mappings that exist before. Where the kernel gives no records, /proc is
    /// read later as well.
    pub fn watch(&mut self, threads: Option<&[u32]>) {
        // Mappings and names from /proc get a time before all records. If a process changes while
        // /proc is read, its record is newer and replaces them.
        let time = now();
        let processes = threads.map(processes);
        self.open_events(processes.as_deref());
        let mut build_ids = BuildIds::new();
        for pid in processes.unwrap_or_else(|| numbers("/proc")) {
            self.tasks.there(pid, time, &mut build_ids);
        }
    }

    /// Opens the kernel's records of processes, or of all processes. Returns false if the kernel
    /// refuses them.
    fn open_events(&mut self, processes: Option<&[u32]>) -> bool {
        let events = match processes {
            None => TaskEvents::of_all(),
            Some(processes) => {
                let threads = |pid| numbers(&format!("/proc/{pid}/task"));
                TaskEvents::of_threads(&processes.iter().flat_map(threads).collect::<Vec<u32>>())
            }
        };
        self.events = events.ok();
        let is_open = self.events.is_some();
        if is_open {
            self.tasks.set_kernel_tells();
        }
        is_open
    }
}

/// The processes of these threads, each once.
fn processes(threads: &[u32]) -> Vec<u32> {
    let mut processes: Vec<u32> = threads.iter().map(|t| process(*t)).collect();
    processes.sort_unstable();
    processes.dedup();
    processes
}
