// SPDX-License-Identifier: GPL-2.0

//! Wrappers of kernel functions that do not depend on what this project does with them. Nearly all
//! `unsafe` code of the module is in this directory and in `sys`.
//!
//! | file | contents |
//! |---|---|
//! | `access` | access checks: whether a thread may monitor or trace another |
//! | `account` | memory and object limits per user |
//! | `address_space` | address spaces of processes, and mappings of a device |
//! | `block`, `irq`, `net` | requests, interrupt handlers, packets and interfaces as probes see them |
//! | `clock` | clocks, and the time stamp counter |
//! | `cpu`, `cpuid` | possible and online CPUs, calls on other CPUs; CPUID leaves |
//! | `credentials` | the user and the name of a task |
//! | `device` | registration of misc devices |
//! | `global_mutex` | mutexes in static variables |
//! | `helpers` | Rust declarations of the C code in `helpers/` |
//! | `hotplug` | CPU hotplug callbacks |
//! | `kernel_version` | differences between kernel versions |
//! | `key` | a short text and a number that name an object of the kernel |
//! | `module` | this module, references to it, and requests to load other modules |
//! | `notifier` | wakes readers from any context |
//! | `page` | a zeroed page that user space maps |
//! | `per_cpu` | per-CPU words |
//! | `power` | callbacks of suspend and resume |
//! | `preempt` | the context of execution; preemption off |
//! | `process_id` | ids of processes and threads |
//! | `random`, `rcu` | random bytes; RCU grace periods |
//! | `raw_lock` | raw spinlock, for the scheduler's probes and NMIs |
//! | `self_stat` | statistics about a module itself |
//! | `task` | tasks |
//! | `tracepoint` | tracepoint probes |
//! | `user_memory` | structures copied from and to user space |

pub(crate) mod access;
pub(crate) mod account;
pub(crate) mod address_space;
pub mod block;
pub(crate) mod clock;
pub(crate) mod cpu;
pub mod cpuid;
pub(crate) mod credentials;
pub(crate) mod device;
pub(crate) mod global_mutex;
pub(crate) mod helpers;
pub(crate) mod hotplug;
pub mod irq;
pub(crate) mod kernel_version;
pub mod key;
pub(crate) mod module;
pub mod net;
pub(crate) mod notifier;
pub(crate) mod page;
pub(crate) mod per_cpu;
pub(crate) mod power;
pub(crate) mod preempt;
pub(crate) mod process_id;
pub(crate) mod random;
pub(crate) mod raw_lock;
pub(crate) mod rcu;
pub(crate) mod self_stat;
pub mod task;
pub mod tracepoint;
pub(crate) mod user_memory;
