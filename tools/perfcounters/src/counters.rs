// SPDX-License-Identifier: GPL-2.0

//! The opened device: following growth, retrying, copying.
//!
//! A copy is good when three looks agree: the seqflag of each CPU around that
//! CPU's words (nothing torn, no group half seen), and the generation around
//! everything (no instance came, went or began anew). What is not good is
//! thrown away and tried again, a bounded number of times.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::abi::{Header, Kind};
use engine::seqflag;
use engine::sync::Word;
use rustix::time::{clock_gettime, ClockId};

use crate::catalogue::{Catalogue, Pattern, Selection};
use crate::error::Error;
use crate::map::Map;
use crate::snapshot::Snapshot;
use crate::wide;

/// Where the kernel shows its counters.
pub const DEVICE: &str = "/dev/perfcounters";

/// Tries before giving up; all but the first few let others run in between,
/// so this is about a second.
const TRIES: u32 = 10_000;

/// The counters of this machine.
pub struct Counters {
    map: Map,
    path: PathBuf,
    catalogue: Arc<Catalogue>,
    selected: Option<(Pattern, Arc<Selection>)>,
}

/// When and of what a copy was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The generation of the set of instances.
    pub generation: u64,
    /// Which load of `perfcounters.ko`.
    pub boot_id: [u8; 16],
    /// CLOCK_MONOTONIC in nanoseconds, just after the copy.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME in nanoseconds, just after the copy.
    pub realtime_ns: u64,
    /// Do the values of each CPU belong together? If not, each is right by
    /// itself, but groups may have been seen half.
    pub consistent: bool,
}

impl Counters {
    /// Opens [`DEVICE`].
    pub fn open() -> Result<Self, Error> {
        Self::open_path(DEVICE)
    }

    /// Opens a device, or a file laid out like it.
    pub fn open_path(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref().to_path_buf();
        let map = Map::open(&path)?;
        let cpus = bitmap(&map, map.header().possible_offset);
        if cpus.is_empty() {
            return Err(Error::Corrupt("it has no possible CPU"));
        }
        let mut counters = Self {
            catalogue: Arc::new(Catalogue::empty(map.header().boot_id, cpus.into())),
            map,
            path,
            selected: None,
        };
        counters.copy_catalogue()?;
        Ok(counters)
    }

    /// What was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which load of `perfcounters.ko` this is. Numbers and values of another
    /// one have nothing to do with these.
    pub fn boot_id(&self) -> [u8; 16] {
        self.map.header().boot_id
    }

    /// CLOCK_REALTIME in nanoseconds when the counters came to life.
    pub fn loaded_ns(&self) -> u64 {
        self.map.header().loaded_ns
    }

    /// The possible CPUs, ascending.
    pub fn cpus(&self) -> &[u32] {
        &self.catalogue.cpus
    }

    /// The CPUs that are online now, ascending.
    pub fn online(&self) -> Vec<u32> {
        bitmap(&self.map, self.map.header().online_offset)
    }

    /// The set of instances as it is now.
    pub fn catalogue(&mut self) -> Result<Arc<Catalogue>, Error> {
        let generation = self.map.generation();
        let now = generation.enter();
        if now != self.catalogue.generation || !generation.holds(now) {
            self.copy_catalogue()?;
        }
        Ok(Arc::clone(&self.catalogue))
    }

    /// The instances that match, as of now.
    pub fn select(&mut self, pattern: &Pattern) -> Result<Arc<Selection>, Error> {
        let catalogue = self.catalogue()?;
        if let Some((selected, selection)) = &self.selected {
            if selected == pattern && selection.catalogue.generation == catalogue.generation {
                return Ok(Arc::clone(selection));
            }
        }
        let selection = Arc::new(catalogue.select(pattern));
        self.selected = Some((pattern.clone(), Arc::clone(&selection)));
        Ok(selection)
    }

    /// The values of what matches, of one generation, those of each CPU
    /// belonging together. Selects anew when the set changes.
    pub fn snapshot(&mut self, pattern: &Pattern) -> Result<Snapshot, Error> {
        self.retry(pattern, Self::fill)
    }

    /// As [`Self::snapshot`], but each value stands alone, so it succeeds also
    /// while a CPU updates groups of counters without a pause.
    pub fn snapshot_each(&mut self, pattern: &Pattern) -> Result<Snapshot, Error> {
        self.retry(pattern, Self::fill_each)
    }

    /// As [`Self::snapshot`], falling back to [`Self::snapshot_each`] for CPUs
    /// that are never quiet. [`Stamp::consistent`] says which it was.
    pub fn snapshot_any(&mut self, pattern: &Pattern) -> Result<Snapshot, Error> {
        match self.snapshot(pattern) {
            Err(Error::Busy(_)) => self.snapshot_each(pattern),
            other => other,
        }
    }

    /// Copies the values of a selection into a buffer that may be used again:
    /// for each possible CPU one row of [`Selection::width`] values. Allocates
    /// only to make the buffer larger.
    ///
    /// [`Error::Changed`]: the set of instances is another one now.
    pub fn fill(&self, selection: &Selection, values: &mut Vec<i64>) -> Result<Stamp, Error> {
        self.copy(selection, values, true)
    }

