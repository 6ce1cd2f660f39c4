// SPDX-License-Identifier: GPL-2.0

//! The deferred work of a context, which runs in an irq_work, in a timer, in a worker, or when the
//! context's thread returns to user mode.

#![expect(unsafe_code, reason = "calls of C with deferred work")]

use core::ops::Deref;
use core::ptr::NonNull;

use kernel::error::Result;
use kernel::ffi::c_void;
use kernel::prelude::*;

use crate::helpers;
use base::notifier::WaitQueue;

/// A `struct pfm_deferral` (`src/perfmon/helpers/deferral.c`), which belongs to a context. The
/// notifier in this structure wakes the readers of the context. The notifier also wakes the
/// context's thread if a `Blocker` has put the thread to sleep.
///
/// # Invariants
///
/// `raw` is valid, and `self` owns it. `notifier` is the notifier in the structure at `raw`. A
/// context that [`attach`](Self::attach) has attached to `self` contains `self` as a field.
pub(crate) struct Deferral {
    pub(super) raw: NonNull<helpers::Deferral>,
    notifier: WaitQueue,
}

// SAFETY: The C functions of the structure do their own locking. Any thread may free the structure
// in process context.
unsafe impl Send for Deferral {}
// SAFETY: The C functions of the structure do their own locking, and any thread may call them.
unsafe impl Sync for Deferral {}

impl Deferral {
    /// Creates the deferred work, without a context. May sleep. Returns `ENOMEM` on failure.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: `pfm_deferral_new()` may sleep in the allocation, because the caller is in
        // process context.
        let raw = NonNull::new(unsafe { helpers::pfm_deferral_new() }).ok_or(ENOMEM)?;
        // SAFETY: The structure begins with its notifier, which is valid until drop frees it.
        let notifier = unsafe { WaitQueue::from_raw(raw.cast()) };
        // INVARIANT: `raw` was just created, and no context is attached.
        Ok(Self { raw, notifier })
    }

    /// Stores `context`, the address of the context that contains `self`, for the callbacks of
    /// `self`. Called once, before any other thread can reach the context. After this call the
    /// context must not move in memory.
    pub(crate) fn attach(&self, context: *const c_void) {
        // SAFETY: `raw` is valid by the type's invariant. `self` is dropped with the context, and
        // its drop waits until no callback runs.
        unsafe { helpers::pfm_deferral_attach(self.raw.as_ptr(), context) }
    }

    /// Queues a call of `Context::handle_timer_or_irq_work` on this CPU, in hard interrupt context,
    /// as soon as interrupts are on. Callable in any context.
    #[inline]
    pub(crate) fn queue_work(&self) {
        // SAFETY: `raw` is valid by the type's invariant; an irq_work can be queued in any context.
        unsafe { helpers::pfm_deferral_queue_work(self.raw.as_ptr()) }
    }

    /// Queues a worker that checks whether the context's user may still monitor the context's
    /// thread. May be called in any context except an NMI. The caller holds no lock of this module.
    pub(crate) fn queue_permission_check(&self) {
        // SAFETY: `raw` is valid by the type's invariant.
        unsafe { helpers::pfm_deferral_queue_permission_check(self.raw.as_ptr()) }
    }

    /// Starts the timer, which calls `Context::handle_timer_or_irq_work` on this CPU after
    /// `nanoseconds`. If the timer is already started, its expiry changes. Called with interrupts
    /// off and not in an NMI.
    #[inline]
    pub(crate) fn start_timer(&self, nanoseconds: u64) {
        // SAFETY: `raw` is valid by the type's invariant; the caller is not in an NMI.
        unsafe { helpers::pfm_deferral_start_timer(self.raw.as_ptr(), nanoseconds) }
    }

    /// Cancels the timer. Does not wait for a timer callback that is already running. Called with
    /// interrupts off and not in an NMI.
    #[inline]
    pub(crate) fn cancel_timer(&self) {
        // SAFETY: `raw` is valid by the type's invariant; the caller is not in an NMI.
        unsafe { helpers::pfm_deferral_cancel_timer(self.raw.as_ptr()) }
    }

    /// Wakes a thread that `Blocker::block_current_thread()` has put to sleep. May be called with
    /// preemption off. The caller holds no lock of this module.
    pub(crate) fn wake_blocked(&self) {
        // SAFETY: `raw` is valid by the type's invariant.
        unsafe { helpers::pfm_deferral_wake_blocked(self.raw.as_ptr()) }
    }

    /// Drops a reference to the context after an RCU grace period, when every lookup that found the
    /// context has finished. Called in process context.
    ///
    /// # Safety
    ///
    /// A context is attached to `self`. The caller has given up one reference to the context
    /// by `Arc::into_raw`.
    pub(crate) unsafe fn put_context_rcu(&self) {
        // SAFETY: `raw` is valid by the type's invariant, and by the function's requirement
        // `pfm_deferral_free_context()` now owns the caller's reference.
        unsafe { helpers::pfm_deferral_free_context(self.raw.as_ptr()) }
    }
}

impl Deref for Deferral {
    type Target = WaitQueue;

    #[inline]
    fn deref(&self) -> &WaitQueue {
        &self.notifier
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` owns `raw`, and `raw` is no longer used.
        // `pfm_deferral_free()` waits until no callback runs.
        unsafe { helpers::pfm_deferral_free(self.raw.as_ptr()) }
    }
}
