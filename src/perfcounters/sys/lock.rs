// SPDX-License-Identifier: GPL-2.0

//! The registry and its lock.
//!
//! Lock order: `REGISTRY` is innermost. Nothing is called under it that takes
//! another lock of ours or touches user memory; page faults of mappings do not
//! take it.

use core::pin::Pin;

use engine::registry::Registry;

use crate::pages::Pages;

kernel::sync::global_lock! {
    // SAFETY: Initialised in module init, before a device or a symbol of ours
    // can be reached.
    /// All instances; `None` before init and after exit.
    pub(crate) unsafe(uninit) static REGISTRY: Mutex<Option<Registry<Pages>>> = None;
}

/// Makes the lock usable. Called once, first thing in module init.
pub(crate) fn init() {
    // SAFETY: Called once, from module init.
    unsafe { REGISTRY.init() }
}
