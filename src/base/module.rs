// SPDX-License-Identifier: GPL-2.0

//! This module, references to it, and requests to load other modules.

use kernel::bindings;
use kernel::ffi::CStr;
use kernel::prelude::*;
use kernel::types::Opaque;

#[allow(improper_ctypes, reason = "kernel structures hold empty lock classes")]
extern "C" {
    /// The `struct module` of the module that this code is linked into: `THIS_MODULE` in C.
    static __this_module: Opaque<bindings::module>;
}

/// Returns this module, as the owner of file operations.
pub(crate) const fn module() -> *mut bindings::module {
    (&raw const __this_module).cast_mut().cast()
}

/// A reference to this module, for a trace that is kept without an open file.
///
/// # Invariants
///
/// `self` holds a reference to the module, and is dropped in a call that holds another reference.
pub(crate) struct ModuleRef(());

impl ModuleRef {
    /// Takes a reference to this module. Called in a system call on an open file of the module.
    pub(crate) fn new() -> Self {
        // SAFETY: The open file holds a reference to the module already.
        // INVARIANT: The reference was just taken.
        unsafe { bindings::__module_get(module()) };
        Self(())
    }
}

impl Drop for ModuleRef {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` holds a reference, which is dropped once.
        unsafe { bindings::module_put(module()) }
    }
}

/// Requests that user space loads the module with this alias, and waits until modprobe ends. Errors
/// are ignored. May sleep.
pub(crate) fn request_module(alias: &CStr) {
    // SAFETY: The format string takes one C string, which is passed.
    let _ = unsafe { bindings::__request_module(true, c"%s".as_char_ptr(), alias.as_char_ptr()) };
}
