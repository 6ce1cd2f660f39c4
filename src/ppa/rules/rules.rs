// SPDX-License-Identifier: GPL-2.0

//! The rules of process accounting, without any kernel API: computes how each task and each CPU
//! spends its time, from time stamps of switches, system calls and interrupts.
//!
//! A *run* of a task lasts from the switch to the task until the next switch on the CPU. Times are
//! in ticks of the accounting clock.
//!
//! The accounting words of a CPU are written by that CPU only: in the context of a task with
//! preemption off, in interrupts, and in the scheduler. Only the last run of an offline CPU is
//! ended by another CPU. The writer does not disable interrupts. Interrupts write separate words,
//! which the interrupted code only reads.
//!
//! The *own* time of a task is the time of its runs without the interrupts during them. The times
//! of a CPU are those of its tasks. Between two readings of a CPU its user, system, interrupt and
//! idle times therefore add up to the elapsed time.
//!
//! ```text
//!   own = now - run - (interrupts - interrupts then)      since the switch in
//!   system += own - own at the call                       at a call's end, or a switch
//! ```
//!
//! Readers run on other CPUs and do not disturb the writer. The writer increments `begins` before a
//! change of several words and `ends` after it. A reader that finds both counts equal has read a
//! consistent state.

#![cfg_attr(not(in_kernel), no_std)]
#![deny(unsafe_code)]
#![deny(missing_docs)]

mod cpu;
mod irq_time;
mod reading;
mod task;
mod values;

pub use cpu::Cpu;
pub use reading::TaskSnapshot;
pub use task::{LatencyBounds, Task, Values};
pub use values::{value, SwitchReason, NR_CPU_VALUES, NR_LATENCIES, NR_SIGNALS, NR_VALUES};
