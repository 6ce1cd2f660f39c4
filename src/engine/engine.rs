// SPDX-License-Identifier: GPL-2.0

//! The engine: every rule, table and protocol of perfcounters, and nothing else.
//!
//! The same files are compiled into `perfcounters.ko` and, by cargo, into the
//! user-space library and its tests. So the code here calls no kernel, allocates
//! nothing, keeps no statics, uses no floats, and cannot panic: arithmetic
//! wraps or saturates by name, slices are read with `get`.
//!
//! | module | holds |
//! |---|---|
//! | [`abi`] | the structures that kernel and user space share, with their sizes |
//! | [`calls`] | the structures of `/dev/perfmon` |
//! | [`layout`] | where a CPU's slot lies in the file, and which slots fit a run |
//! | [`seqflag`] | per-CPU consistency: updates in flight and completed |
//! | [`generation`] | gen1/gen2: changes of the set of instances |
//! | [`spec`] | what may be added: names, units, kinds |
//! | [`registry`] | names to numbers: add, del, revive |
//! | [`pmu`] | logical registers: what a description says, what may be written |
//! | [`context`], [`program`] | a context's registers: 64-bit values; what they make the hardware do |
//! | [`claims`] | which registers contexts of both kinds may have at once |
//! | [`sampling`], [`random`] | what an overflow does; messages |
//! | [`sets`] | whose turn it is in the hardware, and how the turns differed |
//! | [`ring`] | records that one writes and others read meanwhile |
//! | [`accounting`] | where the time of tasks and CPUs goes |
//! | [`filter`] | which events of user programs a trace wants |
//! | [`selfpage`] | what a thread reads of its context without a call |
//! | [`trace`] | the structures of user tracing, and what its buffers' counts mean |
//! | [`sync`] | the only place that knows the processor and loom apart |

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
