// SPDX-License-Identifier: GPL-2.0

//! The interface for providers that are written in Rust: counter instances, probes and keyed
//! counters. Each provider compiles its own copies of the functions that it uses from this crate
//! and from the crate `base`.
//!
//! A provider is a small kernel module that counts events of one subsystem. A provider consists of
//! a structure of [`Instance`]s, an [`EventHandler`] for each tracepoint whose events it counts,
//! and a [`Probes`], which holds the structure and the attached probes.
//! `src/counters/providers/sched.rs` is the smallest provider.

#![deny(missing_docs)]
#![deny(unsafe_code)]

#[path = "../../include/linux/perfcounters.rs"]
mod driver;
mod keyed_counters;

use kernel::error::Result;
use kernel::fmt;
use kernel::str::CString;

pub use crate::driver::{Counter, CounterSpec, Instance, Kind, Unit, UpdateGroup};
pub use crate::keyed_counters::KeyedCounters;
pub use base::key::Key;
pub use base::printable_text::PrintableText;
pub use base::tracepoint::{self as probe, EventHandler, ListeningProbes, Probes};
pub use base::{block, net};

/// The prefix of log lines.
const __LOG_PREFIX: &[u8] = b"perfcounters\0";

/// The description of a counter instance, without the name of the instance.
pub struct InstanceSpec {
    /// The kind of the instance. The kind determines how a reader combines the values of all CPUs.
    pub kind: Kind,
    /// The unit in which the counter values are given.
    pub unit: Unit,
    /// The scale of the counter values: a value `v` stands for `v * 10^exponent` units.
    pub exponent: i8,
    /// The number of buckets of a histogram; 1 for other kinds.
    pub nr_slots: u16,
    /// One sentence that says what the instance counts.
    pub help: &'static core::ffi::CStr,
}

impl InstanceSpec {
    /// Describes a counter instance that counts events.
    #[inline]
    pub const fn events(help: &'static core::ffi::CStr) -> Self {
        Self::counter(Unit::Events, help)
    }

    /// Describes a counter instance whose values have the unit `unit`.
    #[inline]
    pub const fn counter(unit: Unit, help: &'static core::ffi::CStr) -> Self {
        Self {
            kind: Kind::Counter,
            unit,
            exponent: 0,
            nr_slots: 1,
            help,
        }
    }

    /// Describes a counter instance that sums up nanoseconds.
    #[inline]
    pub const fn nanoseconds(help: &'static core::ffi::CStr) -> Self {
        Self {
            kind: Kind::Time,
            unit: Unit::Seconds,
            exponent: -9,
            nr_slots: 1,
            help,
        }
    }

    /// Describes a histogram of times in nanoseconds, with logarithmic (log2) buckets.
    #[inline]
    pub const fn latency(nr_slots: u16, help: &'static core::ffi::CStr) -> Self {
        Self {
            kind: Kind::Histogram,
            unit: Unit::Seconds,
            exponent: -9,
            nr_slots,
            help,
        }
    }

    /// Adds a counter instance with this description and the name `name`. Called in process
    /// context.
    ///
    /// # Errors
    ///
    /// Returns the errors of `perf_add_desc()`, or `ENOMEM`.
    #[inline]
    pub fn add_instance(&self, name: fmt::Arguments<'_>) -> Result<Instance> {
        let name = CString::try_from_fmt(name)?;
        Instance::try_add(&CounterSpec {
            name: &name,
            help: self.help,
            kind: self.kind,
            unit: self.unit,
            exponent: self.exponent,
            nr_slots: self.nr_slots,
        })
    }
}
