// SPDX-License-Identifier: GPL-2.0

//! Blocks the monitored thread at overflows, for contexts with `PFM_FL_NOTIFY_BLOCK`.

#![expect(unsafe_code, reason = "calls of C")]

use core::ptr::NonNull;

use kernel::error::Result;
use kernel::prelude::*;

use crate::contexts::deferral::Deferral;
use crate::helpers;
use base::task::ProcessIdentity;

/// Blocks the monitored thread at overflows. Each time that a context is attached to a thread, the
/// context gets a new blocker. Dropping this value lets the thread continue. The value must not be
/// dropped while a context's lock is held.
///
/// # Invariants
///
/// `raw` is valid, and `self` owns it.
pub(crate) struct Blocker {
    pub(crate) raw: NonNull<helpers::Blocker>,
    /// The process that attached the context.
    pub(crate) attaching_process: ProcessIdentity,
}

// SAFETY: The C functions of the structure may be called, and free it, in any thread.
unsafe impl Send for Blocker {}
// SAFETY: The C functions of the structure may be called in any thread.
unsafe impl Sync for Blocker {}

impl Blocker {
    /// Creates a `Blocker` for an attachment by the caller's process. May sleep. Returns `ESRCH` or
    /// `ENOMEM` on failure.
    pub(crate) fn new(deferral: &Deferral) -> Result<Self> {
        let attaching_process = ProcessIdentity::of_caller()?;
        // SAFETY: The deferral is valid by its type's invariant, and `attaching_process` holds a
        // reference. `pfm_blocker_new()` may sleep, because the caller is in process context.
        let raw =
            unsafe { helpers::pfm_blocker_new(deferral.raw.as_ptr(), attaching_process.as_ptr()) };
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // INVARIANT: `raw` was just created.
        Ok(Self {
            raw,
            attaching_process,
        })
    }

    /// Makes the current thread sleep on its way to user mode, until
    /// [`allow_resume`](Self::allow_resume) or a signal. Callable in any context.
    ///
    /// Before it sleeps, and then once a second, the thread checks whether the process
    /// `attaching_process` may still stop the thread. If `attaching_process` may no longer stop the
    /// thread, the context ends and the thread continues.
    pub(crate) fn block_current_thread(&self) {
        // SAFETY: `raw` is valid by the type's invariant.
        unsafe { helpers::pfm_blocker_block_thread(self.raw.as_ptr()) }
    }

    /// Permits the thread, which sleeps after [`block_current_thread`](Self::block_current_thread),
    /// to continue. The thread continues as soon as [`Deferral::wake_blocked`] or
    /// `WaitQueue::queue_wakeup_and_sigio()` wakes it, at the latest after one second. Callable in
    /// any context.
    pub(crate) fn allow_resume(&self) {
        // SAFETY: `raw` is valid by the type's invariant.
        unsafe { helpers::pfm_blocker_resume(self.raw.as_ptr()) }
    }
}

impl Drop for Blocker {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` owns `raw`, and `raw` is no longer used.
        unsafe { helpers::pfm_blocker_free(self.raw.as_ptr()) }
    }
}
