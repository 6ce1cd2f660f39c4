// SPDX-License-Identifier: GPL-2.0

//! This module, references to it, and requests to load other modules.

use kernel::bindings;
use kernel::error::to_result;
use kernel::ffi::CStr;
use kernel::prelude::*;
use kernel::types::Opaque;

#[allow(improper_ctypes, reason = "kernel structures hold empty lock classes")]
extern "C" {
    /// The `struct module` of the module into which this code is linked. C code calls it
    /// `THIS_MODULE`.
    static __this_module: Opaque<bindings::module>;
}

/// Returns the `struct module` of this module, to be set as the owner of file operations.
pub const fn this_module_ptr() -> *mut bindings::module {
    (&raw const __this_module).cast_mut().cast()
}

/// A reference to a module, which keeps the module loaded.
///
/// # Invariants
///
/// `self` holds a reference to the module, unless the pointer is NULL because the module's code is
/// built into the kernel. When a reference to this module is dropped, the caller holds another
/// reference to this module, so that the module's code stays loaded.
pub struct ModuleRef(*mut bindings::module);

// SAFETY: A module reference is not bound to a thread.
unsafe impl Send for ModuleRef {}
// SAFETY: `&ModuleRef` gives no access to the module.
unsafe impl Sync for ModuleRef {}

impl ModuleRef {
    /// Takes a reference to this module. Called in a system call on an open file of this module.
    pub fn of_this_module() -> Self {
        // SAFETY: The open file on which the system call was made holds a reference to the module
        // already.
        // INVARIANT: The reference to the module was just taken.
        unsafe { bindings::__module_get(this_module_ptr()) };
        Self(this_module_ptr())
    }

    /// Takes a reference to the module `owner`. Returns `None` if the module is being loaded or
    /// unloaded. A module whose init has not finished is not referenced, because a failing init
    /// frees the module despite the reference.
    ///
    /// # Safety
    ///
    /// `owner` is NULL, or a module that is not freed during the call.
    pub unsafe fn of_module_if_live(owner: *mut bindings::module) -> Option<Self> {
        // SAFETY: By the function's requirement `owner` is NULL or valid.
        let lives = unsafe { owner.as_ref() }
            .is_none_or(|m| m.state == bindings::module_state_MODULE_STATE_LIVE);
        // SAFETY: By the function's requirement `owner` is NULL or valid.
        // INVARIANT: `try_module_get()` has taken the reference.
        (lives && unsafe { bindings::try_module_get(owner) }).then(|| Self(owner))
    }
}

impl Drop for ModuleRef {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` holds a reference, which is dropped once.
        unsafe { bindings::module_put(self.0) }
    }
}

/// Requests that user space loads the module with the alias `alias`, and waits until modprobe has
/// ended. May sleep.
///
/// # Errors
///
/// An error means that modprobe was not executed to its end, for example because memory is short.
/// If modprobe ends without loading a module, the result is `Ok`.
pub fn request_module(alias: &CStr) -> Result {
    // SAFETY: The format string takes one argument, a C string, and `alias` is a C string.
    to_result(unsafe { bindings::__request_module(true, c"%s".as_char_ptr(), alias.as_char_ptr()) })
}
