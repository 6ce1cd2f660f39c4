// SPDX-License-Identifier: GPL-2.0

//! Process accounting: `/dev/ppa`, `/proc/ppa`, and the tracepoint probes.
//!
//! | file | contents |
//! |---|---|
//! | `device` | `/dev/ppa` |
//! | `accounting`, `config` | switches accounting on and off, and reads its values; its settings |
//! | `probes`, `user_return` | what tracepoints and hooks of the kernel report |
//! | `state` | the state of accounting while it is on |
//! | `per_cpu`, `cpus`, `cpu_stats` | values of a CPU; hotplug and suspend; the values in the counter pages |
//! | `task_record`, `task_stats` | records of tasks; the structures that programs read |
//! | `ended_tasks` | records of ended tasks, for the readers of `/dev/ppa` |
//! | `entries`, `per_task` | tasks that are accounted individually: the list; their directories in `/proc` |
//! | `procfs`, `worker` | files in `/proc`; the workers |
//! | `stats` | the count of lost records |
//! | `helpers` | declarations of the C code in `helpers/` |

pub(crate) mod accounting;
pub(crate) mod config;
pub(crate) mod cpu_stats;
pub(crate) mod cpus;
pub(crate) mod device;
pub(crate) mod ended_tasks;
pub(crate) mod entries;
pub(crate) mod helpers;
pub(crate) mod per_cpu;
pub(crate) mod per_task;
pub(crate) mod probes;
pub(crate) mod procfs;
pub(crate) mod state;
pub(crate) mod stats;
pub(crate) mod task_record;
pub(crate) mod task_stats;
pub(crate) mod user_return;
pub(crate) mod worker;
