// SPDX-License-Identifier: GPL-2.0

//! The sums of the values of a task's earlier records. A task gets another record when it is
//! selected for individual accounting, when the size of its groups of CPUs changes, and when its
//! individual accounting ends. Readers add the history to the values of the present record.

use core::array::from_fn;
use core::num::NonZeroU32;

use super::task::{Task, ValueWords};
use super::task_snapshot::{add_all, TaskSnapshot};
use super::values::{add, NR_LATENCIES, NR_SIGNALS, NR_VALUES};
use protocols::sync::Word;

/// The sums of the earlier records of a task. The words are written once, by
/// [`add_record`](Self::add_record), while the caller excludes readers.
pub struct TaskHistory<V> {
    involuntary_wait_ticks: Word,
    /// Ticks during which the task was accounted.
    counted_ticks: Word,
    latencies: [Word; NR_LATENCIES],
    signals: [Word; NR_SIGNALS],
    /// Number of CPUs per group.
    cpus_per_group: NonZeroU32,
    values: V,
}

impl<V: ValueWords> TaskHistory<V> {
    /// Creates an empty history. `values` has [`NR_VALUES`] zeros for each group of `scaling` CPUs.
    pub fn new(values: V, scaling: u32) -> Self {
        Self {
            involuntary_wait_ticks: Word::new(0),
            counted_ticks: Word::new(0),
            latencies: from_fn(|_| Word::new(0)),
            signals: from_fn(|_| Word::new(0)),
            cpus_per_group: NonZeroU32::new(scaling).unwrap_or(NonZeroU32::MIN),
            values,
        }
    }

    /// Adds the values of a record and of the record's own history. The caller has called
    /// [`Task::end`] for the record, and no CPU uses the record any more.
    ///
    /// The record and the history may divide the CPUs into groups of different sizes. All values of
    /// a group of the record are added to one group of the history: the group that contains the
    /// first CPU of the record's group.
    pub fn add_record(&self, record: &Task<V>, older: Option<&Self>) {
        add(
            &self.involuntary_wait_ticks,
            record.involuntary_wait_ticks.load_relaxed(),
        );
        add(&self.counted_ticks, record.counted_ticks(0));
        add_words(&self.latencies, &record.latencies);
        add_words(&self.signals, &record.signals);
        self.add_values_of_groups(record.all_group_values(), record.cpus_per_group);
        if let Some(older) = older {
            add(
                &self.involuntary_wait_ticks,
                older.involuntary_wait_ticks.load_relaxed(),
            );
            add(&self.counted_ticks, older.counted_ticks.load_relaxed());
            add_words(&self.latencies, &older.latencies);
            add_words(&self.signals, &older.signals);
            let groups = older.values.chunks_exact(NR_VALUES);
            self.add_values_of_groups(groups, older.cpus_per_group);
        }
    }

    fn add_values_of_groups<'a>(
        &self,
        groups: impl Iterator<Item = &'a [Word]>,
        cpus_per_group: NonZeroU32,
    ) {
        // The first CPU of the group whose values are in `words`.
        let mut cpu = 0u32;
        for words in groups {
            let start = ((cpu / self.cpus_per_group) as usize).wrapping_mul(NR_VALUES);
            if let Some(to) = self.values.get(start..start.wrapping_add(NR_VALUES)) {
                add_words(to, words);
            }
            cpu = cpu.wrapping_add(cpus_per_group.get());
        }
    }

    /// Adds the history to the values that were read from the present record of the task.
    pub fn add_to_snapshot(&self, read: &mut TaskSnapshot, groups: &mut [[u64; NR_VALUES]]) {
        read.involuntary_wait_ticks = read
            .involuntary_wait_ticks
            .wrapping_add(self.involuntary_wait_ticks.load_relaxed());
        read.counted_ticks = read
            .counted_ticks
            .wrapping_add(self.counted_ticks.load_relaxed());
        for (to, word) in read.latencies.iter_mut().zip(&self.latencies) {
            *to = to.wrapping_add(word.load_relaxed());
        }
        let mut groups = groups.iter_mut();
        for words in self.values.chunks_exact(NR_VALUES) {
            let values = from_fn(|n| words.get(n).map_or(0, Word::load_relaxed));
            add_all(&mut read.values, &values);
            if let Some(group) = groups.next() {
                add_all(group, &values);
            }
        }
    }

    /// Returns how often a signal was delivered to the task.
    pub fn signals(&self, number: usize) -> u32 {
        self.signals
            .get(number)
            .map_or(0, |word| word.load_relaxed() as u32)
    }
}

fn add_words(to: &[Word], from: &[Word]) {
    for (to, from) in to.iter().zip(from) {
        add(to, from.load_relaxed());
    }
}
