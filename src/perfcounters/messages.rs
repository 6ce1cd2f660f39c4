// SPDX-License-Identifier: GPL-2.0

//! Messages of a context that are of no overflow, and what its readers take out.

use engine::sampling::{self, Message};

use crate::contexts::{Context, State};

impl Context {
    /// Its thread has ended: who monitors another one is told.
    pub(crate) fn tell_end(&self, state: &mut State) {
        if state.sampling.own {
            self.bell.ring();
        } else {
            self.tell_of(state, sampling::END);
        }
    }

    /// A message without an overflow.
    pub(crate) fn tell_of(&self, state: &mut State, msg_type: u32) {
        let message = Message {
            msg_type,
            ..Message::default()
        };
        state.sampling.queue.push(&message);
        self.bell.ring();
    }

    /// The oldest message.
    pub(crate) fn message(&self) -> Option<Message> {
        self.state.lock().sampling.queue.pop()
    }

    /// It could not be given out: it is the oldest again.
    pub(crate) fn put_back(&self, message: &Message) {
        self.state.lock().sampling.queue.put_back(message);
    }

    /// Is there one?
    pub(crate) fn has_message(&self) -> bool {
        !self.state.lock().sampling.queue.is_empty()
    }
}
