// SPDX-License-Identifier: GPL-2.0

//! The registry and its lock.
//!
//! Lock order: `REGISTRY` is innermost. Nothing is called under it that takes
//! another lock of ours or touches user memory; page faults of mappings do not
//! take it.

use core::pin::Pin;

use engine::registry::Registry;
use kernel::sync::Arc;

use crate::accounting::Accounting;
use crate::formats::Formats;
use crate::pages::Pages;
use crate::pmu::{self, Pmus};
use crate::provider::Probes;
use crate::session::Session;
use crate::tracing::children::Sharing;
use crate::tracing::Tracing;

kernel::sync::global_lock! {
    // SAFETY: Initialised in module init, before a device or a symbol of ours
    // can be reached.
    /// All instances; `None` before init and after exit.
    pub(crate) unsafe(uninit) static REGISTRY: Mutex<Option<Registry<Pages>>> = None;
}

kernel::sync::global_lock! {
    // SAFETY: Initialised in module init, before a device or a symbol of ours can be reached.
    /// The descriptions of PMUs. Innermost.
    pub(crate) unsafe(uninit) static PMUS: Mutex<Pmus> = Pmus::NONE;
}

kernel::sync::global_lock! {
    // SAFETY: Initialised in module init, before a device or a symbol of ours can be reached.
    /// The sampling formats. Innermost.
    pub(crate) unsafe(uninit) static FORMATS: Mutex<Formats> = Formats::NONE;
}

kernel::sync::global_lock! {
    // SAFETY: Initialised in module init, before a device or a symbol of ours can be reached.
    /// What is there while contexts are attached. Outermost.
    pub(crate) unsafe(uninit) static SESSION: Mutex<Session> = Session::IDLE;
}

kernel::sync::global_lock! {
    // SAFETY: Initialised in module init, before a device or a symbol of ours can be reached.
    /// The PMU that is ours, for CPUs that come. Under `SESSION`, and in hotplug.
    pub(crate) unsafe(uninit) static HELD: Mutex<Option<Arc<pmu::Registers>>> = None;
}

kernel::sync::global_lock! {
    // SAFETY: Initialised in module init, before a device or a symbol of ours can be reached.
    /// Process accounting. `REGISTRY` is taken under it, and CPUs' hotplug waited for.
    pub(crate) unsafe(uninit) static ACCOUNTING: Mutex<Accounting> = Accounting::OFF;
}

kernel::sync::global_lock! {
    // SAFETY: Initialised in module init, before a device or a symbol of ours can be reached.
    /// Who makes files of a task. Around `ACCOUNTING`, which is not held when files are made
    /// or removed, as their readers take it.
    pub(crate) unsafe(uninit) static ENTRIES: Mutex<()> = ();
}

kernel::sync::global_lock! {
    // SAFETY: Initialised in module init, before a device or a symbol of ours can be reached.
    /// User tracing. Page faults of traced processes take it: no user memory is touched under
    /// it. The file system's locks of mappings are taken under it.
    pub(crate) unsafe(uninit) static TRACING: Mutex<Tracing> = Tracing::NONE;
}

kernel::sync::global_lock! {
    // SAFETY: Initialised in module init, before `/dev/perftrace` can be opened.
    /// What tells user tracing of processes that share memory. Tracepoints' locks are taken under
    /// it.
    pub(crate) unsafe(uninit) static SHARING: Mutex<Option<Probes<Sharing>>> = None;
}

/// Makes the locks usable. Called once, first thing in module init.
pub(crate) fn init() {
    // SAFETY: Called once, from module init.
    unsafe {
        REGISTRY.init();
        PMUS.init();
        FORMATS.init();
        SESSION.init();
        HELD.init();
        ACCOUNTING.init();
        ENTRIES.init();
        TRACING.init();
        SHARING.init();
    }
}
