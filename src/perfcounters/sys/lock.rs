// SPDX-License-Identifier: GPL-2.0

//! The global mutexes of the module, and their lock order.
//!
//! Each item lists mutexes in lock order, outermost first. Mutexes of different items are not
//! nested, with one exception: the mutexes of the last item may be taken under any other mutex.
//!
//! - `SESSION`, then `RESERVED_PMU`;
//! - `TASK_FILES`, then `ACCOUNTING`, then `REGISTRY`;
//! - `TRACING` and `SHARED_MEMORY_PROBE`, which are not nested with each other;
//! - `PMUS`, `FORMATS` and `REGISTRY` are innermost: under them no other mutex of this module is
//!   taken and no user memory is accessed. Page faults of counter pages do not take `REGISTRY`.

use core::pin::Pin;

use counters_rules::registry::Registry;
use kernel::sync::Arc;

use crate::accounting::Accounting;
use crate::base::tracepoint::Probes;
use crate::formats::Formats;
use crate::pages::Pages;
use crate::pmu::{self, Pmus};
use crate::session::Session;
use crate::tracing::children::SharedMemoryProbe;
use crate::tracing::Tracing;

kernel::sync::global_lock! {
    // SAFETY: `init` initialises the mutex before a device or an exported symbol of this module can
    // be used.
    /// All instances of the counter pages; `None` before init and after exit.
    pub(crate) unsafe(uninit) static REGISTRY: Mutex<Option<Registry<Pages>>> = None;
}

kernel::sync::global_lock! {
    // SAFETY: `init` initialises the mutex before a device or an exported symbol of this module can
    // be used.
    /// The registered PMU descriptions. No mutex of this module is taken under `PMUS`. CPU hotplug
    /// callbacks also take it.
    pub(crate) unsafe(uninit) static PMUS: Mutex<Pmus> = Pmus::NONE;
}

kernel::sync::global_lock! {
    // SAFETY: `init` initialises the mutex before a device or an exported symbol of this module can
    // be used.
    /// The registered sampling formats. No mutex of this module is taken under `FORMATS`.
    pub(crate) unsafe(uninit) static FORMATS: Mutex<Formats> = Formats::NONE;
}

kernel::sync::global_lock! {
    // SAFETY: `init` initialises the mutex before a device or an exported symbol of this module can
    // be used.
    /// The attached contexts, the registers that these contexts have claimed, and the probes of the
    /// scheduler's tracepoints. No other mutex of this module is held when `SESSION` is taken. CPU
    /// hotplug callbacks must not take it.
    pub(crate) unsafe(uninit) static SESSION: Mutex<Session> = Session::IDLE;
}

kernel::sync::global_lock! {
    // SAFETY: `init` initialises the mutex before a device or an exported symbol of this module can
    // be used.
    /// The registers of the reserved PMU, which a CPU that comes online needs. `RESERVED_PMU` is
    /// taken under `SESSION`, and by CPU hotplug callbacks.
    pub(crate) unsafe(uninit) static RESERVED_PMU: Mutex<Option<Arc<pmu::Registers>>> = None;
}

kernel::sync::global_lock! {
    // SAFETY: `init` initialises the mutex before a device or an exported symbol of this module can
    // be used.
    /// The state of process accounting. The CPU hotplug lock and `REGISTRY` are taken under
    /// `ACCOUNTING`. CPU hotplug callbacks therefore must not take it.
    pub(crate) unsafe(uninit) static ACCOUNTING: Mutex<Accounting> = Accounting::OFF;
}

kernel::sync::global_lock! {
    // `TASK_FILES` serialises the selection of single tasks for accounting, which creates
    // `/proc/ppa/PID`. It is taken before `ACCOUNTING`. The files in `/proc/ppa/PID` are created
    // and removed without `ACCOUNTING`, because readers of these files take `ACCOUNTING`.
    // SAFETY: `init` initialises the mutex before a device or an exported symbol of this module can
    // be used.
    pub(crate) unsafe(uninit) static TASK_FILES: Mutex<()> = ();
}

kernel::sync::global_lock! {
    // SAFETY: `init` initialises the mutex before a device or an exported symbol of this module can
    // be used.
    /// The state of user tracing. Page faults of traced processes take `TRACING`, so no user memory
    /// is accessed under it. A file's `i_mmap_rwsem`, the lock of its mappings, is taken under
    /// `TRACING`.
    pub(crate) unsafe(uninit) static TRACING: Mutex<Tracing> = Tracing::NONE;
}

kernel::sync::global_lock! {
    // SAFETY: `init` initialises the mutex before `/dev/perftrace` can be opened.
    /// The tracepoint probe that reports new processes that share the memory of a traced process.
    /// The kernel's tracepoint locks are taken under `SHARED_MEMORY_PROBE`.
    pub(crate) unsafe(uninit) static SHARED_MEMORY_PROBE:
        Mutex<Option<Probes<SharedMemoryProbe>>> = None;
}

/// Initialises the mutexes. Called once, as the first step of module init.
pub(crate) fn init() {
    // SAFETY: Each mutex is initialised once, in module init, before it is used.
    unsafe {
        REGISTRY.init();
        PMUS.init();
        FORMATS.init();
        SESSION.init();
        RESERVED_PMU.init();
        ACCOUNTING.init();
        TASK_FILES.init();
        TRACING.init();
        SHARED_MEMORY_PROBE.init();
    }
}
