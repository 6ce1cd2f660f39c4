// SPDX-License-Identifier: GPL-2.0

//! perfcounters.ko: per-CPU counter pages (`/dev/perfcounters`), and the functions of
//! `src/base/helpers` that the other modules use.
//!
//! Drivers call [`mod@export`], which calls [`instances`] to add counter
//! instances. The registry of instances (`counters_rules`) assigns numbers to the instances, and
//! stores their descriptors and counters in the memory that [`pages`] allocates. [`device`] maps
//! the memory of [`pages`] into user space. [`names_device`] prints the instances as text. Drivers in Rust
//! include the module [`driver`]; provider modules in Rust use the crate `provider`.
//!
//! | file | contents |
//! |---|---|
//! | `export` | the C interface for drivers |
//! | `instances` | adds and deletes instances |
//! | `tables` | lock-free tables: instance numbers to addresses |
//! | `pages` | the pages that programs map: the header page, descriptors, counters |
//! | `device`, `names_device` | the devices; the list of names |
//! | `owner` | modules as owners of instances |
//! | `stats`, `log` | counters of page faults; rate limits of log lines |
//! | `provider`, `keyed_counters` | the crate `provider`: the interface for providers; tables that find instances by key in a probe |
//! | `helpers` | declarations of the C code in `helpers/` |

#![deny(missing_docs)]
#![deny(unsafe_code)]

pub(crate) mod device;
#[path = "../../include/linux/perfcounters.rs"]
mod driver;
pub(crate) mod export;
pub(crate) mod helpers;
mod instances;
pub(crate) mod log;
mod names_device;
pub(crate) mod owner;
mod pages;
pub(crate) mod stats;
pub(crate) mod tables;

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
/// opened, then the CPU hotplug callbacks, and later the counter pages. During the unload no file
/// of perfcounters.ko is open and no dependent module is loaded, because each open file and each
/// dependent module holds a reference to perfcounters.ko.
struct PerfCounters {
    _devices: device::CounterPageDevices,
    _cpus: base::hotplug::HotplugRegistration<instances::Hotplug>,
    _user_accounts_file: base::account::UserAccountsFile,
    _stats: stats::FaultStats,
    _modules: owner::ModuleUnloadNotifier,
    _registry: instances::RegistryOwner,
    _procfs_mount: base::access::PrivateProcfsMount,
}

impl kernel::Module for PerfCounters {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        base::lock::init_mutex(&instances::REGISTRY);
        let pages_per_chunk =
            base::kernel_version::module_param_value(&module_parameters::pages_per_chunk);
        let registry = instances::RegistryOwner::new(pages_per_chunk)?;
        let modules = owner::ModuleUnloadNotifier::register()?;
        let stats = stats::FaultStats::new()?;
        // The devices are registered last, so that no later step can fail and free the module.
        let this = Self {
            _registry: registry,
            _modules: modules,
            _stats: stats,
            _procfs_mount: base::access::PrivateProcfsMount::mount()?,
            _cpus: base::hotplug::HotplugRegistration::register()?,
            _user_accounts_file: base::account::UserAccountsFile::create(),
            _devices: device::CounterPageDevices::register()?,
        };
        device::MODULE_READY.set();
        Ok(this)
    }
}
