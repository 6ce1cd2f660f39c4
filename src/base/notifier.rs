// SPDX-License-Identifier: GPL-2.0

//! Wait queues, which wake readers from any context.

use core::ops::Deref;
use core::ptr::NonNull;

use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::ffi::{c_int, c_void};
use kernel::fs::LocalFile;
use kernel::prelude::*;

use super::helpers;

/// Wakes readers and pollers, and sends SIGIO (`helpers/notifier.c`).
///
/// # Invariants
///
/// `raw` is an initialised C notifier, which is valid as long as `self`.
pub struct WaitQueue {
    raw: NonNull<helpers::Notifier>,
}

// SAFETY: The C functions of the notifier do their own locking, and any thread may call them.
unsafe impl Send for WaitQueue {}
// SAFETY: The C functions of the notifier do their own locking, and any thread may call them.
unsafe impl Sync for WaitQueue {}

impl WaitQueue {
    /// Creates a `WaitQueue` for a C notifier that another value owns.
    ///
    /// # Safety
    ///
    /// `raw` is an initialised C notifier, which is valid as long as the result.
    pub unsafe fn from_raw(raw: NonNull<helpers::Notifier>) -> Self {
        // INVARIANT: By the function's requirement `raw` is initialised and valid.
        Self { raw }
    }

    /// Wakes the readers and sends SIGIO as soon as interrupts are on. Callable in any context.
    #[inline]
    pub fn queue_wakeup_and_sigio(&self) {
        // SAFETY: `raw` is valid by the type's invariant; an irq_work can be queued in any context.
        unsafe { helpers::pfc_notifier_wake_readers(self.raw.as_ptr()) }
    }

    /// Sleeps until `ready` returns true. `ready` is called at once, and again each time that the
    /// readers are woken. Returns `ERESTARTSYS` if a signal interrupts the sleep. Called in process
    /// context.
    pub fn wait(&self, mut ready: impl FnMut() -> bool) -> Result {
        let function = ready_callback(&ready);
        // SAFETY: `raw` is valid by the type's invariant. `function` takes a pointer to `ready`,
        // which lives until the call returns.
        to_result(unsafe {
            helpers::pfc_notifier_wait(self.raw.as_ptr(), Some(function), (&raw mut ready).cast())
        })
    }

    /// Like [`wait`](Self::wait), but sleeps for at most `nanoseconds`. Returns whether `ready`
    /// returned true.
    pub fn wait_timeout(&self, mut ready: impl FnMut() -> bool, nanoseconds: u64) -> Result<bool> {
        let function = ready_callback(&ready);
        // SAFETY: `raw` is valid by the type's invariant. `function` takes a pointer to `ready`,
        // which lives until the call returns.
        let rc = unsafe {
            let arg = (&raw mut ready).cast();
            helpers::pfc_notifier_wait_timeout(self.raw.as_ptr(), Some(function), arg, nanoseconds)
        };
        to_result(rc)?;
        Ok(rc != 0)
    }

    /// Adds the caller of poll() to the readers that the wait queue wakes.
    ///
    /// # Safety
    ///
    /// `file` and `table` are the arguments of poll(). The wait queue lives as long as the file is
    /// open.
    pub unsafe fn poll(&self, file: &LocalFile, table: *mut bindings::poll_table_struct) {
        // SAFETY: `raw` is valid by the type's invariant. A thread that waits in poll() holds the
        // file, and by the function's requirement `raw` is valid as long as the file is open.
        unsafe { helpers::pfc_notifier_poll(self.raw.as_ptr(), file.as_ptr(), table) }
    }

    /// Adds a file to the files whose owners get SIGIO from the wait queue, or removes the file.
    ///
    /// # Safety
    ///
    /// The wait queue lives as long as the file is open.
    pub unsafe fn fasync(&self, file: *mut bindings::file, fd: c_int, on: bool) -> Result {
        let raw = self.raw.as_ptr();
        // SAFETY: `raw` is valid by the type's invariant. By the function's requirement `raw` is
        // valid until the file is closed, when the kernel removes the file from the notifier.
        to_result(unsafe { helpers::pfc_notifier_fasync(raw, fd, file, on.into()) })
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

/// A wait queue that is freed when this value is dropped.
///
/// # Invariants
///
/// `self` owns the notifier, which `pfc_notifier_new()` has created.
pub struct OwnedWaitQueue(WaitQueue);

impl OwnedWaitQueue {
    /// Creates a wait queue. Returns `ENOMEM` if memory is short. May sleep.
    pub fn new() -> Result<Self> {
        // SAFETY: `pfc_notifier_new()` may sleep in the allocation, because the caller is in
        // process context.
        let raw = unsafe { helpers::pfc_notifier_new() };
        // INVARIANT: The notifier was just created, and is freed by drop only.
        Ok(Self(WaitQueue {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
        }))
    }
}

impl Deref for OwnedWaitQueue {
    type Target = WaitQueue;

    #[inline]
    fn deref(&self) -> &WaitQueue {
        &self.0
    }
}

impl Drop for OwnedWaitQueue {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` owns the notifier, which is no longer used.
        // `pfc_notifier_free()` waits for the notifier's irq_work to finish.
        unsafe { helpers::pfc_notifier_free(self.0.raw.as_ptr()) }
    }
}
