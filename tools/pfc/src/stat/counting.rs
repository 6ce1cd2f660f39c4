// SPDX-License-Identifier: GPL-2.0

//! Contexts that belong together: one for each thread or CPU, alike.

use std::collections::BTreeMap;
use std::io;

use perfmon::{on_cpu, Context, Pmd, Scope, SetDesc, Value, EXPL_NEXT, OVFL_SWITCH, TIME_SWITCH};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::retry_on_intr;

use super::command::Crew;
use super::estimate::Sums;
use super::place::{Place, Plan};
use super::short::{Causes, Shorts};
use super::throttled::Throttled;

/// Nanoseconds of a turn, as of perf's.
pub const TURN: u64 = 1_000_000;

/// Where a count comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A PMD of all sets, added up: it counts all the time.
    Every(u16),
    /// A PMD of one set, which has turns.
    In(u16, u16),
}

/// Events are counted from that many of another one on.
#[derive(Clone, Debug)]
pub struct Threshold {
    /// What it takes to count that.
    pub pmcs: Vec<Value>,
    pub pmd: u16,
    pub count: u64,
}

/// What each context is written with, and what is read of it.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub scope: Scope,
    pub pmcs: Vec<Value>,
    /// Of each event that is counted, then [`Self::clock`]'s.
    pub sources: Vec<Source>,
    /// The PMD of the time that was counted.
    pub clock: Option<u16>,
    /// Sets that take turns, if there are several.
    pub sets: u16,
    /// Nanoseconds of a turn.
    pub turn: u64,
    /// It has a set of its own, before the others.
    pub threshold: Option<Threshold>,
}

impl Recipe {
    /// `clock`: there is such a register, and time can be told by it.
    pub fn new(scope: Scope, plan: &Plan, clock: Option<u16>) -> Self {
        let source = |(n, place): (usize, &Place)| match place {
            Place::Pmd(pmd) if *pmd < perfmon::FIRST_SOFT && plan.nr_sets > 1 => {
                Some(Source::In(plan.sets.get(n).copied().unwrap_or(0), *pmd))
            }
            Place::Pmd(pmd) => Some(Source::Every(*pmd)),
            _ => None,
        };
        let mut sources: Vec<Source> = plan.places.iter().enumerate().filter_map(source).collect();
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

    /// There is nothing to count: no context is made.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// The kernel's numbers of the sets.
    fn first(&self) -> u16 {
        u16::from(self.threshold.is_some())
    }

    fn ids(&self) -> std::ops::Range<u16> {
        self.first()..self.first() + self.sets
    }

    /// A context, written but not attached.
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
            // Never back to where the threshold is.
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

    /// What there is in a context, in the order of the sources.
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

    /// Can it be had, of this thread or of that CPU?
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

/// Calls on a CPU's context are made there. One that is offline has ended its context,
/// which is then anybody's.
pub fn at<T>(scope: Scope, target: u32, mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match scope {
        Scope::Thread => work(),
        Scope::System => match on_cpu(target, &mut work) {
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => work(),
            done => done,
        },
    }
}

/// A context that is attached.
struct Live {
    context: Context,
    /// It has ended, and has said why: before its target did, or with it.
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
    /// Reads its messages, of which the last says why it has ended. Plain counters have no
    /// others.
    fn look(&mut self, scope: Scope) -> io::Result<Causes> {
        while let Some(message) = self.context.message()? {
            let causes = self.ended.unwrap_or_default();
            self.ended = Some(causes.and(Causes::of(message, scope)));
        }
        Ok(self.ended.unwrap_or_default())
    }
}

/// Contexts by thread or CPU, and the sums of those that have ended.
pub struct Group {
    recipe: Recipe,
    live: BTreeMap<u32, Live>,
    ended: Vec<Sums>,
    /// The set that the next one begins with.
    begin: u16,
    /// Threads that could not be counted.
    pub lost: usize,
    /// Threads and CPUs that were not counted to their end.
    pub shorts: Shorts,
    /// Of the contexts that have ended.
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

    /// Attached, not yet counting.
    pub fn load(&mut self, target: u32) -> io::Result<()> {
        if self.recipe.is_empty() {
            return Ok(());
        }
        let context = self.recipe.at(target, || {
            let context = self.recipe.open()?;
            context.load_set(target, self.begin)?;
            Ok(context)
        })?;
        // Not all see the beginnings of their threads in the same set.
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

    /// All count. A thread that has ended meanwhile is no fault.
    pub fn start(&self) -> io::Result<()> {
        for target in self.live.keys() {
            match self.start_one(*target) {
                Err(e) if is_gone(&e) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// None counts any more.
    pub fn stop(&self) {
        for (target, live) in &self.live {
            // What has ended counts no more, either.
            let _ = self.recipe.at(*target, || live.context.stop());
        }
    }

    /// The sums so far, in the recipe's order.
    pub fn read(&mut self) -> io::Result<Vec<Sums>> {
        let mut sums = self.ended.clone();
        for (target, live) in &self.live {
            let values = self
                .recipe
                .at(*target, || self.recipe.read(&live.context))?;
            self.shorts.add(*target, causes(&values));
            add(&mut sums, &values);
        }
        // After the values, so that none of them is short without a mark.
        let early = self.look()?;
        Ok(sums.into_iter().map(|sum| sum.short(early)).collect())
    }

    /// Why contexts have ended before their targets did.
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

    /// Storms of all contexts. Only those that wait for an overflow can have some.
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

    /// Its counts stay.
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

/// ESRCH: the thread has ended.
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// EEXIST: the thread has a context.
pub fn has_context(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EEXIST)
}

/// EBUSY: perf, the watchdog or contexts of the other kind have it; or there is
/// no description.
pub fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

fn add(sums: &mut [Sums], values: &[Sums]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum = sum.plus(value);
    }
}

/// Why any of them is short.
fn causes(values: &[Sums]) -> Causes {
    let all = values.iter().map(|sums| sums.short);
    all.fold(Causes::NONE, Causes::and)
}
