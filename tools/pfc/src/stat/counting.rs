// SPDX-License-Identifier: GPL-2.0

//! The contexts of a run: one per thread or CPU, all configured alike.

use std::collections::BTreeMap;
use std::io;

use perfmon::{on_cpu, Context, Pmd, Scope, SetDesc, Value, EXPL_NEXT, OVFL_SWITCH, TIME_SWITCH};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::retry_on_intr;

use super::assign::{Placement, Plan};
use super::command::Crew;
use super::estimate::Sums;
use super::short::{Causes, Shorts};
use super::throttled::Throttled;

/// Default length of an event set's turn, in nanoseconds.
pub const TURN: u64 = 1_000_000;

/// The register or registers from which a count is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A PMD that counts in every event set. Its values in all sets are added up.
    Every(u16),
    /// A PMD of one event set, as (set, PMD). It counts only while its set is active.
    In(u16, u16),
}

/// The threshold of `--cascade`: other events are counted after `count` events of one kind.
#[derive(Clone, Debug)]
pub struct Threshold {
    /// The PMCs that select the event of the threshold.
    pub pmcs: Vec<Value>,
    pub pmd: u16,
    pub count: u64,
}

/// The configuration that all contexts of a run share.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub scope: Scope,
    pub pmcs: Vec<Value>,
    /// One for each event that is counted, in the order of the events. The last one is that of
    /// [`Self::clock`], if there is a clock.
    pub sources: Vec<Source>,
    /// The PMD that measures the counted time.
    pub clock: Option<u16>,
    /// The number of event sets that take turns; 1 if there are no turns.
    pub sets: u16,
    /// Length of a turn in nanoseconds.
    pub turn: u64,
    /// If present, event set 0 counts the event of the threshold, and the other sets follow it.
    pub threshold: Option<Threshold>,
}

impl Recipe {
    /// Makes the configuration for a plan. `clock` is the PMD that measures the counted time, if
    /// there is one.
    pub fn new(scope: Scope, plan: &Plan, clock: Option<u16>) -> Self {
        let source = |(n, place): (usize, &Placement)| match place {
            Placement::Pmd(pmd) if *pmd < perfmon::FIRST_SOFT && plan.nr_sets > 1 => {
                Some(Source::In(plan.sets.get(n).copied().unwrap_or(0), *pmd))
            }
            Placement::Pmd(pmd) => Some(Source::Every(*pmd)),
            _ => None,
        };
        let mut sources: Vec<Source> = plan
            .placements
            .iter()
            .enumerate()
            .filter_map(source)
            .collect();
        let clock = clock.filter(|_| !sources.is_empty());
        sources.extend(clock.map(Source::Every));
        Self {
            scope,
            pmcs: plan.pmcs.clone(),
            sources,
            clock,
            sets: plan.nr_sets.max(1),
            turn: TURN,
            threshold: None,
        }
    }

    /// Returns true if there is nothing to count. No context is created then.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// The id of the first event set that is not the threshold's.
    fn first(&self) -> u16 {
        u16::from(self.threshold.is_some())
    }

    fn ids(&self) -> std::ops::Range<u16> {
        self.first()..self.first() + self.sets
    }

    /// Creates a context and writes its registers, without attaching it.
    pub fn open(&self) -> io::Result<Context> {
        let context = Context::create(self.scope)?;
        self.make_sets(&context)?;
        let here = |v: &Value| v.of(v.set + self.first());
        let pmcs: Vec<Value> = self.pmcs.iter().map(here).collect();
        context.write_pmcs(&pmcs)?;
        let mut zeroes: Vec<(u16, u16)> = Vec::new();
        for source in &self.sources {
            match source {
                Source::Every(pmd) => zeroes.extend(self.ids().map(|set| (set, *pmd))),
                Source::In(set, pmd) => zeroes.push((set + self.first(), *pmd)),
            }
        }
        zeroes.sort_unstable();
        zeroes.dedup();
        let zeroes: Vec<Value> = zeroes
            .iter()
            .map(|(set, pmd)| Value::new(*pmd, 0).of(*set))
            .collect();
        context.write_pmds(&zeroes)?;
        Ok(context)
    }

