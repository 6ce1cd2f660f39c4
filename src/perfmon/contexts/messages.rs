// SPDX-License-Identifier: GPL-2.0

//! Functions that queue messages of a context, and that read the message queue.

use perfmon_rules::abi::{self, action, Message};
use perfmon_rules::register_bitmap::PmdSet;

use crate::contexts::context::{Context, ContextState};
use crate::description::Overflow;
use crate::stats::{self, PerfmonStatistic};

impl Context {
    /// Reports to the readers that the target of the context has ended: queues a `MSG_END` message
    /// and wakes the readers. If the thread attached the context to itself, queues no message and
    /// only wakes the readers.
    pub(crate) fn notify_end(&self, state: &mut ContextState) {
        if state.sampling.self_monitoring {
            self.deferral.queue_wakeup_and_sigio();
        } else {
            self.queue_message(state, abi::MSG_END);
        }
    }

    /// Queues a message about the overflow of the PMDs `pmds` and wakes the readers. Returns `MASK`
    /// if the message queue is full, otherwise 0.
    #[cold]
    pub(crate) fn notify_overflow(
        &self,
        state: &mut ContextState,
        overflow: &Overflow,
        pmds: PmdSet,
    ) -> u32 {
        let message = Message {
            msg_type: abi::MSG_OVFL,
            msg_ovfl_pid: overflow.pid,
            msg_active_set: overflow.set,
            msg_ovfl_cpu: overflow.cpu as u16,
            msg_ovfl_tid: overflow.tid,
            msg_ovfl_ip: overflow.ip,
            msg_ovfl_pmds: pmds.to_bitmap(),
        };
        let kept = self.no_overflow_messages || state.sampling.message_queue.push(&message);
        self.deferral.queue_wakeup_and_sigio();
        if kept {
            stats::count(PerfmonStatistic::Messages);
            return 0;
        }
        stats::count(PerfmonStatistic::MessagesLost);
        action::MASK
    }

    /// Queues a message of the type `msg_type`, without data about an overflow, and wakes the
    /// readers.
    pub(crate) fn queue_message(&self, state: &mut ContextState, msg_type: u32) {
        let message = Message {
            msg_type,
            ..Message::default()
        };
        state.sampling.message_queue.push(&message);
        self.deferral.queue_wakeup_and_sigio();
    }

    /// Removes the oldest message from the queue and returns it, or `None` if the queue is empty.
    pub(crate) fn take_message(&self) -> Option<Message> {
        self.state.lock().sampling.message_queue.pop()
    }

    /// Puts a message that could not be copied to user space back to the front of the queue.
    pub(crate) fn put_back_message(&self, message: &Message) {
        self.state.lock().sampling.message_queue.put_back(message);
    }

    /// Returns whether the queue contains a message.
    pub(crate) fn has_message(&self) -> bool {
        !self.state.lock().sampling.message_queue.is_empty()
    }
}
