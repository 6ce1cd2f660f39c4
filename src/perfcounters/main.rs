// SPDX-License-Identifier: GPL-2.0

//! perfcounters.ko: per-CPU counter pages (`/dev/perfcounters`), PMU monitoring (`/dev/perfmon`),
//! process accounting (`/dev/ppa`) and user tracing.
//!
//! The counter pages: drivers call [`counters`] through `sys::export` to add counter instances. The
//! registry of instances (`counters_rules`) assigns numbers to the instances, and stores their
//! descriptors and counters in the memory that [`pages`] allocates. `sys::file` maps this memory
//! into user space. [`names`] prints the instances as text. Drivers in Rust use the module
//! [`driver`]; provider modules in Rust use [`provider`].

#![deny(missing_docs)]

mod accounting;
mod accounting_config;
mod accounting_cpus;
mod accounting_state;
mod attach;
#[path = "../base/base.rs"]
pub mod base;
mod contexts;
mod costs;
pub mod counters;
mod cpu_fit;
mod cpu_kinds;
mod cpu_stats;
mod cpus;
#[allow(missing_docs, reason = "documented in the C header")]
#[path = "../../include/linux/perfmon.rs"]
pub mod description;
#[path = "../../include/linux/perfcounters.rs"]
pub mod driver;
mod ended_tasks;
mod ends;
mod event_set;
mod formats;
mod interrupt;
mod messages;
mod names;
mod pages;
mod per_task;
mod permission;
mod permission_checks;
mod pmu;
mod pmu_map;
mod probes;
pub mod provider;
mod registers;
mod reservation;
mod sampling;
mod sampling_state;
mod session;
mod sets;
mod status;
pub mod sys;
mod target;
mod tracing;
mod transitions;
mod virtual_counters;

use base::hotplug::Registration;
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

/// The state of perfcounters.ko while the module is loaded. When the module is unloaded, the fields
/// are dropped in the order of their declaration: first the devices, so that no device can be
/// opened, then the CPU hotplug callbacks, and later the counter pages. When the fields are
/// dropped, no file of the module is open and no driver that uses the module is loaded, because
/// each of them holds a reference to the module.
struct PerfCounters {
    _trace: sys::trace::TraceDevice,
    _perfmon: base::device::Device,
    _work: session::Work,
    _nmi: sys::nmi::Handler,
    _ppa: base::device::Device,
    _ppa_files: sys::proc::Files,
    _map: sys::pmu_map::MapFile,
    _ppa_power: base::power::Registration<accounting_cpus::Power>,
    _perfmon_power: base::power::Registration<cpus::Power>,
    _devices: sys::file::Devices,
    _ppa_cpus: Registration<accounting_cpus::Hotplug>,
    _perfmon_cpus: Registration<cpus::Hotplug>,
    _counters_cpus: Registration<counters::Hotplug>,
    _ppa_dead_cpus: Registration<accounting_cpus::Hotplug>,
    _tree: sys::pmu::DebugfsTree,
    _trace_stats: sys::trace_stats::TraceStats,
    _accounting_stats: sys::accounting_stats::AccountingStats,
    _fault_stats: sys::fault_stats::FaultStats,
    _costs: costs::SelfStats,
    _modules: sys::modules::UnloadNotifier,
    _registry: counters::RegistryGuard,
    _works: base::task::TaskWorks,
    _threads: sys::threads::ThreadTable,
    _rights: base::access::ProcfsMount,
}

/// Initialises the global mutexes. The first step of module init: no device and no exported symbol
/// of this module can be used yet.
fn init_mutexes() {
    use base::global_mutex::init;
    init(&counters::REGISTRY);
    init(&pmu::PMUS);
    init(&formats::FORMATS);
    init(&session::SESSION);
    init(&reservation::RESERVED_PMU);
    init(&accounting::ACCOUNTING);
    init(&per_task::TASK_FILES);
    init(&tracing::traces::TRACING);
    init(&tracing::children::SHARED_MEMORY_PROBE);
}

impl kernel::Module for PerfCounters {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        init_mutexes();
        let registry = counters::RegistryGuard::new(base::kernel_version::param_value(
            &module_parameters::pages_per_chunk,
        ))?;
        let modules = sys::modules::UnloadNotifier::register()?;
        let costs = costs::SelfStats::new()?;
        let fault_stats = sys::fault_stats::FaultStats::new()?;
        costs::set_fault_counters(fault_stats.counters());
        let accounting_stats = sys::accounting_stats::AccountingStats::new()?;
        let trace_stats = sys::trace_stats::TraceStats::new(fault_stats.counters())?;
        // Create the debugfs tree before the hotplug callbacks of perfmon are registered, because
        // they create a directory in the tree for each CPU.
        let tree = sys::pmu::DebugfsTree::create(sys::proc::show_users);
        let rights = base::access::ProcfsMount::mount()?;
        let threads = sys::threads::ThreadTable::create()?;
        let ppa_dead_cpus = Registration::register_dead()?;
        let counters_cpus = Registration::register()?;
        let perfmon_cpus = Registration::register()?;
        let ppa_cpus = Registration::register()?;
        // The fields are initialized in the order below. If a field cannot be initialized, the
        // fields before it are dropped in reverse order and the module is freed at once, so most
        // devices are registered last.
        let this = Self {
            _registry: registry,
            _modules: modules,
            _costs: costs,
            _fault_stats: fault_stats,
            _accounting_stats: accounting_stats,
            _trace_stats: trace_stats,
            _tree: tree,
            _ppa_dead_cpus: ppa_dead_cpus,
            _counters_cpus: counters_cpus,
            _perfmon_cpus: perfmon_cpus,
            _ppa_cpus: ppa_cpus,
            _map: sys::pmu_map::MapFile::create()?,
            _perfmon_power: base::power::Registration::register()?,
            _ppa_power: base::power::Registration::register()?,
            _works: base::task::TaskWorks,
            _threads: threads,
            _rights: rights,
            _devices: sys::file::Devices::register()?,
            _nmi: sys::nmi::Handler::register()?,
            _work: session::Work::create()?,
            _perfmon: sys::perfmon::register()?,
            _ppa_files: sys::proc::Files::create()?,
            _ppa: sys::ppa::register()?,
            _trace: sys::trace::TraceDevice::register()?,
        };
        sys::file::READY.set();
        sys::perfmon::READY.set();
        sys::ppa::READY.set();
        sys::trace::READY.set();
        Ok(this)
    }
}
