// SPDX-License-Identifier: GPL-2.0

//! Rules for new instances (named counters): names, help texts, kinds and numbers of slots.

use crate::abi::{Desc, Kind, Unit, HELP_MAX, NAME_MAX};
use crate::error::Error;

/// Maximum number of buckets of a histogram: one bucket for values <= 0, and one for each of the 63
/// powers of two that an `s64` can hold.
pub const MAX_BUCKETS: u16 = 64;
/// Maximum of the absolute value of the exponent of ten.
pub const MAX_DECIMAL_EXPONENT: i8 = 18;

/// A request to add an instance. The fields of the request are not checked yet.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a> {
    /// The name of the instance, without NUL.
    pub name: &'a [u8],
    /// The help text of the instance, without NUL.
    pub help: &'a [u8],
    /// The number of a [`Kind`].
    pub kind: u16,
    /// The number of a [`Unit`].
    pub unit: u16,
    /// A value `v` stands for v * 10^exponent units.
    pub exponent: i8,
    /// Number of slots (64-bit words) on each CPU. A histogram has one slot for each of its 2 to
    /// [`MAX_BUCKETS`] buckets. For an instance of any other kind, both 0 and 1 mean one slot.
    pub nr_slots: u16,
}

impl<'a> Spec<'a> {
    /// Returns the request of `perf_add(name)`: a counter of events, without a help text.
    pub const fn counter(name: &'a [u8]) -> Self {
        Self {
            name,
            help: &[],
            kind: Kind::Counter as u16,
            unit: Unit::Events as u16,
            exponent: 0,
            nr_slots: 1,
        }
    }

    /// Checks the request. Returns a descriptor that has the values of the request; all other
    /// fields of the descriptor are 0.
    pub fn to_checked_desc(&self) -> Result<Desc, Error> {
        if self.name.is_empty() {
            return Err(Error::NameEmpty);
        }
        let kind = Kind::from_raw(self.kind).ok_or(Error::BadSpec)?;
        Unit::from_raw(self.unit).ok_or(Error::BadSpec)?;
        if self.exponent.unsigned_abs() > MAX_DECIMAL_EXPONENT.unsigned_abs() {
            return Err(Error::BadSpec);
        }
        let nr_slots = match kind {
            Kind::Histogram if (2..=MAX_BUCKETS).contains(&self.nr_slots) => self.nr_slots,
            Kind::Histogram => return Err(Error::BadSpec),
            _ if self.nr_slots <= 1 => 1,
            _ => return Err(Error::BadSpec),
        };
        let mut desc = Desc {
            kind: self.kind,
            unit: self.unit,
            exponent: self.exponent,
            nr_slots,
            ..Desc::FREE
        };
        copy_checked_text::<NAME_MAX>(&mut desc.name, self.name)?;
        copy_checked_text::<HELP_MAX>(&mut desc.help, self.help)?;
        Ok(desc)
    }
}

/// Copies a text. The text must be UTF-8 without control characters, because tools print it on one
/// line of a terminal.
fn copy_checked_text<const N: usize>(to: &mut [u8; N], text: &[u8]) -> Result<(), Error> {
    // The text must be shorter than the field, because the last byte of the field is a NUL.
    if text.len() >= N {
        return Err(Error::TooLong);
    }
    let checked = core::str::from_utf8(text).map_err(|_| Error::NotText)?;
    if checked.chars().any(char::is_control) {
        return Err(Error::NotText);
    }
    to.get_mut(..text.len())
        .ok_or(Error::TooLong)?
        .copy_from_slice(text);
    Ok(())
}
