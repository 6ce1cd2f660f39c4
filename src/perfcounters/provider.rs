// SPDX-License-Identifier: GPL-2.0

//! The interface for providers in Rust: instances, probes, keyed counters.
//!
//! A provider is a small module that counts events of one part of the kernel. A provider has a
//! state whose fields are [`Instance`]s, a [`Handler`] for each event that it counts, and a
//! [`Probes`] that holds the state and the attached probes. `src/provider/sched.rs` is the smallest
//! provider.

use kernel::fmt;

use kernel::error::Result;
use kernel::str::CString;

pub use crate::base::key::{Key, Text};
pub use crate::base::tracepoint::{self as probe, Handler, ListeningProbes, Probes};
pub use crate::base::{block, net};
pub use crate::driver::{Counter, Group, Instance, Kind, Spec, Unit};
pub use crate::sys::keyed_counters::KeyedCounters;

/// The description of a provider's instance, without its name.
pub struct InstanceSpec {
    /// The kind of the instance, which determines how the values of all CPUs are combined.
    pub kind: Kind,
    /// The unit of the values.
    pub unit: Unit,
    /// A value `v` stands for `v * 10^exponent` units.
    pub exponent: i8,
    /// The number of buckets of a histogram; 1 for other kinds.
    pub nr_slots: u16,
    /// One sentence that says what the instance counts.
    pub help: &'static core::ffi::CStr,
}

impl InstanceSpec {
    /// Describes a counter of events.
    #[inline]
    pub const fn events(help: &'static core::ffi::CStr) -> Self {
        Self::counter(Unit::Events, help)
    }

    /// Describes a counter of the unit `unit`.
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

    /// Describes a time in nanoseconds.
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

    /// Describes a histogram of nanoseconds with logarithmic (log2) buckets.
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

    /// Adds an instance with this description under the name `name`. Called in process context.
    ///
    /// # Errors
    ///
    /// Returns the errors of `perf_add_desc()`, or `ENOMEM`.
    #[inline]
    pub fn add(&self, name: fmt::Arguments<'_>) -> Result<Instance> {
        let name = CString::try_from_fmt(name)?;
        Instance::try_add(&Spec {
            name: &name,
            help: self.help,
            kind: self.kind,
            unit: self.unit,
            exponent: self.exponent,
            nr_slots: self.nr_slots,
        })
    }
}
