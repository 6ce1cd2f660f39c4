// SPDX-License-Identifier: GPL-2.0

//! The queue of messages about overflows.

use crate::abi::{Message, END, EVICTED, FAULT};

/// A queue of messages that the reader of a context has not read yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageQueue {
    slots: [Message; Self::CAPACITY],
    first: usize,
    nr: usize,
    depth: usize,
}

impl MessageQueue {
    /// Capacity of the queue in messages: the maximum depth, and two slots that are reserved for
    /// [`END`], [`FAULT`] and [`EVICTED`].
    pub const CAPACITY: usize = 32;

    /// Sets the depth: the number of queued messages at which a message about an overflow is
    /// rejected.
    pub fn set_depth(&mut self, depth: usize) {
        self.depth = depth.clamp(1, Self::CAPACITY - 2);
    }

    /// Returns true if the queue has no message.
    pub fn is_empty(&self) -> bool {
        self.nr == 0
    }

    /// Appends a message. Returns false if the queue is full for this type of message: the last two
    /// slots are reserved for [`END`], [`FAULT`] and [`EVICTED`].
    pub fn push(&mut self, message: &Message) -> bool {
        let depth = match message.msg_type {
            END | FAULT | EVICTED => Self::CAPACITY,
            _ => self.depth,
        };
        if self.nr >= depth {
            return false;
        }
        let place = self.first.wrapping_add(self.nr) % Self::CAPACITY;
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
        let message = self.slots.get(self.first % Self::CAPACITY).copied();
        self.first = self.first.wrapping_add(1) % Self::CAPACITY;
        self.nr = self.nr.wrapping_sub(1);
        message
    }

    /// Puts a message back to the front of the queue, after its delivery to the reader has failed.
    pub fn put_back(&mut self, message: &Message) {
        if self.nr >= Self::CAPACITY {
            return;
        }
        self.first = self.first.wrapping_sub(1) % Self::CAPACITY;
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
