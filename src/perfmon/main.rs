// SPDX-License-Identifier: GPL-2.0

//! perfmon.ko: monitoring contexts (`/dev/perfmon`), event sets, sampling and PMU descriptions.
//! Other modules register PMU descriptions and sampling formats with perfmon.ko. perfmon.ko, and
//! each Rust module that registers with it, compiles a copy of the interface in [`description`].
//!
//! | file | contents |
//! |---|---|
//! | `device` | `/dev/perfmon`, its open files and their mappings |
//! | `self_page_memory` | the memory of the page from which a program reads its own context |
//! | `session`, `sched_probes` | what all attached contexts share: registers in use; probes of the scheduler |
//! | `reservation` | the reservation of the hardware PMU, and the reset of its registers |
//! | `hotplug`, `cpu_kinds` | CPU hotplug, suspend and resume; which registers a CPU has |
//! | `per_cpu` | per-CPU words: the loaded contexts and the counters in use |
//! | `pmus`, `pmu_description` | all registered PMU descriptions; one PMU description |
//! | `pmu_registers` | the registers of all PMU descriptions together, which contexts use |
//! | `pmu_map` | the file `/proc/perfmon_map` |
//! | `formats` | the registered sampling formats |
//! | `sample_buffer` | the buffers that formats fill |
//! | `nmi`, `msr` | the overflow NMI; access to MSRs and counters |
//! | `delayed_work` | work that is repeated or delayed |
//! | `stats` | counters of perfmon's own cost, and the debugfs files that show these counters |
//! | `helpers` | declarations of the C code in `helpers/` |

#![deny(unsafe_code)]

/// Contexts: their registers and event sets, and what changes their state.
mod contexts {
    pub(crate) mod attach;
    pub(crate) mod blocker;
    pub(crate) mod callbacks;
    pub(crate) mod context;
    pub(crate) mod cpu_fit;
    pub(crate) mod deferral;
    pub(crate) mod ends;
    pub(crate) mod event_set;
    pub(crate) mod messages;
    pub(crate) mod nmi_handler;
    pub(crate) mod overflow;
    pub(crate) mod permission;
    pub(crate) mod phase;
    pub(crate) mod register_access;
    pub(crate) mod sampling_calls;
    pub(crate) mod sampling_state;
    pub(crate) mod self_page;
    pub(crate) mod set_calls;
    pub(crate) mod set_switch;
    pub(crate) mod status;
    pub(crate) mod thread_table;
    pub(crate) mod throttling;
    pub(crate) mod timer;
    pub(crate) mod transitions;
}

mod cpu_kinds;
mod delayed_work;
#[path = "../../include/linux/perfmon.rs"]
mod description;
mod device;
#[path = "../../include/linux/perfcounters.rs"]
mod driver;
mod formats;
mod helpers;
mod hotplug;
mod msr;
mod nmi;
mod per_cpu;
mod pmu_description;
mod pmu_map;
mod pmu_registers;
mod pmus;
mod reservation;
mod sample_buffer;
mod sched_probes;
mod self_page_memory;
mod session;
mod stats;

use kernel::prelude::*;

module! {
    type: PerfMon,
    name: "perfmon",
    authors: ["The perfcounters developers"],
    description: "PMU monitoring contexts (/dev/perfmon)",
    license: "GPL",
}

/// The state of perfmon.ko while the module is loaded. When the module is unloaded, the fields are
/// dropped in the order of their declaration. The device is dropped first, so that it cannot be
/// opened any more. The workers, handlers and callbacks that run code of this module are dropped
/// next. The statistics and the thread table, which this code uses, are dropped last. When the
/// fields are dropped, no file of the device is open and no PMU description or sampling format is
/// registered, because each of them holds a reference to the module.
struct PerfMon {
    _device: base::device::Device,
    _workqueues: session::SessionWorkqueues,
    _nmi: nmi::NmiHandler,
    _map: pmu_map::MapFile,
    _power: base::power::PowerRegistration<hotplug::Power>,
    _hotplug: base::hotplug::HotplugRegistration<hotplug::Hotplug>,
    _tree: pmu_description::DebugfsTree,
    _task_works: base::task::TaskWorksGuard,
    _stats: stats::StatInstances,
    _threads: contexts::thread_table::ThreadTable,
}

impl kernel::Module for PerfMon {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        base::lock::init_mutex(&pmus::PMUS);
        base::lock::init_mutex(&formats::FORMATS);
        base::lock::init_mutex(&session::SESSION);
        base::lock::init_mutex(&reservation::RESERVED_PMU_REGISTERS);
        let stats = stats::StatInstances::new()?;
        // Create the debugfs tree before the hotplug callbacks are registered, because they create
        // a directory in the tree for each CPU.
        let tree = pmu_description::DebugfsTree::create();
        let threads = contexts::thread_table::ThreadTable::create()?;
        // The device is registered last, because the module is freed at once if init fails.
        let this = Self {
            _stats: stats,
            _tree: tree,
            _threads: threads,
            _task_works: base::task::TaskWorksGuard,
            _hotplug: base::hotplug::HotplugRegistration::register()?,
            _map: pmu_map::MapFile::create()?,
            _power: base::power::PowerRegistration::register()?,
            _nmi: nmi::NmiHandler::register()?,
            _workqueues: session::SessionWorkqueues::create()?,
            _device: device::register()?,
        };
        device::MODULE_READY.set();
        Ok(this)
    }
}
