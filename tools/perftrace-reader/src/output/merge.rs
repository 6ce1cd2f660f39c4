// SPDX-License-Identifier: GPL-2.0

//! Merges the events of several buffers in the order of time.

/// A queue of items with their times. An item stays in the queue until no older item can follow.
#[derive(Debug)]
pub struct TimeOrderedQueue<T> {
    pending: Vec<(u64, T)>,
}

impl<T> Default for TimeOrderedQueue<T> {
    fn default() -> Self {
        Self {
            pending: Vec::new(),
        }
    }
}

impl<T> TimeOrderedQueue<T> {
    /// Adds an item with its time.
    pub fn push(&mut self, time: u64, item: T) {
        self.pending.push((time, item));
    }

    /// Removes the items up to the time `until` and returns them, the oldest first. Items with the
    /// same time stay in the order in which they were added.
    pub fn take_until(&mut self, until: u64) -> impl Iterator<Item = T> + '_ {
        self.pending.sort_by_key(|(time, _)| *time);
        let ready = self.pending.partition_point(|(time, _)| *time <= until);
        self.pending.drain(..ready).map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r3_11_items_are_taken_in_order_of_time() {
        let mut merge = TimeOrderedQueue::default();
        for (time, word) in [(5, "e"), (1, "a"), (3, "c"), (3, "d"), (9, "f"), (2, "b")] {
            merge.push(time, word);
        }
        assert_eq!(merge.take_until(4).collect::<String>(), "abcd");
        merge.push(6, "x");
        merge.push(1, "late");
        assert_eq!(merge.take_until(u64::MAX).collect::<String>(), "lateexf");
        assert_eq!(merge.take_until(u64::MAX).count(), 0);
    }
}
