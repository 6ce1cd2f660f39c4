// SPDX-License-Identifier: GPL-2.0

//! Registration of misc devices.
//!
//! The kernel crate's `MiscDevice` does not set the owner of its file operations, so that a module
//! could be removed while a file of the device is open. This module therefore uses file operations
//! of its own, which set the owner.

use core::cell::UnsafeCell;
use core::pin::Pin;

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KBox;
use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::ffi::{c_int, CStr};
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Release};

/// A structure of function pointers (such as `file_operations`) that is passed to C.
#[repr(transparent)]
pub struct Ops<T>(pub T);
// SAFETY: Each `Ops` is a static that is never written.
unsafe impl<T> Sync for Ops<T> {}

/// Whether the files of a device may be opened: a flag that is set when module init has succeeded.
///
/// A module whose init fails is freed without regard to open files, so no file may be open before
/// init has succeeded.
pub struct Ready(Atomic<u32>);

impl Ready {
    /// Creates the flag, which is not set.
    pub const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Sets the flag. Called at the end of module init, after the last step that can fail.
    pub fn set(&self) {
        // Pairs with the acquire in `check`: an open that succeeds sees all that init has set up.
        self.0.store(1, Release);
    }

    /// Returns `EAGAIN` until module init has succeeded. The open function of each device calls
    /// this function.
    pub fn check(&self) -> Result {
        // Pairs with the release in `set`: if the flag is set, all that init has set up is visible.
        match self.0.load(Acquire) {
            0 => Err(EAGAIN),
            _ => Ok(()),
        }
    }
}

/// A registered misc device. Dropping this value deregisters the device.
///
/// # Invariants
///
/// The miscdevice structure is pinned and registered.
pub struct Device(Pin<KBox<UnsafeCell<bindings::miscdevice>>>);

impl Device {
    /// Registers a misc device with a dynamic minor number. `name` and `ops` are static, because
    /// the kernel keeps pointers to both.
    pub fn register(
        name: &'static CStr,
        ops: &'static Ops<bindings::file_operations>,
        mode: u16,
    ) -> Result<Self> {
        let device = bindings::miscdevice {
            minor: bindings::MISC_DYNAMIC_MINOR as c_int,
            name: name.as_char_ptr(),
            fops: &ops.0,
            mode,
            ..pin_init::zeroed()
        };
        let device = KBox::pin(UnsafeCell::new(device), GFP_KERNEL)?;
        // SAFETY: The structure is pinned until drop, and its name and operations are static.
        to_result(unsafe { bindings::misc_register(device.get()) })?;
        // INVARIANT: The miscdevice structure is pinned, and was just registered.
        Ok(Self(device))
    }
}

// SAFETY: A device may be removed by any thread; `misc_deregister()` does its own locking.
unsafe impl Send for Device {}
// SAFETY: A shared reference to a `Device` gives no access to the miscdevice structure.
unsafe impl Sync for Device {}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: The device is registered, by the type's invariant.
        unsafe { bindings::misc_deregister(self.0.get()) }
    }
}
