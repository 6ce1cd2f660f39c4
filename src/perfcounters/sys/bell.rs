// SPDX-License-Identifier: GPL-2.0

//! What wakes those who read a context, and looks after it later.

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

/// A bell: see `sys/shim/sampling.c`.
///
/// # Invariants
///
/// `raw` is one, ours. Its context, if it hangs at one, owns it.
pub(crate) struct Bell {
    raw: NonNull<shim::Bell>,
}

// SAFETY: C takes its own locks; drop is in process context.
unsafe impl Send for Bell {}
// SAFETY: C takes its own locks for each call, whichever thread makes it.
unsafe impl Sync for Bell {}

impl Bell {
    /// One that hangs nowhere. May sleep.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: No requirements.
        let raw = unsafe { shim::pfm_bell_new() };
        // INVARIANT: just made.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
        })
    }

    /// From now on it looks after a context: the one whose bell it is, which nobody
    /// else has yet and which stays where it is.
    pub(crate) fn hang(&self, context: &Context) {
        let context: *const Context = context;
        // SAFETY: The bell goes with its context, and drop waits until it is silent.
        unsafe { shim::pfm_bell_hang(self.raw.as_ptr(), context.cast()) }
    }

    /// Wakes readers, as soon as interrupts are on. Any context.
    #[inline]
    pub(crate) fn ring(&self) {
        // SAFETY: By the type's invariant.
        unsafe { shim::pfm_bell_ring(self.raw.as_ptr()) }
    }

    /// Has its context looked after, on this CPU, as soon as interrupts are on. Any
    /// context.
    #[inline]
    pub(crate) fn call(&self) {
        // SAFETY: By the type's invariant.
        unsafe { shim::pfm_bell_call(self.raw.as_ptr()) }
    }

    /// Has a worker ask whether its context's right to watch its thread is there still. Any
    /// context but NMI; no lock of ours held.
    pub(crate) fn ask(&self) {
        // SAFETY: By the type's invariant: `raw` is a bell of ours.
        unsafe { shim::pfm_bell_ask(self.raw.as_ptr()) }
    }

    /// Has it looked after on this CPU after so long. Interrupts off; no NMI.
    #[inline]
    pub(crate) fn ring_after(&self, nanoseconds: u64) {
        // SAFETY: By the type's invariant: `raw` is a bell of ours.
        unsafe { shim::pfm_bell_after(self.raw.as_ptr(), nanoseconds) }
    }

    /// It need not ring. The same.
    #[inline]
    pub(crate) fn hush(&self) {
        // SAFETY: By the type's invariant: `raw` is a bell of ours.
        unsafe { shim::pfm_bell_hush(self.raw.as_ptr()) }
    }

    /// The current thread sleeps before it is in user mode again, until
    /// [`let_go`](Self::let_go) or a signal; as long as the process that wants it may stop it.
    /// Any context.
    pub(crate) fn block(&self, asker: &Process) {
        // SAFETY: By the type's invariant; there is that number.
        unsafe { shim::pfm_bell_block(self.raw.as_ptr(), asker.as_ptr()) }
    }

    /// Who sleeps there may go on, and does once it hears of it. Any context.
    pub(crate) fn let_go(&self) {
        // SAFETY: By the type's invariant.
        unsafe { shim::pfm_bell_let(self.raw.as_ptr()) }
    }

    /// It hears of it. Preemption may be off, but no lock of ours held.
    pub(crate) fn go(&self) {
        // SAFETY: By the type's invariant.
        unsafe { shim::pfm_bell_go(self.raw.as_ptr()) }
    }

    /// Its context goes, once nobody looks at it who found it before. Process context.
    ///
    /// # Safety
    ///
    /// Of the context's last reference: it was given away by `Arc::into_raw`.
    pub(crate) unsafe fn leave(&self) {
        // SAFETY: By the type's invariant.
        unsafe { shim::pfm_bell_leave(self.raw.as_ptr()) }
    }

    /// Sleeps until it has rung and something is ready; `EINTR`-like at a signal.
    pub(crate) fn wait(&self, mut ready: impl FnMut() -> bool) -> Result {
        let function = asks(&ready);
        // SAFETY: It waits, so the function outlives the call.
        to_result(unsafe {
            shim::pfm_bell_wait(self.raw.as_ptr(), function, (&raw mut ready).cast())
        })
    }

    /// Sleeps as [`wait`](Self::wait) does, for so many nanoseconds at most. Says whether it is ready.
    pub(crate) fn wait_for(
        &self,
        mut ready: impl FnMut() -> bool,
        nanoseconds: u64,
    ) -> Result<bool> {
        let function = asks(&ready);
        // SAFETY: It waits, so the function outlives the call.
        let rc = unsafe {
            let arg = (&raw mut ready).cast();
            shim::pfm_bell_wait_for(self.raw.as_ptr(), function, arg, nanoseconds)
        };
        to_result(rc)?;
        Ok(rc != 0)
    }

    /// # Safety
    ///
    /// The arguments are poll's.
    pub(super) unsafe fn poll(
        &self,
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    ) {
        // SAFETY: By the function's requirement.
        unsafe { shim::pfm_bell_poll(self.raw.as_ptr(), file, table) }
    }

    /// # Safety
    ///
    /// The arguments are fasync's.
    pub(super) unsafe fn fasync(&self, fd: c_int, file: *mut bindings::file, on: c_int) -> c_int {
        // SAFETY: By the function's requirement.
        unsafe { shim::pfm_bell_fasync(self.raw.as_ptr(), fd, file, on) }
    }
}

/// What C calls of a function that it is given.
fn asks<F: FnMut() -> bool>(_: &F) -> unsafe extern "C" fn(*mut c_void) -> bool {
    /// # Safety
    ///
    /// `ready` is an `F`.
    unsafe extern "C" fn call<F: FnMut() -> bool>(ready: *mut c_void) -> bool {
        // SAFETY: By the function's requirement; nobody else has it meanwhile.
        unsafe { (*ready.cast::<F>())() }
    }
    call::<F>
}

impl Drop for Bell {
    fn drop(&mut self) {
        // SAFETY: Ours; nobody has it any more.
        unsafe { shim::pfm_bell_free(self.raw.as_ptr()) }
    }
}

/// # Safety
///
/// Called by the shim, in a worker, with what [`Bell::leave`] was called for.
#[no_mangle]
unsafe extern "C" fn pfm_context_gone(context: *const c_void) {
    // SAFETY: From `into_raw`, by the function's requirement.
    drop(unsafe { Arc::from_raw(context.cast::<Context>()) });
}

/// # Safety
///
/// Called by the shim, in a thread that a context waits for, in an RCU section, with what its
/// bell hangs at.
#[no_mangle]
unsafe extern "C" fn pfm_refused(context: *const c_void) {
    let _preempt = sched::NoPreempt::new();
    // SAFETY: It goes after a grace period.
    unsafe { (*context.cast::<Context>()).end(Target::Thread(sched::current())) };
}

/// # Safety
///
/// Called by a bell that hangs at `context`, in a worker.
#[no_mangle]
unsafe extern "C" fn pfm_ask(context: *const c_void) {
    // SAFETY: Alive, as its bell is. Where it could not be asked, it is when the thread runs next.
    let _ = unsafe { (*context.cast::<Context>()).ask_again() };
}

/// # Safety
///
/// Called by a bell that hangs at `context`. Interrupts off.
#[no_mangle]
unsafe extern "C" fn pfm_tick(context: *const c_void, timer: bool) {
    // SAFETY: Alive, as its bell is.
    unsafe { (*context.cast::<Context>()).tick(timer) }
}
