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
mod target;
mod task_entries;
mod tracing;
mod transitions;
mod virtual_counters;

/// The module's `unsafe` code: memory shared with user space or C, per-CPU addresses, MSRs, and
/// calls of C functions. General wrappers of kernel functions, which know nothing of counters,
/// contexts or traces, are in [`base`].
///
/// | file | contents |
/// |---|---|
/// | `tables` | lock-free tables: instance numbers to addresses |
/// | `adjust` | `perf_adjust()` |
/// | `export` | the other functions of the C interface for drivers |
/// | `percpu` | per-CPU memory of a chunk of counters |
/// | `header` | the header page, and descriptors in the descriptor pages |
/// | `file` | the devices and mappings of the counter pages |
/// | `costs` | counters of perfmon's own overhead |
/// | `fault_stats`, `accounting_stats`, `trace_stats` | counters of page faults, of lost records and of lost events |
/// | `log` | rate limits of log lines |
/// | `modules` | notifier of module unload, for instances that a module did not delete |
/// | `counters_shim`, `perfmon_shim`, `ppa_shim`, `trace_shim` | Rust declarations of the C code in `shim/` |
/// | `pmu`, `pmu_export`, `pmu_map`, `msr` | PMU descriptions of modules; `/proc/perfmon_map`; access to MSRs and counters |
/// | `perfmon`, `perfmon_file` | `/dev/perfmon`; its open files |
/// | `sched`, `threads`, `loaded` | per-CPU words; the table of monitored threads; the contexts in both |
/// | `selfpage`, `perfmon_mmap` | the self page; mappings of `/dev/perfmon` |
/// | `nmi`, `nmi_entry`, `deferral`, `callbacks` | the overflow NMI; wakeups, timers and deferred work of a context |
/// | `format_description`, `format` | sampling formats of modules; the buffers that they fill |
/// | `wrap_timer` | periodic and delayed work of perfmon |
/// | `ppa`, `ppa_cpu`, `ppa_values` | process accounting: `/dev/ppa`; CPUs; structures that programs read |
/// | `records`, `proc`, `ppa_worker` | process accounting: tasks; `/proc` files; workers |
/// | `trace`, `trace_file`, `traced`, `buffers` | `/dev/perftrace`, its open files, traced processes, memory of buffers |
/// | `user_return` | process accounting: the return to user mode, seccomp |
/// | `trace_vma`, `detach` | mappings of `/dev/perftrace`; their removal from traced processes |
/// | `keyed_counters` | tables that find instances by key in a probe |
pub mod sys {
    pub(crate) mod accounting_stats;
    pub(crate) mod adjust;
    pub(crate) mod buffers;
    pub(crate) mod callbacks;
    pub(crate) mod costs;
    #[path = "shim/counters/bindings.rs"]
    pub(crate) mod counters_shim;
    pub(crate) mod deferral;
    pub(crate) mod detach;
    pub(crate) mod export;
    pub(crate) mod fault_stats;
    pub(crate) mod file;
    pub(crate) mod format;
    pub(crate) mod format_description;
    pub(crate) mod header;
    pub mod keyed_counters;
    pub(crate) mod loaded;
    pub(crate) mod log;
    pub(crate) mod modules;
    pub(crate) mod msr;
    pub(crate) mod nmi;
    pub(crate) mod nmi_entry;
    pub(crate) mod percpu;
    pub(crate) mod perfmon;
    pub(crate) mod perfmon_file;
    pub(crate) mod perfmon_mmap;
    #[path = "shim/perfmon/bindings.rs"]
    pub(crate) mod perfmon_shim;
    pub(crate) mod pmu;
    pub(crate) mod pmu_export;
    pub(crate) mod pmu_map;
    pub(crate) mod ppa;
    pub(crate) mod ppa_cpu;
    #[path = "shim/ppa/bindings.rs"]
    pub(crate) mod ppa_shim;
    pub(crate) mod ppa_values;
    pub(crate) mod ppa_worker;
    pub(crate) mod proc;
    pub(crate) mod records;
    pub(crate) mod sched;
    pub(crate) mod selfpage;
    pub(crate) mod tables;
    pub(crate) mod threads;
    pub(crate) mod trace;
    pub(crate) mod trace_file;
    #[path = "shim/trace/bindings.rs"]
    pub(crate) mod trace_shim;
    pub(crate) mod trace_stats;
    pub(crate) mod trace_vma;
    pub(crate) mod traced;
    pub(crate) mod user_return;
    pub(crate) mod wrap_timer;
}

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
