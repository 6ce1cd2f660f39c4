// SPDX-License-Identifier: GPL-2.0

//! All `unsafe` code of the module: memory shared with user space or C, per-CPU addresses, MSRs,
//! and calls of the kernel's C functions.
//!
//! | file | contents |
//! |---|---|
//! | `tables` | lock-free tables: instance numbers to addresses |
//! | `adjust` | `perf_adjust()` |
//! | `export` | the other functions of the C interface for drivers |
//! | `percpu` | per-CPU memory of a chunk of counters |
//! | `page` | the header page and the descriptor pages |
//! | `file` | device registration; the devices and mappings of the counter pages |
//! | `costs` | counters of the module's own overhead |
//! | `cpuid` | CPUID leaves |
//! | `cpu` | possible CPUs and CPU hotplug |
//! | `lock` | the global mutexes and their order |
//! | `misc` | random numbers, time, RCU grace periods, rate-limited log lines |
//! | `modules` | notifier of module unload, for instances that a module did not delete |
//! | `shim` | Rust declarations of the C code in `shim/` |
//! | `pmu`, `msr` | PMU descriptions of modules; access to MSRs and counters |
//! | `perfmon` | `/dev/perfmon` |
//! | `sched`, `threads` | the context of each CPU, IPIs; the table of monitored threads |
//! | `rawlock` | raw spinlock, for the scheduler's probes and NMIs |
//! | `account`, `access` | memory and object limits per user; access checks |
//! | `selfpage` | mappings of `/dev/perfmon`, and the self page |
//! | `nmi`, `notifier` | the overflow NMI; wakeups, timers and deferred work of a context |
//! | `format` | sampling formats of modules, and the buffers that they fill |
//! | `wrap_timer` | periodic and delayed work of perfmon; suspend and resume |
//! | `ppa`, `records`, `proc` | process accounting: CPUs and `/dev/ppa`, tasks, `/proc` files |
//! | `trace`, `process`, `buffers` | `/dev/perftrace`, traced processes, memory of buffers |
//! | `trace_vma`, `detach` | mappings of `/dev/perftrace`; their removal from traced processes |
//! | `release` | differences between kernel versions |
//! | `user` | structures copied from and to user space |
//! | `probe` | tracepoint probes |
//! | `task`, `block`, `irq`, `net` | kernel objects as probes see them |
//! | `keyed_counters` | tables that find instances by key in a probe |

pub(crate) mod access;
pub(crate) mod account;
pub(crate) mod adjust;
pub mod block;
pub(crate) mod buffers;
pub(crate) mod costs;
pub(crate) mod cpu;
pub mod cpuid;
pub(crate) mod detach;
pub(crate) mod export;
pub(crate) mod file;
pub(crate) mod format;
pub mod irq;
pub mod keyed_counters;
pub(crate) mod lock;
pub(crate) mod misc;
pub(crate) mod modules;
pub(crate) mod msr;
pub mod net;
pub(crate) mod nmi;
pub(crate) mod notifier;
pub(crate) mod page;
pub(crate) mod percpu;
pub(crate) mod perfmon;
pub(crate) mod pmu;
pub(crate) mod ppa;
pub mod probe;
pub(crate) mod proc;
pub(crate) mod process;
pub(crate) mod rawlock;
pub(crate) mod records;
pub(crate) mod release;
pub(crate) mod sched;
pub(crate) mod selfpage;
pub(crate) mod shim;
pub(crate) mod tables;
pub mod task;
pub(crate) mod threads;
pub(crate) mod trace;
pub(crate) mod trace_vma;
pub(crate) mod user;
pub(crate) mod wrap_timer;
