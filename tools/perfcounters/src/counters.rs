// SPDX-License-Identifier: GPL-2.0

//! The opened device `/dev/perfcounters`. [`Counters`] tracks the growth of the device file, copies
//! values, and repeats copies that are not consistent.
//!
//! Two checks ensure that a copy is consistent:
//!
//! - The library reads the seqflag of each CPU, a word that changes with each update, before and
//!   after the values of the CPU. If the seqflag has not changed, no value is torn, and no group of
//!   counters was copied in the middle of an update.
//! - The library reads the generation, which changes with the set of instances, before and after
//!   the whole copy. If the generation has not changed, no instance was added, deleted or revived
//!   during the copy.
//!
//! A copy that fails a check is discarded and repeated, at most `MAX_COPY_ATTEMPTS` times.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use counters_rules::abi::{Header, Kind};
use protocols::seqflag;
use protocols::sync::Word;
use rustix::time::{clock_gettime, ClockId};

use crate::catalogue::{InstanceCatalogue, InstancePattern, Selection};
use crate::error::Error;
use crate::map::DeviceMap;
use crate::snapshot::Snapshot;
use crate::wide;

/// The device through which the kernel exports its counters.
pub const PERFCOUNTERS_DEVICE_PATH: &str = "/dev/perfcounters";

/// Maximum number of attempts to make a consistent copy. All attempts together take about one
/// second. The reader spins after each of the first 16 attempts, yields the CPU after each of the
/// next 984, and sleeps for 50 us after each later attempt.
const MAX_COPY_ATTEMPTS: u32 = 10_000;

/// The counters of this machine, mapped for reading.
pub struct Counters {
    map: DeviceMap,
    path: PathBuf,
    catalogue: Arc<InstanceCatalogue>,
    last_selection: Option<(InstancePattern, Arc<Selection>)>,
}

/// The time and the generation of a copy of counter values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotStamp {
    /// The generation of the set of instances when the values were copied.
    pub generation: u64,
    /// The boot id of the module `perfcounters.ko`. The boot id changes each time the module is
    /// loaded.
    pub boot_id: [u8; 16],
    /// CLOCK_MONOTONIC in nanoseconds, read right after the values were copied.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME in nanoseconds, read right after the values were copied.
    pub realtime_ns: u64,
    /// True if the values of each CPU were copied while no update of that CPU was in flight. If
    /// `consistent` is false, each value is correct by itself, but a group of counters may have
    /// been copied in the middle of an update.
    pub consistent: bool,
}

impl Counters {
    /// Opens [`PERFCOUNTERS_DEVICE_PATH`].
    pub fn open() -> Result<Self, Error> {
        Self::open_path(PERFCOUNTERS_DEVICE_PATH)
    }

    /// Opens a device, or a regular file with the same layout.
    pub fn open_path(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref().to_path_buf();
        let map = DeviceMap::open(&path)?;
        let cpus = read_cpu_bitmap(&map, map.header().possible_offset);
        if cpus.is_empty() {
            return Err(Error::Corrupt("no possible CPU"));
        }
        let mut counters = Self {
            catalogue: Arc::new(InstanceCatalogue::empty(map.header().boot_id, cpus.into())),
            map,
            path,
            last_selection: None,
        };
        counters.copy_catalogue()?;
        Ok(counters)
    }

    /// Returns the path of the device or file that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the boot id that the module `perfcounters.ko` had when the device was opened. The
    /// boot id changes each time the module is loaded. Instance numbers and values with different
    /// boot ids are unrelated.
    pub fn boot_id(&self) -> [u8; 16] {
        self.map.header().boot_id
    }

    /// Returns CLOCK_REALTIME in nanoseconds at the time when `perfcounters.ko` was loaded.
    pub fn loaded_ns(&self) -> u64 {
        self.map.header().loaded_ns
    }

    /// Returns the possible CPUs in ascending order.
    pub fn cpus(&self) -> &[u32] {
        &self.catalogue.cpus
    }

    /// Returns the CPUs that are online now, in ascending order.
    pub fn online_cpus(&self) -> Vec<u32> {
        read_cpu_bitmap(&self.map, self.map.header().online_offset)
    }

    /// Returns the current set of instances. If the generation has changed since the last call, the
    /// set of instances is copied again from the mapped file.
    pub fn catalogue(&mut self) -> Result<Arc<InstanceCatalogue>, Error> {
        let generation = self.map.generation();
        let now = generation.read_begin();
        if now != self.catalogue.generation || !generation.is_current(now) {
            self.copy_catalogue()?;
        }
        Ok(Arc::clone(&self.catalogue))
    }

