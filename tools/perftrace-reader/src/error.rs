// SPDX-License-Identifier: GPL-2.0

//! What can go wrong.

use std::fmt;
use std::io;

use crate::device::DEVICE;

/// Why there is no trace, or nothing of it.
#[derive(Debug)]
pub enum Error {
    /// The device could not be opened.
    Open(io::Error),
    /// There is no such trace, or none that the caller may open.
    NoTrace(String),
    /// There is one of this name already.
    Exists(String),
    /// There are as many traces as there can be.
    Full,
    /// There are traces, which must not be.
    Traces,
    /// Somebody else reads it.
    Busy,
    /// This is for others.
    Denied(&'static str),
    /// That step of the filter was refused.
    Filter(u32),
    /// A name, globs, sizes or modes were refused.
    Invalid(String),
    /// The call did not work.
    Call(&'static str, io::Error),
    /// What the kernel gave makes no sense.
    Corrupt(String),
    /// The output could not be written.
    Write(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(e) => write!(f, "{DEVICE}: {e}"),
            Self::NoTrace(name) => write!(f, "there is no trace '{name}'"),
            Self::Exists(name) => write!(f, "there is a trace '{name}' already"),
            Self::Full => write!(
                f,
                "there is no room for another trace: 16 at most, 8 of one user"
            ),
            Self::Traces => write!(f, "there are traces"),
            Self::Busy => write!(f, "somebody else reads this trace"),
            Self::Denied(what) => write!(f, "not permitted: {what}"),
            Self::Filter(step) => write!(f, "the kernel refuses step {step} of the filter"),
            Self::Invalid(what) => write!(f, "the kernel refuses {what}"),
            Self::Call(what, e) => write!(f, "cannot {what}: {e}"),
            Self::Corrupt(why) => write!(f, "this trace can not be read: {why}"),
            Self::Write(e) => write!(f, "cannot write: {e}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(e) | Self::Call(_, e) | Self::Write(e) => Some(e),
            _ => None,
        }
    }
}
