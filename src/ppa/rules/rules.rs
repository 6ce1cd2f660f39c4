// SPDX-License-Identifier: GPL-2.0

//! The rules of process accounting, which computes how each task and each CPU spends its time. The
//! inputs of the rules are time stamps of task switches, system calls and interrupts. The code uses
//! no kernel API.
//!
//! A *run* of a task lasts from the switch to the task until the next switch on the CPU. Times are
//! in ticks of the accounting clock.
//!
//! While a CPU is online, only the CPU itself writes its accounting words: in the context of a task
//! with preemption off, in interrupts, and in the scheduler. When a CPU is offline, another CPU
//! accounts the last run of the offline CPU and writes its words. The writer does not disable
//! interrupts, because interrupts write separate words, which the interrupted code only reads.
//!
//! The *own* time of a task is the time of its runs without the interrupts during these runs. The
//! user, system and idle times of a CPU do not contain interrupt time. Between two reads of the
//! CPU's values, the increments of its user, system, interrupt and idle times add up to the elapsed
//! time.
//!
//! ```text
//!   own = now - start of the run - (interrupt time - interrupt time at the start of the run)
//!   system += own - own at the start of the system time     at its end, or at a switch
//! ```
//!
//! Readers run on other CPUs and do not disturb the writer. The writer increments `begun_writes`
//! before a change of several words and `ended_writes` after it. A reader loads `ended_writes`,
//! then the words, and then `begun_writes`. If the two counts are equal, the words that the reader
//! has loaded are consistent.

#![cfg_attr(not(in_kernel), no_std)]
#![deny(unsafe_code)]
#![deny(missing_docs)]

mod cpu;
mod irq_time;
mod seqcount;
mod system_time;
mod task;
mod task_history;
mod task_snapshot;
mod values;

pub use cpu::Cpu;
pub use task::{LatencyBounds, Task, ValueWords};
pub use task_history::TaskHistory;
pub use task_snapshot::TaskSnapshot;
pub use values::{value, SwitchReason, NR_CPU_VALUES, NR_LATENCIES, NR_SIGNALS, NR_VALUES};
