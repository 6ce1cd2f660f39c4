// SPDX-License-Identifier: GPL-2.0

//! Wrappers of kernel functions, for all modules of this project.
//!
//! Each crate that uses a function of this crate compiles its own copy of the function, so that
//! several modules can use this crate. The C code in `helpers/` is linked into perfcounters.ko.
//!
//! | file | contents |
//! |---|---|
//! | `access` | access checks: whether a thread may monitor or trace another; capabilities, credentials |
//! | `account` | memory and object limits per user |
//! | `address_space` | address spaces of processes, and mappings of a device |
//! | `block`, `irq`, `net` | requests, interrupt handlers, packets and interfaces as probes see them |
//! | `clock` | clocks, and the time stamp counter |
//! | `cpu`, `cpuid` | possible and online CPUs, calls on other CPUs, per-CPU words; CPUID leaves |
//! | `device` | misc devices and their file operations |
//! | `helpers` | Rust declarations of the C code in `helpers/` |
//! | `hotplug` | CPU hotplug callbacks |
//! | `kernel_version` | differences between kernel versions |
//! | `key` | a short text and a number that name an object of the kernel |
//! | `lock` | raw spinlock, for the scheduler's probes and NMIs; mutexes in static variables |
//! | `module` | this module, references to it, and requests to load other modules |
//! | `notifier` | wait queues, which wake readers from any context |
//! | `page` | a zeroed page that user space maps |
//! | `power` | callbacks of suspend and resume |
//! | `preempt` | the context of execution; preemption off |
//! | `printable_text` | text from the kernel in a form that can be printed |
//! | `random`, `rcu` | random bytes; RCU grace periods |
//! | `self_stat` | statistics about a module itself |
//! | `task` | tasks, and ids of processes and threads |
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
pub mod clock;
pub mod cpu;
pub mod cpuid;
pub mod device;
pub mod errno;
#[allow(missing_docs, reason = "documented in C")]
pub mod helpers;
pub mod hotplug;
pub mod irq;
pub mod kernel_version;
pub mod key;
pub mod lock;
pub mod module;
pub mod net;
pub mod notifier;
pub mod page;
pub mod power;
pub mod preempt;
pub mod printable_text;
pub mod random;
pub mod rcu;
pub mod self_stat;
pub mod task;
pub mod tracepoint;
pub mod user_memory;
