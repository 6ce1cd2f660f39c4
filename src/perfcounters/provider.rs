// SPDX-License-Identifier: GPL-2.0

//! What a provider is written with: instances, probes, families.
//!
//! A provider is a small module: a state whose fields are [`Instance`]s, a
//! [`Handler`] for each event it counts, and a [`Probes`] that holds both. See
//! `src/provider/sched.rs` for the smallest one.

use kernel::fmt;

use kernel::error::Result;
use kernel::str::CString;

pub use crate::driver::{Counter, Group, Instance, Kind, Spec, Unit};
pub use crate::sys::family::{Family, Key, Text};
pub use crate::sys::probe::{self, Handler, Probes, Watched};
pub use crate::sys::{block, net};

/// What an instance of a provider counts, apart from its name.
pub struct What {
    /// How values combine.
    pub kind: Kind,
    /// What is counted.
    pub unit: Unit,
    /// Power of ten.
    pub exponent: i8,
    /// Buckets of a histogram, else 1.
    pub nr_slots: u16,
    /// One sentence.
    pub help: &'static core::ffi::CStr,
}

impl What {
    /// A counter of events.
    #[inline]
    pub const fn events(help: &'static core::ffi::CStr) -> Self {
        Self::counter(Unit::Events, help)
    }

    /// A counter of something else.
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

    /// Time spent, in nanoseconds.
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

    /// log2 buckets of nanoseconds.
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

    /// Adds the instance under a name. Process context.
    #[inline]
    pub fn named(&self, name: fmt::Arguments<'_>) -> Result<Instance> {
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
