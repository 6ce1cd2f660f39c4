// SPDX-License-Identifier: GPL-2.0

//! Library for contexts of `/dev/perfmon`, which count and sample a thread or a CPU with the
//! registers of a PMU.
//!
//! ```no_run
//! use perfmon::{Context, Map, RegisterValue, Scope};
//!
//! print!("{}", Map::read()?.hardware.expect("a PMU").name);
//! let context = Context::create(Scope::Thread)?;
//! context.write_pmcs(&[RegisterValue::new(0, 0x4100c0)])?;
//! context.load(std::process::id())?;
//! context.start()?;
//! println!("{}", context.read_pmd(0)?.value);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `abi.rs` | the ioctls and structures of `linux/perfmon.h` (unsafe) |
//! | `constraints.rs` | the counters that can count an event |
//! | `context.rs` | a context |
//! | `map.rs` | `/proc/perfmon_map` |
//! | `solve.rs` | assigns events to counters and event sets |

mod abi;
pub mod constraints;
mod context;
mod map;
pub mod solve;

pub use abi::{
    CONTEXT_SWITCHES, CPU_CLOCK, FIRST_SOFT, INSTANCE, MAJOR_FAULTS, MIGRATIONS, NR_INSTANCES,
    PAGE_FAULTS, TASK_CLOCK,
};
pub use context::{on_cpu, sampling_pmd, Context, Message, Reading, RegisterValue, Scope, DEVICE};
pub use map::{Map, PmcInfo, PmdInfo, PmuDescription};
pub use perfmon_rules::abi::{status, Pmd, Runs, SetDesc, SetInfo, Status};
pub use perfmon_rules::event_sets::{EXPL_NEXT, OVFL_SWITCH, TIME_SWITCH};
pub use perfmon_rules::registers::SHORT;
