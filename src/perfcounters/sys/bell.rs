// SPDX-License-Identifier: GPL-2.0

//! The bell: wakes the readers of a context, and defers work of the context to interrupts, a timer,
//! a worker or its thread's return to user mode.

use core::ptr::NonNull;

use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;
use kernel::sync::Arc;

use super::rights::Process;
use super::{sched, shim};
use crate::contexts::Context;
use crate::target::Target;

/// A `struct pfm_bell` (`sys/shim/sampling.c`). It belongs to a context, or to a trace, which only
/// wakes and waits.
///
/// # Invariants
///
/// `raw` is a valid bell that this owns. If a context is attached to it, the bell is a field of
/// that context.
pub(crate) struct Bell {
    raw: NonNull<shim::Bell>,
}

// SAFETY: The C functions do their own locking; the bell is freed in process context, by any
// thread.
unsafe impl Send for Bell {}
// SAFETY: The C functions do their own locking for each call, from any thread.
unsafe impl Sync for Bell {}

impl Bell {
    /// Creates a bell without a context. `ENOMEM`. May sleep.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: Allocates in process context; no requirements.
        let raw = unsafe { shim::pfm_bell_new() };
        // INVARIANT: `raw` was just created, and no context is attached.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
        })
    }

    /// Attaches the context that the bell is a field of: the deferred work below is done for it.
    /// Called once, before any other thread can reach the context, which must not move afterwards.
    pub(crate) fn hang(&self, context: &Context) {
        let context: *const Context = context;
        // SAFETY: `raw` is valid by the type's invariant. The bell is dropped with its context, and
        // its drop waits until no callback runs.
        unsafe { shim::pfm_bell_hang(self.raw.as_ptr(), context.cast()) }
    }

    /// Wakes the readers, and a thread that [`block`](Self::block) made sleep, and sends SIGIO, as
    /// soon as interrupts are on. Any context.
    #[inline]
    pub(crate) fn ring(&self) {
        // SAFETY: `raw` is valid by the type's invariant; an irq_work can be queued in any context.
        unsafe { shim::pfm_bell_ring(self.raw.as_ptr()) }
    }

    /// Has [`Context::tick`] called on this CPU, in hard interrupt context, as soon as interrupts
    /// are on. Any context.
    #[inline]
    pub(crate) fn call(&self) {
        // SAFETY: `raw` is valid by the type's invariant; an irq_work can be queued in any context.
        unsafe { shim::pfm_bell_call(self.raw.as_ptr()) }
    }

    /// Has a worker check whether the user may still monitor the context's thread. Any context but
    /// NMI; caller holds no lock of this module.
    pub(crate) fn ask(&self) {
        // SAFETY: `raw` is valid by the type's invariant.
        unsafe { shim::pfm_bell_ask(self.raw.as_ptr()) }
    }

    /// Starts the timer: [`Context::tick`] is called on this CPU after `nanoseconds`. Replaces an
    /// earlier expiry. Interrupts off; not in an NMI.
    #[inline]
    pub(crate) fn ring_after(&self, nanoseconds: u64) {
        // SAFETY: `raw` is valid by the type's invariant; the caller is not in an NMI.
        unsafe { shim::pfm_bell_after(self.raw.as_ptr(), nanoseconds) }
    }

    /// Cancels the timer, without waiting for a callback that runs. Interrupts off; not in an NMI.
    #[inline]
    pub(crate) fn hush(&self) {
        // SAFETY: `raw` is valid by the type's invariant; the caller is not in an NMI.
        unsafe { shim::pfm_bell_hush(self.raw.as_ptr()) }
    }

    /// Makes the current thread sleep on its way to user mode, until [`let_go`](Self::let_go) or a
    /// signal. Any context.
    ///
    /// At first, and then once a second, the thread checks that the process `asker` still may stop
    /// it. If it may not, the context ends and the thread continues.
    pub(crate) fn block(&self, asker: &Process) {
        // SAFETY: `raw` is valid by the type's invariant; `asker` holds a reference to its number.
        unsafe { shim::pfm_bell_block(self.raw.as_ptr(), asker.as_ptr()) }
    }

    /// Allows a thread that [`block`](Self::block) made sleep to continue. It notices when
    /// [`go`](Self::go) or [`ring`](Self::ring) wakes it, at the latest a second later. Any
    /// context.
    pub(crate) fn let_go(&self) {
        // SAFETY: `raw` is valid by the type's invariant; the callee only writes a flag.
        unsafe { shim::pfm_bell_let(self.raw.as_ptr()) }
    }

    /// Wakes a thread that [`block`](Self::block) made sleep. Preemption may be off, but the caller
    /// holds no lock of this module.
    pub(crate) fn go(&self) {
        // SAFETY: `raw` is valid by the type's invariant.
        unsafe { shim::pfm_bell_go(self.raw.as_ptr()) }
    }

    /// Drops a reference to the context after an RCU grace period, when no lookup that found the
    /// context is still using it. Process context.
    ///
    /// # Safety
    ///
    /// A context is attached. The caller has given up one of its references by `Arc::into_raw`.
    pub(crate) unsafe fn leave(&self) {
        // SAFETY: `raw` is valid by the type's invariant, and the reference is the callee's by the
        // function's requirement.
        unsafe { shim::pfm_bell_leave(self.raw.as_ptr()) }
    }

    /// Sleeps until `ready` returns true, which is checked at once and at each wakeup of the
    /// readers. `ERESTARTSYS` if a signal is pending. Process context.
    pub(crate) fn wait(&self, mut ready: impl FnMut() -> bool) -> Result {
        let function = asks(&ready);
        // SAFETY: `raw` is valid by the type's invariant. `function` takes a pointer to `ready`,
        // which lives until the call returns.
        to_result(unsafe {
            shim::pfm_bell_wait(self.raw.as_ptr(), function, (&raw mut ready).cast())
        })
    }

    /// Sleeps as [`wait`](Self::wait) does, but at most for `nanoseconds`. Returns whether `ready`
    /// returned true.
    pub(crate) fn wait_for(
        &self,
        mut ready: impl FnMut() -> bool,
        nanoseconds: u64,
    ) -> Result<bool> {
        let function = asks(&ready);
        // SAFETY: `raw` is valid by the type's invariant. `function` takes a pointer to `ready`,
        // which lives until the call returns.
        let rc = unsafe {
            let arg = (&raw mut ready).cast();
            shim::pfm_bell_wait_for(self.raw.as_ptr(), function, arg, nanoseconds)
        };
        to_result(rc)?;
        Ok(rc != 0)
    }

    /// Adds the caller of poll() to the readers.
    ///
    /// # Safety
    ///
    /// The arguments are those of `file_operations.poll`. The bell lives as long as `file` is open.
    pub(super) unsafe fn poll(
        &self,
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    ) {
        // SAFETY: `raw` is valid by the type's invariant, the arguments are by the function's
        // requirement.
        unsafe { shim::pfm_bell_poll(self.raw.as_ptr(), file, table) }
    }

    /// Adds or removes a receiver of SIGIO.
    ///
    /// # Safety
    ///
    /// The arguments are those of `file_operations.fasync`.
    pub(super) unsafe fn fasync(&self, fd: c_int, file: *mut bindings::file, on: c_int) -> c_int {
        // SAFETY: `raw` is valid by the type's invariant, the arguments are by the function's
        // requirement.
        unsafe { shim::pfm_bell_fasync(self.raw.as_ptr(), fd, file, on) }
    }
}

