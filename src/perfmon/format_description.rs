// SPDX-License-Identifier: GPL-2.0

//! Sampling formats that modules register (`include/linux/perfmon.h`).

#![expect(unsafe_code, reason = "descriptions of format modules, in C")]

use kernel::ffi::CStr;
use kernel::prelude::*;
use protocols::PAGE_SIZE;

use crate::description::{self, RawFormat};
use base::module::ModuleRef;

/// A registered sampling format.
///
/// # Invariants
///
/// A module has registered `raw`, and has not unregistered it yet.
pub(crate) struct FormatDescription {
    pub(crate) raw: *const RawFormat,
}

// SAFETY: The `struct perfmon_format` is not written while it is registered.
unsafe impl Send for FormatDescription {}
// SAFETY: The `struct perfmon_format` is not written while it is registered.
unsafe impl Sync for FormatDescription {}

impl FormatDescription {
    pub(crate) fn raw(&self) -> &RawFormat {
        // SAFETY: By the type's invariant `raw` is registered. The module that registered `raw`
        // keeps `raw` valid until the module unregisters `raw`.
        unsafe { &*self.raw }
    }

    /// Returns whether this format is described by the structure at address `raw`.
    pub(crate) fn is(&self, raw: *const RawFormat) -> bool {
        self.raw == raw
    }

    /// Returns the name of the format; empty if the pointer is NULL.
    pub(crate) fn name(&self) -> &CStr {
        if self.raw().name.is_null() {
            return c"";
        }
        // SAFETY: The name is a C string, which the format's module keeps valid while the format is
        // registered.
        unsafe { CStr::from_char_ptr(self.raw().name) }
    }

    /// Returns the UUID of the format.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        self.raw().uuid
    }

    /// Returns whether the format is valid: it has layout() and overflow(), a queue of 1 to 30
    /// messages, an argument of at most `FORMAT_ARG` bytes and a state of at most a page.
    pub(crate) fn is_valid(&self) -> bool {
        let raw = self.raw();
        raw.layout.is_some()
            && raw.overflow.is_some()
            && (1..31).contains(&raw.queue_depth)
            && raw.arg_size as usize <= perfmon_rules::abi::FORMAT_ARG
            && raw.state_size as usize <= PAGE_SIZE
    }

    /// Takes a reference to the format's module: the module and the format exist until the result
    /// is dropped. Returns `None` if the module is being loaded or unloaded.
    pub(crate) fn pin(&self) -> Option<Pinned> {
        // SAFETY: The owner is NULL, or a module that cannot be freed while its format is
        // registered.
        let _module = unsafe { ModuleRef::of_live_module(self.raw().owner) }?;
        // INVARIANT: `_module` is the reference to the owner of `raw`.
        Some(Pinned {
            raw: self.raw,
            _module,
        })
    }
}

/// A sampling format whose module cannot be unloaded, because this value holds a reference to it.
///
/// # Invariants
///
/// `_module` refers to the module that owns `raw`. The module keeps `raw` registered until the
/// module is unloaded.
pub(crate) struct Pinned {
    pub(crate) raw: *const RawFormat,
    _module: ModuleRef,
}

// SAFETY: Any thread may drop a module reference and read the constants of a registered format.
unsafe impl Send for Pinned {}
// SAFETY: A shared `Pinned` only gives access to the constants of a registered format.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub(crate) fn raw(&self) -> &RawFormat {
        // SAFETY: By the type's invariant the owner is pinned and `raw` is registered.
        unsafe { &*self.raw }
    }

    /// Returns the size of the format's argument in bytes.
    pub(crate) fn arg_size(&self) -> usize {
        self.raw().arg_size as usize
    }

    /// Returns whether `PERFMON_RESTART` calls the format's restart() even if the context is not
    /// masked.
    pub(crate) fn restarts_active(&self) -> bool {
        self.raw().flags & description::RESTART_ACTIVE != 0
    }

    /// Returns the maximum number of queued overflow messages.
    pub(crate) fn queue_depth(&self) -> usize {
        self.raw().queue_depth as usize
    }
}
