// SPDX-License-Identifier: GPL-2.0

//! What can go wrong.

use std::fmt;
use std::io;

use crate::abi::VERSION;
use crate::device::DEVICE;

/// Why there are no values.
#[derive(Debug)]
pub enum Error {
    /// The device could not be opened.
    Open(io::Error),
    /// A file could not be read.
    Read(&'static str, io::Error),
    /// There is no task of that number.
    NoTask(u32),
    /// There is, but it is not accounted.
    NotAccounted(u32),
    /// There is, but it is not for the caller to look at.
    Denied(u32),
    /// The kernel's structures are of that version.
    Version(u32),
    /// What the kernel gave makes no sense.
    Corrupt(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(e) => write!(f, "{DEVICE}: {e}"),
            Self::Read(path, e) => write!(f, "cannot read {path}: {e}"),
            Self::NoTask(pid) => write!(f, "there is no task {pid}"),
            Self::NotAccounted(pid) => write!(f, "task {pid} is not accounted"),
            Self::Denied(pid) => write!(f, "task {pid} is not yours to look at"),
            Self::Version(n) => write!(
                f,
                "the kernel accounts in version {n}; this reader knows version {VERSION}"
            ),
            Self::Corrupt(why) => write!(f, "this accounting can not be read: {why}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(e) | Self::Read(_, e) => Some(e),
            _ => None,
        }
    }
}
