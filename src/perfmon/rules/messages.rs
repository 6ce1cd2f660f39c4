// SPDX-License-Identifier: GPL-2.0

//! The queue of messages about overflows.

use core::ops::DerefMut;

use crate::abi::{Message, MSG_END, MSG_EVICTED, MSG_FAULT};

/// The number of slots of a queue that are reserved for [`MSG_END`], [`MSG_FAULT`] and
/// [`MSG_EVICTED`].
const NR_RESERVED_SLOTS: usize = 2;

/// Returns the number of slots that a queue of the depth `depth` needs. The depth is the number of
/// queued messages at which a message about an overflow is rejected.
pub const fn nr_message_slots(depth: usize) -> usize {
    depth.saturating_add(NR_RESERVED_SLOTS)
}

/// A queue of messages that the reader of a context has not read yet, in memory of the type `S`.
#[derive(Debug)]
pub struct MessageQueue<S> {
    slots: S,
    /// Index of the slot with the oldest message.
    first: usize,
    /// Number of queued messages.
    nr: usize,
}

impl<S: DerefMut<Target = [Message]>> MessageQueue<S> {
    /// Creates an empty queue whose capacity is the number of slots. See [`nr_message_slots`].
    pub const fn new(slots: S) -> Self {
        Self {
            slots,
            first: 0,
            nr: 0,
        }
    }

    /// Returns true if the queue has no message.
    pub fn is_empty(&self) -> bool {
        self.nr == 0
    }

    /// Returns the index of the slot `n` slots after the slot `first`. `n` is at most the number of
    /// slots.
    fn index_after_first(&self, n: usize) -> usize {
        let index = self.first.wrapping_add(n);
        match index.checked_sub(self.slots.len()) {
            Some(wrapped) => wrapped,
            None => index,
        }
    }

    /// Appends a message. Returns false if the queue is full for this type of message: the last two
    /// slots are reserved for [`MSG_END`], [`MSG_FAULT`] and [`MSG_EVICTED`].
    pub fn push(&mut self, message: &Message) -> bool {
        let reserved = match message.msg_type {
            MSG_END | MSG_FAULT | MSG_EVICTED => 0,
            _ => NR_RESERVED_SLOTS,
        };
        if self.nr.saturating_add(reserved) >= self.slots.len() {
            return false;
        }
        let place = self.index_after_first(self.nr);
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = *message;
            self.nr = self.nr.wrapping_add(1);
        }
        true
    }

    /// Removes and returns the oldest message.
    pub fn pop(&mut self) -> Option<Message> {
        if self.nr == 0 {
            return None;
        }
        let message = self.slots.get(self.first).copied();
        self.first = self.index_after_first(1);
        self.nr = self.nr.wrapping_sub(1);
        message
    }

    /// Puts a message back to the front of the queue, after its delivery to the reader has failed.
    pub fn put_back(&mut self, message: &Message) {
        if self.nr >= self.slots.len() {
            return;
        }
        self.first = self.index_after_first(self.slots.len().wrapping_sub(1));
        self.nr = self.nr.wrapping_add(1);
        if let Some(slot) = self.slots.get_mut(self.first) {
            *slot = *message;
        }
    }

    /// Removes all messages.
    pub fn clear(&mut self) {
        self.nr = 0;
    }
}
