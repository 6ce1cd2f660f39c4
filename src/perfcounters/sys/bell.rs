// SPDX-License-Identifier: GPL-2.0

//! What wakes those who read a context, and looks after it later.

use core::ptr::NonNull;

use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;

use super::shim;
use crate::contexts::Context;

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
// SAFETY: As above.
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

    /// Has it looked after on this CPU after so long. Interrupts off; no NMI.
    #[inline]
    pub(crate) fn ring_after(&self, nanoseconds: u64) {
        // SAFETY: As above.
        unsafe { shim::pfm_bell_after(self.raw.as_ptr(), nanoseconds) }
    }

    /// It need not ring. The same.
    #[inline]
    pub(crate) fn hush(&self) {
        // SAFETY: As above.
        unsafe { shim::pfm_bell_hush(self.raw.as_ptr()) }
    }

    /// The current thread sleeps before it is in user mode again, until
    /// [`let_go`](Self::let_go) or a signal. Any context.
    pub(crate) fn block(&self) {
        // SAFETY: By the type's invariant.
        unsafe { shim::pfm_bell_block(self.raw.as_ptr()) }
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

    /// Sleeps until it has rung and something is ready; `EINTR`-like at a signal.
    pub(crate) fn wait(&self, mut ready: impl FnMut() -> bool) -> Result {
        /// # Safety
        ///
        /// `ready` is an `F`.
        unsafe extern "C" fn call<F: FnMut() -> bool>(ready: *mut c_void) -> bool {
            // SAFETY: By the function's requirement; nobody else has it meanwhile.
            unsafe { (*ready.cast::<F>())() }
        }
        fn of<F: FnMut() -> bool>(_: &F) -> unsafe extern "C" fn(*mut c_void) -> bool {
            call::<F>
        }
        let function = of(&ready);
        // SAFETY: It waits, so the function outlives the call.
        to_result(unsafe {
            shim::pfm_bell_wait(self.raw.as_ptr(), function, (&raw mut ready).cast())
        })
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

impl Drop for Bell {
    fn drop(&mut self) {
        // SAFETY: Ours; nobody has it any more.
        unsafe { shim::pfm_bell_free(self.raw.as_ptr()) }
    }
}

/// Bells' code, in use while the module is; drop waits for the last thread in it.
pub(crate) struct Bells;

impl Drop for Bells {
    fn drop(&mut self) {
        // SAFETY: Process context; there are no bells any more.
        unsafe { shim::pfm_bells_end() }
    }
}

/// # Safety
///
/// Called by a bell that hangs at `context`. Interrupts off.
#[no_mangle]
unsafe extern "C" fn pfm_tick(context: *const c_void, timer: bool) {
    // SAFETY: Alive, as its bell is.
    unsafe { (*context.cast::<Context>()).tick(timer) }
}
