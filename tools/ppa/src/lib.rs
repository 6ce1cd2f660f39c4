// SPDX-License-Identifier: GPL-2.0

//! Library for precise process accounting: reads `/dev/ppa` and `/proc/rawsysppa`.
//!
//! ```no_run
//! let device = ppa::Device::open()?;
//! let khz = device.info()?.khz;
//! let task = device.task(std::process::id())?;
//! println!("{} us in user mode", ppa::ticks_to_micros(task.user_ticks(), khz));
//! # Ok::<(), ppa::Error>(())
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `abi.rs` | the structures and ioctls of `linux/ppa.h` (unsafe) |
//! | `parse.rs` | parses the structures in the data of read() |
//! | `device.rs` | the device, and the file of CPUs |
//! | `values.rs` | evaluates values: sums, differences, times |
//! | `error.rs` | errors |

mod abi;
mod device;
mod error;
#[cfg(test)]
mod fuzz;
mod parse;
mod values;

pub use abi::{
    Info, Task, INTACCUM, INTCNT, LEVEL_IRQ, LEVEL_SCHED, LEVEL_SWITCH, LEVEL_SYSCALL,
    NR_LATENCIES, NR_VALUES, PRMPTCTXTCNT, PRMPTPRICNT, RSCHEDCNT, SCACCUM, SCHEDACCUM,
    SCHEDOUTCNT, SCHLATACCUM, SYSCALLCNT, TASK_ENDED, TASK_KERNEL, TASK_LATENCIES, TASK_RUNNING,
    UNSTABLE, VERSION,
};
pub use device::{Device, CPU_VALUES_PATH, PPA_DEVICE_PATH};
pub use error::Error;
pub use values::{
    increment_of_count, ticks_to_micros, ticks_to_whole_micros, Cpu, CpuValue, NR_CPU_VALUES,
};
