// SPDX-License-Identifier: GPL-2.0

//! ppa.ko: process accounting (`/dev/ppa`, `/proc/ppa`). `Documentation/accounting.md` describes
//! the values and the files.
//!
//! | file | contents |
//! |---|---|
//! | `device` | `/dev/ppa` |
//! | `start_stop`, `sysctl`, `config` | starts and stops accounting; the sysctls `kernel.ppa` and `kernel.ppa_levels`; the settings of all tasks or of one task |
//! | `read_tasks`, `read_cpus` | reads the records of tasks, and the values of CPUs |
//! | `probes`, `user_return` | what tracepoints and hooks of the kernel report |
//! | `state` | the state of accounting while it is on |
//! | `per_cpu`, `hotplug`, `cpu_instances` | values of a CPU; hotplug and suspend; the values in the counter pages |
//! | `task_record`, `abi` | records of tasks; the structures that programs read |
//! | `record_replacement`, `retire_list` | replaces the record of a task; lists of removed records |
//! | `ended_tasks` | records of ended tasks, for the readers of `/dev/ppa` |
//! | `individual_tasks`, `task_entries` | starts and ends the individual accounting of tasks; the list of these tasks |
//! | `procfs`, `worker` | files in `/proc` and debugfs; the workers |
//! | `stats` | the count of lost records |
//! | `helpers` | declarations of the C code in `helpers/` |

#![deny(unsafe_code)]

mod abi;
mod config;
mod cpu_instances;
mod device;
#[path = "../../include/linux/perfcounters.rs"]
mod driver;
mod ended_tasks;
mod helpers;
mod hotplug;
mod individual_tasks;
mod per_cpu;
mod probes;
mod procfs;
mod read_cpus;
mod read_tasks;
mod record_replacement;
mod retire_list;
mod start_stop;
mod state;
mod stats;
mod sysctl;
mod task_entries;
mod task_record;
mod user_return;
mod worker;

use base::hotplug::HotplugRegistration;
use kernel::prelude::*;

module! {
    type: Ppa,
    name: "ppa",
    authors: ["The perfcounters developers"],
    description: "Process accounting from time stamps (/dev/ppa)",
    license: "GPL",
}

/// The state of the loaded module. When the module is unloaded, the fields are dropped in the order
/// of their declaration: first the device and the files, which stops accounting, then the callbacks
/// of CPU hotplug and suspend, then the statistics. When the fields are dropped, no file of the
/// device is open, because each open file holds a reference to the module.
struct Ppa {
    _device: base::device::Device,
    _files: procfs::ProcfsFiles,
    _power: base::power::PowerRegistration<hotplug::Power>,
    _online_callbacks: HotplugRegistration<hotplug::Hotplug>,
    _dead_callback: HotplugRegistration<hotplug::Hotplug>,
    _stats: stats::AccountingStats,
}

impl kernel::Module for Ppa {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        base::lock::init_mutex(&start_stop::ACCOUNTING);
        base::lock::init_mutex(&individual_tasks::SET_TASK_ACCOUNTING_LOCK);
        let stats = stats::AccountingStats::new()?;
        let dead_callback = HotplugRegistration::register_dead_callback()?;
        // Create the files and the device last, because users can open them at once, and the module
        // is freed if a later step fails.
        let this = Self {
            _stats: stats,
            _dead_callback: dead_callback,
            _online_callbacks: HotplugRegistration::register()?,
            _power: base::power::PowerRegistration::register()?,
            _files: procfs::ProcfsFiles::create()?,
            _device: device::register()?,
        };
        device::MODULE_READY.set();
        Ok(this)
    }
}