    fn make_sets(&self, context: &Context) -> io::Result<()> {
        if self.ids() == (0..1) {
            return Ok(());
        }
        let timed = |set_id| SetDesc {
            set_id,
            set_flags: if self.sets > 1 { TIME_SWITCH } else { 0 },
            set_timeout: if self.sets > 1 { self.turn } else { 0 },
            ..SetDesc::default()
        };
        let mut sets: Vec<SetDesc> = self.ids().map(timed).collect();
        if let Some(threshold) = &self.threshold {
            // The last set is followed by the first one behind the threshold's.
            if let Some(last) = sets.last_mut() {
                (last.set_flags, last.set_id_next) = (last.set_flags | EXPL_NEXT, self.first());
            }
            sets.push(SetDesc {
                set_flags: OVFL_SWITCH,
                ..SetDesc::default()
            });
            context.create_sets(&mut sets)?;
            context.write_pmcs(&threshold.pmcs)?;
            return context.write(&[Pmd {
                reg_num: threshold.pmd,
                reg_value: threshold.count.wrapping_neg(),
                reg_ovfl_switch_cnt: 1,
                ..Pmd::default()
            }]);
        }
        context.create_sets(&mut sets)
    }

    /// Reads a context. The values are in the order of the sources.
    fn read(&self, context: &Context) -> io::Result<Vec<Sums>> {
        let (mut every, mut turns) = (Vec::new(), Vec::new());
        for source in &self.sources {
            match source {
                Source::Every(pmd) => every.extend(self.ids().map(|set| (set, *pmd))),
                Source::In(set, pmd) => turns.push((set + self.first(), *pmd)),
            }
        }
        let values = context.read_sets(&every)?;
        let mut whole = values.chunks(usize::from(self.sets));
        let runs = context.read_runs(&turns)?;
        let mut runs = runs.iter();
        let sums = |source: &Source| match source {
            Source::Every(_) => {
                let sets = whole.next().unwrap_or(&[]);
                let value = sets.iter().fold(0, |all: u64, v| all.wrapping_add(v.value));
                Sums::whole(value).short(match sets.iter().any(|v| v.is_short) {
                    true => Causes::SHORT,
                    false => Causes::NONE,
                })
            }
            Source::In(..) => runs.next().map(Sums::of_runs).unwrap_or_default(),
        };
        let sums: Vec<Sums> = self.sources.iter().map(sums).collect();
        if causes(&sums).is_none() {
            return Ok(sums);
        }
        let why = Causes::of_status(&context.status()?);
        let told = |sum: &Sums| match sum.short.is_none() {
            true => *sum,
            false => sum.short(why),
        };
        Ok(sums.iter().map(told).collect())
    }

    /// Creates a context, attaches it to this thread or CPU, and detaches it again. Returns an
    /// error if that is not possible.
    pub fn try_on(&self, target: u32) -> io::Result<()> {
        self.at(target, || {
            let context = self.open()?;
            context.load(target)?;
            context.unload()
        })
    }

    fn at<T>(&self, target: u32, work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        at(self.scope, target, work)
    }
}

/// Calls `work`, for a CPU's context on that CPU, as the kernel requires. If the CPU is offline,
/// its context has ended; the call is then made on any CPU.
pub fn at<T>(scope: Scope, target: u32, mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match scope {
        Scope::Thread => work(),
        Scope::System => match on_cpu(target, &mut work) {
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => work(),
            done => done,
        },
    }
}

/// A context that is or was attached.
struct Live {
    context: Context,
    /// `Some` after the context has ended. Names the causes if it ended before its target did.
    ended: Option<Causes>,
}

impl From<Context> for Live {
    fn from(context: Context) -> Self {
        Self {
            context,
            ended: None,
        }
    }
}

impl Live {
    /// Reads the context's messages and returns the causes that they name. These contexts request
    /// no messages about overflows, so each message says why the context has ended.
    fn look(&mut self, scope: Scope) -> io::Result<Causes> {
        while let Some(message) = self.context.message()? {
            let causes = self.ended.unwrap_or_default();
            self.ended = Some(causes.and(Causes::of(message, scope)));
        }
        Ok(self.ended.unwrap_or_default())
    }
}

/// The attached contexts by thread or CPU, and the sums of those that were removed.
pub struct Group {
    recipe: Recipe,
    live: BTreeMap<u32, Live>,
    ended: Vec<Sums>,
    /// The event set that the next context starts with.
    begin: u16,
    /// Number of threads that could not be counted.
    pub lost: usize,
    /// Threads and CPUs whose counts are short.
    pub shorts: Shorts,
    /// Throttling of the contexts that were removed.
    throttled: Throttled,
}

impl Group {
    pub fn new(recipe: Recipe) -> Self {
        Self {
            ended: vec![Sums::default(); recipe.sources.len()],
            begin: 0,
            live: BTreeMap::new(),
            recipe,
            lost: 0,
            shorts: Shorts::default(),
            throttled: Throttled::default(),
        }
    }

