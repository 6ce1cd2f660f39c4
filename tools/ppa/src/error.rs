// SPDX-License-Identifier: GPL-2.0

//! Errors of this crate.

use std::fmt;
use std::io;

use rustix::io::Errno;

use crate::abi::VERSION;
use crate::device::PPA_DEVICE_PATH;

/// The reason why values could not be read.
#[derive(Debug)]
pub enum Error {
    /// `/dev/ppa` could not be opened.
    Open(io::Error),
    /// The file with this path could not be read.
    Read(&'static str, io::Error),
    /// No task has this id.
    NoTask(u32),
    /// The task exists, but is not accounted.
    NotAccounted(u32),
    /// The task exists, but the caller has no permission to read it.
    Denied(u32),
    /// The library does not know this version of the kernel's structures.
    Version(u32),
    /// The kernel returned invalid data.
    Corrupt(String),
}

impl Error {
    /// Returns true if a read failed because accounting is off.
    pub fn is_accounting_off(&self) -> bool {
        let nodata = Some(Errno::NODATA.raw_os_error());
        matches!(self, Self::Read(_, e) if e.raw_os_error() == nodata)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(e) => write!(f, "{PPA_DEVICE_PATH}: {e}"),
            Self::Read(path, e) => write!(f, "cannot read {path}: {e}"),
            Self::NoTask(pid) => write!(f, "no task {pid}"),
            Self::NotAccounted(pid) => write!(f, "task {pid} is not accounted"),
            Self::Denied(pid) => write!(f, "task {pid}: permission denied"),
            Self::Version(n) => write!(
                f,
                "the kernel uses version {n} of process accounting, but this program only version {VERSION}"
            ),
            Self::Corrupt(why) => write!(f, "invalid accounting data: {why}"),
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
