// SPDX-License-Identifier: GPL-2.0

//! Errors of opening and reading the counters.

use std::fmt;
use std::path::PathBuf;

/// The reason why no counters were read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The device could not be opened, or `fstat` on it failed.
    Open(PathBuf, std::io::Error),
    /// The device was opened, but could not be mapped, or the size of the file not be read.
    Io(&'static str, std::io::Error),
    /// The path leads to a file that does not hold counters.
    NotCounters(&'static str),
    /// The kernel uses a version of the layout that this library does not know.
    Version(u32),
    /// The mapped structures contradict each other.
    Corrupt(&'static str),
    /// The set of instances has changed since the selection was made.
    Changed,
    /// The set of instances changed at each of `TRIES` attempts.
    Unstable,
    /// This CPU was in the middle of an update at each of `TRIES` attempts.
    Busy(u32),
    /// `perfcounters.ko` was loaded again. The device must be opened again.
    Reloaded,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(path, e) => write!(f, "{}: {e}", path.display()),
            Self::Io(what, e) => write!(f, "cannot {what} the counters: {e}"),
            Self::NotCounters(why) => write!(f, "these are no counters: {why}"),
            Self::Version(n) => write!(
                f,
                "the kernel lays out its counters in version {n}; this reader knows version {}",
                engine::abi::VERSION
            ),
            Self::Corrupt(why) => write!(f, "these counters can not be read: {why}"),
            Self::Changed => f.write_str("the set of instances has changed; select again"),
            Self::Unstable => f.write_str("the set of instances changes all the time; try again"),
            Self::Busy(cpu) => write!(
                f,
                "CPU {cpu} updates its counters all the time, no consistent snapshot was had; \
                 try again, or select less"
            ),
            Self::Reloaded => f.write_str("the counters were loaded anew; open them again"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(_, e) | Self::Io(_, e) => Some(e),
            _ => None,
        }
    }
}
