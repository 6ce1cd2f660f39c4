// SPDX-License-Identifier: GPL-2.0

//! The module's `unsafe` code: memory shared with user space or C, per-CPU addresses, MSRs, and
//! calls of C functions. General wrappers of kernel functions, which know nothing of counters,
//! contexts or traces, are in [`base`](crate::base).
//!
//! | file | contents |
//! |---|---|
//! | `tables` | lock-free tables: instance numbers to addresses |
//! | `adjust` | `perf_adjust()` |
//! | `export` | the other functions of the C interface for drivers |
//! | `percpu` | per-CPU memory of a chunk of counters |
//! | `header` | the header page, and descriptors in the descriptor pages |
//! | `file` | the devices and mappings of the counter pages |
//! | `costs` | counters of perfmon's own overhead |
//! | `fault_stats`, `accounting_stats`, `trace_stats` | counters of page faults, of lost records and of lost events |
//! | `log` | rate limits of log lines |
//! | `modules` | notifier of module unload, for instances that a module did not delete |
//! | `counters_shim`, `perfmon_shim`, `ppa_shim`, `trace_shim` | Rust declarations of the C code in `shim/` |
//! | `pmu`, `pmu_map`, `msr` | PMU descriptions of modules; `/proc/perfmon_map`; access to MSRs and counters |
//! | `perfmon` | `/dev/perfmon` |
//! | `sched`, `threads`, `loaded` | per-CPU words; the table of monitored threads; the contexts in both |
//! | `selfpage` | mappings of `/dev/perfmon`, and the self page |
//! | `nmi`, `nmi_entry`, `deferral`, `callbacks` | the overflow NMI; wakeups, timers and deferred work of a context |
//! | `format_description`, `format` | sampling formats of modules; the buffers that they fill |
//! | `wrap_timer` | periodic and delayed work of perfmon |
//! | `ppa`, `records`, `proc` | process accounting: CPUs and `/dev/ppa`, tasks, `/proc` files |
//! | `trace`, `trace_file`, `traced`, `buffers` | `/dev/perftrace`, its open files, traced processes, memory of buffers |
//! | `user_return` | process accounting: the return to user mode, seccomp |
//! | `trace_vma`, `detach` | mappings of `/dev/perftrace`; their removal from traced processes |
//! | `keyed_counters` | tables that find instances by key in a probe |

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
#[path = "shim/perfmon/bindings.rs"]
pub(crate) mod perfmon_shim;
pub(crate) mod pmu;
pub(crate) mod pmu_map;
pub(crate) mod ppa;
#[path = "shim/ppa/bindings.rs"]
pub(crate) mod ppa_shim;
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
