// SPDX-License-Identifier: GPL-2.0

//! This module, references to it, and requests to load other modules.

use kernel::bindings;
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
pub const fn module() -> *mut bindings::module {
    (&raw const __this_module).cast_mut().cast()
}

/// A reference to this module, held by a trace with `flag::KEEP`, so that the module stays loaded
/// while no file of the trace is open.
///
/// # Invariants
///
/// `self` holds a reference to this module. When `self` is dropped, the caller holds another
/// reference to the module, so that the module's code stays loaded.
pub struct ModuleRef(());

impl ModuleRef {
    /// Takes a reference to this module. Called in a system call on an open file of this module.
    pub fn new() -> Self {
        // SAFETY: The open file on which the system call was made holds a reference to the module
        // already.
        // INVARIANT: The reference to the module was just taken.
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

/// Requests that user space loads the module with the alias `alias`, and waits until modprobe has
/// ended. Errors are ignored. May sleep.
pub fn request_module(alias: &CStr) {
    // SAFETY: The format string takes one argument, a C string, and `alias` is a C string.
    let _ = unsafe { bindings::__request_module(true, c"%s".as_char_ptr(), alias.as_char_ptr()) };
}
