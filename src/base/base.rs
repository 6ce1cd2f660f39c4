// SPDX-License-Identifier: GPL-2.0

//! Wrappers of kernel functions, for all modules of this project.
//!
//! Each crate that uses a function of this crate compiles its own copy of the function, so that
//! several modules can use this crate. The C code in `helpers/` is linked into perfcounters.ko.
//!
//! | file | contents |
//! |---|---|
//! | `access` | access checks: whether a thread may monitor or trace another |
//! | `account` | memory and object limits per user |
//! | `address_space` | address spaces of processes, and mappings of a device |
//! | `block`, `irq`, `net` | requests, interrupt handlers, packets and interfaces as probes see them |
//! | `capabilities` | checks of the caller's capabilities |
//! | `clock` | clocks, and the time stamp counter |
//! | `cpu`, `cpuid` | possible and online CPUs, calls on other CPUs; CPUID leaves |
//! | `credentials` | the credentials of a task; its user and its name |
//! | `device` | misc devices and their file operations |
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

#![deny(missing_docs)]
#![allow(clippy::new_without_default, reason = "contexts are documented")]

/// The prefix of log lines.
const __LOG_PREFIX: &[u8] = b"perfcounters\0";

pub mod access;
pub mod account;
pub mod address_space;
pub mod block;
pub mod capabilities;
pub mod clock;
pub mod cpu;
pub mod cpuid;
pub mod credentials;
pub mod device;
pub mod global_mutex;
#[allow(missing_docs, reason = "documented in C")]
pub mod helpers;
pub mod hotplug;
pub mod irq;
pub mod kernel_version;
pub mod key;
pub mod module;
pub mod net;
pub mod notifier;
pub mod page;
pub mod per_cpu;
pub mod power;
pub mod preempt;
pub mod process_id;
pub mod random;
pub mod raw_lock;
pub mod rcu;
pub mod self_stat;
pub mod task;
pub mod tracepoint;
pub mod user_memory;