    /// Selects the current instances that match a pattern. The last selection is reused while the
    /// pattern and the generation stay the same.
    pub fn select(&mut self, pattern: &InstancePattern) -> Result<Arc<Selection>, Error> {
        let catalogue = self.catalogue()?;
        if let Some((selected, selection)) = &self.last_selection {
            if selected == pattern && selection.catalogue.generation == catalogue.generation {
                return Ok(Arc::clone(selection));
            }
        }
        let selection = Arc::new(catalogue.select(pattern));
        self.last_selection = Some((pattern.clone(), Arc::clone(&selection)));
        Ok(selection)
    }

    /// Copies the values of the instances that match a pattern. All values are of one generation,
    /// and the values of each CPU are consistent. If the set of instances changes during the copy,
    /// the function selects the instances again.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if a CPU was in an update at every attempt, [`Error::Unstable`] if the set
    /// of instances changed at every attempt.
    pub fn snapshot(&mut self, pattern: &InstancePattern) -> Result<Snapshot, Error> {
        self.take_snapshot_with(pattern, Self::copy_consistent_values)
    }

    /// Calls [`Self::snapshot`]. If `snapshot` fails with [`Error::Busy`], copies the values
    /// without the check of the seqflag. The copy without the check of the seqflag succeeds even if
    /// a CPU updates counters without a pause. [`SnapshotStamp::consistent`] is true if the seqflag
    /// was checked.
    pub fn snapshot_even_if_busy(&mut self, pattern: &InstancePattern) -> Result<Snapshot, Error> {
        match self.snapshot(pattern) {
            Err(Error::Busy(_)) => {
                self.take_snapshot_with(pattern, Self::copy_values_without_check)
            }
            other => other,
        }
    }

    /// Calls [`Self::snapshot_even_if_busy`]. If the boot id has changed, which happens only in a
    /// regular file, opens the file again, and takes the snapshot then. The second value is true if
    /// the file was opened again.
    pub fn snapshot_or_reopen(
        &mut self,
        pattern: &InstancePattern,
    ) -> Result<(Snapshot, bool), Error> {
        match self.snapshot_even_if_busy(pattern) {
            Err(Error::Reloaded) => {
                *self = Self::open_path(&self.path)?;
                Ok((self.snapshot_even_if_busy(pattern)?, true))
            }
            other => Ok((other?, false)),
        }
    }

    /// Copies the values of a selection into a buffer of the caller, one row of
    /// [`Selection::values_per_cpu`] values for each possible CPU. The buffer can be reused: the
    /// function reallocates the buffer only if its capacity is too small.
    ///
    /// # Errors
    ///
    /// [`Error::Changed`] in two cases: the set of instances has changed since the selection was
    /// made, or another `Counters` made the selection after the device file grew. In both cases the
    /// caller has to select the instances again by this `Counters`. [`Error::Busy`] if a CPU was in
    /// an update at every attempt.
    pub fn copy_consistent_values(
        &self,
        selection: &Selection,
        values: &mut Vec<i64>,
    ) -> Result<SnapshotStamp, Error> {
        self.copy_values_of_selection(selection, values, true)
    }

    /// Copies values like [`Self::copy_consistent_values`], but without the check of the seqflag.
    /// Each value is correct by itself, but the values of a CPU may be from before and after an
    /// update.
    pub fn copy_values_without_check(
        &self,
        selection: &Selection,
        values: &mut Vec<i64>,
    ) -> Result<SnapshotStamp, Error> {
        self.copy_values_of_selection(selection, values, false)
    }

    fn take_snapshot_with(
        &mut self,
        pattern: &InstancePattern,
        fill: fn(&Self, &Selection, &mut Vec<i64>) -> Result<SnapshotStamp, Error>,
    ) -> Result<Snapshot, Error> {
        let mut values = Vec::new();
        for tries in 0..MAX_COPY_ATTEMPTS {
            let selection = self.select(pattern)?;
            match fill(self, &selection, &mut values) {
                Ok(stamp) => {
                    return Ok(Snapshot::new(selection, stamp, values, self.online_cpus()))
                }
                Err(Error::Changed) => wait_before_retry(tries),
                Err(other) => return Err(other),
            }
        }
        Err(Error::Unstable)
    }

    fn copy_values_of_selection(
        &self,
        selection: &Selection,
        values: &mut Vec<i64>,
        consistent: bool,
    ) -> Result<SnapshotStamp, Error> {
        let catalogue = &selection.catalogue;
        if catalogue.boot_id != self.boot_id() || self.read_boot_id() != self.boot_id() {
            return Err(Error::Reloaded);
        }
        let generation = self.map.generation();
        // A selection of another `Counters` can have chunks that did not exist when `self` last read
        // the number of chunks.
        let nr_chunks = self.map.extent().nr_chunks;
        if generation.read_begin() != catalogue.generation
            || selection.ranges.iter().any(|r| r.chunk >= nr_chunks)
        {
            return Err(Error::Changed);
        }
        values.resize(selection.values_per_cpu * catalogue.cpus.len(), 0);
        // Pass at least 1 to chunks_exact_mut(), which panics if its argument is 0. An empty
        // selection has 0 values per CPU.
        let rows = values.chunks_exact_mut(selection.values_per_cpu.max(1));
        for (&cpu, row) in catalogue.cpus.iter().zip(rows) {
            if consistent {
                self.copy_cpu_values_consistently(cpu, selection, row)?;
            } else {
                self.copy_cpu_values(cpu, selection, row);
            }
        }
        let (monotonic_ns, realtime_ns) = (
            read_clock_ns(ClockId::Monotonic),
            read_clock_ns(ClockId::Realtime),
        );
        if !generation.is_current(catalogue.generation) {
            return Err(Error::Changed);
        }
        Ok(SnapshotStamp {
            generation: catalogue.generation,
            boot_id: catalogue.boot_id,
            monotonic_ns,
            realtime_ns,
            consistent,
        })
    }