/// Returns a C function that calls a closure of type `F` by its address.
fn asks<F: FnMut() -> bool>(_: &F) -> unsafe extern "C" fn(*mut c_void) -> bool {
    /// # Safety
    ///
    /// `ready` points to an `F` that nothing else uses during the call.
    unsafe extern "C" fn call<F: FnMut() -> bool>(ready: *mut c_void) -> bool {
        // SAFETY: By the function's requirement `ready` points to an `F` that nothing else uses.
        unsafe { (*ready.cast::<F>())() }
    }
    call::<F>
}

impl Drop for Bell {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `raw` is owned by this, which is no longer used. The
        // callee waits for callbacks that run.
        unsafe { shim::pfm_bell_free(self.raw.as_ptr()) }
    }
}

/// Drops the reference that [`Bell::leave`] was called for.
///
/// # Safety
///
/// Called only by `sys/shim/sampling.c`, in a worker, once for each call of [`Bell::leave`].
#[no_mangle]
unsafe extern "C" fn pfm_context_gone(context: *const c_void) {
    // SAFETY: The pointer is from `Arc::into_raw`, by the requirement of [`Bell::leave`].
    drop(unsafe { Arc::from_raw(context.cast::<Context>()) });
}

/// Ends a context whose thread sleeps in [`Bell::block`], because its user may not stop that thread
/// any more.
///
/// # Safety
///
/// Called only by `sys/shim/sampling.c`, in that thread, inside an RCU read-side critical section,
/// with the context that is attached to the bell.
#[no_mangle]
unsafe extern "C" fn pfm_refused(context: *const c_void) {
    let _preempt = sched::NoPreempt::new();
    // SAFETY: [`Bell::leave`] clears the pointer before it starts the grace period after which the
    // context is freed. The caller read it inside an RCU read-side critical section.
    unsafe { (*context.cast::<Context>()).end(Target::Thread(sched::current())) };
}

/// Checks again whether the user of a context may monitor its thread.
///
/// # Safety
///
/// Called only by `sys/shim/sampling.c`, in a worker, with the context that is attached to the
/// bell.
#[no_mangle]
unsafe extern "C" fn pfm_ask(context: *const c_void) {
    // SAFETY: The bell is a field of the context, and its drop cancels this work and waits for it.
    // An error means that the check could not be made; it is made again when the thread is next
    // switched to.
    let _ = unsafe { (*context.cast::<Context>()).ask_again() };
}

/// Handles the bell's irq_work, or its timer if `timer` is set.
///
/// # Safety
///
/// Called only by `sys/shim/sampling.c`, with interrupts off, with the context that is attached to
/// the bell.
#[no_mangle]
unsafe extern "C" fn pfm_tick(context: *const c_void, timer: bool) {
    // SAFETY: The bell is a field of the context, and its drop waits for the irq_work and the
    // timer.
    unsafe { (*context.cast::<Context>()).tick(timer) }
}
