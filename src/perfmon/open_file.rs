// SPDX-License-Identifier: GPL-2.0

//! The private data of open files of `/dev/perfmon`.

use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};

use crate::contexts::context::Context;

/// The private data of an open file of `/dev/perfmon`.
#[pin_data]
pub(super) struct PerfmonFile {
    /// The file's context, or `None` until an ioctl creates it.
    #[pin]
    pub(super) context: Mutex<Option<Arc<Context>>>,
}

impl PerfmonFile {
    /// Creates the private data of a file without a context.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            context <- new_mutex!(None),
        })
    }

    /// Returns the file's context, or `EINVAL` if it has none yet. Releases the mutex `context`
    /// before it returns, so that a system call that sleeps does not block other system calls on
    /// the file.
    pub(super) fn context(&self) -> Result<Arc<Context>> {
        self.context.lock().clone().ok_or(EINVAL)
    }
}
