// SPDX-License-Identifier: GPL-2.0

//! perftrace.ko: user tracing (`/dev/perftrace`). `Documentation/tracing.md` describes the layout
//! of the buffers, and how a process writes to the buffers without a system call.
//!
//! The lock [`TRACING`](static@registry::TRACING) protects all state of user tracing. Page faults
//! of traced processes also take `TRACING`. Writing an event takes no lock.
//! `Documentation/architecture.md` lists the files.

#![deny(unsafe_code)]

mod buffer;
mod buffer_set;
mod child_memory;
mod children;
mod clock;
mod detach;
mod device;
#[path = "../../include/linux/perfcounters.rs"]
mod driver;
mod ends;
mod fault_memory;
mod glob_cache;
mod helpers;
mod kernel_events;
mod lock_yielder;
mod log;
mod mapping;
mod marker;
mod marker_bits;
mod membership;
mod page;
mod permission;
mod process;
mod process_calls;
mod process_memory;
mod reader_signal;
mod registry;
mod sorted;
mod stats;
mod trace;
mod trace_calls;

use kernel::prelude::*;

module! {
    type: PerfTrace,
    name: "perftrace",
    authors: ["The perfcounters developers"],
    description: "User-space tracing into buffers shared with the kernel (/dev/perftrace)",
    license: "GPL",
}

/// The state of perftrace.ko while the module is loaded. When the module is unloaded, the fields
/// are dropped in the order of their declaration: first the device, then the suspend and resume
/// callbacks, then the statistics. When the fields are dropped, no file of the device is open,
/// because each open file holds a reference to the module.
struct PerfTrace {
    _device: device::TraceDevice,
    _power: base::power::PowerRegistration<clock::ClockRestartDetector>,
    _stats: stats::TraceStats,
    _task_works: base::task::TaskWorksGuard,
}

impl kernel::Module for PerfTrace {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        base::lock::init_mutex(&registry::TRACING);
        base::lock::init_mutex(&children::SHARED_MEMORY_PROBE);
        let stats = stats::TraceStats::new()?;
        let this = Self {
            _task_works: base::task::TaskWorksGuard,
            _stats: stats,
            _power: base::power::PowerRegistration::register()?,
            _device: device::TraceDevice::register()?,
        };
        device::MODULE_READY.set();
        Ok(this)
    }
}
