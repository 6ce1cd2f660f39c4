// SPDX-License-Identifier: GPL-2.0

//! The message queue of a context: messages that report no overflow, and reading the queue.

use engine::sampling::{self, Message};

use crate::contexts::{Context, State};

impl Context {
    /// Reports that the target has ended. The reader gets a message, unless the thread attached the
    /// context to itself: then readers are only woken.
    pub(crate) fn queue_end_message(&self, state: &mut State) {
        if state.sampling.self_monitoring {
            self.notifier.wake_readers();
        } else {
            self.queue_message(state, sampling::END);
        }
    }

    /// Queues a message of this type without an overflow, and wakes the readers.
    pub(crate) fn queue_message(&self, state: &mut State, msg_type: u32) {
        let message = Message {
            msg_type,
            ..Message::default()
        };
        state.sampling.queue.push(&message);
        self.notifier.wake_readers();
    }

    /// Takes the oldest message out of the queue.
    pub(crate) fn take_message(&self) -> Option<Message> {
        self.state.lock().sampling.queue.pop()
    }

    /// Puts a message that could not be copied to user space back as the oldest one.
    pub(crate) fn put_back(&self, message: &Message) {
        self.state.lock().sampling.queue.put_back(message);
    }

    /// Returns whether the queue has a message.
    pub(crate) fn has_message(&self) -> bool {
        !self.state.lock().sampling.queue.is_empty()
    }
}
