// SPDX-License-Identifier: GPL-2.0

//! perfcounters.ko: per-CPU counter pages (`/dev/perfcounters`) and PMU monitoring
//! (`/dev/perfmon`).
//!
//! The counter pages: drivers call [`mod@export`], which calls [`instances`] to add counter
//! instances. The registry of instances (`counters_rules`) assigns numbers to the instances, and
//! stores their descriptors and counters in the memory that [`pages`] allocates. [`device`] maps
//! this memory into user space. [`names`] prints the instances as text. Drivers in Rust use the
//! module [`driver`]; provider modules in Rust use [`provider`]. PMU monitoring is in [`perfmon`].
//!
//! | file | contents |
//! |---|---|
//! | `export` | the C interface for drivers, apart from `perf_adjust()` |
//! | `adjust` | `perf_adjust()` |
//! | `instances` | adds and deletes instances |
//! | `tables` | lock-free tables: instance numbers to addresses |
//! | `pages`, `header`, `chunk` | the pages that programs map: all, the header page, the counters of one CPU |
//! | `device`, `names` | the devices; the list of names |
//! | `owner` | modules as owners of instances |
//! | `stats`, `log` | counters of page faults; rate limits of log lines |
//! | `provider`, `keyed_counters` | the interface for providers; tables that find instances by key in a probe |
//! | `helpers` | declarations of the C code in `helpers/` |

#![deny(missing_docs)]
#![deny(unsafe_code)]

pub(crate) mod adjust;
pub(crate) mod chunk;
#[allow(missing_docs, reason = "documented in the C header")]
#[path = "../../include/linux/perfmon.rs"]
pub mod description;
pub(crate) mod device;
#[path = "../../include/linux/perfcounters.rs"]
pub mod driver;
pub(crate) mod export;
pub(crate) mod header;
pub(crate) mod helpers;
pub mod instances;
pub mod keyed_counters;
pub(crate) mod log;
mod names;
pub(crate) mod owner;
mod pages;
#[path = "../perfmon/mod.rs"]
mod perfmon;
pub mod provider;
pub(crate) mod stats;
pub(crate) mod tables;

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
    _perfmon: base::device::Device,
    _work: perfmon::session::Work,
    _nmi: perfmon::nmi::Handler,
    _map: perfmon::pmu_map_file::MapFile,
    _perfmon_power: base::power::Registration<perfmon::cpus::Power>,
    _devices: device::Devices,
    _perfmon_cpus: Registration<perfmon::cpus::Hotplug>,
    _counters_cpus: Registration<instances::Hotplug>,
    _tree: perfmon::pmu_description::DebugfsTree,
    _fault_stats: stats::FaultStats,
    _costs: perfmon::stats::SelfStats,
    _modules: owner::UnloadNotifier,
    _registry: instances::RegistryGuard,
    _works: base::task::TaskWorks,
    _threads: perfmon::contexts::thread_table::ThreadTable,
    _rights: base::access::ProcfsMount,
}

/// Initialises the global mutexes. The first step of module init: no device and no exported symbol
/// of this module can be used yet.
fn init_mutexes() {
    use base::global_mutex::init;
    init(&instances::REGISTRY);
    init(&perfmon::pmus::PMUS);
    init(&perfmon::formats::FORMATS);
    init(&perfmon::session::SESSION);
    init(&perfmon::reservation::RESERVED_PMU);
}

impl kernel::Module for PerfCounters {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        init_mutexes();
        let registry = instances::RegistryGuard::new(base::kernel_version::param_value(
            &module_parameters::pages_per_chunk,
        ))?;
        let modules = owner::UnloadNotifier::register()?;
        let costs = perfmon::stats::SelfStats::new()?;
        let fault_stats = stats::FaultStats::new()?;
        perfmon::stats::set_fault_counters(fault_stats.counters());
        // Create the debugfs tree before the hotplug callbacks of perfmon are registered, because
        // they create a directory in the tree for each CPU.
        let tree = perfmon::pmu_description::DebugfsTree::create();
        let rights = base::access::ProcfsMount::mount()?;
        let threads = perfmon::contexts::thread_table::ThreadTable::create()?;
        let counters_cpus = Registration::register()?;
        let perfmon_cpus = Registration::register()?;
        // The fields are initialized in the order below. If a field cannot be initialized, the
        // fields before it are dropped in reverse order and the module is freed at once, so most
        // devices are registered last.
        let this = Self {
            _registry: registry,
            _modules: modules,
            _costs: costs,
            _fault_stats: fault_stats,
            _tree: tree,
            _counters_cpus: counters_cpus,
            _perfmon_cpus: perfmon_cpus,
            _map: perfmon::pmu_map_file::MapFile::create()?,
            _perfmon_power: base::power::Registration::register()?,
            _works: base::task::TaskWorks,
            _threads: threads,
            _rights: rights,
            _devices: device::Devices::register()?,
            _nmi: perfmon::nmi::Handler::register()?,
            _work: perfmon::session::Work::create()?,
            _perfmon: perfmon::device::register()?,
        };
        device::READY.set();
        perfmon::device::READY.set();
        Ok(this)
    }
}