    /// Creates a context and attaches it to a thread or CPU, without starting it.
    pub fn load(&mut self, target: u32) -> io::Result<()> {
        if self.recipe.is_empty() {
            return Ok(());
        }
        let context = self.recipe.at(target, || {
            let context = self.recipe.open()?;
            context.load_set(target, self.begin)?;
            Ok(context)
        })?;
        // Each context starts with another set, so that the beginnings of threads are not all
        // counted by the same events.
        if self.recipe.threshold.is_none() {
            self.begin = (self.begin + 1) % self.recipe.sets;
        }
        self.live.insert(target, context.into());
        Ok(())
    }

    fn start_one(&self, target: u32) -> io::Result<()> {
        match self.live.get(&target) {
            Some(live) => self.recipe.at(target, || live.context.start()),
            None => Ok(()),
        }
    }

    /// Starts all contexts. Threads that have exited are skipped.
    pub fn start(&self) -> io::Result<()> {
        for target in self.live.keys() {
            match self.start_one(*target) {
                Err(e) if is_gone(&e) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Stops all contexts.
    pub fn stop(&self) {
        for (target, live) in &self.live {
            // A context that has ended does not count either, so its error is ignored.
            let _ = self.recipe.at(*target, || live.context.stop());
        }
    }

    /// Returns the sums so far, in the order of the recipe's sources.
    pub fn read(&mut self) -> io::Result<Vec<Sums>> {
        let mut sums = self.ended.clone();
        for (target, live) in &self.live {
            let values = self
                .recipe
                .at(*target, || self.recipe.read(&live.context))?;
            self.shorts.add(*target, causes(&values));
            add(&mut sums, &values);
        }
        // Messages are read after the values: if a context ended before its values were read, they
        // are marked as short.
        let early = self.look()?;
        Ok(sums.into_iter().map(|sum| sum.short(early)).collect())
    }

    /// Returns the causes for which contexts ended before their targets did.
    fn look(&mut self) -> io::Result<Causes> {
        let running = self.live.values().filter(|live| live.ended.is_none());
        let mut fds: Vec<PollFd<'_>> = running
            .map(|live| PollFd::new(&live.context, PollFlags::IN))
            .collect();
        let nr = retry_on_intr(|| poll(&mut fds, Some(&Timespec::default())))?;
        if nr > 0 {
            for (target, live) in &mut self.live {
                let causes = live.look(self.recipe.scope)?;
                self.shorts.add(*target, causes);
            }
        }
        let ended = self.live.values().filter_map(|live| live.ended);
        Ok(ended.fold(Causes::NONE, Causes::and))
    }

    /// Returns the throttling of all contexts. Only contexts with a threshold can be throttled,
    /// because the others request no overflows.
    pub fn throttled(&self) -> io::Result<Throttled> {
        let mut all = self.throttled;
        if self.recipe.threshold.is_some() {
            for live in self.live.values() {
                all.add(&live.context.status()?);
            }
        }
        Ok(all)
    }
}

impl Crew for Group {
    const LEAVING: bool = false;

    fn open(&self) -> io::Result<Option<Context>> {
        match self.recipe.is_empty() {
            true => Ok(None),
            false => self.recipe.open().map(Some),
        }
    }

    fn insert(&mut self, thread: u32, context: Context) -> io::Result<()> {
        self.live.insert(thread, context.into());
        Ok(())
    }

    fn follow(&mut self, thread: u32) {
        let started = self.load(thread).and_then(|()| self.start_one(thread));
        if started.is_err() {
            self.live.remove(&thread);
            self.lost += 1;
        }
    }

    fn exec(&mut self, former: u32, now: u32) -> io::Result<()> {
        if former != now {
            self.end(now)?;
            if let Some(context) = self.live.remove(&former) {
                self.live.insert(now, context);
            }
        }
        Ok(())
    }

    /// Adds the counts of a thread that has exited to the sums, and closes its context.
    fn end(&mut self, thread: u32) -> io::Result<()> {
        if let Some(mut live) = self.live.remove(&thread) {
            let values = self.recipe.read(&live.context)?;
            let early = live.look(self.recipe.scope)?;
            let values: Vec<Sums> = values.iter().map(|sum| sum.short(early)).collect();
            self.shorts.add(thread, causes(&values));
            add(&mut self.ended, &values);
            if self.recipe.threshold.is_some() {
                self.throttled.add(&live.context.status()?);
            }
        }
        Ok(())
    }
}

/// ESRCH: the thread has exited.
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// EEXIST: the thread already has a context.
pub fn has_context(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EEXIST)
}

/// EBUSY: the registers are used by perf, by the watchdog or by contexts of the other scope, or no
/// PMU description is registered.
pub fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

fn add(sums: &mut [Sums], values: &[Sums]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum = sum.plus(value);
    }
}

/// Returns all causes for which any of the values is short.
fn causes(values: &[Sums]) -> Causes {
    let all = values.iter().map(|sums| sums.short);
    all.fold(Causes::NONE, Causes::and)
}
