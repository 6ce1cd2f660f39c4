// SPDX-License-Identifier: GPL-2.0

//! What wakes a trace's reader, and the threads that wait until it has read.

use engine::sync::Word;
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::sys::bell::Bell;

/// What wakes a trace's reader.
pub(crate) struct Signal {
    bell: Bell,
    news: Word,
    /// For those who wait until it has read.
    room: Bell,
    over: Word,
}

impl Signal {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let signal = Self {
            bell: Bell::new()?,
            news: Word::new(0),
            room: Bell::new()?,
            over: Word::new(0),
        };
        Ok(Arc::new(signal, GFP_KERNEL_ACCOUNT)?)
    }

    /// There is something to be read. Any context.
    pub(crate) fn ring(&self) {
        self.news.store_relaxed(1);
        self.bell.ring();
    }

    /// The reader looks.
    pub(crate) fn answer(&self) {
        self.news.store_relaxed(0);
    }

    /// Is there anything?
    pub(crate) fn has_rung(&self) -> bool {
        self.news.load_relaxed() != 0
    }

    /// Something was read: threads that wait for room look whether there is some.
    pub(crate) fn has_read(&self) {
        self.room.ring();
    }

    /// The trace has ended: nobody waits any more.
    pub(crate) fn end(&self) {
        self.over.store_relaxed(1);
        self.room.ring();
        self.ring();
    }

    /// Waits so long, until that is so or the trace has ended: is it? `EINTR`.
    pub(crate) fn wait_for_room(
        &self,
        mut read: impl FnMut() -> bool,
        nanoseconds: u64,
    ) -> Result<bool> {
        let ready = || read() || self.over.load_relaxed() != 0;
        self.room.wait_for(ready, nanoseconds).map_err(|_| EINTR)
    }

    /// What it is waited with.
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }
}
