// SPDX-License-Identifier: GPL-2.0

//! The engine: the rules, tables and protocols of perfcounters, without any kernel API.
//!
//! The files of the engine are compiled into `perfcounters.ko` and, by cargo, into the user-space
//! library and its tests. The code of the engine therefore does not call the kernel, does not
//! allocate, has no statics, and uses no floating point in the kernel. The code cannot panic:
//! arithmetic wraps or saturates explicitly, and slices are read with `get`.
//!
//! | module | contents |
//! |---|---|
//! | [`abi`] | structures of `/dev/perfcounters`, with their sizes |
//! | [`calls`] | structures and ioctl numbers of `/dev/perfmon` |
//! | [`layout`] | offsets of a CPU's slots in the file; where a run of slots fits |
//! | [`seqflag`] | consistent reads of a CPU's counters: updates in flight and completed |
//! | [`generation`] | gen1 and gen2: changes of the set of instances |
//! | [`spec`] | rules for names, units and kinds of new instances |
//! | [`registry`] | instances by name: add, delete, revive |
//! | [`pmu`] | logical registers: rows of a PMU description, values that may be written |
//! | [`context`], [`program`] | an event set's registers: 64-bit values, program of the PMU |
//! | [`claims`] | registers that contexts of threads and of CPUs may use at the same time |
//! | [`perfmon_error`] | reasons for which a call on a context is refused |
//! | [`sampling`], [`random`] | handling of overflows, random periods |
//! | [`messages`] | messages about overflows |
//! | [`sets`] | event sets: when they are switched, sums over their runs |
//! | [`ring`] | ring buffer with one writer and concurrent readers |
//! | [`accounting`] | process accounting: times of tasks and CPUs |
//! | [`filter`] | filters for events of user tracing |
//! | [`selfpage`] | page from which a thread reads its own counters |
//! | [`trace`] | structures of user tracing, checks of its buffers |
//! | [`sync`] | atomics: the processor's, or loom's |

#![cfg_attr(not(engine_kernel), no_std)]
#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod abi;
pub mod accounting;
pub mod calls;
pub mod claims;
pub mod context;
pub mod error;
pub mod filter;
pub mod generation;
pub mod layout;
pub mod messages;
pub mod perfmon_error;
pub mod pmu;
pub mod program;
pub mod random;
pub mod registry;
pub mod ring;
pub mod sampling;
pub mod selfpage;
pub mod seqflag;
pub mod sets;
pub mod spec;
pub mod sync;
pub mod trace;
