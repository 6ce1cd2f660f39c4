// SPDX-License-Identifier: GPL-2.0

//! Contexts that belong together: one for each thread or CPU, alike.

use std::collections::BTreeMap;
use std::io;

use perfmon::{on_cpu, Context, Scope, Value};

use super::command::Crew;
use super::place::{Place, Plan};

/// What each context is written with, and what is read of it.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub scope: Scope,
    pub pmcs: Vec<Value>,
    /// The PMD of each event that has one, then [`Self::clock`]'s.
    pub pmds: Vec<u16>,
    /// The PMD of the time that was counted.
    pub clock: Option<u16>,
}

impl Recipe {
    /// `clock`: there is such a register, and time can be told by it.
    pub fn new(scope: Scope, plan: &Plan, clock: Option<u16>) -> Self {
        let place = |p: &Place| match p {
            Place::Pmd(n) => Some(*n),
            _ => None,
        };
        let mut pmds: Vec<u16> = plan.places.iter().filter_map(place).collect();
        let clock = clock.filter(|_| !pmds.is_empty());
        pmds.extend(clock);
        Self {
            scope,
            pmcs: plan.pmcs.clone(),
            pmds,
            clock,
        }
    }

    /// There is nothing to count: no context is made.
    pub fn is_empty(&self) -> bool {
        self.pmds.is_empty()
    }

    /// A context, written but not attached.
    pub fn open(&self) -> io::Result<Context> {
        let context = Context::create(self.scope)?;
        context.write_pmcs(&self.pmcs)?;
        let mut numbers = self.pmds.clone();
        numbers.sort_unstable();
        numbers.dedup();
        let zeroes: Vec<Value> = numbers.iter().map(|n| Value::new(*n, 0)).collect();
        context.write_pmds(&zeroes)?;
        Ok(context)
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

/// Contexts by thread or CPU, and the sums of those that have ended.
pub struct Group {
    recipe: Recipe,
    live: BTreeMap<u32, Context>,
    ended: Vec<u64>,
    /// Threads that could not be counted.
    pub lost: usize,
}

impl Group {
    pub fn new(recipe: Recipe) -> Self {
        Self {
            ended: vec![0; recipe.pmds.len()],
            live: BTreeMap::new(),
            recipe,
            lost: 0,
        }
    }

    /// Attached, not yet counting.
    pub fn load(&mut self, target: u32) -> io::Result<()> {
        if self.recipe.is_empty() {
            return Ok(());
        }
        let context = self.recipe.at(target, || {
            let context = self.recipe.open()?;
            context.load(target)?;
            Ok(context)
        })?;
        self.live.insert(target, context);
        Ok(())
    }

    fn start_one(&self, target: u32) -> io::Result<()> {
        match self.live.get(&target) {
            Some(context) => self.recipe.at(target, || context.start()),
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
        for (target, context) in &self.live {
            // What has ended counts no more, either.
            let _ = self.recipe.at(*target, || context.stop());
        }
    }

    /// The sums so far, in the recipe's order.
    pub fn read(&self) -> io::Result<Vec<u64>> {
        let mut sums = self.ended.clone();
        for (target, context) in &self.live {
            let values = self
                .recipe
                .at(*target, || context.read_pmds(&self.recipe.pmds))?;
            add(&mut sums, &values);
        }
        Ok(sums)
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
        self.live.insert(thread, context);
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
        if let Some(context) = self.live.remove(&thread) {
            add(&mut self.ended, &context.read_pmds(&self.recipe.pmds)?);
        }
        Ok(())
    }
}

/// ESRCH: the thread has ended.
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// EBUSY: perf, the watchdog or contexts of the other kind have it; or there is
/// no description.
pub fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

fn add(sums: &mut [u64], values: &[u64]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum = sum.wrapping_add(*value);
    }
}
