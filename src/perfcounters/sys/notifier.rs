// SPDX-License-Identifier: GPL-2.0

//! The notifier of a context wakes the context's readers, and defers the context's work. Deferred
//! work runs in an irq_work, in a timer, in a worker, or when the context's thread returns to user
//! mode.

use core::ptr::NonNull;

use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;

use super::shim;
use crate::base::access::Process;

/// A `struct pfm_notifier` (`sys/shim/notifier.c`), which belongs to a context or to a trace. The
/// notifier of a trace uses only the functions by which threads wait and are woken.
///
/// # Invariants
///
/// `raw` is a valid notifier that `self` owns. If a context is attached to the notifier, the
/// notifier is a field of that context.
pub(crate) struct Notifier {
    raw: NonNull<shim::Notifier>,
}

// SAFETY: The C functions of the notifier do their own locking. Any thread may free the notifier in
// process context.
unsafe impl Send for Notifier {}
// SAFETY: The C functions of the notifier do their own locking, and any thread may call them.
unsafe impl Sync for Notifier {}

impl Notifier {
    /// Creates a notifier without a context. Returns `ENOMEM` if memory is short. May sleep.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: `pfm_notifier_new()` may sleep in the allocation, because the caller is in
        // process context.
        let raw = unsafe { shim::pfm_notifier_new() };
        // INVARIANT: `raw` was just created, and no context is attached.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
        })
    }

    /// Attaches the context at the address `context`, of which the notifier is a field: the
    /// notifier defers the work of this context. Called once, before any other thread can reach the context. Afterwards the context
    /// must not move in memory.
    pub(crate) fn attach(&self, context: *const c_void) {
        // SAFETY: `raw` is valid by the type's invariant. The notifier is dropped with the context,
        // and the notifier's drop waits until no callback runs.
        unsafe { shim::pfm_notifier_attach(self.raw.as_ptr(), context) }
    }

    /// As soon as interrupts are on, wakes the readers and a thread that
    /// [`block_thread`](Self::block_thread) has put to sleep, and sends SIGIO. Callable in any
    /// context.
    #[inline]
    pub(crate) fn wake_readers(&self) {
        // SAFETY: `raw` is valid by the type's invariant; an irq_work can be queued in any context.
        unsafe { shim::pfm_notifier_wake_readers(self.raw.as_ptr()) }
    }

    /// Queues a call of `Context::deferred_work` on this CPU, in hard interrupt context, as soon
    /// as interrupts are on. Callable in any context.
    #[inline]
    pub(crate) fn queue_work(&self) {
        // SAFETY: `raw` is valid by the type's invariant; an irq_work can be queued in any context.
        unsafe { shim::pfm_notifier_queue_work(self.raw.as_ptr()) }
    }

    /// Queues a worker that checks whether the context's user may still monitor the context's
    /// thread. May be called in any context except an NMI. The caller holds no lock of this module.
    pub(crate) fn queue_permission_check(&self) {
        // SAFETY: `raw` is valid by the type's invariant.
        unsafe { shim::pfm_notifier_queue_permission_check(self.raw.as_ptr()) }
    }

    /// Starts the timer, which calls `Context::deferred_work` on this CPU after `nanoseconds`. If
    /// the timer is already started, its expiry changes. Called with interrupts off and not in an
    /// NMI.
    #[inline]
    pub(crate) fn start_timer(&self, nanoseconds: u64) {
        // SAFETY: `raw` is valid by the type's invariant; the caller is not in an NMI.
        unsafe { shim::pfm_notifier_start_timer(self.raw.as_ptr(), nanoseconds) }
    }

    /// Cancels the timer. Does not wait until a timer callback that is already running ends. Called
    /// with interrupts off and not in an NMI.
    #[inline]
    pub(crate) fn cancel_timer(&self) {
        // SAFETY: `raw` is valid by the type's invariant; the caller is not in an NMI.
        unsafe { shim::pfm_notifier_cancel_timer(self.raw.as_ptr()) }
    }

    /// Makes the current thread sleep on its way to user mode, until [`resume`](Self::resume) or a
    /// signal. Callable in any context.
    ///
    /// Before it sleeps, and then once a second, the thread checks whether the process `asker` may
    /// still stop it. If not, the context ends and the thread continues.
    pub(crate) fn block_thread(&self, asker: &Process) {
        // SAFETY: `raw` is valid by the type's invariant; `asker` holds a reference to its `struct
        // pid`.
        unsafe { shim::pfm_notifier_block_thread(self.raw.as_ptr(), asker.as_ptr()) }
    }

    /// Allows a thread to continue that [`block_thread`](Self::block_thread) has put to sleep. The
    /// thread continues as soon as [`wake_blocked`](Self::wake_blocked) or
    /// [`wake_readers`](Self::wake_readers) wakes it, at the latest after one second. Callable in
    /// any context.
    pub(crate) fn resume(&self) {
        // SAFETY: `raw` is valid by the type's invariant; `pfm_notifier_resume()` only writes a
        // flag.
        unsafe { shim::pfm_notifier_resume(self.raw.as_ptr()) }
    }

    /// Wakes a thread that [`block_thread`](Self::block_thread) has put to sleep. May be called
    /// with preemption off. The caller holds no lock of this module.
    pub(crate) fn wake_blocked(&self) {
        // SAFETY: `raw` is valid by the type's invariant.
        unsafe { shim::pfm_notifier_wake_blocked(self.raw.as_ptr()) }
    }

    /// Drops a reference to the context after an RCU grace period, when every lookup that found the
    /// context has finished. Called in process context.
    ///
    /// # Safety
    ///
    /// A context is attached to the notifier. The caller has given up one reference to the context
    /// by `Arc::into_raw`.
    pub(crate) unsafe fn free_context(&self) {
        // SAFETY: `raw` is valid by the type's invariant, and by the function's requirement
        // `pfm_notifier_free_context()` now owns the caller's reference.
        unsafe { shim::pfm_notifier_free_context(self.raw.as_ptr()) }
    }

    /// Sleeps until `ready` returns true. `ready` is called at once, and again each time that the
    /// readers are woken. Returns `ERESTARTSYS` if a signal interrupts the sleep. Called in process
    /// context.
    pub(crate) fn wait(&self, mut ready: impl FnMut() -> bool) -> Result {
        let function = ready_callback(&ready);
        // SAFETY: `raw` is valid by the type's invariant. `function` takes a pointer to `ready`,
        // which lives until the call returns.
        to_result(unsafe {
            shim::pfm_notifier_wait(self.raw.as_ptr(), function, (&raw mut ready).cast())
        })
    }

    /// Like [`wait`](Self::wait), but sleeps for at most `nanoseconds`. Returns whether `ready`
    /// returned true.
    pub(crate) fn wait_for(
        &self,
        mut ready: impl FnMut() -> bool,
        nanoseconds: u64,
    ) -> Result<bool> {
        let function = ready_callback(&ready);
        // SAFETY: `raw` is valid by the type's invariant. `function` takes a pointer to `ready`,
        // which lives until the call returns.
        let rc = unsafe {
            let arg = (&raw mut ready).cast();
            shim::pfm_notifier_wait_for(self.raw.as_ptr(), function, arg, nanoseconds)
        };
        to_result(rc)?;
        Ok(rc != 0)
    }

    /// Adds the caller of poll() to the readers that the notifier wakes.
    ///
    /// # Safety
    ///
    /// The arguments are those of `file_operations.poll`. The notifier lives as long as `file` is
    /// open.
    pub(super) unsafe fn poll(
        &self,
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    ) {
        // SAFETY: `raw` is valid by the type's invariant, and the arguments are valid by the
        // function's requirement.
        unsafe { shim::pfm_notifier_poll(self.raw.as_ptr(), file, table) }
    }

    /// Adds `file` to, or removes it from, the files whose owners get SIGIO from the notifier.
    ///
    /// # Safety
    ///
    /// The arguments are those of `file_operations.fasync`.
    pub(super) unsafe fn fasync(&self, fd: c_int, file: *mut bindings::file, on: c_int) -> c_int {
        // SAFETY: `raw` is valid by the type's invariant, and the arguments are valid by the
        // function's requirement.
        unsafe { shim::pfm_notifier_fasync(self.raw.as_ptr(), fd, file, on) }
    }
}

/// Returns a C function that takes the address of a closure of type `F`, and calls the closure.
fn ready_callback<F: FnMut() -> bool>(_: &F) -> unsafe extern "C" fn(*mut c_void) -> bool {
    /// # Safety
    ///
    /// `ready` points to an `F` that nothing else uses during the call.
    unsafe extern "C" fn call<F: FnMut() -> bool>(ready: *mut c_void) -> bool {
        // SAFETY: By the function's requirement `ready` points to an `F` that nothing else uses.
        unsafe { (*ready.cast::<F>())() }
    }
    call::<F>
}

impl Drop for Notifier {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` owns `raw`, and `raw` is no longer used.
        // `pfm_notifier_free()` waits until no callback of the notifier runs.
        unsafe { shim::pfm_notifier_free(self.raw.as_ptr()) }
    }
}
