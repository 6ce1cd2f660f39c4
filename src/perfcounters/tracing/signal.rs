// SPDX-License-Identifier: GPL-2.0

//! Notification of a trace's reader, and of threads that wait until it has read.

use engine::sync::Word;
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::sys::notifier::Notifier;

/// Wakes the reader of a trace, and the threads that wait for room.
pub(crate) struct Signal {
    /// Wakes the reader.
    bell: Notifier,
    /// Data may be unread.
    news: Word,
    /// Wakes threads that wait until the reader has read.
    room: Notifier,
    /// The trace has ended.
    ended: Word,
}

impl Signal {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let signal = Self {
            bell: Notifier::new()?,
            news: Word::new(0),
            room: Notifier::new()?,
            ended: Word::new(0),
        };
        Ok(Arc::new(signal, GFP_KERNEL_ACCOUNT)?)
    }

    /// Wakes the reader, as data are unread. Any context.
    pub(crate) fn ring(&self) {
        self.news.store_relaxed(1);
        self.bell.wake_readers();
    }

    /// Clears the notification, when the reader begins a pass.
    pub(crate) fn answer(&self) {
        self.news.store_relaxed(0);
    }

    /// Returns whether the reader was notified since it last began a pass.
    pub(crate) fn has_rung(&self) -> bool {
        self.news.load_relaxed() != 0
    }

    /// Wakes threads that wait for room, after something was read.
    pub(crate) fn has_read(&self) {
        self.room.wake_readers();
    }

    /// Wakes all waiting threads, as the trace has ended.
    pub(crate) fn end(&self) {
        self.ended.store_relaxed(1);
        self.room.wake_readers();
        self.ring();
    }

    /// Waits until `read` returns true, the trace has ended or the time is over. Returns false if
    /// the time is over. `EINTR`.
    pub(crate) fn wait_for_room(
        &self,
        mut read: impl FnMut() -> bool,
        nanoseconds: u64,
    ) -> Result<bool> {
        let ready = || read() || self.ended.load_relaxed() != 0;
        self.room.wait_for(ready, nanoseconds).map_err(|_| EINTR)
    }

    /// Returns the notifier for poll().
    pub(crate) fn notifier(&self) -> &Notifier {
        &self.bell
    }
}
