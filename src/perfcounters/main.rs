// SPDX-License-Identifier: GPL-2.0

//! perfcounters.ko: per-CPU counter pages, `/dev/perfcounters`.
//!
//! In the order in which data flows: drivers call [`counters`] through
//! `sys::export`; the engine's registry decides; [`pages`] holds what it
//! decides about, in pages that `sys::file` maps; [`names`] tells it as text.
//! What drivers in Rust use is in [`driver`], what providers use in [`provider`].

#![deny(missing_docs)]

mod accounting;
mod accounts;
mod contexts;
mod costs;
pub mod counters;
#[allow(missing_docs, reason = "documented in the C header")]
#[path = "../../include/linux/perfmon.rs"]
pub mod description;
#[path = "../../include/linux/perfcounters.rs"]
pub mod driver;
mod entries;
mod formats;
mod kinds;
mod messages;
mod names;
mod pages;
mod pmu;
pub mod provider;
mod registers;
mod sampling;
mod session;
mod sets;
pub mod sys;
mod target;
mod totals;
mod tracing;
mod watch;

use kernel::prelude::*;

module! {
    type: PerfCounters,
    name: "perfcounters",
    authors: ["The perfcounters developers"],
    description: "Per-CPU counter pages, mapped read-only into user space",
    license: "GPL",
    params: {
        pages_per_chunk: u32 {
            default: 1,
            description: "Pages of one CPU in each chunk of counters, 1 to 8",
        },
    },
}

/// What lives while the module is loaded, in the order in which it goes: first
/// nobody can open the devices, then CPUs no longer report, then the pages go.
/// No file is open and no driver loaded by then, or the module could not be
/// removed.
struct PerfCounters {
    _trace: sys::trace::Tracer,
    _perfmon: sys::file::Device,
    _work: sys::wake::Work,
    _nmi: sys::nmi::Handler,
    _ppa: sys::file::Device,
    _ppa_files: sys::proc::Files,
    _map: sys::pmu::MapFile,
    _sleep: sys::wake::Sleep,
    _devices: sys::file::Devices,
    _hotplug: sys::cpu::Hotplug,
    _tree: sys::pmu::Tree,
    _costs: costs::Costs,
    _modules: sys::modules::Watch,
    _registry: counters::Loaded,
    _works: sys::task::Works,
    _threads: sys::threads::Threads,
    _rights: sys::rights::Rights,
}

impl kernel::Module for PerfCounters {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let registry =
            counters::Loaded::new(sys::release::given(&module_parameters::pages_per_chunk))?;
        let modules = sys::modules::Watch::begin()?;
        let costs = costs::Costs::new()?;
        // Each CPU has a branch of it.
        let tree = sys::pmu::Tree::create();
        let rights = sys::rights::Rights::begin()?;
        let threads = sys::threads::Threads::begin()?;
        let hotplug = sys::cpu::Hotplug::register()?;
        // In this order: what users can open is there last, as a module whose init
        // fails goes at once: the last one of these first.
        let this = Self {
            _registry: registry,
            _modules: modules,
            _costs: costs,
            _tree: tree,
            _hotplug: hotplug,
            _map: sys::pmu::MapFile::create()?,
            _sleep: sys::wake::Sleep::register(),
            _works: sys::task::Works,
            _threads: threads,
            _rights: rights,
            _devices: sys::file::Devices::register()?,
            _nmi: sys::nmi::Handler::register()?,
            _work: sys::wake::Work::begin()?,
            _perfmon: sys::perfmon::register()?,
            _ppa_files: sys::proc::Files::create()?,
            _ppa: sys::ppa::register()?,
            _trace: sys::trace::Tracer::register()?,
        };
        sys::file::ready();
        Ok(this)
    }
}
