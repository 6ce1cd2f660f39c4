// SPDX-License-Identifier: GPL-2.0

//! Monitoring contexts: `/dev/perfmon`, event sets, sampling and PMU descriptions.
//!
//! | file | contents |
//! |---|---|
//! | `device`, `open_file`, `mapping` | `/dev/perfmon`; its open files; their mappings |
//! | `self_page` | the page from which a program reads its own context |
//! | `session` | what all attached contexts share: registers in use, probes of the scheduler |
//! | `reservation` | the reservation of the hardware PMU, and the reset of its registers |
//! | `cpus`, `cpu_kinds` | hotplug, suspend and the periodic reading of counters; which registers a CPU has |
//! | `per_cpu` | per-CPU words: the loaded contexts and the counters in use |
//! | `pmus`, `pmu_description`, `pmu_export` | the registered PMU descriptions; one of them; their registration |
//! | `pmu_map`, `pmu_map_file` | `/proc/perfmon_map`: its text; the file |
//! | `formats`, `format_description` | the registered sampling formats; one of them |
//! | `sample_buffer` | the buffers that formats fill |
//! | `nmi`, `nmi_entry`, `msr` | the overflow NMI; access to MSRs and counters |
//! | `wrap_timer` | work that is repeated or delayed |
//! | `stats`, `stats_files` | counters of perfmon's own cost; their files in debugfs |
//! | `helpers` | declarations of the C code in `helpers/` |

/// Contexts: their registers and event sets, and what changes their state.
pub(crate) mod contexts {
    pub(crate) mod access;
    pub(crate) mod attach;
    pub(crate) mod callbacks;
    pub(crate) mod context;
    pub(crate) mod cpu_fit;
    pub(crate) mod deferral;
    pub(crate) mod ends;
    pub(crate) mod event_set;
    pub(crate) mod interrupt;
    pub(crate) mod loaded;
    pub(crate) mod messages;
    pub(crate) mod overflow;
    pub(crate) mod permission;
    pub(crate) mod permission_checks;
    pub(crate) mod sampling_state;
    pub(crate) mod set_calls;
    pub(crate) mod status;
    pub(crate) mod target;
    pub(crate) mod thread_table;
    pub(crate) mod transitions;
    pub(crate) mod virtual_counters;
}

pub(crate) mod cpu_kinds;
pub(crate) mod cpus;
pub(crate) mod device;
pub(crate) mod format_description;
pub(crate) mod formats;
pub(crate) mod helpers;
pub(crate) mod mapping;
pub(crate) mod msr;
pub(crate) mod nmi;
pub(crate) mod nmi_entry;
pub(crate) mod open_file;
pub(crate) mod per_cpu;
pub(crate) mod pmu_description;
pub(crate) mod pmu_export;
pub(crate) mod pmu_map;
pub(crate) mod pmu_map_file;
pub(crate) mod pmus;
pub(crate) mod reservation;
pub(crate) mod sample_buffer;
pub(crate) mod self_page;
pub(crate) mod session;
pub(crate) mod stats;
pub(crate) mod stats_files;
pub(crate) mod wrap_timer;
