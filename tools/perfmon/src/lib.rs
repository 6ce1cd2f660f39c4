// SPDX-License-Identifier: GPL-2.0

//! Library for contexts of `/dev/perfmon`, which count and sample a thread or a CPU with the
//! registers of a PMU.
//!
//! ```no_run
//! use perfmon::{Context, RegisterMap, RegisterValue, Scope};
//!
//! print!("{}", RegisterMap::load_pmus_and_read()?.hardware.expect("a PMU").name);
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
//! | `affinity.rs` | the CPU affinity of the calling thread (unsafe) |
//! | `area.rs` | mappings of memory (unsafe) |
//! | `constraints.rs` | the counters that can count an event |
//! | `context.rs` | a context |
//! | `map.rs` | `/proc/perfmon_map` |
//! | `ring.rs` | reads the ring of a sampling context |
//! | `selfpage.rs` | reads the counters of the calling thread without a system call (unsafe) |
//! | `solve.rs` | assigns events to counters and event sets |
//!
//! Without the feature `std`, which is on by default, the crate has only the modules that
//! libperfmon uses: libperfmon is built without std.

#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "std")]
mod abi;
#[cfg(feature = "std")]
mod affinity;
pub mod area;
pub mod constraints;
#[cfg(feature = "std")]
mod context;
#[cfg(feature = "std")]
mod map;
pub mod ring;
pub mod selfpage;
#[cfg(feature = "std")]
pub mod solve;

#[cfg(feature = "std")]
pub use abi::{
    CONTEXT_SWITCHES_PMD, CPU_CLOCK_PMD, FIRST_INSTANCE_REGISTER, FIRST_SOFT_REGISTER,
    MAJOR_FAULTS_PMD, MIGRATIONS_PMD, NR_INSTANCE_REGISTERS, PAGE_FAULTS_PMD, TASK_CLOCK_PMD,
};
#[cfg(feature = "std")]
pub use context::{
    run_on_cpu, sampling_pmd, Context, Message, Reading, RegisterValue, Scope, PERFMON_DEVICE_PATH,
};
#[cfg(feature = "std")]
pub use map::{PmcInfo, PmdInfo, PmuDescription, RegisterMap};
pub use perfmon_rules::abi::{status, Pmd, Runs, SetDesc, SetInfo, Status};
pub use perfmon_rules::event_sets::{EXPL_NEXT, OVFL_SWITCH, TIME_SWITCH};
pub use perfmon_rules::registers::REGFL_SHORT;
