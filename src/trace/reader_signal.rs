// SPDX-License-Identifier: GPL-2.0

//! Notifies the reader of a trace about unread data, and wakes the threads that wait until the
//! reader has made room in a full buffer.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::Arc;
use protocols::sync::Word;

use base::notifier::{OwnedWaitQueue, WaitQueue};

/// Wakes the reader of a trace, and the threads that wait for room in the trace's buffers.
pub(crate) struct ReaderSignal {
    /// Wakes the reader of the trace.
    reader_notifier: OwnedWaitQueue,
    /// Nonzero if a buffer of the trace may have unread data.
    pending: Word,
    /// Wakes the threads that wait until the reader has made room in a full buffer.
    writer_notifier: OwnedWaitQueue,
    /// Nonzero after the trace has ended.
    has_trace_ended: Word,
}

impl ReaderSignal {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let signal = Self {
            reader_notifier: OwnedWaitQueue::new()?,
            pending: Word::new(0),
            writer_notifier: OwnedWaitQueue::new()?,
            has_trace_ended: Word::new(0),
        };
        Ok(Arc::new(signal, GFP_KERNEL_ACCOUNT)?)
    }

    /// Wakes the reader of the trace, because a buffer has unread data. Callable in any context.
    pub(crate) fn notify_reader(&self) {
        self.pending.store_relaxed(1);
        self.reader_notifier.queue_wakeup_and_sigio();
    }

    /// Clears the reader's pending notification. Called when the reader begins a pass over all
    /// buffers.
    pub(crate) fn clear_pending(&self) {
        self.pending.store_relaxed(0);
    }

    /// Returns whether the reader was notified since it last began a pass over all buffers.
    pub(crate) fn may_have_unread_data(&self) -> bool {
        self.pending.load_relaxed() != 0
    }

    /// Wakes the threads that wait for room in a buffer. Called after the reader has read from a
    /// buffer.
    pub(crate) fn wake_waiting_writers(&self) {
        self.writer_notifier.queue_wakeup_and_sigio();
    }

    /// Records that the trace has ended, and wakes the trace's reader and the threads that wait for
    /// room in a buffer.
    pub(crate) fn notify_trace_end(&self) {
        self.has_trace_ended.store_relaxed(1);
        self.writer_notifier.queue_wakeup_and_sigio();
        self.notify_reader();
    }

    /// Waits until `read` returns true or the trace has ended, but at most `nanoseconds`. Returns
    /// false if the time `nanoseconds` is over, and `EINTR` if a signal interrupts the wait.
    pub(crate) fn wait_for_room(
        &self,
        mut read: impl FnMut() -> bool,
        nanoseconds: u64,
    ) -> Result<bool> {
        let ready = || read() || self.has_trace_ended.load_relaxed() != 0;
        self.writer_notifier
            .wait_timeout(ready, nanoseconds)
            .map_err(|_| EINTR)
    }

    /// Returns the wait queue for poll() on the trace.
    pub(crate) fn reader_notifier(&self) -> &WaitQueue {
        &self.reader_notifier
    }
}
