// SPDX-License-Identifier: GPL-2.0

//! The errors that can occur when the counters are opened or read.

use std::fmt;
use std::path::PathBuf;

/// The reason why the counters could not be opened or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The device could not be opened, or `fstat` on it failed.
    Open(PathBuf, std::io::Error),
    /// The device or file was opened, but could not be mapped, or its size could not be read.
    Io(&'static str, std::io::Error),
    /// The path leads to a file that does not hold counters.
    NotCounters(&'static str),
    /// The kernel uses a version of the layout that this library does not know.
    Version(u32),
    /// The structures in the mapped file contradict each other.
    Corrupt(&'static str),
    /// The set of instances has changed since the selection was made.
    Changed,
    /// The set of instances changed at each of the `MAX_COPY_ATTEMPTS` attempts.
    Unstable,
    /// The CPU with this number was in the middle of an update at each of the `MAX_COPY_ATTEMPTS`
    /// attempts.
    Busy(u32),
    /// The boot id has changed, as if `perfcounters.ko` was loaded again. The caller must open the
    /// file again. This error occurs only for a regular file: `perfcounters.ko` cannot be unloaded
    /// while a process maps its device.
    Reloaded,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(path, e) => write!(f, "{}: {e}", visible::escape_path(path)),
            Self::Io(what, e) => write!(f, "cannot {what} the counters: {e}"),
            Self::NotCounters(why) => write!(f, "not perfcounters data: {why}"),
            Self::Version(n) => write!(
                f,
                "the kernel uses version {n} of the counter layout, but this program only version {}",
                counters_rules::abi::VERSION
            ),
            Self::Corrupt(why) => write!(f, "invalid counter data: {why}"),
            Self::Changed => f.write_str("the set of instances has changed; select again"),
            Self::Unstable => f.write_str("the set of instances changed at every attempt; try again"),
            Self::Busy(cpu) => write!(
                f,
                "no consistent snapshot: CPU {cpu} was updating its counters at every attempt; \
                 try again, or select fewer instances"
            ),
            Self::Reloaded => f.write_str("perfcounters.ko was loaded again; open the counters again"),
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
