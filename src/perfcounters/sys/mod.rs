// SPDX-License-Identifier: GPL-2.0

//! The only room with `unsafe`: everything that touches memory shared with
//! others, per-CPU addresses, and the kernel's C side.
//!
//! | file | holds |
//! |---|---|
//! | `tables` | numbers to per-CPU addresses, read in any context |
//! | `adjust` | perf_adjust |
//! | `export` | the rest of the C interface for drivers |
//! | `percpu` | memory of a chunk |
//! | `page`   | the header page and descriptor pages |
//! | `file`   | devices, and the mappings of counter pages |
//! | `costs`  | what the module itself costs, as it happens |
//! | `cpuid`  | what the processor says of itself |
//! | `cpu`    | which CPUs there are, hotplug |
//! | `lock`   | the locks of process context, and what each is for |
//! | `misc`   | random numbers, time, grace periods, lines of the log |
//! | `modules` | the kernel's modules, which own instances |
//! | `shim`   | declarations of what is in `shim/` |
//! | `pmu`, `msr` | descriptions of PMUs, registers of the processor |
//! | `perfmon` | `/dev/perfmon` |
//! | `sched`, `threads`, `rawlock` | who runs where, contexts by their threads, and the lock for that |
//! | `account`, `rights` | whose memory it is; who may monitor whom |
//! | `selfpage` | what a thread reads of its context without a call |
//! | `nmi`, `bell` | the overflow interrupt; what wakes readers, later |
//! | `format` | sampling formats, and the buffers that they fill |
//! | `wake` | rounds over the counters, the machine's sleep |
//! | `ppa`, `records`, `proc` | process accounting: CPUs' words and the device, tasks' records, files |
//! | `trace`, `process`, `buffers` | `/dev/perftrace`, who is traced, memory that is mapped |
//! | `areas`, `leave` | what processes map of it; how they let go of it |
//! | `release` | what differs between kernels |
//! | `user` | structures from and to user space |
//! | `probe`, `task`, `family`, `block`, `irq`, `net` | what probes see of the kernel |

pub(crate) mod account;
pub(crate) mod adjust;
pub(crate) mod areas;
pub(crate) mod bell;
pub mod block;
pub(crate) mod buffers;
pub(crate) mod costs;
pub(crate) mod cpu;
pub mod cpuid;
pub(crate) mod export;
pub mod family;
pub(crate) mod file;
pub(crate) mod format;
pub mod irq;
pub(crate) mod leave;
pub(crate) mod lock;
pub(crate) mod misc;
pub(crate) mod modules;
pub(crate) mod msr;
pub mod net;
pub(crate) mod nmi;
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
pub(crate) mod rights;
pub(crate) mod sched;
pub(crate) mod selfpage;
pub(crate) mod shim;
pub(crate) mod tables;
pub mod task;
pub(crate) mod threads;
pub(crate) mod trace;
pub(crate) mod user;
pub(crate) mod wake;
