// SPDX-License-Identifier: GPL-2.0

//! The kernel's modules, which own the instances that they add.

use kernel::error::to_result;
use kernel::ffi::{c_char, c_void};
use kernel::prelude::*;

use super::shim;
use crate::counters;

/// A module, by its address, which is another's only after it has gone.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Owner(usize);

impl Owner {
    /// The kernel itself, which never goes.
    pub(crate) const NONE: Self = Self(0);
}

/// We are told when one goes; drop ends that.
///
/// # Invariants
///
/// Registered.
pub(crate) struct Watch(());

impl Watch {
    /// From now on.
    pub(crate) fn begin() -> Result<Self> {
        // SAFETY: Once; drop ends it.
        to_result(unsafe { shim::pfc_modules_watch() })?;
        // INVARIANT: just registered.
        Ok(Self(()))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: Registered, by the type's invariant.
        unsafe { shim::pfc_modules_unwatch() }
    }
}

/// # Safety
///
/// `name` is a C string. Process context.
#[no_mangle]
unsafe extern "C" fn pfc_module_gone(module: *const c_void, name: *const c_char) {
    // SAFETY: By the function's requirement; used during this call only.
    counters::forget(Owner(module as usize), unsafe { CStr::from_char_ptr(name) });
}
