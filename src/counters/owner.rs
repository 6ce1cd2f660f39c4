// SPDX-License-Identifier: GPL-2.0

//! Kernel modules as owners of the instances that they add.

#![expect(unsafe_code, reason = "called by C with modules")]

use kernel::error::to_result;
use kernel::ffi::c_void;
use kernel::prelude::*;

use crate::helpers;

/// A module, identified by its address. While a module is loaded, no other module has its address.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct ModuleOwner(usize);

impl ModuleOwner {
    /// The owner of instances that belong to built-in code, which is never unloaded.
    pub(crate) const NONE: Self = Self(0);

    /// Returns the `ModuleOwner` that stands for the module at the address `module`.
    pub(crate) fn of_module(module: *const c_void) -> Self {
        Self(module as usize)
    }
}

/// The registered notifier by which the kernel reports the unloading of a module. Dropping this
/// value unregisters the notifier.
///
/// # Invariants
///
/// The notifier of module unload is registered.
pub(crate) struct ModuleUnloadNotifier(());

impl ModuleUnloadNotifier {
    /// Registers the notifier of module unload.
    pub(crate) fn register() -> Result<Self> {
        // SAFETY: `pfc_module_notifier_register()` is called once, and drop unregisters the
        // notifier.
        to_result(unsafe { helpers::pfc_module_notifier_register() })?;
        // INVARIANT: The notifier was just registered.
        Ok(Self(()))
    }
}

impl Drop for ModuleUnloadNotifier {
    fn drop(&mut self) {
        // SAFETY: The notifier is registered, by the type's invariant.
        unsafe { helpers::pfc_module_notifier_unregister() }
    }
}
