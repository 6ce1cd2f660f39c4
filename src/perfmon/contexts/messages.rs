// SPDX-License-Identifier: GPL-2.0

//! Functions that read the message queue of a context, and that queue messages other than overflow
//! messages.

use perfmon_rules::abi::{self, Message};

use crate::contexts::context::{Context, ContextState};

impl Context {
    /// Reports to the readers that the target of the context has ended: queues an `END` message and
    /// wakes the readers. If the thread attached the context to itself, queues no message and only
    /// wakes the readers.
    pub(crate) fn queue_end_message(&self, state: &mut ContextState) {
        if state.sampling.self_monitoring {
            self.notifier.wake_readers();
        } else {
            self.queue_message(state, abi::END);
        }
    }

    /// Queues a message of the type `msg_type`, without data about an overflow, and wakes the
    /// readers.
    pub(crate) fn queue_message(&self, state: &mut ContextState, msg_type: u32) {
        let message = Message {
            msg_type,
            ..Message::default()
        };
        state.sampling.queue.push(&message);
        self.notifier.wake_readers();
    }

    /// Removes the oldest message from the queue and returns it, or `None` if the queue is empty.
    pub(crate) fn take_message(&self) -> Option<Message> {
        self.state.lock().sampling.queue.pop()
    }

    /// Puts a message that could not be copied to user space back to the front of the queue.
    pub(crate) fn put_back(&self, message: &Message) {
        self.state.lock().sampling.queue.put_back(message);
    }

    /// Returns whether the queue contains a message.
    pub(crate) fn has_message(&self) -> bool {
        !self.state.lock().sampling.queue.is_empty()
    }
}