    /// Copies one CPU's values while no update of that CPU is in flight.
    fn copy_cpu_values_consistently(
        &self,
        cpu: u32,
        selection: &Selection,
        row: &mut [i64],
    ) -> Result<(), Error> {
        let Some(flag) = self.map.cpu_slots(cpu, 0).and_then(<[Word]>::first) else {
            return Err(Error::Corrupt("no counters for a possible CPU"));
        };
        for tries in 0..MAX_COPY_ATTEMPTS {
            if seqflag::try_read(flag, || self.copy_cpu_values(cpu, selection, row)).is_some() {
                return Ok(());
            }
            wait_before_retry(tries);
        }
        Err(Error::Busy(cpu))
    }

    /// Copies one CPU's values, one range of adjacent slots at a time.
    #[inline]
    fn copy_cpu_values(&self, cpu: u32, selection: &Selection, mut row: &mut [i64]) {
        for range in &selection.ranges {
            let Some((to, rest)) = std::mem::take(&mut row).split_at_mut_checked(range.len) else {
                return;
            };
            row = rest;
            let from = self.map.cpu_slots(cpu, range.chunk);
            if let Some(from) = from.and_then(|b| b.get(range.first..range.first + range.len)) {
                wide::copy_words_to_values(from, to);
            }
        }
    }

    fn copy_catalogue(&mut self) -> Result<(), Error> {
        let boot_id = self.boot_id();
        for tries in 0..MAX_COPY_ATTEMPTS {
            let generation = self.map.generation().read_begin();
            if self.read_boot_id() != boot_id {
                return Err(Error::Reloaded);
            }
            let updated = self.map.update_extent_from_header();
            let cpus = Arc::clone(&self.catalogue.cpus);
            let catalogue = updated.and_then(|()| {
                InstanceCatalogue::copy_from_map(&self.map, generation, boot_id, cpus)
            });
            // Return an error of `InstanceCatalogue::copy_from_map` only if the generation did not
            // change during the copy: a concurrent change of the set of instances can cause an
            // error.
            if self.map.generation().is_current(generation) {
                self.catalogue = Arc::new(catalogue?);
                return Ok(());
            }
            wait_before_retry(tries);
        }
        Err(Error::Unstable)
    }

    fn read_boot_id(&self) -> [u8; 16] {
        const BOOT_ID_WORD: usize = std::mem::offset_of!(Header, boot_id) / 8;
        let mut id = [0; 16];
        for (to, word) in id
            .chunks_exact_mut(8)
            .zip(self.map.header_page_words(BOOT_ID_WORD, 2))
        {
            to.copy_from_slice(&word.load_relaxed().to_ne_bytes());
        }
        id
    }
}

/// Returns the CPUs below `nr_cpus` whose bits are set in a bitmap of page 0.
fn read_cpu_bitmap(map: &DeviceMap, offset: u32) -> Vec<u32> {
    let nr_cpus = map.layout().nr_cpus();
    let words = map.header_page_words(offset as usize / 8, nr_cpus.div_ceil(64) as usize);
    let words: Vec<u64> = words.iter().map(Word::load_relaxed).collect();
    (0..nr_cpus)
        .filter(|cpu| (words[*cpu as usize / 64] >> (cpu % 64)) & 1 != 0)
        .collect()
}

/// Waits for a short time, in which a writer can complete its update. The first calls spin for
/// about the duration of an update, later calls yield the CPU, and the last calls sleep.
fn wait_before_retry(tries: u32) {
    match tries {
        0..16 => std::hint::spin_loop(),
        16..1000 => std::thread::yield_now(),
        _ => std::thread::sleep(std::time::Duration::from_micros(50)),
    }
}

fn read_clock_ns(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    (t.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(t.tv_nsec as u64)
}

/// Combines the values of one slot from two CPUs: the maximum for a peak, otherwise the wrapping
/// sum.
pub(crate) fn combine_cpu_values(kind: Kind, a: i64, b: i64) -> i64 {
    match kind {
        Kind::Peak => a.max(b),
        _ => a.wrapping_add(b),
    }
}
