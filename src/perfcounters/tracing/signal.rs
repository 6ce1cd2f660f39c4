// SPDX-License-Identifier: GPL-2.0

//! Notification of a trace's reader, and of the threads that wait until the reader has read.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::Arc;
use protocols::sync::Word;

use crate::sys::notifier::Notifier;

/// Wakes the reader of a trace, and the threads that wait for room.
pub(crate) struct Signal {
    /// Wakes the reader of the trace.
    readers: Notifier,
    /// Nonzero if data may be unread.
    pending: Word,
    /// Wakes threads that wait for room until the reader has read.
    writers: Notifier,
    /// Nonzero after the trace has ended.
    ended: Word,
}

impl Signal {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let signal = Self {
            readers: Notifier::new()?,
            pending: Word::new(0),
            writers: Notifier::new()?,
            ended: Word::new(0),
        };
        Ok(Arc::new(signal, GFP_KERNEL_ACCOUNT)?)
    }

    /// Wakes the reader, because data are unread. Callable in any context.
    pub(crate) fn notify(&self) {
        self.pending.store_relaxed(1);
        self.readers.wake_readers();
    }

    /// Clears the notification when the reader begins a pass over all buffers.
    pub(crate) fn clear_pending(&self) {
        self.pending.store_relaxed(0);
    }

    /// Returns whether the reader was notified since it last began a pass over all buffers.
    pub(crate) fn has_data(&self) -> bool {
        self.pending.load_relaxed() != 0
    }

    /// Wakes threads that wait for room, after something was read.
    pub(crate) fn wake_writers(&self) {
        self.writers.wake_readers();
    }

    /// Wakes all waiting threads, because the trace has ended.
    pub(crate) fn end(&self) {
        self.ended.store_relaxed(1);
        self.writers.wake_readers();
        self.notify();
    }

    /// Waits until `read` returns true, the trace has ended or the time is over. Returns false if
    /// the time is over, and `EINTR` if a signal interrupts the wait.
    pub(crate) fn wait_for_room(
        &self,
        mut read: impl FnMut() -> bool,
        nanoseconds: u64,
    ) -> Result<bool> {
        let ready = || read() || self.ended.load_relaxed() != 0;
        self.writers.wait_for(ready, nanoseconds).map_err(|_| EINTR)
    }

    /// Returns the notifier for poll().
    pub(crate) fn notifier(&self) -> &Notifier {
        &self.readers
    }
}