    /// As [`Self::fill`], each value by itself.
    pub fn fill_each(&self, selection: &Selection, values: &mut Vec<i64>) -> Result<Stamp, Error> {
        self.copy(selection, values, false)
    }

    fn retry(
        &mut self,
        pattern: &Pattern,
        fill: fn(&Self, &Selection, &mut Vec<i64>) -> Result<Stamp, Error>,
    ) -> Result<Snapshot, Error> {
        let mut values = Vec::new();
        for tries in 0..TRIES {
            let selection = self.select(pattern)?;
            match fill(self, &selection, &mut values) {
                Ok(stamp) => return Ok(Snapshot::new(selection, stamp, values, self.online())),
                Err(Error::Changed) => pause(tries),
                Err(other) => return Err(other),
            }
        }
        Err(Error::Unsettled)
    }

    fn copy(
        &self,
        selection: &Selection,
        values: &mut Vec<i64>,
        consistent: bool,
    ) -> Result<Stamp, Error> {
        let catalogue = &selection.catalogue;
        if catalogue.boot_id != self.boot_id() || self.boot_id_now() != self.boot_id() {
            return Err(Error::OtherBoot);
        }
        let generation = self.map.generation();
        if generation.enter() != catalogue.generation {
            return Err(Error::Changed);
        }
        values.resize(selection.width * catalogue.cpus.len(), 0);
        // An empty selection has no rows.
        let rows = values.chunks_exact_mut(selection.width.max(1));
        for (&cpu, row) in catalogue.cpus.iter().zip(rows) {
            if consistent {
                self.copy_together(cpu, selection, row)?;
            } else {
                self.copy_row(cpu, selection, row);
            }
        }
        let (monotonic_ns, realtime_ns) = (now(ClockId::Monotonic), now(ClockId::Realtime));
        if !generation.holds(catalogue.generation) {
            return Err(Error::Changed);
        }
        Ok(Stamp {
            generation: catalogue.generation,
            boot_id: catalogue.boot_id,
            monotonic_ns,
            realtime_ns,
            consistent,
        })
    }

    /// One CPU's values, with no update of that CPU in between.
    fn copy_together(&self, cpu: u32, selection: &Selection, row: &mut [i64]) -> Result<(), Error> {
        let Some(flag) = self.map.block(cpu, 0).and_then(<[Word]>::first) else {
            return Err(Error::Corrupt("a possible CPU has no counters"));
        };
        for tries in 0..TRIES {
            if seqflag::try_read(flag, || self.copy_row(cpu, selection, row)).is_some() {
                return Ok(());
            }
            pause(tries);
        }
        Err(Error::Busy(cpu))
    }

    /// One CPU's values, chunk by chunk.
    #[inline]
    fn copy_row(&self, cpu: u32, selection: &Selection, mut row: &mut [i64]) {
        for run in &selection.runs {
            let Some((to, rest)) = std::mem::take(&mut row).split_at_mut_checked(run.len) else {
                return;
            };
            row = rest;
            let from = self.map.block(cpu, run.chunk);
            if let Some(from) = from.and_then(|b| b.get(run.first..run.first + run.len)) {
                wide::copy(from, to);
            }
        }
    }

    fn copy_catalogue(&mut self) -> Result<(), Error> {
        let boot_id = self.boot_id();
        for tries in 0..TRIES {
            let entered = self.map.generation().enter();
            if self.boot_id_now() != boot_id {
                return Err(Error::OtherBoot);
            }
            let grown = self.map.follow();
            let cpus = Arc::clone(&self.catalogue.cpus);
            let copied = grown.and_then(|()| Catalogue::copy(&self.map, entered, boot_id, cpus));
            // Only now is known whether what was found, good or bad, counts.
            if self.map.generation().holds(entered) {
                self.catalogue = Arc::new(copied?);
                return Ok(());
            }
            pause(tries);
        }
        Err(Error::Unsettled)
    }

    fn boot_id_now(&self) -> [u8; 16] {
        const AT: usize = std::mem::offset_of!(Header, boot_id) / 8;
        let mut id = [0; 16];
        for (to, word) in id.chunks_exact_mut(8).zip(self.map.page0(AT, 2)) {
            to.copy_from_slice(&word.load_relaxed().to_ne_bytes());
        }
        id
    }
}

/// The set bits of a bitmap in page 0, as far as there are CPUs.
fn bitmap(map: &Map, offset: u32) -> Vec<u32> {
    let nr_cpus = map.layout().nr_cpus();
    let words = map.page0(offset as usize / 8, nr_cpus.div_ceil(64) as usize);
    let words: Vec<u64> = words.iter().map(Word::load_relaxed).collect();
    (0..nr_cpus)
        .filter(|cpu| (words[*cpu as usize / 64] >> (cpu % 64)) & 1 != 0)
        .collect()
}

/// Lets a writer finish: at first for the length of an update, then longer.
fn pause(tries: u32) {
    match tries {
        0..16 => std::hint::spin_loop(),
        16..1000 => std::thread::yield_now(),
        _ => std::thread::sleep(std::time::Duration::from_micros(50)),
    }
}

fn now(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    (t.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(t.tv_nsec as u64)
}

/// Combines two CPUs' values of one slot.
pub(crate) fn combine(kind: Kind, a: i64, b: i64) -> i64 {
    match kind {
        Kind::Peak => a.max(b),
        _ => a.wrapping_add(b),
    }
}
